"""Bit-sliced numbers against plain ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muntin.timeline.recall.bits import add, beside, best, between, count
from muntin.timeline.recall.index import lanes_of

SCORES = st.lists(st.integers(0, 500), max_size=60)
NUMBERS = st.sets(st.integers(0, 90))


def planes_of(scores: list[int]) -> list[int]:
    """Return scores as planes."""
    width = max(scores, default=0).bit_length()
    return [sum((each >> k & 1) << m for m, each in enumerate(scores)) for k in range(width)]


@given(SCORES, SCORES)
def test_planes_are_added_as_numbers_are(one, other):
    size = max(len(one), len(other))
    one, other = one + [0] * (size - len(one)), other + [0] * (size - len(other))
    sums = [a + b for a, b in zip(one, other, strict=True)]
    made = add(planes_of(one), planes_of(other))
    assert [sum((plane >> m & 1) << k for k, plane in enumerate(made)) for m in range(size)] == sums


@given(st.lists(NUMBERS, max_size=20))
def test_sets_are_counted_by_message(sets):
    made = count(sum(1 << each for each in one) for one in sets)
    told = [sum((plane >> m & 1) << k for k, plane in enumerate(made)) for m in range(91)]
    assert told == [sum(m in one for one in sets) for m in range(91)]


@given(SCORES, st.integers(0, 100))
def test_the_best_come_first_and_the_newer_of_equals(scores, start):
    wanted = sorted((-each, -start - m) for m, each in enumerate(scores) if each)
    assert list(best(planes_of(scores), start)) == wanted


@given(NUMBERS)
def test_neighbours_are_one_message_off(numbers):
    wanted = {each + step for each in numbers for step in (-1, 1)} - {-1}
    assert beside(lanes_of(sorted(numbers))) == lanes_of(sorted(wanted))


@given(st.integers(0, 90), st.integers(0, 90))
def test_a_range_has_a_bit_for_each_number(first, end):
    assert between(first, end) == lanes_of(range(first, end))
