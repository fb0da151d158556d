"""A failed turn: the model is told the plain fact, people are told what to do about it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from muntin import App, BudgetExceeded, Slots, ToolCall, Window, errors
from muntin.core.counting.counter import Counter
from muntin.errors import (
    MuntinError,
    OutputInvalid,
    RateLimited,
    StepLimit,
    TimedOut,
    UnknownAsset,
    error_fact,
    error_text,
)
from muntin.testing import MemoryStore, ScriptedModel
from muntin.timeline import Session
from muntin.timeline.items import Item, error_draft
from muntin.timeline.project import default_messages
from tests.interfaces import DURABLE
from tests.products import THREE, sample

ADVICE = "Raise max_steps, or look for a loop in the messages of this error."
FACT = "StepLimit: no answer after 20 steps; the model still calls look"
TELLING = sorted({*DURABLE} - {"generator_prompt"})  # that one shows no history
# Their texts are facts.
PLAIN = (TimedOut, OutputInvalid, UnknownAsset)


def look() -> str:
    """Look."""
    return "nothing"


def texts(window: Window) -> str:
    return "\n".join(message.text for message in window.messages)


@pytest.mark.parametrize("door", sample(DURABLE, *THREE))
def test_of_a_failed_turn_the_model_sees_the_fact_and_people_the_advice(door):
    calls = 0

    def answer(window: Window) -> Any:
        nonlocal calls
        calls += 1
        return ToolCall(f"c{calls}", "look", "{}") if calls <= 20 else "Here."

    model = ScriptedModel(answer, budget=50_000)

    async def work() -> list[Item]:
        store = MemoryStore()
        async with App(store, tokenizer=len) as app:
            with pytest.raises(StepLimit, match=ADVICE):
                await DURABLE[door](app, model, "Look!", [look])
        async with App(store, tokenizer=len) as app:
            await DURABLE[door](app, model, "Try again.", [look])
        (info,) = store.sessions()
        return [item for item in store.read(info.id) if item.kind == "error"]

    (item,) = asyncio.run(work())
    assert item.payload == f"{FACT}. {ADVICE}"
    assert "max_steps" not in "".join(map(texts, model.windows))
    if door in TELLING:
        assert f"<error>{FACT}</error>" in texts(model.windows[-1])


def test_what_is_counted_is_what_is_shown():
    session = Session("s", store=MemoryStore(), tokenizer=len)
    error = RateLimited("openai", "gpt-5.2", 429, "Check your plan: sk-1234.", 20)
    counted = session.draft(error_draft(error)).weight
    item = Item(1, "error", 1, None, error_text(error), meta=error_draft(error).meta)
    (told,) = default_messages(item)
    assert told.text == "<error>RateLimited: the model did not answer (429)</error>"
    assert counted == Counter(len).message(told)
    assert item.payload == (
        "RateLimited: openai/gpt-5.2 (429): Check your plan: sk-1234; try again in 20 s"
    )


def test_an_error_without_advice_is_told_as_it_is():
    for error in (OSError("no network"), TimedOut("the handler", 5)):
        assert error_draft(error).meta == {}
        assert error_draft(error).payload == error_text(error) == error_fact(error)


def test_every_class_whose_text_advises_something_has_a_fact():
    slots = Slots(10)
    slots.add("rules", "so many rules " * 50, required=True)
    with pytest.raises(BudgetExceeded, match="Raise the budget") as raised:
        slots.render().openai()
    assert raised.value.fact == "what had to be shown did not fit into the context window"
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, MuntinError) and kind is not MuntinError:
            assert kind.fact is not MuntinError.fact or kind._fact or kind in PLAIN, kind
