"""The tables of the SQL stores, and how older ones are brought up to date.

A released version is never changed: a new version is added, with the steps that lead to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from muntin.timeline.clock import boot_id, new_anchor
from muntin.timeline.store.sql.address import Kind

if TYPE_CHECKING:
    from muntin.timeline.store.sql.database import Database
    from muntin.timeline.store.sql.transaction import Transaction

# The words of each database: a text compared by code point, an id that counts up, a table that is
# its own index, and the byte length of a text.
_WORDS: Mapping[Kind, Mapping[str, str]] = {
    "sqlite": {
        "id": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "name": "TEXT",
        "is_index": "WITHOUT ROWID",
        "bytes": "length(CAST(",
        "end": " AS BLOB))",
    },
    "postgresql": {
        "id": "BIGSERIAL PRIMARY KEY",
        "name": 'TEXT COLLATE "C"',
        "is_index": "",
        "bytes": "octet_length((",
        "end": "))",
    },
}

_META = "CREATE TABLE IF NOT EXISTS muntin_meta (key {name} PRIMARY KEY, value {name} NOT NULL)"
VERSION = "SELECT value FROM muntin_meta WHERE key = 'version'"
# What all processes of a machine add to its monotonic clock since the boot: the time of a file.
_CLOCK = "SELECT anchor FROM muntin_clock WHERE boot = :boot"
_PUT_CLOCK = "INSERT INTO muntin_clock (boot, anchor) VALUES (:boot, :anchor)"


def anchor_of(database: Database, *, write: bool) -> int | None:
    """Return the anchor of a file's clock; the first process after a boot writes it."""

    boot = boot_id()

    def put(tx: Transaction) -> int:
        stored: int | None = tx.scalar(_CLOCK, boot=boot)
        if stored is not None:
            return stored
        anchor = new_anchor()
        tx.run("DELETE FROM muntin_clock")
        tx.run(_PUT_CLOCK, boot=boot, anchor=anchor)
        return anchor

    if not boot:
        return None
    for (anchor,) in database.query(_CLOCK, boot=boot):
        return int(anchor)
    return database.transact(put) if write else None


def make_meta(tx: Transaction, kind: Kind) -> None:
    """Make the table in which the version is recorded, if it is not there."""
    tx.text(_META.format(**_WORDS[kind]))


# No foreign keys: only the store writes these tables, and checking each row costs.
# In a session, `head` is the newest position, `turn` the newest turn, `total` the weight of all
# items; in an item, `total` is the running sum up to and with it. `data` and `tokens` are JSON as
# text, read back byte for byte. An entry has a row for each version; `ended` is the position where
# it was replaced or removed.
_FIRST = (
    """CREATE TABLE muntin_sessions (
        id {id}, name {name} NOT NULL, head BIGINT NOT NULL, turn BIGINT NOT NULL,
        total BIGINT NOT NULL, created BIGINT NOT NULL, updated BIGINT NOT NULL,
        CONSTRAINT muntin_sessions_name UNIQUE (name))""",
    """CREATE TABLE muntin_turns (
        session BIGINT NOT NULL, number BIGINT NOT NULL, status {name} NOT NULL,
        first BIGINT NOT NULL, owner {name}, until BIGINT,
        CONSTRAINT muntin_turns_key PRIMARY KEY (session, number)) {is_index}""",
    """CREATE TABLE muntin_items (
        session BIGINT NOT NULL, position BIGINT NOT NULL, turn BIGINT NOT NULL,
        kind {name} NOT NULL, run BIGINT, client BOOLEAN NOT NULL, history BOOLEAN NOT NULL,
        transient BOOLEAN NOT NULL, time BIGINT NOT NULL, total BIGINT NOT NULL,
        tokens TEXT NOT NULL, data TEXT NOT NULL,
        CONSTRAINT muntin_items_key PRIMARY KEY (session, position))""",
    """CREATE TABLE muntin_entries (
        session BIGINT NOT NULL, entry {name} NOT NULL, position BIGINT NOT NULL, ended BIGINT,
        CONSTRAINT muntin_entries_key PRIMARY KEY (session, entry, position)) {is_index}""",
    # With all columns; otherwise SQLite reads the whole table in order.
    """CREATE INDEX muntin_turns_status
        ON muntin_turns (session, status, number, first, owner, until)""",
    "CREATE INDEX muntin_items_turn ON muntin_items (session, turn, position)",
    "CREATE INDEX muntin_items_total ON muntin_items (session, total, position)",
    "CREATE INDEX muntin_entries_live ON muntin_entries (session, ended, position)",
)

# Reports of windows, and the plans that make them again; contents are kept once, by hash. States
# are what one turn leaves to the next. The third version turns strings used here into columns.
_SECOND = (
    """CREATE TABLE muntin_reports (
        session BIGINT NOT NULL, turn BIGINT NOT NULL, step BIGINT NOT NULL,
        time BIGINT NOT NULL, report TEXT NOT NULL, plan TEXT NOT NULL,
        CONSTRAINT muntin_reports_key PRIMARY KEY (session, turn, step))""",
    """CREATE TABLE muntin_contents (
        session BIGINT NOT NULL, hash {name} NOT NULL, turn BIGINT NOT NULL, data TEXT NOT NULL,
        CONSTRAINT muntin_contents_key PRIMARY KEY (session, hash))""",
    """CREATE TABLE muntin_states (
        session BIGINT NOT NULL, key {name} NOT NULL, value TEXT NOT NULL,
        CONSTRAINT muntin_states_key PRIMARY KEY (session, key))""",
    """CREATE INDEX muntin_turns_waiting
        ON muntin_turns (session, number, status, first, owner, until)
        WHERE status IN ('open', 'pending')""",
)

# The strings of a plan; among them are the names of contents, which need no escapes.
_STRINGS = re.compile(r'"([^"\\]*)"')


def _name_contents(tx: Transaction) -> None:
    """Note which contents each report needs: the contents that its plan names in any string."""
    query = "SELECT hash FROM muntin_contents WHERE session = :sid AND kind = 'report'"
    steps = "SELECT turn, step FROM muntin_reports WHERE session = :sid"
    plan = """
        SELECT plan FROM muntin_reports WHERE session = :sid AND turn = :turn AND step = :step"""
    for (sid,) in tx.all("SELECT DISTINCT session FROM muntin_reports"):
        names = {name for (name,) in tx.all(query, sid=sid)}
        for turn, step in tx.all(steps, sid=sid):
            text = tx.scalar(plan, sid=sid, turn=turn, step=step)
            rows = [(sid, turn, step, name) for name in names.intersection(_STRINGS.findall(text))]
            tx.many("INSERT INTO muntin_report_contents VALUES (?, ?, ?, ?)", rows)


# Before, the owner's text said that a turn was a wake's, a colon in its name that a content was
# an original, and the name of a state that it was a frontier.
_THIRD = (
    "ALTER TABLE muntin_turns ADD COLUMN resumable BOOLEAN NOT NULL DEFAULT FALSE",
    "UPDATE muntin_turns SET resumable = TRUE WHERE owner LIKE '%:wake-%'",
    "DROP INDEX muntin_turns_status",
    "DROP INDEX muntin_turns_waiting",
    """CREATE INDEX muntin_turns_status
        ON muntin_turns (session, status, number, first, owner, until, resumable)""",
    """CREATE INDEX muntin_turns_waiting
        ON muntin_turns (session, number, status, first, owner, until, resumable)
        WHERE status IN ('open', 'pending')""",
    """CREATE TABLE muntin_contents_by_kind (
        session BIGINT NOT NULL, kind {name} NOT NULL, hash {name} NOT NULL,
        turn BIGINT NOT NULL, data TEXT NOT NULL,
        CONSTRAINT muntin_contents_kind_key PRIMARY KEY (session, kind, hash))""",
    """INSERT INTO muntin_contents_by_kind
        SELECT session, CASE WHEN hash LIKE '%:%' THEN 'source' ELSE 'report' END,
            CASE WHEN hash LIKE 'source:%' THEN substr(hash, 8) ELSE hash END, turn, data
        FROM muntin_contents""",
    "DROP TABLE muntin_contents",
    "ALTER TABLE muntin_contents_by_kind RENAME TO muntin_contents",
    """CREATE TABLE muntin_report_contents (
        session BIGINT NOT NULL, turn BIGINT NOT NULL, step BIGINT NOT NULL,
        hash {name} NOT NULL,
        CONSTRAINT muntin_report_contents_key PRIMARY KEY (session, turn, step, hash))
        {is_index}""",
    _name_contents,
    """CREATE TABLE muntin_frontiers (
        session BIGINT NOT NULL, line {name} NOT NULL, data TEXT NOT NULL,
        CONSTRAINT muntin_frontiers_key PRIMARY KEY (session, line))""",
    """INSERT INTO muntin_frontiers
        SELECT session, CASE WHEN key LIKE 'frontier:%' THEN substr(key, 10) ELSE key END, value
        FROM muntin_states""",
    "DROP TABLE muntin_states",
)

# How often a turn was taken and handed back, when it may be taken again, and why it failed. The
# indexes no longer hold the lease, which each append of an owner changes.
_FOURTH = (
    "CREATE TABLE muntin_clock (boot {name} PRIMARY KEY, anchor BIGINT NOT NULL)",
    "ALTER TABLE muntin_turns ADD COLUMN attempt BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE muntin_turns ADD COLUMN returned BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE muntin_turns ADD COLUMN after BIGINT",
    "ALTER TABLE muntin_turns ADD COLUMN reason {name}",
    "UPDATE muntin_turns SET attempt = 1 WHERE status = 'open' AND owner IS NOT NULL",
    "DROP INDEX muntin_turns_status",
    "DROP INDEX muntin_turns_waiting",
    "CREATE INDEX muntin_turns_status ON muntin_turns (session, status, number)",
    """CREATE INDEX muntin_turns_waiting ON muntin_turns (session, number)
        WHERE status IN ('open', 'pending')""",
    """CREATE INDEX muntin_turns_gave_up ON muntin_turns (session, number)
        WHERE reason = 'gave_up'""",
)

# Timers with their due times; a repeated timer says how often it comes.
_FIFTH = (
    """CREATE TABLE muntin_timers (
        session {name} NOT NULL, id {name} NOT NULL, kind {name} NOT NULL, due BIGINT NOT NULL,
        every {name}, data TEXT NOT NULL,
        CONSTRAINT muntin_timers_key PRIMARY KEY (session, id)) {is_index}""",
    "CREATE INDEX muntin_timers_due ON muntin_timers (due)",
)

# Reports are bounded over the whole store: by age, and by bytes with their contents.
_SIXTH = (
    "ALTER TABLE muntin_reports ADD COLUMN size BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE muntin_contents ADD COLUMN size BIGINT NOT NULL DEFAULT 0",
    "UPDATE muntin_reports SET size = {bytes}report{end} + {bytes}plan{end}",
    "UPDATE muntin_contents SET size = {bytes}data{end}",
    "CREATE INDEX muntin_reports_time ON muntin_reports (time, session, turn, step, size)",
    "CREATE INDEX muntin_contents_size ON muntin_contents (kind, size)",
)

# In which attempt a turn last got further. Before, the name of a frontier said what it was; the old
# table stays: a process of 0.2 that has the store open goes on and writes there.
_SEVENTH = (
    "ALTER TABLE muntin_turns ADD COLUMN progress BIGINT NOT NULL DEFAULT 0",
    """CREATE TABLE muntin_notes (
        session BIGINT NOT NULL, kind {name} NOT NULL, name {name} NOT NULL, data TEXT NOT NULL,
        CONSTRAINT muntin_notes_key PRIMARY KEY (session, kind, name))""",
    *(
        f"""INSERT INTO muntin_notes
            SELECT session, '{kind}', substr(line, {len(prefix) + 1}), data FROM muntin_frontiers
            WHERE line LIKE '{prefix}%'"""
        for prefix, kind in (
            ("held:", "held"),
            ("summary:", "summary"),
            ("recall:", "recall_segment"),
            ("recall-vectors:", "recall_vectors"),
        )
    ),
    *(
        f"""INSERT INTO muntin_notes
            SELECT session, '{kind}', '', data FROM muntin_frontiers WHERE line = '{line}'"""
        for line, kind in (
            ("summaries-in-vain", "failed_summary_usage"),
            ("fit", "recorder_frontier"),
            ("fit-steps", "recorder_steps"),
        )
    ),
    """INSERT INTO muntin_notes
        SELECT session, 'frontier', line, data FROM muntin_frontiers
        WHERE line NOT LIKE 'held:%' AND line NOT LIKE 'summary:%' AND line NOT LIKE 'recall:%'
            AND line NOT LIKE 'recall-vectors:%'
            AND line NOT IN ('summaries-in-vain', 'fit', 'fit-steps')""",
    "CREATE INDEX muntin_notes_past ON muntin_notes (name, data) WHERE kind = 'recorder_past'",
)

Migration: TypeAlias = Sequence["str | Callable[[Transaction], None]"]

# The steps from each version to the next; the first begins with no tables.
MIGRATIONS: tuple[Migration, ...] = (_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH, _SIXTH, _SEVENTH)


def bring_forward(tx: Transaction, kind: Kind, version: int) -> None:
    """Bring tables of a version, 0 for none, to the newest version, and record it."""
    for migration in MIGRATIONS[version:]:
        for step in migration:
            if isinstance(step, str):
                tx.text(step.format(**_WORDS[kind]))
            else:
                step(tx)
    tx.run("DELETE FROM muntin_meta WHERE key = 'version'")
    tx.run("INSERT INTO muntin_meta VALUES ('version', :version)", version=str(len(MIGRATIONS)))
