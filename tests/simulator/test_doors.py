"""What caching costs in every door: never more than no caching would.

Thirty turns with text that is searched for anew in each of them, and what the provider would have
charged, by the published rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from muntin import App, CacheOptions, Source, Window, context, generate, generator, prompt
from muntin.runtime import Ctx
from muntin.simulator import simulate
from muntin.testing import ScriptedModel
from tests.products import cover

MODELS = (
    "anthropic/claude-sonnet-4-5",
    "anthropic/claude-opus-5",
    "openai/gpt-5",
    "openai/gpt-5.6",
    "google/gemini-2.5-pro",
)
TURNS = 30
RULES = "Answer only from what was found, in one short sentence. " * 100
BUDGET = 6_000


def found(question: str) -> str:
    """Return what a search finds: another text for every question."""
    number = question.split()[1]
    return f"Found for {number}: " + f"paper {number} says so. " * 40


class Retrieving:
    """A strategy with retrieval behind the history, or before it, as anybody's."""

    def __init__(self, role: str, front: bool = False) -> None:
        self.role, self.front = role, front

    async def on_context_build(self, ctx: Ctx) -> None:
        slots: Any = ctx.slots
        slots.add("rules", RULES, role="system", priority=100)
        if self.front:
            slots.add("found", found(ctx.message.text), role=self.role, max_tokens=800)
        slots.add("history", ctx.timeline_messages())
        if not self.front:
            slots.add("found", found(ctx.message.text), role=self.role, max_tokens=800)
        slots.add("input", ctx.message)


def by_strategy(role: str, front: bool = False) -> Callable[..., Awaitable[None]]:
    async def ask(app: App, model: ScriptedModel, text: str) -> None:
        chat = app.conversation("c", strategy=Retrieving(role, front), model=model, budget=BUDGET)
        await chat.send(text)

    return ask


async def by_sources(app: App, model: ScriptedModel, text: str) -> None:
    kind = f"e{text.split()[1]}"

    @app.entity(kind)
    async def handler(ctx: Ctx, wake: Any) -> None:
        ctx.use_context(
            source_budget=5_800,
            sources={
                "rules": Source(RULES, max=2_000, cache="stable"),
                "found": Source(lambda: found(text), max=800),
                "listed": Source(lambda: [{"role": "user", "content": found(text)}], max=400),
                "talk": Source(app.session("talk").timeline_messages, max=3_000),
            },
        )
        ctx.use_agent(system_prompt="Be brief.", model=model, budget=8_000)
        await ctx.agent.run()

    await app.ask(f"{kind}/1", text)


def by_generator(place: Any, **options: Any) -> Callable[..., Awaitable[None]]:
    async def ask(app: App, model: ScriptedModel, text: str) -> None:
        made = generator(
            name="g",
            model=model,
            prompt="Be brief.",
            context=[{"found": found, "rules": RULES}, lambda given: f"Also {found(given)}"],
            user=lambda given: given,
            budget=BUDGET,
            place=place,
            **options,
        )
        await made.run(text, app=app, session="g")

    return ask


async def by_generate(app: App, model: ScriptedModel, text: str) -> None:
    made = prompt(
        use=[
            context(system=lambda: found(text)),
            context(id="rules", system=lambda: RULES, cache=CacheOptions()),
        ],
        prompt=text,
    )
    await generate(made, model=model)


LAYOUTS: dict[str, Callable[..., Awaitable[None]]] = {
    "strategy, system": by_strategy("system"),
    "strategy, user": by_strategy("user"),
    "strategy, in front": by_strategy("system", front=True),
    "sources": by_sources,
    "generator": by_generator("front", history=True),
    "generator, no history": by_generator("front"),
    "generator, behind": by_generator("behind", history=True),
    "generate": by_generate,
}


def windows(model: str, door: Callable[..., Awaitable[None]]) -> list[Window]:
    asked = ScriptedModel(lambda _: "It is so, the paper says. " * 12, name=model)

    async def run() -> None:
        async with App("memory:", keep_reports=0) as app:
            for turn in range(TURNS):
                await door(app, asked, f"question {turn} of many, what is said of it? " * 4)

    asyncio.run(run())
    return asked.windows


@pytest.mark.parametrize(("model", "layout"), cover(MODELS, LAYOUTS))
def test_caching_never_costs_more_than_no_caching(model: str, layout: str) -> None:
    sent = windows(model, LAYOUTS[layout])
    assert len(sent) == TURNS
    (run,) = simulate(sent, model).runs
    assert run.cost <= run.tokens * 1.0001
    if layout in ("strategy, system", "strategy, user", "generator, behind"):
        assert run.cost_share < 0.6  # the history is read again
