"""A projection applies to the current message and to the tools that read what was cut."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from muntin import App, Source, ToolCall, assistant, user
from muntin.agent.tools import call_tool, tool_name
from muntin.core.counting.counter import Counter
from muntin.runtime.ctx import Ctx
from muntin.testing import ScriptedModel
from muntin.timeline.items import Item
from tests.products import NAMES, PRICED
from tests.runtime.conftest import memory, run, texts, wakes

RAW = "my card is 4111"
SAFE = "my card is ****"
HIDDEN = "(this message is not shown)"


def redact(item: Item) -> Any:
    """Show no card number."""
    message = item.message
    if message is None and item.kind == "message":
        message = user(str(item.payload))
    if message is None or "4111" not in message.text:
        return None
    return [replace(message, content=message.text.replace("4111", "****"))]


def hide(item: Item) -> Any:
    return [] if redact(item) else None


# Each makes a source of a ctx, in the ways a projection may be given.
SOURCES: dict[str, Callable[[Ctx], Any]] = {
    "timeline": lambda ctx: ctx.timeline_messages(projection=redact),
    "since": lambda ctx: ctx.timeline_messages(since=ctx.wake.to_position, projection=redact),
    "list": lambda ctx: [*ctx.timeline_messages(projection=redact)],
    "dicts": lambda ctx: [
        {"role": m.role, "content": m.text} for m in ctx.timeline_messages(projection=redact)[:-1]
    ],
    "text": lambda ctx: "\n".join(m.text for m in ctx.timeline_messages(projection=redact)[:-1]),
    "own words": lambda ctx: [
        replace(m, content=m.text.replace("4111", "****")) for m in ctx.timeline_messages()
    ],
}


def sent(model: ScriptedModel) -> list[str]:
    """Return everything of every request as text."""
    return [
        json.dumps([window.openai(), window.anthropic(), window.google()])
        for window in model.windows
    ]


@pytest.mark.parametrize("made", list(SOURCES))
@pytest.mark.parametrize("tier", ["stable", "volatile"])
@pytest.mark.parametrize("name", NAMES)
def test_the_waking_message_is_projected_like_every_other(made, tier, name):
    model = ScriptedModel(lambda window: "ok", name=name)

    async def handler(ctx: Ctx) -> None:
        source = Source(lambda: SOURCES[made](ctx), max=500, cache=tier)
        ctx.use_context(source_budget=2_000, sources={"chat": source})
        ctx.use_agent(model=model)
        await ctx.agent.run()

    run(wakes(memory(), handler, RAW, "and now?"))
    assert not any("4111" in request for request in sent(model))
    assert texts(model.windows[0]).count(SAFE) == 1
    assert model.windows[0].messages[-1].text == SAFE
    assert model.windows[1].messages[-1].text == "and now?"


def test_what_a_projection_hides_is_not_sent_and_its_place_is_kept():
    model = ScriptedModel(lambda window: "ok", name=PRICED)

    async def handler(ctx: Ctx) -> None:
        chat = Source(lambda: ctx.timeline_messages(projection=hide))
        ctx.use_context(source_budget=2_000, sources={"chat": chat})
        ctx.use_agent(model=model)
        await ctx.agent.run()

    run(wakes(memory(), handler, "hello", RAW))
    assert texts(model.windows[1]) == ["hello", "ok", HIDDEN]


def test_a_projection_beside_the_plain_timeline_changes_nothing_in_it():
    model = ScriptedModel(lambda window: "ok", name=PRICED)

    async def handler(ctx: Ctx) -> None:
        sources = {
            "digest": Source(lambda: ctx.timeline_messages(projection=lambda item: [user("…")])),
            "chat": Source(ctx.timeline_messages),
        }
        ctx.use_context(source_budget=2_000, sources=sources)
        ctx.use_agent(model=model)
        await ctx.agent.run()

    run(wakes(memory(), handler, "hello"))
    assert texts(model.windows[0]) == ["hello"]


def strategies() -> dict[str, Callable[[Ctx], Any]]:
    def slots(ctx: Ctx) -> None:
        ctx.slots.add("timeline", ctx.timeline_messages(projection=redact))

    def with_input(ctx: Ctx) -> None:
        slots(ctx)
        ctx.slots.add("input", ctx.message)

    def rendered(ctx: Ctx) -> Any:
        with_input(ctx)
        return ctx.slots.render()

    def returned(ctx: Ctx) -> Any:
        return list(ctx.timeline_messages(projection=redact))

    def as_dicts(ctx: Ctx) -> Any:
        found = ctx.timeline_messages(projection=redact)
        return {"messages": [{"role": m.role, "content": m.text} for m in found]}

    def own_words(ctx: Ctx) -> None:
        ctx.slots.add(
            "timeline",
            [replace(m, content=m.text.replace("4111", "****")) for m in ctx.timeline_messages()],
        )

    made: list[Any] = [slots, with_input, rendered, returned, as_dicts, own_words]
    return {each.__name__: each for each in made}


@pytest.mark.parametrize("made", list(strategies()))
@pytest.mark.parametrize("name", NAMES)
def test_the_input_of_a_strategy_is_projected_like_every_other(made, name):
    model = ScriptedModel(lambda window: "ok", name=name)
    strategy = SimpleNamespace(on_context_build=strategies()[made])
    chat = memory(model=model).conversation("c", strategy=strategy)

    async def talk() -> None:
        await chat.send("hello")
        await chat.send(RAW)
        await chat.send("and now?")

    run(talk())
    assert not any("4111" in request for request in sent(model))
    assert texts(model.windows[1]) == ["hello", "ok", SAFE]
    assert texts(model.windows[2])[-3:] == [SAFE, "ok", "and now?"]


def tools_of(app: App, name: str, projection: Any = redact, **arguments: Any) -> str:
    """Call a tool that reads what was cut, as the model would in a wake with a projection."""
    found: list[str] = []

    async def handler(ctx: Ctx) -> None:
        chat = Source(lambda: ctx.timeline_messages(projection=projection), max=400)
        ctx.use_context(source_budget=2_000, sources={"chat": chat})
        ctx.use_agent(model=ScriptedModel(["ok"], name=PRICED))
        await ctx.agent.run()
        tool = next(each for each in ctx.tools if tool_name(each) == name)
        made = ToolCall("c1", name, json.dumps(arguments))
        found.append(await call_tool(tool, made, Counter(len)))

    run(wakes(app, handler, "wake"))
    return found[0]


def test_the_timeline_is_read_through_the_projection():
    app = memory()
    app.session("e/1").append(user(RAW), assistant("noted 4111"), user("more"))
    read = tools_of(app, "load_timeline_range", start=1, end=3)
    assert "4111" not in read
    assert SAFE in read
    assert "more" in read
    app = memory()
    app.session("e/1").append(user(RAW), assistant("fine"))
    read = tools_of(app, "load_timeline_range", hide, start=1, end=2)
    assert "my card" not in read
    assert "fine" in read


def test_an_entry_is_read_through_the_projection():
    def without_numbers(item: Item) -> Any:
        if item.kind != "context_inserted":
            return None
        return [user(item.payload["content"].replace("4111", "****"))]

    app = memory()
    app.session("e/1").append(user("hi"))
    entry = app.session("e/1").insert_context("card", name="Card", content=RAW)
    read = tools_of(
        app, "load_context_history", without_numbers, id="card", position=entry.inserted_at
    )
    assert read == SAFE


def test_a_source_made_of_a_projection_is_read_as_it_was_shown():
    app = memory()
    app.session("e/1").append(user(RAW + " " + "x" * 600), assistant("ok"))
    model = ScriptedModel(lambda window: "ok", name=PRICED)
    read: list[str] = []

    async def handler(ctx: Ctx) -> None:
        def text() -> str:
            return "\n".join(m.text for m in ctx.timeline_messages(projection=redact)[:-1])

        ctx.use_context(source_budget=900, sources={"chat": Source(text, max=300)})
        ctx.use_agent(model=model)
        await ctx.agent.run()
        hint = texts(model.windows[0])[0].partition("load_source_range(")[2].partition(")")[0]
        name, _, end, snapshot = json.loads(f"[{hint}]")
        reader: Any = next(t for t in ctx.tools if tool_name(t) == "load_source_range")
        read.append(await reader(name, 0, end, snapshot))

    run(wakes(app, handler, "wake"))
    assert SAFE in read[0]
    assert "4111" not in read[0]


def test_a_projection_is_asked_once_for_the_waking_message():
    asked: list[int] = []

    def projection(item: Item) -> None:
        asked.append(item.position)

    async def handler(ctx: Ctx) -> None:
        chat = Source(lambda: ctx.timeline_messages(projection=projection))
        ctx.use_context(source_budget=900, sources={"chat": chat})
        ctx.use_agent(model=ScriptedModel(["ok"], name=PRICED))
        await ctx.agent.run()

    run(wakes(memory(), handler, "wake"))
    assert asked == [1]
