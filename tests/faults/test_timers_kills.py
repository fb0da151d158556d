"""Timers that several processes release while some of them are killed: each comes once."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from muntin.timeline.store import open_store
from muntin.timeline.timers import Timer
from tests.faults.test_engine_kills import Crew, size, wait_for
from tests.reliability.server import Server

TIMERS, KILLS, LOOKED = size("TIMERS", 300, 3_000), size("KILLS", 3, 20), 100_000


@pytest.fixture(params=["embedded-sqlite", "procrastinate"])
def place(request, tmp_path) -> tuple[str, str]:
    if request.param == "procrastinate":
        server: Server = request.getfixturevalue("server")
        return request.param, server.url(server.new_database())
    return "embedded", f"sqlite:///{tmp_path / 'store.db'}"


def test_each_timer_comes_once_though_processes_that_release_are_killed(
    place, start_engine, tmp_path
):
    engine, url = place
    store = open_store(url)
    soon = datetime.now(UTC) + timedelta(seconds=1.5)
    for number in range(TIMERS):
        due = soon + timedelta(seconds=random.uniform(0, 2.5))
        store.put_timer(Timer(f"e/{number % 40}", f"t{number}", due, number))
    crew = Crew(start_engine, tmp_path / "log", url=url, engine=engine, seconds=0.0)
    try:
        for _ in range(3):
            crew.add()
        while datetime.now(UTC) < soon:
            time.sleep(0.05)
        for _ in range(KILLS):
            time.sleep(0.5)
            crew.kill(random.choice(list(crew.alive)))
            crew.add()
        entities = [f"e/{number}" for number in range(40)]
        wait_for(lambda: not any(map(store.timers, entities)), 60)
        wait_for(lambda: not store.sessions(waiting=True), 60)
    finally:
        crew.end()
    came = Counter(
        item.meta["timer"]
        for number in range(40)
        for item in store.read(f"e/{number}")
        if item.kind == "wake"
    )
    assert came == Counter({f"t{number}": 1 for number in range(TIMERS)})
    statuses = {turn.status for number in range(40) for turn in store.turns(f"e/{number}")}
    assert statuses == {"completed"}
    store.close()


def _never(timer, now):
    raise AssertionError(f"{timer.id} is not due")


def test_a_look_at_many_timers_that_are_not_due_is_quick(place):
    _, url = place
    store = open_store(url)
    due, count = datetime.now(UTC) + timedelta(days=1), size("LOOKED", 5_000, LOOKED)

    def write(tx):
        rows = [
            (f"e/{n}", "t", "e", int(due.timestamp() * 1e6) + n, None, json.dumps({}))
            for n in range(count)
        ]
        tx.many("INSERT INTO muntin_timers VALUES (?, ?, ?, ?, ?, ?)", rows)

    store.database.transact(write)
    looks = []
    for _ in range(50):
        began = time.perf_counter()
        assert store.release(["e"], _never, most=100)
        looks.append(time.perf_counter() - began)
    began = time.perf_counter()
    for _ in range(10):
        assert store.sessions(id="none") == []
    # What a busy machine adds is not the look's: the quickest, beside looks at nothing.
    assert min(looks) < 0.002 + (time.perf_counter() - began)
    store.close()
