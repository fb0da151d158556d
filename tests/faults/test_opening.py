"""Opening a session mends what is abandoned, and touches nothing that is at work or settled."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from muntin import Session, user
from muntin.timeline.store import Store, open_store
from tests.faults.conftest import times

TURNS = times("OPENED", 150)


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "postgresql":
        server = request.getfixturevalue("server")
        return open_store(server.url(server.new_database()))
    path = tmp_path / "s.db"
    return open_store("memory:" if request.param == "memory" else f"sqlite:///{path}")


def test_a_completed_turn_stays_so_though_other_threads_open_the_session(store: Store) -> None:
    """They look at it while it is open, and have to decide when it is settled."""
    over = threading.Event()
    failed: list[BaseException] = []

    def again_and_again(work: Callable[[], object]) -> None:
        try:
            while not over.is_set():
                work()
        except BaseException as error:
            failed.append(error)

    def opens() -> object:
        return Session("s", store=store).messages()

    threads = [threading.Thread(target=again_and_again, args=(opens,)) for _ in range(3)]
    session = Session("s", store=store)
    for thread in threads:
        thread.start()
    try:
        for number in range(TURNS):
            with session.turn() as turn:
                turn.append(user(str(number)))
    finally:
        over.set()
        for thread in threads:
            thread.join(60)
    assert failed == []
    assert [turn.status for turn in store.turns("s")] == ["completed"] * TURNS
    store.close()
