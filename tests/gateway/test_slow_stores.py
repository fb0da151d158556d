"""Stores that are slow or do not answer: requests are sent all the same, with few threads."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from muntin.fitting import Fitter
from muntin.timeline.store import open_store
from muntin.wire.lists import pieces_of
from tests.fitting.traffic import request
from tests.gateway.running import Running, receipt, running, served
from tests.gateway.test_together import BUDGET, all_sessions, provider, spoken

LOCKED_SECONDS = float(os.environ.get("MUNTIN_GATEWAY_LOCKED", "5"))
# How many seconds a store may add to an answer.
ADDED = 0.2
# The longest that anything took on a machine that does much else.
BUSY = 2.0


@contextmanager
def locked(file: Any) -> Iterator[None]:
    """Hold the lock of writers of a file, as another process may."""
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


def ask(gate: Running, said: list[Any], **headers: str) -> tuple[float, Any]:
    """Return how long an answer took, and its receipt."""
    began = time.monotonic()
    answer = httpx2.post(
        f"{gate.url}/v1/chat/completions", json=request("chat", said), headers=headers, timeout=60
    )
    took = time.monotonic() - began
    assert answer.status_code == 200
    return took, receipt(answer.headers)


def turn(number: int) -> list[dict[str, str]]:
    question = {"role": "user", "content": f"Question {number}: why?"}
    return [question, {"role": "assistant", "content": f"Answer to Question {number}"}]


def usual(gate: Running) -> float:
    """Return how long an answer takes while the store is well."""
    said = [{"role": "user", "content": "Question 99: why?"}]
    return sorted(ask(gate, said)[0] for _ in range(5))[2]


def test_24_clients_on_a_locked_store_get_their_answers_with_few_threads(tmp_path):
    file = tmp_path / "gate.db"
    with served(provider) as upstream, running(upstream, BUDGET, f"sqlite:///{file}") as gate:
        usual(gate)
        before, most, stop = threading.active_count(), 0, time.monotonic() + LOCKED_SECONDS

        def lead(client: int) -> int:
            nonlocal most
            said: list[Any] = []
            for number in range(10_000):
                if time.monotonic() > stop:
                    break
                question, answer = turn(number)
                said += [{**question, "content": f"{question['content']} {client}"}]
                ask(gate, said, **{"x-muntin-session": f"client {client}"})
                said += [answer]
                most = max(most, threading.active_count())
            return number

        with locked(file), ThreadPoolExecutor(24) as pool:
            counts = list(pool.map(lead, range(24)))
        assert min(counts) >= 1
        # Two dozen clients of this test, and as many requests that are fitted at once.
        assert most - before <= 24 + 24 + 8


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_store_that_hangs_adds_little_to_an_answer_and_is_told(kind, tmp_path, request):
    url, hang = hanging(kind, tmp_path, request)
    with served(provider) as upstream, running(upstream, BUDGET, url) as gate:
        well = usual(gate)
        said: list[Any] = []
        with hang():
            told, slow = [], []
            for number in range(6):
                question, answer = turn(number)
                said += [question]
                took, got = ask(gate, said)
                said += [answer]
                slow.append(took - well)
                told.append(got.get("recorded", True))
                time.sleep(0.15)
        assert sorted(slow)[3] < ADDED, slow
        assert max(slow) < BUSY, slow
        assert told[-1] is False
        until = time.monotonic() + 30
        while gate.gateway._recording.is_slow and time.monotonic() < until:
            time.sleep(0.1)
        question, _ = turn(6)
        assert "recorded" not in ask(gate, [*said, question])[1]
    with open_store(url) as store:
        records = [spoken(store, session) for session in all_sessions(store)]
        asked = [f"Question {number}: why?" for number in range(7)]
        assert [[text for text in texts if "why?" in text] for texts in records].count(asked) == 1


def hanging(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> tuple[str, Callable[..., Any]]:
    """Return the address of a store, and what makes it hang."""
    if kind == "sqlite":
        return f"sqlite:///{tmp_path}/gate.db", lambda: locked(tmp_path / "gate.db")
    server = request.getfixturevalue("own_server")
    return str(server.url(server.new_database())), server.hanging


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_fit_waits_for_no_store_that_hangs(kind, tmp_path, request, caplog):
    url, hang = hanging(kind, tmp_path, request)
    with open_store(url) as store:
        fitter = Fitter(BUDGET, store=store)
        said: list[Any] = []
        slow = []
        for number in range(4):
            question, answer = turn(number)
            said = [*said, question]
            if number:
                with hang():
                    began = time.monotonic()
                    fitter.fit(pieces_of(said))
                    slow.append(time.monotonic() - began)
            else:
                fitter.fit(pieces_of(said))
            said = [*said, answer]
        assert sorted(slow)[1] < ADDED, slow
        assert max(slow) < BUSY, slow
        assert "was not recorded within" in caplog.text
        assert fitter.recorder is not None
        fitter.recorder.writes.put(lambda: None).result(60)
        (session,) = all_sessions(store)
        assert spoken(store, session) == [each["content"] for each in said[:-1]]
