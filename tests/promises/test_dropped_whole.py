"""What is dropped whole costs nobody anything: the window is the one without it."""

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
    Window,
    assistant,
    system,
    tool,
    user,
)
from tests.promises.composing import Add, compose, many, plain_slots, slot, texts


def test_a_document_too_large_for_the_window_leaves_the_history_alone() -> None:
    history = [user("u" * 30)] * 20
    window = compose(1_000, slot("history", history), slot("doc", "D" * 1_001, priority=3))
    assert texts(window) == ["u" * 30] * 20
    assert window.report["doc"].status == "dropped"
    assert window.report["doc"].decisions[0].fits_with == 1


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
    call = [
        assistant(None, tool_calls=[ToolCall("1", "look", "x" * 120)]),
        tool("1", ""),
    ]
    adds = [slot("log", call, min_tokens=50), slot("docs", "D" * 80, priority=1)]
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


def test_a_priority_that_is_dropped_costs_no_system_text_its_protection() -> None:
    talk = [user("d"), user("e"), system("f")]
    adds = [
        slot("first", "aa", max_tokens=10),
        slot("rules", "bbbbbb", required=True),
        slot("eager", "cc", priority=1),
        slot("talk", talk, trim_behavior="slot", min_tokens=1),
        slot("input", Input("?")),
    ]
    assert texts(compose(8, *adds)) == ["bbbbbb", "f", "?"]
    del adds[2]
    assert texts(compose(8, *adds)) == ["bbbbbb", "f", "?"]


def test_what_is_dropped_does_not_decide_which_of_two_others_stays() -> None:
    # While "eager" stands, "whole" has no place; without "whole", "talk" drops "eager" itself.
    adds = [
        slot("eager", "a" * 21, priority=1),
        slot("rules", "b" * 10, required=True),
        slot("talk", [user("c"), system("ddd"), user("e" * 40)], priority=1),
        slot("whole", "f" * 20, trim_behavior="slot", min_tokens=1),
        slot("input", Input("?")),
    ]
    expected = ["b" * 10, "ddd", "f" * 20, "?"]
    assert texts(compose(54, *adds[1:])) == expected
    assert texts(compose(54, *adds)) == expected


@many
@given(plain_slots(floors=True, question=60), st.integers(1, 200), st.data())
def test_the_window_is_the_one_without_what_was_dropped(
    adds: list[Add], budget: int, data: st.DataObject
) -> None:
    window = compose(budget, *adds)
    # In fallback all floors are ignored together, also those of slots that are dropped.
    assume(not window.report.fallback)
    gone = [each.index for each in window.report.slots if each.status == "dropped"]
    assume(gone)
    chosen = data.draw(st.sampled_from(gone))
    without, _ = left_out(budget, adds, chosen)
    if (without.messages, without.tokens) != (window.messages, window.tokens):
        assert all(each is None for each in lawful(budget, adds))  # a circle: no window obeys


def left_out(budget: int, adds: list[Add], one: int) -> tuple[Window, set[int]]:
    """Compose without one slot, and return which slots are not in the window."""
    kept = [n for n in range(len(adds)) if n != one]
    window = compose(budget, *[adds[n] for n in kept])
    gone = {kept[each.index] for each in window.report.slots if each.status == "dropped"}
    return window, gone | {one}


def lawful(budget: int, adds: list[Add]) -> list[Window | None]:
    """Return every window that is the one without each single slot that it has dropped."""
    without = [left_out(budget, adds, one) for one in range(len(adds))]
    return [
        window if all(without[n][0].messages == window.messages for n in gone) else None
        for window, gone in without
    ]


def test_where_no_window_can_obey_the_best_protected_stays() -> None:
    # "whole" goes where "low" stays, "high" goes where "whole" stays, "low" where "high" stays.
    low = slot("low", "a" * 20, priority=1)
    high = slot("high", "b" * 31, priority=1)
    whole = slot("whole", "c" * 12, trim_behavior="slot", min_tokens=1)
    assert texts(compose(31, low, whole)) == ["a" * 20]
    assert texts(compose(31, high, whole)) == ["c" * 12]
    assert texts(compose(31, low, high)) == ["b" * 31]
    assert texts(compose(31, low, high, whole)) == ["b" * 31]
    assert lawful(31, [low, high, whole]) == [None, None, None]


def test_the_tokens_that_a_report_names_count_what_was_not_read_at_first() -> None:
    adds = [
        slot("rules", "a", required=True, max_tokens=10),
        slot("talk", [user("b"), system("c")], priority=1),
        slot("input", "?"),
    ]
    window = compose(2, *adds)
    assert texts(window) == ["a", "?"]
    assert [each.fits_with for each in window.report["talk"].decisions] == [2, 2]
    assert texts(compose(4, *adds)) == ["a", "b", "c", "?"]


@many
@given(plain_slots(question=60), st.integers(1, 200))
def test_with_the_tokens_that_a_report_names_a_message_is_kept_whole(
    adds: list[Add], budget: int
) -> None:
    plan = compose(budget, *adds)
    # What was not even read is an estimate.
    assume(not any(each.asked_is_estimate for each in plan.report.slots))
    for report in plan.report.slots:
        for decision in report.decisions:
            if decision.reason in ("over_budget", "fallback"):
                assert decision.fits_with is not None
                again = compose(budget + decision.fits_with, *adds).report
                (slot_then,) = [each for each in again.slots if each.index == report.index]
                (then,) = [each for each in slot_then.decisions if each.first == decision.first]
                assert then.tokens_kept == min(
                    decision.tokens_asked, report.cap or decision.tokens_asked
                ) or (then.reason == "over_cap")


@many
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
