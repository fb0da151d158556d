"""The queue of turns in this process: which of them looks at the store, and which are called.

Of the turns that wait for one session only the first looks at the store, now and then, because
other processes have turns too. The others are called by the turn before them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

# How often to look whether an earlier turn is done.
_POLL = 0.05


class TurnQueue:
    """The turns that wait, by event loop and session."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[asyncio.AbstractEventLoop, str], dict[int, asyncio.Event]] = {}

    @property
    def waiting(self) -> int:
        """How many turns wait."""
        return sum(len(turns) for turns in self._waiting.values())

    async def wait(self, session: str, turn: int, take: Callable[[], Awaitable[bool]]) -> None:
        """Wait until `take` could take the turn."""
        key = (asyncio.get_running_loop(), session)
        waiting = self._waiting.setdefault(key, {})
        called = waiting[turn] = asyncio.Event()
        try:
            while True:
                first = min(waiting) == turn
                if first and await take():
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(_POLL if first else None):
                        await called.wait()
                called.clear()
        finally:
            del waiting[turn]
            if not waiting:
                del self._waiting[key]
            self.call(session)

    def call(self, session: str) -> None:
        """Tell the first turn that waits for a session that something happened."""
        waiting = self._waiting.get((asyncio.get_running_loop(), session))
        if waiting:
            waiting[min(waiting)].set()
