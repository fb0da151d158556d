"""One transaction: statements as each driver wants them spelled, and what they return."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

_VALUE = re.compile(r":(\w+)")


@cache
def for_sqlite(statement: str) -> str:
    """Spell a statement for sqlite3."""
    # No row locks: SQLite has one writer at a time anyway.
    return statement.removesuffix(" SKIP LOCKED").removesuffix(" FOR UPDATE")


@cache
def for_psycopg(statement: str) -> str:
    """Spell a statement for psycopg."""
    text = _VALUE.sub(r"%(\1)s", statement).replace("?", "%s")
    text = text.replace("muntin_now()", "(extract(epoch FROM clock_timestamp()) * 1e6)::bigint")
    return text.replace("json_each(", "json_array_elements_text(")


class Transaction:
    """Runs statements on one connection, spelled as the driver wants them.

    PostgreSQL answers several statements together: a statement that returns no rows waits for no
    answer, and its error comes with a later statement or with the commit.
    """

    __slots__ = ("_check", "_spell", "connection")

    def __init__(
        self, connection: Any, spell: Callable[[str], str], check: Callable[[], None] | None = None
    ) -> None:
        # Reads the answers to what was sent before the first statement.
        self._check = check
        # The driver's connection, for other writes in this transaction.
        self.connection = connection
        self._spell = spell

    def run(self, statement: str, **values: Any) -> None:
        """Run a statement for its effect."""
        self.connection.execute(self._spell(statement), values)

    def many(self, insert: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows."""
        self.connection.cursor().executemany(self._spell(insert), rows)

    def all(self, statement: str, **values: Any) -> list[Any]:
        """Return all rows."""
        cursor = self.connection.execute(self._spell(statement), values)
        self.look()
        rows: list[Any] = cursor.fetchall()
        return rows

    def look(self) -> None:
        """Read the answers to what was sent before, if nobody has."""
        if self._check is not None:
            check, self._check = self._check, None
            check()

    def scalar(self, statement: str, **values: Any) -> Any:
        """Return the first value of the first row, or None."""
        rows = self.all(statement, **values)
        return rows[0][0] if rows else None

    def text(self, statement: str) -> None:
        """Run a statement without values, exactly as written."""
        self.connection.execute(statement)
