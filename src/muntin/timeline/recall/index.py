"""The index: which messages have which words, in blocks that only grow at the end.

Pure. A block knows its messages by their number in it; nothing is counted across blocks. The
messages that have a word are a list of numbers while they are few, else one bit each in four
integers (see `bits`). Texts are not kept. A store keeps an index in segments, parts of a block.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from operator import or_
from typing import TypeAlias

from muntin.timeline.recall.bits import LANES
from muntin.timeline.recall.phrases import states_wish
from muntin.timeline.recall.words import terms, words

# How many messages are stored together, and how many segments are scored together.
SEGMENT, TOGETHER = 16_384, 8
# A message loses a level for each of these bounds that its number of words passes.
CLASSES = (6, 12, 20, 32, 50, 80, 130, 200, 320)
# Up to this many numbers are kept as numbers: four bytes each, where one bit for each message has
# up to 16 KB. More numbers would take less memory, but must be made bits one by one for every
# question that has the word. So a block grows faster than its messages until it is full.
SPARSE = 96
# About how many bytes a word takes beside its messages.
_ENTRY = 150
# No message counts as longer than so many characters: an excerpt shows no more of it.
LONGEST = 800
# The day of messages before the first message with a date.
NO_DAY = 1

# A byte with set bits, and the numbers of the set bits.
_SET = re.compile(rb"[^\0]", re.DOTALL)
_BITS = [[bit for bit in range(8) if byte >> bit & 1] for byte in range(256)]

# Messages as a bit each, in lanes.
Lanes: TypeAlias = list[int]
# Messages that have a word: numbers of four bytes each, or lanes.
Posting: TypeAlias = bytes | Lanes


@dataclass(frozen=True, slots=True)
class Segment:
    """The messages that a store keeps together, by number: their words, their speakers, their
    lengths; which are the assistant's prose, and which state a wish of the user; and for each
    message, of how many characters it is."""

    size: int
    classes: Sequence[Sequence[int]]
    terms: Mapping[str, Sequence[int]]
    speakers: Mapping[str, Sequence[int]]
    prose: Sequence[int]
    wishes: Sequence[int]
    sizes: Sequence[int]


@dataclass(slots=True)
class Block:
    """The messages that are scored together: their words, their speakers, their lengths; which
    are the assistant's prose, and which state a wish of the user."""

    size: int = 0
    classes: list[Lanes] = field(default_factory=lambda: [_none() for _ in range(len(CLASSES) + 1)])
    terms: dict[str, Posting] = field(default_factory=dict)
    speakers: dict[str, Lanes] = field(default_factory=dict)
    prose: Lanes = field(default_factory=lambda: _none())
    wishes: Lanes = field(default_factory=lambda: _none())

    def add(
        self, terms: Iterable[str], length: int, name: str, *, is_prose: bool, is_wish: bool
    ) -> None:
        """Add a message with these terms, of `length` words, said by `name`."""
        number, held = self.size, self.terms
        lane, bit = number % LANES, 1 << number // LANES
        for term in terms:
            before = held.get(term, b"")
            if isinstance(before, list):
                before[lane] |= bit
            else:
                held[term] = _more(before, (number,))
        self.speakers.setdefault(name, _none())[lane] |= bit
        self.classes[bisect_left(CLASSES, length)][lane] |= bit
        if is_prose:
            self.prose[lane] |= bit
        if is_wish:
            self.wishes[lane] |= bit
        self.size += 1

    def take(self, segment: Segment) -> None:
        """Add the messages of a segment."""
        start, held = self.size, self.terms
        for term, numbers in segment.terms.items():
            held[term] = _more(held.get(term, b""), [start + number for number in numbers])

        def joined(before: Lanes, numbers: Iterable[int]) -> Lanes:
            return either(before, lanes_of([start + number for number in numbers]))

        for name, numbers in segment.speakers.items():
            self.speakers[name] = joined(self.speakers.get(name, _none()), numbers)
        for place, numbers in enumerate(segment.classes):
            self.classes[place] = joined(self.classes[place], numbers)
        self.prose = joined(self.prose, segment.prose)
        self.wishes = joined(self.wishes, segment.wishes)
        self.size += segment.size

    def part(self, first: int, end: int, sizes: Sequence[int]) -> Segment:
        """Return the messages from number `first` to before `end`, which have these sizes."""
        cut = range(first, end)
        numbers_by_term = {term: numbers_of(held, cut) for term, held in self.terms.items()}
        numbers_by_name = {name: numbers_of(held, cut) for name, held in self.speakers.items()}
        return Segment(
            end - first,
            [numbers_of(held, cut) for held in self.classes],
            {term: numbers for term, numbers in numbers_by_term.items() if numbers},
            {name: numbers for name, numbers in numbers_by_name.items() if numbers},
            numbers_of(self.prose, cut),
            numbers_of(self.wishes, cut),
            sizes,
        )

    def having(self, wanted: Iterable[str]) -> Lanes | None:
        """Return which messages have any of these terms; None if there are none."""
        lanes: Lanes | None = None
        few = array("I")
        for term in wanted:
            held = self.terms.get(term)
            if isinstance(held, list):
                lanes = held if lanes is None else either(lanes, held)
            elif held is not None:
                few.frombytes(held)
        if few:
            lanes = either(lanes or _none(), lanes_of(few))
        return lanes

    @property
    def bytes(self) -> int:
        """About how many bytes the block takes in memory."""
        few = sum(len(held) for held in self.terms.values() if isinstance(held, bytes))
        many = sum(isinstance(held, list) for held in self.terms.values())
        return few + many * (self.size // 8 + 40 * LANES) + _ENTRY * len(self.terms)


class Index:
    """All messages of a conversation, by number; grows at the end. Days do not go back.

    A segment has `segment` messages, a block `together` segments.
    """

    def __init__(self, segment: int = SEGMENT, together: int = TOGETHER) -> None:
        self.segment = segment
        # How many messages a block has.
        self.block = segment * together
        self.blocks: list[Block] = []
        # In how many messages each term is.
        self.frequency: dict[str, int] = {}
        # The speakers by the words of their names.
        self.names: dict[str, str] = {}
        # The day of each message, as an ordinal, and its position; both only grow.
        self.days = array("i")
        self.positions = array("q")
        # How many characters each message has.
        self.sizes = array("H")

    def __len__(self) -> int:
        return len(self.positions)

    def add(
        self,
        text: str,
        *,
        name: str = "",
        role: str = "user",
        day: date | None = None,
        position: int | None = None,
    ) -> None:
        """Add a message; without a position its number is its position. The role `assistant` is
        that of prose: what calls tools has the role `tool`."""
        words, name = terms(text), name.replace("\0", "")
        distinct = set(words)
        self._last().add(
            distinct,
            len(words),
            name,
            is_prose=role == "assistant",
            is_wish=role == "user" and states_wish(text),
        )
        for term in distinct:
            self.frequency[term] = self.frequency.get(term, 0) + 1
        self._know(name)
        last = self.days[-1] if self.days else NO_DAY
        self.days.append(last if day is None else max(last, day.toordinal()))
        self.sizes.append(min(len(text), LONGEST))
        self.positions.append(len(self) if position is None else position)

    def take(self, segment: Segment, days: Iterable[int], positions: Iterable[int]) -> None:
        """Add a whole stored segment."""
        self._last().take(segment)
        for term, numbers in segment.terms.items():
            self.frequency[term] = self.frequency.get(term, 0) + len(numbers)
        for name in segment.speakers:
            self._know(name)
        self.days.extend(days)
        self.positions.extend(positions)
        self.sizes.extend(segment.sizes)

    def part(self, number: int) -> tuple[Segment, array[int], array[int]]:
        """Return a segment, with the days and positions of its messages."""
        first = number * self.segment
        end = min(first + self.segment, len(self))
        start = first - first % self.block
        block, sizes = self.blocks[first // self.block], self.sizes[first:end]
        segment = block.part(first - start, end - start, sizes)
        return segment, self.days[first:end], self.positions[first:end]

    def _last(self) -> Block:
        """Return the block that grows."""
        if len(self) % self.block == 0:
            self.blocks.append(Block())
        return self.blocks[-1]

    def _know(self, name: str) -> None:
        if name:
            self.names.update(dict.fromkeys(words(name), name))

    def first(self, term: str) -> int:
        """Return the number of the first message that has a term; the length if none has it."""
        for number, block in enumerate(self.blocks):
            held = block.terms.get(term)
            if held is not None:
                return number * self.block + _first(held)
        return len(self)

    def wishes(self) -> Iterator[int]:
        """Yield the numbers of the messages that state a wish."""
        for first in range(0, len(self), self.segment):
            start = first - first % self.block
            cut = range(first - start, min(first + self.segment, len(self)) - start)
            for at in numbers_of(self.blocks[first // self.block].wishes, cut):
                yield first + at

    def between(self, first: int, end: int) -> range:
        """Return the numbers of the messages from one position to before another."""
        return range(bisect_left(self.positions, first), bisect_left(self.positions, end))

    @property
    def bytes(self) -> int:
        """About how many bytes the index takes in memory."""
        held = sum(block.bytes for block in self.blocks)
        return held + 14 * len(self) + _ENTRY * len(self.frequency)


def _none() -> Lanes:
    return [0] * LANES


def either(one: Lanes, other: Lanes) -> Lanes:
    """Return the messages of both."""
    return list(map(or_, one, other))


def lanes_of(numbers: Sequence[int]) -> Lanes:
    """Return messages by number as lanes."""
    if not numbers:
        return _none()
    width = max(numbers) // LANES // 8 + 1
    lanes = [bytearray(width) for _ in range(LANES)]
    for number in numbers:
        bit = number // LANES
        lanes[number % LANES][bit >> 3] |= 1 << (bit & 7)
    return [int.from_bytes(lane, "little") for lane in lanes]


def numbers_of(held: Posting, cut: range) -> array[int]:
    """Return the messages inside a cut by number, counted from the beginning of the cut."""
    if isinstance(held, bytes):
        few = array("I", held)
        first, end = (bisect_left(few, at) for at in (cut.start, cut.stop))
        return array("H", [number - cut.start for number in few[first:end]])
    numbers: list[int] = []
    for lane, bits in enumerate(held):
        low = max(0, (cut.start - lane + LANES - 1) // LANES)
        high = max(0, (cut.stop - lane + LANES - 1) // LANES)
        data = (bits >> low & (1 << high - low) - 1).to_bytes((high - low) // 8 + 1, "little")
        for match in _SET.finditer(data):
            first = LANES * (low + 8 * match.start()) + lane - cut.start
            numbers.extend([first + LANES * bit for bit in _BITS[match[0][0]]])
    return array("H", sorted(numbers))


def _first(held: Posting) -> int:
    if isinstance(held, bytes):
        return array("I", held[:4])[0]
    lowest = ((bits & -bits).bit_length() - 1 for bits in held)
    return min(LANES * bit + lane for lane, bit in enumerate(lowest) if bit >= 0)


def _more(held: Posting, numbers: Sequence[int]) -> Posting:
    """Return the stored form of the messages that have a word, with more messages."""
    if isinstance(held, list):
        return either(held, lanes_of(numbers))
    few = held + array("I", numbers).tobytes()
    return few if len(few) <= 4 * SPARSE else lanes_of(array("I", few))
