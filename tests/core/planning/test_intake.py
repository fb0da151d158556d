"""What cannot fit is neither read nor counted, however long a list is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, SupportsIndex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import (
    Message,
    Slots,
    user,
)
from tests.core.planning.scenes import (
    Counting,
    many,
)

REACH = 300  # how near the end of a long list may be read when some 50 messages fit


class Watched(list[Message]):
    """A list that allows reading only near its end and at its very beginning."""

    def __init__(self, items: Sequence[Message], reach: int) -> None:
        super().__init__(items)
        self.reach = reach
        self.reads = 0

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        self.reads += 1
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            if start < stop:
                assert start >= len(self) - self.reach or stop <= 1, "read what cannot fit"
        else:
            position = index.__index__() % len(self)
            assert position == 0 or position >= len(self) - self.reach, "read what cannot fit"
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[Message]:
        raise AssertionError("read all of it")

    def __reversed__(self) -> Iterator[Message]:
        raise AssertionError("read it without an index")


@pytest.mark.parametrize("behavior", ["message", "char", "slot"])
@pytest.mark.parametrize("options", [{}, {"max_ratio": 0.5}, {"min_ratio": 0.5}, {"priority": 3}])
def test_what_cannot_fit_is_neither_read_nor_counted(
    behavior: Any, options: Mapping[str, Any]
) -> None:
    asked: list[str] = []

    def count(text: str) -> int:
        asked.append(text)
        return len(text)

    messages = [Message("user" if n % 2 else "assistant", f"{n:010}") for n in range(20_000)]
    history = Watched(messages, REACH)
    slots = Slots(500, tokenizer=Counting("recording", count))
    slots.add("system", "s" * 20)
    slots.add("history", history, trim_behavior=behavior, **options)
    slots.add("input", "i" * 20)
    window = slots.render()
    room = {"max_ratio": 25, "priority": 48}.get(next(iter(options), ""), 46)
    kept = [] if behavior == "slot" else messages[-room:]
    assert [m.text for m in window.messages if len(m.text) == 10] == [m.text for m in kept]
    assert len(asked) <= 80
    assert len(set(asked)) == len(asked)
    assert history.reads <= 500
    report = window.report.slots[1]
    beyond = [d for d in report.decisions if d.reason == "beyond_fit"]
    assert len(beyond) == 1
    assert beyond[0].count > 19_900
    assert report.asked_is_estimate
    assert report.tokens_asked == 200_000
    assert report.messages_asked == 20_000


def test_of_a_list_that_keeps_its_beginning_the_end_is_not_counted() -> None:
    asked: list[str] = []

    def count(text: str) -> int:
        asked.append(text)
        return len(text)

    slots = Slots(500, tokenizer=Counting("recording", count))
    messages = [user(f"{n:010}") for n in range(5_000)]
    slots.add("document", messages, trim_behavior="char", keep="head")
    assert [m.text for m in slots.render().messages] == [m.text for m in messages[:50]]
    assert len(asked) <= 200


def test_each_message_is_counted_once_even_over_several_renders() -> None:
    asked: list[str] = []

    def count(text: str) -> int:
        asked.append(text)
        return len(text)

    slots = Slots(300, tokenizer=Counting("recording", count))
    slots.add("history", [user(f"{n:010}") for n in range(1_000)])
    slots.render()
    slots.render()
    assert len(asked) == len(set(asked)) <= 40


@many
@given(st.integers(0, 400), st.integers(1, 30))
def test_a_system_message_that_opens_a_long_list_stays(budget: int, size: int) -> None:
    talk = [Message("system", "S" * size), *(user(f"{n:05}") for n in range(500))]
    slots = Slots(budget, tokenizer=len)
    slots.add("history", talk)
    window = slots.render()
    assert window.messages[0].text == "S" * size
    assert window.over_budget == (size > budget)
    room = max(0, budget - size) // 5
    assert len(window.messages) == 1 + room
