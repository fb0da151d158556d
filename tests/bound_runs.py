"""Long runs against a provider that enforces its rules, through every interface.

Each function makes `steps` requests with a vendor's real client over HTTP and returns how many were
refused before it gave up; a caller that is refused stops, as real callers do.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anthropic

from muntin import App, fit
from muntin.fitting import fit_client
from muntin.providers import as_model
from muntin.runtime import Ctx
from muntin.timeline.store import Store
from tests.enforcing import EnforcingProvider
from tests.gateway.running import running
from tests.providers.servers import serving

SYSTEM = "You are a careful engineer. " * 20
TOOLS: list[Any] = [
    {
        "name": "read",
        "description": "Read a file.",
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
    }
]
QUESTION = "Find out why the build fails, and mend it."


def read(path: str) -> str:
    """Read a file."""
    number = int("".join(filter(str.isdigit, path)))
    lines = (20, 45, 90, 160)[number % 4]
    return "\n".join(f"{path} line {n}: value_{n * number % 997} = {n}" for n in range(lines))


def client(url: str) -> anthropic.Anthropic:
    """Return Anthropic's client for a server."""
    return anthropic.Anthropic(api_key="k", base_url=url, max_retries=0)


def run_agent_loop(
    ask: Callable[[list[Any]], Any], steps: int, said: list[Any] | None = None
) -> list[Any]:
    """Ask, run the tools, and ask again; a new question follows each answer. Returns the list."""
    said = [{"role": "user", "content": QUESTION}] if said is None else said
    for _ in range(steps):
        blocks = [block.model_dump(exclude_none=True) for block in ask(said).content]
        said.append({"role": "assistant", "content": blocks})
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": read(**block["input"])}
            for block in blocks
            if block["type"] == "tool_use"
        ]
        said.append({"role": "user", "content": results or f"Go on, part {len(said)}."})
    return said


def by_fit(
    url: str, model: str, steps: int, budget: int, lost_at: int | None = None, named: bool = True
) -> list[Any]:
    """A list of messages that an app fits before each request; its state is plain JSON."""
    sdk, state, count = client(url), dict[str, Any](), 0

    def ask(said: list[Any]) -> Any:
        nonlocal state, count
        count += 1
        state = {} if count == lost_at else state
        fitted = fit(
            said, budget, model=f"anthropic/{model}" if named else None, tools=TOOLS,
            system=SYSTEM, previous=state,
        )  # fmt: skip
        state = json.loads(json.dumps(fitted.frontier))
        return sdk.messages.create(
            model=model, max_tokens=1_000, messages=fitted.kept, tools=TOOLS, system=SYSTEM
        )

    return run_agent_loop(ask, steps)


def asks(sdk: anthropic.Anthropic, model: str) -> Callable[[list[Any]], Any]:
    """Return what asks a model through a client."""
    return lambda said: sdk.messages.create(
        model=model, max_tokens=1_000, messages=said, tools=TOOLS, system=SYSTEM
    )


def by_client(url: str, model: str, steps: int, budget: int) -> list[Any]:
    """Anthropic's client, made to fit."""
    return run_agent_loop(asks(fit_client(client(url), budget), model), steps)


def by_gateway(url: str, model: str, steps: int, budget: int, store: str = "memory:") -> list[Any]:
    """Anthropic's client over the gateway."""
    with running(url, budget, store) as gateway:
        return run_agent_loop(asks(client(gateway.url), model), steps)


def by_conversation(
    url: str,
    model: str,
    steps: int,
    budget: int,
    store: Store | str = "memory:",
    provider: EnforcingProvider | None = None,
    turns: int = 1_000_000,
    **options: Any,
) -> list[str]:
    """A conversation with a tool, until so many requests or turns were made."""
    app = App(store, model=as_model(f"anthropic/{model}", base_url=url, api_key="k", max_retries=0),
              budget=budget, **options)  # fmt: skip
    asked = [QUESTION]

    async def talk() -> None:
        chat = app.conversation("c", system_prompt=SYSTEM, tools=[read])
        while len(asked) <= turns and (provider is None or len(provider.exchanges) < steps):
            await chat.send(asked[-1])
            asked.append(f"Go on, part {len(asked)}.")

    asyncio.run(talk())
    return asked


def by_entity(
    url: str, model: str, steps: int, budget: int, provider: EnforcingProvider, **options: Any
) -> list[str]:
    """An entity with an agent, woken until so many requests were made."""
    app = App("memory:", budget=budget, model=as_model(
        f"anthropic/{model}", base_url=url, api_key="k", max_retries=0), **options)  # fmt: skip
    asked = [QUESTION]

    async def handle(ctx: Ctx, wake: Any) -> Any:
        ctx.use_agent(system_prompt=SYSTEM, tools=[read])
        await ctx.agent.run()

    app.entity("clerk")(handle)

    async def wake() -> None:
        while len(provider.exchanges) < steps:
            await app.ask("clerk/1", asked[-1])
            asked.append(f"Go on, part {len(asked)}.")

    asyncio.run(wake())
    return asked


RUNS: Mapping[str, Callable[..., Sequence[Any]]] = {
    "fit": by_fit, "client": by_client, "gateway": by_gateway,
    "conversation": by_conversation, "entity": by_entity,
}  # fmt: skip


def make_run(
    name: str, model: str, steps: int, budget: int = 20_000, **options: Any
) -> EnforcingProvider:
    """Make a run; return the provider, with all that came to it."""
    period = options.pop("period", 6)
    provider = EnforcingProvider(period=period)
    with serving(provider.answer) as server:
        if name in ("conversation", "entity"):
            options["provider"] = provider
        try:
            RUNS[name](server.url, model, steps, budget, **options)
        except Exception as error:  # a refused request ends a run
            if not provider.refused:
                raise
            error.add_note(name)
    return provider
