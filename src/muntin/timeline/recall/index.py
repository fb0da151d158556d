"""The index: which messages have which words, in segments that only grow at the end.

Pure. A segment knows its messages by their number in it; nothing is counted across its border. The
messages that have a word are a few numbers while they are few, else one integer with a bit for each
message (`bits` says what for). Texts are not kept.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from typing import TypeAlias

from muntin.timeline.recall.words import terms, words

SEGMENT = 16_384
# A message counts a level less for each of these bounds that its number of words passes.
CLASSES = (6, 12, 20, 32)
# Up to so many numbers are kept as they are: two bytes each, where an integer has up to 2 KB.
SPARSE = 16
# About how many bytes a word takes beside what is kept of it.
_ENTRY = 150
# The day of messages before the first that has a date.
NO_DAY = 1

# A byte with bits that are set, and which those are.
_SET = re.compile(rb"[^\0]", re.DOTALL)
_BITS = [[bit for bit in range(8) if byte >> bit & 1] for byte in range(256)]

# Numbers of two bytes each, or an integer of one bit each.
Posting: TypeAlias = bytes | int


@dataclass(slots=True)
class Segment:
    """Up to 16 384 messages: which of them have which words, who said them, how long they are."""

    size: int = 0
    classes: list[int] = field(default_factory=lambda: [0] * (len(CLASSES) + 1))
    terms: dict[str, Posting] = field(default_factory=dict)
    speakers: dict[str, int] = field(default_factory=dict)

    def add(self, found: Iterable[str], length: int, name: str) -> None:
        """Add a message with these terms, of so many words, said by `name`."""
        number, bit = self.size, 1 << self.size
        held = self.terms
        for term in found:
            before = held.get(term)
            held[term] = posting_of((number,)) if before is None else _with(before, number)
        self.speakers[name] = self.speakers.get(name, 0) | bit
        self.classes[bisect_left(CLASSES, length)] |= bit
        self.size += 1

    def having(self, wanted: Iterable[str]) -> int:
        """Return which messages have any of these terms, a bit for each."""
        found, few = 0, None
        for term in wanted:
            held = self.terms.get(term)
            if held is None:
                continue
            if isinstance(held, int):
                found |= held
                continue
            few = bytearray(self.size // 8 + 1) if few is None else few
            for number in memoryview(held).cast("H"):
                few[number >> 3] |= 1 << (number & 7)
        return found if few is None else found | int.from_bytes(few, "little")

    @property
    def bytes(self) -> int:
        """About how many bytes it takes in memory."""
        few = sum(len(held) for held in self.terms.values() if isinstance(held, bytes))
        many = sum(isinstance(held, int) for held in self.terms.values())
        return few + many * self.size // 8 + _ENTRY * len(self.terms)


class Index:
    """All messages of a conversation, by number; grows at the end. Days do not go back.

    A segment has `segment` messages.
    """

    def __init__(self, segment: int = SEGMENT) -> None:
        self.segment = segment
        self.segments: list[Segment] = []
        # In how many messages each term is.
        self.frequency: dict[str, int] = {}
        # The speakers by the words of their names.
        self.names: dict[str, str] = {}
        # Of each message, its day as an ordinal and its position; both only grow.
        self.days = array("i")
        self.positions = array("q")

    def __len__(self) -> int:
        return len(self.positions)

    def add(
        self, text: str, *, name: str = "", day: date | None = None, position: int | None = None
    ) -> None:
        """Add a message; without a position its number is taken for one."""
        if len(self) % self.segment == 0:
            self.segments.append(Segment())
        said, name = terms(text), name.replace("\0", "")
        found = set(said)
        self.segments[-1].add(found, len(said), name)
        for term in found:
            self.frequency[term] = self.frequency.get(term, 0) + 1
        self._know(name)
        last = self.days[-1] if self.days else NO_DAY
        self.days.append(last if day is None else max(last, day.toordinal()))
        self.positions.append(len(self) if position is None else position)

    def take(self, segment: Segment, days: Iterable[int], positions: Iterable[int]) -> None:
        """Add a whole segment that was kept."""
        self.segments.append(segment)
        for term, held in segment.terms.items():
            self.frequency[term] = self.frequency.get(term, 0) + size_of(held)
        for name in segment.speakers:
            self._know(name)
        self.days.extend(days)
        self.positions.extend(positions)

    def _know(self, name: str) -> None:
        if name:
            self.names.update(dict.fromkeys(words(name), name))

    def between(self, first: int, end: int) -> range:
        """Return the numbers of the messages from one position to before another."""
        return range(bisect_left(self.positions, first), bisect_left(self.positions, end))

    @property
    def bytes(self) -> int:
        """About how many bytes it takes in memory."""
        held = sum(segment.bytes for segment in self.segments)
        return held + 12 * len(self) + _ENTRY * len(self.frequency)


def posting_of(numbers: Iterable[int]) -> Posting:
    """Return what is kept of the messages that have a word; numbers only grow."""
    few = array("H", numbers)
    if len(few) <= SPARSE:
        return few.tobytes()
    many = bytearray(few[-1] // 8 + 1)
    for number in few:
        many[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(many, "little")


def numbers_of(held: Posting) -> array[int]:
    """Return the numbers of the messages that have a word."""
    if isinstance(held, bytes):
        return array("H", held)
    numbers, data = array("H"), held.to_bytes(held.bit_length() // 8 + 1, "little")
    for found in _SET.finditer(data):
        first = 8 * found.start()
        numbers.extend([first + bit for bit in _BITS[found[0][0]]])
    return numbers


def size_of(held: Posting) -> int:
    """Return how many messages have a word."""
    return len(held) // 2 if isinstance(held, bytes) else held.bit_count()


def _with(held: Posting, number: int) -> Posting:
    if isinstance(held, int):
        return held | 1 << number
    if len(held) < 2 * SPARSE:
        return held + array("H", (number,)).tobytes()
    return posting_of((*numbers_of(held), number))
