"""Ranking: which messages bear on a question, best first.

Pure; the method in one paragraph. A word of the question matches itself and, less, words near it in
meaning; how much less is a *level*, each worth a ninth less than the one before. Long messages lose
levels too, and so does standing beside a match: a message also counts the words around it, for each
word the best of its neighbours, three levels (0.7) a message away. A rare word weighs more, an
identifier three times as much, a word that only frames a question a quarter. If the question names
dates, messages of these days and of the two weeks after are preferred. Where people talk to each
other, what the one named speaker said counts twice. Where a user talks to an assistant, what is not
the assistant's prose counts one half more, unless the question asks for it, and so does a wish that
lasts. The points are whole numbers, added for all messages of a block at once (`bits`).
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache, reduce
from itertools import islice
from operator import and_, or_, xor
from typing import NamedTuple, TypeAlias

from muntin.timeline.recall.bits import LANES, add, beside, best, between, increase
from muntin.timeline.recall.dates import dates_in
from muntin.timeline.recall.index import NO_DAY, Block, Index, Lanes, either
from muntin.timeline.recall.phrases import FRAMES, asks_assistant
from muntin.timeline.recall.related import Related
from muntin.timeline.recall.words import is_identifier, stem, words

# A level is worth STEP of the level before; a neighbour is HOP levels away; from LEVELS on, 0.
HOP, LEVELS = 3, 24
STEP = 0.7 ** (1 / HOP)
SHARES = [STEP**level for level in range(LEVELS)]
# Points of a nat of rarity; no word needs more than PLANES planes.
SCALE, PLANES = 16, 12
IDENTIFIER, FRAME = 3, 0.25
# The points of a date, the days after it that count too, and their share of the points.
DATE, LATER, LATER_SHARE = 2.0, 14, 0.7
# How many related words of a word are searched.
NEAR = 40
# In a longer question only the rarest words count, and fewer of them have related words.
MOST_WORDS, MOST_RELATED = 64, 24
# Of a longer text, only the beginning and the end are the question.
MOST_CHARACTERS = 10_000

# The points of messages: for each lane its planes.
Planes: TypeAlias = list[list[int]]


class Hit(NamedTuple):
    """A message that bears on a question: its number, and its score in nats."""

    number: int
    score: float


@dataclass(frozen=True, slots=True)
class Wanted:
    """A word of the question: its weight, its terms by level, and for each plane the levels whose
    points have its bit."""

    term: str
    weight: float
    levels: Mapping[int, Sequence[str]]
    planes: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Question:
    """A question as an index understands it.

    `spans` are ranges of message numbers, from and to before, with their extra points. `speaker` is
    the only one that it names. `of_people` says that people talk to each other, `of_assistant` that
    it asks what the assistant said.
    """

    words: tuple[Wanted, ...]
    spans: tuple[tuple[int, int, int], ...] = ()
    speaker: str | None = None
    of_people: bool = False
    of_assistant: bool = False

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each term of the question, without related terms."""
        return {word.term: word.weight for word in self.words}

    @property
    def worths(self) -> dict[str, list[tuple[int, float]]]:
        """For each term, related ones too: the words of the question that it stands for, by number,
        and what it is worth for each."""
        worths: dict[str, list[tuple[int, float]]] = {}
        for number, word in enumerate(self.words):
            for level, terms in word.levels.items():
                for term in terms:
                    worths.setdefault(term, []).append((number, word.weight * SHARES[level]))
        return worths


def understand(
    index: Index, text: str, table: Related | None = None, before: int | None = None
) -> Question:
    """Return a question for an index and its messages `before` a number; of a long question only
    a part."""
    if len(text) > 2 * MOST_CHARACTERS:
        text = f"{text[:MOST_CHARACTERS]} {text[-MOST_CHARACTERS:]}"
    originals: dict[str, str] = {}
    named = set()
    for word in words(text):
        if word in index.names:
            named.add(index.names[word])
        else:
            originals.setdefault(stem(word), word)
    # A word that no message has would be the rarest: it must not displace a word that some have.
    end = len(index) if before is None else before
    rarest = sorted(originals, key=lambda term: (index.first(term) >= end, -_rarity(index, term)))
    kept_terms, related = set(rarest[:MOST_WORDS]), set(rarest[:MOST_RELATED])
    weighted = [
        _wanted(index, term, word, table if term in related else None)
        for term, word in originals.items()
        if term in kept_terms
    ]
    speaker = named.pop() if len(named) == 1 else None
    return Question(
        tuple(weighted),
        tuple(_spans(index, text)),
        speaker,
        of_people=len(set(index.names.values())) > 1,
        of_assistant=asks_assistant(text),
    )


def _rarity(index: Index, term: str) -> float:
    return math.log((len(index) + 1) / (index.frequency.get(term, 1) + 0.5))


def _wanted(index: Index, term: str, word: str, table: Related | None) -> Wanted:
    rarity, levels = _rarity(index, term), {term: 0}
    near = table.near(word) if table is not None else ()
    candidates = (
        (alike, other) for alike, other in near if other != term and other in index.frequency
    )
    for alike, other in islice(candidates, NEAR):
        worth = alike * min(1.0, _rarity(index, other) / rarity)
        level = round(math.log(worth, STEP))
        levels[other] = min(level, levels.get(other, LEVELS))
    groups: dict[int, list[str]] = {}
    for close_term, level in levels.items():
        if level < LEVELS:
            groups.setdefault(level, []).append(close_term)
    weight = rarity * (FRAME if word in FRAMES else IDENTIFIER if is_identifier(word) else 1)
    values = tuple([round(SCALE * weight * share) for share in SHARES])
    return Wanted(term, weight, groups, _planes(values))


@lru_cache(1_024)
def _planes(values: tuple[int, ...]) -> list[list[int]]:
    """Return for each bit which of the values have it."""
    clipped = [min(value, (1 << PLANES) - 1) for value in values]
    planes = [[at for at, value in enumerate(clipped) if value >> k & 1] for k in range(PLANES)]
    while planes and not planes[-1]:
        planes.pop()
    return planes


def _spans(index: Index, text: str) -> Iterator[tuple[int, int, int]]:
    days = index.days
    count = bisect_right(days, NO_DAY)
    if count == len(days):
        return
    years = range(date.fromordinal(days[count]).year, date.fromordinal(days[-1]).year + 1)
    for first, last in dates_in(text, years):
        end = bisect_right(days, last)
        yield bisect_left(days, first), end, round(SCALE * DATE)
        yield end, bisect_right(days, last + LATER), round(SCALE * DATE * LATER_SHARE)


def rank(index: Index, question: Question, within: range | None = None) -> Iterator[Hit]:
    """Yield the messages that bear on a question, best first, the newer first among equals.

    `within` are the message numbers that may be chosen.
    """
    within = range(len(index)) if within is None else within
    hits = []
    for number, block in enumerate(index.blocks):
        start = number * index.block
        first, end = max(0, within.start - start), min(block.size, within.stop - start)
        if first >= end:
            continue
        allowed = between(first, end)
        for lane, planes in enumerate(_points(block, start, question)):
            allowed_plane = [plane & allowed[lane] for plane in planes]
            hits.append(best(allowed_plane, start + lane, LANES))
    for score, message in heapq.merge(*hits):
        yield Hit(-message, -score / SCALE)


def _points(block: Block, start: int, question: Question) -> Planes:
    """Return the points of one block's messages."""
    total: Planes = [[] for _ in range(LANES)]
    for word in question.words:
        points = _word_points(block, word)
        if points:
            total = list(map(add, total, points))
    dated = [0] * LANES
    for first, end, value in question.spans:
        low, high = (min(max(0, at - start), block.size) for at in (first, end))
        if low < high:
            days = between(low, high)
            for lane, bits in enumerate(days):
                fresh = bits & ~dated[lane]
                gains = [fresh if value >> k & 1 else 0 for k in range(value.bit_length())]
                total[lane] = add(total[lane], gains)
            dated = either(dated, days)
    return _weighed(total, block, question)


def _weighed(points: Planes, block: Block, question: Question) -> Planes:
    """Return points with more for messages of the preferred speakers."""
    if question.of_people:
        named = block.speakers.get(question.speaker) if question.speaker else None
        return points if named is None else list(map(increase, points, named, [0] * LANES))
    halves = [1] * LANES  # one half more
    if not question.of_assistant:
        others = list(map(xor, between(0, block.size), block.prose))
        points = list(map(increase, points, others, halves))
    return list(map(increase, points, block.wishes, halves))


def _word_points(block: Block, word: Wanted) -> Planes | None:
    """Return the points of one word: each message gets the points of its best level."""
    hits = _hits(block, word)
    if not any(hits):
        return None
    # The messages without points so far: each gets only the points of its best level.
    undecided, none = between(0, block.size), [0] * LANES
    fresh: list[Lanes] = []
    for level, here in enumerate(hits):
        near = fresh[level - HOP] if level >= HOP else none
        if any(near):
            here = beside(near) if here is None else either(here, beside(near))
        if here is None:
            fresh.append(none)
            continue
        fresh.append(list(map(and_, here, undecided)))
        undecided = list(map(xor, undecided, fresh[-1]))
    return [
        [reduce(or_, map(levels.__getitem__, having), 0) for having in word.planes]
        for levels in zip(*fresh, strict=True)
    ]


def _hits(block: Block, word: Wanted) -> list[Lanes | None]:
    """Return which messages have a word, by level; None for a level without messages."""
    hits: list[Lanes | None] = [None] * LEVELS
    for level, names in word.levels.items():
        lanes = block.having(names)
        if lanes is None:
            continue
        for at, long in enumerate(block.classes[: LEVELS - level], level):
            of_class = list(map(and_, lanes, long))
            before = hits[at]
            hits[at] = of_class if before is None else either(before, of_class)
    return hits
