"""Passages: the part of a long text that bears on a question.

Pure. Texts are searched for the terms of the question; related words are not searched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import groupby

# A cut moves by at most this many characters to fall between words.
_NEAR = 24


class Finder:
    """Finds the terms of a question in texts."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = weights
        self._terms = tuple(sorted(weights, key=lambda term: (-len(term), term)))
        self._known: dict[str, list[tuple[int, str]]] = {}

    def places(self, text: str) -> list[tuple[int, str]]:
        """Return where which terms stand in a text."""
        if text not in self._known:
            self._known[text] = self._look(text) if self._terms else []
        return self._known[text]

    def _look(self, text: str) -> list[tuple[int, str]]:
        # A case-sensitive pattern is several times as fast as one that ignores case.
        small = text.lower()
        if len(small) == len(text):
            pattern = _pattern(self._terms, 0)
        else:
            small, pattern = text, _pattern(self._terms, re.IGNORECASE)
        return [(found.start(), found[0].casefold()) for found in pattern.finditer(small)]

    def found(self, text: str) -> tuple[str, ...]:
        """Return the terms in a text, the weightiest first."""
        known = {term for _, term in self.places(text)}
        return tuple(sorted(known, key=lambda term: (-self._weights.get(term, 0), term)))

    def passage(self, text: str, most: int) -> str:
        """Return a text; of a longer text, the `most` characters that have most of the question."""
        if len(text) <= most:
            return text
        first = max(0, self._first(text, most))
        end = min(len(text), first + most)
        if first:
            first = _between(text, first, first + _NEAR)
        if end < len(text):
            end = _between(text, end - _NEAR, end, last=True)
        before, behind = "…" if first else "", "…" if end < len(text) else ""
        return f"{before}{text[first:end].strip()}{behind}"

    def _first(self, text: str, most: int) -> int:
        """Return where the best passage begins, with its terms in the middle."""
        places = self.places(text)
        best, begins, ends = 0.0, 0, 0
        held: dict[str, int] = {}
        last = 0
        for at, gone in places:
            while last < len(places) and places[last][0] < at + most:
                term = places[last][1]
                held[term] = held.get(term, 0) + 1
                last += 1
            worth = sum(self._weights.get(term, 0) for term, count in held.items() if count)
            if worth > best + 1e-9:
                best, begins, ends = worth, at, places[last - 1][0]
            held[gone] -= 1
        if not best:
            return 0
        return min((begins + ends - most) // 2, len(text) - most) if ends - begins < most else 0


def _between(text: str, first: int, end: int, *, last: bool = False) -> int:
    """Return a place between words in a range; without one, the beginning or end of the range."""
    spaces = [at for at in range(max(0, first), min(end, len(text))) if text[at].isspace()]
    if not spaces:
        return end if last else first
    return spaces[-1] if last else spaces[0]


@lru_cache(64)
def _pattern(terms: tuple[str, ...], flags: int) -> re.Pattern[str]:
    # A stem is the beginning of a word; a bigram of a script without spaces stands anywhere.
    runs = [(stem, "|".join(map(re.escape, run))) for stem, run in groupby(terms, str.isascii)]
    each = [rf"(?<![^\W_])(?:{run})" if stem else run for stem, run in runs]
    return re.compile("|".join(each), flags)
