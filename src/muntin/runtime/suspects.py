"""Turns that a process died with: which of them may be tried here now.

A message that ends its process takes with it what runs beside it, and nobody sees which turn it
was. So turns that got no further since are tried one at a time, and before one is given up, it is
tried while nothing else runs here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from threading import Lock

from muntin.runtime.turn_queue import TurnQueue

# How often a turn is taken without getting further, before it is given up.
MAX_ATTEMPTS = 5
# For how many seconds a turn that gets no further keeps others waiting.
ALONE_SECONDS = 60.0


class Suspects:
    """The turns that are handled here, by session, and the suspected ones among them."""

    def __init__(self, queue: TurnQueue) -> None:
        self._queue = queue
        self.handled: set[str] = set()
        self._running: dict[str, asyncio.TimerHandle] = {}
        # The session that looks whether it has a suspected turn, and others that wait to look. A
        # look is over in the thread that visits the store.
        self._looking: str | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._lock = Lock()
        # Those at their last try: nothing else begins.
        self._last: set[str] = set()

    @property
    def are_alone(self) -> bool:
        """Whether every other turn has to wait."""
        return self._hinder(self._last)

    @property
    def most_tries(self) -> int:
        """How many tries a turn may have that is taken now."""
        return MAX_ATTEMPTS - 2 if self._hinder(self.handled) else MAX_ATTEMPTS - 1

    def _hinder(self, sessions: Iterable[str]) -> bool:
        """Say whether one of them is at work: one that waits for others must not hinder them."""
        return not all(map(self._queue.awaits, sessions))

    async def enter(self, session: str) -> bool:
        """Look for a suspected turn to try, until `leave`; False if another one is tried."""
        while (over := self._begin_look(session)) is not None:
            await over
        if self._hinder(self._running):
            self._end_look(session)
            return False
        later = asyncio.get_running_loop().call_later
        self._running[session] = later(ALONE_SECONDS, self.leave, session)
        return True

    def note_taken(self, session: str, tries: int) -> None:
        """Note that a turn was taken; one at its last try is given up if its process dies now."""
        self._end_look(session)
        if tries == MAX_ATTEMPTS:
            self._last.add(session)

    def leave(self, session: str) -> None:
        """Let other turns run: this one got further, or is over."""
        if session in self._running:
            self._running.pop(session).cancel()
        self._last.discard(session)
        self._end_look(session)

    def _begin_look(self, session: str) -> asyncio.Future[None] | None:
        """Begin to look; while another session does, return a future of the end of its look."""
        with self._lock:
            if self._looking is None:
                self._looking = session
                return None
            self._waiting.append(asyncio.get_running_loop().create_future())
            return self._waiting[-1]

    def _end_look(self, session: str) -> None:
        with self._lock:
            if self._looking != session:
                return
            self._looking, waiting = None, self._waiting
            self._waiting = []
        for over in waiting:
            with suppress(RuntimeError):  # its event loop is closed
                over.get_loop().call_soon_threadsafe(_resolve, over)


def _resolve(over: asyncio.Future[None]) -> None:
    if not over.done():  # cancelled
        over.set_result(None)
