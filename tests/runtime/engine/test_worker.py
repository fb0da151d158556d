"""A fetch reads a few jobs, however many wait, and whatever the server knows of them."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from muntin.runtime.engine.jobs import make_tables, queue_of
from muntin.runtime.engine.worker import SETTINGS
from muntin.timeline.store.sql import SqlStore

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
    with SqlStore(server.url(database)) as store:
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
