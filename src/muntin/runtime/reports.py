"""Reports stored beside the timeline, with the plan that makes the same window again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal

from muntin.core.caching.frontier import Frontier, text_name
from muntin.core.checks import compact_json
from muntin.core.planning.plan import Plan
from muntin.core.window import Window
from muntin.errors import InvalidInput
from muntin.runtime.spending import Spent
from muntin.runtime.summaries import State
from muntin.timeline.items import NoteKey, SideWrites
from muntin.timeline.receipts import Bounds, plan_of, report_of, size_of
from muntin.timeline.turn import OpenTurn

# Frontiers that this process wrote, by their text: the next turn need not read them again.
_known: dict[str, Frontier] = {}
_REMEMBERED = 256


@dataclass(slots=True)
class _Unwritten:
    """A window whose report is not durable yet, its line, and the bytes of the report."""

    window: Window
    line: str
    size: int = 0


class Receipts:
    """The windows of a turn: the newest of each line, and the reports still to be stored."""

    def __init__(self, turn: OpenTurn, bounds: Bounds) -> None:
        self.step = 0
        # The originals of the turn's sources, and the turn before which older ones are deleted.
        self.originals: tuple[Mapping[str, str], int] = ({}, 0)
        self._turn = turn
        self._bounds = bounds
        self._newest: dict[str, Window | Frontier | None] = {}
        self._summaries: dict[str, State] = {}
        self._unwritten: dict[int, _Unwritten] = {}
        self._spent: Spent | None = None
        # The names of the texts for one turn that the store has.
        self._cleared: dict[str, set[str]] = {}

    def load(self, line: str) -> Window | Frontier | None:
        """Return the newest window of a line, or the frontier that the store has of it."""
        if line not in self._newest:
            session = self._turn.session
            self._newest[line] = None
            text = session.store.content(session.id, "frontier", line)
            with suppress(InvalidInput, ValueError):  # written by another version: begin anew
                if text is not None:
                    frontier = _known.pop(text, None) or Frontier.from_dict(
                        json.loads(text),
                        lambda name: session.store.content(session.id, "cleared", f"{line} {name}"),
                    )
                    self._newest[line] = frontier
                    self._cleared[line] = {text_name(text) for _, text in frontier.cleared}
        return self._newest[line]

    def summaries(self, line: str, *, again: bool = False) -> State:
        """Return the stored state of the summaries of a line; for code in a thread, unless it was
        read before."""
        if again or line not in self._summaries:
            self._summaries[line] = State.load(self._turn.session, line)
        return self._summaries[line]

    def load_spent(self) -> Spent:
        """Return what the session has cost, and this turn; for code in a thread."""
        if self._spent is None:
            session, turn = self._turn.session, self._turn.number
            text = session.store.content(session.id, "spent", "")
            if text is None:  # no limit was in force until now
                self._spent = Spent(session.usage().cost)
            else:
                total, of, in_turn = json.loads(text)
                self._spent = Spent(Decimal(total), Decimal(in_turn if of == turn else 0))
        return self._spent

    def spend(self, cost: Decimal | None) -> None:
        """Add the cost of an answer, which is stored with it."""
        if self._spent is not None:
            self._spent = self._spent.and_for(cost)

    def keep(self, window: Window, line: str) -> int:
        """Have the report of a window stored with the next append of its run; return its step."""
        plan = plan_of(window) if self._bounds.keep else window.explained
        self.step += 1
        # A window over budget is never sent: the next window follows the one before it.
        if isinstance(plan, Plan) and plan.is_followed and not window.over_budget:
            self._newest[line] = window
        self._unwritten[self.step] = _Unwritten(window, line)
        return self.step

    def beside(self, step: int) -> SideWrites | None:
        """Return what is to be stored beside the timeline for a step, if it is not stored yet."""
        unwritten, turn = self._unwritten.get(step), self._turn.number
        if unwritten is None:
            return None
        window = unwritten.window
        writes = (
            report_of(window, turn, step, self._bounds.keep) if self._bounds.keep else SideWrites()
        )
        unwritten.size = size_of(writes)
        originals, forget = self.originals
        notes: dict[NoteKey, str | None] = {}
        if self._spent is not None:
            total, in_turn = map(str, self._spent)
            notes["spent", ""] = json.dumps([total, turn, in_turn])
        if self._newest.get(unwritten.line) is window:
            notes["frontier", unwritten.line] = _write(window)
            notes |= self._cleared_notes(window, unwritten.line)
        return replace(writes, turn=turn, originals=originals, forget=forget, notes=notes)

    def _cleared_notes(self, window: Window, line: str) -> dict[NoteKey, str | None]:
        """Return the texts for one turn that are not stored yet, and those no longer needed."""
        texts = {text_name(text): text for _, text in window.frontier.cleared}
        stored = self._cleared.get(line, set())
        self._cleared[line] = set(texts)
        changed = sorted(stored ^ texts.keys())
        return {("cleared", f"{line} {name}"): texts.get(name) for name in changed}

    def settle(self, step: int) -> None:
        """Note that everything of a step is durable."""
        written = self._unwritten.pop(step, None)
        if written is None:
            return
        self.originals = ({}, 0)
        if written.size:
            self._bounds.keep_to(self._turn.session, self._turn.number, step, written.size)

    @property
    def unwritten(self) -> list[int]:
        """The steps without a stored report: they had no result."""
        return [*self._unwritten]


def _write(window: Window) -> str:
    """Return the frontier of a window as JSON."""
    frontier = window.frontier
    text = compact_json(frontier.to_dict())
    if len(_known) >= _REMEMBERED:
        _known.clear()
    _known[text] = frontier
    return text
