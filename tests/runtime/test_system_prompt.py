"""The system prompt of a conversation: in every window, never dropped, never stored."""

from __future__ import annotations

from typing import Any

import pytest

from muntin import App, BudgetExceeded, InvalidInput
from muntin.errors import InvalidType
from muntin.testing import ScriptedModel
from tests.runtime.conftest import call, run, said

RULES = "You are the support of a bike shop. Never promise a refund."


def find_order(number: int) -> str:
    """Look up an order."""
    return f"order {number}: shipped yesterday"


def test_it_opens_every_window_of_a_run_and_is_not_stored():
    model = ScriptedModel([call("c1", "find_order", number=7), "Yesterday.", "Order 7."])

    async def talk() -> list[str]:
        async with App("memory:", model=model) as app:
            chat = app.conversation("ada", system_prompt=RULES, tools=[find_order])
            await chat.send("Where is my order 7?")
            await chat.send("Which number was it?")
            return said(chat.session.items.all())

    stored = run(talk())
    assert RULES not in stored
    assert len(model.windows) == 3
    for window in model.windows:
        assert [(m.role, m.text) for m in window.messages if m.role == "system"] == [
            ("system", RULES)
        ]
        assert window.messages[0].text == RULES


def test_it_is_kept_when_the_timeline_is_dropped_and_recall_still_works():
    model = ScriptedModel(lambda window: "All right. " * 20, budget=4_000)

    async def talk() -> None:
        async with App("memory:", model=model) as app:
            chat = app.conversation("ada", system_prompt=RULES)
            await chat.send("My locker is number QX7731, in the east hall.")
            for day in range(1, 60):
                await chat.send(f"What is the weather on day {day}? " + "Please say more. " * 10)
            await chat.send("What is the number of my locker?")

    run(talk())
    last = model.windows[-1]
    assert last.report["timeline"].status != "kept"
    assert any("QX7731" in m.text and m.text.startswith("<recalled") for m in last.messages)
    assert {window.messages[0].text for window in model.windows} == {RULES}
    assert all(window.tokens <= 4_000 for window in model.windows)


def test_the_one_given_now_is_shown_whatever_was_given_before():
    model = ScriptedModel(["1", "2", "3"])

    async def talk() -> None:
        async with App("memory:", model=model) as app:
            for text in ("Be brief.", "Be kind.", None):
                await app.conversation("ada", system_prompt=text).send("Hello.")

    run(talk())
    assert [window.messages[0].text for window in model.windows] == [
        "Be brief.",
        "Be kind.",
        "Hello.",
    ]


def test_one_that_does_not_fit_is_an_error_and_nothing_is_sent():
    model = ScriptedModel(["no"])

    async def talk() -> None:
        async with App("memory:", model=model) as app:
            with pytest.raises(BudgetExceeded, match="'system'"):
                await app.conversation("ada", system_prompt=RULES * 50, budget=200).send("Hello.")

    run(talk())
    assert model.windows == []


def test_it_is_text_and_a_strategy_adds_its_own():
    class Brief:
        def on_context_build(self, ctx):
            ctx.slots.add("input", ctx.input)

    wrong: Any = 7

    async def talk() -> None:
        async with App("memory:", model=ScriptedModel([])) as app:
            with pytest.raises(InvalidType, match="conversation: system_prompt"):
                app.conversation("ada", system_prompt=wrong)
            with pytest.raises(InvalidInput, match="give no system_prompt"):
                app.conversation("ada", strategy=Brief(), system_prompt=RULES)

    run(talk())
