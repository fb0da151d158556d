"""Words: a text as the terms that an index knows.

Pure. Owns what counts as a word, which words carry no meaning, and how a word becomes its stem.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

# Scripts without spaces, or whose vowel signs are no word characters: read as bigrams.
_DENSE = "\u0900-\u109f\u1780-\u17ff\u3005\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_LOOSE = rf"(?:(?![{_DENSE}])\w)+"
# A run of a dense script; or a word, with the signs inside of identifiers and dates.
_CHUNK = re.compile(rf"([{_DENSE}]+)|({_LOOSE}(?:[-.@:/]{_LOOSE})*)")
_PART = re.compile(r"[^\W_]+")
_APOSTROPHE = re.compile("['\u2019](?:s\\b)?")
# No term is longer: a longer one is not a word of a question.
_LONGEST = 64
# A stem has at most this many letters, which also serves languages without rules here.
_STEM = 7
_SUFFIXES = ("ies", "ing", "ed", "es", "s", "e")

_STOP = """
    a about above after again against all also am an and any are as at be because been before being
    below between both but by can cannot could did didnt do does doesnt doing dont down during each
    few for from further get got had has have having he her here hers him his how i if im in into is
    it its ive just let me more most my no nor not of off on once only or other our ours out over
    own same she should so some such than that the their theirs them then there these they this
    those through to too under until up very was we were what when where which while who whom whose
    why will with would you your youre yours
"""
STOP = frozenset(_STOP.split())


def words(text: str) -> Iterator[str]:
    """Yield the content words of a text.

    Identifiers come whole and in parts (`mia_li_3668` is also `mia`, `li` and `3668`), scripts
    without spaces in bigrams.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    for match in _CHUNK.finditer(_APOSTROPHE.sub("", folded)):
        dense, chunk = match.groups(default="")
        if dense:
            yield from (dense[i : i + 2] for i in range(max(1, len(dense) - 1)))
        else:
            yield from _parts(chunk)


def _parts(chunk: str) -> Iterator[str]:
    if not chunk.isascii():
        plain = unicodedata.normalize("NFKD", chunk)
        chunk = "".join(c for c in plain if not unicodedata.combining(c))
    parts = _PART.findall(chunk)
    if len(parts) > 1 and len(chunk) <= _LONGEST:
        yield "".join(parts)
    for part in parts:
        if part not in STOP and (1 < len(part) <= _LONGEST or part.isdigit()):
            yield part


@lru_cache(65_536)
def stem(word: str) -> str:
    """Return a word without a common English suffix, and no more than its first letters."""
    if not word.isalpha():
        return word
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) > max(3, len(suffix) + 2) and word[-2:] != "ss":
            return _without(word, suffix)[:_STEM]
    return word[:_STEM]


def _without(word: str, suffix: str) -> str:
    """Remove a suffix, and the change that it made: the y of `ies`, a doubled letter."""
    stem = word[: -len(suffix)] + ("y" if suffix == "ies" else "")
    doubled = suffix in ("ing", "ed") and len(stem) > 3 and stem[-1] == stem[-2]
    if doubled and stem[-1] not in "lsz":
        return stem[:-1]
    return stem.rstrip("e")


@lru_cache(65_536)
def term_of(word: str) -> str:
    """Return the term of one word as it stands in a text."""
    parts = list(words(word))
    return stem(parts[0]) if len(parts) == 1 else ""


def terms(text: str) -> list[str]:
    """Return the terms of a text: the stems of its words, as often as they occur."""
    return [stem(word) for word in words(text)]


def is_identifier(word: str) -> bool:
    """Say whether a word names one thing: digits among letters, or a long number."""
    digits = sum(map(str.isdigit, word))
    return bool(digits) and (digits < len(word) or digits > 4)
