"""A queue of work in one thread: what has to wait for a store waits there, and its caller does not.

Knows nothing of stores.
"""

from __future__ import annotations

import atexit
import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakSet

from muntin.errors import StoreError
from muntin.threads import hand_over

T = TypeVar("T")

# How many seconds a process that ends waits for the work that it has queued.
END_SECONDS = 5.0


class WorkQueue:
    """Does work in the order it comes, one after the other; at most `limit` works wait.

    A process that ends finishes its work first, if that takes no more than `END_SECONDS`.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        # When the work that is being done began; None while nothing is done.
        self._began: float | None = None
        self._lock = Lock()
        self._pid = os.getpid()
        _queues.add(self)

    def put(self, work: Callable[[], T]) -> Future[T]:
        """Have work done; `StoreError` if too much waits already."""
        future: Future[T] = Future()
        with self._lock:
            if self._pid != os.getpid():  # the thread of the parent is not here
                self._pid, self._began = os.getpid(), None
                self._waiting.clear()
            if len(self._waiting) >= self._limit:
                raise StoreError(f"the store is too slow: {self._limit:,} writes wait for it")
            self._waiting.append((future, work))
            if self._began is None:
                self._began = time.monotonic()
                hand_over(self._work)
        return future

    def ask(self, work: Callable[[], T], seconds: float) -> T:
        """Return the result of work; `TimeoutError` if it is not there in time."""
        if self.is_stuck(seconds):
            raise TimeoutError
        future = self.put(work)
        try:
            return future.result(seconds)
        except TimeoutError:
            future.cancel()
            raise

    def is_stuck(self, seconds: float) -> bool:
        """Say whether some work has been taking longer than this."""
        began = self._began
        return began is not None and time.monotonic() - began > seconds

    def _work(self) -> Callable[[], object]:
        while True:
            with self._lock:
                if not self._waiting:
                    self._began = None
                    return _nothing
                future, work = self._waiting.popleft()
                self._began = time.monotonic()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)
            del future, work


def _nothing() -> None:
    """Do nothing: no one waits for a result."""


_queues = WeakSet[WorkQueue]()


@atexit.register
def _finish_work() -> None:
    end = time.monotonic() + END_SECONDS
    for queue in list(_queues):
        with suppress(StoreError, TimeoutError, RuntimeError):  # no thread begins this late
            if queue.is_stuck(0):
                queue.put(_nothing).result(max(0.0, end - time.monotonic()))
