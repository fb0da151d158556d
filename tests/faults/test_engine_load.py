"""What an engine costs: a backlog that is long, workers that have nothing to do, many who send."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import psycopg
import pytest
from procrastinate import manager

from muntin import App, user
from muntin.runtime.ctx import Ctx, Wake
from muntin.runtime.engine.jobs import queue_of
from muntin.runtime.engine.procrastinate import Procrastinate
from muntin.runtime.engine.worker import _Connector
from muntin.timeline.items import draft_of
from tests.faults.conftest import times
from tests.reliability.server import Server, running_server

WAITING = times("WAITING", 20_000)
MOST = 5.5
"""How many transactions a second an idle worker may ask for."""


def made(url: str) -> App:
    app = App(url, engine=Procrastinate())

    @app.entity("e")
    async def handler(ctx: Ctx, wake: Wake) -> None:
        pass

    return app


def test_a_fetch_from_a_backlog_is_quick_however_many_wait(server: Server) -> None:
    def backlog(jobs: int) -> str:
        database, queue = server.new_database(), queue_of("e")
        asyncio.run(made(server.url(database))._wakes.engine.ready())
        server.ask(
            "INSERT INTO procrastinate_jobs (queue_name, task_name, lock, args) SELECT "
            f"'{queue}', 'muntin.wake', 'e/' || n, '{{}}' FROM generate_series(1, {jobs}) n",
            database,
        )
        server.ask("ANALYZE procrastinate_jobs", database)
        return server.url(database)

    async def fetch(url: str) -> list[float]:
        took = []
        connect = psycopg.AsyncConnection.connect
        async with await connect(url, autocommit=True) as connection:
            jobs = manager.JobManager(_Connector(connection, connection))
            worker = await jobs.register_worker()
            for _ in range(100):
                began = time.perf_counter()
                assert await jobs.fetch_job(queues=[queue_of("e")], worker_id=worker) is not None
                took.append(time.perf_counter() - began)
        return took

    # What a busy machine adds is not the fetch's: the quickest of a hundred, beside few that wait.
    few, many = (min(asyncio.run(fetch(backlog(jobs)))) for jobs in (200, WAITING))
    assert many < 4 * few + 0.002


def test_a_worker_with_nothing_to_do_asks_little_of_its_server(server: Server) -> None:
    database = server.new_database()
    seconds = times("IDLE", 3)
    done = (
        "SELECT pg_stat_force_next_flush(), xact_commit + xact_rollback FROM pg_stat_database "
        f"WHERE datname = '{database}'"
    )

    async def work() -> list[float]:
        app = made(server.url(database))
        stop = asyncio.Event()
        working = asyncio.create_task(app.work(stop=stop))
        await asyncio.sleep(2)
        rates: list[float] = []
        while len(rates) < 5 and not any(each < MOST for each in rates):
            before, began = (await asyncio.to_thread(server.ask, done))[0][1], time.monotonic()
            await asyncio.sleep(seconds)
            after = (await asyncio.to_thread(server.ask, done))[0][1]
            rates.append((after - before) / (time.monotonic() - began))
        stop.set()
        await working
        await app.close()
        return rates

    # A server may count late what was done while the worker began, and may vacuum: some period
    # of five shows what the worker alone asks for.
    rates = asyncio.run(work())
    assert min(rates) < MOST, rates


@pytest.fixture
def syncing() -> Iterator[Server]:
    """Return a server that waits for its disk."""
    with running_server() as running:
        yield running


def test_many_who_send_to_a_slow_disk_share_its_commits(syncing: Server) -> None:
    """A notification within a commit would hold one lock for all of them: each waited alone."""
    database = syncing.new_database()
    syncing.ask(f"ALTER DATABASE {database} SET commit_delay = 100000")
    syncing.ask(f"ALTER DATABASE {database} SET commit_siblings = 0")
    app = made(syncing.url(database))
    engine: Any = app._wakes.engine
    asyncio.run(engine.ready())

    def send(entity: str) -> None:
        session = app.session(entity, mend=False)
        draft = session.draft(draft_of(user("hello"), opens="inbox"))
        app.store.append(entity, [draft], begun=engine.waits)

    alone = rate(1, send)
    together = rate(32, send)
    print(f"{alone:.0f} sends a second alone, {together:.0f} of 32")
    assert together > 3 * alone


def rate(threads: int, send: Callable[[str], None], seconds: float = 2.0) -> float:
    """Return how often a second so many threads send, each to an entity that is new."""
    sent = [0] * threads
    end = time.monotonic() + seconds

    def work(number: int) -> None:
        for message in count():
            if time.monotonic() > end:
                return
            send(f"e/{threads}-{number}-{message}")
            sent[number] += 1

    running = [threading.Thread(target=partial(work, number)) for number in range(threads)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    return sum(sent) / seconds
