"""A transaction: runs statements on one cursor, spelled as the driver wants them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from muntin.timeline.store.sql.address import Kind


class Transaction:
    """Runs statements on one cursor."""

    __slots__ = ("_cursor", "_spell")

    def __init__(self, cursor: Any, spell: Callable[[str], str]) -> None:
        self._cursor = cursor
        self._spell = spell

    def run(self, statement: str, **values: Any) -> None:
        """Run a statement for its effect."""
        self._cursor.execute(self._spell(statement), values)

    def many(self, insert: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows."""
        self._cursor.executemany(self._spell(insert), rows)

    def all(self, statement: str, **values: Any) -> list[Any]:
        """Return all rows."""
        self.run(statement, **values)
        rows: list[Any] = self._cursor.fetchall()
        return rows

    def scalar(self, statement: str, **values: Any) -> Any:
        """Return the first value of the first row, or None."""
        rows = self.all(statement, **values)
        return rows[0][0] if rows else None

    def text(self, statement: str) -> None:
        """Run a statement that has no values, as it is written."""
        self._cursor.execute(statement)


_VALUE = re.compile(r":(\w+)")


@cache
def _for_sqlite(statement: str) -> str:
    # Nothing to lock: there is one writer at a time anyway.
    return statement.removesuffix(" FOR UPDATE")


@cache
def _for_psycopg(statement: str) -> str:
    text = _VALUE.sub(r"%(\1)s", statement).replace("?", "%s")
    return text.replace("json_each(", "json_array_elements_text(")


def spelling(kind: Kind) -> Callable[[str], str]:
    """Return what writes a statement as the driver of a database wants it."""
    return _for_sqlite if kind == "sqlite" else _for_psycopg
