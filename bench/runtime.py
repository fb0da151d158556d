"""The runtime: what one wake and one turn of a conversation cost, beside the same number of bare
sqlite3 commits.

    python bench/runtime.py [--short] [--out FILE] [--profile]

One wake: a message is sent, a window of 8,000 tokens is composed from a long timeline of recorded
conversations, a scripted model answers, all of it is recorded. A turn of a conversation does the
same in three commits: the question, the begin of the run, the answer with the end of the turn.
Every figure is a ratio of two medians measured in turns, because machines are noisy. The report of
each window is not kept, and then kept, which is the default. A bare commit is that of `sqlite3` as
it comes, with a rollback journal; beside it stand the commits of a write-ahead log, which the store
uses: how quick they are depends on the disk, so that a wake's own work shows on a quick one.
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
from collections.abc import Callable, Coroutine, Iterator
from functools import cache, partial
from itertools import count, islice
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.measure import Figure, options, publish
from muntin import App, Message, Session, Source, Wake
from muntin.runtime.ctx import Ctx
from muntin.testing import ScriptedModel
from muntin.timeline.store.sql import SqlStore

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


def fill(store: SqlStore, entity: str, items: int) -> None:
    """Put recorded conversations onto a timeline until it has so many items."""
    session, messages = Session(entity, store=store), spoken()
    for start in range(0, items, 2_000):
        session.append(*islice(messages, min(2_000, items - start)))


class Commits:
    """Counts the transactions of a store that changed something."""

    def __init__(self, store: SqlStore) -> None:
        self.count = 0
        self._store = store
        self._transact = store.database.transact

    def __enter__(self) -> Commits:
        def transact(work: Callable[[Any], Any]) -> Any:
            def counted(tx: Any) -> Any:
                connection = tx._cursor.connection
                before = connection.total_changes
                result = work(tx)
                self.count += connection.total_changes > before
                return result

            return self._transact(counted)

        self._store.database.transact = transact  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        self._store.database.transact = self._transact  # type: ignore[method-assign]


def entity_app(store: SqlStore, keep_reports: int) -> App:
    """Return an app with one type of entities: the timeline in 8,000 tokens."""
    model = ScriptedModel(lambda window: TEXT[:200])
    app = App(store, model=model, keep_reports=keep_reports)

    @app.entity("horton")
    async def horton(ctx: Ctx, wake: Wake) -> None:
        chat = Source(ctx.timeline_messages, max=BUDGET)
        ctx.use_context(source_budget=BUDGET, sources={"conversation": chat})
        ctx.use_agent(system_prompt="You are Horton.")
        await ctx.agent.run()

    return app


def bare(path: Path, journal: str) -> sqlite3.Connection:
    """Open a file with one table through sqlite3 alone."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA journal_mode = {journal}")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, content TEXT)")
    return connection


def commit(connection: sqlite3.Connection, times: int) -> None:
    """Write one row in each of so many transactions."""
    for _ in range(times):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO items (content) VALUES (?)", (TEXT[:200],))
        connection.execute("COMMIT")


async def in_turns(
    works: dict[str, Callable[[], Coroutine[Any, Any, Any]]], rounds: int
) -> dict[str, float]:
    """Return the median of each kind of work, measured in turns."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            start = time.perf_counter()
            await work()
            times[name].append(time.perf_counter() - start)
    return {name: median(taken) for name, taken in times.items()}


async def measure(folder: Path, large: int, rounds: int, profiled: bool) -> list[Figure]:
    """Measure wakes of a short and a long timeline, and commits, in turns."""
    stores = {name: SqlStore(f"sqlite:///{folder / name}.db") for name in ("small", "large")}
    entities = {"small": "horton/1", "large": "horton/1", "reported": "horton/2", "turn": "chat"}
    stores["reported"] = stores["turn"] = stores["large"]
    for name, entity in entities.items():
        fill(stores[name], entity, 1_000 if name == "small" else large)
    kept = ("reported", "turn")
    apps = {name: entity_app(stores[name], 1_000 * (name in kept)) for name in entities}
    chat = apps["turn"].conversation("chat", budget=BUDGET)

    async def wake(name: str) -> None:
        if name == "turn":
            await chat.send(TEXT[:120])
        else:
            await apps[name].ask(entities[name], TEXT[:120])
        model = apps[name].model
        assert isinstance(model, ScriptedModel)
        del model.windows[:-1]  # no other model hoards them, and they burden the collector

    for name in apps:  # what is made once is not a wake's
        for _ in range(3):
            await wake(name)
    counts = {}
    for name in ("large", "reported", "turn"):
        with Commits(stores[name]) as counted:
            await wake(name)
        counts[name] = counted.count
    commits = counts["large"]
    assert commits == counts["reported"]  # a report costs no commit of its own
    files = {each: bare(folder / f"{each}.db", each) for each in ("DELETE", "WAL")}

    async def plain(journal: str, times: int = commits) -> None:
        commit(files[journal], times)

    works: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
        **{name: partial(wake, name) for name in entities},
        "DELETE": lambda: plain("DELETE"),
        "WAL": lambda: plain("WAL"),
        "WAL, turn": lambda: plain("WAL", counts["turn"]),
    }
    taken = await in_turns(works, rounds)
    if profiled:
        profile = cProfile.Profile()
        profile.enable()
        for _ in range(50):
            await wake("reported")
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(35)
        pstats.Stats(profile).sort_stats("cumtime").print_stats(45)
    model = apps["large"].model
    assert isinstance(model, ScriptedModel)
    window = model.windows[-1]
    for app in apps.values():
        await app.close()
    for store in stores.values():
        store.close()
    print(f"a window of {window.tokens:,} tokens in {len(window.messages)} messages")
    peers = {
        f"sqlite3, {commits} commits": ("DELETE", 2.0),
        f"sqlite3, {commits} commits with a write-ahead log": ("WAL", 2.0),
        "Muntin, 1,000 items": ("small", 1.5),
    }
    wakes = {"": "large", ", its report kept": "reported"}
    turn = Figure(
        work=f"one turn of a conversation, {large:,} items, its report kept",
        peer=f"sqlite3, {counts['turn']} commits with a write-ahead log",
        ours=taken["turn"],
        theirs=taken["WAL, turn"],
        at_most=2.0,
    )
    return [
        turn,
        *(
            Figure(
                work=f"one wake, {large:,} items{said}",
                peer=peer,
                ours=taken[mine],
                theirs=taken[name],
                at_most=at_most,
            )
            for said, mine in wakes.items()
            for peer, (name, at_most) in peers.items()
            if mine == "large" or name != "small"
        ),
    ]


def main() -> None:
    """Run all and print one table."""
    parser = options(__doc__)
    parser.add_argument("--profile", action="store_true", help="show where a wake spends its time")
    given = parser.parse_args()
    large, rounds = (4_000, 15) if given.short else (100_000, 200)
    with tempfile.TemporaryDirectory() as name:
        publish(asyncio.run(measure(Path(name), large, rounds, given.profile)), given.out)


if __name__ == "__main__":
    main()
