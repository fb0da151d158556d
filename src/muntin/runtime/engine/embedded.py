"""The embedded engine: wakes run in the processes that send, and only the store is needed.

Owns the queue of this process, how many wakes run at once, and the sweep that finds wakes that
other processes left behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress
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
    Resumed,
)
from muntin.timeline.owner import why_waiting

_log = logging.getLogger(__name__)


class Embedded:
    """Handles entities in the process that sends to them, `at_once` of them side by side.

    All processes with handlers look once a second for wakes that other processes left behind.
    """

    def __init__(self, *, at_once: int = AT_ONCE) -> None:
        self._at_once = check_count(at_once, "at_once")
        # The newest turn to be run of each session that waits here.
        self._turns: dict[str, int] = {}
        # Sessions that may run now, in order, and those that first wait for a time.
        self._queue: list[tuple[int, int, str]] = []
        self._order = count()
        self._later: dict[str, asyncio.TimerHandle] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        # Sessions that the sweep found, and whether they were left behind rather than just sent.
        self._is_left_behind: dict[str, bool] = {}
        self._began = datetime.now(UTC)
        # The sessions that were handled while `resume` waits.
        self._handled: set[str] | None = None
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

    # The queue.

    def waits(self, tx: Any, session: str, turn: int, *, priority: int = 0) -> None:
        pass  # the store has the turn; nothing else is needed

    def stored(self, session: str, turn: int) -> None:
        self._offer(session, turn)

    def _offer(self, session: str, turn: int) -> None:
        """Have the turns of a session run up to this turn."""
        is_new = session not in self._turns
        self._turns[session] = max(turn, self._turns.get(session, 0))
        if is_new and session not in self._running:
            self._push(session)
        self._fill()

    def _push(self, session: str) -> None:
        handler = self._host.handlers.get(_kind(session))
        priority = handler.priority if handler is not None else 0
        heappush(self._queue, (-priority, next(self._order), session))

    def _put_off(self, session: str, turn: int, seconds: float) -> None:
        """Offer a session again only after some seconds, whatever is sent meanwhile."""
        self._turns[session] = max(turn, self._turns.get(session, 0))
        loop = asyncio.get_running_loop()
        self._later[session] = loop.call_later(seconds, self._offer_later, session)

    def _offer_later(self, session: str) -> None:
        self._later.pop(session).cancel()
        self._offer(session, self._turns.pop(session))

    def _fill(self) -> None:
        """Begin as many sessions as may run, in order; a type that is at its limit is passed by."""
        passed = []
        busy = Counter(map(_kind, self._running))
        while self._queue and len(self._running) < self._at_once and not self._stopping:
            entry = heappop(self._queue)
            session, kind = entry[-1], _kind(entry[-1])
            handler = self._host.handlers.get(kind)
            limit = handler.at_once if handler is not None else None
            if limit is not None and busy[kind] >= limit:
                passed.append(entry)
                continue
            busy[kind] += 1
            turn = self._turns.pop(session)
            task = asyncio.get_running_loop().create_task(self._run(session, turn))
            self._running[session] = task
        for entry in passed:
            heappush(self._queue, entry)

    async def _run(self, session: str, turn: int) -> None:
        again: float | None = None
        try:
            last = await self._host.run(session, turn)
            if last == turn and self._is_left_behind.get(session):
                _log.warning("resumed unfinished work: turn %d of %r", turn, session)
            if last and self._handled is not None:
                self._handled.add(session)
        except Again as busy:
            again = busy.after
        except StoreError as error:
            _log.warning("%r is handled when the store is back: %s", session, error)
            again = POLL_SECONDS
        finally:
            del self._running[session]
            if again is not None and not self._stopping:
                # A session that was found may be busy elsewhere: there is no hurry.
                pause = max(again, POLL_SECONDS) if session in self._is_left_behind else again
                self._put_off(session, turn, pause)
            else:
                self._is_left_behind.pop(session, None)
                if session in self._turns:
                    self._push(session)
            self._notify()
            with suppress(RuntimeError):  # the event loop ends
                self._fill()

    def _notify(self) -> None:
        """Notify waiting tasks that a wake has ended."""
        self._end.set()
        self._end = asyncio.Event()

    # The loops.

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._host.handlers or (self._loops and self._loops[0].get_loop() is loop):
            return
        # What an event loop that has ended left here is still in the store.
        self._end = asyncio.Event()
        self._forget_waiting()
        self._running = {
            session: task for session, task in self._running.items() if task.get_loop() is loop
        }
        self._loops = [
            loop.create_task(self._sweep_on()),
            loop.create_task(self._host.release_timers()),
        ]

    def _forget_waiting(self) -> None:
        """Forget the turns that wait here: the store has them."""
        self._forget_later()
        for waiting in (self._turns, self._queue, self._is_left_behind):
            waiting.clear()

    def _forget_later(self) -> None:
        for session, timer in self._later.items():
            timer.cancel()
            del self._turns[session]
        self._later.clear()

    async def _sweep_on(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            with suppress(MuntinError):  # the store may come back
                await self._sweep()

    async def _sweep(self) -> list[str]:
        """Offer all waiting sessions, no more at a time than there is room for; return them."""
        sessions: list[str] = []
        list_waiting = partial(self._host.store.sessions, waiting=True)
        page = await asyncio.to_thread(list_waiting)
        while page:
            for session in [info.id for info in page]:
                if _kind(session) not in self._host.handlers or "/" not in session:
                    continue
                sessions.append(session)
                if not self._knows(session):
                    while len(self._running) + len(self._turns) - len(self._later) >= self._at_once:
                        await self._end.wait()
                    newest = await asyncio.to_thread(self._newest, session)
                    if newest is not None and not self._knows(session):
                        turn, self._is_left_behind[session] = newest
                        self._offer(session, turn)
            page = await asyncio.to_thread(partial(list_waiting, after=page[-1].id))
        return sessions

    def _knows(self, session: str) -> bool:
        return session in self._running or session in self._turns

    def _newest(self, session: str) -> tuple[int, bool] | None:
        """Return the newest turn that is not settled, and whether it was left behind: begun before,
        or sent before this process began to work."""
        turns = partial(self._host.store.turns, session, newest=1)
        for turn in turns(status="pending") or turns(status="open"):
            items = self._host.store.read(session, after=turn.first - 1, before=turn.first + 1)
            is_old = any(item.time < self._began for item in items)
            return turn.number, turn.status == "open" or is_old
        return None

    # For an app.

    async def work(self, *, at_once: int, stop: asyncio.Event, timeout: float) -> tuple[str, ...]:
        self._at_once = check_count(at_once, "at_once")
        self.start()
        sweeping = asyncio.create_task(self._sweep())  # now, not only when the loop does
        sweeping.add_done_callback(lambda done: done.cancelled() or done.exception())
        await stop.wait()
        sweeping.cancel()
        self._stopping = True  # waiting turns stay in the store
        return await self.close(timeout)

    async def resume(self) -> Resumed:
        self.start()
        handled = self._handled = set()
        given_up = await asyncio.to_thread(self._given_up)
        before: list[str] | None = None
        # Again until nothing changes: what is over may have been in the way of something else.
        while (found := await self._sweep()) and found != before:
            for session in self._later.keys() & set(found):
                self._offer_later(session)
            while any(map(self._runs_soon, found)):
                await self._end.wait()
            before = found
        self._handled = None
        whys = await asyncio.to_thread(lambda: [(each, self._why_waiting(each)) for each in found])
        left = {session: why for session, why in whys if why is not None}
        for session, turn in await asyncio.to_thread(self._given_up) - given_up:
            left[session] = f"turn {turn} was given up: it ended its process again and again"
        return Resumed(tuple(sorted(handled - left.keys())), left)

    def _given_up(self) -> set[tuple[str, int]]:
        """Return the turns that were given up, by session and number."""
        turns, last = set(), None
        while page := self._host.store.sessions(gave_up=True, after=last):
            for info in page:
                failed = self._host.store.turns(info.id, status="failed")
                turns |= {(info.id, turn.number) for turn in failed if turn.reason == "gave_up"}
            last = page[-1].id
        return turns

    def _why_waiting(self, session: str) -> str | None:
        """Return why the first turn that waits cannot be handled now."""
        turns = self._host.store.turns
        waiting = turns(session, status="open") or turns(session, status="pending")
        return why_waiting(waiting[-1], datetime.now(UTC)) if waiting else None

    async def settled(self, session: str, turn: int, timeout: float) -> bool:
        if not self._runs_soon(session):
            await asyncio.sleep(timeout)
            return False
        while self._runs_soon(session):  # no need to ask the store
            await self._end.wait()
        return True

    def _runs_soon(self, session: str) -> bool:
        return self._knows(session) and session not in self._later

    async def cancel(self, session: str, turn: int) -> None:
        if session in self._running:
            self._running[session].cancel()
        elif session in self._later:  # the turns behind it wait no longer
            self._offer_later(session)

    def state(self) -> EngineState:
        backlog = self._host.store.backlog()
        return EngineState(backlog.waiting, backlog.running, since=backlog.since)

    async def close(self, timeout: float) -> tuple[str, ...]:
        for task in self._loops:
            task.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._forget_later()
        end = asyncio.get_running_loop().time() + timeout
        while self._running and (left := end - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(self._running.values(), timeout=left)
        stopped = tuple(self._running)
        if stopped:
            self._stopping = True
            tasks = list(self._running.values())
            for wake in tasks:
                wake.cancel()
            await asyncio.wait(tasks, timeout=STOP_SECONDS)
        for session in stopped:
            _log.warning(
                "closed while %r was being handled%s; its wake is unfinished, and is run again "
                "by a process that looks after it",
                session,
                " (and would not stop)" if session in self._running else "",
            )
        self._forget_waiting()
        self._loops = []  # now: an ending wake may send, which would begin new loops
        self._notify()
        self._stopping = False
        return stopped


def _kind(session: str) -> str:
    return session.partition("/")[0]
