"""The runtime: what one wake costs, beside the same number of bare sqlite3 commits.

    python bench/runtime.py [--short] [--profile]

One wake: a message is sent, a window of 8,000 tokens is composed from a long timeline, a scripted
model answers, all of it is recorded. Every figure is a ratio of two medians measured in turns,
because machines are noisy.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import pstats
import sqlite3
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from statistics import median
from typing import Any

from muntin import App, Message, Session, Source, ToolCall, Wake, assistant, tool, user
from muntin.runtime.ctx import Ctx
from muntin.store.sql import SqlStore
from muntin.testing import ScriptedModel

ROOT = Path(__file__).parent
TEXT = "The flight from Boston to Seattle on May 20 is full; the next one leaves at 11:35. " * 4
BUDGET = 8_000


def turn(number: int) -> list[Message]:
    """Return one turn: a question, a call, its result, an answer."""
    call = ToolCall(f"call-{number}", "search_flights", f'{{"origin":"BOS","day":{number}}}')
    return [
        user(f"{number}: {TEXT[:120]}"),
        assistant(tool_calls=[call]),
        tool(call.id, f"{number}: {TEXT}"),
        assistant(f"{number}: {TEXT[:200]}"),
    ]


def fill(store: SqlStore, entity: str, items: int) -> None:
    """Put turns onto a timeline until it has so many items."""
    session = Session(entity, store=store)
    for start in range(0, items // 4, 500):
        batch = [m for n in range(start, min(start + 500, items // 4)) for m in turn(n)]
        session.append(*batch)


class Commits:
    """Counts the transactions of a store that changed something."""

    def __init__(self, store: SqlStore) -> None:
        self.count = 0
        self._store = store
        self._transact = store._database.transact

    def __enter__(self) -> Commits:
        def transact(work: Callable[[Any], Any], *, writing: bool) -> Any:
            def counted(tx: Any) -> Any:
                connection = tx._cursor.connection
                before = connection.total_changes
                result = work(tx)
                self.count += connection.total_changes > before
                return result

            return self._transact(counted, writing=writing)

        self._store._database.transact = transact  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        self._store._database.transact = self._transact  # type: ignore[method-assign]


def entity_app(store: SqlStore) -> App:
    """Return an app with one type of entities: the timeline in 8,000 tokens."""
    app = App(store, model=ScriptedModel(lambda window: TEXT[:200]))

    @app.entity("horton")
    async def horton(ctx: Ctx, wake: Wake) -> None:
        chat = Source(ctx.timeline_messages, max=BUDGET)
        ctx.use_context(source_budget=BUDGET, sources={"conversation": chat})
        ctx.use_agent(system_prompt="You are Horton.")
        await ctx.agent.run()

    return app


def bare(path: Path) -> sqlite3.Connection:
    """Open a file of the same settings, with one table, through sqlite3 alone."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
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


async def measure(folder: Path, large: int, rounds: int, profiled: bool) -> dict[str, Any]:
    """Measure wakes of a short and a long timeline, and commits, in turns."""
    stores = {name: SqlStore(f"sqlite:///{folder / name}.db") for name in ("small", "large")}
    fill(stores["small"], "horton/1", 1_000)
    fill(stores["large"], "horton/1", large)
    apps = {name: entity_app(store) for name, store in stores.items()}

    async def wake(name: str) -> None:
        await apps[name].ask("horton/1", TEXT[:120])

    for name in apps:  # what is made once is not a wake's
        for _ in range(3):
            await wake(name)
    with Commits(stores["large"]) as counted:
        await wake("large")
    connection = bare(folder / "bare.db")

    async def plain() -> None:
        commit(connection, counted.count)

    works = {"large": lambda: wake("large"), "small": lambda: wake("small"), "bare": plain}
    taken = await in_turns(works, rounds)
    if profiled:
        profile = cProfile.Profile()
        profile.enable()
        for _ in range(50):
            await wake("large")
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(35)
        pstats.Stats(profile).sort_stats("cumtime").print_stats(45)
    model = apps["large"].model
    assert isinstance(model, ScriptedModel)
    window = model.windows[-1]
    for app in apps.values():
        await app.close()
        app.store.close()
    print(
        f"one wake: {taken['large'] * 1e3:.1f} ms, {counted.count} commits "
        f"({taken['bare'] * 1e3:.1f} ms bare), a window of {window.tokens:,} tokens "
        f"in {len(window.messages)} messages"
    )
    commits = f"one wake, {large:,} items / {counted.count} bare sqlite3 commits"
    return {
        commits: (taken["large"] / taken["bare"], 2.0),
        f"one wake: {large:,} items / 1,000": (taken["large"] / taken["small"], 1.5),
    }


def main() -> None:
    """Run all and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="20,000 items, few rounds")
    parser.add_argument("--profile", action="store_true", help="show where a wake spends its time")
    given = parser.parse_args()
    large, rounds = (20_000, 30) if given.short else (100_000, 200)
    results = {}
    with tempfile.TemporaryDirectory() as name:
        measured = asyncio.run(measure(Path(name), large, rounds, given.profile))
        for work, (ratio, bound) in measured.items():
            print(f"{work:<58} {ratio:>8.2f}   at most {bound}", flush=True)
            results[work] = {"ratio": round(ratio, 3), "at_most": bound}
    target = ROOT / "results" / "runtime.json"
    target.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
