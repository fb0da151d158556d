"""Stored windows, planned again: at their own budget or at another.

Owns how many of them stay in memory. It reads a store by functions that write nothing, and leaves
every decision to the planner.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from threading import RLock
from typing import Any, TypeVar

from muntin.core.planning.plan import Plan
from muntin.core.window import Window
from muntin.errors import InvalidInput, MuntinError
from muntin.timeline.items import Record, check_session_id
from muntin.timeline.store import Store
from muntin.timeline.stored_plans import read_plan
from muntin.view.lines import Line, lines

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# How many plans stay in memory, how many windows of each, and how many characters of plans.
PLANS = 8
WINDOWS = 3
# How many small answers about windows, which never change, stay in memory.
ANSWERS = 10_000
CHARACTERS = 64_000_000
# A window with a longer text is not planned again at other budgets: cutting it takes seconds.
LONGEST = 4_000_000


def remembered(cache: OrderedDict[K, V], key: K, most: int, make: Callable[[], V]) -> V:
    """Return a value of a cache, made when it is first asked for; the oldest go."""
    if key not in cache:
        cache[key] = make()
    cache.move_to_end(key)
    while len(cache) > most:
        cache.popitem(last=False)
    return cache[key]


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
class WindowView:
    """A planned window with its lines."""

    window: Window
    lines: Sequence[Line]


@dataclass(frozen=True, slots=True)
class StoredWindow:
    """A stored window: its original report, its written plan, and the plan.

    `plan` is None if it can no longer be read; `why` says so. `longest` is the length of its
    longest text. `views` are what it was planned as lately, by their budgets.
    """

    key: Key
    report: Mapping[str, Any]
    written: Mapping[str, Any]
    plan: Plan | None
    why: str | None
    longest: int
    size: int
    views: OrderedDict[int, WindowView] = field(default_factory=OrderedDict)

    @property
    def budget(self) -> int:
        """The budget it was planned with."""
        return int(self.written["budget"])


class Plans:
    """The stored plans of a store, the last few in memory."""

    def __init__(self, store: Store) -> None:
        # Only reading functions of the store are used.
        self.store = store
        # One at a time: planning only computes, and two plans would slow each other down.
        self._lock = RLock()
        self._plans: OrderedDict[Key, StoredWindow] = OrderedDict()
        self._answers: OrderedDict[Hashable, Any] = OrderedDict()

    def remember(self, what: Hashable, make: Callable[[], V]) -> V:
        """Return a small answer about stored windows, made when it is first asked for."""
        with self._lock:
            answer: V = remembered(self._answers, what, ANSWERS, make)
            return answer

    def record(self, session: str, turn: int, step: int | None = None) -> Record:
        """Return a stored report: of a step, or of the last step of the turn."""
        records = self.store.reports(check_session_id(session), first=turn, last=turn)
        chosen = [record for record in records if step is None or record.step == step]
        if not chosen:
            where = f"turn {turn}" if step is None else f"step {step} of turn {turn}"
            raise InvalidInput(f"no report of {where} of session {session!r} is kept")
        return chosen[-1]

    def read_at(self, session: str, turn: int, step: int | None = None) -> StoredWindow:
        """Return the stored window of a step, or of the last step of the turn."""
        return self.read(session, self.record(session, turn, step))

    def read(self, session: str, record: Record) -> StoredWindow:
        """Return a stored window with its plan."""
        key = key_of(session, record)
        with self._lock:
            stored = remembered(self._plans, key, PLANS, lambda: self._read(key, record))
            sizes = sum(window.size for window in self._plans.values())
            while sizes > CHARACTERS and len(self._plans) > 1:
                sizes -= self._plans.popitem(last=False)[1].size
            return stored

    def _read(self, key: Key, record: Record) -> StoredWindow:
        report, written = json.loads(record.report), json.loads(record.plan)
        size = longest = 0

        def content(name: str) -> str | None:
            nonlocal size, longest
            text = self.store.content(key.session, "report", name)
            size += len(text or "")
            longest = max(longest, len(text or ""))
            return text

        plan, why = None, None
        try:
            plan = read_plan(written, content, report=report)
        except MuntinError as error:
            why = str(error)
        return StoredWindow(key, report, written, plan, why, longest, size)

    def view(self, stored: StoredWindow, budget: int | None = None) -> WindowView:
        """Return a window, planned again at its own budget or at another."""
        plan = stored.plan
        if plan is None:
            raise InvalidInput(f"this window cannot be planned again: {stored.why}")
        wanted = stored.budget if budget is None else budget
        if wanted != stored.budget and stored.longest > LONGEST:
            raise InvalidInput(
                f"this window declares a text of {stored.longest:,} characters; it is too long "
                "to be planned again at another budget here"
            )

        def make() -> WindowView:
            window = (plan if wanted == stored.budget else plan.at(wanted)).window()
            return WindowView(window, lines(window))

        with self._lock:
            return remembered(stored.views, wanted, WINDOWS, make)


def check_budget(value: int) -> int:
    """Return a budget that a window may be planned with."""
    if not 0 <= value <= 100_000_000:
        raise InvalidInput(f"a budget is from 0 to 100,000,000 tokens, not {value:,}")
    return value
