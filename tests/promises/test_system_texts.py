"""System messages are not trimmed while every slot that holds anything has priority 0."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import Message, tool, user
from tests.promises.composing import compose, slot, texts

BLANK: dict[str, Any] = {
    "none": None,
    "empty text": "",
    "empty list": [],
    "empty message": [user("")],
    "a result without a call": [tool("0", "lost")],
}


@pytest.mark.parametrize("content", BLANK.values(), ids=BLANK)
def test_a_slot_that_holds_nothing_has_no_say(content: Any) -> None:
    adds = [slot("system", "S" * 40), slot("history", [user("u" * 30)])]
    window = compose(60, *adds, slot("extra", content, priority=7))
    assert texts(window) == ["S" * 40]


def test_a_slot_that_its_ceiling_took_away_takes_no_system_text_with_it() -> None:
    adds = [slot("system", "S" * 40), slot("history", [user("u" * 30)])]
    window = compose(60, *adds, slot("docs", "D" * 30, priority=7, max_tokens=10))
    assert texts(window) == ["S" * 40]


def test_a_slot_that_is_too_large_for_the_window_takes_no_system_text_with_it() -> None:
    adds = [slot("system", "S" * 40), slot("history", [user("u" * 30)])]
    window = compose(60, *adds, slot("docs", "D" * 100, priority=7))
    assert texts(window) == ["S" * 40]


def test_a_slot_with_a_priority_takes_the_room_of_system_text_without() -> None:
    adds = [slot("system", "S" * 40), slot("docs", "D" * 30, priority=7)]
    assert texts(compose(60, *adds)) == ["D" * 30]
    calm = [slot("system", "S" * 40), slot("docs", "D" * 30)]
    assert texts(compose(60, *calm)) == ["S" * 40]


@given(st.integers(1, 60), st.integers(1, 90), st.integers(1, 100))
def test_system_texts_stay_while_no_priority_is_at_work(rules: int, docs: int, budget: int) -> None:
    talk = [Message("system", "T" * 5), user("u" * 20)]
    adds = [slot("system", "S" * rules), slot("talk", talk), slot("docs", "D" * docs)]
    window = compose(budget, *adds)
    assert texts(window)[:2] == ["S" * rules, "T" * 5]
    assert window.over_budget == (rules + 5 > budget)


@given(st.integers(1, 60), st.integers(1, 90), st.integers(1, 9), st.integers(1, 100))
def test_where_a_priority_is_at_work_system_texts_stay_as_far_as_they_fit(
    rules: int, docs: int, priority: int, budget: int
) -> None:
    window = compose(
        budget,
        slot("system", "S" * rules),
        slot("talk", [Message("system", "T" * 5), user("u" * 20)]),
        slot("docs", "D" * docs, priority=priority),
    )
    room = budget
    for text in ("D" * docs, "S" * rules, "T" * 5):
        assert (text in texts(window)) == (len(text) <= room)
        room -= len(text) if len(text) <= room else 0
    assert not window.over_budget
