"""Packing: a full segment as bytes, and back.

Pure. A packed segment begins with its version; a segment of another version is not read.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from base64 import b85decode, b85encode
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from struct import Struct

from muntin.timeline.recall.index import CLASSES, Segment

# Raised when segments, or the words of texts, are made in another way.
VERSION = 2
_MARK = f"muntin-recall-{VERSION}:"
_HEAD = Struct("<IIIIII")


def pack(segment: Segment, days: Sequence[int], positions: Sequence[int]) -> str:
    """Return a segment as text that a store can keep."""
    terms, speakers = sorted(segment.terms), sorted(segment.speakers)
    lists = [segment.terms[term] for term in terms]
    lists += [segment.speakers[name] for name in speakers]
    lists += [*segment.classes, segment.prose, segment.wishes]
    counts = array("H", map(len, lists))
    steps = array("H")
    for numbers in lists:
        steps.extend(_steps(numbers))
    names = "\n".join(terms).encode()
    speaker_bytes = "\x00".join(speakers).encode()
    body = b"".join(
        (
            _HEAD.pack(
                segment.size, len(terms), len(names), len(speakers), len(speaker_bytes), len(steps)
            ),
            names,
            speaker_bytes,
            _planes(array("i", _steps(days))),
            _planes(array("q", _steps(positions))),
            _planes(array("H", segment.sizes)),
            _planes(counts),
            _planes(steps),
        )
    )
    return _MARK + b85encode(zlib.compress(body, 6)).decode("ascii")


def unpack(text: str) -> tuple[Segment, array[int], array[int]] | None:
    """Return a segment with its days and positions; None if of another version, or broken."""
    if not text.startswith(_MARK):
        return None
    try:
        reader = _Reader(zlib.decompress(b85decode(text[len(_MARK) :])))
        return _read(reader)
    except (ValueError, IndexError, zlib.error, EOFError):
        return None


def _read(reader: _Reader) -> tuple[Segment, array[int], array[int]]:
    size, of_terms, names, of_speakers, speakers_size, steps = _HEAD.unpack(
        reader.bytes(_HEAD.size)
    )
    terms = reader.bytes(names).decode().split("\n") if names else []
    speakers = reader.bytes(speakers_size).decode().split("\x00")
    days = array("i", accumulate(reader.numbers("i", size)))
    positions = array("q", accumulate(reader.numbers("q", size)))
    sizes = reader.numbers("H", size)
    if len(terms) != of_terms or len(speakers) != of_speakers:
        raise ValueError("the names do not fit")
    counts = reader.numbers("H", of_terms + of_speakers + len(CLASSES) + 3)
    every = reader.numbers("H", steps)
    ends = [0, *accumulate(counts)]
    lists = [array("H", accumulate(every[first:end])) for first, end in pairwise(ends)]
    behind = of_terms + of_speakers
    segment = Segment(
        size,
        lists[behind:-2],
        dict(zip(terms, lists[:of_terms], strict=True)),
        dict(zip(speakers, lists[of_terms:behind], strict=True)),
        prose=lists[-2],
        wishes=lists[-1],
        sizes=sizes,
    )
    return segment, days, positions


class _Reader:
    """Reads a packed segment from its beginning on."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def bytes(self, count: int) -> bytes:
        chunk = self._data[self._at : self._at + count]
        if len(chunk) < count:
            raise EOFError
        self._at += count
        return chunk

    def numbers(self, kind: str, count: int) -> array[int]:
        """Read numbers that were stored byte by byte."""
        width = array(kind).itemsize
        apart = self.bytes(count * width)
        data = bytearray(count * width)
        for place in range(width):
            data[place::width] = apart[place * count : (place + 1) * count]
        return _native(array(kind, bytes(data)))


def _planes(numbers: array[int]) -> bytes:
    """Return numbers with all first bytes together, then all second bytes: they pack smaller."""
    data, width = _native(numbers[:]).tobytes(), numbers.itemsize
    return b"".join(data[place::width] for place in range(width))


def _native(numbers: array[int]) -> array[int]:
    """Swap the bytes of numbers if this machine is big-endian: packed numbers are little-endian."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _steps(numbers: Sequence[int]) -> Iterable[int]:
    """Return the first of growing numbers, then the differences."""
    if not numbers:
        return ()
    return (numbers[0], *(b - a for a, b in pairwise(numbers)))
