"""Dates that a question names: from which day to which day.

Pure. Understands English months and years.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date

_NAMES = """
    january february march april may june july august september october november december
"""
_MONTHS = _NAMES.split()
_DAY = r"(\d\d?)(?:st|nd|rd|th)?"
_YEAR = r"(?:19|20)\d\d"
_DATE = re.compile(
    rf"(?:\b{_DAY}(?: of)? )?\b({'|'.join(_MONTHS)})\b(?: {_DAY}\b)?(?:,? ?(?:of )?({_YEAR}))?"
    rf"|\b({_YEAR})\b"
)
# Months that are also words: they count as months with a number, or behind a word such as "in".
_WORDS = ("may", "march")
_MEANT = re.compile(r"\b(in|of|since|during|until|by|early|late|mid|last|this) (may|march)\b")


def dates_in(question: str, years: range) -> Iterator[tuple[int, int]]:
    """Yield the first and the last day, as ordinals, of each date that a question names.

    A date without a year is meant in each of `years`.
    """
    text = question.casefold()
    for before, month, after, with_month, alone in _DATE.findall(text):
        day, year = int(before or after or 0), with_month or alone
        if month in _WORDS and not (day or year or _MEANT.search(text)):
            continue
        for candidate in [int(year)] if year else years:
            number = _MONTHS.index(month) + 1 if month else 1
            first = date(candidate, number, 1).toordinal() + max(0, day - 1)
            yield first, first + (0 if day else 30 if month else 364)
