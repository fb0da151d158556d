"""Reports kept beside the timeline, with what is needed to plan the same window again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from muntin.core.parts import compact_json
from muntin.core.planning.plan import Plan
from muntin.core.planning.slots import Slots
from muntin.core.planning.stored import write_plan
from muntin.core.planning.window import Window
from muntin.timeline.items import Record

if TYPE_CHECKING:
    from muntin.timeline.session import Session


def keep_report(
    session: Session,
    turn: int,
    step: int,
    slots: Slots,
    window: Window,
    keep: int,
    states: Mapping[str, str] | None = None,
) -> None:
    """Write the report of a window, its plan, and states of the session."""
    # A window that was pickled has forgotten its plan.
    plan = window.explained if isinstance(window.explained, Plan) else slots.plan()
    contents: dict[str, str] = {}
    planned = compact_json(write_plan(plan, contents))
    report = compact_json(window.report.to_dict())
    record = Record(turn, step, datetime.now(UTC), report, planned)
    session.store.put_report(session.id, record, contents, keep=keep, states=states)
