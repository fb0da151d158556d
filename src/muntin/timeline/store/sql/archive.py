"""Deleting reports of the whole store, by age and by size; knows statements and transactions.

Only one session is locked at a time, while its reports are deleted: writers wait for one at most.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial

from muntin.timeline.items import Pruned
from muntin.timeline.store.rows import to_microseconds
from muntin.timeline.store.sql import statements as sql
from muntin.timeline.store.sql.database import Database
from muntin.timeline.store.sql.transaction import Transaction

# This many reports that are too old are read at a time.
_PAGE = 500
# If there are too many bytes, a twentieth of the reports goes at a time.
_SHARE = 20
_EVER = 2**62


def prune(database: Database, before: datetime | None, most: int | None) -> Pruned:
    """Delete the reports made before a time, then the oldest until `most` bytes are left."""
    size = _size(database)
    gone = 0
    if before is not None:
        time = to_microseconds(before)
        while dropped := _drop_oldest(database, time, _PAGE):
            gone += dropped
    while most is not None and _size(database) > most:
        ((count,),) = database.query(sql.COUNT_REPORTS)
        dropped = _drop_oldest(database, _EVER, max(1, count // _SHARE))
        if not dropped:
            break
        gone += dropped
    return Pruned(gone, size - _size(database) if gone else 0)


def _size(database: Database) -> int:
    ((size,),) = database.query(sql.REPORTS_SIZE)
    return int(size)


def _drop_oldest(database: Database, before: int, count: int) -> int:
    """Delete some of the oldest reports with contents that only they needed; return how many."""
    found = database.query(sql.OLDEST_REPORTS, before=before, newest=count)
    last: dict[int, tuple[int, int]] = {}
    for sid, turn, step in found:
        last[sid] = max(last.get(sid, (0, 0)), (turn, step))

    def write(tx: Transaction, sid: int, turn: int, step: int) -> int:
        tx.all(sql.LOCK_SESSION, sid=sid)
        dropped = tx.all(f"{sql.DROP_REPORTS} RETURNING turn", sid=sid, turn=turn, step=step)
        tx.run(sql.DROP_NAMES, sid=sid, turn=turn, step=step)
        tx.run(sql.DROP_CONTENTS, sid=sid, turn=_EVER)
        return len(dropped)

    return sum(
        database.transact(partial(write, sid=sid, turn=turn, step=step))
        for sid, (turn, step) in last.items()
    )
