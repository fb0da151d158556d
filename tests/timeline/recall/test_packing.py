"""A segment as text and back."""

from __future__ import annotations

import math
from array import array
from datetime import date, timedelta

from hypothesis import given
from hypothesis import strategies as st

from muntin.timeline.recall.index import Index, lanes_of, numbers_of
from muntin.timeline.recall.packing import pack, unpack
from muntin.timeline.recall.ranking import rank, understand
from tests.timeline.recall.corpus import SAID

WORDS = st.sampled_from(["oslo", "flight", "HAT023", "always", "dog", "旅馆", "zürich", "the"])
TEXTS = st.lists(st.lists(WORDS, max_size=6).map(" ".join), min_size=1, max_size=80)


@given(st.sets(st.integers(0, 400)).map(sorted), st.integers(0, 400), st.integers(0, 400))
def test_numbers_come_back_from_a_posting_few_or_many(numbers, first, end):
    wanted = [number - first for number in numbers if first <= number < end]
    for held in (array("I", numbers).tobytes(), lanes_of(numbers)):
        assert list(numbers_of(held, range(first, max(first, end)))) == wanted


@given(TEXTS, st.lists(st.sampled_from(["", "Nora", "Tomas\0x"]), min_size=1))
def test_packed_segments_are_the_same_index(texts, names):
    index = Index(segment=16, together=3)
    for number, text in enumerate(texts):
        day = date(2024, 1, 1) + timedelta(number // 3)
        role = ("user", "assistant", "tool")[number % 3]
        name, at = names[number % len(names)], 3 * number + 1
        index.add(text, name=name, role=role, day=day, position=at)
    again = Index(segment=16, together=3)
    for number in range(math.ceil(len(texts) / 16)):
        read = unpack(pack(*index.part(number)))
        assert read is not None
        again.take(*read)
    assert again.frequency == index.frequency
    assert again.names == index.names
    assert (again.days, again.positions) == (index.days, index.positions)
    for question in ("flight HAT023", "what did Nora say", "dog January 2024"):
        one, other = (list(rank(i, understand(i, question))) for i in (index, again))
        assert one == other


def test_what_another_version_packed_is_not_read():
    index = Index()
    for name, day, text in SAID:
        index.add(text, name=name, day=day)
    packed = pack(*index.part(0))
    assert unpack(packed) is not None
    head, _, body = packed.partition(":")
    for broken in ("", "{}", f"{head}0:{body}", f"{head}:{body[:-40]}", f"{head}:"):
        assert unpack(broken) is None
