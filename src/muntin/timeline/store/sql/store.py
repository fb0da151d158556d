"""A store in SQLite or PostgreSQL, written once: the same statements serve both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, TypeAlias

from muntin.core.checks import check_size
from muntin.errors import Overtaken, StoreError
from muntin.timeline.items import (
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
)
from muntin.timeline.store.protocols import Begun, View
from muntin.timeline.store.rows import (
    byte_size,
    from_microseconds,
    no_session,
    taken,
    to_ascii_json,
    to_info,
    to_items,
    to_microseconds,
    to_tokens,
    to_turn,
)
from muntin.timeline.store.sql import archive
from muntin.timeline.store.sql import statements as sql
from muntin.timeline.store.sql.appending import Appending
from muntin.timeline.store.sql.database import UNIQUE_VIOLATION, Database
from muntin.timeline.store.sql.leases import SqlLeases, check
from muntin.timeline.store.sql.schema import MIGRATIONS
from muntin.timeline.store.sql.timers import SqlTimers
from muntin.timeline.store.sql.transaction import Transaction

# For this many sessions the store remembers which contents it has.
_REMEMBERED = 100
# The largest number both databases take.
_MOST = 2**62


class SqlStore(SqlLeases):
    """A store in an SQLite file or a PostgreSQL database; `Store` says what its methods promise."""

    version = len(MIGRATIONS)  # of its tables

    def __init__(self, url: str, *, create: bool = True, lazy: bool = False) -> None:
        super().__init__(Database(url, create=create, lazy=lazy))
        # The address as errors show it, without a password.
        self.name = self.database.name
        self.in_memory = self.database.in_memory
        self.timers = SqlTimers(self.database, _append_one)
        # The newest report put here for each session, and the contents that it needs.
        self._named: dict[str, tuple[tuple[int, ...] | None, frozenset[str]]] = {}

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
        check(session)
        if not drafts:
            return []
        appending = Appending(session, drafts, claim)

        def write(tx: Transaction) -> list[Item]:
            sid, items = appending.write(tx, begun)
            if beside is not None:
                self.put_within(tx, session, sid, beside)
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
        places: Sequence[int] | None = None,
        shared: bool = False,
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
        values: dict[str, Any] = {
            name: min(value, _MOST) for name, value in given.items() if value is not None
        }
        if places is not None:
            values["places"] = to_ascii_json(list(places))
        rows = self.ask(sql.read(view, frozenset(values)), session, **values)
        items = to_items(rows, self.name, shared=shared)
        return items[::-1] if newest is not None else sorted(items, key=attrgetter("position"))

    def read_shared(
        self, session: str, *, places: Sequence[int] | None = None, **limits: Any
    ) -> list[Item]:
        return self.read(session, **limits, places=places, shared=True)

    def reach(self, session: str, weight: int) -> Item | None:
        check(session)
        if type(weight) is not int or weight < 0:
            check_size(weight, "weight")
        rows = self.ask(sql.REACH, session, weight=min(weight, _MOST))
        return next(iter(to_items(rows, self.name)), None)

    def count(self, session: str, counts: Mapping[int, Mapping[str, int]]) -> None:
        check(session)

        def write(tx: Transaction) -> None:
            sid = tx.scalar(sql.SESSION_ID, session=session)
            for position, tokens in counts.items():
                rows = sql.read("all", frozenset(("after", "before")))
                found = tx.all(rows, session=session, after=position - 1, before=position + 1)
                for item in to_items(found, self.name):
                    merged = to_tokens(tuple({**item.tokens, **tokens}.items()))
                    tx.run(sql.RECOUNT, sid=sid, at=position, counted=merged)

        self.database.transact(write)

    def hide(self, session: str, position: int) -> bool:
        check(session)
        at = min(check_size(position, "position"), _MOST)

        def write(tx: Transaction) -> bool:
            sid = tx.scalar(sql.SESSION_ID, session=session)
            seen = tx.scalar(sql.IS_SEEN, sid=sid, at=at) is not None
            if seen:
                tx.run(sql.HIDE, sid=sid, at=at)
            return seen

        return self.database.transact(write)

    def entries(self, session: str, id: str | None = None) -> list[Item]:
        if id is None:
            return to_items(self.ask(sql.LIVE, session), self.name)
        return to_items(self.ask(sql.VERSIONS, session, name=id), self.name)

    def turns(
        self, session: str, *, status: Status | None = None, newest: int | None = None
    ) -> list[Turn]:
        values: dict[str, Any] = {} if status is None else {"state": status}
        if newest is not None:
            values["newest"] = min(newest, _MOST)
        statement = sql.turns(state=status is not None, newest=newest is not None)
        return [to_turn(row) for row in self.ask(statement, session, **values)]

    def turn(self, session: str, number: int) -> Turn | None:
        rows = self.ask(sql.ONE_TURN, session, turn=number)
        return to_turn(rows[0]) if rows else None

    def sessions(self, *, after: str | None = None, limit: int = 100) -> list[SessionInfo]:
        check_size(limit, "limit")
        rows = self.database.query(sql.LIST_SESSIONS, last=after or "", newest=min(limit, _MOST))
        return [to_info(row) for row in rows]

    def session(self, session: str) -> SessionInfo | None:
        rows = self.ask(sql.ONE_SESSION, session)
        return to_info(rows[0]) if rows else None

    def rename(self, names: Mapping[str, str]) -> None:
        current = ""

        def write(tx: Transaction) -> None:
            nonlocal current
            for session, current in names.items():
                values = {"session": check(session), "new": check(current)}
                if tx.scalar(sql.SESSION_ID, session=session) is None:
                    raise no_session(self.name, session)
                if not tx.all(sql.RENAME, **values):
                    raise taken(self.name, current)

        try:
            self.database.transact(write)
        except StoreError as error:
            if getattr(error.__cause__, "sqlstate", None) != UNIQUE_VIOLATION:
                raise
            raise taken(self.name, current) from error  # by another process, at the same time

    def delete(self, session: str) -> None:
        check(session)

        def write(tx: Transaction) -> None:
            for statement in sql.DELETES:
                tx.run(statement, session=session)

        self.database.transact(write)
        self.database.checkpoint()

    # The archive.

    def put(self, session: str, beside: SideWrites) -> None:
        check(session)

        def write(tx: Transaction) -> None:
            sid = tx.scalar(sql.SESSION_ID, session=session)
            if sid is None:
                raise no_session(self.name, session)
            self.put_within(tx, session, sid, beside)

        self.database.transact(write)

    def put_within(self, tx: Transaction, session: str, sid: int, beside: SideWrites) -> None:
        """Put data beside a session in an open transaction."""
        if beside.seen:
            tx.all(sql.LOCK_SESSION, sid=sid)  # the next writer reads what is written here
        for (kind, name), data in beside.seen.items():
            if tx.scalar(sql.NOTE, session=session, kind=kind, name=name) != data:
                raise Overtaken(session)
        if beside.record is not None:
            self._put_report(tx, session, sid, beside, beside.record)
        if beside.originals or beside.forget:
            _put_contents(tx, sid, "source", beside.turn, beside.originals)
            tx.run(sql.DROP_SOURCES, sid=sid, turn=beside.forget)
        for (kind, name), data in beside.notes.items():
            if data is None:
                tx.run(sql.DROP_NOTE, sid=sid, kind=kind, name=name)
            else:
                tx.run(sql.PUT_NOTE, sid=sid, kind=kind, name=name, data=data)

    def _put_report(
        self, tx: Transaction, session: str, sid: int, beside: SideWrites, record: Record
    ) -> None:
        last, named = self._named.pop(session, (None, frozenset()))
        newest, oldest = _kept_reports(tx, sid, beside.keep)
        # Most contents of a window were in the window before: they are stored with its report.
        known = named if newest is not None and last == (sid, *newest) else ()
        new = {key: data for key, data in beside.contents.items() if key not in known}
        _put_contents(tx, sid, "report", record.turn, new)
        at = {"sid": sid, "turn": record.turn, "step": record.step}
        time = to_microseconds(record.time)
        texts = {"report": record.report, "plan": record.plan}
        tx.run(sql.PUT_REPORT, **at, time=time, **texts, size=sum(map(byte_size, texts.values())))
        if newest is not None and newest[:2] >= (record.turn, record.step):  # the report may exist
            tx.run(sql.DROP_OWN_NAMES, **at)
            _, oldest = _kept_reports(tx, sid, beside.keep + 1)
        elif not beside.keep:
            oldest = (record.turn, record.step, time)
        tx.run(sql.INSERT_NAMES, **at, names=to_ascii_json(sorted(set(beside.names))))
        if oldest is not None:
            _forget_reports(tx, sid, beside.keep, *oldest[:2])
        # If this is rolled back, no report has that time, and nothing is taken for stored.
        self._named[session] = ((*at.values(), time), frozenset(beside.names))
        if len(self._named) > _REMEMBERED:
            self._named.pop(next(iter(self._named)), None)

    def prune(self, *, before: datetime | None = None, most: int | None = None) -> Pruned:
        pruned = archive.prune(self.database, before, most)
        if pruned.reports:
            self.database.checkpoint()
        return pruned

    def vacuum(self) -> None:
        self.database.vacuum(sql.TABLES)

    def note(self, session: str, kind: NoteKind, name: str = "") -> str | None:
        rows = self.ask(sql.NOTE, session, kind=kind, name=name)
        return rows[0][0] if rows else None

    def sessions_at(self, past: str, answer: str | None = None) -> list[tuple[str, str]]:
        if answer is None:
            rows = self.database.query(sql.AT_PAST, past=past)
        else:
            rows = self.database.query(sql.AT_ANSWER, past=past, answer=answer)
        return [(session, data) for session, data in rows]

    def reports(self, session: str, *, first: int = 0, last: int | None = None) -> list[Record]:
        bounds = {"first": first, "last": _MOST if last is None else last}
        rows = self.ask(sql.REPORTS, session, **bounds)
        return [
            Record(turn, step, from_microseconds(time), report, plan)
            for turn, step, time, report, plan in rows
        ]

    def content(self, session: str, key: str, *, kind: ContentKind = "report") -> str | None:
        rows = self.ask(sql.CONTENT, session, kind=kind, key=key)
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


def _put_contents(
    tx: Transaction, sid: int, kind: ContentKind, turn: int, contents: Mapping[str, str]
) -> None:
    rows = [(sid, kind, key, turn, data, byte_size(data)) for key, data in contents.items()]
    if rows:
        tx.many(sql.INSERT_CONTENTS, rows)


# A report: its turn, its step, its time.
_Made: TypeAlias = tuple[int, int, int]


def _kept_reports(tx: Transaction, sid: int, keep: int) -> tuple[_Made | None, _Made | None]:
    """Return the newest report, and the newest report that goes when another is put."""
    rows = tx.all(sql.TWO_REPORTS, sid=sid, n=max(0, keep - 1))
    found = {n: (turn, step, time) for n, turn, step, time in rows}
    return found.get(0), found.get(1)


def _forget_reports(tx: Transaction, sid: int, keep: int, turn: int, step: int) -> None:
    """Delete the reports up to one, with contents that only they named."""
    for statement in (sql.DROP_REPORTS, sql.DROP_NAMES):
        tx.run(statement, sid=sid, turn=turn, step=step)
    # Now and then, because finding contents that no report names reads all names. A turn may have
    # thousands of steps.
    if (turn + step) % max(1, keep // 10) == 0:
        tx.run(sql.DROP_CONTENTS, sid=sid, turn=turn)


def _append_one(tx: Transaction, session: str, draft: Draft, begun: Begun | None) -> None:
    Appending(session, [draft]).write(tx, begun)
