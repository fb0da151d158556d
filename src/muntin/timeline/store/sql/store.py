"""A store in SQLite or PostgreSQL, written once: the same statements serve both."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any

from muntin.core.checks import check_size
from muntin.errors import TurnLost
from muntin.timeline.items import (
    UNSETTLED,
    Beside,
    ContentKind,
    Draft,
    Item,
    Record,
    SessionInfo,
    Status,
    Turn,
    check_session_id,
)
from muntin.timeline.owner import choose, is_gone
from muntin.timeline.store.protocols import Backlog, Begun, View
from muntin.timeline.store.rows import (
    from_microseconds,
    no_session,
    place,
    to_ascii_json,
    to_info,
    to_items,
    to_microseconds,
    to_rows,
    to_tokens,
    to_turn,
    waking,
    written,
)
from muntin.timeline.store.sql import statements as sql
from muntin.timeline.store.sql.database import Database, Transaction
from muntin.timeline.store.sql.schema import MIGRATIONS
from muntin.timeline.store.sql.timers import SqlTimers

# Of so many sessions it is remembered which contents are kept.
_REMEMBERED = 100
# The largest number both databases take.
_MOST = 2**62


@lru_cache(maxsize=1_000)
def _checked(session: str) -> str:
    return check_session_id(session)


class SqlStore:
    """A store in an SQLite file or a PostgreSQL database; `Store` says what its methods promise."""

    version = len(MIGRATIONS)  # of its tables

    def __init__(self, url: str, *, create: bool = True, lazy: bool = False) -> None:
        self.database = Database(url, create=create, lazy=lazy)
        # The address as errors show it, without a password.
        self.name = self.database.name
        self.timers = SqlTimers(self.database, _append_one)
        # The newest report put here of each session, and the contents that it needs.
        self._named: dict[str, tuple[tuple[int, ...] | None, frozenset[str]]] = {}

    def _ask(self, statement: str, session: str, **values: Any) -> list[Any]:
        """Return the rows of one statement about a session."""
        _check(session)
        return self.database.query(statement, session=session, **values)

    # Timelines.

    def append(
        self,
        session: str,
        drafts: Sequence[Draft],
        *,
        owner: str | None = None,
        until: datetime | None = None,
        beside: Beside | None = None,
        begun: Begun | None = None,
    ) -> list[Item]:
        _check(session)
        if not drafts:
            return []
        appending = _Appending(session, drafts, owner, until)

        def write(tx: Transaction) -> list[Item]:
            sid, items = appending.write(tx, begun)
            if beside is not None:
                self._put(tx, session, sid, beside)
            return items

        return self.database.transact(write)

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
        given = {
            "after": after or None,
            "before": before,
            "first_turn": first_turn or None,
            "last_turn": last_turn,
            "settled": settled,
            "newest": newest,
            "oldest": oldest,
        }
        values = {name: min(value, _MOST) for name, value in given.items() if value is not None}
        rows = self._ask(sql.read(view, frozenset(values)), session, **values)
        items = to_items(rows, self.name)
        return items[::-1] if newest is not None else sorted(items, key=attrgetter("position"))

    def reach(self, session: str, weight: int) -> Item | None:
        _check(session)
        if type(weight) is not int or weight < 0:
            check_size(weight, "weight")
        rows = self._ask(sql.REACH, session, weight=min(weight, _MOST))
        return next(iter(to_items(rows, self.name)), None)

    def count(self, session: str, counts: Mapping[int, Mapping[str, int]]) -> None:
        _check(session)

        def write(tx: Transaction) -> None:
            sid = tx.scalar(sql.SESSION_ID, session=session)
            for position, tokens in counts.items():
                rows = sql.read("all", frozenset(("after", "before")))
                found = tx.all(rows, session=session, after=position - 1, before=position + 1)
                for item in to_items(found, self.name):
                    merged = to_tokens(tuple({**item.tokens, **tokens}.items()))
                    tx.run(sql.RECOUNT, sid=sid, at=position, counted=merged)

        self.database.transact(write)

    def entries(self, session: str, id: str | None = None) -> list[Item]:
        if id is None:
            return to_items(self._ask(sql.LIVE, session), self.name)
        return to_items(self._ask(sql.VERSIONS, session, name=id), self.name)

    def turns(
        self, session: str, *, status: Status | None = None, newest: int | None = None
    ) -> list[Turn]:
        values: dict[str, Any] = {} if status is None else {"state": status}
        if newest is not None:
            values["newest"] = min(newest, _MOST)
        statement = sql.turns(state=status is not None, newest=newest is not None)
        return [to_turn(row) for row in self._ask(statement, session, **values)]

    def turn(self, session: str, number: int) -> Turn | None:
        rows = self._ask(sql.ONE_TURN, session, turn=number)
        return to_turn(rows[0]) if rows else None

    def sessions(self, *, after: str | None = None, limit: int = 100) -> list[SessionInfo]:
        check_size(limit, "limit")
        rows = self.database.query(sql.LIST_SESSIONS, last=after or "", newest=min(limit, _MOST))
        return [to_info(row) for row in rows]

    def session(self, session: str) -> SessionInfo | None:
        rows = self._ask(sql.ONE_SESSION, session)
        return to_info(rows[0]) if rows else None

    def delete(self, session: str) -> None:
        _check(session)

        def write(tx: Transaction) -> None:
            for statement in sql.DELETES:
                tx.run(statement, session=session)

        self.database.transact(write)

    # Leases.

    def settle(self, session: str, turn: int, status: Status, *, by: str | None = None) -> bool:
        values = {"session": _check(session), "turn": turn, "state": status}
        statement = sql.SETTLE
        if by is not None:
            statement, values["holder"] = sql.SETTLE_OWN, by
        return bool(self.database.transact(lambda tx: tx.all(statement, **values)))

    def take(
        self,
        session: str,
        owner: str,
        until: datetime,
        *,
        number: int | None = None,
        resumable: bool = False,
    ) -> Turn | None:
        _check(session)
        held = {"holder": owner, "lease": to_microseconds(until), "resumable": resumable}

        def chosen(rows: list[Any]) -> tuple[Turn | None, list[int]]:
            return choose([to_turn(row) for row in rows], owner, number, datetime.now(UTC))

        def write(tx: Transaction) -> Turn | None:
            sid = tx.scalar(sql.SESSION_ID, session=session)
            turn, lost = chosen(tx.all(sql.UNSETTLED, session=session))
            for each in lost:
                tx.run(sql.END_TURN, sid=sid, turn=each, state="failed")
            if turn is None:
                return None
            tx.run(sql.TAKE, sid=sid, turn=turn.number, **held)
            return replace(turn, status="open", owner=owner, until=until, resumable=resumable)

        # Most who look find nothing: only a turn that can be taken is worth a transaction.
        turn, lost = chosen(self._ask(sql.UNSETTLED, session))
        if not lost and (turn is None or (turn.owner == owner and turn.status == "open")):
            return turn
        return self.database.transact(write)

    def renew(self, session: str, turn: int, owner: str, until: datetime) -> bool:
        values = {"session": _check(session), "turn": turn, "holder": owner}
        values["lease"] = to_microseconds(until)
        return bool(self.database.transact(lambda tx: tx.all(sql.RENEW, **values)))

    def hold(self, session: str, name: str, owner: str, until: datetime) -> bool:
        data = to_ascii_json([owner, to_microseconds(until)])

        def write(tx: Transaction, sid: int, line: str, held: tuple[str, datetime] | None) -> bool:
            if held is not None and held[0] != owner and not is_gone(*held, datetime.now(UTC)):
                return False
            tx.run(sql.PUT_FRONTIER, sid=sid, line=line, data=data)
            return True

        return self._change_held(session, name, write)

    def let_go(self, session: str, name: str, owner: str) -> None:
        def write(tx: Transaction, sid: int, line: str, held: tuple[str, datetime] | None) -> bool:
            if held is not None and held[0] == owner:
                tx.run(sql.DROP_FRONTIER, sid=sid, line=line)
            return True

        self._change_held(session, name, write)

    def _change_held(self, session: str, name: str, write: Callable[..., bool]) -> bool:
        """Call `write` with the session locked, and with who holds something of it."""
        line = f"held:{name}"
        _check(session)

        def change(tx: Transaction) -> bool:
            sid = tx.scalar(sql.SESSION_ID, session=session)
            if sid is None:
                return False
            found = tx.scalar(sql.FRONTIER, session=session, line=line)
            owner, lease = json.loads(found) if found is not None else (None, 0)
            held = None if owner is None else (owner, from_microseconds(lease))
            return write(tx, sid, line, held)

        return self.database.transact(change)

    def waiting(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        page = {"last": after or "", "newest": limit}
        return [name for (name,) in self.database.query(sql.WAITING, **page)]

    def backlog(self) -> Backlog:
        found = dict(self.database.query(sql.BACKLOG))
        ((oldest,),) = self.database.query(sql.OLDEST)
        since = None if oldest is None else from_microseconds(oldest)
        return Backlog(found.get("pending", 0), found.get("open", 0), since)

    def pending(self, session: str, limit: int) -> int:
        return int(self._ask(sql.PENDING, session, most=limit)[0][0])

    # The archive.

    def put(self, session: str, beside: Beside) -> None:
        _check(session)

        def write(tx: Transaction) -> None:
            sid = tx.scalar(sql.SESSION_ID, session=session)
            if sid is None:
                raise no_session(self.name, session)
            self._put(tx, session, sid, beside)

        self.database.transact(write)

    def _put(self, tx: Transaction, session: str, sid: int, beside: Beside) -> None:
        if beside.record is not None:
            self._put_report(tx, session, sid, beside, beside.record)
        if beside.originals or beside.forget:
            _put_contents(tx, sid, "source", beside.turn, beside.originals)
            tx.run(sql.DROP_SOURCES, sid=sid, turn=beside.forget)
        for line, data in beside.frontiers.items():
            tx.run(sql.PUT_FRONTIER, sid=sid, line=line, data=data)

    def _put_report(
        self, tx: Transaction, session: str, sid: int, beside: Beside, record: Record
    ) -> None:
        last, named = self._named.pop(session, (None, frozenset()))
        # Most of a window was in the one before: what its report names is kept as long as it.
        newest = tx.all(sql.NTH_REPORT, sid=sid, n=0) if named else []
        known = named if newest and last == (sid, *newest[0]) else ()
        new = {key: data for key, data in beside.contents.items() if key not in known}
        _put_contents(tx, sid, "report", record.turn, new)
        at = {"sid": sid, "turn": record.turn, "step": record.step}
        time = to_microseconds(record.time)
        tx.run(sql.PUT_REPORT, **at, time=time, report=record.report, plan=record.plan)
        tx.run(sql.DROP_OWN_NAMES, **at)
        tx.run(sql.INSERT_NAMES, **at, names=to_ascii_json(sorted(set(beside.names))))
        _forget_reports(tx, sid, beside.keep)
        # If this is undone, no report of that time is there, and nothing is taken for known.
        self._named[session] = ((*at.values(), time), frozenset(beside.names))
        if len(self._named) > _REMEMBERED:
            self._named.pop(next(iter(self._named)), None)

    def frontier(self, session: str, line: str) -> str | None:
        rows = self._ask(sql.FRONTIER, session, line=line)
        return rows[0][0] if rows else None

    def reports(self, session: str, *, first: int = 0, last: int | None = None) -> list[Record]:
        bounds = {"first": first, "last": _MOST if last is None else last}
        rows = self._ask(sql.REPORTS, session, **bounds)
        return [
            Record(turn, step, from_microseconds(time), report, plan)
            for turn, step, time, report, plan in rows
        ]

    def content(self, session: str, key: str, *, kind: ContentKind = "report") -> str | None:
        rows = self._ask(sql.CONTENT, session, kind=kind, key=key)
        return rows[0][0] if rows else None

    def close(self) -> None:
        """Close all connections; the store can be used again and opens new ones."""
        self.database.close()

    def __enter__(self) -> SqlStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SqlStore({self.name!r})"


def _check(session: str) -> str:
    """Return a session id that is fit; one that was checked lately is not checked again."""
    return _checked(session) if session.__class__ is str else check_session_id(session)


def _put_contents(
    tx: Transaction, sid: int, kind: ContentKind, turn: int, contents: Mapping[str, str]
) -> None:
    rows = [(sid, kind, key, turn, data) for key, data in contents.items()]
    tx.many(sql.INSERT_CONTENTS, rows)


def _forget_reports(tx: Transaction, sid: int, keep: int) -> None:
    for turn, step, _ in tx.all(sql.NTH_REPORT, sid=sid, n=keep):
        for statement in (sql.DROP_REPORTS, sql.DROP_NAMES):
            tx.run(statement, sid=sid, turn=turn, step=step)
        # Now and then, because finding out what is no longer named reads all names.
        if turn % max(1, keep // 10) == 0:
            tx.run(sql.DROP_CONTENTS, sid=sid, turn=turn)


def _append_one(tx: Transaction, session: str, draft: Draft, begun: Begun | None) -> None:
    _Appending(session, [draft], None, None).write(tx, begun)


class _Appending:
    """What is to be appended; all that can be refused is refused when this is made."""

    def __init__(
        self, session: str, drafts: Sequence[Draft], owner: str | None, until: datetime | None
    ) -> None:
        self._session = session
        self._drafts = drafts
        self._owner = owner
        self._now = datetime.now(UTC)
        self._data, self._entries = written(drafts)
        self._until = None if until is None else to_microseconds(until)
        self._created = to_microseconds(drafts[0].time or self._now)
        self._updated = to_microseconds(drafts[-1].time or self._now)

    def write(self, tx: Transaction, begun: Begun | None = None) -> tuple[int, list[Item]]:
        """Write all of it, and return the number of the session and the items."""
        drafts, opens = self._drafts, [draft.opens for draft in self._drafts]
        opened, weight = opens.count("turn"), sum(draft.weight for draft in drafts)
        ((sid, head, counted, total),) = tx.all(
            sql.EXTEND,
            name=self._session,
            n=len(drafts),
            opened=opened,
            weight=weight,
            created=self._created,
            updated=self._updated,
        )
        newest = counted - opened
        status: Status | None = None
        if "inbox" in opens:
            status = tx.scalar(sql.TURN_STATUS, sid=sid, turn=newest)
        asks = self._owner is not None and "queue" in opens
        free = asks and not tx.all(sql.ANY_UNSETTLED, sid=sid)
        first = head - len(drafts) + 1
        items, changes = place(self._session, drafts, newest, status, first, self._now, free=free)
        rows = to_rows(sid, drafts, items, self._data, total - weight)
        self._write_turns(tx, sid, items, changes, newest)
        # It counted a turn for each that opens one; some joined a turn, others began one unasked.
        if (last := max((newest, *changes))) != counted:
            tx.run(sql.SET_TURN, sid=sid, turn=last)
        tx.many(sql.INSERT_ITEMS, rows)
        for item, entry in zip(items, self._entries, strict=True):
            if entry is not None:
                tx.run(sql.END_ENTRY, sid=sid, name=entry, at=item.position)
                if item.kind == "context_inserted":
                    tx.many(sql.INSERT_ENTRY, [(sid, entry, item.position, None)])
        for number in waking(drafts, items, newest) if begun else ():
            begun(tx, self._session, number)
        return sid, items

    def _write_turns(
        self, tx: Transaction, sid: int, items: list[Item], changes: dict[int, Status], newest: int
    ) -> None:
        """Write the turns it begins and settles; renew the lease of those it writes into."""
        begun: dict[int, int] = {}
        held: set[int] = set()
        for item in items:
            if item.turn > newest:
                begun.setdefault(item.turn, item.position)
            elif self._owner is not None:
                held.add(item.turn)
        lease = {"holder": self._owner, "lease": self._until}
        for number in held:
            if not tx.all(sql.HOLD, sid=sid, turn=number, **lease):
                raise TurnLost(self._session, number)
        ending = sql.END_FREE_TURN if self._owner is None else sql.END_TURN
        for number, status in changes.items():
            if number <= newest:
                tx.run(ending, sid=sid, turn=number, state=status)
        if begun:
            rows = [
                (sid, number, changes[number], at, *lease.values())
                if changes[number] in UNSETTLED
                else (sid, number, changes[number], at, None, None)
                for number, at in begun.items()
            ]
            tx.many(sql.INSERT_TURNS, rows)
