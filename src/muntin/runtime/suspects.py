"""Turns that a process died with: which of them may be tried here now.

A message that ends its process takes with it what runs beside it, and nobody sees which turn it
was. So turns that got no further since are tried one at a time, and before one is given up, it is
tried while nothing else runs here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from muntin.runtime.turn_queue import TurnQueue

# How often a turn is taken without getting further, before it is given up.
MAX_ATTEMPTS = 5
# How often a session that looks for a suspected turn looks whether another still does.
LOOK_SECONDS = 0.01
# For how many seconds a turn that gets no further keeps others waiting.
ALONE_SECONDS = 60.0


class Suspects:
    """The turns that are handled here, by session, and the suspected ones among them."""

    def __init__(self, queue: TurnQueue) -> None:
        self._queue = queue
        self.handled: set[str] = set()
        self._running: dict[str, asyncio.TimerHandle] = {}
        # Those of which it is not known yet whether there is a suspected turn to take.
        self._looking: set[str] = set()
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
        while self._looking:  # a visit to the store
            await asyncio.sleep(LOOK_SECONDS)
        if self._hinder(self._running):
            return False
        self._looking.add(session)
        later = asyncio.get_running_loop().call_later
        self._running[session] = later(ALONE_SECONDS, self.leave, session)
        return True

    def note_taken(self, session: str, tries: int) -> None:
        """Note that a turn was taken; one at its last try is given up if its process dies now."""
        self._looking.discard(session)
        if tries == MAX_ATTEMPTS:
            self._last.add(session)

    def leave(self, session: str) -> None:
        """Let other turns run: this one got further, or is over."""
        if session in self._running:
            self._running.pop(session).cancel()
        self._last.discard(session)
        self._looking.discard(session)
