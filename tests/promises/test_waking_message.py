"""The message that woke an entity is in its window exactly once, and last of what it was told."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import App, BudgetExceeded, Message, Source, ToolCall, Window, assistant, user
from muntin.runtime.ctx import Ctx
from muntin.testing import ScriptedModel
from tests.products import NAMES, PRICED, cover
from tests.runtime.conftest import memory, run, texts, wakes

every_name = pytest.mark.parametrize("name", NAMES)
TIERS = ["pinned", "stable", "slow-changing", "volatile"]


def past(ctx: Ctx) -> list[Message]:
    """Return what was said before the waking message: it is no copy of the timeline's own."""
    return [m for m in ctx.timeline_messages() if (m.at or 0) < ctx.wake.from_position]


# What users make of a timeline.
MAPPED: dict[str, Callable[[Ctx], Any]] = {
    "as it is": lambda ctx: ctx.timeline_messages(),
    "a list": lambda ctx: list(ctx.timeline_messages()),
    "plain dicts": lambda ctx: [{"role": m.role, "content": m.text} for m in past(ctx)],
    "dicts with positions": lambda ctx: [m.to_dict() for m in past(ctx)],
    "with clock times": lambda ctx: [
        {"role": m.role, "content": m.text, "at": 1.7e9 + (m.at or 0)} for m in past(ctx)
    ],
    "without positions": lambda ctx: [replace(m, at=None) for m in ctx.timeline_messages()],
    "the newest two": lambda ctx: ctx.timeline_messages()[-2:],
    "with a note behind": lambda ctx: [
        *({"role": m.role, "content": m.text} for m in past(ctx)),
        {"role": "system", "content": "note"},
    ],
}


def woken(
    name: str,
    app: App,
    made: Callable[[Ctx], Any],
    *payloads: Any,
    budget: int = 10_000,
    **options: Any,
) -> list[Window]:
    """Return the windows of an entity whose only source is made of its ctx."""
    model = ScriptedModel(lambda window: "ok", name=name)

    async def handler(ctx: Ctx) -> None:
        source = Source(lambda: made(ctx), **options)
        ctx.use_context(source_budget=budget, sources={"chat": source})
        ctx.use_agent(model=model)
        await ctx.agent.run()

    run(wakes(app, handler, *payloads))
    return model.windows


@pytest.mark.parametrize(("made", "tier", "name"), cover(MAPPED, TIERS, NAMES))
def test_the_waking_message_is_there_once_in_any_tier_and_any_form(made, tier, name):
    windows = woken(name, memory(), MAPPED[made], "one", "two", "three", max=1_000, cache=tier)
    for payload, window in zip(("one", "two", "three"), windows, strict=True):
        assert texts(window).count(payload) == 1
        assert window.messages[-1].text == payload
    last = [text for text in texts(windows[-1]) if text in ("one", "two")]
    assert last == ([] if made == "the newest two" else ["one", "two"])


@every_name
@pytest.mark.parametrize("made", ["as it is", "plain dicts", "dicts with positions"])
def test_the_same_words_said_before_are_not_the_waking_message(made, name):
    windows = woken(name, memory(), MAPPED[made], "yes", "yes", "yes")
    assert texts(windows[-1]) == ["yes", "ok", "yes", "ok", "yes"]


@pytest.mark.parametrize("made", list(MAPPED))
def test_what_the_turn_did_before_stands_behind_the_waking_message_once(made):
    model = ScriptedModel(["one", "two"], name=PRICED)

    async def handler(ctx: Ctx) -> None:
        ctx.use_context(source_budget=999, sources={"chat": Source(lambda: MAPPED[made](ctx))})
        ctx.use_agent(model=model)
        await ctx.agent.run()
        await ctx.agent.run()

    run(wakes(memory(), handler, "wake"))
    shown = [text for text in texts(model.windows[1]) if text != "note"]
    assert shown == ["wake", "one"]


def test_what_another_turn_said_while_the_message_waited_is_not_lost():
    """The second message arrives while the first is handled; then the first turn runs again."""
    app = memory()
    model = ScriptedModel(["first", "second", "third"], name=PRICED)

    @app.entity("e")
    async def handler(ctx: Ctx, wake: Any) -> None:
        ctx.use_context(source_budget=999, sources={"chat": Source(ctx.timeline_messages)})
        ctx.use_agent(model=model)
        await ctx.agent.run()
        if wake.payload == "one":
            await app.send("e/1", "two")
            await ctx.agent.run()

    async def work() -> None:
        await app.ask("e/1", "one")
        await app.close()

    run(work())
    assert texts(model.windows[-1]) == ["one", "first", "second", "two"]


@every_name
@pytest.mark.parametrize(("size", "budget"), [(30, 29), (256, 255), (257, 255), (9_000, 100)])
def test_a_source_budget_too_small_for_the_waking_message_is_an_error_with_both(size, budget, name):
    with pytest.raises(BudgetExceeded) as caught:
        woken(name, memory(), lambda ctx: "text", "w" * size, budget=budget)
    least = min(256, size)
    assert (caught.value.needed, caught.value.available) == (least, budget)
    assert f"source_budget is {budget:,}" in str(caught.value)
    assert f"{least:,}" in str(caught.value)
    assert "'e/1'" in str(caught.value)


@every_name
@pytest.mark.parametrize("size", [30, 256])
def test_a_source_budget_that_just_holds_the_waking_message_is_enough(size, name):
    (window,) = woken(name, memory(), lambda ctx: "text" * 100, "w" * size, budget=size)
    assert texts(window) == ["w" * size]


def test_all_of_a_waking_message_that_was_cut_can_be_read():
    payload = "".join(chr(97 + n % 26) for n in range(5_000))
    read: list[str] = []

    def reads(window: Window) -> Any:
        if len(model.windows) > 1:
            read.append(window.messages[-1].text)
            return "done"
        told = "".join(texts(window))
        snapshot = told.partition('load_source_range("input", 0, 5000, "')[2].partition('"')[0]
        arguments = {"name": "input", "start": 0, "end": 5_000, "snapshot": snapshot}
        return ToolCall("c1", "load_source_range", json.dumps(arguments))

    model = ScriptedModel(reads, name=PRICED)

    async def handler(ctx: Ctx) -> None:
        ctx.use_context(source_budget=1_000, sources={"a": Source("text")})
        ctx.use_agent(model=model)
        await ctx.agent.run()

    run(wakes(memory(), handler, payload))
    assert read == [payload]


@given(
    words=st.lists(st.sampled_from(["yes", "no", "ok", "why?"]), min_size=1, max_size=4),
    made=st.sampled_from(sorted(MAPPED)),
    tier=st.sampled_from(TIERS),
    name=st.sampled_from(NAMES),
)
def test_every_message_is_there_as_often_as_it_was_said(words, made, tier, name):
    app = memory()
    app.session("e/1").append(user("before"), assistant("answer"))
    windows = woken(name, app, MAPPED[made], *words, max=5_000, cache=tier)
    for n, window in enumerate(windows):
        shown = [m.text for m in window.messages if m.role == "user"]
        said = ["before", *words[: n + 1]]
        assert shown == (said[-1:] if made == "the newest two" else said)
