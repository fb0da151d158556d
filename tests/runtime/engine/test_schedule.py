"""Schedules: spans, and the five fields of cron."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from muntin import InvalidInput
from muntin.runtime.engine.schedule import read_schedule


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("every", "now", "next_time"),
    [
        ("* * * * *", "2026-11-16 02:07:30", "2026-11-16 02:08"),
        ("*/15 * * * *", "2026-11-16 02:07", "2026-11-16 02:15"),
        ("5/20 * * * *", "2026-11-16 02:26", "2026-11-16 02:45"),
        ("0 9 * * mon-fri", "2026-11-13 09:00", "2026-11-16 09:00"),
        ("30 8-10,18 * * *", "2026-11-16 10:30", "2026-11-16 18:30"),
        ("0 0 1 jan *", "2026-11-16 00:00", "2027-01-01 00:00"),
        ("0 0 29 2 *", "2026-11-16 00:00", "2028-02-29 00:00"),
        ("0 0 * * 7", "2026-11-16 00:00", "2026-11-22 00:00"),
        ("0 0 * * 0", "2026-11-16 00:00", "2026-11-22 00:00"),
        # Where both days are restricted, either is enough.
        ("0 0 13 * fri", "2026-11-16 00:00", "2026-11-20 00:00"),
        ("0 0 13 * fri", "2026-12-11 00:00", "2026-12-13 00:00"),
        ("0 0 */10 * fri", "2026-11-16 00:00", "2026-12-11 00:00"),
    ],
)
def test_cron_is_read_as_cron_reads_it(every, now, next_time):
    assert read_schedule(every).after(at(now), at(now)) == at(next_time)


def test_cron_comes_as_croniter_says():
    croniter = pytest.importorskip("croniter").croniter
    for every in ("*/7 3-5 * * *", "0 12 1,15 * *", "15 6 * 2-4 sat", "59 23 31 12 *"):
        moment = at("2026-11-16 02:07")
        expected = croniter(every, moment)
        for _ in range(50):
            moment = read_schedule(every).after(moment, moment)
            assert moment == expected.get_next(datetime)


def test_a_span_is_counted_from_when_it_was_due_and_what_was_missed_is_not_made_up_for():
    every, due = read_schedule("5m"), at("2026-11-16 02:00")
    assert every.after(due, due + timedelta(seconds=3)) == at("2026-11-16 02:05")
    assert every.after(due, at("2026-11-16 02:17")) == at("2026-11-16 02:20")
    assert every.after(due, due - timedelta(minutes=1)) == at("2026-11-16 02:05")
    assert [read_schedule(each).span for each in ("30s", "2h", "1d")] == [
        timedelta(seconds=30),
        timedelta(hours=2),
        timedelta(days=1),
    ]


@pytest.mark.parametrize(
    ("every", "told"),
    [
        ("5", "neither a span like '30s'"),
        ("0s", "between a second and a year"),
        ("* * * *", "five fields of cron"),
        ("60 * * * *", "'60' is no minute"),
        ("* 24 * * *", "'24' is no hour"),
        ("* * 0 * *", "'0' is no day of the month"),
        ("* * * foo *", "'foo' is no month"),
        ("* * * * 8", "'8' is no day of the week"),
        ("*/0 * * * *", "is no minute"),
        ("9-5 * * * *", "is no minute"),
        ("0 0 30 2 *", "never comes"),
        (5, "every is a text"),
    ],
)
def test_what_is_no_schedule_is_refused_by_name(every, told):
    with pytest.raises(InvalidInput, match=told):
        read_schedule(every)
