"""A worker of procrastinate's jobs: fetches, runs, ends; lives as long as its connection.

Written on procrastinate's job manager, because procrastinate's own worker keeps jobs that it no
longer runs when the server was lost, ends with the first of its side tasks, and never gives back
the jobs of dead workers.

A worker holds a lock of its connection. When its process dies, or its connection, PostgreSQL
drops the lock, and the other workers give its jobs back within half a second. A process that
hangs keeps its lock: its jobs are given back when its heartbeat was not heard.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, cast

import psycopg
from procrastinate import manager
from procrastinate.connector import BaseAsyncConnector
from procrastinate.jobs import Job
from psycopg.rows import dict_row

from muntin.errors import StoreError
from muntin.runtime.engine.jobs import CHANNEL, TASK, queue_of
from muntin.runtime.engine.protocol import (
    POLL_SECONDS,
    SILENT_SECONDS,
    STOP_SECONDS,
    Again,
    Host,
)
from muntin.runtime.engine.timers import release_timers

# How often to look for dead workers, to look for silent workers, and to send a heartbeat.
REAP_SECONDS, PRUNE_SECONDS, HEARTBEAT_SECONDS = 0.5, 5.0, 10.0
# How long a turn waits after its wake could not reach the store: twice as long each time.
BACK_OFF_SECONDS, LONGEST_SECONDS = 1.0, 30.0

# A machine that lost its power is noticed after about half a minute.
_ALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
# Settings of each connection of a worker. A server without statistics of its jobs would sort all
# of them for each fetch; without sorting it reads the first job by procrastinate's index.
SETTINGS = (
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; "
    "SET enable_sort = off"
)
# One key for each worker of each set of tables; a database may hold several.
_KEY = "(('procrastinate_workers'::regclass::oid::bigint << 32) | {})"
_LOCK = f"SELECT pg_advisory_lock({_KEY.format('%s::bigint')})"
_MINE = "WHERE id = %s AND status = 'doing' AND worker_id = %s"
_END = f"DELETE FROM procrastinate_jobs {_MINE}"
_GIVE_BACK = f"""
UPDATE procrastinate_jobs SET status = 'todo', worker_id = NULL, abort_requested = false,
    attempts = attempts + %s, scheduled_at = now() + make_interval(secs => %s) {_MINE}"""
# Jobs of dead workers: their lock is free, or their row was removed.
_REAP = f"""
WITH busy AS MATERIALIZED (
    SELECT DISTINCT worker_id FROM procrastinate_jobs
    WHERE status = 'doing' AND task_name = '{TASK}' AND worker_id IS NOT NULL AND worker_id <> %s),
dead AS MATERIALIZED (
    SELECT worker_id FROM busy WHERE pg_try_advisory_xact_lock({_KEY.format("worker_id")}))
UPDATE procrastinate_jobs SET status = 'todo', worker_id = NULL, abort_requested = false,
    scheduled_at = NULL
WHERE status = 'doing' AND task_name = '{TASK}'
    AND (worker_id IS NULL OR worker_id IN (SELECT worker_id FROM dead)) RETURNING id"""

_log = logging.getLogger(__name__)


class Lost(Exception):
    """The worker lost the server, and stopped."""


class Worker:
    """Runs jobs, `at_once` of them side by side, until it is stopped or loses the server."""

    def __init__(self, host: Host, options: Mapping[str, Any], at_once: int) -> None:
        self._host = host
        self._options = {**_ALIVE, **options}
        self._at_once = at_once
        self._running: dict[asyncio.Task[None], Job] = {}
        self._busy: Counter[str] = Counter()  # by type
        # Set when there may be a job to fetch.
        self._bell = asyncio.Event()
        self._stopped: set[int | None] = set()

    async def run(self, stop: asyncio.Event, timeout: float) -> tuple[str, ...]:
        """Work until told to stop; return the sessions whose wakes had to be stopped then.

        Raises `Lost` if the server was lost: all wakes were stopped, other workers run the jobs.
        """
        async with AsyncExitStack() as stack:
            try:
                connection = await self._connect(stack)
                listening = await self._connect(stack)
                self._manager = manager.JobManager(_Connector(connection))
                self._connection = connection
                self._id = await self._manager.register_worker()
                await connection.execute(_LOCK, [self._id])
                await listening.execute(f'LISTEN "{CHANNEL}"')
                return await self._run(listening, stop, timeout)
            except psycopg.Error as error:
                raise Lost(str(error).partition("\n")[0]) from error
            finally:
                await self._cancel(list(self._running))

    async def _connect(self, stack: AsyncExitStack) -> psycopg.AsyncConnection[Any]:
        connection = await psycopg.AsyncConnection.connect(**self._options, autocommit=True)
        stack.push_async_callback(connection.close)
        await connection.execute(SETTINGS)
        return connection

    async def _run(
        self, listening: psycopg.AsyncConnection[Any], stop: asyncio.Event, timeout: float
    ) -> tuple[str, ...]:
        """Fetch and run jobs, with the side tasks; the first task that fails ends all."""
        sides = [
            asyncio.create_task(each)
            for each in (
                self._listen(listening),
                _every(HEARTBEAT_SECONDS, self._heartbeat),
                _every(PRUNE_SECONDS, self._prune),
                _every(REAP_SECONDS, self._reap),
                release_timers(self._host),
            )
        ]
        work = asyncio.create_task(self._work(stop, timeout))
        try:
            await asyncio.wait([work, *sides], return_when=asyncio.FIRST_COMPLETED)
            for task in (*sides, work):
                if task.done():
                    task.result()
            return work.result()
        finally:
            await self._cancel([work, *sides])

    async def _cancel(self, tasks: list[asyncio.Task[Any]]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_SECONDS)
        for task in tasks:
            if task.done() and not task.cancelled():
                task.exception()  # mark the exception as seen

    # Fetching.

    async def _work(self, stop: asyncio.Event, timeout: float) -> tuple[str, ...]:
        stopping = asyncio.create_task(stop.wait())
        while not stop.is_set():
            self._bell.clear()
            await self._fetch(stop)
            rung = asyncio.create_task(self._bell.wait())
            waits = [rung, stopping, *self._failed()]
            await asyncio.wait(waits, timeout=POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            rung.cancel()
            for task in self._failed():
                task.result()
        return await self._wind_up(timeout)

    def _failed(self) -> list[asyncio.Task[None]]:
        """Return the jobs whose end could not be written."""
        return [task for task in self._running if task.done()]

    async def _fetch(self, stop: asyncio.Event) -> None:
        while len(self._running) < self._at_once and not stop.is_set():
            queues = self._queues()
            if not queues:
                return
            job = await self._manager.fetch_job(queues=queues, worker_id=self._id)
            if job is None:
                return
            self._busy[job.queue] += 1
            task = asyncio.create_task(self._do(job))
            self._running[task] = job
            task.add_done_callback(self._done)

    def _queues(self) -> list[str]:
        """Return the queues of the types that are known here and have room."""
        found = []
        for kind in self._host.kinds():
            limit, queue = self._host.at_once(kind), queue_of(kind)
            if limit is None or self._busy[queue] < limit:
                found.append(queue)
        return found

    def _done(self, task: asyncio.Task[None]) -> None:
        job = self._running[task]
        self._busy[job.queue] -= 1
        # Fetch jobs that waited for this lock; stop if the end of a job could not be written.
        self._bell.set()
        if task.cancelled() or task.exception() is None:
            del self._running[task]

    async def _wind_up(self, timeout: float) -> tuple[str, ...]:
        """Let running jobs come to an end, give the rest back, and sign off."""
        if self._running:
            await asyncio.wait(self._running, timeout=timeout)
        left = tuple(str(job.lock) for job in self._running.values())
        for session in left:
            _log.warning("stopped while %r was being handled; another worker resumes it", session)
        await self._cancel(list(self._running))
        await self._manager.unregister_worker(self._id)
        if left:
            await self._connection.execute("SELECT pg_notify(%s, %s)", [CHANNEL, _INSERTED])
        return left

    # Running.

    async def _do(self, job: Job) -> None:
        """Run the turn of a job, and end the job or give it back."""
        session, turn = str(job.lock), cast("int", job.task_kwargs["turn"])
        after, failed = None, 0
        try:
            await self._host.run(session, turn, sure=True)
        except Again as again:
            after = again.after
        except asyncio.CancelledError:
            if job.id not in self._stopped:
                after = 0.0
        except Exception as error:
            # A store that is away. Any other error is a bug of Muntin's; the turn stays.
            level = logging.WARNING if isinstance(error, StoreError) else logging.ERROR
            _log.log(level, "%r is handled later: %s", session, error, exc_info=level > 30)
            after, failed = min(BACK_OFF_SECONDS * 2**job.attempts, LONGEST_SECONDS), 1
        self._stopped.discard(job.id)
        if after is None:
            await self._connection.execute(_END, [job.id, self._id])
            return
        await self._connection.execute(_GIVE_BACK, [failed, after, job.id, self._id])
        asyncio.get_running_loop().call_later(after, self._bell.set)

    # Side tasks.

    async def _listen(self, connection: psycopg.AsyncConnection[Any]) -> None:
        async for notice in connection.notifies():
            found = json.loads(notice.payload)
            if found.get("type") == "abort_job_requested":
                self._stop(found["job_id"])
            else:
                self._bell.set()
        raise psycopg.OperationalError("the connection that listens was closed")

    def _stop(self, job_id: int) -> None:
        """Stop the wake of a turn that was cancelled."""
        for task, job in self._running.items():
            if job.id == job_id:
                self._stopped.add(job_id)
                task.cancel()

    async def _heartbeat(self) -> None:
        await self._manager.update_heartbeat(self._id)

    async def _prune(self) -> None:
        await self._manager.prune_stalled_workers(SILENT_SECONDS)

    async def _reap(self) -> None:
        cursor = await self._connection.execute(_REAP, [self._id])
        found = await cursor.fetchall()
        if found:
            _log.warning("resumed the wakes of workers that are gone: %d", len(found))
            self._bell.set()


_INSERTED = json.dumps({"type": "job_inserted", "job_id": 0})


async def _every(seconds: float, work: Any) -> None:
    while True:
        await work()
        await asyncio.sleep(seconds)


class _Connector(BaseAsyncConnector):
    """One connection: if it is lost, the server is lost."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    async def execute_query_async(self, query: Any, **arguments: Any) -> None:
        await self._connection.execute(query, arguments)

    async def execute_query_one_async(self, query: Any, **arguments: Any) -> dict[str, Any]:
        async with self._connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(query, arguments)
            return await cursor.fetchone() or {}

    async def execute_query_all_async(self, query: Any, **arguments: Any) -> list[dict[str, Any]]:
        async with self._connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(query, arguments)
            return await cursor.fetchall()
