"""Bit-sliced numbers against plain ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muntin.timeline.recall.bits import add, best, bits_of

SCORES = st.lists(st.integers(0, 500), max_size=60)


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


@given(SCORES, st.integers(0, 100))
def test_the_best_come_first_and_the_newer_of_equals(scores, start):
    wanted = sorted((-each, -start - m) for m, each in enumerate(scores) if each)
    assert list(best(planes_of(scores), start)) == wanted


@given(st.integers(0, 10_000))
def test_the_bits_of_a_number_make_it_up(number):
    assert sum(1 << k for k in bits_of(number)) == number
