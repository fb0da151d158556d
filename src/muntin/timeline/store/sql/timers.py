"""Timers as rows of an SQL store: a due timer becomes an item in the transaction that removes it.

The store appends: it passes the function that writes one item.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from muntin.timeline.items import Draft
from muntin.timeline.store.protocols import Begun
from muntin.timeline.store.rows import from_microseconds, to_ascii_json, to_microseconds
from muntin.timeline.store.sql.database import Database
from muntin.timeline.store.sql.transaction import Transaction
from muntin.timeline.timers import Release, Timer

# Writes one item in an open transaction.
Write: TypeAlias = Callable[[Transaction, str, Draft, "Begun | None"], None]

_TIMER = "SELECT session, id, due, every, data FROM muntin_timers"
_PUT = """
INSERT INTO muntin_timers (session, id, kind, due, every, data)
VALUES (:entity, :id, :kind, :due, :every, :data)
ON CONFLICT (session, id) DO """
PUT = f"{_PUT} UPDATE SET due = excluded.due, every = excluded.every, data = excluded.data"
PUT_NEW = f"{_PUT} NOTHING"
DROP = "DELETE FROM muntin_timers WHERE session = :entity AND id = :id RETURNING id"
DROP_ALL = "DELETE FROM muntin_timers WHERE session = :session"
LIST = f"{_TIMER} WHERE session = :entity ORDER BY due, id"
MOVE = "UPDATE muntin_timers SET due = :due WHERE session = :entity AND id = :id"
_SERVER_NOW = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)"
_SERVER_TIME = f"SELECT {_SERVER_NOW}"
_KINDS = "kind IN (SELECT value FROM json_each(:kinds))"
# The first by the index on `due`: a minimum would read all waiting timers.
NEXT = f"SELECT due - :now FROM muntin_timers WHERE {_KINDS} ORDER BY due LIMIT 1"
NEXT_THERE = NEXT.replace(":now", _SERVER_NOW)
# Timers that another process is releasing are skipped.
DUE = f"{_TIMER} WHERE due <= :now AND {_KINDS} ORDER BY due LIMIT :most FOR UPDATE SKIP LOCKED"


class SqlTimers:
    """The timers of an SQL store; `Timers` says what its methods promise."""

    def __init__(self, database: Database, write: Write) -> None:
        self._database = database
        self._write = write

    def put(self, timer: Timer, *, after: timedelta | None = None, new: bool = False) -> Timer:
        def write(tx: Transaction) -> Timer:
            return self.put_in(tx, timer, after=after, new=new)

        return self._database.transact(write)

    def put_in(
        self, tx: Transaction, timer: Timer, *, after: timedelta | None = None, new: bool = False
    ) -> Timer:
        """Store a timer in an open transaction."""
        due = timer.due if after is None else self._now(tx) + after
        data = to_ascii_json({"payload": timer.payload, "meta": dict(timer.meta)})
        tx.run(
            PUT_NEW if new else PUT,
            entity=timer.entity,
            id=timer.id,
            kind=timer.kind,
            due=to_microseconds(due),
            every=timer.every,
            data=data,
        )
        return Timer(timer.entity, timer.id, due, timer.payload, timer.meta, timer.every)

    def drop(self, entity: str, id: str) -> bool:
        return bool(self._database.transact(lambda tx: tx.all(DROP, entity=entity, id=id)))

    def of(self, entity: str) -> list[Timer]:
        return [_timer(row) for row in self._database.query(LIST, entity=entity)]

    def next(self, kinds: Collection[str]) -> float | None:
        now = to_microseconds(datetime.now(UTC))
        if self._database.kind == "postgresql":
            rows = self._database.query(NEXT_THERE, kinds=to_ascii_json(sorted(kinds)))
        else:
            rows = self._database.query(NEXT, kinds=to_ascii_json(sorted(kinds)), now=now)
        return rows[0][0] / 1e6 if rows else None

    def _now(self, tx: Transaction) -> datetime:
        """Return the server's time; the machine's if there is no server."""
        if self._database.kind == "sqlite":
            return datetime.now(UTC)
        return from_microseconds(tx.scalar(_SERVER_TIME))

    def release(
        self, kinds: Collection[str], release: Release, *, most: int, begun: Begun | None = None
    ) -> list[Timer]:
        known = to_ascii_json(sorted(kinds))

        def write(tx: Transaction) -> list[Timer]:
            now = self._now(tx)
            rows = tx.all(DUE, now=to_microseconds(now), kinds=known, most=most)
            # Sessions are locked in one order, so that two releasing processes do not deadlock.
            due = sorted(map(_timer, rows), key=lambda timer: (timer.entity, timer.due))
            for timer in due:
                found = release(timer, now)
                if found.again is None:
                    tx.run(DROP, entity=timer.entity, id=timer.id)
                else:
                    again = to_microseconds(found.again)
                    tx.run(MOVE, entity=timer.entity, id=timer.id, due=again)
                if found.draft is not None:
                    self._write(tx, timer.entity, found.draft, begun)
            return due

        return self._database.transact(write)


def _timer(row: Sequence[Any]) -> Timer:
    session, id, due, every, data = row
    kept = json.loads(data)
    return Timer(session, id, from_microseconds(due), kept["payload"], kept["meta"], every)
