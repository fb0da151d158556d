"""Reports kept beside the timeline, with what is needed to plan the same window again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

from muntin.core.parts import compact_json
from muntin.core.planning.frontier import Frontier
from muntin.core.planning.plan import Plan
from muntin.core.planning.stored import write_plan
from muntin.core.planning.window import Window
from muntin.errors import InvalidInput
from muntin.runtime.in_store import in_store
from muntin.timeline.items import Record
from muntin.timeline.session import Session


class Receipts:
    """The windows of a turn: the newest of each line, and the reports that are kept."""

    def __init__(self, session: Session, turn: int, keep: int) -> None:
        self.step = 0
        self._session = session
        self._turn = turn
        self._keep = keep
        self._newest: dict[str, Window | Frontier | None] = {}

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

    def _write(self, window: Window, frontiers: Mapping[str, str]) -> None:
        session = self._session
        if self._keep:
            keep_report(session, self._turn, self.step, window, self._keep, frontiers)
        else:
            session.store.put_frontiers(session.id, frontiers)


def keep_report(
    session: Session,
    turn: int,
    step: int,
    window: Window,
    keep: int,
    frontiers: Mapping[str, str] | None = None,
) -> None:
    """Write the report of a window, its plan, and frontiers."""
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
