"""If floors cannot all be kept, none counts: priority alone decides, and a floor's slot is cut."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from muntin import user
from tests.promises.composing import compose, slot, texts


def test_the_better_protected_slot_is_whole_and_the_other_gets_the_rest() -> None:
    adds = [slot("low", "l" * 60, min_tokens=60), slot("high", "h" * 50, priority=9)]
    window = compose(59, *adds)
    assert texts(window) == ["l" * 9, "h" * 50]
    assert window.report.fallback
    assert window.report["low"].reason == "fallback"


def test_floors_of_all_slots_are_ignored() -> None:
    window = compose(
        100,
        slot("S", "S" * 60, min_tokens=60, trim_behavior="char", priority=3),
        slot("M", "M" * 60, min_tokens=60, trim_behavior="char", priority=1),
        slot("input", "I" * 20, priority=2),
    )
    assert texts(window) == ["S" * 60, "M" * 20, "I" * 20]


def test_a_ceiling_that_a_floor_had_raised_is_applied() -> None:
    window = compose(
        100,
        slot("D", "D" * 80, min_tokens=40, max_ratio=0.3, trim_behavior="char"),
        slot("F", "F" * 80, min_tokens=70, trim_behavior="char", priority=1),
    )
    assert texts(window) == ["D" * 20, "F" * 80]


def test_the_message_at_the_boundary_is_cut() -> None:
    talk = [user("a" * 30), user("b" * 30), user("c" * 30)]
    window = compose(
        100, slot("talk", talk, min_tokens=80), slot("high", "h" * 50, priority=9, min_tokens=50)
    )
    assert texts(window) == ["b" * 20, "c" * 30, "h" * 50]


def test_one_token_too_few_is_a_fallback() -> None:
    adds = [
        slot("memory", "m" * 400, min_tokens=150, trim_behavior="char"),
        slot("history", [user("h" * 30)] * 12, min_tokens=120, priority=1),
        slot("input", "i" * 30),
    ]
    sizes = {
        budget: [each.tokens_kept for each in compose(budget, *adds).report.slots]
        for budget in (300, 299)
    }
    assert sizes == {300: [150, 120, 30], 299: [0, 269, 30]}


@given(
    st.lists(
        st.tuples(st.integers(1, 60), st.integers(0, 60), st.integers(0, 3)),
        min_size=2,
        max_size=4,
    ),
    st.integers(1, 150),
)
def test_room_goes_to_the_best_protected_first(
    given_slots: list[tuple[int, int, int]], budget: int
) -> None:
    floors = [min(size, floor) for size, floor, _ in given_slots]
    assume(sum(floors) > budget)
    assume(all(floors))
    adds = [
        slot(f"s{n}", chr(97 + n) * size, min_tokens=floor, priority=priority)
        for n, (size, floor, priority) in enumerate(given_slots)
    ]
    window = compose(budget, *adds)
    assert window.report.fallback
    left = budget
    order = sorted(range(len(adds)), key=lambda n: (given_slots[n][2], n), reverse=True)
    kept = {each.index: each.tokens_kept for each in window.report.slots}
    for n in order:
        assert kept[n] == min(left, given_slots[n][0])
        left -= kept[n]
