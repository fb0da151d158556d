"""Waiting to write: an SQLite file has one writer at a time, and each waiting writer gets its turn.

SQLite itself is not fair: a writer that waits long looks seldom, and later writers come first. Here
the threads of a process queue. Processes look more and more often the longer they wait.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, get_ident

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
