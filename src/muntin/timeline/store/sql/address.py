"""Addresses of SQL stores: how they are read, and how errors show them.

Owns what is secret in an address. Opens nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qsl, unquote

from muntin.errors import InvalidInput

Kind: TypeAlias = Literal["sqlite", "postgresql"]

_ADDRESS = re.compile(
    r"""
    (?P<scheme>\w+)(?:\+\w+)?://
    (?:(?P<user>[^:/]*)(?::(?P<password>[^@]*))?@)?
    (?:\[(?P<ipv6>[^/?]+)\]|(?P<host>[^/:?]+))?
    (?::(?P<port>\d*))?
    (?:/(?P<path>[^?]*))?
    (?:\?(?P<query>.*))?
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a store is: `shown` has no password, `options` are for the driver's `connect`.

    `file` is the SQLite file, if the address names one directly. A store `in_memory` has one
    connection, and lives as long as that.
    """

    kind: Kind
    shown: str
    options: Mapping[str, Any]
    file: str | None = None
    in_memory: bool = False


def read_address(url: str) -> Address:
    """Read the address of an SQLite file or a PostgreSQL database."""
    if url.partition(":")[0] == "memory":
        return Address("sqlite", "memory:", {"database": ":memory:"}, in_memory=True)
    match = _ADDRESS.fullmatch(url)
    if match is None:
        raise InvalidInput(
            f"{url.partition('?')[0].rpartition('@')[2]!r} is no address of a store; "
            "write 'sqlite:///muntin.db' or 'postgresql://user@host/name'"
        )
    query: dict[str, str] = {}
    for name, value in parse_qsl(match["query"] or ""):
        query[name] = f"{query[name]},{value}" if name in query else value
    return _sqlite(match, query) if match["scheme"] == "sqlite" else _postgresql(match, query)


def _sqlite(match: re.Match[str], query: dict[str, str]) -> Address:
    visible = _displayed("sqlite", match)
    path = unquote(match["path"] or "")
    if not path or ":memory:" in path or match["host"]:
        file = "/".join(part for part in (match["host"], path) if part)
        meant = f"'sqlite:///{file}'" if match["host"] else "'sqlite:///muntin.db'"
        raise InvalidInput(
            f"{visible!r} names no file; write {meant} with three slashes, or 'memory:' for a "
            "store in memory"
        )
    if query.pop("uri", "").lower() in ("true", "1", "yes", "on"):
        rest = "&".join(f"{name}={value}" for name, value in query.items())
        whole = f"{path}?{rest}" if rest else path
        return Address("sqlite", visible, {"database": whole, "uri": True})
    if query:
        raise InvalidInput(f"{visible!r}: options need 'sqlite:///file:NAME?…&uri=true'")
    # Absolute, so that it is the same file after a change of folder.
    file = os.path.abspath(path)
    return Address("sqlite", visible, {"database": file}, file)


def _postgresql(match: re.Match[str], query: dict[str, str]) -> Address:
    values = {
        "user": unquote(match["user"] or ""),
        "password": unquote(match["password"] or ""),
        "host": match["ipv6"] or match["host"],
        "port": match["port"],
        "dbname": unquote(match["path"] or ""),
    }
    options = {name: value for name, value in values.items() if value} | query
    return Address("postgresql", _displayed("postgresql", match), options)


def _displayed(kind: Kind, match: re.Match[str]) -> str:
    """Return an address as its user wrote it, without secrets."""
    text = match.string
    if match["password"] is not None:
        start, end = match.span("password")
        text = f"{text[:start]}***{text[end:]}"
    rest, _, query = text.partition("://")[2].partition("?")
    parameters = [
        parameter
        for parameter in query.split("&")
        if parameter and "password" not in unquote(parameter.partition("=")[0]).lower()
    ]
    return f"{kind}://{rest}{'?' if parameters else ''}{'&'.join(parameters)}"
