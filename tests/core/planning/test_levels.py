"""Levels: how far a conversation has moved, and what it shows then. One character is one token."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import pytest

from muntin import Ladder, Message, Results, Slots, Stepped, ToolCall, Window, assistant, tool, user
from muntin.core.counting.counter import Counter
from muntin.core.planning.compact import CUT, FULL, GONE, SHORT, STUB
from muntin.core.planning.levels import (
    NO_LEVELS,
    Levels,
    by_turn,
    lower,
    number_turns,
    show_at,
    tokens_at,
)
from muntin.core.planning.shrink import compact
from muntin.core.planning.slot import Slot, Trim
from muntin.core.planning.units import Unit, read_slot

COUNTER = Counter.of(None, tokenizer=len)
LADDER = Ladder(short_tokens=64)


def turn(number: int, result: int = 300) -> list[Message]:
    """A question of 10, a call of 6 with its result, an answer of 10."""
    call = ToolCall(f"c{number}", "look", "{}")
    return [
        user(f"{number}".ljust(10, "q")),
        assistant(tool_calls=[call]),
        tool(f"c{number}", f"{number}".ljust(result, "r")),
        assistant(f"{number}".ljust(10, "a")),
    ]


def talk(turns: int, result: int = 300) -> list[Message]:
    return [message for number in range(turns) for message in turn(number, result)]


def units_of(messages: list[Message], ladder: Ladder | None = LADDER) -> list[Unit]:
    slot = Slot("history", 0, messages, trim=Trim(results=Results(), ladder=ladder))
    units = read_slot(slot, sys.maxsize, COUNTER, 4_000).units
    number_turns(units, 0, 0)
    return units


def test_a_unit_has_the_level_of_its_position() -> None:
    units = units_of(talk(4))  # at 0, 1, 3, 4, 5, 7 ...
    levels = Levels(cut=13, short=9, stub=5, gone=3)
    found = {unit.position: levels.of(unit) for unit in units}
    assert [found[n] for n in (0, 1, 3, 4, 5, 9, 13)] == [
        *(GONE, GONE, FULL, FULL, SHORT, CUT, FULL)  # a small text is never cut
    ]
    assert levels.joined(Levels(gone=4, stub=9)) == Levels(13, 9, 9, 4)
    assert levels.shifted(-4) == Levels(9, 5, 1, 0)
    assert levels.raised(STUB, 2) == levels
    assert levels.raised(STUB, 6).stub == 6


def test_without_a_ladder_results_are_only_cut() -> None:
    units = units_of(talk(2, 1_500), ladder=None)
    assert {Levels(9, 9, 9).of(unit) for unit in units if unit.is_group} == {CUT}
    assert tokens_at(units, Levels(9, 9, 9)) == 2 * (10 + 6 + 1_000 + 10)


def test_a_conversation_at_its_levels() -> None:
    units = units_of(talk(3))
    shown = show_at(units, Levels(short=9, stub=5, gone=4))
    assert [form.status for form in shown.forms] == [*["kept", "short", "kept"] * 1, *["kept"] * 3]
    assert shown.tokens == (10 + 6 + 64 + 10) + (10 + 6 + 300 + 10)
    assert show_at(units, NO_LEVELS).tokens == 3 * 326


def test_a_question_stays_as_long_as_anything_of_its_turn_does() -> None:
    units = units_of(talk(2))
    assert [form.unit.position for form in show_at(units, Levels(gone=3)).forms] == [0, 3, 4, 5, 7]
    assert [form.unit.position for form in show_at(units, Levels(gone=4)).forms] == [4, 5, 7]


def test_turns_leave_until_the_low_mark_is_reached() -> None:
    units = units_of(talk(10))
    levels = lower(units, NO_LEVELS, GONE, by_turn(units), 1_000, 1_100)
    assert levels == Levels(gone=28)
    assert tokens_at(units, levels) == 3 * 326


def test_a_turn_that_would_cross_the_low_mark_stays_if_enough_is_free_with_it() -> None:
    units = units_of(talk(10))
    wide = lower(units, NO_LEVELS, GONE, by_turn(units), 1_000, 2_000)
    assert tokens_at(units, wide) == 4 * 326  # 1,304: half of the way to 2,000 is free
    tight = lower(units, NO_LEVELS, GONE, by_turn(units), 1_000, 1_600)
    assert tokens_at(units, tight) == 3 * 326


def test_the_newest_turn_never_leaves_and_nothing_crosses_the_floor() -> None:
    units = units_of(talk(5))
    assert tokens_at(units, lower(units, NO_LEVELS, GONE, by_turn(units), 0, 0)) == 326
    kept = lower(units, NO_LEVELS, GONE, by_turn(units), 100, 100, floor=700)
    assert tokens_at(units, kept) == 3 * 326


def test_results_become_short_then_stubs_the_oldest_first() -> None:
    units = units_of(talk(6))
    assert compact(units, NO_LEVELS, 2_000, 2_000) == (NO_LEVELS, True)
    assert compact(units, NO_LEVELS, 1_400, 1_200) == (Levels(short=11), True)
    assert compact(units, NO_LEVELS, 600, 400) == (Levels(short=23, stub=11), True)
    levels, is_enough = compact(units, NO_LEVELS, 400, 200)
    assert (levels, is_enough) == (Levels(short=23, stub=23), False)
    assert tokens_at(units, levels) == 6 * (10 + 6 + 28 + 10)


def test_what_would_cross_the_low_mark_stays_so_nothing_needs_to_leave() -> None:
    units = units_of(talk(3, 1_000))
    levels, is_enough = compact(units, NO_LEVELS, 3_000, 1_500)
    assert is_enough
    assert levels.gone == 0
    assert 1_500 < tokens_at(units, levels) <= (1_500 + 3_000) // 2


def test_without_a_ladder_compacting_is_never_enough() -> None:
    units = units_of(talk(6), ladder=None)
    assert compact(units, NO_LEVELS, 1_400, 700) == (NO_LEVELS, False)


def windows(turns: int, **options: Any) -> list[Window]:
    made: list[Window] = []
    for number in range(turns):
        previous = made[-1] if made else None
        slots = Slots(2_000, tokenizer=len, trimming=Stepped(), previous=previous, **options)
        slots.add("history", talk(number))
        slots.add("input", "i" * 10)
        made.append(slots.render())
    return made


@pytest.mark.parametrize("ladder", [True, None, Ladder(stubs=False)])
@pytest.mark.parametrize("results", [None, True])
def test_a_history_with_calls_moves_rarely_and_between_moves_only_grows(
    ladder: Any, results: Any
) -> None:
    made = windows(60, ladder=ladder, results=results)
    levels = [(s.cut, s.shorts, s.stubs, s.first) for w in made for s in w.frontier.starts[:1]]
    assert all(old <= new for pair in pairwise(levels) for old, new in zip(*pair, strict=True))
    moves = 0
    for before, after in pairwise(made):
        past = before.messages[:-1]
        if after.messages[: len(past)] != past:
            moves += 1
            assert after.report["history"].reason == "moved"
    assert 5 <= moves <= 30
    assert made[-1].frontier.starts[0].first > 0
