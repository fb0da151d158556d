"""Receipts: the stored report of a window, with its plan, beside a timeline; and how much of all
reports a store keeps."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from zlib import crc32

from muntin.core.checks import check_size, compact_json, replace_surrogates, shown
from muntin.core.planning.plan import Plan
from muntin.core.window import Window
from muntin.errors import InvalidInput, StoreError
from muntin.timeline.items import Record, SideWrites
from muntin.timeline.session import Session
from muntin.timeline.stored_plans import write_plan

# By default a store keeps this many bytes of reports, and keeps them this long.
BYTES, AGE = 1_000_000_000, timedelta(days=30)
_log = logging.getLogger(__name__)


def plan_of(window: Window) -> Plan:
    """Return the plan of a window."""
    if not isinstance(window.explained, Plan):
        raise InvalidInput("a window that was pickled has forgotten its plan; compose it again")
    return window.explained


def report_of(window: Window, turn: int, step: int, keep: int) -> SideWrites:
    """Return the report of a window and its plan, to be stored as one of `keep` reports.

    A report that cannot be made is left out, with a warning: no answer is lost for it.
    """
    plan, contents = plan_of(window), dict[str, str]()
    try:
        planned = replace_surrogates(compact_json(write_plan(plan, contents)))
        report = replace_surrogates(compact_json(window.kept_report.to_dict()))
        contents = {name: replace_surrogates(text) for name, text in contents.items()}
    except Exception:
        where = "the report of turn %d, step %d could not be made"
        _log.warning(where, turn, step, exc_info=True)
        return SideWrites()
    record = Record(turn, step, datetime.now(UTC), report, planned)
    return SideWrites(record, contents, contents.keys(), keep)


def size_of(writes: SideWrites) -> int:
    """Return about how many bytes a report has, with the contents that its plan needs."""
    texts = () if writes.record is None else (writes.record.report, writes.record.plan)
    return sum(map(len, (*texts, *writes.contents.values())))


# The bounds are checked at about one of this many steps, in any process, and when a process has
# written this part of the bytes.
_STEPS, _SHARE = 64, 20


class Bounds:
    """How much a store keeps: `keep` reports of a session, so many bytes of all sessions, and
    reports of no more than an age; None means no limit."""

    def __init__(self, keep: int, most: int | None, age: timedelta | None) -> None:
        self.keep = check_size(keep, "keep_reports")
        self._most = None if most is None else check_size(most, "report_bytes")
        if age is not None and not (isinstance(age, timedelta) and age >= timedelta(0)):
            raise InvalidInput(f"report_age must be a timedelta or None, not {shown(age)}")
        self._age = age
        self._written = 0

    def keep_to(self, session: Session, turn: int, step: int, written: int) -> None:
        """Delete reports beyond the bounds, now and then; for code that runs in a thread."""
        self._written += written
        full = self._most is not None and self._written * _SHARE > self._most
        if not full and crc32(f"{session.id}/{turn}/{step}".encode()) % _STEPS:
            return
        self._written = 0
        before = None if self._age is None else datetime.now(UTC) - self._age
        try:
            session.store.prune(before=before, most=self._most)
        except StoreError as error:  # the answer is stored; the next step will see to it
            _log.warning("old reports could not be forgotten: %s", error)
