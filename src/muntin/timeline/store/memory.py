"""A store in memory, for tests and for sessions that need not last.

The same contract as the SQL stores. Like them it looks only at what is asked for, so a window
costs the same on every timeline.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from threading import RLock

from muntin.core.checks import check_size
from muntin.timeline.items import (
    UNSETTLED,
    ContentKind,
    Draft,
    Item,
    Record,
    SessionInfo,
    Status,
    Turn,
    check_session_id,
)
from muntin.timeline.store.kept import KeptSession, first, own
from muntin.timeline.store.protocols import View
from muntin.timeline.store.rows import entry_id, no_session, placed, to_data
from muntin.timeline.turns import choose, place


class MemoryStore:
    """A store that lives as long as the object."""

    name = "memory:"

    def __init__(self) -> None:
        self._sessions: dict[str, KeptSession] = {}
        self._names: list[str] = []  # sorted
        self._lock = RLock()

    # Timelines.

    def append(
        self,
        session: str,
        drafts: Sequence[Draft],
        *,
        owner: str | None = None,
        until: datetime | None = None,
    ) -> list[Item]:
        """Append all drafts at once and return them as items."""
        check_session_id(session)
        if not drafts:
            return []
        for draft in drafts:
            to_data(draft)  # what another store could not keep is refused here too
        entries = [entry_id(draft) for draft in drafts]
        now = datetime.now(UTC)
        with self._lock:
            begun = drafts[0].time or now
            kept = self._sessions.get(session) or KeptSession(begun, begun)
            status = kept.turns[-1].status if kept.turns else None
            numbers, changes = place(session, drafts, len(kept.turns), status)
            if owner is not None:
                kept.hold(session, set(numbers), owner, until)
            added = []
            for draft, number, entry in zip(drafts, numbers, entries, strict=True):
                item = placed(draft, len(kept.items) + 1, number, draft.time or now)
                if number > len(kept.turns):
                    kept.put(Turn(number, changes[number], item.position, owner, until))
                kept.add(item, draft.weight, entry)
                added.append(own(item))
            kept.end(changes, owner)
            kept.updated = drafts[-1].time or now
            if session not in self._sessions:
                insort(self._names, session)
            self._sessions[session] = kept
        return added

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
        """Return items by position, the oldest first."""
        check_session_id(session)
        with self._lock:
            kept = self._sessions.get(session)
            if kept is None:
                return []
            end = len(kept.items) if before is None else max(0, before - 1)
            places = range(_start(kept, after, first_turn), min(end, len(kept.items)))
            found = (
                kept.items[place]
                for place in (places if newest is None else reversed(places))
                if _is_asked(kept, kept.items[place], view, first_turn, last_turn, settled)
            )
            read = [own(item) for item in first(found, oldest if newest is None else newest)]
        return read if newest is None else read[::-1]

    def reach(self, session: str, weight: int) -> Item | None:
        """Return the oldest item that the newest items of this weight reach back to."""
        check_session_id(session)
        check_size(weight, "weight")
        with self._lock:
            kept = self._sessions.get(session)
            if kept is None:
                return None
            index = bisect_right(kept.totals, kept.totals[-1] - weight)
            return own(kept.items[index]) if index < len(kept.items) else None

    def count(self, session: str, counts: Mapping[int, Mapping[str, int]]) -> None:
        """Add token counts, by position and tokenizer, to items already appended."""
        check_session_id(session)
        with self._lock:
            kept = self._sessions.get(session)
            for position, tokens in counts.items():
                if kept and 1 <= position <= len(kept.items):
                    item = kept.items[position - 1]
                    kept.items[position - 1] = replace(item, tokens={**item.tokens, **tokens})

    def entries(self, session: str, id: str | None = None) -> list[Item]:
        """Return the items of the live entries by position; with an id, all its versions."""
        check_session_id(session)
        with self._lock:
            kept = self._sessions.get(session)
            if kept is None:
                return []
            positions = sorted(kept.live.values()) if id is None else kept.versions.get(id, [])
            return [own(kept.items[position - 1]) for position in positions]

    def turns(
        self, session: str, *, status: Status | None = None, newest: int | None = None
    ) -> list[Turn]:
        """Return the turns, the newest first."""
        check_session_id(session)
        with self._lock:
            kept = self._sessions.get(session)
            if kept is None:
                return []
            few = status in UNSETTLED
            numbers = sorted(kept.unsettled) if few else range(1, len(kept.turns) + 1)
            turns = (kept.turns[number - 1] for number in reversed(numbers))
            return first((turn for turn in turns if status in (None, turn.status)), newest)

    def turn(self, session: str, number: int) -> Turn | None:
        """Return one turn, or None."""
        check_session_id(session)
        with self._lock:
            kept = self._sessions.get(session)
            return kept.turn(number) if kept else None

    def sessions(self, *, after: str | None = None, limit: int = 100) -> list[SessionInfo]:
        """Return sessions in the order of their ids, from the first behind `after`."""
        check_size(limit, "limit")
        with self._lock:
            start = 0 if after is None else bisect_right(self._names, after)
            names = self._names[start : start + limit]
            return [_info(name, self._sessions[name]) for name in names]

    def session(self, session: str) -> SessionInfo | None:
        """Return what is known of one session, or None."""
        with self._lock:
            kept = self._sessions.get(check_session_id(session))
            return _info(session, kept) if kept else None

    def delete(self, session: str) -> None:
        """Remove a session; an unknown one is no error."""
        check_session_id(session)
        with self._lock:
            if self._sessions.pop(session, None) is not None:
                del self._names[bisect_left(self._names, session)]

    # Leases.

    def settle(self, session: str, turn: int, status: Status, *, by: str | None = None) -> bool:
        """Set the status of a turn and release it; with `by`, only if that is its owner."""
        check_session_id(session)
        with self._lock:
            kept = self._sessions.get(session)
            known = kept.turn(turn) if kept else None
            if kept is None or known is None or by not in (None, known.owner):
                return False
            kept.put(replace(known, status=status, owner=None, until=None))
            return True

    def take(
        self,
        session: str,
        owner: str,
        until: datetime,
        *,
        number: int | None = None,
        resumable: bool = False,
    ) -> Turn | None:
        """Take the next turn that waits, or was given up, and become its owner."""
        check_session_id(session)
        with self._lock:
            kept = self._sessions.get(session)
            if kept is None:
                return None
            unsettled = [kept.turns[each - 1] for each in sorted(kept.unsettled)]
            turn, lost = choose(unsettled, number, datetime.now(UTC))
            for each in lost:
                self.settle(session, each, "failed")
            if turn is None:
                return None
            held = replace(turn, status="open", owner=owner, until=until, resumable=resumable)
            kept.put(held)
            return held

    def renew(self, session: str, turn: int, owner: str, until: datetime) -> bool:
        """Renew the lease of a turn; False if it is no longer the owner's."""
        check_session_id(session)
        with self._lock:
            kept = self._sessions.get(session)
            known = kept.turn(turn) if kept else None
            if kept is None or known is None or known.owner != owner:
                return False
            kept.put(replace(known, until=until))
            return True

    def waiting(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        """Return sessions with a turn that waits or is worked on, from the first behind `after`."""
        with self._lock:
            names = islice(self._names, bisect_right(self._names, after or ""), None)
            return first((name for name in names if self._sessions[name].unsettled), limit)

    # The archive.

    def put_report(
        self,
        session: str,
        record: Record,
        contents: Mapping[str, str],
        *,
        names: Collection[str],
        keep: int,
        frontiers: Mapping[str, str] | None = None,
    ) -> None:
        """Keep a report and the contents its plan needs; forget the oldest beyond `keep`."""
        check_session_id(session)
        with self._lock:
            kept = self._there(session)
            for name, data in contents.items():
                kept.contents.setdefault(("report", name), data)
            kept.put_report(record, names, keep)
            kept.frontiers.update(frontiers or {})

    def reports(self, session: str, *, first: int = 0, last: int | None = None) -> list[Record]:
        """Return the kept reports of these turns, the oldest first."""
        check_session_id(session)
        with self._lock:
            kept = self._sessions.get(session)
            found = sorted(kept.reports.items()) if kept else []
        return [
            record
            for (turn, _), record in found
            if turn >= first and (last is None or turn <= last)
        ]

    def put_contents(
        self, session: str, turn: int, contents: Mapping[str, str], *, forget: int = 0
    ) -> None:
        """Keep originals of sources; forget those first kept before the turn `forget`."""
        check_session_id(session)
        with self._lock:
            kept = self._there(session)
            for name, data in contents.items():
                kept.contents.setdefault(("source", name), data)
                kept.sources.setdefault(name, turn)
            for name in [name for name, first in kept.sources.items() if first < forget]:
                del kept.contents["source", name], kept.sources[name]

    def content(self, session: str, key: str, *, kind: ContentKind = "report") -> str | None:
        """Return a content by its name, or None."""
        check_session_id(session)
        with self._lock:
            kept = self._sessions.get(session)
            return kept.contents.get((kind, key)) if kept else None

    def put_frontiers(self, session: str, frontiers: Mapping[str, str]) -> None:
        """Set what the newest window of each line of windows leaves to the next, as JSON."""
        check_session_id(session)
        with self._lock:
            self._there(session).frontiers.update(frontiers)

    def frontier(self, session: str, line: str) -> str | None:
        """Return the frontier of a line of windows, or None."""
        check_session_id(session)
        with self._lock:
            kept = self._sessions.get(session)
            return kept.frontiers.get(line) if kept else None

    def _there(self, session: str) -> KeptSession:
        if session not in self._sessions:
            raise no_session(self.name, session)
        return self._sessions[session]

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def __enter__(self) -> MemoryStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _start(kept: KeptSession, after: int, first_turn: int) -> int:
    """Return where to begin to read: nothing of a turn stands before its first item."""
    if first_turn > len(kept.turns):
        return len(kept.items)
    first = kept.turns[first_turn - 1].first if first_turn > 1 else 1
    return max(0, after, first - 1)


def _is_asked(
    kept: KeptSession,
    item: Item,
    view: View,
    first_turn: int,
    last_turn: int | None,
    settled: int | None,
) -> bool:
    return (
        item.turn >= first_turn
        and (last_turn is None or item.turn <= last_turn)
        and (view == "all" or getattr(item.visibility, view))
        and (
            settled is None or item.turn >= settled or kept.turns[item.turn - 1].status != "failed"
        )
    )


def _info(name: str, kept: KeptSession) -> SessionInfo:
    return SessionInfo(name, len(kept.items), len(kept.turns), kept.created, kept.updated)
