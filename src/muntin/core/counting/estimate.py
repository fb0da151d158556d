"""The offline token estimate: what a text costs, to a few percent, without any vocabulary.

Owns `Estimate` and the measured tables behind it. Latin text is cut much as o200k_base cuts it
before merging bytes, into pieces so short that each is about one token; the estimate is the
number of pieces plus, for every character beyond ASCII, the weight of its script.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass

_ACCENTED = r"\u00c0-\u024f\u0300-\u036f\u1e00-\u1eff"  # capitals too: they are rare
_LOWER = rf"a-z{_ACCENTED}"
_INNER = rf"a-il-y{_ACCENTED}"  # j, k and z mark words the vocabulary lacks: cut before them
_MARK = r"\x00-\x08\x0e-\x1b!-/:-@\[-`{-\x7f"  # ASCII that is no letter, digit or space

# The bounds are where one more token becomes likely, fitted to real text. Every repeat has one,
# so that a long run of any character costs in proportion to its length, and so does counting it.
_PIECE = re.compile(
    rf"""
      [ ][A-Z]?[{_LOWER}][{_INNER}]{{0,8}}          # a word after a space: mostly one token
    | [ ][A-Z]{{1,4}}
    | [{_MARK}\t][A-Z]?[{_LOWER}][{_INNER}]{{0,3}}  # a short word takes the mark before it along
    | [A-Z]?[{_LOWER}][{_INNER}]{{0,6}}
    | [{_MARK}]?[A-Z]{{1,3}}
    | [0-9]{{1,3}}
    | [ ](?=[0-9])                                  # digits never take the space before them
    | [ ]?([{_MARK}])\1{{3,63}}[\r\n]{{0,8}}        # rules such as ---- and ====
    | [ ]?[{_MARK}]{{1,2}}[\r\n]{{0,8}}
    | \s{{0,16}}[\r\n]{{1,8}}                       # line ends, with the blank lines between them
    | \s{{1,64}}(?=\s|\Z)                           # indentation; its last space goes to the word
    | [\t\v\f\x1c-\x1f]
    """,
    re.VERBOSE,
)

_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")

# Hundredths of a token per character, by the first code point of each stretch of Unicode, fitted
# to real text. Latin words are pieces already: there, the weight is what an accent adds.
_SCRIPTS: tuple[tuple[int, int, str], ...] = (
    (0x0080, 100, "Latin-1 signs"),
    (0x00C0, 85, "Latin letters with accents"),
    (0x0250, 150, "phonetic letters, combining accents"),
    (0x0370, 43, "Greek"),
    (0x0400, 180, "Cyrillic letters that Russian lacks"),
    (0x0410, 27, "Russian"),
    (0x0450, 180, "Cyrillic letters that Russian lacks"),
    (0x0530, 36, "Armenian"),
    (0x0590, 46, "Hebrew"),
    (0x0600, 39, "Arabic"),
    (0x0700, 200, "Syriac and its neighbours"),
    (0x0750, 60, "Arabic supplement"),
    (0x0780, 200, "Thaana, N'Ko and their neighbours"),
    (0x0900, 42, "Devanagari"),
    (0x0980, 45, "Bengali"),
    (0x0A00, 66, "Gurmukhi"),
    (0x0A80, 44, "Gujarati"),
    (0x0B00, 150, "Oriya"),
    (0x0B80, 38, "Tamil"),
    (0x0C00, 48, "Telugu"),
    (0x0C80, 43, "Kannada"),
    (0x0D00, 38, "Malayalam"),
    (0x0D80, 62, "Sinhala"),
    (0x0E00, 41, "Thai"),
    (0x0E80, 185, "Lao"),
    (0x0F00, 150, "Tibetan"),
    (0x1000, 58, "Burmese"),
    (0x10A0, 35, "Georgian"),
    (0x1100, 200, "Hangul letters, Ethiopic"),
    (0x13A0, 300, "Cherokee, Canadian syllabics and their neighbours"),
    (0x1780, 60, "Khmer"),
    (0x1800, 300, "Mongolian and its neighbours"),
    (0x1E00, 5, "Vietnamese letters"),
    (0x1F00, 150, "polytonic Greek"),
    (0x2000, 100, "dashes, quotes, spaces"),
    (0x2070, 200, "symbols, arrows, box drawing, dingbats"),
    (0x27C0, 300, "rare symbols"),
    (0x3000, 80, "CJK punctuation"),
    (0x3040, 70, "Hiragana"),
    (0x30A0, 67, "Katakana"),
    (0x3100, 200, "Bopomofo, enclosed CJK"),
    (0x3400, 150, "Han"),
    (0xA000, 300, "Yi and its neighbours"),
    (0xAC00, 76, "Hangul"),
    (0xD800, 100, "lone surrogates, which tokenizers replace"),
    (0xE000, 300, "private use"),
    (0xF900, 200, "CJK compatibility, presentation forms"),
    (0xFF00, 155, "full-width forms"),
    (0x10000, 400, "ancient scripts"),
    (0x1D400, 300, "mathematical letters"),
    (0x1F000, 220, "emoji"),
    (0x1FB00, 300, "rare Han, all else"),
)
_STARTS = [start for start, _, _ in _SCRIPTS]

# The 3755 characters of GB 2312's first level: everyday simplified Chinese, and what traditional
# Chinese and Japanese share with it. The vocabulary holds many words of these, so they are cheap;
# other Han costs twice as much, and no range of Unicode tells the two apart.
_COMMON_HAN = frozenset(
    bytes(
        byte for lead in range(0xB0, 0xD8) for trail in range(0xA1, 0xFF) for byte in (lead, trail)
    ).decode("gb2312", "ignore")
)
_COMMON_HAN_WEIGHT = 74


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Estimate:
    """Estimates how many tokens o200k_base makes of a text, from the shape of the text alone.

    On English, code, JSON, Chinese, Japanese and Korean it errs by about 5 % and rather upwards;
    `docs/tokens.md` has the measurement.
    """

    name: str = "estimate"
    message_overhead: int = 4
    name_overhead: int = 1
    answer_overhead: int = 3

    def count(self, text: str) -> int:
        """Return the estimated number of tokens of `text`; only the empty text has none."""
        pieces = len(_PIECE.findall(text))
        if text.isascii():
            return pieces
        characters = Counter(_BEYOND_ASCII.findall(text))
        hundredths = sum(_weight(char) * times for char, times in characters.items())
        return pieces - -hundredths // 100


def _weight(char: str) -> int:
    """What one character beyond ASCII costs, in hundredths of a token."""
    if char in _COMMON_HAN:
        return _COMMON_HAN_WEIGHT
    return _SCRIPTS[bisect_right(_STARTS, ord(char)) - 1][1]
