"""Receipts: the report of a window as it is kept beside a timeline, with its plan."""

from __future__ import annotations

from datetime import UTC, datetime

from muntin.core.checks import compact_json
from muntin.core.planning.plan import Plan
from muntin.core.planning.stored import write_plan
from muntin.core.planning.window import Window
from muntin.core.report import in_ranges
from muntin.errors import InvalidInput
from muntin.timeline.items import Beside, Record


def plan_of(window: Window) -> Plan:
    """Return the plan of a window."""
    if not isinstance(window.explained, Plan):
        raise InvalidInput("a window that was pickled has forgotten its plan; compose it again")
    return window.explained


def report_of(window: Window, turn: int, step: int, keep: int) -> Beside:
    """Return the report of a window and its plan, to be kept as one of so many."""
    contents: dict[str, str] = {}
    planned = compact_json(write_plan(plan_of(window), contents))
    report = compact_json(in_ranges(window.report).to_dict())
    record = Record(turn, step, datetime.now(UTC), report, planned)
    return Beside(record, contents, contents.keys(), keep)
