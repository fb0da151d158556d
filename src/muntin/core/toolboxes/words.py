"""The words of a text about a tool, as the search index knows them.

Identifiers are split at signs and capitals, dense scripts into pairs of characters; words that say
nothing are left out, and endings are cut off.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_CAPITALS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Scripts without spaces between words: kana, Chinese characters, Hangul.
_DENSE = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_CHUNK = re.compile(rf"([{_DENSE}]+)|([^\W_]+)")
_EMPTY_WORDS = """\
    a about all also an and any are as at be been both but by can could do does each for from
    had has have how i if in into is it its just let like may me more most my need needs no not of
    on only or other our out own please should so some such than that the their them then there
    these they this those through to tool tools too up use used user uses using very via want was
    we were what when where which while who will with within would you your e g etc new based
    provide provides provided various specific specified given allow allows help
    helps able available optional required following"""
_EMPTY = frozenset(_EMPTY_WORDS.split())
_ENDINGS = (
    *("izations", "ization", "ations", "ation", "ments", "ment", "ings", "ing", "ies"),
    *("ers", "er", "ors", "or", "ed", "es", "s", "e"),
)
_LONGEST_STEM = 8
_SENTENCE = re.compile("(.{10,}?[.!?\u3002])(\\s|$)")


@lru_cache(65_536)
def stem(word: str) -> str:
    """Return the part of a word that its other forms share."""
    if not word.isalpha() or len(word) < 4 or word.endswith("ss"):
        return word[:_LONGEST_STEM] if word.isalpha() and len(word) >= 4 else word
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            root = word[: -len(ending)] + ("y" if ending == "ies" else "")
            if len(root) > 3 and root[-1] == root[-2] and root[-1] not in "lsz":
                root = root[:-1]
            return root.rstrip("e")[:_LONGEST_STEM]
    return word[:_LONGEST_STEM]


def terms(text: str) -> list[str]:
    """Return the stems of the words of a text that say something."""
    text = _CAPITALS.sub(" ", unicodedata.normalize("NFKC", text))
    stems: list[str] = []
    for dense, word in _CHUNK.findall(text.casefold()):
        if dense:
            stems += [dense[n : n + 2] for n in range(max(1, len(dense) - 1))]
        elif word not in _EMPTY and (len(word) > 1 or word.isdigit()):
            stems.append(stem(word))
    return stems


def fold(name: str) -> str:
    """Return a name without signs and capitals."""
    return re.sub(r"[\W_]+", "", name.casefold())


def first_sentence(text: str, most: int = 120) -> str:
    """Return the first sentence of a text on one line, of at most `most` characters."""
    flat = " ".join(text.split())
    match = _SENTENCE.match(flat)
    sentence = match[1] if match else flat
    if len(sentence) <= most:
        return sentence
    return f"{sentence[: most - 1].rsplit(' ', 1)[0]}\u2026"
