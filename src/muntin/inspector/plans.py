"""Stored windows, planned again: at their own budget or at another.

Owns how many of them stay in memory. It reads a store by functions that write nothing, and leaves
every decision to the planner.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from threading import RLock
from typing import Any, Protocol, TypeVar

from muntin.core.planning.plan import Plan
from muntin.core.window import Window
from muntin.errors import InvalidInput, MuntinError
from muntin.timeline.items import Item, NoteKind, Record, SessionInfo, Turn
from muntin.timeline.stored_plans import read_plan
from muntin.view.lines import Line, lines

T = TypeVar("T")

# How many plans and windows stay in memory, and how many characters of plans.
PLANS = 8
WINDOWS = 16
# How many small answers about windows, which never change, stay in memory.
ANSWERS = 10_000
CHARACTERS = 64_000_000
# A window with a longer text is not planned again at other budgets: cutting it takes seconds.
LONGEST = 4_000_000


class Kept(Protocol):
    """The part of a store that the inspector uses: only reading."""

    @property
    def name(self) -> str:
        """The address of the store, without a password."""

    def sessions(self, *, after: str | None = None, limit: int = 100) -> list[SessionInfo]:
        """Return sessions by id, from the first behind `after`."""

    def session(self, session: str) -> SessionInfo | None:
        """Return the facts about one session."""

    def turns(self, session: str) -> list[Turn]:
        """Return the turns, the newest first."""

    def reports(self, session: str, *, first: int = 0, last: int | None = None) -> list[Record]:
        """Return the kept reports of these turns, the oldest first."""

    def content(self, session: str, key: str) -> str | None:
        """Return a content by its hash."""

    def read(self, session: str) -> list[Item]:
        """Return all items."""

    def gave_up(self, *, limit: int = 100) -> list[tuple[str, int]]:
        """Return sessions with the turns that were given up."""

    def note(self, session: str, kind: NoteKind, name: str = "") -> str | None:
        """Return a note of a session."""


@dataclass(frozen=True, slots=True)
class Key:
    """Which window: the step of a turn of a session. `time` tells a step that was run again."""

    session: str
    turn: int
    step: int
    time: datetime


def key_of(session: str, record: Record) -> Key:
    """Return the key of a record's window."""
    return Key(session, record.turn, record.step, record.time)


@dataclass(frozen=True, slots=True)
class Planned:
    """A stored window: its original report, its written plan, and the plan.

    `plan` is None if it can no longer be read; `why` says so. `longest` is the length of its
    longest text.
    """

    key: Key
    report: Mapping[str, Any]
    written: Mapping[str, Any]
    plan: Plan | None
    why: str | None
    longest: int
    size: int

    @property
    def budget(self) -> int:
        """The budget it was planned with."""
        return int(self.written["budget"])


@dataclass(frozen=True, slots=True)
class Sight:
    """A planned window with its lines."""

    window: Window
    lines: Sequence[Line]


class Plans:
    """The stored plans of a store, the last few in memory."""

    def __init__(self, store: Kept) -> None:
        self.store = store
        # One at a time: planning only computes, and two plans would slow each other down.
        self._lock = RLock()
        self._plans: OrderedDict[Key, Planned] = OrderedDict()
        self._sights: OrderedDict[tuple[Key, int], Sight] = OrderedDict()
        self._answers: OrderedDict[Hashable, Any] = OrderedDict()

    def remember(self, what: Hashable, make: Callable[[], T]) -> T:
        """Return a small answer about stored windows, made when it is first asked for."""
        with self._lock:
            if what in self._answers:
                self._answers.move_to_end(what)
            else:
                self._answers[what] = make()
                if len(self._answers) > ANSWERS:
                    self._answers.popitem(last=False)
            found: T = self._answers[what]
            return found

    def record(self, session: str, turn: int, step: int | None = None) -> Record:
        """Return a stored report: of a step, or of the last step of the turn."""
        found = self.store.reports(session, first=turn, last=turn)
        chosen = [each for each in found if step is None or each.step == step]
        if not chosen:
            where = f"turn {turn}" if step is None else f"step {step} of turn {turn}"
            raise InvalidInput(f"no report of {where} of session {session!r} is kept")
        return chosen[-1]

    def planned(self, session: str, record: Record) -> Planned:
        """Return a stored window with its plan."""
        key = key_of(session, record)
        with self._lock:
            known = self._plans.get(key)
            if known is None:
                known = self._plans[key] = self._read(key, record)
            self._plans.move_to_end(key)
            while len(self._plans) > PLANS or (
                len(self._plans) > 1
                and sum(each.size for each in self._plans.values()) > CHARACTERS
            ):
                self._forget(next(iter(self._plans)))
            return known

    def _forget(self, key: Key) -> None:
        del self._plans[key]
        for each in [each for each in self._sights if each[0] == key]:
            del self._sights[each]

    def _read(self, key: Key, record: Record) -> Planned:
        report, written = json.loads(record.report), json.loads(record.plan)
        size = longest = 0

        def content(name: str) -> str | None:
            nonlocal size, longest
            text = self.store.content(key.session, name)
            size += len(text or "")
            longest = max(longest, len(text or ""))
            return text

        plan, why = None, None
        try:
            plan = read_plan(written, content, report=report)
        except MuntinError as error:
            why = str(error)
        return Planned(key, report, written, plan, why, longest, size)

    def sight(self, planned: Planned, budget: int | None = None) -> Sight:
        """Return a window, planned again at its own budget or at another."""
        plan = planned.plan
        if plan is None:
            raise InvalidInput(f"this window cannot be planned again: {planned.why}")
        wanted = planned.budget if budget is None else budget
        if wanted != planned.budget and planned.longest > LONGEST:
            raise InvalidInput(
                f"this window declares a text of {planned.longest:,} characters; it is too long "
                "to be planned again at another budget here"
            )
        place = planned.key, wanted
        with self._lock:
            known = self._sights.get(place)
            if known is None:
                window = (plan if wanted == planned.budget else plan.at(wanted)).window()
                known = self._sights[place] = Sight(window, lines(window))
            self._sights.move_to_end(place)
            while len(self._sights) > WINDOWS:
                self._sights.popitem(last=False)
            return known


def check_budget(value: int) -> int:
    """Return a budget that a window may be planned with."""
    if not 0 <= value <= 100_000_000:
        raise InvalidInput(f"a budget is from 0 to 100,000,000 tokens, not {value:,}")
    return value
