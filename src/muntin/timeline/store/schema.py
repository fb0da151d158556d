"""The tables of the SQL stores, and how older ones are brought up to date.

A version is never changed once released: a new one is added with what it takes to get there.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable, DDLElement

_metadata = MetaData()
# Compared by code point on both databases.
_text = Text().with_variant(Text(collation="C"), "postgresql")
# SQLite counts ids up only in a column of exactly this type.
_id = BigInteger().with_variant(Integer(), "sqlite")


def _session() -> Column[int]:
    # No foreign key: only the store writes these tables, and checking each row costs.
    return Column("session", _id, nullable=False)


meta = Table(
    "muntin_meta",
    _metadata,
    Column("key", _text, primary_key=True),
    Column("value", _text, nullable=False),
)

# `head` is the newest position, `turn` the newest turn, `total` the weight of all items.
sessions = Table(
    "muntin_sessions",
    _metadata,
    Column("id", _id, primary_key=True, autoincrement=True),
    Column("name", _text, nullable=False),
    Column("head", BigInteger, nullable=False),
    Column("turn", BigInteger, nullable=False),
    Column("total", BigInteger, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("updated", BigInteger, nullable=False),
    UniqueConstraint("name", name="muntin_sessions_name"),
    sqlite_autoincrement=True,
)

turns = Table(
    "muntin_turns",
    _metadata,
    _session(),
    Column("number", BigInteger, nullable=False),
    Column("status", _text, nullable=False),
    Column("first", BigInteger, nullable=False),
    Column("owner", _text),
    Column("until", BigInteger),
    PrimaryKeyConstraint("session", "number", name="muntin_turns_key"),
    sqlite_with_rowid=False,
)

# `data` and `tokens` are JSON as text: what was written is read, byte for byte.
# `total` is the running sum of weights up to and with the item.
items = Table(
    "muntin_items",
    _metadata,
    _session(),
    Column("position", BigInteger, nullable=False),
    Column("turn", BigInteger, nullable=False),
    Column("kind", _text, nullable=False),
    Column("run", BigInteger),
    Column("client", Boolean, nullable=False),
    Column("history", Boolean, nullable=False),
    Column("transient", Boolean, nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("total", BigInteger, nullable=False),
    Column("tokens", Text, nullable=False),
    Column("data", Text, nullable=False),
    PrimaryKeyConstraint("session", "position", name="muntin_items_key"),
)

# One row for each version of a context entry; `ended` is where it was replaced or removed.
entries = Table(
    "muntin_entries",
    _metadata,
    _session(),
    Column("entry", _text, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("ended", BigInteger),
    PrimaryKeyConstraint("session", "entry", "position", name="muntin_entries_key"),
    sqlite_with_rowid=False,
)

_INDEXES = (
    # With all columns, or SQLite would rather read the whole table in its order.
    Index(
        "muntin_turns_status",
        *(turns.c.session, turns.c.status, turns.c.number),
        *(turns.c.first, turns.c.owner, turns.c.until),
    ),
    Index("muntin_items_turn", items.c.session, items.c.turn, items.c.position),
    Index("muntin_items_total", items.c.session, items.c.total, items.c.position),
    Index("muntin_entries_live", entries.c.session, entries.c.ended, entries.c.position),
)


# What was composed, and the plan to compose it again; contents are kept once, by hash.
reports = Table(
    "muntin_reports",
    _metadata,
    _session(),
    Column("turn", BigInteger, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("report", Text, nullable=False),
    Column("plan", Text, nullable=False),
    PrimaryKeyConstraint("session", "turn", "step", name="muntin_reports_key"),
)

contents = Table(
    "muntin_contents",
    _metadata,
    _session(),
    Column("hash", _text, nullable=False),
    Column("turn", BigInteger, nullable=False),
    Column("data", Text, nullable=False),
    PrimaryKeyConstraint("session", "hash", name="muntin_contents_key"),
)

# What one turn leaves to the next, by name.
states = Table(
    "muntin_states",
    _metadata,
    _session(),
    Column("key", _text, nullable=False),
    Column("value", Text, nullable=False),
    PrimaryKeyConstraint("session", "key", name="muntin_states_key"),
)

_UNSETTLED = text("status IN ('open', 'pending')")
_WAITING = Index(
    "muntin_turns_waiting",
    *(turns.c.session, turns.c.number, turns.c.status),
    *(turns.c.first, turns.c.owner, turns.c.until),
    sqlite_where=_UNSETTLED,
    postgresql_where=_UNSETTLED,
)


def _first(dialect: Dialect) -> list[str]:
    made: list[DDLElement] = [CreateTable(each) for each in (sessions, turns, items, entries)]
    made += [CreateIndex(index) for index in _INDEXES]
    return [str(each.compile(dialect=dialect)) for each in made]


def _second(dialect: Dialect) -> list[str]:
    made: list[DDLElement] = [CreateTable(each) for each in (reports, contents, states)]
    made.append(CreateIndex(_WAITING))
    return [str(each.compile(dialect=dialect)) for each in made]


# How to get from each version to the next; the first is from nothing.
MIGRATIONS: tuple[Callable[[Dialect], list[str]], ...] = (_first, _second)


def create_meta(dialect: Dialect) -> str:
    """Return the statement that makes the table in which the version is recorded."""
    return str(CreateTable(meta, if_not_exists=True).compile(dialect=dialect))
