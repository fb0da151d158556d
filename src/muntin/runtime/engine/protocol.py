"""The seam between entities and what runs their wakes: what an engine is, and what it is given.

Owns no loop and no table. One function takes a turn and handles it (`Host.run`); an engine says
when, where, and how many at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from muntin.timeline.store import Store

# How often what waits is looked for, however little was heard of it.
POLL_SECONDS = 1.0
# How long a wake that was told to stop may take to do so.
STOP_SECONDS = 1.0
# A worker that was not heard of for so long has its wakes taken away.
SILENT_SECONDS = 30.0
# What a worker runs at once, if nothing else is said.
AT_ONCE = 100


class Again(Exception):
    """A turn cannot be run now, somebody is at work on it or it is not known how; try later."""

    def __init__(self, why: str, after: float) -> None:
        super().__init__(why)
        self.after = after


class Host(Protocol):
    """What an app gives its engine."""

    @property
    def store(self) -> Store:
        """Where the timelines are."""

    def kinds(self) -> Collection[str]:
        """Return the types of entities that have a handler here."""

    def at_once(self, kind: str) -> int | None:
        """Return how many entities of a type may be handled at once here; None is no limit."""

    def priority(self, kind: str) -> int:
        """Return the priority of a type; those with a higher one come first."""

    async def run(self, session: str, turn: int, *, sure: bool = False) -> int:
        """Handle the turns of a session up to and with this one, each once it can be taken.

        Returns the last that it handled, 0 if there was nothing left to do. `Again` says that it
        cannot be done yet, a `StoreError` that the store was not there; both leave the turn as it
        is, and so does being cancelled. With `sure` the engine knows that no other runs the
        session: what a dead worker had taken is taken from it at once.
        """

    async def release(self) -> float:
        """Release the timers that are due; return in how many seconds to look again."""


@dataclass(frozen=True, slots=True)
class EngineState:
    """What waits, runs and failed; since when the oldest waits; which workers are there."""

    waiting: int = 0
    running: int = 0
    failed: int = 0
    since: datetime | None = None
    workers: tuple[WorkerState, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A worker, when it was last heard of, and how many wakes it runs."""

    name: str
    heard: datetime
    running: int


class Engine(Protocol):
    """Runs the turns that wait: those of a session one at a time and in order, somewhere."""

    def bind(self, host: Host) -> None:
        """Belong to an app from now on; refuse a store that cannot be used."""

    async def ready(self) -> None:
        """Make what the engine needs in the store, if it is not there."""

    def waits(self, tx: Any, session: str, turn: int, *, priority: int = 0) -> None:
        """In the append's own transaction: an inbox turn has just begun to wait.

        Called in any thread, once for each turn; messages that join it say nothing. If the
        transaction is begun again, so is this. What is raised undoes the append.
        """

    def stored(self, session: str, turn: int) -> None:
        """The transaction of `waits` has been committed; called in the event loop."""

    def start(self) -> None:
        """Begin to handle in this event loop, if that is what the engine does without `work`."""

    async def work(self, *, at_once: int, stop: asyncio.Event, timeout: float) -> tuple[str, ...]:
        """Run turns until told to stop; then begin none, and let those that run come to an end.

        What takes longer than `timeout` seconds is stopped, handed back, and returned.
        """

    async def resume(self) -> tuple[str, ...]:
        """See to everything that waits in the store, and return the sessions."""

    async def settled(self, session: str, turn: int, timeout: float) -> bool:
        """Wait until a turn may be settled; True is a hint, the store is asked."""

    async def cancel(self, session: str, turn: int) -> None:
        """Have a turn that runs and was cancelled stopped, wherever it runs."""

    def state(self) -> EngineState:
        """Return what waits, runs and failed. Reads the store."""

    async def close(self, timeout: float) -> tuple[str, ...]:
        """Let what this process runs come to an end; return the sessions that had to be stopped."""
