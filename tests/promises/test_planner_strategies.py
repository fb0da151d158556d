"""What a strategy declares holds in every turn of a conversation, whatever the model is called.

One character is one token, so that every model counts alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from muntin import App, SlotReport, Slots, ToolCall, Window, assistant, user
from muntin.agent import ToolLike
from muntin.runtime import Ctx
from muntin.testing import ScriptedModel
from tests.products import MODELS, cover
from tests.runtime.conftest import run, texts
from tests.words import scripted

# A model without a name, two whose caching is priced, and one whose caching is not.
every_name = pytest.mark.parametrize("name", MODELS)


def question(turn: int, size: int = 60) -> str:
    return f"{turn} ".ljust(size, "q")


class Strategy:
    """Declares slots by a function of ctx and the number of the turn."""

    def __init__(self, declare: Callable[[Ctx, int], None]) -> None:
        self.declare = declare
        self.turn = 0

    def on_context_build(self, ctx: Ctx) -> Any:
        self.declare(ctx, self.turn)
        self.turn += 1
        return ctx.slots.render()


def talk(
    name: str | None,
    turns: int,
    budget: int,
    declare: Callable[[Ctx, int], None] | None = None,
    *,
    size: int = 60,
    reply: Callable[[Window], Any] | None = None,
    tools: Sequence[ToolLike] = (),
    **options: Any,
) -> list[Window]:
    """Hold a conversation; return its windows, one for each request to the model."""
    model = scripted(reply or (lambda window: "r" * size), name)

    async def work() -> None:
        async with App("memory:", model=model, tokenizer=len, **options) as app:
            strategy = Strategy(declare) if declare else None
            chat = app.conversation("c", strategy=strategy, budget=budget, tools=tools)
            for turn in range(turns):
                await chat.send(question(turn, size))

    run(work(), within=60)
    return model.windows


def tokens_kept(windows: Sequence[Window], slot: str) -> list[int]:
    return [window.report[slot].tokens_kept for window in windows]


# Priority.


def rag(passages: Callable[[int], int]) -> Callable[[Ctx, int], None]:
    def declare(ctx: Ctx, turn: int) -> None:
        ctx.slots.add("system", "Answer from the passages only.", role="system", priority=100)
        ctx.slots.add("history", ctx.history.recent(1_000), priority=10)
        ctx.slots.add("passages", "p" * passages(turn), priority=50)
        ctx.slots.add("input", ctx.input)

    return declare


@every_name
def test_passages_of_a_higher_priority_are_in_every_window(name) -> None:
    windows = talk(name, 40, 4_000, rag(lambda turn: 2_000))
    assert tokens_kept(windows, "passages") == [2_000] * 40
    # The history moves to half of its room (1,910 tokens) and grows to all of it again.
    history = tokens_kept(windows, "history")
    assert history[:16] == [turn * 120 for turn in range(16)]
    assert history[16:32] == [*range(960, 1_801, 120), *range(960, 1_801, 120)]


@every_name
def test_one_large_document_empties_the_history_for_one_turn_only(name) -> None:
    windows = talk(name, 24, 4_000, rag(lambda turn: 3_600 if turn == 20 else 200))
    history = tokens_kept(windows, "history")
    assert history[19] == 19 * 120
    assert 0 < history[20] <= 340
    assert history[21:] == [21 * 120, 22 * 120, 23 * 120]


@every_name
@pytest.mark.parametrize("budget", [4_500, 6_000])
def test_an_agent_sees_its_passages_and_all_its_calls_at_every_step(budget, name) -> None:
    rows: list[int] = []

    def look(n: int) -> str:
        """Look up row n."""
        rows.append(n)
        return f"row {n}: ".ljust(700, "r")

    def think(window: Window) -> Any:
        turn = max(int(text.split()[0]) for text in texts(window) if text.endswith("qqq"))
        calls = {call.id for message in window.messages for call in message.tool_calls}
        todo = [n for n in range(turn * 4, turn * 4 + 4) if f"c{n}" not in calls]
        return ToolCall(f"c{todo[0]}", "look", json.dumps({"n": todo[0]})) if todo else "r" * 60

    windows = talk(name, 6, budget, rag(lambda turn: 1_125), reply=think, tools=[look])
    assert rows == list(range(24))
    assert tokens_kept(windows, "passages") == [1_125] * 30
    for number, window in enumerate(windows):
        turn, step = divmod(number, 5)
        calls = [call.id for message in window.messages for call in message.tool_calls]
        assert calls[len(calls) - step :] == [f"c{turn * 4 + n}" for n in range(step)]
        newest = [message for message in window.messages[-6:] if message.role == "tool"]
        assert [len(message.text) for message in newest[-step:]] == [700] * min(step, 3) or not step


@every_name
def test_old_results_of_a_run_become_stubs_before_turns_of_the_past_leave(name) -> None:
    def look(n: int) -> str:
        """Look up row n."""
        return f"row {n}: ".ljust(1_000, "r")

    def think(window: Window) -> Any:
        calls = sum(len(message.tool_calls) for message in window.messages)
        is_last_turn = any(text.startswith("10 q") for text in texts(window))
        if is_last_turn and calls < 8:
            return ToolCall(f"c{calls}", "look", json.dumps({"n": calls}))
        return "r" * 60

    window = talk(name, 11, 6_000, reply=think, tools=[look], recall=False)[-1]
    assert stored_history(window).tokens_kept == 1_200
    request: Any = window.openai()
    results = [str(each["content"]) for each in request["messages"] if each["role"] == "tool"]
    is_whole = [f"row {n}: ".ljust(1_000, "r") in text for n, text in enumerate(results)]
    assert is_whole == [False] * 5 + [True] * 3


@every_name
def test_a_window_that_a_strategy_composed_itself_is_fitted_into_the_budget(name) -> None:
    class Large:
        def on_context_build(self, ctx: Ctx) -> Any:
            slots = Slots(50_000, tokenizer=len)
            slots.add("notes", [user("n" * 100)] * 30)
            slots.add("input", ctx.input)
            return slots.render()

    model = scripted(lambda window: "ok", name)

    async def work() -> None:
        async with App("memory:", model=model, tokenizer=len) as app:
            chat = app.conversation("c", strategy=Large(), budget=1_000)
            for turn in range(2):
                await chat.send(question(turn))

    run(work())
    for turn, window in enumerate(model.windows):
        request: Any = window.openai()
        sent = [message["content"] for message in request["messages"]]
        assert 800 < sum(map(len, sent)) <= 1_000
        assert sent[-1] == question(turn)


@every_name
def test_small_notes_cost_a_history_no_more_than_they_have(name) -> None:
    def declare(ctx: Ctx, turn: int) -> None:
        ctx.slots.add("system", "s" * 30)
        ctx.slots.add("history", ctx.history.recent(10_000))
        ctx.slots.add("day", "It is Mon.")
        ctx.slots.add("place", "In Berlin.")
        ctx.slots.add("input", ctx.input)

    fills = [window.tokens / 2_000 for window in talk(name, 60, 2_000, declare)][20:]
    assert mean(fills) >= 0.72
    assert max(fills) > 0.92


# Floors.


@every_name
def test_a_history_never_falls_below_its_floor(name) -> None:
    def declare(ctx: Ctx, turn: int) -> None:
        ctx.slots.add("history", ctx.history.recent(1_000), min_ratio=0.6)
        ctx.slots.add("notes", "n" * (300 + 50 * (turn % 7)), priority=5)
        ctx.slots.add("input", ctx.input)

    for turn, window in enumerate(talk(name, 60, 2_000, declare, size=90)):
        assert window.report["history"].tokens_kept >= min(1_200, 180 * turn), turn
        assert not window.report.fallback


@every_name
def test_a_floor_given_in_tokens_holds_with_nothing_beside_it(name) -> None:
    def declare(ctx: Ctx, turn: int) -> None:
        ctx.slots.add("history", ctx.history.recent(1_000), min_tokens=1_200)
        ctx.slots.add("input", ctx.input)

    for turn, window in enumerate(talk(name, 50, 2_000, declare, size=90)):
        assert window.report["history"].tokens_kept >= min(1_200, 180 * turn), turn


# System text.


@every_name
@pytest.mark.parametrize("options", [{"position": 10}, {"tier": "stable"}])
def test_an_option_of_another_slot_does_not_make_the_rules_the_users_words(options, name) -> None:
    def declare(ctx: Ctx, turn: int) -> None:
        ctx.slots.add("system", "You are a clerk.", role="system", priority=100)
        ctx.slots.add("history", ctx.history.recent(10))
        ctx.slots.add("style", "Answer in French.", **options)
        ctx.slots.add("input", ctx.input)

    for window in talk(name, 3, 4_000, declare):
        assert window.messages[0].text == "You are a clerk."
        request: Any = window.anthropic()
        assert "You are a clerk." in str(request.get("system"))
        assert "You are a clerk." not in str(request["messages"])
        assert "You are a clerk." not in str(window.google()["contents"])


# Conversations without a strategy.


def stored_history(window: Window) -> SlotReport:
    """Return the report of the slot that has the stored conversation."""
    return max(window.report.slots, key=lambda slot: slot.messages_asked)


@every_name
@pytest.mark.parametrize("size", [10, 1_950])
def test_the_report_asks_for_the_whole_stored_history(size, name) -> None:
    model = scripted(lambda window: "ok", name)

    async def work() -> None:
        async with App("memory:", model=model, tokenizer=len) as app:
            session = app.session("c")
            for turn in range(199):
                session.append(user(question(turn, 50)), assistant("a" * 40))
            await app.conversation("c", budget=2_000).send("q" * size)

    run(work())
    history = stored_history(model.windows[0])
    assert history.messages_asked == 398
    assert abs(history.tokens_asked - 199 * 90) <= 199 * 90 * 0.02
    assert history.messages_kept < 45
    assert not re.search(r"\binf\b|\b1 (groups|turns|messages)\b", str(model.windows[0].report))


@every_name
def test_the_report_asks_for_the_whole_history_after_many_turns(name) -> None:
    windows = talk(name, 60, 1_000)
    for turn, window in enumerate(windows):
        if turn:
            history = stored_history(window)
            assert history.messages_asked == 2 * turn
            assert abs(history.tokens_asked - 120 * turn) <= 120 * turn * 0.02


@pytest.mark.parametrize(("share", "name"), cover([0.05, 0.26, 0.32, 0.4], MODELS))
def test_the_newest_turn_is_in_every_window_of_a_plain_chat(share, name) -> None:
    size = int(2_000 * share / 2)
    windows = talk(name, 16, 2_000, size=size, recall=False)
    for turn, window in enumerate(windows[1:], 1):
        newest = [question(turn - 1, size), "r" * size, question(turn, size)]
        assert texts(window)[-3:] == newest, turn


@pytest.mark.parametrize(("share", "name"), cover([0.06, 0.16, 0.25, 0.3], MODELS))
def test_a_plain_chat_fills_most_of_its_window(share, name) -> None:
    windows = talk(name, 45, 2_000, size=int(2_000 * share / 2), recall=False)
    assert mean(window.tokens / 2_000 for window in windows[15:]) >= 0.7


def photo(number: int) -> bytes:
    """Return the beginning of a PNG file of 1,024 times 768 pixels, which is all that is read."""
    header = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
    return header + (1_024).to_bytes(4, "big") + (768).to_bytes(4, "big") + bytes([number])


@every_name
@pytest.mark.parametrize("cost", [1_572, 1_800])
def test_a_photo_stays_in_view_for_the_next_question(cost, name, tmp_path: Path) -> None:
    model = scripted(lambda window: "A room with a sofa, a table and two chairs.", name)

    async def work() -> None:
        async with App(
            "memory:",
            model=model,
            tokenizer=len,
            assets=str(tmp_path),
            attachment_tokens=lambda attachment: cost,
        ) as app:
            chat = app.conversation("c", system_prompt="You look at rooms.", budget=6_000)
            for number in range(7):
                assets: Any = app.assets
                attached = assets.put(photo(number), f"room{number}.png")
                await chat.send(f"Room {number}: what do you see?", attachments=[attached])
            await chat.send("And what is left of the sofa?")

    run(work())
    for number, window in enumerate(model.windows):
        names = [attached.name for message in window.messages for attached in message.attachments]
        shown = [f"room{n}.png" for n in (number - 1, number) if 0 <= n < 7]
        assert names[-len(shown) :] == shown, number
    assert model.windows[-1].tokens >= 3_000
    assert texts(model.windows[-1])[-1] == "And what is left of the sofa?"


# What is remembered.


@every_name
def test_a_restart_changes_no_window(name, tmp_path: Path) -> None:
    def declare(ctx: Ctx, turn: int) -> None:
        rag(lambda turn: 500 + 97 * (turn % 5))(ctx, turn)

    async def work(model: ScriptedModel, restarts: bool) -> None:
        url = f"sqlite:///{tmp_path / f'{restarts}.db'}"
        app = App(url, model=model, tokenizer=len)
        strategy = Strategy(declare)
        for turn in range(40):
            await app.conversation("c", strategy=strategy, budget=3_000).send(question(turn))
            if restarts and turn % 9 == 8:
                await app.close()
                app = App(url, model=model, tokenizer=len)
        await app.close()

    going, restarted = (scripted(lambda window: "r" * 60, name) for _ in range(2))
    run(work(going, False))
    run(work(restarted, True))
    assert [w.messages for w in going.windows] == [w.messages for w in restarted.windows]
    assert tokens_kept(going.windows, "passages") == [500 + 97 * (turn % 5) for turn in range(40)]
