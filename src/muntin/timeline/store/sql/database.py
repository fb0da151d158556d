"""Connections and transactions: how statements reach SQLite or PostgreSQL.

Owns the driver, the connections at hand, waiting for other writers, starting again after a clash,
and the version of the tables.
"""

from __future__ import annotations

import math
import os
import random
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import count
from threading import Lock, get_ident
from types import ModuleType
from typing import Any, TypeVar
from weakref import finalize

from muntin.core.checks import shown
from muntin.errors import StoreError, needing
from muntin.timeline.clock import monotonic_micros, new_anchor
from muntin.timeline.store.sql import schema, waiting
from muntin.timeline.store.sql.address import Address, read_address
from muntin.timeline.store.sql.transaction import Transaction, for_psycopg, for_sqlite
from muntin.timeline.store.sql.trouble import (
    BUSY,
    DAMAGED,
    advice,
    is_away,
    is_busy,
    is_drop,
    is_silent,
    no_such_table,
    passes,
)

T = TypeVar("T")

# How many seconds a use of a store waits for other writers of a file, or for a server.
SECONDS = 10.0
# A server says itself what takes too long; so much later it is taken for one that is gone.
_GRACE = 0.5
# How long work that may take as long as it wants waits for locks.
_LOCK_MILLISECONDS = 60_000
# How long a checkpoint waits, and how often to start again after a clash.
_SHORT_WAIT = 0.1
RETRIES = 20
# For how long one transaction is tried again while connections are dropped.
DROP_SECONDS = 10.0
# This many connections to a server are kept; all connections to a file are kept.
KEPT = 5
# The key of the lock that is held while tables are made; the same number in all processes.
_MIGRATION_LOCK = 0x6D756E74
# Writers hold it together, so that nobody changes the tables between a look and a write.
_HOLD_TABLES = f"SELECT pg_advisory_xact_lock_shared({_MIGRATION_LOCK})"

# A connection whose other end is gone is noticed, also where nobody says so: in seconds, how many,
# and in milliseconds. https://www.postgresql.org/docs/current/libpq-connect.html
_ALIVE = {
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "2",
    "tcp_user_timeout": "10000",
}

# Only this module begins transactions, and any thread may use an idle connection.
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "sqlite": {"isolation_level": None, "check_same_thread": False},
    "postgresql": {"autocommit": True},
}
_BEGIN = {"sqlite": "BEGIN IMMEDIATE", "postgresql": "BEGIN"}
# Two transactions clashed: nothing was written, start again.
# https://www.postgresql.org/docs/current/mvcc-serialization-failure-handling.html
_CLASHES = ("40001", "40P01")
# A row with this key exists.
UNIQUE_VIOLATION = "23505"


class Connections:
    """The connections to one file or server; any thread uses an idle one again."""

    def __init__(self, address: Address, *, create: bool, timeout: float | None = None) -> None:
        self.address = address
        # How many seconds a use may wait.
        self.timeout = SECONDS if timeout is None else timeout
        # Whether a file, or its tables, may be made.
        self.create = create or address.in_memory
        self.driver = _driver(address)
        # The clock of SQLite's leases: a server has a clock of its own.
        self.anchor = new_anchor()
        self._pid = os.getpid()
        self._idle: deque[Any] = deque()
        # The only connection to a store in memory; threads use it in turn.
        self._memory: Any = None
        self._inherited: list[Any] = []

    @property
    def options(self) -> Mapping[str, Any]:
        """The arguments of the driver's `connect`."""
        if self.address.kind == "sqlite":
            return self.address.options
        # Two seconds are the least that the driver takes.
        connecting = {"connect_timeout": max(2, math.ceil(self.timeout))}
        return {**_ALIVE, **connecting, **self.address.options}

    def close(self) -> None:
        """Close all connections; new ones are opened when they are needed."""
        with suppress(IndexError):
            while True:
                self._idle.pop().close()
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    @contextmanager
    def cursor(
        self, first: str | None, values: Mapping[str, Any], *, has_limit: bool = True
    ) -> Iterator[Any]:
        """Run a first statement, if given, and keep the connection for later when all is done.

        Work on a server that may take as long as it wants has a connection of its own.
        """
        has_limit |= self.address.kind == "sqlite"
        if os.getpid() != self._pid:  # a fork must not use its parent's connections
            # Kept, because a connection without a reference is closed.
            self._inherited += self._idle
            self._pid, self._idle = os.getpid(), deque()
        connection = None
        try:
            connection, cursor = self._start(first, values, has_limit)
            yield cursor
        except BaseException as error:
            if connection is not None:
                self._give_up(connection)
            if isinstance(error, self.driver.Error):
                translated = self.translate(error)
                was_dropped = connection is not None and self._is_dead(connection)
                is_again = (was_dropped or is_drop(error)) and not is_silent(error)
                raise (_Dropped(translated) if is_again else translated) from error
            raise
        if has_limit:
            self._keep(connection)
        else:
            connection.close()

    def _start(
        self, first: str | None, values: Mapping[str, Any], has_limit: bool
    ) -> tuple[Any, Any]:
        """Run a first statement on an idle connection, or on a new one.

        Only this statement may have to wait for another process.
        """
        began = time.monotonic()
        while True:
            connection, new = self._memory, False
            if not has_limit:
                connection, new = self._connect(has_limit), True
            elif connection is None:
                try:
                    connection = self._idle.pop()
                except IndexError:
                    connection, new = self._connect(), True
            try:
                if first is None:
                    return connection, connection.cursor()
                return connection, connection.execute(first, values)
            except BaseException as error:
                self._give_up(connection)
                waited = time.monotonic() - began
                if is_busy(error) and waited < self.timeout:
                    waiting.wait_to_look(waited)
                    continue
                # A connection that died while idle is replaced: nothing was done on it yet.
                if new or is_silent(error) or not self._is_dead(connection):
                    raise
                if not isinstance(error, self.driver.Error):
                    raise

    def _is_dead(self, connection: Any) -> bool:
        return self.address.kind == "postgresql" and bool(connection.closed)

    def _keep(self, connection: Any) -> None:
        if connection is self._memory:
            return
        if self.address.kind == "sqlite" or len(self._idle) < KEPT:
            self._idle.append(connection)
        else:
            connection.close()

    def _give_up(self, connection: Any) -> None:
        """Roll a transaction back, and close a connection that cannot."""
        try:
            if self.address.kind == "postgresql" and connection.pgconn.pipeline_status:
                connection.close()  # it is stuck
                return
            connection.rollback()
        except self.driver.Error:
            with suppress(self.driver.Error):
                connection.close()
        else:
            self._keep(connection)

    def translate(self, error: Exception, *, in_doubt: bool = False) -> Exception:
        """Return Muntin's error for the driver's: what is wrong, and what to do about it."""
        if getattr(error, "sqlstate", None) in _CLASHES:
            return _Clash()
        text = str(error).strip().partition("\n")[0]
        if len(text) > 200:  # a driver may quote a whole unreadable text
            text = f"{text[:200]}…"
        doubt = ""
        if in_doubt:
            doubt = "; the connection broke during the commit: look whether it was stored"
        translated = StoreError(f"{self.address.shown}: {text}: {advice(error)}{doubt}")
        translated.passing, translated.away, translated.in_doubt = (
            passes(error),
            is_away(error),
            in_doubt,
        )
        return translated

    def _connect(self, has_limit: bool = True) -> Any:
        options = {**self.options, **_OPTIONS[self.address.kind]}
        if self.address.kind == "sqlite":
            connection = self.driver.connect(**options)
        else:
            from muntin.timeline.store.sql.patience import PatientConnection

            connection = PatientConnection.connect(**options)
            connection.seconds = self.timeout + _GRACE if has_limit else math.inf
        try:
            self._set_up(connection)
        except BaseException:
            connection.close()
            raise
        if self.address.in_memory:
            self._memory = connection
            finalize(self, connection.close)
        return connection

    def _set_up(self, connection: Any) -> None:
        if self.address.kind == "sqlite":
            connection.execute("PRAGMA busy_timeout = 0")  # waiting is done here
            if self.create:  # an existing store is in this mode already
                _switch_to_wal(connection, self.timeout)
            connection.execute("PRAGMA synchronous = FULL")
            # Deleted data is overwritten.
            connection.execute("PRAGMA secure_delete = ON")
            connection.create_function("muntin_now", 0, self._now)
        else:
            # Who waits for a lock hears of it before the statement has taken too long.
            has_limit = math.isfinite(connection.seconds)
            statement = math.ceil(self.timeout * 1000) if has_limit else 0
            lock = math.ceil(0.9 * statement) or _LOCK_MILLISECONDS
            connection.execute(f"SET lock_timeout TO {lock}; SET statement_timeout TO {statement}")
            (synchronous,) = connection.execute("SHOW synchronous_commit").fetchone()
            if synchronous == "off":  # an append must be on disk when it returns
                connection.execute("SET synchronous_commit TO on")

    def _now(self) -> int:
        return self.anchor + monotonic_micros()


class Database:
    """One SQLite file or PostgreSQL database, its tables up to date."""

    def __init__(
        self, url: str, *, create: bool = True, lazy: bool = False, timeout: float | None = None
    ) -> None:
        address = read_address(url)
        self.name, self.kind = address.shown, address.kind
        # Whether it never waits for a disk or a server, so that an event loop may use it.
        self.in_memory = address.in_memory
        self.connections = Connections(address, create=create, timeout=timeout)
        self._spell = for_sqlite if self.kind == "sqlite" else for_psycopg
        # Whether the tables have this code's version, and the thread that prepares them.
        self._ready = False
        self._preparing: int | None = None
        self._lock = Lock()
        self._queue = waiting.Queue()  # of threads that write to a file
        # Device and inode of the file, once it was opened.
        self._inode: tuple[int, int] | None = None
        waiting.watch(self)
        if not lazy:
            self._prepare()

    @property
    def options(self) -> Mapping[str, Any]:
        """The arguments of the driver's `connect`."""
        return self.connections.options

    def close(self) -> None:
        """Close all connections; new ones are opened when they are needed."""
        self.connections.close()
        self._ready = self._ready and not self.in_memory

    def query(self, statement: str, **values: Any) -> list[Any]:
        """Return the rows of one statement, which sees one state of the database."""
        text = self._spell(statement)

        def ask() -> list[Any]:
            with self.connections.cursor(text, values) as cursor:
                rows: list[Any] = cursor.fetchall()
                return rows

        return self._until_done(ask)

    def transact(self, work: Callable[[Transaction], T]) -> T:
        """Do the work in one transaction that may write, in tables of the version that this code
        knows."""
        if self.kind == "postgresql" and self.connections.driver.Pipeline.is_supported():
            return self._until_done(partial(self._send, work))  # libpq 14 and newer
        return self._until_done(partial(self._write, work), self._queue)

    def run_script(self, work: Callable[[Transaction], T]) -> T:
        """Do work that may run several statements at once, in one transaction; PostgreSQL accepts
        them only where each waits for its answer. It may take as long as it wants."""
        return self._until_done(partial(self._write, work, is_script=True), self._queue)

    def _send(self, work: Callable[[Transaction], T]) -> T:
        """Do the work in one transaction whose statements are answered together."""
        with self.connections.cursor(None, {}) as cursor, ExitStack() as ending:
            connection = cursor.connection
            with connection.pipeline():
                connection.execute("BEGIN")
                connection.execute(_HOLD_TABLES)
                version = connection.execute(schema.VERSION)
                tx = Transaction(
                    connection, self._spell, lambda: self._refuse_changed(version.fetchall())
                )
                done = work(tx)
                tx.look()  # a connection that was dead before is no doubt
                # The pipeline hears of the commit when it ends.
                ending.enter_context(self._committing(connection))
                connection.execute("COMMIT")
            return done

    def _write(self, work: Callable[[Transaction], T], *, is_script: bool = False) -> T:
        begin = _BEGIN[self.kind]
        with self.connections.cursor(begin, {}, has_limit=not is_script) as cursor:
            if not is_script:
                if self.kind == "postgresql":
                    cursor.execute(_HOLD_TABLES)
                self._refuse_changed(cursor.execute(schema.VERSION).fetchall())
            done = work(Transaction(cursor.connection, self._spell))
            with self._committing(cursor.connection):
                cursor.execute("COMMIT")
            return done

    @contextmanager
    def _committing(self, connection: Any) -> Iterator[None]:
        """Say of a failure from now on whether the commit may have been made: nobody knows unless
        the server said what is wrong."""
        try:
            yield
        except self.connections.driver.Error as error:
            doubt = False
            if self.kind == "postgresql":
                has_state = getattr(error, "sqlstate", None) is not None and not is_drop(error)
                doubt = connection.closed or not has_state
            raise self.connections.translate(error, in_doubt=doubt) from error

    def checkpoint(self) -> None:
        """Empty the write-ahead log of a file, which holds deleted data, unless others read."""
        if self.kind == "sqlite" and not self.in_memory:
            with suppress(StoreError):
                self._empty_log(_SHORT_WAIT)

    def vacuum(self, tables: Sequence[str]) -> None:
        """Write all tables again, without the room of deleted data; others wait meanwhile."""
        if self.kind == "sqlite":
            self._alone("VACUUM")
            if not self.in_memory and not self._empty_log(self.connections.timeout):
                raise StoreError(f"{self.name}: others read for too long; run it again")
            return
        for table in tables:
            self._alone(f"VACUUM (FULL, ANALYZE) {table}")

    def _empty_log(self, wait: float) -> bool:
        """Empty the write-ahead log; False if others read for longer than `wait` seconds."""
        with self.connections.cursor(f"PRAGMA busy_timeout = {int(wait * 1000)}", {}) as cursor:
            cursor.fetchall()
            (busy, _, _) = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            cursor.execute("PRAGMA busy_timeout = 0").fetchall()
        return not busy

    def _alone(self, statement: str) -> None:
        """Run a statement outside of any transaction."""

        def work() -> None:
            with self.connections.cursor(statement, {}, has_limit=False) as cursor:
                if cursor.description is not None:
                    cursor.fetchall()

        self._until_done(work)

    def _prepare(self) -> None:
        """Bring the tables up to date, once; other threads wait for it."""
        if self._preparing == get_ident():
            return
        with self._lock:
            if self._ready:
                return
            self._preparing = get_ident()
            try:
                self._migrate()
                if self.kind == "sqlite":
                    self._set_clock()
            except BaseException:
                self.close()
                raise
            finally:
                self._preparing = None
            self._inode = self._find_file()
            self._ready = True

    def leave_to_fork(self) -> None:
        """Close the connections to a file before a fork."""
        if self.kind == "sqlite" and not self.in_memory:
            self.close()

    def forget_threads(self) -> None:
        """Begin anew in a forked process: the other threads of its parent are not here."""
        self._lock, self._preparing, self._queue = Lock(), None, waiting.Queue()

    def _find_file(self) -> tuple[int, int] | None:
        """Return device and inode of an SQLite file; None if there is no file."""
        try:
            status = os.stat(self.connections.address.file or "")
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _look_at_file(self) -> None:
        """Refuse to write to a deleted file, where no process would find the data.

        Another file in its place, such as a restored copy, is the store from now on.
        """
        inode = self._find_file()
        if inode == self._inode:
            return
        self.close()
        if inode is None:
            gone = StoreError(
                f"{self.name}: the file was deleted or moved under this process; bring it back, or "
                "begin a new store by opening it again. Nothing of this was written"
            )
            gone.passing = True
            raise gone
        self._ready = False

    def _until_done(self, attempt: Callable[[], T], queue: waiting.Queue | None = None) -> T:
        """Do something in a file's queue, if it has one; start again after a clash."""
        if self._ready and self._inode is not None:
            self._look_at_file()
        if not self._ready:
            self._prepare()
        if self.in_memory:
            queue = self._queue
        dropped, until = 0, math.inf
        clashed = 0
        while clashed < RETRIES:
            try:
                if self.kind == "postgresql":
                    return attempt()
                return waiting.admitted(attempt, queue, self.connections.timeout)
            except waiting.TooLong:
                too_long = StoreError(f"{self.name}: {BUSY}")
                too_long.passing = True
                raise too_long from None
            except _Clash:
                _pause(clashed)
                clashed += 1
            except _Dropped as error:
                until = min(until, time.monotonic() + DROP_SECONDS)
                if time.monotonic() > until:
                    raise error.error from error.__cause__
                _pause(dropped)
                dropped += 1
        failed = StoreError(f"{self.name}: gave up after {RETRIES} clashes with other writers")
        failed.passing = True
        raise failed

    def _set_clock(self) -> None:
        """Use the clock that all processes of this machine use for the file."""
        with suppress(StoreError):  # a read-only file: no process takes leases in it
            anchor = schema.anchor_of(self, write=self.connections.create)
            self.connections.anchor = self.connections.anchor if anchor is None else anchor

    def _migrate(self) -> None:
        """Bring the tables to the version of this code; refuse tables of a newer version."""
        file = self.connections.address.file
        if not self.connections.create and file and not os.path.exists(file):
            raise StoreError(f"{self.name}: no store is there; look at the address")
        try:
            if self._version(self.query(schema.VERSION)) == len(schema.MIGRATIONS):
                return
        except StoreError as error:
            if not no_such_table(error.__cause__):
                raise
            if not self.connections.create:
                raise StoreError(
                    f"{self.name}: can be reached, but holds no store yet; one is made when it is "
                    "first used"
                ) from error

        def write(tx: Transaction) -> None:
            if self.kind == "postgresql":
                tx.text(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
            schema.make_meta(tx, self.kind)
            schema.bring_forward(tx, self.kind, self._version(tx.all(schema.VERSION)))

        self.run_script(write)

    def _refuse_changed(self, rows: Sequence[Sequence[str]]) -> None:
        """Refuse to write into tables that another version has changed since they were opened."""
        stored_version, newest_version = rows[0][0] if rows else "0", len(schema.MIGRATIONS)
        if stored_version != str(newest_version):
            raise StoreError(
                f"{self.name}: another version of Muntin has changed the tables under this process "
                f"(version {shown(stored_version)}, this one knows {newest_version}); "
                "restart it with that version. Nothing of this was written"
            )

    def _version(self, rows: Sequence[Sequence[str]]) -> int:
        """Return the version of the tables, 0 if there are none; refuse a newer version."""
        stored_version, newest_version = rows[0][0] if rows else "0", len(schema.MIGRATIONS)
        if not stored_version.isdecimal():
            raise StoreError(
                f"{self.name}: the version of its tables is {shown(stored_version)}: {DAMAGED}"
            )
        version = int(stored_version)
        if version > newest_version:
            raise StoreError(
                f"{self.name}: written by a newer Muntin (version {version} of its tables, this "
                f"one knows {newest_version}); upgrade with: pip install -U muntin"
            )
        return version


class _Clash(Exception):
    """Two transactions clashed."""


class _Dropped(Exception):
    """The server dropped the connection before the commit: nothing was written."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def _driver(address: Address) -> ModuleType:
    if address.kind == "sqlite":
        return sqlite3
    with needing(f"{address.shown} needs: pip install 'muntin[postgres]'"):
        import psycopg
    return psycopg


def _switch_to_wal(connection: Any, seconds: float) -> None:
    """Switch to write-ahead logging; SQLite does not always wait for the needed lock."""
    deadline = time.monotonic() + seconds
    for attempt in count():
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "readonly" in str(error):
                return  # reading works in any mode
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            _pause(attempt)


def _pause(attempt: int) -> None:
    """Wait a little, longer each time, so that the same writers do not meet again."""
    time.sleep(random.uniform(0, 0.01 * 2 ** min(attempt, 6)))
