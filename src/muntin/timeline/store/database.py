"""Connections and transactions: how statements reach SQLite or PostgreSQL.

Owns the driver, waiting for other writers, starting again after a clash, what the driver's errors
mean, and the version of the tables. SQLAlchemy makes and keeps the connections; statements run on
the driver's own cursor, because an append should cost little more than its commit.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar
from weakref import WeakSet

from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from muntin.errors import InvalidInput, MissingExtra, StoreError
from muntin.timeline.store import schema
from muntin.timeline.store.statements import Statement, Statements

T = TypeVar("T")

# How long to wait for other writers, and how often to start again after a clash.
BUSY_SECONDS = 60.0
RETRIES = 20
# Any number, the same for all: held while tables are made.
_MIGRATION_LOCK = 0x6D756E74

_BEGIN = {
    "sqlite": ("BEGIN", "BEGIN IMMEDIATE"),
    "postgresql": ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "BEGIN"),
}
# Two transactions in each other's way: nothing was written, start again.
# https://www.postgresql.org/docs/current/mvcc-serialization-failure-handling.html
_CLASHES = ("40001", "40P01")


class Transaction:
    """Runs compiled statements on one cursor."""

    __slots__ = ("_cursor",)

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def run(self, statement: Statement, **values: Any) -> None:
        """Run a statement for its effect."""
        self._cursor.execute(statement.text, statement.bind(values))

    def many(self, insert: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows."""
        self._cursor.executemany(insert, rows)

    def all(self, statement: Statement, **values: Any) -> list[Any]:
        """Return all rows."""
        self.run(statement, **values)
        rows: list[Any] = self._cursor.fetchall()
        return rows

    def one(self, statement: Statement, **values: Any) -> Any:
        """Return the one row."""
        return self.all(statement, **values)[0]

    def scalar(self, statement: Statement, **values: Any) -> Any:
        """Return the first value of the first row, or None."""
        rows = self.all(statement, **values)
        return rows[0][0] if rows else None

    def text(self, statement: str) -> None:
        """Run a statement that has no values."""
        self._cursor.execute(statement)


class Database:
    """One SQLite file or PostgreSQL database, its tables up to date."""

    def __init__(self, url: str, *, create: bool = True) -> None:
        address = _address(url)
        self.name = _shown(address)
        self._create = create
        self.kind = address.get_backend_name()
        try:
            self.engine = create_engine(
                address,
                max_overflow=-1,
                # A connection that died while it lay idle is found out before it is used.
                pool_pre_ping=self.kind == "postgresql",
                pool_reset_on_return=None,  # every transaction is ended where it was begun
            )
        except ImportError as error:
            raise MissingExtra(f"{self.name} needs: pip install 'muntin[postgres]'") from error
        event.listen(self.engine, "connect", self._on_connect)
        self.sql = Statements(self.engine.dialect)
        self._pid = os.getpid()
        # Connections to a file never die: they are kept at hand, which is quicker than the pool.
        self._idle: deque[Any] = deque()
        self._inherited: deque[Any] = deque()
        _open.add(self)
        try:
            self._migrate()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all connections; new ones are opened when they are needed."""
        while True:
            try:
                self._idle.pop().close()
            except IndexError:
                break
        self.engine.dispose()

    def ask(self, statement: Statement, **values: Any) -> list[Any]:
        """Return the rows of one statement."""
        return self.transact(lambda tx: tx.all(statement, **values), writing=False)

    def transact(self, work: Callable[[Transaction], T], *, writing: bool) -> T:
        """Do the work in one transaction; start again where two were in each other's way."""
        for attempt in range(RETRIES):
            try:
                with self._transaction(writing) as tx:
                    return work(tx)
            except _Clash:
                _pause(attempt)
        raise StoreError(f"{self.name}: gave up after {RETRIES} clashes with other writers")

    def _connection(self) -> Any:
        try:
            return self._idle.pop()
        except IndexError:
            return self.engine.raw_connection()

    @contextmanager
    def _transaction(self, writing: bool) -> Iterator[Transaction]:
        if os.getpid() != self._pid:  # a fork must not use its parent's connections
            self.engine.dispose(close=False)
            # Kept, because a connection that is forgotten is closed.
            self._pid, self._inherited, self._idle = os.getpid(), self._idle, deque()
        committing = False
        connection = None
        try:
            connection = self._connection()
            cursor = connection.cursor()
            cursor.execute(_BEGIN[self.kind][writing])
            yield Transaction(cursor)
            committing = writing
            cursor.execute("COMMIT")
            committing = False
        except BaseException as error:
            if connection is not None:
                _give_up(connection, self.engine.dialect.loaded_dbapi.Error)
            if isinstance(error, (self.engine.dialect.loaded_dbapi.Error, SQLAlchemyError)):
                raise self._translate(error, committing) from error
            raise
        if self.kind == "sqlite":
            self._idle.append(connection)
        else:
            connection.close()

    def _translate(self, error: Exception, committing: bool) -> Exception:
        """Return our error for the driver's: what is wrong, and what to do about it."""
        cause = getattr(error, "orig", None) or error
        if getattr(cause, "sqlstate", None) in _CLASHES:
            return _Clash()
        text = str(cause).strip().partition("\n")[0]
        if len(text) > 200:  # a driver may quote the whole of what it could not read
            text = f"{text[:200]}…"
        doubt = ""
        if committing and self.kind == "postgresql":
            doubt = "; the connection broke during the commit: look whether it was stored"
        return StoreError(f"{self.name}: {text}: {_advice(cause)}{doubt}")

    def _on_connect(self, connection: Any, _record: object) -> None:
        if self.kind == "sqlite":
            connection.isolation_level = None  # we say BEGIN ourselves
            cursor = connection.cursor()
            cursor.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
            if self._create:  # a store that is there is in this mode already
                _switch_to_wal(cursor)
            cursor.execute("PRAGMA synchronous = FULL")
            cursor.close()
        else:
            connection.autocommit = True  # as above
            cursor = connection.cursor()
            cursor.execute(f"SET lock_timeout TO {int(BUSY_SECONDS * 1000)}")
            cursor.execute("SHOW synchronous_commit")
            if cursor.fetchone()[0] == "off":  # an append that returned is on disk
                cursor.execute("SET synchronous_commit TO on")
            cursor.close()

    def _migrate(self) -> None:
        """Bring the tables to the version this code writes; refuse those of a newer one."""
        newest = len(schema.MIGRATIONS)
        file = self.engine.url.database if self.kind == "sqlite" else None
        if not self._create and file and not file.startswith("file:") and not os.path.exists(file):
            raise StoreError(f"{self.name}: no store is there; look at the address")
        try:
            if self.transact(self._version, writing=False) == newest:
                return
        except StoreError as error:
            if not _no_such_table(error.__cause__):
                raise
            if not self._create:
                raise StoreError(
                    f"{self.name}: can be reached, but holds no store yet; one is made when it is "
                    "first used"
                ) from error
        dialect = self.engine.dialect

        def write(tx: Transaction) -> None:
            if self.kind == "postgresql":
                tx.text(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
            tx.text(schema.create_meta(dialect))
            for migration in schema.MIGRATIONS[self._version(tx) :]:
                for statement in migration(dialect):
                    tx.text(statement)
            tx.run(self.sql.forget_version)
            tx.many(self.sql.insert_meta, [("version", str(newest))])

        self.transact(write, writing=True)

    def _version(self, tx: Transaction) -> int:
        """Return the version of the tables, 0 where there are none; refuse a newer one."""
        found, known = tx.scalar(self.sql.version) or "0", len(schema.MIGRATIONS)
        if not found.isdecimal():
            raise StoreError(f"{self.name}: the version of its tables is {found!r}: {_DAMAGED}")
        version = int(found)
        if version > known:
            raise StoreError(
                f"{self.name}: written by a newer Muntin (version {version} of its tables, this "
                f"one knows {known}); upgrade with: pip install -U muntin"
            )
        return version


class _Clash(Exception):
    """Two transactions were in each other's way."""


# All databases of this process. SQLite's locks do not survive a fork: no connection may be open
# while one happens. https://www.sqlite.org/howtocorrupt.html#_carrying_an_open_database_connection
_open: WeakSet[Database] = WeakSet()


def _before_fork() -> None:
    for database in list(_open):
        if database.kind == "sqlite":
            database.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)


def _address(url: str) -> URL:
    try:
        address = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise InvalidInput(
            f"{url.rpartition('@')[2]!r} is no address of a store; "
            "write 'sqlite:///muntin.db' or 'postgresql://user@host/name'"
        ) from error
    if address.get_backend_name() in ("postgresql", "postgres"):
        return address.set(drivername="postgresql+psycopg")
    if not address.database or ":memory:" in address.database:
        raise InvalidInput(f"{url!r} names no file; use 'memory:' for a store in memory")
    return address.set(drivername="sqlite+pysqlite")


def _shown(address: URL) -> str:
    """Return an address as its user wrote it, but for what is secret."""
    plain = address.set(drivername=address.get_backend_name())
    secret = [name for name in plain.query if "password" in name]
    return plain.difference_update_query(secret).render_as_string(hide_password=True)


def _switch_to_wal(cursor: Any) -> None:
    """Switch to write-ahead logging; SQLite does not always wait for the lock that needs."""
    deadline = time.monotonic() + BUSY_SECONDS
    for attempt in count():
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "readonly" in str(error):
                return  # reading works in the mode the file has
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            _pause(attempt)


def _pause(attempt: int) -> None:
    """Wait a little, longer each time, so that the same writers do not meet again."""
    time.sleep(random.uniform(0, 0.01 * 2 ** min(attempt, 6)))


def _give_up(connection: Any, driver_error: type[Exception]) -> None:
    """Undo what a transaction did, and throw away a connection that cannot."""
    try:
        connection.rollback()
        connection.close()
    except driver_error:
        connection.invalidate()


def _no_such_table(error: BaseException | None) -> bool:
    return "no such table" in str(error) or getattr(error, "sqlstate", None) == "42P01"


_BUSY = "another process held it for too long"
_DAMAGED = "the file is damaged, or is something else; bring back a copy"
_READ_ONLY = "it cannot be written; look at its permissions"
_FULL = "make room; nothing of this was written"
_SQLITE_ADVICE = {
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR: "look at the disk; nothing of this was written",
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: "does the folder exist, and may it be written?",
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
}
# By the longest beginning of the code that is known; no code at all means no connection.
# https://www.postgresql.org/docs/current/errcodes-appendix.html
_POSTGRES_ADVICE = {
    "": (
        "is the server running, and are host, database, user and password right? The store works "
        "again when they are"
    ),
    "28": "look at the user and the password",
    "3D": "the database does not exist; create it",
    "42501": "the user lacks rights on the tables; grant them",
    "25006": "the server takes no writes",
    "53100": _FULL,
    "53300": "the server takes no more connections; close some, or raise its limit",
    "55P03": _BUSY,
    "57014": "the server gave up on it; look at its statement_timeout",
}


def _advice(error: BaseException) -> str:
    """Return what to do about a failure."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        return _SQLITE_ADVICE.get(code & 0xFF, "look at the file")
    if isinstance(error, sqlite3.Error):
        return _DAMAGED  # text that is no text
    state = getattr(error, "sqlstate", None) or ""
    known = [begin for begin in _POSTGRES_ADVICE if state.startswith(begin)]
    if state and max(known, key=len) == "" and not state.startswith(("08", "57P")):
        return "this should not happen; please report it"
    return _POSTGRES_ADVICE[max(known, key=len)]
