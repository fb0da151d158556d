"""The three stores, each fresh for a test: in memory, an SQLite file, a real PostgreSQL."""

from collections.abc import Iterator

import pytest

from muntin.timeline.store import Store, open_store
from tests.reliability.server import Server


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store_url(request, tmp_path) -> str:
    """Return the address of an empty store."""
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    server: Server = request.getfixturevalue("server")
    return server.url(server.new_database())


@pytest.fixture
def store(store_url) -> Iterator[Store]:
    opened = open_store(store_url)
    yield opened
    opened.close()
