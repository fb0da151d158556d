"""Ranking: which messages bear on a question, best first.

Pure; the method in one paragraph. A word of the question matches itself and, less, words near it in
meaning; how much less is a *level*, each worth a ninth less than the one before. Levels are also
lost by long messages, and by standing beside a match: a message counts what is said around it, for
each word the best of its neighbours, three levels (0.7) a message away. A rare word weighs more, an
identifier three times as much. Dates that the question names prefer the messages of those days and
of the two weeks after; a speaker's name prefers what that speaker said by one half. The points are
whole numbers, added for all messages of a segment at once (`bits`).
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import islice
from typing import NamedTuple

from muntin.timeline.recall.bits import add, best, bits_of
from muntin.timeline.recall.dates import dates_in
from muntin.timeline.recall.index import NO_DAY, Index, Segment
from muntin.timeline.recall.related import Related
from muntin.timeline.recall.words import is_identifier, stem, words

# A level is worth STEP of the one before; a neighbour is HOP levels off; beyond LEVELS is nothing.
HOP, LEVELS = 3, 24
STEP = 0.7 ** (1 / HOP)
# How many points a nat of rarity has; more planes than PLANES no word needs.
SCALE, PLANES = 16, 12
IDENTIFIER = 3
# What a date is worth, also in so many days after it, there less.
DATE, LATER, LATER_SHARE = 2.0, 14, 0.7
# So many related words of a word are looked for.
NEAR = 40
# Of a longer question the rarest words count, and fewer of them have related words.
MOST_WORDS, MOST_RELATED = 64, 24
# Of a longer text, the beginning and the end are the question.
MOST_CHARACTERS = 10_000


class Hit(NamedTuple):
    """A message that bears on a question: its number, and its score in nats."""

    number: int
    score: float


@dataclass(frozen=True, slots=True)
class Wanted:
    """A word of the question: its weight, its terms by level, and the planes of each level."""

    term: str
    weight: float
    levels: Mapping[int, Sequence[str]]
    planes: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Question:
    """A question as an index understands it.

    `spans` are numbers of messages, from and to before, with the points that they are given.
    """

    words: tuple[Wanted, ...]
    spans: tuple[tuple[int, int, int], ...] = ()
    speaker: str | None = None

    @property
    def weights(self) -> dict[str, float]:
        """What each term of the question weighs, without related ones."""
        return {each.term: each.weight for each in self.words}


def understand(index: Index, text: str, table: Related | None = None) -> Question:
    """Return what a question asks of an index, at most so much of it."""
    if len(text) > 2 * MOST_CHARACTERS:
        text = f"{text[:MOST_CHARACTERS]} {text[-MOST_CHARACTERS:]}"
    asked: dict[str, str] = {}
    named = set()
    for word in words(text):
        if word in index.names:
            named.add(index.names[word])
        else:
            asked.setdefault(stem(word), word)
    rarest = sorted(asked, key=lambda term: -_rarity(index, term))
    kept, related = set(rarest[:MOST_WORDS]), set(rarest[:MOST_RELATED])
    found = [
        _wanted(index, term, word, table if term in related else None)
        for term, word in asked.items()
        if term in kept
    ]
    speaker = named.pop() if len(named) == 1 else None
    return Question(tuple(found), tuple(_spans(index, text)), speaker)


def _rarity(index: Index, term: str) -> float:
    return math.log((len(index) + 1) / (index.frequency.get(term, 1) + 0.5))


def _wanted(index: Index, term: str, word: str, table: Related | None) -> Wanted:
    rarity, levels = _rarity(index, term), {term: 0}
    near = table.near(word) if table is not None else ()
    known = ((alike, each) for alike, each in near if each != term and each in index.frequency)
    for alike, other in islice(known, NEAR):
        worth = alike * min(1.0, _rarity(index, other) / rarity)
        level = round(math.log(worth, STEP))
        levels[other] = min(level, levels.get(other, LEVELS))
    groups: dict[int, list[str]] = {}
    for each, level in levels.items():
        if level < LEVELS:
            groups.setdefault(level, []).append(each)
    weight = rarity * (IDENTIFIER if is_identifier(word) else 1)
    values = [round(SCALE * weight * STEP**level) for level in range(LEVELS)]
    most = (1 << PLANES) - 1
    return Wanted(term, weight, groups, [bits_of(min(value, most)) for value in values])


def _spans(index: Index, text: str) -> Iterator[tuple[int, int, int]]:
    days = index.days
    known = bisect_right(days, NO_DAY)
    if known == len(days):
        return
    years = range(date.fromordinal(days[known]).year, date.fromordinal(days[-1]).year + 1)
    for first, last in dates_in(text, years):
        end = bisect_right(days, last)
        yield bisect_left(days, first), end, round(SCALE * DATE)
        yield end, bisect_right(days, last + LATER), round(SCALE * DATE * LATER_SHARE)


def rank(index: Index, question: Question, within: range | None = None) -> Iterator[Hit]:
    """Yield the messages that bear on a question, best first, the newer first among equals.

    `within` are the numbers that may be chosen.
    """
    within = range(len(index)) if within is None else within
    found = []
    for number, segment in enumerate(index.segments):
        start = number * index.segment
        first, end = max(0, within.start - start), min(segment.size, within.stop - start)
        if first >= end:
            continue
        allowed = (1 << end) - (1 << first)
        planes = [plane & allowed for plane in _points(segment, start, question)]
        found.append(best(planes, start))
    for score, message in heapq.merge(*found):
        yield Hit(-message, -score / SCALE)


def _points(segment: Segment, start: int, question: Question) -> list[int]:
    """Return the points of one segment's messages, as planes."""
    total: list[int] = []
    for word in question.words:
        planes = _word_points(segment, word)
        if planes:
            total = add(total, planes)
    dated = 0
    for first, end, value in question.spans:
        low, high = (min(max(0, at - start), segment.size) for at in (first, end))
        if low < high:
            fresh = ((1 << high) - (1 << low)) & ~dated
            dated |= fresh
            total = add(total, [fresh if value >> k & 1 else 0 for k in range(value.bit_length())])
    theirs = segment.speakers.get(question.speaker, 0) if question.speaker else 0
    # One half more: the planes from the second on are the points divided by two.
    return add(total, [plane & theirs for plane in total[1:]]) if theirs else total


def _word_points(segment: Segment, word: Wanted) -> list[int] | None:
    """Return the points that one word gives: each message has those of its best level."""
    hits = [0] * (LEVELS + len(segment.classes))
    masks = [(by, mask) for by, mask in enumerate(segment.classes) if mask]
    for level, names in word.levels.items():
        found = segment.having(names)
        if found:
            for by, mask in masks:
                of_class = found & mask
                if of_class:
                    hits[level + by] |= of_class
    if not any(hits[:LEVELS]):
        return None
    # What was not given points yet: a message has those of its best level.
    left, planes = (1 << segment.size) - 1, [0] * PLANES
    for level, bits in enumerate(word.planes):
        hit = hits[level]
        if level >= HOP:
            near = hits[level - HOP]
            if near:
                hit |= near << 1 | near >> 1
                hits[level] = hit
        fresh = hit & left
        if fresh:
            left ^= fresh
            for k in bits:
                planes[k] |= fresh
            if not left:
                break
    return planes
