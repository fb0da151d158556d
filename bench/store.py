"""The store: what reading, appending and importing cost, beside bare sqlite3 in the same run.

python bench/store.py [--short] [--out FILE]
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.conversations import fill, turn
from bench.measure import Figure, beside, memory, run
from muntin import Slots, Tokens, Turns, user
from muntin.core.counting.counter import CharsPerToken
from muntin.timeline.session import Session
from muntin.timeline.store.sql import Store


def reading(folder: Path, large: int) -> Iterator[Figure]:
    """Measure windows on a long session against the same on a short one."""
    stores = [Store(f"sqlite:///{folder / name}.db") for name in ("small", "large")]
    small, big = (Session("s", store=store) for store in stores)
    fill(small, 1_000)
    fill(big, large)
    few = "Muntin, 1,000 items"
    for limit in (Turns(8), Tokens(8_000)):
        long, short = partial(big.messages, limit), partial(small.messages, limit)
        yield beside(f"read {limit!r} of {large:,} items", few, long, short, 200, 1.5)
        yield Figure(
            work=f"memory to read {limit!r} of {large:,} items",
            peer=few,
            ours=memory(long),
            theirs=memory(short),
            unit="bytes",
            at_most=1.1,
        )


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


def appending(folder: Path, rounds: int) -> Iterator[Figure]:
    """Measure one durable turn against the same rows through bare sqlite3."""
    path = folder / "append.db"
    session = Session("s", store=Store(f"sqlite:///{path}"), tokenizer=CharsPerToken(4))
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
                "muntin_turns": [
                    (1, number, row[2], start, *row[4:]) for row in rows["muntin_turns"]
                ],
                "muntin_items": [
                    (1, start + n, number, *row[3:]) for n, row in enumerate(rows["muntin_items"])
                ],
            },
        )

    ready = [turn(number) for number in range(1, rounds + 1)]
    work = "append one turn of 4 items, durable, counted"
    peer = "sqlite3, the same rows in one transaction"
    yield beside(work, peer, lambda: session.append(*ready.pop()), plain, rounds, 1.5)


def importing(folder: Path, items: int, rounds: int) -> Iterator[Figure]:
    """Measure a bulk import, counting aside, against executemany of the same rows."""
    path = folder / "import.db"
    batches = [[m for n in range(s, s + 250) for m in turn(n)] for s in range(0, items // 4, 250)]
    numbers = count()

    def ours() -> None:
        name = f"s{next(numbers)}"
        session = Session(name, store=store, tokenizer=CharsPerToken(4))
        for batch in batches:
            session.append(*batch)

    store = Store(f"sqlite:///{path}")
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

    work, peer = f"import {items:,} items", "sqlite3, executemany of the same rows"
    yield beside(work, peer, ours, plain, rounds, 4.0)


class Counting(CharsPerToken):
    """Counts how often it is asked."""

    asked = 0

    def count(self, text: str) -> int:
        """Count, and remember that it was asked."""
        Counting.asked += 1
        return super().count(text)


def composing(folder: Path, items: int) -> Iterator[Figure]:
    """Count the texts tokenised by the next turn of a session that was just opened."""
    url = f"sqlite:///{folder / 'compose.db'}"
    fill(Session("s", store=url, tokenizer=Counting(4)), items)
    tokenizer = Counting(4)  # another object: it remembers nothing
    Counting.asked = 0
    session = Session("s", store=url, tokenizer=tokenizer)
    session.append(user("And the day after?"))
    slots = Slots(8_000, tokenizer=tokenizer)
    slots.add("history", session.messages())
    slots.render()
    yield Figure(
        work="texts tokenised by the next turn of a session just opened",
        peer="texts that are new",
        ours=Counting.asked,
        theirs=1,
        unit="texts",
        at_most=1,
    )


def measure(short: bool) -> Iterator[Figure]:
    """Measure everything, in files that are thrown away."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield from appending(folder, 50 if short else 900)
        yield from importing(folder, 4_000 if short else 20_000, 3 if short else 7)
        yield from composing(folder, 2_000 if short else 10_000)
        yield from reading(folder, 4_000 if short else 1_000_000)


if __name__ == "__main__":
    run(__doc__, measure)
