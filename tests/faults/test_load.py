"""Everything at once, for minutes: processes that send, ask, set timers and talk are killed, their
server is stopped, and then the tables are read from outside.

`MUNTIN_FAULTS_LOAD` is for how many seconds, on each store.
"""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.faults.conftest import times
from tests.products import PRICED
from tests.reliability.server import Server
from tests.workers import Start, workers

SECONDS = times("LOAD", 6)
SLOTS = 3
Ask = Callable[[str], list[Any]]
ITEMS = """
    SELECT s.name, i.position, i.turn, i.kind, i.data
    FROM muntin_items i JOIN muntin_sessions s ON s.id = i.session ORDER BY s.id, i.position"""
TURNS = """
    SELECT s.name, t.number, t.status, t.owner, t.reason
    FROM muntin_turns t JOIN muntin_sessions s ON s.id = t.session ORDER BY s.id, t.number"""
TIMERS = "SELECT session, data FROM muntin_timers"
BUSY = "SELECT count(*) FROM muntin_turns WHERE status IN ('open', 'pending')"


@pytest.fixture
def start_load() -> Iterator[Start]:
    """Return what starts a worker."""
    with workers(Path(__file__).with_name("load_worker.py")) as starting:
        yield starting


class Crew:
    """One process in each slot; a killed one is replaced."""

    def __init__(self, start: Start, **given: Any) -> None:
        self._start, self._given, self._lives = start, given, Counter[str]()
        self.processes: dict[str, subprocess.Popen[str]] = {}
        for slot in (f"s{number}" for number in range(SLOTS)):
            self.begin(slot)

    def begin(self, slot: str) -> None:
        self._lives[slot] += 1
        process = self._start("work", slot=slot, life=f"{self._lives[slot]}", **self._given)
        self.processes[slot] = process
        self.hear(slot, "ready")

    def hear(self, slot: str, word: str) -> None:
        output = self.processes[slot].stdout
        assert output is not None
        for line in output:
            if line == f"{word}\n":
                return
        raise AssertionError(f"{slot} ended by itself")

    def kill(self) -> None:
        slot = random.choice(list(self.processes))
        assert self.processes[slot].poll() is None, "a process ended by itself"
        self.processes[slot].kill()
        self.processes[slot].wait()
        self.begin(slot)

    def end(self) -> None:
        for process in self.processes.values():
            try:
                process.communicate(timeout=90)
            except subprocess.TimeoutExpired:  # let it print where its threads and tasks are
                process.send_signal(signal.SIGUSR1)
                time.sleep(2)
                raise
            assert process.returncode == 0


def read_log(log: Path) -> dict[str, dict[str, str]]:
    """Return for each text what became of its sending: `tries` if its process was killed."""
    sent: dict[str, dict[str, str]] = defaultdict(dict)
    for line in log.read_text("utf-8").splitlines():
        what, where, text = line.split(" ", 3)[:3]
        sent[where][text] = what
    return sent


def wrong(ask: Ask, log: Path) -> tuple[list[str], Counter[str]]:
    """Return what was lost, doubled, left, out of order or answered wrongly, and counts."""
    found: list[str] = []
    counts: Counter[str] = Counter()
    turns: dict[str, dict[int, tuple[str, str | None, str | None]]] = defaultdict(dict)
    for name, number, *state in ask(TURNS):
        turns[name][number] = tuple(state)
        counts[f"{name.split('/')[0]} {state[0]}"] += 1
        is_entity = name.startswith("e/")
        if state[0] not in ("completed", *(() if is_entity else ("failed",))):
            found.append(f"{name} turn {number}: {state}")
        if state[1] is not None:
            found.append(f"{name} turn {number} has an owner: {state}")
    found += [f"a timer is left: {row}" for row in ask(TIMERS)]
    texts: dict[str, list[str]] = defaultdict(list)
    questions: dict[tuple[str, int], list[str]] = defaultdict(list)
    answers: dict[tuple[str, int], list[str]] = defaultdict(list)
    results: Counter[tuple[str, int, str]] = Counter()
    positions: dict[str, int] = defaultdict(int)
    for name, position, turn, kind, data in ask(ITEMS):
        positions[name] += 1
        if position != positions[name]:
            found.append(f"{name}: position {position} after {positions[name] - 1}")
        item = json.loads(data)
        message = item.get("message", {})
        if kind == "wake" or message.get("role") == "user":
            text = item["payload"] if kind == "wake" else message["content"]
            texts[name].append(text)
            questions[name, turn].append(text)
            counts["timers"] += kind == "wake"
        elif kind == "tool_result":
            results[name, turn, message["tool_call_id"]] += 1
        elif message.get("role") == "assistant" and kind == "message":
            answers[name, turn].append(message["content"])
    found += [f"a call has {n} results: {call}" for call, n in results.items() if n > 1]
    for name, of in turns.items():
        for number, (status, *_) in of.items():
            expected = [f"answer to {questions[name, number][-1]}"] if status == "completed" else []
            if status == "completed" and answers[name, number] != expected:
                found.append(f"{name} turn {number}: {answers[name, number]}, not {expected}")
    sent = read_log(log)
    for name, of_name in sent.items():
        stored = Counter(texts[name])
        for text, what in of_name.items():
            counts[what] += 1
            if stored[text] != 1 and (what == "has" or stored[text]):
                found.append(f"{name}: {text} ({what}) is stored {stored[text]} times")
        found += [f"{name}: {text} was never sent" for text in stored if text not in of_name]
    for name, list_of in texts.items():
        if not name.startswith("e/"):  # one sender, one after the other
            by_life = [(int(life), int(n)) for _, life, n in (text.split("-") for text in list_of)]
            if by_life != sorted(by_life):
                found.append(f"{name}: out of order {list_of}")
    return found, counts


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_processes_and_servers_that_die_under_a_load_lose_double_and_leave_nothing(
    kind: str, start_load: Start, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    log, stop = tmp_path / "log", tmp_path / "stop"
    log.touch()
    server: Server | None = None
    if kind == "sqlite":
        url, engine = f"sqlite:///{tmp_path}/s.db", "embedded"
    else:
        server = request.getfixturevalue("own_server")
        url, engine = server.url(server.new_database()), "procrastinate"

    def ask(statement: str) -> list[Any]:
        if server is None:
            return sqlite3.connect(f"{tmp_path}/s.db", timeout=60).execute(statement).fetchall()
        with psycopg.connect(url) as connection:
            return connection.execute(statement).fetchall()

    crew = Crew(start_load, url=url, engine=engine, log=str(log), stop=str(stop), name=PRICED)
    end, kills, restarts = time.monotonic() + SECONDS, 0, 0
    next_restart = time.monotonic() + min(30, SECONDS / 2)
    while time.monotonic() < end:
        time.sleep(random.uniform(2, 12) if SECONDS > 60 else random.uniform(0.5, 2))
        if server is not None and time.monotonic() > next_restart:
            mode = ("fast", "immediate", "kill")[restarts % 3]
            if mode == "kill":
                server.kill()
            else:
                server.stop(mode)
            time.sleep(random.uniform(0, 2))
            server.start()
            restarts += 1
            next_restart = time.monotonic() + random.uniform(20, 60)
        else:
            crew.kill()
            kills += 1
    stop.touch()
    for slot in crew.processes:
        crew.hear(slot, "silent")
    deadline = time.monotonic() + 120
    while ask(BUSY) != [(0,)] or ask(TIMERS):
        assert time.monotonic() < deadline, wrong(ask, log)
        time.sleep(0.2)
    crew.end()
    found, counts = wrong(ask, log)
    print(f"{kind}: {SECONDS} s, {kills} kills, {restarts} restarts, {dict(counts)}")
    assert found == []
    assert counts["has"] > SECONDS
    assert counts["e completed"] > SECONDS / 4
    assert kills > 0
