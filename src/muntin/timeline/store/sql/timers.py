"""Timers as rows: a due timer becomes an item in the transaction that removes it."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from muntin.timeline.store.rows import from_microseconds, to_ascii_json, to_microseconds
from muntin.timeline.store.sql.appending import Appending, Begun
from muntin.timeline.store.sql.database import Database
from muntin.timeline.store.sql.transaction import Transaction
from muntin.timeline.timers import Release, Timer

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


class Timers:
    """Wakes at a time. Times are by the store's clock: its server's, if it has one."""

    database: Database

    def timers(self, entity: str) -> list[Timer]:
        """Return the timers of an entity, the next first."""
        return [_timer(row) for row in self.database.query(LIST, entity=entity)]

    def put_timer(
        self,
        timer: Timer,
        *,
        after: timedelta | None = None,
        new: bool = False,
        tx: Transaction | None = None,
    ) -> Timer:
        """Store a timer, and return it; a timer with the same id is replaced, or stays if `new`.

        With `after` it is due that long from now. With `tx` it is stored in a transaction that is
        open, such as the one of the function `begun`.
        """
        if tx is None:
            return self.database.transact(
                lambda tx: self.put_timer(timer, after=after, new=new, tx=tx)
            )
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
        return replace(timer, due=due)

    def drop_timer(self, entity: str, id: str) -> bool:
        """Remove a timer; False if there is none, or it was due already."""
        return bool(self.database.transact(lambda tx: tx.all(DROP, entity=entity, id=id)))

    def release(
        self, kinds: Collection[str], release: Release, *, most: int, begun: Begun | None = None
    ) -> float | None:
        """Append the items of at most so many timers that are due, in one transaction.

        Each due time is released once, even if several processes release. Return in how many
        seconds the next timer of these types is due: 0 if some were due now, None if there is none.
        """
        kinds_text = to_ascii_json(sorted(kinds))
        there = self.database.kind == "postgresql"
        times = {} if there else {"now": to_microseconds(datetime.now(UTC))}
        rows = self.database.query(NEXT_THERE if there else NEXT, kinds=kinds_text, **times)
        if not rows or rows[0][0] > 0:  # mostly none is due, and nothing is written
            return rows[0][0] / 1e6 if rows else None

        def write(tx: Transaction) -> None:
            now = self._now(tx)
            rows = tx.all(DUE, now=to_microseconds(now), kinds=kinds_text, most=most)
            # Sessions are locked in one order, so that two releasing processes do not deadlock.
            for timer in sorted(map(_timer, rows), key=lambda timer: (timer.entity, timer.due)):
                released = release(timer, now)
                if released.again is None:
                    tx.run(DROP, entity=timer.entity, id=timer.id)
                else:
                    again = to_microseconds(released.again)
                    tx.run(MOVE, entity=timer.entity, id=timer.id, due=again)
                if released.draft is not None:
                    Appending(timer.entity, [released.draft]).write(tx, begun)

        self.database.transact(write)
        return 0.0

    def _now(self, tx: Transaction) -> datetime:
        """Return the server's time; the machine's if there is no server."""
        if self.database.kind == "sqlite":
            return datetime.now(UTC)
        return from_microseconds(tx.scalar(_SERVER_TIME))


def _timer(row: Sequence[Any]) -> Timer:
    session, id, due, every, data = row
    data_fields = json.loads(data)
    return Timer(
        session, id, from_microseconds(due), data_fields["payload"], data_fields["meta"], every
    )
