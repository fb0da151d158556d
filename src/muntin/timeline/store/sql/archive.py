"""The data beside a timeline, in SQL: reports, their contents, and notes.

Reports of the whole store are deleted by age and by size. Only one session is locked at a time,
while its reports are deleted: writers wait for one at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, TypeAlias

from muntin.errors import Overtaken
from muntin.timeline.items import (
    ContentKind,
    NoteKind,
    Pruned,
    Record,
    SideWrites,
    check_session_id,
)
from muntin.timeline.store.rows import (
    byte_size,
    from_microseconds,
    no_session,
    to_ascii_json,
    to_items,
    to_microseconds,
    to_tokens,
)
from muntin.timeline.store.sql import statements as sql
from muntin.timeline.store.sql.database import Database
from muntin.timeline.store.sql.transaction import Transaction

# For this many sessions the store remembers which contents it has.
_REMEMBERED = 100
# This many reports that are too old are read at a time.
_PAGE = 500
# If there are too many bytes, a twentieth of the reports goes at a time.
_SHARE = 20
# The largest number both databases take.
MOST = 2**62


@lru_cache(maxsize=1_000)
def _checked(session: str) -> str:
    return check_session_id(session)


def check(session: str) -> str:
    """Return a valid session id; an id that was checked lately is not checked again."""
    return _checked(session) if session.__class__ is str else check_session_id(session)


class Archive:
    """Keeps data beside the timelines of a database.

    Putting data beside a session that does not exist is a `StoreError`.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        # The address as errors show it, without a password.
        self.name = database.name
        # The newest report put here for each session, and the contents that it needs.
        self._named: dict[str, tuple[tuple[int, ...] | None, frozenset[str]]] = {}

    def _ask(self, statement: str, session: str, **values: Any) -> list[Any]:
        """Return the rows of one statement about a session."""
        check(session)
        return self.database.query(statement, session=session, **values)

    def put(self, session: str, beside: SideWrites) -> None:
        """Store the data beside a session, in one transaction; delete the oldest reports.

        Data made from notes that have changed since is refused (`Overtaken`).
        """
        check(session)

        def write(tx: Transaction) -> None:
            sid = tx.scalar(sql.SESSION_ID, session=session)
            if sid is None:
                raise no_session(self.name, session)
            self._put_within(tx, session, sid, beside)

        self.database.transact(write)

    def _put_within(self, tx: Transaction, session: str, sid: int, beside: SideWrites) -> None:
        """Put data beside a session in an open transaction."""
        if beside.seen:
            tx.all(sql.LOCK_SESSION, sid=sid)  # the next writer reads what is written here
        for (kind, name), data in beside.seen.items():
            if tx.scalar(sql.NOTE, session=session, kind=kind, name=name) != data:
                raise Overtaken(session)
        if beside.check is not None:
            beside.check(lambda past: tx.all(sql.ALL_AT_PAST, past=past))
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
        for position, counts in beside.counts.items():
            rows = sql.read("all", frozenset(("after", "before")))
            item_rows = tx.all(rows, session=session, after=position - 1, before=position + 1)
            for item in to_items(item_rows, self.name):
                merged = to_tokens(tuple({**item.tokens, **counts}.items()))
                tx.run(sql.RECOUNT, sid=sid, at=position, counted=merged)

    def _put_report(
        self, tx: Transaction, session: str, sid: int, beside: SideWrites, record: Record
    ) -> None:
        last, named = self._named.pop(session, (None, frozenset()))
        newest, oldest = _kept_reports(tx, sid, beside.keep)
        # Most contents of a window were in the window before: they are stored with its report.
        stored_names = named if newest is not None and last == (sid, *newest) else ()
        new = {key: data for key, data in beside.contents.items() if key not in stored_names}
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

    def reports(self, session: str, *, first: int = 0, last: int | None = None) -> list[Record]:
        """Return the stored reports of these turns, the oldest first."""
        bounds = {"first": first, "last": MOST if last is None else last}
        rows = self._ask(sql.REPORTS, session, **bounds)
        return [
            Record(turn, step, from_microseconds(time), report, plan)
            for turn, step, time, report, plan in rows
        ]

    def content(self, session: str, kind: ContentKind | NoteKind, name: str = "") -> str | None:
        """Return the text of a kind and name that is kept beside a session, or None."""
        is_note = kind not in ("report", "source")
        rows = self._ask(sql.NOTE if is_note else sql.CONTENT, session, kind=kind, name=name)
        return rows[0][0] if rows else None

    def sessions_at(self, past: str, answer: str | None = None) -> list[tuple[str, str]]:
        """Return up to two sessions whose note `recorder_past` has this name, and its text.

        With an `answer` only notes of this text count.
        """
        if answer is None:
            rows = self.database.query(sql.AT_PAST, past=past)
        else:
            rows = self.database.query(sql.AT_ANSWER, past=past, answer=answer)
        return [(session, data) for session, data in rows]

    def prune(self, *, before: datetime | None = None, most: int | None = None) -> Pruned:
        """Delete reports of all sessions: reports made `before`, then the oldest until the rest has
        at most `most` bytes, with the contents that they need."""
        size, count = self._reports_size(), 0
        if before is not None:
            time = to_microseconds(before)
            while dropped := self._drop_oldest(time, _PAGE):
                count += dropped
        while most is not None and self._reports_size() > most:
            ((reports,),) = self.database.query(sql.COUNT_REPORTS)
            dropped = self._drop_oldest(MOST, max(1, reports // _SHARE))
            if not dropped:
                break
            count += dropped
        if not count:
            return Pruned(0, 0)
        pruned = Pruned(count, size - self._reports_size())
        self.database.checkpoint()
        return pruned

    def _reports_size(self) -> int:
        ((size,),) = self.database.query(sql.REPORTS_SIZE)
        return int(size)

    def _drop_oldest(self, before: int, count: int) -> int:
        """Delete some of the oldest reports with contents that only they need; return how many."""
        rows = self.database.query(sql.OLDEST_REPORTS, before=before, newest=count)
        last: dict[int, tuple[int, int]] = {}
        for sid, turn, step in rows:
            last[sid] = max(last.get(sid, (0, 0)), (turn, step))

        def write(tx: Transaction, sid: int, turn: int, step: int) -> int:
            tx.all(sql.LOCK_SESSION, sid=sid)
            dropped = tx.all(f"{sql.DROP_REPORTS} RETURNING turn", sid=sid, turn=turn, step=step)
            tx.run(sql.DROP_NAMES, sid=sid, turn=turn, step=step)
            tx.run(sql.DROP_CONTENTS, sid=sid, turn=MOST)
            return len(dropped)

        return sum(
            self.database.transact(partial(write, sid=sid, turn=turn, step=step))
            for sid, (turn, step) in last.items()
        )

    def vacuum(self) -> None:
        """Free the room of deleted data, so that nothing of it can be found."""
        self.database.vacuum(sql.TABLES)


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
    by_number = {n: (turn, step, time) for n, turn, step, time in rows}
    return by_number.get(0), by_number.get(1)


def _forget_reports(tx: Transaction, sid: int, keep: int, turn: int, step: int) -> None:
    """Delete the reports up to one, with contents that only they named."""
    for statement in (sql.DROP_REPORTS, sql.DROP_NAMES):
        tx.run(statement, sid=sid, turn=turn, step=step)
    # Now and then, because finding contents that no report names reads all names. A turn may have
    # thousands of steps.
    if (turn + step) % max(1, keep // 10) == 0:
        tx.run(sql.DROP_CONTENTS, sid=sid, turn=turn)
