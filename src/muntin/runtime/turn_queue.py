"""The queue of turns in this process: which turn asks the store, which turns are called, and which
turn waits for which.

Of the turns that wait for one session only the first asks the store, now and then, because other
processes have turns too. The others are called by the turn before them. A wait that could never
end, because a turn would wait for itself, is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass

from muntin.errors import Deadlock
from muntin.threads import register_variable
from muntin.timeline.turn import OpenTurn

# How often to ask whether an earlier turn is done.
_POLL = 0.05
_ADVICE = (
    "A turn begins when the turns before it are over: use `app.send`, which does not wait, or ask "
    "when this turn is over"
)


@dataclass(frozen=True, slots=True)
class _Inside:
    """A turn inside of which code runs."""

    queue: TurnQueue
    turn: OpenTurn


# The turns inside of which this code runs, the innermost last.
_inside: ContextVar[tuple[_Inside, ...]] = register_variable(
    ContextVar("muntin_inside", default=())
)


class TurnQueue:
    """The turns that wait, by event loop and session."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[asyncio.AbstractEventLoop, str], dict[int, asyncio.Event]] = {}
        # For each session with a turn that waits: the sessions that it waits for.
        self._awaited: dict[str, list[str]] = {}

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
            with self.waits_for(session):
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

    # Which turn waits for which.

    @contextmanager
    def inside(self, turn: OpenTurn) -> Iterator[None]:
        """Mark the code of the block, with its tasks and threads, as part of a turn."""
        token = _inside.set((*_inside.get(), _Inside(self, turn)))
        try:
            yield
        finally:
            with suppress(ValueError):  # the event loop has ended without its tasks
                _inside.reset(token)

    @contextmanager
    def waits_for(self, session: str) -> Iterator[None]:
        """Note, while the block waits for a turn of a session, that it waits."""
        self.check(session)
        waiting = self._around()
        for turn in waiting:
            self._awaited.setdefault(turn, []).append(session)
        try:
            yield
        finally:
            for turn in waiting:
                self._awaited[turn].remove(session)
                if not self._awaited[turn]:
                    del self._awaited[turn]

    def awaits(self, session: str) -> bool:
        """Say whether code in a turn of a session waits for a turn of another."""
        return session in self._awaited

    def check(self, session: str) -> None:
        """Refuse to wait for a session that waits for this code, directly or through others."""
        around = self._around()
        for path in self._paths(session) if around else ():
            if path[-1] in around:
                raise Deadlock([*around[around.index(path[-1]) :], *path], _ADVICE)

    def _around(self) -> list[str]:
        """Return the sessions in whose turns this code runs, the innermost last."""
        mine = [inside.turn for inside in _inside.get() if inside.queue is self]
        return list(dict.fromkeys(turn.session.id for turn in mine if not turn.over))

    def _paths(self, session: str) -> Iterator[Sequence[str]]:
        """Yield the paths from a session to the sessions that it waits for, the shortest first."""
        ways, seen = [[session]], {session}
        for way in ways:
            yield way
            for other in self._awaited.get(way[-1], ()):
                if other not in seen:
                    seen.add(other)
                    ways.append([*way, other])
