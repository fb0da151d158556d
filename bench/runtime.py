"""The runtime: what one wake and one turn of a conversation cost, beside the same number of bare
commits of a write-ahead log, on SQLite and on PostgreSQL.

    python bench/runtime.py [--short] [--out FILE] [--profile]

One wake: a message is sent, a window of 8,000 tokens is composed from a long timeline of recorded
conversations, a scripted model answers, all of it is recorded. In five commits: the message, the
taking of the turn, the begin of the run, the answer, the end of the turn; where the handler returns
its agent the last two are one. A turn of a conversation does the same in three. Every figure is a
ratio of two medians measured in turns, because machines are noisy. The report of each window is
kept, which is the default, unless it says otherwise. How quick a commit is depends on the disk: a
wake's own work shows on a quick one, and in its processor time. PostgreSQL is one of its own, from
a wheel.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import pstats
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import cache, partial
from itertools import count, islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeAlias

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.measure import Figure, options, publish
from muntin import App, Message, Session, Source, Wake
from muntin.runtime.ctx import Ctx
from muntin.runtime.entity_agent import Agent
from muntin.testing import ScriptedModel
from muntin.timeline.store.sql import Store
from tests.reliability.server import Server, running_server

TRACES = Path(__file__).parent.parent / "tests" / "data" / "airline-traces.jsonl"
TEXT = "The flight from Boston to Seattle on May 20 is full; the next one leaves at 11:35. " * 3
BUDGET = 8_000


@cache
def recorded() -> list[list[dict[str, Any]]]:
    """Return the recorded conversations, without their system prompts."""
    lines = TRACES.read_text("utf-8").splitlines()
    return [json.loads(line)["messages"][1:] for line in lines]


def spoken() -> Iterator[Message]:
    """Yield the recorded conversations, one after another, no text twice."""
    for number in count():
        for given in recorded()[number % len(recorded())]:
            yield Message.from_dict({**given, "content": f"{given['content']} ({number})"})


def fill(store: Store, entity: str, items: int) -> None:
    """Put recorded conversations onto a timeline until it has so many items."""
    session, messages = Session(entity, store=store), spoken()
    for start in range(0, items, 2_000):
        session.append(*islice(messages, min(2_000, items - start)))


class Commits:
    """Counts the writing transactions of a store."""

    def __init__(self, store: Store) -> None:
        self.count = 0
        self._store = store
        self._transact = store.database.transact

    def __enter__(self) -> Commits:
        def transact(work: Callable[[Any], Any]) -> Any:
            self.count += 1
            return self._transact(work)

        self._store.database.transact = transact  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        self._store.database.transact = self._transact  # type: ignore[method-assign]


def entity_app(store: Store, keep_reports: int) -> App:
    """Return an app with two types of entities: the timeline in 8,000 tokens."""
    model = ScriptedModel(lambda window: TEXT[:200])
    app = App(store, model=model, keep_reports=keep_reports)

    def declared(ctx: Ctx) -> Agent:
        chat = Source(ctx.timeline_messages, max=BUDGET)
        ctx.use_context(source_budget=BUDGET, sources={"conversation": chat})
        return ctx.use_agent(system_prompt="You are Horton.")

    @app.entity("runs")
    async def runs(ctx: Ctx, wake: Wake) -> None:
        await declared(ctx).run()

    @app.entity("returns")
    async def returns(ctx: Ctx, wake: Wake) -> Agent:
        return declared(ctx)

    return app


# Bare commits.


def sqlite_commits(path: Path, journal: str) -> Callable[[int], None]:
    """Return what commits so often to a file with one table, through sqlite3 alone."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA journal_mode = {journal}")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, content TEXT)")
    return partial(commit, connection.execute, "BEGIN IMMEDIATE")


def postgres_commits(url: str) -> Callable[[int], None]:
    """Return what commits so often to one table, through psycopg alone."""
    import psycopg

    connection = psycopg.connect(url, autocommit=True)
    connection.execute("CREATE TABLE items (id BIGSERIAL PRIMARY KEY, content TEXT)")
    return partial(commit, connection.execute, "BEGIN")


def commit(execute: Callable[[str], Any], begin: str, times: int) -> None:
    """Write one row in each of so many transactions."""
    for _ in range(times):
        execute(begin)
        execute(f"INSERT INTO items (content) VALUES ('{TEXT[:200]}')")
        execute("COMMIT")


# Measuring.


class Taken(NamedTuple):
    """The median seconds that a work took, and the processor's."""

    seconds: float
    processor: float


Work: TypeAlias = Callable[[], Coroutine[Any, Any, Any]]


async def in_turns(works: Mapping[str, Work], rounds: int) -> dict[str, Taken]:
    """Return the medians of each kind of work, measured in turns."""
    times: dict[str, list[Taken]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            start = Taken(time.perf_counter(), time.process_time())
            await work()
            end = Taken(time.perf_counter(), time.process_time())
            times[name].append(Taken(*(b - a for a, b in zip(start, end, strict=True))))
    return {
        name: Taken(*(median(each) for each in zip(*taken, strict=True)))
        for name, taken in times.items()
    }


class Wakes:
    """The wakes and turns that are measured on one store, by what is said of them."""

    def __init__(self, store: Store, items: int) -> None:
        self._store = store
        self._apps = {keep: entity_app(store, keep) for keep in (0, 1_000)}
        for session in ("runs/0", "runs/1", "returns/1", "chat"):
            fill(store, session, items)
        self._chat = self._apps[1_000].conversation("chat", budget=BUDGET)
        self.works: dict[str, Work] = {
            "one wake, no report": partial(self._wake, 0, "runs/0"),
            "one wake": partial(self._wake, 1_000, "runs/1"),
            "one wake whose agent is returned": partial(self._wake, 1_000, "returns/1"),
            "one turn of a conversation": self._turn,
        }

    async def _wake(self, keep: int, entity: str) -> None:
        await self._apps[keep].ask(entity, TEXT[:120])
        self._forget()

    async def _turn(self) -> None:
        await self._chat.send(TEXT[:120])
        self._forget()

    def _forget(self) -> None:
        for app in self._apps.values():
            assert isinstance(app.model, ScriptedModel)
            del app.model.windows[:-1]  # no other model hoards them, and they burden the collector

    async def commits(self) -> dict[str, int]:
        """Return how often each commits; what is made once is made before."""
        counts = {}
        for name, work in self.works.items():
            for _ in range(3):
                await work()
            with Commits(self._store) as counted:
                await work()
            counts[name] = counted.count
        return counts

    async def close(self) -> None:
        """Let everything end."""
        for app in self._apps.values():
            await app.close()
        self._store.close()


async def on_sqlite(folder: Path, large: int, rounds: int, profiled: bool) -> list[Figure]:
    """Measure on SQLite; the same wake also on a short timeline."""
    wakes = Wakes(Store(f"sqlite:///{folder / 'large.db'}"), large)
    small = Wakes(Store(f"sqlite:///{folder / 'small.db'}"), 1_000)
    await small.commits()
    counts = await wakes.commits()
    logged = sqlite_commits(folder / "wal.db", "WAL")
    journal = sqlite_commits(folder / "journal.db", "DELETE")
    works = {**wakes.works, **bare(counts, logged)}
    works["small"] = small.works["one wake"]
    works["journal"] = off(journal, counts["one wake"])
    taken = await in_turns(works, rounds)
    if profiled:
        await profile(wakes.works["one wake"])
    await wakes.close()
    await small.close()
    beside = partial(Figure, work=f"one wake, {large:,} items", ours=taken["one wake"].seconds)
    return [
        *figures(taken, counts, f"{large:,} items", "sqlite3"),
        beside(
            peer=f"sqlite3, {counts['one wake']} commits, a rollback journal",
            theirs=taken["journal"].seconds,
            at_most=2.0,
        ),
        beside(peer="Muntin, 1,000 items", theirs=taken["small"].seconds, at_most=1.5),
    ]


async def on_postgres(server: Server, items: int, rounds: int) -> list[Figure]:
    """Measure on PostgreSQL."""
    wakes = Wakes(Store(server.url(server.new_database())), items)
    counts = await wakes.commits()
    logged = postgres_commits(server.url(server.new_database()))
    taken = await in_turns({**wakes.works, **bare(counts, logged)}, rounds)
    await wakes.close()
    return figures(taken, counts, f"{items:,} items, PostgreSQL", "psycopg")


def bare(counts: Mapping[str, int], commits: Callable[[int], None]) -> dict[str, Work]:
    """Return as many bare commits as each work has."""
    return {f"{times} commits": off(commits, times) for times in set(counts.values())}


def off(commits: Callable[[int], None], times: int) -> Work:
    """Return bare commits as a work."""

    async def work() -> None:
        commits(times)

    return work


def figures(
    taken: Mapping[str, Taken], counts: Mapping[str, int], said: str, driver: str
) -> list[Figure]:
    """Return each work beside its commits, and the processor time of a wake beside its aim."""
    found = [
        Figure(
            work=f"{name}, {said}",
            peer=f"{driver}, {times} commits with a write-ahead log",
            ours=taken[name].seconds,
            theirs=taken[f"{times} commits"].seconds,
            at_most=2.0,
        )
        for name, times in counts.items()
    ]
    processor = Figure(
        work=f"processor time of one wake, {said}",
        peer="the same in 3 ms, as is aimed at",
        ours=taken["one wake"].processor,
        theirs=0.003,
        at_most=1.0,
    )
    return [*found, processor]


async def profile(work: Work) -> None:
    """Show where a wake spends its time."""
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(50):
        await work()
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(35)
    pstats.Stats(profiler).sort_stats("cumtime").print_stats(45)


def main() -> None:
    """Run all and print one table."""
    parser = options(__doc__)
    parser.add_argument("--profile", action="store_true", help="show where a wake spends its time")
    arguments = parser.parse_args()
    large, rounds = (2_000, 3) if arguments.short else (100_000, 200)
    with tempfile.TemporaryDirectory() as name, running_server() as server:
        found = asyncio.run(on_sqlite(Path(name), large, rounds, arguments.profile))
        found += asyncio.run(on_postgres(server, min(large, 10_000), rounds))
        publish(found, arguments.out)


if __name__ == "__main__":
    main()
