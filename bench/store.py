"""The store: what reading, appending and importing cost, beside bare sqlite3 in the same run.

    python bench/store.py [--short]

Every figure is a ratio of two medians measured in turns, because machines are noisy.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from muntin import Message, Slots, Tokens, ToolCall, Turns, assistant, tool, user
from muntin.core.tokens import CharsPerToken
from muntin.session import Session
from muntin.store.sql import SqlStore

ROOT = Path(__file__).parent
TEXT = "The flight from Boston to Seattle on May 20 is full; the next one leaves at 11:35. " * 4


def turn(number: int) -> list[Message]:
    """Return one turn: a question, a call, its result, an answer."""
    call = ToolCall(f"call-{number}", "search_flights", f'{{"origin":"BOS","day":{number}}}')
    return [
        user(f"{number}: {TEXT[:120]}"),
        assistant(tool_calls=[call]),
        tool(call.id, f"{number}: {TEXT}"),
        assistant(f"{number}: {TEXT[:200]}"),
    ]


def side_by_side(first: Callable[[], Any], second: Callable[[], Any], rounds: int) -> float:
    """Return the median of `first` divided by that of `second`, measured in turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for work, taken in ((first, times[0]), (second, times[1])):
            start = time.perf_counter()
            work()
            taken.append(time.perf_counter() - start)
    return median(times[0]) / median(times[1])


def fill(session: Session, items: int) -> None:
    """Append turns until the session has so many items."""
    turns = items // 4
    for start in range(0, turns, 500):
        batch = [m for n in range(start, min(start + 500, turns)) for m in turn(n)]
        session.append(*batch)


def reading(folder: Path, large: int) -> Iterator[tuple[str, float, float]]:
    """Measure windows on a long session against the same on a short one."""
    stores = [SqlStore(f"sqlite:///{folder / name}.db") for name in ("small", "large")]
    small, big = (Session("s", store=store) for store in stores)
    fill(small, 1_000)
    fill(big, large)
    for limit in (Turns(8), Tokens(8_000)):
        ratio = side_by_side(partial(big.messages, limit), partial(small.messages, limit), 200)
        yield f"read {limit!r}: {large:,} items / 1,000", ratio, 1.5
        peaks = []
        for session in (big, small):
            tracemalloc.start()
            session.messages(limit)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        yield f"memory of {limit!r}: {large:,} items / 1,000", peaks[0] / peaks[1], 1.1


def rows_of(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of a store, and the statements that made its tables."""
    with sqlite3.connect(path) as connection:
        tables = ("muntin_sessions", "muntin_turns", "muntin_items")
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables}


def bare(path: Path, like: Path) -> sqlite3.Connection:
    """Open a file with the same tables and the same settings, through sqlite3 alone."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    with sqlite3.connect(like) as model:
        made = model.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    for (statement,) in made:
        if "sqlite_sequence" not in statement:
            connection.execute(statement)
    return connection


def write(connection: sqlite3.Connection, rows: dict[str, list[tuple[Any, ...]]]) -> None:
    """Write rows in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    for name, values in rows.items():
        marks = ", ".join("?" for _ in values[0])
        verb = "INSERT OR REPLACE" if name == "muntin_sessions" else "INSERT"
        connection.executemany(f"{verb} INTO {name} VALUES ({marks})", values)
    connection.execute("COMMIT")


def appending(folder: Path) -> Iterator[tuple[str, float, float]]:
    """Measure one durable turn against the same rows through bare sqlite3."""
    path = folder / "append.db"
    session = Session("s", store=SqlStore(f"sqlite:///{path}"), tokenizer=CharsPerToken(4))
    fill(session, 4)
    rows = rows_of(path)
    connection = bare(folder / "bare.db", path)
    numbers, positions = count(1), count(1)

    def plain() -> None:
        number, start = next(numbers), 4 * next(positions)
        write(
            connection,
            {
                "muntin_sessions": [(1, "s", start + 4, number, 0, 0, 0)],
                "muntin_turns": [(1, number, "completed", start, None, None)],
                "muntin_items": [
                    (1, start + n, number, *row[3:]) for n, row in enumerate(rows["muntin_items"])
                ],
            },
        )

    made = map(turn, count(1))
    ready = [next(made) for _ in range(1_000)]
    ratio = side_by_side(lambda: session.append(*ready.pop()), plain, 900)
    yield "append one turn of 4 items / bare sqlite3", ratio, 1.5


def importing(folder: Path, items: int) -> Iterator[tuple[str, float, float]]:
    """Measure a bulk import, counting aside, against executemany of the same rows."""
    path = folder / "import.db"
    batches = [[m for n in range(s, s + 250) for m in turn(n)] for s in range(0, items // 4, 250)]
    numbers = count()

    def ours() -> None:
        name = f"s{next(numbers)}"
        session = Session(name, store=store, tokenizer=CharsPerToken(4))
        for batch in batches:
            session.append(*batch)

    store = SqlStore(f"sqlite:///{path}")
    ours()
    rows = rows_of(path)
    connection = bare(folder / "bare-import.db", path)
    sessions = count(1)

    def plain() -> None:
        sid = next(sessions)
        for start in range(0, items, 1_000):
            chunk = rows["muntin_items"][start : start + 1_000]
            turns = rows["muntin_turns"][start // 4 : start // 4 + 250]
            write(
                connection,
                {
                    "muntin_sessions": [(sid, f"s{sid}", *rows["muntin_sessions"][0][2:])],
                    "muntin_turns": [(sid, *row[1:]) for row in turns],
                    "muntin_items": [(sid, *row[1:]) for row in chunk],
                },
            )

    ratio = side_by_side(ours, plain, 7)
    yield "bulk import / bare sqlite3 (time)", ratio, 4.0


class Counting(CharsPerToken):
    """Counts how often it is asked."""

    asked = 0

    def count(self, text: str) -> int:
        """Count, and remember that it was asked."""
        Counting.asked += 1
        return super().count(text)


def composing(folder: Path) -> Iterator[tuple[str, float, float]]:
    """Count the texts tokenised by the next turn of a session that was just opened."""
    url = f"sqlite:///{folder / 'compose.db'}"
    fill(Session("s", store=url, tokenizer=Counting(4)), 10_000)
    tokenizer = Counting(4)  # another object: it remembers nothing
    Counting.asked = 0
    session = Session("s", store=url, tokenizer=tokenizer)
    session.append(user("And the day after?"))
    slots = Slots(8_000, tokenizer=tokenizer)
    slots.add("history", session.messages())
    slots.render()
    yield "texts tokenised by the next turn, 1 of them new", Counting.asked, 1


def main() -> None:
    """Run all and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="100,000 items instead of 1,000,000")
    large = 100_000 if parser.parse_args().short else 1_000_000
    results = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = (appending(folder), importing(folder, 20_000), composing(folder))
        for part in (*parts, reading(folder, large)):
            for work, ratio, bound in part:
                print(f"{work:<58} {ratio:>8.2f}   at most {bound}", flush=True)
                results[work] = {"ratio": round(ratio, 3), "at_most": bound}
    target = ROOT / "results" / "store.json"
    target.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
