"""Every interface, used as a user does: one function each that asks a model something.

A rule that holds for windows is tested over `INTERFACES`. Each function returns when the model has
answered; the model knows what it was sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from muntin import App, Slots, Source, capability, context, fit, flow, generate, generator, prompt
from muntin.agent import ToolLike, run_agent
from muntin.runtime import Action, Ctx
from muntin.testing import ScriptedModel

SYSTEM = "You are a helpful clerk."
RULES = "Always answer in one short sentence."

# An interface takes the app, the model, what the user says, and the tools.
Interface: TypeAlias = Callable[[App, ScriptedModel, str, Sequence[ToolLike]], Awaitable[Any]]


async def by_slots(
    app: App, model: ScriptedModel, text: str, tools: Sequence[ToolLike] = ()
) -> None:
    """The engine by itself, in the agent loop."""

    def compose(run: tuple[Any, ...]) -> Any:
        slots = Slots(app.budget or 8_000, profile=model.name)
        slots.add("system", SYSTEM, priority=9)
        slots.add("input", text)
        slots.add("run", [*run])
        return slots.render()

    await run_agent(model, compose, tools=tools)


async def by_fit(app: App, model: ScriptedModel, text: str, tools: Sequence[ToolLike] = ()) -> None:
    """A list of messages that an app holds itself, fitted at each step of the agent loop."""
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
    frontier: dict[str, Any] = {}

    def compose(run: tuple[Any, ...]) -> Any:
        nonlocal frontier
        fitted = fit(
            [*messages, *run],
            app.budget or 8_000,
            model=model.name,
            tools=tools,
            previous=frontier,
            tokenizer=app.tokenizer,
        )
        frontier = fitted.frontier
        return fitted.window

    await run_agent(model, compose, tools=tools)


async def by_conversation(
    app: App, model: ScriptedModel, text: str, tools: Sequence[ToolLike] = ()
) -> None:
    """A conversation without a strategy."""
    await app.conversation("c", model=model, tools=tools).send(text)


async def by_instructed(
    app: App, model: ScriptedModel, text: str, tools: Sequence[ToolLike] = ()
) -> None:
    """A conversation with a system prompt, and without a strategy."""
    chat = app.conversation("c", system_prompt=SYSTEM, model=model, tools=tools)
    await chat.send(text)


class Rendering:
    """The strategy of the docs."""

    async def on_context_build(self, ctx: Ctx) -> Any:
        ctx.slots.add("system", SYSTEM, priority=9)
        ctx.slots.add("history", ctx.history.recent(50))
        ctx.slots.add("input", ctx.message)
        return ctx.slots.render()


class Whole:
    """A strategy that hands over the timeline, the input in it, and returns nothing."""

    async def on_context_build(self, ctx: Ctx) -> None:
        ctx.slots.add("timeline", ctx.timeline_messages())


async def by_strategy(
    app: App, model: ScriptedModel, text: str, tools: Sequence[ToolLike] = ()
) -> None:
    """A conversation whose strategy renders."""
    await app.conversation("c", strategy=Rendering(), model=model, tools=tools).send(text)


async def by_timeline(
    app: App, model: ScriptedModel, text: str, tools: Sequence[ToolLike] = ()
) -> None:
    """A conversation whose strategy declares the timeline."""
    await app.conversation("c", strategy=Whole(), model=model, tools=tools).send(text)


def _entity(app: App, kind: str, handle: Callable[[Ctx], Awaitable[Any]]) -> None:
    async def handler(ctx: Ctx, wake: Any) -> Any:
        return await handle(ctx)

    app.entity(kind)(handler)


async def by_entity(
    app: App, model: ScriptedModel, text: str, tools: Sequence[ToolLike] = ()
) -> None:
    """An entity without sources."""

    async def handle(ctx: Ctx) -> None:
        ctx.insert_context("tone", name="Tone", content=RULES)
        ctx.use_agent(system_prompt=SYSTEM, model=model, tools=tools)
        await ctx.agent.run()

    _entity(app, "plain", handle)
    await app.ask("plain/1", text)


async def by_returned(
    app: App, model: ScriptedModel, text: str, tools: Sequence[ToolLike] = ()
) -> None:
    """An entity whose handler returns its agent."""

    async def handle(ctx: Ctx) -> Any:
        ctx.insert_context("tone", name="Tone", content=RULES)
        return ctx.use_agent(system_prompt=SYSTEM, model=model, tools=tools)

    _entity(app, "returned", handle)
    await app.ask("returned/1", text)


async def by_sources(
    app: App, model: ScriptedModel, text: str, tools: Sequence[ToolLike] = ()
) -> None:
    """An entity with sources."""

    async def handle(ctx: Ctx) -> None:
        await ctx.insert_context("tone", name="Tone", content=RULES)
        assert ctx.history is not None
        ctx.use_context(
            source_budget=4_000,
            sources={
                "rules": Source(RULES, max=500, cache="stable"),
                "found": Source(lambda: "found text", max=500),
                "talk": Source(ctx.timeline_messages, max=2_000),
            },
        )
        ctx.use_agent(system_prompt=SYSTEM, model=model, tools=tools)
        await ctx.agent.run()

    _entity(app, "sourced", handle)
    await app.ask("sourced/1", text)


async def by_generator(
    app: App, model: ScriptedModel, text: str, tools: Sequence[ToolLike] = ()
) -> None:
    """A generator with a text, tags, a context() and history."""
    made = generator(
        model=model,
        prompt=SYSTEM,
        context=[{"rules": RULES}, context(system="Be kind.")],
        history=5,
        user=lambda given: given,
        tools=tools,
    )
    await made.run(text, app=app, session="g")


async def by_generator_prompt(
    app: App, model: ScriptedModel, text: str, tools: Sequence[ToolLike] = ()
) -> None:
    """A generator whose prompt is a prompt()."""
    made = generator(
        model=model,
        prompt=prompt(use=[context(system=RULES)], system=SYSTEM),
        user=lambda given: given,
        tools=tools,
    )
    await made.run(text, app=app, session="p")


async def by_flow(
    app: App, model: ScriptedModel, text: str, tools: Sequence[ToolLike] = ()
) -> None:
    """A flow whose action runs a generator through ctx."""
    made = generator(model=model, prompt=SYSTEM, history=5, tools=tools)

    async def block(given: Any, ctx: Ctx) -> Any:
        assert ctx.history is not None
        return await ctx.run(made, given)

    desk = flow("desk", actions={"ask": Action(block, user_message=lambda given: given)})
    await desk.run("ask", text, app=app, session="f")


async def by_generate(
    app: App, model: ScriptedModel, text: str, tools: Sequence[ToolLike] = ()
) -> None:
    """generate with a prompt of contexts."""
    made = prompt(use=[context(system=RULES)], system=SYSTEM, prompt=text)
    await generate(made, model=model, tools=tools)


INTERFACES: dict[str, Interface] = {
    name.removeprefix("by_"): interface
    for name, interface in list(globals().items())
    if name[:3] == "by_"
}
# Those that keep what happens in the app's store.
DURABLE = {
    name: interface
    for name, interface in INTERFACES.items()
    if name not in ("slots", "fit", "generate")
}


# Interfaces that give users' functions a ctx: each calls `look` with it in a turn of the session
# `s/1`, and returns what that gave.
Look: TypeAlias = Callable[[Ctx], Any]


async def in_strategy(app: App, look: Look) -> Any:
    class Strategy:
        async def on_context_build(self, ctx: Ctx) -> None:
            seen.append(look(ctx))

    seen: list[Any] = []
    await app.conversation("s/1", strategy=Strategy()).send("now")
    return seen[0]


async def in_sync_strategy(app: App, look: Look) -> Any:
    class Strategy:
        def on_context_build(self, ctx: Ctx) -> None:
            seen.append(look(ctx))

    seen: list[Any] = []
    await app.conversation("s/1", strategy=Strategy()).send("now")
    return seen[0]


async def in_entity(app: App, look: Look) -> Any:
    seen: list[Any] = []

    async def handle(ctx: Ctx) -> None:
        seen.append(look(ctx))

    _entity(app, "s", handle)
    await app.ask("s/1", "now")
    return seen[0]


async def in_generator(app: App, look: Look) -> Any:
    seen: list[Any] = []

    async def text(given: object, ctx: Ctx) -> str:
        seen.append(look(ctx))
        return "x"

    await generator(user="now", context={"x": text}).run(app=app, session="s/1")
    return seen[0]


async def in_capability(app: App, look: Look) -> Any:
    seen: list[Any] = []

    async def functions(ctx: Ctx) -> None:
        seen.append(look(ctx))

    block = generator(user="now", uses=[capability("looking", functions=functions)])
    await block.run(app=app, session="s/1")
    return seen[0]


async def in_flow(app: App, look: Look) -> Any:
    async def block(given: object, ctx: Ctx) -> Any:
        seen.append(look(ctx))

    seen: list[Any] = []
    await flow("f", actions={"do": Action(block)}).run("do", app=app, session="s/1")
    return seen[0]


LOOKING: dict[str, Callable[[App, Look], Awaitable[Any]]] = {
    name.removeprefix("in_"): interface
    for name, interface in list(globals().items())
    if name[:3] == "in_"
}

__all__ = ["DURABLE", "INTERFACES", "LOOKING", "SYSTEM", "Interface", "Look"]
