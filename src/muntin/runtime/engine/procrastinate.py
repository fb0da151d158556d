"""The engine on procrastinate: wakes are jobs in the PostgreSQL that holds the timelines.

Owns how a turn becomes a job, how workers are notified, and that a new worker follows a worker
that lost the server. https://procrastinate.readthedocs.io
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any, cast

from muntin.core.checks import shown
from muntin.errors import InvalidInput, StoreError, needing
from muntin.runtime.engine import jobs as tables
from muntin.runtime.engine.protocol import EngineState, Host
from muntin.timeline.store import Store
from muntin.timeline.store.sql import SqlStore
from muntin.timeline.store.sql.database import Database

with needing("engine='procrastinate' needs: pip install 'muntin[engine]'"):
    from procrastinate import PsycopgConnector, exceptions, manager
    from procrastinate.jobs import Job

    from muntin.runtime.engine.worker import Lost, Worker

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
        self._ready = False
        self._preparing = Lock()
        self._manager = manager.JobManager(PsycopgConnector())
        # When workers were last notified, and the task that will notify them next.
        self._told = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._telling: asyncio.Task[None] | None = None

    def bind(self, host: Host) -> None:
        self._database = _database(host.store)
        self._host = host

    async def ready(self) -> None:
        if not self._ready:
            await asyncio.to_thread(self._prepare)

    def _prepare(self) -> None:
        with self._preparing:
            if not self._ready:
                tables.make_tables(self._database)
                self._ready = True

    # Waiting turns.

    def waits(self, tx: Any, session: str, turn: int, *, priority: int = 0) -> None:
        job = Job(
            id=None,
            queue=tables.queue_of(session.partition("/")[0]),
            lock=session,
            queueing_lock=None,
            task_name=tables.TASK,
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
        if self._loop is not loop:  # the old loop has ended, with its task
            self._loop, self._told, self._telling = loop, 0.0, None
        if self._telling is None:
            self._telling = loop.create_task(self._tell())

    async def _tell(self) -> None:
        """Notify the workers; turns stored meanwhile are in the next notification."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._told + NOTIFY_SECONDS - loop.time())
        self._told, self._telling = loop.time(), None
        with suppress(StoreError):  # workers poll too
            await asyncio.to_thread(tables.notify, self._database)

    def start(self) -> None:
        pass

    async def resume(self) -> tuple[str, ...]:
        """Make jobs for turns that wait without one: sent under another engine, or by hand."""
        await self.ready()
        return await asyncio.to_thread(self._adopt)

    def _adopt(self) -> tuple[str, ...]:
        found = [
            (session, turn)
            for session, turn in tables.without_job(self._database)
            if session.partition("/")[0] in self._host.kinds()
        ]
        for session, turn in found:
            self._database.transact(partial(self.waits, session=session, turn=turn))
        return tuple(session for session, _ in found)

    async def _adopt_on(self) -> None:
        """Look now and then for turns that were not sent through the engine."""
        while True:
            await asyncio.sleep(ADOPT_SECONDS)
            with suppress(StoreError):
                await self.resume()

    # Working.

    async def work(self, *, at_once: int, stop: asyncio.Event, timeout: float) -> tuple[str, ...]:
        adopting = asyncio.create_task(self._adopt_on())
        try:
            return await self._work(at_once, stop, timeout)
        finally:
            adopting.cancel()

    async def _work(self, at_once: int, stop: asyncio.Event, timeout: float) -> tuple[str, ...]:
        pause, longest = RETRY_SECONDS
        while not stop.is_set():
            began = asyncio.get_running_loop().time()
            try:
                await self.resume()
                worker = Worker(self._host, self._database.options, at_once)
                return await worker.run(stop, timeout)
            except (Lost, StoreError) as error:
                _log.warning("a worker lost the server, another follows: %s", error)
            if asyncio.get_running_loop().time() - began > longest:
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
        await asyncio.to_thread(tables.stop_running, self._database, session, turn)

    def state(self) -> EngineState:
        return tables.state_of(self._host.store)

    async def close(self, timeout: float) -> tuple[str, ...]:
        if self._telling is not None and self._loop is asyncio.get_running_loop():
            await self._telling
        return ()


def _database(store: Store) -> Database:
    if isinstance(store, SqlStore) and store.database.kind == "postgresql":
        return store.database
    raise InvalidInput(
        f"engine='procrastinate' needs a store in PostgreSQL, not {shown(store.name)}; "
        "use engine='embedded' on one machine"
    )
