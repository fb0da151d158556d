"""The tables of the SQL stores, and how older ones are brought up to date.

A version is never changed once released: a new one is added with what it takes to get there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from muntin.timeline.store.address import Kind

# What a database calls it: a text compared by code point, an id that counts up, a table that is
# its own index.
WORDS: Mapping[Kind, Mapping[str, str]] = {
    "sqlite": {
        "id": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "name": "TEXT",
        "is_index": "WITHOUT ROWID",
    },
    "postgresql": {
        "id": "BIGSERIAL PRIMARY KEY",
        "name": 'TEXT COLLATE "C"',
        "is_index": "",
    },
}

META = "CREATE TABLE IF NOT EXISTS muntin_meta (key {name} PRIMARY KEY, value {name} NOT NULL)"

# No foreign keys: only the store writes these tables, and checking each row costs.
# Of a session, `head` is the newest position, `turn` the newest turn, `total` the weight of all
# items; of an item, `total` is the running sum up to and with it. `data` and `tokens` are JSON as
# text: what was written is read, byte for byte. Of an entry there is a row for each version;
# `ended` is where it was replaced or removed.
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
    # With all columns, or SQLite would rather read the whole table in its order.
    """CREATE INDEX muntin_turns_status
        ON muntin_turns (session, status, number, first, owner, until)""",
    "CREATE INDEX muntin_items_turn ON muntin_items (session, turn, position)",
    "CREATE INDEX muntin_items_total ON muntin_items (session, total, position)",
    "CREATE INDEX muntin_entries_live ON muntin_entries (session, ended, position)",
)

# What was composed, and the plan to compose it again; contents are kept once, by hash. States are
# what one turn leaves to the next.
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

Migration: TypeAlias = Sequence[str]

# How to get from each version to the next; the first is from nothing.
MIGRATIONS: tuple[Migration, ...] = (_FIRST, _SECOND)
