"""A store in memory, for tests and for sessions that need not last.

The same contract as the SQL stores. Like them it reads only what is asked for, so a window costs
the same on every timeline.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from threading import RLock
from typing import TypeVar

from muntin.core.checks import check_size
from muntin.timeline.clock import machine_now
from muntin.timeline.items import (
    EPOCH,
    UNSETTLED,
    Claim,
    ContentKind,
    Draft,
    Item,
    NoteKind,
    Pruned,
    Record,
    SessionInfo,
    SideWrites,
    Status,
    Turn,
    Visibility,
    check_session_id,
)
from muntin.timeline.owner import choose, gave_up_text, is_gone, is_lost, pause
from muntin.timeline.store.memory_kept import Kept, ends, holds
from muntin.timeline.store.memory_timers import MemoryTimers
from muntin.timeline.store.protocols import Backlog, Begun, View
from muntin.timeline.store.rows import no_session, place, taken, waking, written

T = TypeVar("T")


# Stands for a session that is not there. Nothing is ever written to it.
_NOTHING = Kept(EPOCH, EPOCH)


class MemoryStore:
    """A store that lives as long as the object; `Store` says what its methods promise."""

    name = "memory:"

    def __init__(self) -> None:
        self._sessions: dict[str, Kept] = {}
        self._names: list[str] = []  # sorted
        self._lock = RLock()
        self.timers = MemoryTimers(self._lock, self.append)

    # Timelines.

    def append(
        self,
        session: str,
        drafts: Sequence[Draft],
        *,
        claim: Claim | None = None,
        beside: SideWrites | None = None,
        begun: Begun | None = None,
    ) -> list[Item]:
        self._kept(session)
        if not drafts:
            return []
        _, entries = written(drafts)  # refuses drafts that another store could not keep
        now = datetime.now(UTC)
        with self._lock:
            made = drafts[0].time or now
            kept = self._sessions.get(session) or Kept(made, made)
            if beside is not None:
                kept.check_seen(session, beside)
            status = kept.turns[-1].status if kept.turns else None
            first = len(kept.items) + 1
            free = claim is not None and not kept.unsettled
            items, changes = place(session, drafts, len(kept.turns), status, first, now, free=free)
            if begun is not None:
                for number in waking(drafts, items, len(kept.turns)):
                    begun(None, session, number)
            if claim is not None:
                kept.hold(session, {item.turn for item in items}, claim)
            for draft, item, entry in zip(drafts, items, entries, strict=True):
                if item.turn > len(kept.turns):
                    kept.begin(item, changes[item.turn], claim)
                kept.add(item, draft.weight, entry)
            kept.end(changes, claim)
            kept.updated = drafts[-1].time or now
            if session not in self._sessions:
                insort(self._names, session)
            self._sessions[session] = kept
            if beside is not None:
                kept.put_beside(beside)
        return [_own(item) for item in items]

    def read(
        self,
        session: str,
        *,
        view: View = "all",
        after: int = 0,
        before: int | None = None,
        first_turn: int = 0,
        last_turn: int | None = None,
        settled: int | None = None,
        newest: int | None = None,
        oldest: int | None = None,
    ) -> list[Item]:
        with self._lock:
            kept = self._kept(session)
            last = sys.maxsize if last_turn is None else last_turn
            end = len(kept.items) if before is None else min(before - 1, len(kept.items))
            places = range(_start(kept, after, first_turn), max(0, end))
            items = map(kept.items.__getitem__, places if newest is None else reversed(places))
            found = (
                item
                for item in items
                if first_turn <= item.turn <= last
                and (view == "all" or getattr(item.visibility, view))
                and (item.turn >= (settled or 0) or kept.turns[item.turn - 1].status != "failed")
            )
            read = [_own(item) for item in _first(found, oldest if newest is None else newest)]
        return read if newest is None else read[::-1]

    def reach(self, session: str, weight: int) -> Item | None:
        with self._lock:
            kept = self._kept(session)
            if type(weight) is not int or weight < 0:
                check_size(weight, "weight")
            index = bisect_right(kept.totals, kept.totals[-1] - weight) if kept.totals else 0
            return _own(kept.items[index]) if index < len(kept.items) else None

    def count(self, session: str, counts: Mapping[int, Mapping[str, int]]) -> None:
        with self._lock:
            kept = self._kept(session)
            for position, tokens in counts.items():
                if 1 <= position <= len(kept.items):
                    item = kept.items[position - 1]
                    kept.items[position - 1] = replace(item, tokens={**item.tokens, **tokens})

    def hide(self, session: str, position: int) -> bool:
        with self._lock:
            kept = self._kept(session)
            if not 1 <= check_size(position, "position") <= len(kept.items):
                return False
            item = kept.items[position - 1]
            kept.items[position - 1] = replace(item, visibility=Visibility(False, False))
            return item.visibility.client or item.visibility.history

    def entries(self, session: str, id: str | None = None) -> list[Item]:
        with self._lock:
            kept = self._kept(session)
            positions = sorted(kept.live.values()) if id is None else kept.versions.get(id, [])
            return [_own(kept.items[position - 1]) for position in positions]

    def turns(
        self, session: str, *, status: Status | None = None, newest: int | None = None
    ) -> list[Turn]:
        with self._lock:
            kept = self._kept(session)
            few = status in UNSETTLED
            numbers = sorted(kept.unsettled) if few else range(1, len(kept.turns) + 1)
            turns = (kept.turns[number - 1] for number in reversed(numbers))
            return _first((turn for turn in turns if status in (None, turn.status)), newest)

    def turn(self, session: str, number: int) -> Turn | None:
        with self._lock:
            return self._kept(session).turn(number)

    def sessions(self, *, after: str | None = None, limit: int = 100) -> list[SessionInfo]:
        check_size(limit, "limit")
        with self._lock:
            start = 0 if after is None else bisect_right(self._names, after)
            names = self._names[start : start + limit]
            return [_info(name, self._sessions[name]) for name in names]

    def session(self, session: str) -> SessionInfo | None:
        with self._lock:
            kept = self._kept(session)
            return _info(session, kept) if kept.items else None

    def rename(self, names: Mapping[str, str]) -> None:
        with self._lock:
            for session, new in names.items():
                if self._kept(session) is _NOTHING:
                    raise no_session(self.name, session)
                if self._kept(new) is not _NOTHING:
                    raise taken(self.name, new)
            for session, new in names.items():
                self._sessions[new] = self._sessions.pop(session)
            self._names = sorted(self._sessions)

    def delete(self, session: str) -> None:
        with self._lock:
            self._kept(session)
            self.timers.drop_all(session)
            if self._sessions.pop(session, None) is not None:
                del self._names[bisect_left(self._names, session)]

    # Leases.

    def settle(
        self,
        session: str,
        turn: int,
        status: Status,
        *,
        claim: Claim | None = None,
        reason: str | None = None,
        beside: Sequence[SideWrites] = (),
    ) -> bool:
        with self._lock:
            kept = self._kept(session)
            known = kept.turn(turn)
            if known is None or known.status not in UNSETTLED:
                return False
            if claim is not None and not holds(known, claim):
                return False
            for each in beside:
                kept.check_seen(session, each)
            known = replace(known, status=status, owner=None, until=None, after=None)
            kept.put(replace(known, reason=reason))
            for each in beside:
                kept.put_beside(each)
            return True

    def take(
        self,
        session: str,
        owner: str,
        lease: timedelta,
        *,
        number: int | None = None,
        resumable: bool = False,
        max_attempts: int | None = None,
        sure: bool = False,
    ) -> Turn | None:
        with self._lock:
            kept = self._kept(session)
            unsettled = [kept.turns[each - 1] for each in sorted(kept.unsettled)]
            choice = choose(
                unsettled,
                owner,
                machine_now(),
                number=number,
                wakes=resumable,
                max_attempts=max_attempts,
                sure=sure,
            )
            for each in choice.abandoned:
                self.settle(session, each, "failed", reason="abandoned")
            for each in choice.gave_up:
                text = gave_up_text(kept.turns[each - 1])
                self.append(session, [Draft("error", payload=text, turn=each)])
                self.settle(session, each, "failed", reason="gave_up")
            turn = choice.turn
            if turn is None or choice.taken:
                return turn
            held = replace(turn, status="open", owner=owner, until=ends(lease))
            after = machine_now() + pause(turn.tries + 1)
            held = replace(held, resumable=resumable, attempt=turn.attempt + 1, after=after)
            kept.put(held)
            return held

    def renew(self, session: str, turn: int, claim: Claim) -> bool:
        with self._lock:
            kept = self._kept(session)
            known = kept.turn(turn)
            if known is None or not holds(known, claim):
                return False
            kept.put(replace(known, until=ends(claim.lease)))
            return True

    def hand_back(
        self, session: str, turn: int, claim: Claim, *, after: timedelta = timedelta(0)
    ) -> bool:
        with self._lock:
            kept = self._kept(session)
            known = kept.turn(turn)
            if known is None or not (holds(known, claim) and known.resumable):
                return False
            known = replace(known, owner=None, until=None, returned=known.returned + 1)
            kept.put(replace(known, after=machine_now() + after))
            return True

    def mend(self, session: str) -> list[int]:
        with self._lock:
            kept, now = self._kept(session), machine_now()
            turns = [kept.turns[number - 1] for number in sorted(kept.unsettled)]
            lost = [turn.number for turn in turns if is_lost(turn, now)]
            for number in lost:
                self.settle(session, number, "failed", reason="abandoned")
            return lost

    def gave_up(self, *, after: str | None = None, limit: int = 100) -> list[tuple[str, int]]:
        with self._lock:
            names = islice(self._names, bisect_right(self._names, after or ""), None)
            found = (
                (name, turn.number)
                for name in names
                for turn in self._sessions[name].turns
                if turn.reason == "gave_up"
            )
            return _first(found, limit)

    def hold(self, session: str, name: str, owner: str, lease: timedelta) -> bool:
        with self._lock:
            kept, now = self._kept(session), machine_now()
            holder, until = kept.held.get(name, (owner, now))
            if kept is _NOTHING or (holder != owner and not is_gone(holder, until, now)):
                return False
            kept.held[name] = owner, now + lease
            return True

    def let_go(self, session: str, name: str, owner: str) -> None:
        with self._lock:
            held = self._kept(session).held
            if name in held and held[name][0] == owner:
                del held[name]

    def waiting(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        with self._lock:
            names = islice(self._names, bisect_right(self._names, after or ""), None)
            return _first((name for name in names if self._sessions[name].unsettled), limit)

    def backlog(self) -> Backlog:
        with self._lock:
            turns = [
                (kept, kept.turns[number - 1])
                for kept in self._sessions.values()
                for number in kept.unsettled
            ]
        sent = [kept.items[turn.first - 1].time for kept, turn in turns if turn.status == "pending"]
        return Backlog(len(sent), len(turns) - len(sent), min(sent, default=None))

    def pending(self, session: str, limit: int) -> int:
        waiting = self.turns(session, status="pending", newest=1)
        if not waiting:
            return 0
        number = waiting[0].number
        return len(self.read(session, first_turn=number, last_turn=number, newest=limit))

    # The archive.

    def put(self, session: str, beside: SideWrites) -> None:
        with self._lock:
            if self._kept(session) is _NOTHING:
                raise no_session(self.name, session)
            self._sessions[session].check_seen(session, beside)
            self._sessions[session].put_beside(beside)

    def reports(self, session: str, *, first: int = 0, last: int | None = None) -> list[Record]:
        with self._lock:
            found = sorted(self._kept(session).reports.items())
        until = sys.maxsize if last is None else last
        return [record for (turn, _), record in found if first <= turn <= until]

    def content(self, session: str, key: str, *, kind: ContentKind = "report") -> str | None:
        with self._lock:
            return self._kept(session).contents.get((kind, key))

    def prune(self, *, before: datetime | None = None, most: int | None = None) -> Pruned:
        with self._lock:
            size = self._report_size()
            oldest = sorted(
                (record.time, name, key)
                for name, kept in self._sessions.items()
                for key, record in kept.reports.items()
            )
            gone = 0
            for time, name, key in oldest:
                old = before is not None and time < before
                if not old and (most is None or self._report_size() <= most):
                    break
                gone += self._sessions[name].forget(key)
            return Pruned(gone, size - self._report_size())

    def _report_size(self) -> int:
        return sum(kept.report_size() for kept in self._sessions.values())

    def vacuum(self) -> None:
        """Do nothing: deleted data is gone already."""

    def note(self, session: str, kind: NoteKind, name: str = "") -> str | None:
        with self._lock:
            return self._kept(session).notes.get((kind, name))

    def _kept(self, session: str) -> Kept:
        """Return the data of a session, empty for an unknown one; refuse an invalid id."""
        if session.__class__ is not str or session not in self._sessions:
            check_session_id(session)
        return self._sessions.get(session, _NOTHING)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def __enter__(self) -> MemoryStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _start(kept: Kept, after: int, first_turn: int) -> int:
    """Return where to begin to read: no item of a turn stands before the turn's first item."""
    if first_turn > len(kept.turns):
        return len(kept.items)
    first = kept.turns[first_turn - 1].first if first_turn > 1 else 1
    return max(0, after, first - 1)


def _info(name: str, kept: Kept) -> SessionInfo:
    return SessionInfo(name, len(kept.items), len(kept.turns), kept.created, kept.updated)


def _first(found: Iterable[T], count: int | None) -> list[T]:
    """Return the first `count` values; all of them without a count."""
    return list(islice(found, None if count is None else min(count, sys.maxsize)))


def _own(item: Item) -> Item:
    """Return an item whose values the reader may change."""
    if item.payload is None and not (item.message and item.message.extra):
        return replace(item, tokens=dict(item.tokens))
    return deepcopy(item)
