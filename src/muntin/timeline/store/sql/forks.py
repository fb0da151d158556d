"""Forks: what a process does before it forks.

SQLite's locks do not survive a fork, so no connection may be open while one happens, and no
transaction under way: https://www.sqlite.org/howtocorrupt.html#_carrying_an_open_database_connection
A fork waits for the transactions of other threads, which are short, and new ones wait for the fork.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from threading import Condition, get_ident
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakSet

if TYPE_CHECKING:
    from muntin.timeline.store.sql.database import Database

T = TypeVar("T")

# How long a fork waits for transactions that are under way.
SECONDS = 10.0

_databases: WeakSet[Database] = WeakSet()
_gate = Condition()
# The threads with an open SQLite transaction, and the thread that forks.
_busy: Counter[int] = Counter()
_forking: int | None = None


def watch(database: Database) -> None:
    """Close the connections of a database before every fork."""
    _databases.add(database)


def held_off(work: Callable[[], T]) -> T:
    """Do something while forks wait."""
    me = get_ident()
    with _gate:
        while _forking not in (None, me) and not _busy[me]:
            _gate.wait()
        _busy[me] += 1
    try:
        return work()
    finally:
        with _gate:
            _busy[me] -= 1
            if not _busy[me]:
                del _busy[me]
            if _forking is not None:
                _gate.notify_all()


def _before() -> None:
    global _forking
    me = get_ident()
    with _gate:
        _forking = me
        _gate.wait_for(lambda: not (_busy.keys() - {me}), SECONDS)
    for database in list(_databases):
        database.leave_to_fork()


def _after_in_parent() -> None:
    global _forking
    with _gate:
        _forking = None
        _gate.notify_all()


def _after_in_child() -> None:
    global _gate, _forking
    _gate, _forking = Condition(), None
    _busy.clear()
    for database in list(_databases):
        database.forget_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
