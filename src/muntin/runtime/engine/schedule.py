"""Schedules: `every="5m"`, or the five fields of cron, in UTC. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from muntin.core.checks import shown
from muntin.errors import InvalidInput, InvalidType

_SPAN = re.compile(r"(\d+)(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
# Name, first, last, and the words that stand for numbers.
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of the month", 1, 31, {}),
    ("month", 1, 12, {name: n for n, name in enumerate(_MONTHS, 1)}),
    ("day of the week", 0, 7, {name: n for n, name in enumerate(_DAYS)}),
)
_PART = re.compile(r"(\*|\w+)(?:-(\w+))?(?:/(\d+))?")
# 29 February on a given weekday comes within 28 years, or 40 around a year like 2100.
_YEARS = 41


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a wake comes again: after a span, or at the times of cron."""

    text: str
    span: timedelta | None = None
    # What each field of cron allows.
    fields: tuple[frozenset[int], ...] = ()
    # Where both days are restricted, either of them is enough.
    either: bool = False

    def after(self, due: datetime, now: datetime) -> datetime:
        """Return the first time after `now`; missed times are not made up for.

        A span is counted from the time it was last due, so that it does not drift.
        """
        if self.span is not None:
            missed = max(0, (now - due) // self.span)
            return due + (missed + 1) * self.span
        minutes, hours, days, months, weekdays = self.fields
        moment = max(due, now).astimezone(UTC).replace(second=0, microsecond=0)
        moment += timedelta(minutes=1)
        end = moment.year + _YEARS
        while moment.year < end:
            # Sunday is 0 and 7.
            by_week = not weekdays.isdisjoint((moment.isoweekday(), moment.isoweekday() % 7))
            by_month = moment.day in days
            is_day = (by_month or by_week) if self.either else (by_month and by_week)
            if moment.month not in months or not is_day:
                moment = moment.replace(hour=0, minute=0) + timedelta(days=1)
            elif moment.hour not in hours:
                moment = moment.replace(minute=0) + timedelta(hours=1)
            elif moment.minute not in minutes:
                moment += timedelta(minutes=1)
            else:
                return moment
        raise InvalidInput(f"every={self.text!r} never comes: no such day is in the calendar")


def read_schedule(text: str) -> Schedule:
    """Read `5m` (s, m, h, d), or the five fields of cron: minute, hour, day, month, weekday."""
    if not isinstance(text, str):
        raise InvalidType(f"every is a text like '5m' or '0 9 * * mon-fri', not {shown(text)}")
    if span := _SPAN.fullmatch(text.strip()):
        seconds = int(span[1]) * _SECONDS[span[2]]
        if not 0 < seconds <= 366 * 86_400:
            raise InvalidInput(f"every={text!r} must be between a second and a year")
        return Schedule(text, timedelta(seconds=seconds))
    fields = text.lower().split()
    if len(fields) != len(_FIELDS):
        raise InvalidInput(
            f"every={text!r} is neither a span like '30s', '5m', '2h', '1d' nor the five fields "
            "of cron: minute, hour, day of the month, month, day of the week"
        )
    allowed = tuple(
        _read_field(field, *about, text) for field, about in zip(fields, _FIELDS, strict=True)
    )
    either = not fields[2].startswith("*") and not fields[4].startswith("*")
    schedule = Schedule(text, fields=allowed, either=either)
    schedule.after(datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC))
    return schedule


def _read_field(
    field: str, name: str, first: int, last: int, words: dict[str, int], text: str
) -> frozenset[int]:
    def number(word: str) -> int:
        value = words.get(word, int(word) if word.isdecimal() else -1)
        if not first <= value <= last:
            raise InvalidInput(f"every={text!r}: {word!r} is no {name} ({first} to {last})")
        return value

    numbers: set[int] = set()
    for part in field.split(","):
        match = _PART.fullmatch(part)
        if match is None or (match[1] == "*" and match[2]):
            raise InvalidInput(f"every={text!r}: {part!r} is no {name}")
        low, high, step = first, last, int(match[3] or 1)
        if match[1] != "*":
            low = number(match[1])
            high = number(match[2]) if match[2] else (last if match[3] else low)
        if step < 1 or high < low:
            raise InvalidInput(f"every={text!r}: {part!r} is no {name}")
        numbers.update(range(low, high + 1, step))
    return frozenset(numbers)
