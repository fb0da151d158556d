"""Engines: how soon a wake begins, how many a second, and what waits and idles cost.

    python bench/engine.py [--short] [--out FILE]

On a PostgreSQL of its own, from a wheel; the embedded engine beside procrastinate, both on that
server. Idle wakes are sent by another process than the one that handles them. Wakes are empty, so
that what is measured is the engine; and they take half a second, as a model does, for scaling.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.measure import Figure, run
from muntin import App, Wake
from muntin.runtime.ctx import Ctx
from muntin.runtime.engine import Embedded, as_engine
from muntin.runtime.engine.jobs import queue_of
from muntin.runtime.engine.worker import SETTINGS
from muntin.timeline.store import open_store
from muntin.timeline.store.sql import Store
from tests.reliability.server import Server, running_server

# Workers and the server share them: with more workers than cores, these are what is measured.
CORES = os.cpu_count() or 1


class Elsewhere(Embedded):
    """The engine of a process that sends, and leaves handling to others."""

    def start(self) -> None:
        """Handle nothing."""

    def stored(self, session: str, turn: int) -> None:
        """Leave it to others."""


def sender(url: str, engine: str) -> App:
    """Return an app that only sends."""
    app = App(url, engine=Elsewhere() if engine == "embedded" else as_engine(engine))

    @app.entity("e")
    async def handler(ctx: Ctx, wake: Wake) -> None:
        """Handle nothing."""

    return app


# The process that handles: `python bench/engine.py --worker URL ENGINE SECONDS`.


def work(url: str, engine: str, seconds: str) -> None:
    """Be a worker: say when each wake begins, and, if it takes no time, nothing else."""
    app = App(url, engine=engine, keep_reports=0)

    @app.entity("e")
    async def handler(ctx: Ctx, wake: Wake) -> None:
        print(time.time(), flush=True)
        await asyncio.sleep(float(seconds))

    async def main() -> None:
        print("ready", flush=True)
        await app.work(concurrency=20)

    asyncio.run(main())


def started(url: str, engine: str, seconds: float, number: int) -> list[subprocess.Popen[str]]:
    """Start workers, and return them when they are ready."""
    command = [sys.executable, __file__, "--worker", url, engine, str(seconds)]
    found = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(number)]
    for process in found:
        assert process.stdout is not None
        process.stdout.readline()
    time.sleep(1.5)
    return found


def ended(workers: list[subprocess.Popen[str]]) -> None:
    """Kill workers."""
    for process in workers:
        process.kill()
        process.communicate()


# Measuring.


def idle(url: str, engine: str, rounds: int) -> list[float]:
    """Return how long after its commit each wake of an idle entity began, elsewhere."""
    workers = started(url, engine, 0.0, 1)
    out = workers[0].stdout
    assert out is not None
    seconds = []

    async def main() -> None:
        app = sender(url, engine)
        for number in range(rounds):
            await app.send(f"e/{number % 10}", "hello")
            stored = time.time()
            began = float((await asyncio.to_thread(out.readline)).strip())
            seconds.append(began - stored)
            await asyncio.sleep(0.05)
        await app.close()

    asyncio.run(main())
    ended(workers)
    return seconds


def backlog(url: str, engine: str, seconds: float, number: int, wakes: int) -> float:
    """Return how many wakes a second so many workers handle of those that wait."""

    async def main() -> None:
        app = sender(url, engine)
        for each in range(wakes):
            await app.send(f"e/{each}", "hello")
        await app.close()

    asyncio.run(main())
    command = [sys.executable, __file__, "--worker", url, engine, str(seconds)]
    with open_store(url) as store:
        workers = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(number)]
        while store.backlog().running == 0:  # the time that programs take to start is not theirs
            time.sleep(0.002)
        began, left = time.perf_counter(), store.backlog().waiting
        while [info.id for info in store.sessions(waiting=True, limit=1)]:
            time.sleep(0.01)
        taken = time.perf_counter() - began
    for process in workers:
        process.kill()
        process.wait()
    return left / taken


def transactions(server: Server, database: str) -> int:
    """Return how many transactions a database has had."""
    statement = f"SELECT xact_commit FROM pg_stat_database WHERE datname = '{database}'"
    return int(server.ask(statement)[0][0])


def idle_cost(server: Server, database: str, engine: str, seconds: float) -> float:
    """Return how many transactions a second an idle worker makes."""
    workers = started(server.url(database), engine, 0.0, 1)
    time.sleep(2)
    before = transactions(server, database)
    time.sleep(seconds)
    made = (transactions(server, database) - before) / seconds
    ended(workers)
    return made


def entities(server: Server, database: str, number: int) -> None:
    """Make so many entities that have been handled and are idle."""
    statements = (
        """INSERT INTO muntin_sessions (name, head, turn, total, created, updated)
           SELECT 'e/idle' || n, 1, 1, 0, 0, 0 FROM generate_series(1, {n}) n""",
        """INSERT INTO muntin_turns (session, number, status, first)
           SELECT id, 1, 'completed', 1 FROM muntin_sessions WHERE name LIKE 'e/idle%'""",
        "ANALYZE",
    )
    for statement in statements:
        server.ask(statement.format(n=number), database)


def fetch(server: Server, database: str, waiting: int) -> tuple[float, float]:
    """Return the seconds of one fetch from so many jobs that wait, each of another session, and
    those of a bare commit; in turns, on a connection that is set up as a worker's."""
    server.ask(
        f"""INSERT INTO procrastinate_jobs (queue_name, task_name, lock, args)
            SELECT '{queue_of("e")}', 'muntin.wake', 'e/' || n,
                jsonb_build_object('session', 'e/' || n, 'turn', 1)
            FROM generate_series(1, {waiting}) n""",
        database,
    )
    worker = server.ask("SELECT * FROM procrastinate_register_worker_v1()", database)[0][0]
    statement = f"SELECT id FROM procrastinate_fetch_job_v2(ARRAY['{queue_of('e')}'], {worker})"
    import psycopg

    server.ask("CREATE TABLE bare (id INTEGER PRIMARY KEY, n INTEGER)", database)
    server.ask("INSERT INTO bare VALUES (1, 0)", database)
    works = (statement, "UPDATE bare SET n = n + 1 WHERE id = 1 RETURNING n")
    taken: tuple[list[float], ...] = ([], [])
    with psycopg.connect(server.url(database), autocommit=True) as connection:
        connection.execute(SETTINGS)
        for _ in range(200):
            for work, seconds in zip(works, taken, strict=True):
                began = time.perf_counter()
                connection.execute(work).fetchone()
                seconds.append(time.perf_counter() - began)
    fetched, bare = (median(each[10:]) for each in taken)
    return fetched, bare


def measure(short: bool) -> Iterator[Figure]:
    """Measure both engines on one server."""
    with running_server() as server:
        yield from _latency(server, 3 if short else 60)
        yield from _throughput(server, (1,) if short else (1, 2, 4), 10 if short else 1_000)
        if not short:
            yield from _scaling(server, 400)
        yield from _idle(server, 200 if short else 100_000, 1 if short else 8)


def _latency(server: Server, rounds: int) -> Iterator[Figure]:
    taken = {
        engine: idle(server.url(server.new_database()), engine, rounds)
        for engine in ("procrastinate", "embedded")
    }
    late = quantiles(taken["procrastinate"], n=20)[-1]
    yield Figure(
        work="an idle wake, sent by another process",
        peer="the embedded engine, whose processes look once a second",
        ours=median(taken["procrastinate"]),
        theirs=median(taken["embedded"]),
        at_most=0.5,
        note=f"95 % within {late * 1e3:.1f} ms; aim: a median of 20 ms",
    )


def _throughput(server: Server, sizes: tuple[int, ...], wakes: int) -> Iterator[Figure]:
    for number in sizes:
        rates = {
            engine: backlog(server.url(server.new_database()), engine, 0.0, number, wakes)
            for engine in ("procrastinate", "embedded")
        }
        yield Figure(
            work=f"one of {wakes} empty wakes that wait, {number} workers, {CORES} cores",
            peer="the embedded engine",
            ours=1 / rates["procrastinate"],
            theirs=1 / rates["embedded"],
            note=f"{rates['procrastinate']:.0f} a second, embedded {rates['embedded']:.0f}",
        )


def _scaling(server: Server, wakes: int) -> Iterator[Figure]:
    rates = {
        number: backlog(server.url(server.new_database()), "procrastinate", 0.5, number, wakes)
        for number in (1, 2, 4)
    }
    for number in (2, 4):
        yield Figure(
            work=f"wakes of half a second, {number} workers of 20, {CORES} cores",
            peer="one worker",
            ours=rates[number],
            theirs=rates[1],
            unit="a second",
            at_least=0.6 * number if number <= CORES else None,
            note=f"{rates[number]:.0f} a second, of at most {40 * number}",
        )


def _idle(server: Server, number: int, seconds: float) -> Iterator[Figure]:
    for engine in ("procrastinate", "embedded"):
        few, many = server.new_database(), server.new_database()
        for database in (few, many):
            asyncio.run(_prepared(server.url(database), engine))
        entities(server, many, number)
        yield Figure(
            work=f"transactions of an idle worker, {engine}, {number:,} idle entities",
            peer="none",
            ours=idle_cost(server, many, engine, seconds),
            theirs=idle_cost(server, few, engine, seconds),
            unit="a second",
            at_most=1.5,
        )
    waits = server.new_database()
    asyncio.run(_prepared(server.url(waits), "procrastinate"))
    fetched, bare = fetch(server, waits, number)
    yield Figure(
        work=f"a fetch with {number:,} jobs that wait",
        peer="psycopg, one commit",
        ours=fetched,
        theirs=bare,
        at_most=4,
    )


async def _prepared(url: str, engine: str) -> None:
    app = sender(url, engine)
    assert isinstance(app.store, Store)
    await app.resume()
    app.store.sessions()
    await app.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work(*sys.argv[2:])
    else:
        run(__doc__, measure)
