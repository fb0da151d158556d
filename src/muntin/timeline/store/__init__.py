"""Stores: where timelines are kept, and a store by its address."""

from __future__ import annotations

import re

from muntin.core.checks import shown
from muntin.errors import InvalidInput, InvalidType
from muntin.timeline.store.sql import Store

__all__ = ["DEFAULT_URL", "Store", "as_store", "open_store"]

DEFAULT_URL = "sqlite:///muntin.db"
# A text that looks like the name of a file.
_FILE = re.compile(r"^[^:?]+\.(db|sqlite3?)$")


def open_store(
    url: str = DEFAULT_URL,
    *,
    create: bool = True,
    lazy: bool = False,
    timeout: float | None = None,
) -> Store:
    """Open the store at an address.

    `sqlite:///file.db` is a file that appears when it is first used, `postgresql://…` a server,
    `memory:` lives as long as the object. Without `create` a missing store is an error. With `lazy`
    nothing is opened before the first use. A use of the store waits `timeout` seconds (10) for a
    server that does not answer, or for other writers of a file; then it is an error.
    """
    if not isinstance(url, str):
        raise InvalidType(f"a store is opened by its address, a str, not {shown(url)}")
    scheme = url.partition(":")[0].partition("+")[0]
    if scheme not in ("memory", "sqlite", "postgresql", "postgres"):
        raise InvalidInput(
            f"unknown store {shown(scheme)}; use {_file(url)!r}, "
            "'postgresql://user@host/name' or 'memory:'"
        )
    if timeout is not None and not timeout > 0:
        raise InvalidInput(f"timeout must be more than 0 seconds, not {shown(timeout)}")
    return Store(url, create=create, lazy=lazy, timeout=timeout)


def as_store(store: Store | str, timeout: float | None = None) -> Store:
    """Return a store as it is, or the one at an address, which is opened when it is first used."""
    if isinstance(store, str):
        return open_store(store, lazy=True, timeout=timeout)
    if not hasattr(store, "sessions"):
        raise InvalidType(
            f"store must be a store or its address, not {shown(store)}; "
            f"an address is a str like {_file(str(store))!r}"
        )
    return store


def _file(name: str) -> str:
    """Return the address of the file that a name probably means."""
    return f"sqlite:///{name}" if _FILE.search(name) else DEFAULT_URL
