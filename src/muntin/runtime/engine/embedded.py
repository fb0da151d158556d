"""The embedded engine: wakes run in the processes that send, and only the store is needed.

Owns the queue of this process, how many wakes run at once, and the sweep that finds wakes that
other processes left behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any

from muntin.core.checks import check_count
from muntin.errors import InvalidInput, MuntinError, StoreError
from muntin.runtime.engine.protocol import (
    AT_ONCE,
    POLL_SECONDS,
    STOP_SECONDS,
    Again,
    EngineState,
    Host,
)
from muntin.runtime.engine.timers import release_timers
from muntin.timeline.items import Turn

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Later:
    """A timer that offers a session when its time comes, and the newest turn to be run then."""

    timer: asyncio.TimerHandle
    turn: int


class Embedded:
    """Handles entities in the process that sends to them, `at_once` of them side by side.

    All processes with handlers look once a second for wakes that other processes left behind.
    """

    def __init__(self, *, at_once: int = AT_ONCE) -> None:
        self._at_once = check_count(at_once, "at_once")
        # The newest turn to be run of each session, and the order of the sessions.
        self._turns: dict[str, int] = {}
        self._queue: list[tuple[int, int, str]] = []
        self._order = count()
        # Sessions that the sweep found, and whether they were left behind rather than just sent. If
        # they are busy, the sweep will find them again.
        self._found: dict[str, bool] = {}
        # Sessions that wait for a time, longer than between sweeps: the sweep passes them by.
        self._later: dict[str, _Later] = {}
        self._began = datetime.now(UTC)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._busy: Counter[str] = Counter()  # by type
        # Set, and replaced by a new event, when a wake ends.
        self._end = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._stopping = False

    def bind(self, host: Host) -> None:
        if hasattr(self, "_host"):
            raise InvalidInput("an engine belongs to one app: make another Embedded()")
        self._host = host

    async def ready(self) -> None:
        pass

    # Waiting turns.

    def waits(self, tx: Any, session: str, turn: int, *, priority: int = 0) -> None:
        pass  # the store has the turn; nothing else is needed

    def stored(self, session: str, turn: int) -> None:
        self.start()
        self._offer(session, turn)

    def _offer(self, session: str, turn: int) -> None:
        """Have the turns of a session run up to this turn, when the session's time comes."""
        if session in self._later:
            self._later[session].turn = max(turn, self._later[session].turn)
            return
        waits = session in self._turns
        self._turns[session] = max(turn, self._turns.get(session, 0))
        if not waits and session not in self._running:
            self._push(session)
        self._fill()

    def _put_off(self, session: str, turn: int, seconds: float) -> None:
        """Offer a session again only after some seconds."""
        timer = asyncio.get_running_loop().call_later(seconds, self._no_longer, session)
        self._later[session] = _Later(timer, max(turn, self._turns.pop(session, 0)))

    def _no_longer(self, session: str) -> None:
        later = self._later.pop(session)
        later.timer.cancel()
        self._offer(session, later.turn)

    def _put_off_no_more(self) -> None:
        """Forget all sessions that wait for a time: the store has their turns."""
        for later in self._later.values():
            later.timer.cancel()
        self._later.clear()

    def _push(self, session: str) -> None:
        priority = self._host.priority(_kind(session))
        heappush(self._queue, (-priority, next(self._order), session))

    def _fill(self) -> None:
        """Begin as many sessions as may run, in order; a type that is at its limit is passed by."""
        passed = []
        while self._queue and len(self._running) < self._at_once and not self._stopping:
            entry = heappop(self._queue)
            session = entry[-1]
            limit = self._host.at_once(_kind(session))
            if limit is not None and self._busy[_kind(session)] >= limit:
                passed.append(entry)
            elif session in self._turns:
                turn = self._turns.pop(session)
                self._busy[_kind(session)] += 1
                task = asyncio.get_running_loop().create_task(self._run(session, turn))
                self._running[session] = task
        for entry in passed:
            heappush(self._queue, entry)

    async def _run(self, session: str, turn: int) -> None:
        again: float | None = None
        try:
            if await self._host.run(session, turn) == turn and self._found.get(session):
                _log.warning("resumed unfinished work: turn %d of %r", turn, session)
        except Again as busy:
            again = busy.after
        except StoreError as error:
            _log.warning("%r is handled when the store is back: %s", session, error)
            again = POLL_SECONDS
        finally:
            self._ended(session, turn, again)

    def _ended(self, session: str, turn: int, again: float | None) -> None:
        del self._running[session]
        self._busy[_kind(session)] -= 1
        found = session in self._found
        self._found.pop(session, None)
        self._tell()
        if again is not None and again > POLL_SECONDS and not self._stopping:
            self._put_off(session, turn, again)
        elif session in self._turns:
            self._push(session)
        elif again is not None and not found and not self._stopping:
            asyncio.get_running_loop().call_later(again, self._offer, session, turn)
        with suppress(RuntimeError):  # the event loop ends
            self._fill()

    # The loops.

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loops and self._loops[0].get_loop() is loop:
            return
        if not self._host.kinds():
            return
        self._forget_other_loops(loop)
        self._loops = [
            loop.create_task(self._sweep_on()),
            loop.create_task(release_timers(self._host)),
        ]

    def _forget_other_loops(self, loop: asyncio.AbstractEventLoop) -> None:
        """Forget the wakes of an event loop that has ended; the store still has them."""
        self._end = asyncio.Event()
        self._put_off_no_more()
        for session, task in list(self._running.items()):
            if task.get_loop() is not loop:
                del self._running[session]
                self._busy[_kind(session)] -= 1

    async def _sweep_on(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            with suppress(MuntinError):  # the store may come back
                await self._sweep()

    async def _sweep(self) -> list[str]:
        """Offer all waiting sessions, no more at a time than there is room for; return them."""
        found: list[str] = []
        store = self._host.store
        page = await asyncio.to_thread(store.waiting)
        while page:
            for session in page:
                if _kind(session) in self._host.kinds() and "/" in session:
                    found.append(session)
                    if not self._knows(session):
                        await self._take_up(session)
            page = await asyncio.to_thread(partial(store.waiting, after=page[-1]))
        return found

    def _knows(self, session: str) -> bool:
        """Say whether a session runs, is to be run, or waits for its time."""
        return any(session in each for each in (self._running, self._turns, self._later))

    async def _take_up(self, session: str) -> None:
        while len(self._running) + len(self._turns) >= self._at_once:
            await self._end.wait()
        turns = partial(self._host.store.turns, session, newest=1)
        newest = await asyncio.to_thread(partial(turns, status="pending"))
        newest = newest or await asyncio.to_thread(partial(turns, status="open"))
        if not newest:
            return
        left = await asyncio.to_thread(self._is_left, session, newest[0])
        if not self._knows(session):
            self._found[session] = left
            self._offer(session, newest[0].number)

    def _is_left(self, session: str, turn: Turn) -> bool:
        """Say whether a turn was begun before, or sent before this process began to work."""
        at = turn.first
        items = self._host.store.read(session, after=at - 1, before=at + 1)
        return turn.status == "open" or any(item.time < self._began for item in items)

    # For an app.

    async def work(self, *, at_once: int, stop: asyncio.Event, timeout: float) -> tuple[str, ...]:
        self._at_once = check_count(at_once, "at_once")
        self.start()
        await stop.wait()
        self._stopping = True  # waiting turns stay in the store
        return await self.close(timeout)

    async def resume(self) -> tuple[str, ...]:
        self.start()
        found = await self._sweep()
        while any(map(self._has, found)):
            await self._end.wait()
        return tuple(found)

    async def settled(self, session: str, turn: int, timeout: float) -> bool:
        if not self._has(session):
            await asyncio.sleep(timeout)
            return False
        while self._has(session):  # it runs here: no need to ask the store
            await self._end.wait()
        return True

    def _has(self, session: str) -> bool:
        return session in self._running or session in self._turns

    def _tell(self) -> None:
        """Tell waiting tasks that a wake has ended."""
        self._end.set()
        self._end = asyncio.Event()

    async def cancel(self, session: str, turn: int) -> None:
        if session in self._running:
            self._running[session].cancel()
        elif session in self._later:  # the turns behind it wait no longer
            self._no_longer(session)

    def state(self) -> EngineState:
        found = self._host.store.backlog()
        return EngineState(found.waiting, found.running, since=found.since)

    async def close(self, timeout: float) -> tuple[str, ...]:
        for task in self._loops:
            task.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._put_off_no_more()
        end = asyncio.get_running_loop().time() + timeout
        while self._running and (left := end - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(self._running.values(), timeout=left)
        stopped = tuple(self._running)
        if stopped:
            self._stopping = True
            tasks = list(self._running.values())
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=STOP_SECONDS)
        for session in stopped:
            _log.warning(
                "closed while %r was being handled%s; its wake is unfinished, and is run again "
                "by a process that looks after it",
                session,
                " (and would not stop)" if session in self._running else "",
            )
        self._put_off_no_more()
        self._loops = []  # now: an ending wake may send, which would begin new loops
        if self._stopping:
            self._turns.clear()
            self._queue.clear()
            self._tell()
        self._stopping = False
        return stopped


def _kind(session: str) -> str:
    return session.partition("/")[0]
