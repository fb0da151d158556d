"""Waiting for a file: for its other writers, and for forks.

An SQLite file has one writer at a time. SQLite itself is not fair: a writer that waits long looks
seldom, and later writers come first. Here the threads of a process queue. Processes look more and
more often the longer they wait.

SQLite's locks do not survive a fork, so no connection may be open while one happens, and no
transaction under way: https://www.sqlite.org/howtocorrupt.html#_carrying_an_open_database_connection
A fork waits for the transactions of other threads, which are short, and new ones wait for the fork.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition, Lock, get_ident
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakSet

if TYPE_CHECKING:
    from muntin.timeline.store.sql.database import Database

T = TypeVar("T")

# Seconds that a waiting process sleeps before it looks again: at first, and after a long wait.
_LOOK_SECONDS = (0.006, 0.001)
_LONG_SECONDS = 3.0


class TooLong(Exception):
    """Other threads were inside for too long."""


class Queue:
    """Lets one thread in at a time, in order of arrival."""

    def __init__(self) -> None:
        self._mutex = Lock()
        self._waiting: deque[Lock] = deque()
        self._inside: int | None = None  # the thread; 0 while one is called in

    @contextmanager
    def turn(self, seconds: float) -> Iterator[None]:
        """Be the thread inside; `TooLong` if others are inside all the time. A thread inside may
        enter again."""
        if self._inside == get_ident():
            yield
            return
        self._enter(seconds)
        try:
            yield
        finally:
            self._leave()

    def _enter(self, seconds: float) -> None:
        called = Lock()
        with self._mutex:
            if self._inside is None:
                self._inside = get_ident()
                return
            called.acquire()
            self._waiting.append(called)
        try:
            in_time = called.acquire(timeout=seconds)
        except BaseException:  # the program is being stopped
            if not self._gives_up(called):
                self._leave()
            raise
        if not in_time and self._gives_up(called):
            raise TooLong
        self._inside = get_ident()

    def _gives_up(self, called: Lock) -> bool:
        """Stop waiting; False if this thread was called in just now."""
        with self._mutex:
            if called not in self._waiting:
                return False
            self._waiting.remove(called)
            return True

    def _leave(self) -> None:
        with self._mutex:
            if self._waiting:
                self._inside = 0
                self._waiting.popleft().release()
            else:
                self._inside = None


def wait_to_look(waited: float) -> None:
    """Sleep before looking again whether another process still writes."""
    first, last = _LOOK_SECONDS
    longest = max(last, first * (1 - waited / _LONG_SECONDS))
    time.sleep(random.uniform(0.5, 1.5) * longest)


# How long a fork waits for transactions that are under way.
FORK_SECONDS = 10.0

_databases: WeakSet[Database] = WeakSet()
_gate = Condition()
# The threads with an open SQLite transaction, and the thread that forks.
_busy: Counter[int] = Counter()
_forking: int | None = None


def watch(database: Database) -> None:
    """Close the connections of a database before every fork."""
    _databases.add(database)


def admitted(work: Callable[[], T], queue: Queue | None, seconds: float) -> T:
    """Do something with a file while forks wait; with a queue, when it is this thread's turn."""
    me = get_ident()
    with _gate:
        while _forking not in (None, me) and not _busy[me]:
            _gate.wait()
        _busy[me] += 1
    try:
        if queue is None:
            return work()
        with queue.turn(seconds):
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
        _gate.wait_for(lambda: not (_busy.keys() - {me}), FORK_SECONDS)
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
