"""A worker of procrastinate, with what its own lacks.

Procrastinate's worker fetches, runs, retries, listens and aborts. Left alone it would lose or
double wakes, so this one adds:

- It gives back the jobs of dead workers. Each worker holds a lock of its connection; when its
  process or connection dies, PostgreSQL drops the lock, and the others give its jobs back within
  half a second. A process that hangs keeps its lock, and is found by its missing heartbeat.
- It lives as long as its connection: without it, other workers run its wakes, so it stops them.
- It ends only its own jobs. Procrastinate lets a worker that hung end the job of its follower.
- A job that ends lets the next one of its session begin at once, not at the next poll.
- It beats until its last wake is over. Procrastinate's goes silent when it is told to stop.
- A type of entities may have fewer places than the worker.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from typing import Any

import procrastinate
import psycopg
from procrastinate.connector import BaseAsyncConnector, Notify
from procrastinate.job_context import AbortReason
from procrastinate.jobs import Job, JobInserted, Status
from procrastinate.manager import JobManager, NotificationCallback
from procrastinate.worker import Worker
from psycopg.rows import dict_row

from muntin.core.checks import shown
from muntin.errors import InvalidInput, InvalidType
from muntin.runtime.engine.jobs import TASK, queue_of
from muntin.runtime.engine.protocol import (
    POLL_SECONDS,
    SILENT_SECONDS,
    STOP_SECONDS,
    Again,
    Host,
)

# How often to look for dead workers; how often to send a heartbeat, and to look for silent workers.
REAP_SECONDS, HEARTBEAT_SECONDS = 0.5, 5.0
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
_LOCK = f"SELECT pg_advisory_lock({_KEY.format('%(worker)s::bigint')})"
_MINE = """
(SELECT id FROM procrastinate_jobs
WHERE id = %(job)s AND worker_id = %(worker)s AND status = 'doing' FOR UPDATE) AS mine"""
_FINISH = f"SELECT procrastinate_finish_job_v1(id, %(status)s, %(delete)s) FROM {_MINE}"
_RETRY = f"""
SELECT procrastinate_retry_job_v2(id, now() + make_interval(secs => %(seconds)s), NULL, NULL, NULL)
FROM {_MINE}"""
# Jobs of dead workers: their lock is free, or their row was removed.
_REAP = f"""
WITH busy AS MATERIALIZED (
    SELECT DISTINCT worker_id FROM procrastinate_jobs
    WHERE status = 'doing' AND task_name = '{TASK}' AND worker_id <> %(worker)s),
dead AS MATERIALIZED (
    SELECT worker_id FROM busy WHERE pg_try_advisory_xact_lock({_KEY.format("worker_id")}))
UPDATE procrastinate_jobs SET status = 'todo', worker_id = NULL, abort_requested = false,
    scheduled_at = NULL
WHERE status = 'doing' AND task_name = '{TASK}'
    AND (worker_id IS NULL OR worker_id IN (SELECT worker_id FROM dead)) RETURNING id"""

_log = logging.getLogger(__name__)


async def run_worker(
    host: Host, options: Mapping[str, Any], at_once: int, stop: asyncio.Event, timeout: float
) -> tuple[str, ...]:
    """Work until told to stop; return the sessions whose wakes had to be stopped then.

    Raises an error of psycopg if the server was lost: all wakes were stopped by then.
    """
    async with AsyncExitStack() as stack:
        connections = []
        for _ in ("statements", "notifications"):
            connect = psycopg.AsyncConnection.connect(**{**_ALIVE, **options}, autocommit=True)
            connections.append(await stack.enter_async_context(await connect))
            await connections[-1].execute(SETTINGS)
        connector = _Connector(*connections)
        app = procrastinate.App(connector=connector)
        app.job_manager = jobs = _Jobs(connector, host)
        app.task(name=TASK, pass_context=True, retry=_Retries())(jobs.run)
        worker = Worker(
            app,
            concurrency=at_once,
            fetch_job_polling_interval=POLL_SECONDS,
            update_heartbeat_interval=HEARTBEAT_SECONDS,
            stalled_worker_timeout=SILENT_SECONDS,
            delete_jobs="successful",
            install_signal_handlers=False,
        )
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(worker.run()),  # type: ignore[no-untyped-call]
            asyncio.create_task(jobs.reap()),
            asyncio.create_task(host.release_timers()),
        ]
        winding_up = asyncio.create_task(jobs.wind_up(stop, timeout))
        parts = [connector.lost, *tasks, winding_up]
        for part in parts:  # the first error is raised; asyncio would log the others
            part.add_done_callback(lambda part: part.cancelled() or part.exception())
        try:
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in parts:
                if part.done():
                    part.result()
            if winding_up.done():
                return winding_up.result()
            raise psycopg.OperationalError("procrastinate's worker ended by itself")
        finally:
            worker.shutdown_graceful_timeout = 0
            worker.stop()  # type: ignore[no-untyped-call]
            for task in (*tasks[1:], winding_up):
                task.cancel()
            await asyncio.wait(parts[1:], timeout=STOP_SECONDS)


class _Connector(BaseAsyncConnector):
    """The connection of a worker, and another that listens: if one is lost, the worker is."""

    def __init__(
        self,
        connection: psycopg.AsyncConnection[Any],
        listening: psycopg.AsyncConnection[Any],
    ) -> None:
        self._connection, self._listening = connection, listening
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def execute_query_async(self, query: Any, **arguments: Any) -> None:
        await self.execute_query_all_async(query, **arguments)

    async def execute_query_one_async(self, query: Any, **arguments: Any) -> dict[str, Any]:
        return (await self.execute_query_all_async(query, **arguments))[0]

    async def execute_query_all_async(self, query: Any, **arguments: Any) -> list[dict[str, Any]]:
        try:
            async with self._connection.cursor(row_factory=dict_row) as cursor:
                await cursor.execute(query, arguments)
                return await cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            self._lose(error)
            raise

    async def listen_notify(self, on_notification: Notify, channels: Iterable[str]) -> None:
        try:
            for channel in channels:
                await self._listening.execute(f'LISTEN "{channel}"')
            async for notice in self._listening.notifies():
                await on_notification(channel=notice.channel, payload=notice.payload)
            raise psycopg.OperationalError("the connection that listens was closed")
        except Exception as error:
            self._lose(error)

    def _lose(self, error: Exception) -> None:
        if not self.lost.done():
            self.lost.set_exception(error)


class _Jobs(JobManager):
    """The jobs of one worker."""

    connector: _Connector

    def __init__(self, connector: _Connector, host: Host) -> None:
        super().__init__(connector)
        self._host = host
        self._worker_id = 0
        self._running: dict[int | None, Job] = {}
        self._is_stopping = False
        self._on_notification: NotificationCallback | None = None

    async def register_worker(self) -> int:
        self._worker_id = await super().register_worker()
        await self.connector.execute_query_async(_LOCK, worker=self._worker_id)
        return self._worker_id

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Job | None:
        """Fetch a job of a type that is known here and has room."""
        busy = Counter(job.queue for job in self._running.values())
        handlers = self._host.handlers.items()
        limits = {queue_of(kind): handler.at_once for kind, handler in handlers}
        free = [queue for queue, most in limits.items() if most is None or busy[queue] < most]
        if self._is_stopping or not free:
            return None
        job = await super().fetch_job(free, worker_id)
        if job is None:
            return None
        if not isinstance(job.task_kwargs, dict):  # the worker could not even name the job
            job = job.evolve(task_kwargs={"args": job.task_kwargs})
        self._running[job.id] = job
        return job

    async def listen_for_jobs(
        self, *, on_notification: NotificationCallback, queues: Iterable[str] | None = None
    ) -> None:
        self._on_notification = on_notification
        await super().listen_for_jobs(on_notification=on_notification)

    def _fetch_soon(self) -> None:
        """Have the worker fetch now, as if a job had been inserted, rather than when it polls."""
        if self._on_notification is not None:
            inserted: JobInserted = {"type": "job_inserted", "job_id": 0}
            notifying = self._on_notification(channel="", notification=inserted)
            self._notifying = asyncio.ensure_future(notifying)  # a reference, as asyncio asks

    async def run(self, context: procrastinate.JobContext, /, **args: Any) -> None:
        """Run the turn of a job."""
        session, turn = args.get("session"), args.get("turn")
        if not (
            isinstance(session, str)
            and type(turn) is int
            and 0 < turn < 2**63
            and context.job.lock == session
            and context.job.queue == queue_of(session)
        ):
            raise InvalidInput(f"the job is no wake: its arguments are {shown(args)}")
        try:
            await self._host.run(session, turn, sure=True)
        except asyncio.CancelledError:
            if context.abort_reason() is not AbortReason.USER_REQUEST:
                raise

    async def finish_job(self, job: Job, status: Status, delete_job: bool) -> None:
        await self._end(job, _FINISH, status=status.value, delete=delete_job)

    async def retry_job(
        self, job: Job, retry_at: datetime | None = None, *unused: Any, **none: Any
    ) -> None:
        # By the server's clock, which may differ from this one.
        seconds = (retry_at - datetime.now(UTC)).total_seconds() if retry_at else 0.0
        await self._end(job, _RETRY, seconds=max(seconds, 0.0))
        asyncio.get_running_loop().call_later(max(seconds, 0.0), self._fetch_soon)

    async def _end(self, job: Job, statement: str, **arguments: Any) -> None:
        """End a job as long as it is this worker's, and fetch jobs that waited for its lock."""
        with suppress(psycopg.Error):  # the worker is lost, and others run the job
            await self.connector.execute_query_async(
                statement, job=job.id, worker=self._worker_id, **arguments
            )
        del self._running[job.id]
        self._fetch_soon()

    async def wind_up(self, stop: asyncio.Event, timeout: float) -> tuple[str, ...]:
        """Wait until told to stop; then fetch nothing, and let running jobs come to an end.

        Returns the sessions of the jobs that still run after `timeout` seconds.
        """
        await stop.wait()
        self._is_stopping = True
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._running:
                    await asyncio.sleep(0.01)
        unfinished = tuple(str(job.lock) for job in self._running.values())
        for session in unfinished:
            _log.warning("stopped while %r was being handled; another worker resumes it", session)
        return unfinished

    async def update_heartbeat(self, worker_id: int) -> None:
        """Beat, and remove workers that are silent; procrastinate looks when a worker begins."""
        await super().update_heartbeat(worker_id)
        await self.prune_stalled_workers(SILENT_SECONDS)

    async def reap(self) -> None:
        """Give back the jobs of dead workers, again and again."""
        while True:
            await asyncio.sleep(REAP_SECONDS)
            jobs = await self.connector.execute_query_all_async(_REAP, worker=self._worker_id)
            if jobs:
                _log.warning("resumed the wakes of workers that are gone: %d", len(jobs))
                self._fetch_soon()


class _Retries(procrastinate.BaseRetryStrategy):
    """When a job is tried again: a turn that cannot run yet, a store that is away, a stop.

    A job that is no wake fails, and is kept for whoever looks.
    """

    def get_retry_decision(
        self, *, exception: BaseException, job: Job
    ) -> procrastinate.RetryDecision | None:
        if isinstance(exception, InvalidInput | InvalidType):
            return None
        seconds = 0.0
        if isinstance(exception, Again):
            seconds = exception.after
        elif not isinstance(exception, asyncio.CancelledError):
            seconds = min(BACK_OFF_SECONDS * 2 ** min(job.attempts, 10), LONGEST_SECONDS)
            _log.warning("%r is handled in %.1f s: %s", job.lock, seconds, exception)
        return procrastinate.RetryDecision(retry_in={"microseconds": int(seconds * 1e6)})
