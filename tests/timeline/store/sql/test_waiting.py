"""Who waits to write gets its turn, in the order of coming."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path

import pytest

from muntin.errors import StoreError
from muntin.timeline.store import open_store
from muntin.timeline.store.sql import database
from muntin.timeline.store.sql.waiting import Queue, TooLong
from tests.words import asks


def test_threads_come_in_the_order_in_which_they_came():
    queue, came = Queue(), []

    def come(number: int) -> None:
        with queue.turn(30):
            came.append(number)
            time.sleep(0.001)

    with queue.turn(30):
        threads = []
        for number in range(20):
            threads.append(threading.Thread(target=come, args=(number,)))
            threads[-1].start()
            while len(queue._waiting) <= number:
                time.sleep(0.001)
    for thread in threads:
        thread.join(30)
    assert came == list(range(20))
    with queue.turn(0):  # and it is free again
        pass


def test_who_is_inside_may_come_again():
    queue = Queue()
    with queue.turn(0), queue.turn(0), pytest.raises(ZeroDivisionError), queue.turn(0):
        raise ZeroDivisionError
    with queue.turn(0):
        pass


def test_who_waits_for_too_long_is_told_and_others_go_on():
    queue, told, came = Queue(), [], []

    def impatient() -> None:
        try:
            with queue.turn(0.01):
                came.append("impatient")
        except TooLong:
            told.append(True)

    def patient() -> None:
        with queue.turn(30):
            came.append("patient")

    with queue.turn(0):
        threads = [threading.Thread(target=each) for each in (impatient, patient)]
        for thread in threads:
            thread.start()
        threads[0].join(30)
        assert told == [True]
    threads[1].join(30)
    assert came == ["patient"]


def test_a_thread_that_waits_too_long_for_another_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(database, "SECONDS", 0.2)
    told: list[StoreError] = []
    with open_store(f"sqlite:///{tmp_path / 's.db'}") as store:
        other = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")

        def write(number: int) -> None:
            try:
                store.append("s", [asks(str(number))])
            except StoreError as error:
                told.append(error)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(told) == 4
        assert all(error.passing and "for too long" in str(error) for error in told)
        other.execute("ROLLBACK")
        other.close()
        assert store.append("s", [asks("after")])[0].position == 1
