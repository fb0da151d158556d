"""Related words: which words are near a word in meaning, by a table of codes.

Owns the table's file. Each word has a code of 256 bits; two words are as similar as their codes
agree. The agreements of one word with all others are counted at once, bit-sliced (`bits`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from itertools import islice

from muntin.timeline.recall.bits import best, count
from muntin.timeline.recall.words import stem

_HEADER = struct.Struct("<4sIII")
_MAGIC = b"MWT2"
# The least similarity of related words, and how many words are considered.
_LEAST, _MOST = 0.15, 400


class Related:
    """The words of a table by their codes."""

    def __init__(self, data: bytes) -> None:
        magic, count, bits, size = _HEADER.unpack_from(data)
        if magic != _MAGIC:
            raise ValueError(f"this is no table of words: it begins with {magic!r}")
        start = _HEADER.size + size
        self._names = data[_HEADER.size : start].decode().split("\n")
        width = count // 8
        self._planes = [
            int.from_bytes(data[start + n * width : start + (n + 1) * width], "little")
            for n in range(bits)
        ]
        self._at = {name: number for number, name in enumerate(self._names)}
        self._near = lru_cache(4_096)(self._look)

    def near(self, word: str) -> Sequence[tuple[float, str]]:
        """Return the terms of related words with their similarity, 0 to 1, the nearest first."""
        at = self._at.get(word)
        return () if at is None else self._near(at)

    def _look(self, at: int) -> tuple[tuple[float, str], ...]:
        every, this = (1 << len(self._names)) - 1, 1 << at
        # For each bit, the words that have it as this word has; then how often they agree.
        agreed = count(plane if plane & this else plane ^ every for plane in self._planes)
        words = []
        for agree, number in islice(best(agreed), _MOST):
            alike = -2 * agree / len(self._planes) - 1
            if alike > _LEAST:
                words.append(((alike - _LEAST) / (1 - _LEAST), stem(self._names[-number])))
        return tuple(words)


@lru_cache(1)
def table() -> Related:
    """Return the table of the package, read at its first use."""
    return Related((files(__package__) / "table" / "words.bin").read_bytes())
