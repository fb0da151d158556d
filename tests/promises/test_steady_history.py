"""A slot that is empty this once, or large this once, changes no history."""

from __future__ import annotations

from typing import Any

import pytest

from muntin import Message, Stepped, Window, assistant, user
from tests.products import sample
from tests.promises.composing import compose, slot, texts

OPTIONS = [{"max_tokens": 200}, {"max_ratio": 0.25}, {}]


def talk(turns: int) -> list[Message]:
    return [
        message
        for turn in range(turns)
        for message in (user(f"{turn:02}".ljust(20, "u")), assistant(f"{turn:02}".ljust(20, "a")))
    ]


def turn(number: int, docs: Any, previous: Window | None = None, **options: Any) -> Window:
    """Compose the window of a turn with these documents."""
    return compose(
        800,
        slot("system", "S" * 40),
        slot("history", talk(number), trimming=Stepped()),
        slot("docs", docs, priority=5, **options),
        slot("input", "what now?"),
        previous=previous,
    )


def history(window: Window) -> list[str]:
    return [text for text in texts(window) if text[:2].isdigit()]


def after(turns: int, docs: Any, **options: Any) -> Window:
    """Hold a conversation with documents in every turn."""
    window = turn(0, docs, **options)
    for number in range(1, turns + 1):
        window = turn(number, docs, window, **options)
    return window


@pytest.mark.parametrize("options", OPTIONS)
def test_a_slot_that_is_always_empty_takes_no_room(options: dict[str, Any]) -> None:
    without = compose(
        800,
        slot("system", "S" * 40),
        slot("history", talk(30), trimming=Stepped()),
        slot("input", "what now?"),
    )
    nothings: tuple[Any, ...] = ("", None, [])
    for nothing in nothings:
        assert turn(30, nothing, **options).messages == without.messages


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("turns", sample(range(12, 24)))
def test_a_slot_that_is_empty_this_once_changes_no_history(
    turns: int, options: dict[str, Any]
) -> None:
    before = after(turns, "D" * 190, **options)
    shown = history(before)
    for nothing in ("", None):
        empty = turn(turns, nothing, before, **options)
        assert history(empty) == shown
        again = turn(turns, "D" * 190, empty, **options)
        assert again.messages == before.messages


@pytest.mark.parametrize("turns", sample(range(12, 24)))
def test_a_slot_that_is_large_this_once_costs_the_history_only_this_turn(turns: int) -> None:
    before = after(turns, "D" * 90)
    shown = history(before)
    large = turn(turns, "D" * 500, before)
    assert history(large) == shown[len(shown) - len(history(large)) :]
    assert len(history(large)) <= (800 - 40 - 500 - 9) // 20
    again = turn(turns, "D" * 90, large)
    assert history(again) == shown
