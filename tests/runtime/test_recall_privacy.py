"""Recall shows what the history shows: what a projection takes out, or hides, is in no request.

In every door in which code can give a projection, and on the wires.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import pytest

from muntin import Action, App, History, Message, Slots, Source, Window, flow, generator, user
from muntin.agent import run_agent
from muntin.agent.tools import tool_name
from muntin.runtime import Ctx
from muntin.testing import ScriptedModel
from muntin.timeline.items import Visibility, draft_of
from tests.interfaces import INTERFACES as EVERY
from tests.products import THREE, sample
from tests.runtime.test_recall import CHAT, NEEDLE, QUESTION, awaited, excerpts, model
from tests.wired import WIRED

SECRET, SHOWN = "QX7731", "My locker is [removed], in the east hall."
AUNT = "My aunt has the locker ZZ4242."
HIDDEN = "The hidden locker is ZZ8888."
# A door asks a model something, in a session "helper/s"; the projection is given by its code.
Interface: TypeAlias = Callable[[App, ScriptedModel, str], Awaitable[Any]]


def redact(item: Any) -> Sequence[Message] | None:
    """Take the number out, and hide what is said of the aunt."""
    text = item.message.text if item.message is not None else ""
    if "aunt" in text:
        return []
    return [user(SHOWN)] if SECRET in text else None


async def by_list(app: App, model: ScriptedModel, text: str) -> None:
    """Plain slots: a list that was projected."""
    session = app.session("helper/s")
    past = History(session.timeline_messages(projection=redact))
    session.append(draft_of(user(text), opens="turn", ends="completed"))

    def compose(run: tuple[Any, ...]) -> Any:
        slots = Slots(4_000, profile=model.name)
        slots.add("recalled", past.relevant(text, tokens=400))
        slots.add("input", text)
        slots.add("run", [*run])
        return slots.render()

    await run_agent(model, compose)


class Strategy:
    """Declares a short timeline, projected, and what is recalled beside it."""

    def on_context_build(self, ctx: Ctx) -> Any:
        timeline = ctx.timeline_messages(projection=redact)
        ctx.slots.add("recalled", ctx.relevant(tokens=400))
        ctx.slots.add("timeline", timeline, max_tokens=300)
        return ctx.slots.render()


async def by_strategy(app: App, model: ScriptedModel, text: str) -> None:
    """A conversation whose strategy declares the timeline."""
    await app.conversation("helper/s", strategy=Strategy(), model=model).send(text)


def _entity(app: App, handle: Callable[[Ctx], Awaitable[Any]]) -> None:
    if "helper" not in app._wakes.handlers:

        @app.entity("helper")
        async def helper(ctx: Ctx, wake: Any) -> Any:
            return await handle(ctx)


async def by_entity(app: App, model: ScriptedModel, text: str) -> None:
    """An entity whose code gave a projection."""

    async def handle(ctx: Ctx) -> None:
        ctx.timeline_messages(projection=redact)
        ctx.use_agent(model=model)
        await ctx.agent.run()

    _entity(app, handle)
    await app.ask("helper/s", text)


async def by_returned(app: App, model: ScriptedModel, text: str) -> None:
    """An entity whose handler returns its agent."""

    async def handle(ctx: Ctx) -> Any:
        ctx.timeline_messages(projection=redact)
        return ctx.use_agent(model=model)

    _entity(app, handle)
    await app.ask("helper/s", text)


async def by_sources(app: App, model: ScriptedModel, text: str) -> None:
    """An entity with sources, whose agent searches too."""

    async def handle(ctx: Ctx) -> None:
        sources = {
            "timeline": Source(ctx.timeline_messages(projection=redact), max=300),
            "recalled": Source(ctx.relevant, max=400),
        }
        ctx.use_context(source_budget=1_200, sources=sources)
        search: Any = {tool_name(each): each for each in ctx.tools}["search_history"]
        found = await search(f"locker {SECRET} ZZ4242")
        assert SECRET not in found
        assert "ZZ4242" not in found
        ctx.use_agent(model=model)
        await ctx.agent.run()

    _entity(app, handle)
    await app.ask("helper/s", text)


async def projected(given: Any, ctx: Ctx) -> Any:
    """Return the history of a generator, projected."""
    return await ctx.timeline_messages(projection=redact).load()


async def by_generator(app: App, model: ScriptedModel, text: str) -> None:
    """A generator whose history is projected."""
    made = generator(
        name="g", model=model, history=projected, user=lambda given: given, recall=True
    )
    await made.run(text, app=app, session="helper/s")


async def by_flow(app: App, model: ScriptedModel, text: str) -> None:
    """A flow whose action is such a generator."""
    made = generator(name="g", model=model, history=projected)
    desk = flow("f", actions={"say": Action(made, user_message=lambda given: given)}, recall=True)
    await desk.run("say", text, session="helper/s", app=app)


INTERFACES: dict[str, Interface] = {
    name.removeprefix("by_"): door for name, door in list(globals().items()) if name[:3] == "by_"
}


def wires(window: Window) -> dict[str, str]:
    """Return the requests of a window, as text."""
    made = {
        "chat": window.openai(),
        "responses": window.openai(api="responses"),
        "anthropic": window.anthropic(),
        "google": window.google(),
    }
    return {name: json.dumps(request) for name, request in made.items()}


@pytest.mark.parametrize("door", sample(INTERFACES))
@awaited
async def test_what_a_projection_redacts_is_recalled_redacted_and_what_it_hides_is_not(door):
    made = model()
    async with App("memory:", recall=True) as app:
        for text in (NEEDLE, AUNT):
            await INTERFACES[door](app, made, text)
        told = draft_of(user(HIDDEN), visibility=Visibility(history=False), opens="turn")
        app.session("helper/s").append(told)
        for number in range(25):
            await INTERFACES[door](app, made, CHAT.format(number))
        count = len(made.windows)
        await INTERFACES[door](app, made, QUESTION)
    window = made.windows[count]
    assert SHOWN in excerpts(window)
    for name, request in wires(window).items():
        assert "[removed]" in request, name
        for secret in (SECRET, "aunt", "ZZ4242", "ZZ8888"):
            assert secret not in request, (name, secret)
    detail = str(window.report["recalled"].detail)
    assert not any(secret in detail.casefold() for secret in ("qx7731", "zz4242", "zz8888"))


# What each door keeps its talk under.
SESSIONS = ("c", "plain/1", "returned/1", "sourced/1", "g", "p", "f")


@pytest.mark.filterwarnings("error::DeprecationWarning")  # of a model that is going away
@pytest.mark.parametrize("door", sample([*EVERY, *WIRED], *THREE, "gateway"))
@awaited
async def test_no_door_sends_what_is_hidden_or_of_another_session(door):
    made = model()
    async with App("memory:", recall=True, budget=6_000) as app:
        for name in SESSIONS:
            hidden = draft_of(user(HIDDEN), visibility=Visibility(history=False), opens="turn")
            passing = draft_of(user(HIDDEN), transient=True, opens="turn", ends="completed")
            app.session(name).append(hidden, passing)
            app.session(f"other/{name}").append(user(NEEDLE))
            small = [draft_of(user(CHAT.format(n)), opens="turn") for n in range(120)]
            app.session(name).append(*small)
        await {**EVERY, **WIRED}[door](app, made, QUESTION, ())
    assert made.windows
    for window in made.windows:
        for name, request in wires(window).items():
            assert QUESTION in request, name
            assert "ZZ8888" not in request, name
            assert SECRET not in request, name
