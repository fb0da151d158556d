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


def _belongs_to_previous(char: str) -> bool:
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
    if before == _ZWJ or _belongs_to_previous(after):
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


def _can_end_at(text: str, length: int, keep: End) -> bool:
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
            if length != high and _can_end_at(text, length, keep):
                size = measure(piece(text, length, keep))
                if size <= limit:
                    best = length, size
    return (piece(text, best[0], keep), best[1]) if best else None


def _legal(text: str, guess: int, low: int, high: int, keep: End) -> int | None:
    """Return the length nearest to `guess`, strictly between low and high, that may be cut at."""
    for length in range(guess, low, -1):
        if length < high and _can_end_at(text, length, keep):
            return length
    for length in range(guess + 1, high):
        if _can_end_at(text, length, keep):
            return length
    return None


# A JSON text of up to this many characters is read for its structure.
_SCANNED = 2_000
# A line end is near if at most this share of a piece lies behind it.
_NEAR = 4


def cut_with_line(
    text: str,
    whole: int,
    limit: int,
    count: Callable[[str], int],
    line: Callable[[str], str],
    keep: End = "ends",
) -> tuple[str, int]:
    """Return the longest form of a text within `limit` tokens, and its tokens: one or both of its
    ends, and a line that says what is missing. `line` gets the characters that stay.

    Ends are cut between lines, or between the elements of JSON, where such a place is near. If
    nothing fits, the line alone is returned.
    """

    def form(piece: str) -> str:
        head, tail = "", ""
        if keep != "tail":
            first = (len(piece) + 1) // 2 if keep == "ends" else len(piece)
            head = _end_at_line(piece[:first])
            piece = piece[first:]
        if keep != "head":
            tail = _begin_at_line(piece)
        return "\n".join(part for part in (head, line(head + tail), tail) if part)

    best = longest(text, whole, limit, lambda piece: count(form(piece)), keep)
    shortened = form("" if best is None else best[0])
    return shortened, count(shortened) if best is None else best[1]


def _end_at_line(head: str) -> str:
    """Return the beginning of a text up to a line end or the end of a JSON element, if near."""
    if head[:1] in ("[", "{"):
        return whole_elements(head)
    end = head.rfind("\n", len(head) - len(head) // _NEAR)
    return head if end < 0 else head[:end].removesuffix("\r")


def _begin_at_line(tail: str) -> str:
    """Return the end of a text from a line's beginning on, if one is near."""
    begin = tail.find("\n", 0, len(tail) // _NEAR)
    return tail if begin < 0 else tail[begin + 1 :]


def whole_elements(head: str) -> str:
    """Return the beginning of a JSON text up to the end of an element, if one is near."""
    if len(head) > _SCANNED:  # too long to be read for its structure
        near = max(head.rfind(end, len(head) // 2) for end in ("},", "],"))
        return head[: near + 2] if near > 0 else head
    last: dict[int, int] = {}
    depth, quoted, skip = 0, False, False
    for index, char in enumerate(head):
        if skip:
            skip = False
        elif quoted:
            skip = char == "\\"
            quoted = char != '"'
        elif char == '"':
            quoted = True
        elif char in "[{":
            depth += 1
        elif char in "]}":
            depth -= 1
        elif char == ",":
            last[depth] = index + 1
    near_ends = [end for _, end in sorted(last.items()) if end >= len(head) // 2]
    return head[: near_ends[0]] if near_ends else head
