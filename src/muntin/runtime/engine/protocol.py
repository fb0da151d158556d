"""The seam between entities and engines: what an engine is, and what an app gives it.

Owns no loop and no table. One function takes a turn and handles it (`Host.run`); an engine says
when, where, and how many at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from muntin.timeline.store import Store

# How often waiting turns are looked for, even without a notification.
POLL_SECONDS = 1.0
# How long a wake may take to stop after it was told to.
STOP_SECONDS = 1.0
# A worker that was silent for this long loses its wakes.
SILENT_SECONDS = 30.0
# How many wakes a worker runs at once by default.
AT_ONCE = 100


class Again(Exception):
    """A turn cannot be run now: it has another owner, or no handler is known here; try later."""

    def __init__(self, why: str, after: float) -> None:
        super().__init__(why)
        self.after = after


class TypeLimits(Protocol):
    """How the entities of a type are handled here: `at_once` of them side by side, where None is no
    limit; types with a higher `priority` come first."""

    @property
    def at_once(self) -> int | None: ...
    @property
    def priority(self) -> int: ...


class Host(Protocol):
    """The parts of an app that its engine uses."""

    # Where the timelines are.
    store: Store

    @property
    def handlers(self) -> Mapping[str, TypeLimits]:
        """The types of entities that have a handler here, with their limits."""

    async def run(self, session: str, turn: int, *, sure: bool = False) -> int:
        """Handle the turns of a session up to and with this turn, each once it can be taken.

        Returns the last turn that it handled, 0 if there was nothing left to do. `Again` means that
        the turn cannot be run yet, a `StoreError` that the store was away; both leave the turn
        unchanged, and so does a cancellation. With `sure` the engine knows that no other process
        runs the session: a turn of a dead worker is taken at once.
        """

    async def release_timers(self) -> None:
        """Release the timers that are due, again and again, until cancelled."""


@dataclass(frozen=True, slots=True)
class EngineState:
    """How many turns wait, run and failed; when the oldest began to wait; the known workers."""

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


@dataclass(frozen=True, slots=True)
class Resumed:
    """What `resume` did: the entities that were `handled`; and why what is `left` waits on, or was
    given up, by entity."""

    handled: tuple[str, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)


class Engine(Protocol):
    """Runs the turns that wait: the turns of a session one at a time and in order."""

    def bind(self, host: Host) -> None:
        """Bind the engine to an app; refuse a store that it cannot use."""

    async def ready(self) -> None:
        """Make what the engine needs in the store, if it is not there."""

    def waits(self, tx: Any, session: str, turn: int, *, priority: int = 0) -> None:
        """Note, in the append's own transaction, that an inbox turn has begun to wait.

        Called in any thread, once for each turn; not for messages that join the turn. It is called
        again if the transaction is begun again. An exception here undoes the append.
        """

    def stored(self, session: str, turn: int) -> None:
        """Note that the transaction of `waits` was committed; called in the event loop."""

    def start(self) -> None:
        """Begin to run turns in this event loop, if the engine does that without `work`."""

    async def work(self, *, at_once: int, stop: asyncio.Event, timeout: float) -> tuple[str, ...]:
        """Run turns until told to stop; then begin none, and let running turns come to an end.

        Turns that take longer than `timeout` seconds are stopped and handed back; their sessions
        are returned.
        """

    async def resume(self) -> Resumed:
        """Handle what waits in the store, until nothing is left that can be handled now."""

    async def settled(self, session: str, turn: int, timeout: float) -> bool:
        """Wait until a turn may be settled; the caller then asks the store.

        An engine that runs the turn waits for its end, any other engine for `timeout` seconds.
        """

    async def cancel(self, session: str, turn: int) -> None:
        """Stop a cancelled turn, in any process that runs it."""

    def state(self) -> EngineState:
        """Return how many turns wait, run and failed. Reads the store."""

    async def close(self, timeout: float) -> tuple[str, ...]:
        """Let the turns of this process come to an end; return the sessions that were stopped."""
