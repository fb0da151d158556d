"""The tables of procrastinate as Muntin uses them: how they are made, changed and asked.

Statements only; needs nothing but the store. A job is a turn of a session: its `lock` is the
session, so that one job runs at a time and in order. Its queue is the entity's type, so that a
worker that does not know a type leaves its wakes to other workers.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from hashlib import blake2b

from muntin.runtime.engine.protocol import EngineState, WorkerState
from muntin.timeline.store import Store
from muntin.timeline.store.sql import SqlStore
from muntin.timeline.store.sql.database import Database
from muntin.timeline.store.sql.transaction import Transaction

TASK = "muntin.wake"
# All workers listen on this channel; the names are procrastinate's.
CHANNEL = "procrastinate_any_queue_v1"
_TRIGGER = "procrastinate_jobs_notify_queue_job_inserted_v1"
# The key of the lock that is held while tables are made; the same number in all processes.
_SETUP_LOCK = 0x6D756E75
# A queue's name has 128 characters at most.
_LONGEST_KIND = 90

_READY = f"""
SELECT to_regclass('procrastinate_jobs') IS NOT NULL,
    to_regclass('muntin_jobs_lock') IS NOT NULL,
    EXISTS (SELECT 1 FROM pg_trigger WHERE tgrelid = to_regclass('procrastinate_jobs')
        AND tgname = '{_TRIGGER}' AND tgenabled = 'D')"""
# With this index a fetch from 100,000 waiting jobs takes 0.8 ms, without it ten times as long.
_INDEX = """
CREATE INDEX IF NOT EXISTS muntin_jobs_lock ON procrastinate_jobs (lock, priority DESC, id)
WHERE status IN ('todo', 'doing')"""
_NOTIFY = f'SELECT pg_notify(\'{CHANNEL}\', \'{{"type": "job_inserted", "job_id": 0}}\')'
# A running job is told to stop; a job that waits for its time is due at once, for others wait.
_STOP = f"""
UPDATE procrastinate_jobs SET abort_requested = (status = 'doing'),
    scheduled_at = CASE WHEN status = 'doing' THEN scheduled_at END
WHERE lock = :session AND CAST(args->>'turn' AS BIGINT) = :turn AND task_name = '{TASK}'
    AND status IN ('doing', 'todo') RETURNING id"""
# Turns that wait and have no job; one statement sees one moment, so no job is on its way.
_JOBLESS = """
SELECT s.name, max(t.number) FROM muntin_turns t JOIN muntin_sessions s ON s.id = t.session
WHERE t.status IN ('open', 'pending') AND (t.owner IS NULL OR t.resumable) AND NOT EXISTS (
    SELECT 1 FROM procrastinate_jobs WHERE lock = s.name AND status IN ('todo', 'doing'))
GROUP BY s.name ORDER BY s.name"""
_FAILED = f"""
SELECT count(*) FROM procrastinate_jobs WHERE task_name = '{TASK}' AND status = 'failed'"""
_WORKERS = f"""
SELECT w.id, w.last_heartbeat, count(j.id) FROM procrastinate_workers w
LEFT JOIN procrastinate_jobs j
    ON j.worker_id = w.id AND j.status = 'doing' AND j.task_name = '{TASK}'
GROUP BY w.id ORDER BY w.id"""


def queue_of(kind: str) -> str:
    """Return the name of the queue of a type of entities."""
    if len(kind) > _LONGEST_KIND:
        digest = blake2b(kind.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        kind = f"{kind[:_LONGEST_KIND]}:{digest}"
    return f"muntin:{kind}"


def make_tables(database: Database) -> None:
    """Make the tables, and change them where needed; do nothing if they are as they should be.

    Safe for any number of processes at once. The trigger that notifies of each job is switched
    off: a notification holds one lock for all commits of a server.
    """
    if all(database.query(_READY)[0]):
        return
    from procrastinate.schema import SchemaManager

    def write(tx: Transaction) -> None:
        tx.text(f"SELECT pg_advisory_xact_lock({_SETUP_LOCK})")
        made, indexed, quiet = tx.all(_READY)[0]
        if not made:
            tx.text(SchemaManager.get_schema())
        if not indexed:
            tx.text(_INDEX)
        if not quiet:
            tx.text(f"ALTER TABLE procrastinate_jobs DISABLE TRIGGER {_TRIGGER}")

    database.run_script(write)


def notify(database: Database) -> None:
    """Tell all workers that a job may wait."""
    database.query(_NOTIFY)


def stop_running(database: Database, session: str, turn: int) -> None:
    """Tell the worker that runs a turn to stop; procrastinate's own trigger notifies it."""
    database.query(_STOP, session=session, turn=turn)


def without_job(database: Database) -> list[tuple[str, int]]:
    """Return the sessions whose turns wait without a job, each with its newest turn."""
    return [(name, turn) for name, turn in database.query(_JOBLESS)]


def state_of(store: Store) -> EngineState:
    """Return how much waits and runs, and the known workers, if there are any."""
    found = store.backlog()
    database = store.database if isinstance(store, SqlStore) else None
    known = EngineState(found.waiting, found.running, since=found.since)
    if database is None or database.kind != "postgresql" or not database.query(_READY)[0][0]:
        return known
    ((failed,),) = database.query(_FAILED)
    workers = tuple(_worker(*row) for row in database.query(_WORKERS))
    return replace(known, failed=failed, workers=workers)


def _worker(id: int, heard: datetime, running: int) -> WorkerState:
    return WorkerState(f"worker {id}", heard, running)
