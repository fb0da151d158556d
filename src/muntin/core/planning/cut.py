"""Cutting a text: where it may be cut, and the longest piece that fits.

Knows characters and a measure, neither messages nor slots.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Literal, TypeAlias

Keep: TypeAlias = Literal["head", "tail"]
# The part of a text that a piece keeps: the beginning of a text, its end, or both.
End: TypeAlias = Keep | Literal["ends"]

# A longer piece may have fewer tokens than a shorter one ("hello" is one token, "ello" two).
# This many longer pieces are tried after the search, in short texts.
LOOK_AHEAD = 16
LOOK_AHEAD_MOST = 2_048

_ZWJ = "\u200d"


def _clings(char: str) -> bool:
    """Say whether `char` belongs to the character before it."""
    if char < "\u0300":
        return False
    return (
        unicodedata.category(char) in ("Mn", "Mc", "Me")
        or char in (_ZWJ, "\u200c")
        or "\U0001f3fb" <= char <= "\U0001f3ff"  # skin tones
        or "\U000e0020" <= char <= "\U000e007f"  # tags inside flag sequences
        or "\u1160" <= char <= "\u11ff"  # Hangul vowels and finals
    )


def _is_flag_letter(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def is_boundary(text: str, index: int) -> bool:
    """Say whether `text` may be cut before `index`: never inside a character a person sees."""
    if index <= 0 or index >= len(text):
        return True
    before, after = text[index - 1], text[index]
    if after < "\u0300":
        return not (before == "\r" and after == "\n")
    if before == _ZWJ or _clings(after):
        return False
    if _is_flag_letter(before) and _is_flag_letter(after):
        start = index
        while start and _is_flag_letter(text[start - 1]):
            start -= 1
        return (index - start) % 2 == 0
    return True


def ends(text: str, length: int) -> tuple[str, str]:
    """Return beginning and end of `text`, together `length` characters."""
    first = (length + 1) // 2
    return text[:first], text[len(text) - (length - first) :]


def piece(text: str, length: int, keep: End) -> str:
    """Return the first (`head`) or last (`tail`) `length` characters of `text`, or both `ends`."""
    if keep == "ends":
        return "".join(ends(text, length))
    return text[:length] if keep == "head" else text[len(text) - length :]


def _fits_border(text: str, length: int, keep: End) -> bool:
    if keep == "ends":
        first = (length + 1) // 2
        return is_boundary(text, first) and is_boundary(text, len(text) - (length - first))
    return is_boundary(text, length if keep == "head" else len(text) - length)


def longest(
    text: str, whole: int, limit: int, measure: Callable[[str], int], keep: End
) -> tuple[str, int] | None:
    """Return the longest proper piece of `text` whose measure is at most `limit`, and that measure.

    `whole` is the measure of all of `text`, which does not fit. None if not even one character
    fits. The measure need not be monotone: the result always fits, and no piece up to `LOOK_AHEAD`
    characters longer fits (one character longer, for long texts).
    """
    low, low_size, high, high_size = 0, 0, len(text), max(whole, limit + 1)
    step = 0
    while True:
        # By turns a guess in proportion, which lands close, and the middle, which ends the search.
        # Twice what fits is nearer than the middle of a long text, and cheaper to measure.
        if step % 2:
            guess = min((low + high) // 2, 2 * low or high)
        else:
            guess = low + (high - low) * (limit - low_size) // max(1, high_size - low_size)
        step += 1
        length = _legal(text, min(max(guess, low + 1), high - 1), low, high, keep)
        if length is None:
            break
        size = measure(piece(text, length, keep))
        if size <= limit:
            low, low_size = length, size
        else:
            high, high_size = length, size
    best = (low, low_size) if low else None
    if low <= LOOK_AHEAD_MOST:
        for length in range(low + 1, min(low + 1 + LOOK_AHEAD, len(text))):
            if length != high and _fits_border(text, length, keep):
                size = measure(piece(text, length, keep))
                if size <= limit:
                    best = length, size
    return (piece(text, best[0], keep), best[1]) if best else None


def _legal(text: str, guess: int, low: int, high: int, keep: End) -> int | None:
    """Return the length nearest to `guess`, strictly between low and high, that may be cut at."""
    for length in range(guess, low, -1):
        if length < high and _fits_border(text, length, keep):
            return length
    for length in range(guess + 1, high):
        if _fits_border(text, length, keep):
            return length
    return None
