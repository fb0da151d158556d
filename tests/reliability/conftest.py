"""The two stores that keep what they were given: an SQLite file, a database on a real server."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.workers import Start, workers


@pytest.fixture
def let_the_server_finish(request, url) -> Callable[[], None]:
    """Return what waits until a server is done with clients that are dead."""

    def wait() -> None:
        if url.startswith("sqlite"):
            return  # the file has no one who works on for a dead process
        server, database = (request.getfixturevalue(name) for name in ("server", "database"))
        deadline = time.monotonic() + 30
        while server.clients(database):
            assert time.monotonic() < deadline, "the server still works for a dead client"
            time.sleep(0.01)

    return wait


@pytest.fixture
def start() -> Iterator[Start]:
    """Return what starts a worker."""
    with workers(Path(__file__).with_name("worker.py")) as starting:
        yield starting
