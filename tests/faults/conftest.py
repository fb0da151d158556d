"""Stores that faults happen to: an SQLite file, a database on a server that a test may stop."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers import Start, workers


def times(name: str, short: int) -> int:
    """Return how often something is done: what the environment says, else a few times."""
    return int(os.environ.get(f"MUNTIN_FAULTS_{name}", short))


@pytest.fixture
def start_engine() -> Iterator[Start]:
    """Return what starts a worker of an engine."""
    with workers(Path(__file__).with_name("engine_worker.py")) as starting:
        yield starting


@pytest.fixture
def start() -> Iterator[Start]:
    """Return what starts a worker."""
    with workers(Path(__file__).with_name("worker.py")) as starting:
        yield starting
