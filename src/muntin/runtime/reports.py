"""Reports kept beside the timeline, with what is needed to plan the same window again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TypeAlias

from muntin.core.parts import compact_json
from muntin.core.planning.frontier import Frontier
from muntin.core.planning.plan import Plan
from muntin.core.planning.stored import write_plan
from muntin.core.planning.window import Window
from muntin.errors import InvalidInput
from muntin.runtime.in_store import in_store
from muntin.timeline.items import Record
from muntin.timeline.session import Session

# A kept report, and the names of the contents that its plan needs.
Kept: TypeAlias = tuple[Record, tuple[str, ...]]


class Receipts:
    """The windows of a turn: the newest of each line, and the reports that are kept."""

    def __init__(self, session: Session, turn: int, keep: int) -> None:
        self.step = 0
        self._session = session
        self._turn = turn
        self._keep = keep
        self._newest: dict[str, Window | Frontier | None] = {}
        # Kept before the provider has answered; what it reports is added when it has.
        self._unanswered: tuple[Window, Kept] | None = None

    def load(self, line: str) -> Window | Frontier | None:
        """Return the newest window of a line, or what the store knows of it."""
        if line not in self._newest:
            self._newest[line] = None
            text = self._session.store.frontier(self._session.id, line)
            with suppress(InvalidInput, ValueError):  # of another version: begin anew
                if text is not None:
                    self._newest[line] = Frontier.from_dict(json.loads(text))
        return self._newest[line]

    async def previous(self, line: str) -> Window | Frontier | None:
        """Do what `load` does, without holding up the event loop."""
        if line in self._newest:
            return self._newest[line]
        return await in_store(self._session, partial(self.load, line))

    async def keep(self, window: Window, line: str) -> None:
        """Keep the report of a window, and what the window leaves to the next."""
        self.step += 1
        frontiers = {}
        if isinstance(window.explained, Plan) and window.explained.is_followed:
            self._newest[line] = window
            frontiers[line] = compact_json(window.frontier.to_dict())
        if self._keep or frontiers:
            await in_store(self._session, partial(self._write, window, frontiers))

    async def answered(self) -> None:
        """Keep what the provider reported of the newest window beside its report."""
        if self._unanswered is not None and is_reported(self._unanswered[0]):
            await in_store(self._session, self._write_reported)

    def _write(self, window: Window, frontiers: Mapping[str, str]) -> None:
        session = self._session
        self._write_reported()
        if self._keep:
            kept = keep_report(session, self._turn, self.step, window, self._keep, frontiers)
            self._unanswered = window, kept
        else:
            session.store.put_frontiers(session.id, frontiers)

    def _write_reported(self) -> None:
        unanswered, self._unanswered = self._unanswered, None
        if unanswered is None or not is_reported(unanswered[0]):
            return
        window, (record, names) = unanswered
        again = replace(record, report=compact_json(window.report.to_dict()))
        self._session.store.put_report(self._session.id, again, {}, names=names, keep=self._keep)


def is_reported(window: Window) -> bool:
    """Say whether a provider's word stands beside the claim of a report."""
    prefix = window.report.prefix
    return prefix is not None and prefix.reported is not None


def keep_report(
    session: Session,
    turn: int,
    step: int,
    window: Window,
    keep: int,
    frontiers: Mapping[str, str] | None = None,
) -> Kept:
    """Write the report of a window, its plan, and frontiers; return what was written."""
    plan = window.explained
    if not isinstance(plan, Plan):
        raise InvalidInput("a window that was pickled has forgotten its plan; compose it again")
    contents: dict[str, str] = {}
    planned = compact_json(write_plan(plan, contents))
    report = compact_json(window.report.to_dict())
    record = Record(turn, step, datetime.now(UTC), report, planned)
    session.store.put_report(
        session.id, record, contents, names=contents.keys(), keep=keep, frontiers=frontiers
    )
    return record, tuple(contents)
