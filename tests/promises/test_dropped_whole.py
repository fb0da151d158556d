"""A slot takes no room that it cannot use: the window is the one without what was dropped."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from muntin import (
    Group,
    Input,
    Message,
    Stepped,
    ToolCall,
    assistant,
    system,
    tool,
    user,
)
from tests.promises.composing import Add, compose, plain_slots, slot, texts


def test_a_document_too_large_for_the_window_leaves_the_history_alone() -> None:
    history = [user("u" * 30)] * 20
    window = compose(1_000, slot("history", history), slot("doc", "D" * 1_001, priority=3))
    assert texts(window) == ["u" * 30] * 20
    assert window.report["doc"].status == "dropped"
    assert window.fits_with("doc") == 1


@pytest.mark.parametrize(
    ("adds", "expected"),
    [
        (
            [slot("A", "A" * 10), slot("B", "B" * 80, priority=1), slot("C", "C" * 90, priority=2)],
            ["A" * 10, "C" * 90],
        ),
        (
            [
                slot("A", "A" * 8),
                slot("list", [user("x" * 80), user("y" * 30)], priority=1),
                slot("C", "C" * 60, priority=2),
            ],
            ["A" * 8, "y" * 30, "C" * 60],
        ),
    ],
)
def test_a_small_slot_stays_where_a_larger_could_not(adds: list[Add], expected: list[str]) -> None:
    assert texts(compose(100, *adds)) == expected


def test_a_floor_that_cannot_be_met_keeps_no_room() -> None:
    calls = [ToolCall(str(number), "look_around", "{}") for number in range(10)]
    log = [assistant(None, tool_calls=calls), *(tool(call.id, "") for call in calls)]
    adds = [slot("log", log, min_tokens=50), slot("docs", "D" * 80, priority=1)]
    assert texts(compose(100, *adds)) == ["D" * 80]


def test_a_message_too_large_for_its_share_leaves_it_to_the_others() -> None:
    group = Group("sources", share=True)
    adds = [slot("a", "a" * 100, group=group), slot("b", "b" * 100, group=group)]
    assert texts(compose(120, *adds)) == ["b" * 100]


def test_a_group_that_one_slot_cannot_hold_takes_no_room_in_another() -> None:
    call = assistant("c" * 60, tool_calls=[ToolCall("1", "t", "")])
    adds = [
        slot("calls", [call]),
        slot("results", [user("o" * 80), tool("1", "r" * 50)], priority=1),
    ]
    assert texts(compose(100, *adds)) == ["o" * 80]


def test_a_stable_text_that_is_dropped_does_not_empty_a_history_that_steps() -> None:
    history = [user("u" * 30), assistant("a" * 30)] * 8
    adds = [
        slot("history", history, trimming=Stepped()),
        slot("doc", "D" * 1_001, tier="stable", priority=3),
        slot("input", "what now?"),
    ]
    without = compose(1_000, *[each for each in adds if each[0] != "doc"])
    assert compose(1_000, *adds).messages == without.messages
    assert len(without.messages) == 17


def calls(*names: str) -> Message:
    return assistant(None, tool_calls=[ToolCall(name, "f", "{}") for name in names])


@pytest.mark.parametrize(
    ("budget", "adds"),
    [
        # A call without a result needs room for the one that is sent in its place.
        (
            204,
            [
                slot("list", [assistant("a" * 34), user("b" * 26)]),
                slot("system", "S" * 42, priority=3),
                slot("gone", [user("c" * 140)], trim_behavior="slot"),
                slot("calls", [calls("1")]),
            ],
        ),
        # The newest calls of a run keep their room, though the run goes first.
        (
            209,
            [
                slot("input", Input("?" * 21)),
                slot("list", [user("u" * 110)]),
                slot("run", [calls("1"), calls("2"), tool("2", "t" * 29)], priority=-1),
                slot("gone", [user("d" * 50)], priority=-1, run=False),
            ],
        ),
        # Calls that were cut to a ceiling keep no room for what they had.
        (
            167,
            [
                slot("input", Input("?" * 42)),
                slot("gone", "T" * 124),
                slot("calls", [calls("1", "2"), tool("1", "y" * 24)], max_tokens=39),
                slot("list", [user("a" * 15), assistant("b" * 10), user("c" * 51)]),
            ],
        ),
    ],
)
def test_calls_keep_the_room_they_need_and_no_more(budget: int, adds: list[Add]) -> None:
    window = compose(budget, *adds)
    assert window.report["gone"].status == "dropped"
    without = compose(budget, *[each for each in adds if each[0] != "gone"])
    assert window.messages == without.messages


def test_of_contexts_of_a_prompt_one_that_fits_with_nothing_goes_first() -> None:
    parts = Group("system text", join="--")
    adds = [
        slot("small", "s" * 20, role="system", group=parts, priority=1),
        slot("large", "l" * 101, role="system", group=parts, priority=50),
        slot("rules", "r" * 30, role="system", group=parts, required=True),
    ]
    assert texts(compose(100, *adds)) == ["s" * 20 + "--" + "r" * 30]
    # One that would fit alone stays, and the lowest goes first, as ever.
    adds[1] = slot("large", "l" * 68, role="system", group=parts, priority=50)
    assert texts(compose(100, *adds)) == ["l" * 68 + "--" + "r" * 30]


def test_a_floor_kept_for_what_is_dropped_does_not_cost_the_system_text_its_place() -> None:
    adds = [
        slot("first", "a", required=True),
        slot("whole", "bbbb", trim_behavior="slot", max_tokens=10, min_tokens=3),
        slot("second", "c", required=True),
        slot("system", "d", priority=1),
        slot("input", Input("?")),
    ]
    assert texts(compose(6, *adds)) == ["a", "c", "d", "?"]


def test_a_slot_that_goes_whole_and_is_larger_than_its_floor_needs_nothing() -> None:
    whole = slot("whole", "c" * 12, trim_behavior="slot", min_tokens=1)
    high = slot("high", "b" * 31, priority=1)
    assert texts(compose(31, high, whole)) == ["b" * 31]
    assert texts(compose(43, high, whole)) == ["b" * 31, "c" * 12]
    talk = [user("c"), system("ddd"), user("e" * 40)]
    adds = [
        slot("eager", "a" * 21, priority=1),
        slot("rules", "b" * 10, required=True),
        slot("talk", talk, priority=1),
        slot("whole", "f" * 20, trim_behavior="slot", min_tokens=1),
        slot("input", Input("?")),
    ]
    expected = ["b" * 10, "ddd", "e" * 40, "?"]
    assert texts(compose(54, *adds[1:])) == expected
    assert texts(compose(54, *adds)) == expected
    assert not compose(54, *adds).report.fallback


@given(plain_slots(floors=True, question=60), st.integers(1, 200), st.data())
def test_the_window_is_the_one_without_what_was_dropped(
    adds: list[Add], budget: int, data: st.DataObject
) -> None:
    window = compose(budget, *adds)
    # In fallback all floors are ignored together, also those of slots that are dropped; and where
    # one priority is not 0, system text gives like any other.
    assume(not window.report.fallback)
    gone = [
        each.index
        for each in window.report.slots
        if each.status == "dropped"
        and any(slot.priority for slot in window.report.slots if slot.index != each.index)
    ]
    assume(gone)
    chosen = data.draw(st.sampled_from(gone))
    without = compose(budget, *[each for n, each in enumerate(adds) if n != chosen])
    assert (without.messages, without.tokens) == (window.messages, window.tokens)


def test_fits_with_counts_what_was_not_read_at_first() -> None:
    adds = [
        slot("rules", "a", required=True, max_tokens=10),
        slot("talk", [user("b"), system("c")], priority=1),
        slot("input", "?"),
    ]
    window = compose(2, *adds)
    assert texts(window) == ["a", "?"]
    assert [window.fits_with("talk", message) for message in (0, 1)] == [2, 1]
    assert texts(compose(3, *adds)) == ["a", "c", "?"]
    assert texts(compose(4, *adds)) == ["a", "b", "c", "?"]


@given(plain_slots(question=60), st.integers(1, 200), st.data())
def test_with_the_tokens_that_fits_with_names_a_message_is_whole_and_with_one_less_it_is_not(
    adds: list[Add], budget: int, data: st.DataObject
) -> None:
    adds = [(f"{number}", content, options) for number, (_, content, options) in enumerate(adds)]
    window = compose(budget, *adds)
    report = data.draw(st.sampled_from(window.report.slots))
    index = data.draw(st.integers(0, report.messages_asked - 1))

    def is_whole(budget: int) -> bool:
        for fate in compose(budget, *adds).fates:
            if fate.slot.name == report.name and fate.first == index and fate.count == 1:
                return fate.status == "kept"
        return False

    more = window.fits_with(report.name, index)
    if more is None:  # only a ceiling in tokens keeps a message out for good
        assert report.cap is not None
        assert not is_whole(10_000)
    else:
        assert is_whole(budget + more)
        assert more == 0 or not is_whole(budget + more - 1)


@given(plain_slots(), st.integers(1, 200))
def test_ranks_say_in_which_order_things_went(adds: list[Add], budget: int) -> None:
    report = compose(budget, *adds).report
    cuts: list[Any] = [
        (decision.rank, each, decision.reason)
        for each in report.slots
        for decision in each.decisions
        if decision.rank is not None
    ]
    assert sorted(rank for rank, _, _ in cuts) == list(range(1, len(cuts) + 1))
    late = sorted(
        # What is too old to be read goes first, whatever its priority.
        ((rank, each) for rank, each, reason in cuts if reason == "over_budget"),
        key=lambda cut: cut[0],
    )
    priorities = [each.priority for _, each in late]
    if not any(each.reason == "over_cap" for _, each, _ in cuts):
        assert priorities == sorted(priorities)
