"""The engine on procrastinate: wakes are jobs in the PostgreSQL that holds the timelines.

Owns how a turn becomes a job, how workers are notified, and that a new worker follows a worker
that lost the server. https://procrastinate.readthedocs.io
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import suppress
from functools import partial
from typing import Any, cast

from muntin.core.checks import shown
from muntin.errors import InvalidInput, StoreError, needing
from muntin.runtime.engine import jobs
from muntin.runtime.engine.protocol import EngineState, Host, Resumed

with needing("engine='procrastinate' needs: pip install 'muntin[engine]'"):
    import psycopg
    from procrastinate import PsycopgConnector, exceptions, manager
    from procrastinate.jobs import Job

    from muntin.runtime.engine.worker import run_worker

# A notification holds one lock for all commits of a server. So it follows the commit, and one
# notification serves all turns stored within so many seconds. Workers poll for missed ones.
NOTIFY_SECONDS = 0.01
# How often a worker looks for turns that were not sent through the engine.
ADOPT_SECONDS = 30.0
# Seconds before a new worker follows a worker that lost the server: the first time, at most.
RETRY_SECONDS = (0.1, 5.0)

_log = logging.getLogger(__name__)


class Procrastinate:
    """Has wakes run by workers: `muntin work`, any number of them, on any number of machines.

    An app with this engine sends; it handles nothing itself unless `app.work()` is awaited.
    """

    def __init__(self) -> None:
        self._is_ready = False
        self._manager = manager.JobManager(PsycopgConnector())
        # When workers were last notified, and the task that will notify them next.
        self._notified = 0.0
        self._notifying: asyncio.Task[None] | None = None

    def bind(self, host: Host) -> None:
        store = host.store
        if store.database.kind != "postgresql":
            raise InvalidInput(
                f"engine='procrastinate' needs a store in PostgreSQL, not {shown(store.name)}; "
                "use engine='embedded' on one machine"
            )
        self._database = store.database
        self._host = host

    async def ready(self) -> None:
        if not self._is_ready:
            await asyncio.to_thread(jobs.make_tables, self._database)
            self._is_ready = True

    # Waiting turns.

    def waits(self, tx: Any, session: str, turn: int, *, priority: int = 0) -> None:
        job = Job(
            queue=jobs.queue_of(session),
            lock=session,
            queueing_lock=None,
            task_name=jobs.TASK,
            priority=priority,
            task_kwargs={"session": session, "turn": turn},
        )
        try:
            self._manager.defer_job(job, connection=tx.connection)
        except exceptions.ConnectorException as error:
            # The store knows what its driver's errors mean.
            raise cast("Exception", error.__cause__ or error) from error

    def stored(self, session: str, turn: int) -> None:
        loop = asyncio.get_running_loop()
        if self._notifying is None or self._notifying.get_loop() is not loop:
            self._notifying = loop.create_task(self._notify())

    async def _notify(self) -> None:
        """Notify the workers; turns stored from then on are in the next notification."""
        await asyncio.sleep(self._notified + NOTIFY_SECONDS - time.monotonic())
        self._notified, self._notifying = time.monotonic(), None
        with suppress(StoreError):  # workers poll too
            await asyncio.to_thread(jobs.notify, self._database)

    def start(self) -> None:
        pass

    async def resume(self) -> Resumed:
        """Make jobs for turns that wait without one: sent under another engine, or by hand."""
        await self.ready()
        adopted = await asyncio.to_thread(self._adopt)
        return Resumed(left=dict.fromkeys(adopted, "it was given to the workers"))

    def _adopt(self) -> tuple[str, ...]:
        sessions: dict[str, None] = {}
        for session, turn in jobs.turns_without_job(self._database):
            if session.partition("/")[0] in self._host.handlers:
                self._database.transact(partial(self.waits, session=session, turn=turn))
                sessions[session] = None
        return tuple(sessions)

    # Working.

    async def work(self, *, at_once: int, stop: asyncio.Event, timeout: float) -> tuple[str, ...]:
        adopting = asyncio.create_task(self._adopt_on())
        try:
            return await self._work(at_once, stop, timeout)
        finally:
            adopting.cancel()

    async def _adopt_on(self) -> None:
        while True:
            await asyncio.sleep(ADOPT_SECONDS)
            with suppress(StoreError):
                await self.resume()

    async def _work(self, at_once: int, stop: asyncio.Event, timeout: float) -> tuple[str, ...]:
        pause, longest = RETRY_SECONDS
        while not stop.is_set():
            began = time.monotonic()
            try:
                await self.resume()
                return await run_worker(self._host, self._database.options, at_once, stop, timeout)
            except (psycopg.Error, StoreError) as error:
                reason = str(error).partition("\n")[0]
                _log.warning("a worker lost the server, another follows: %s", reason)
            if time.monotonic() - began > longest:
                pause = RETRY_SECONDS[0]
            with suppress(TimeoutError):
                async with asyncio.timeout(pause * random.uniform(0.5, 1)):
                    await stop.wait()
            pause = min(2 * pause, longest)
        return ()

    # For an app.

    async def settled(self, session: str, turn: int, timeout: float) -> bool:
        await asyncio.sleep(timeout)
        return False

    async def cancel(self, session: str, turn: int) -> None:
        await self.ready()
        await asyncio.to_thread(jobs.cancel_job, self._database, session, turn)

    def state(self) -> EngineState:
        return jobs.state_of(self._host.store)

    async def close(self, timeout: float) -> tuple[str, ...]:
        task = self._notifying
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            await task
        return ()
