"""A worker reads a few jobs, however many wait, and goes on after a job that is no wake."""

from __future__ import annotations

import json
import logging
from typing import Any

import psycopg
import pytest

from muntin.runtime.app import App
from muntin.runtime.ctx import Ctx, Wake
from muntin.runtime.engine.jobs import make_tables, queue_of
from muntin.runtime.engine.worker import SETTINGS
from muntin.timeline.store.sql import Store
from tests.runtime.conftest import run, statuses
from tests.runtime.engine.conftest import until, working

# An anti-join by the session's lock, the job itself, and its update.
ROWS = 10


def jobs_read(url: str, fetches: int) -> int:
    """Return how many rows so many fetches of a worker's connection read."""
    fetch = f"SELECT id FROM procrastinate_fetch_job_v2(ARRAY['{queue_of('e')}'], NULL)"
    read = """SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables
              WHERE relname = 'procrastinate_jobs'"""
    with psycopg.connect(url) as connection:
        connection.execute(SETTINGS)
        for _ in range(fetches):
            row: Any = connection.execute(fetch).fetchone()
            assert row[0] is not None
        counted: Any = connection.execute(read).fetchone()
        return int(counted[0])


@pytest.mark.parametrize("statistics", [False, True])
def test_a_fetch_reads_a_few_of_the_jobs_that_wait(statistics: bool, server: Any) -> None:
    database = server.new_database()
    with Store(server.url(database)) as store:
        make_tables(store.database)
    # Nobody collects statistics but this test.
    server.ask("ALTER TABLE procrastinate_jobs SET (autovacuum_enabled = off)", database)
    server.ask(
        f"""INSERT INTO procrastinate_jobs (queue_name, task_name, lock)
            SELECT '{queue_of("e")}', 'muntin.wake', 'e/' || n FROM generate_series(1, 20000) n""",
        database,
    )
    if statistics:
        server.ask("ANALYZE procrastinate_jobs", database)
    # More than five of them: by then the server keeps one plan for all.
    assert jobs_read(server.url(database), 8) <= 8 * ROWS


# Rows that no version of Muntin writes: by hand, by other programs, damaged.
SHAPES: dict[str, dict[str, Any]] = {
    "no arguments": {"args": {}},
    "a list": {"args": [1, 2]},
    "a text": {"args": "e/1"},
    "null": {"args": None},
    "other names": {"args": {"entity": "e/1", "number": 1}},
    "a text for a number": {"args": {"session": "e/1", "turn": "one"}},
    "a truth for a number": {"args": {"session": "e/1", "turn": True}},
    "a number too large": {"args": {"session": "e/1", "turn": 10**30}},
    "no such turn": {"args": {"session": "e/1", "turn": 0}},
    "more than is known": {"args": {"session": "e/1", "turn": 1, "more": 5, "context": 1}},
    "no lock": {"lock": None},
    "the lock of another session": {"lock": "e/2"},
    "the queue of another type": {"lock": "f/1", "args": {"session": "f/1", "turn": 1}},
    "no type": {"lock": "e", "args": {"session": "e", "turn": 1}},
    "no entity": {"lock": "e/", "args": {"session": "e/", "turn": 1}},
    "a name that no session has": {"lock": "e/\n", "args": {"session": "e/\n", "turn": 1}},
    "another task": {"task_name": "mail.send"},
}
# These are a wake, or one of a session that was deleted: there is nothing to report.
HARMLESS = {"more than is known", "a name that no session has"}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_job_of_another_shape_fails_with_a_log_line_and_harms_no_other(
    shape: str, server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    database = server.new_database()
    handled: list[Any] = []
    right = {"args": {"session": "e/1", "turn": 1}, "lock": "e/1", "task_name": "muntin.wake"}
    row: dict[str, Any] = {**right, **SHAPES[shape]}

    async def work() -> None:
        app = App(server.url(database), engine="procrastinate", tokenizer=len)

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Wake) -> None:
            handled.append(wake.payload)

        await app.send("e/1", "before")
        with psycopg.connect(server.url(database)) as connection:
            connection.execute(
                "INSERT INTO procrastinate_jobs (queue_name, task_name, lock, args, priority) "
                "VALUES (%s, %s, %s, %s, 9)",
                [queue_of("e"), row["task_name"], row["lock"], json.dumps(row["args"])],
            )
        async with working(app):
            await app.ask("e/1", "after")
            await app.ask("e/2", "another")
            await until(lambda: not _jobs(server, database, "todo", "doing"))
        assert statuses(app, "e/1")[-1] == "completed"
        app.store.close()

    with caplog.at_level(logging.WARNING):
        run(work())
    assert handled[-1] == "another"
    assert [payload for payload in handled if payload == "after"] == ["after"]
    failed = _jobs(server, database, "failed")
    assert len(failed) == (0 if shape in HARMLESS else 1)
    lines = [line for line in caplog.messages if f"[{failed[0]}]" in line] if failed else []
    assert len(lines) == len(failed)


def _jobs(server: Any, database: str, *statuses: str) -> list[int]:
    """Return the numbers of the jobs with these statuses."""
    chosen = ", ".join(f"'{status}'" for status in statuses)
    rows = server.ask(f"SELECT id FROM procrastinate_jobs WHERE status IN ({chosen})", database)
    return [number for (number,) in rows]
