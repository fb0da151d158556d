"""Workers that are killed, stopped, or lose their server: nothing is lost, doubled or left.

`MUNTIN_FAULTS` makes the runs longer: 200 entities, 20 messages, 4 workers, 50 kills.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muntin.timeline.store import open_store
from tests.faults.engine_log import read_log, wrong
from tests.reliability.server import Server
from tests.workers import Start

LONG = bool(os.environ.get("MUNTIN_FAULTS"))


def size(name: str, short: int, long: int) -> int:
    """Return a count: as the environment says, or a short or a long run's."""
    return int(os.environ.get(f"MUNTIN_FAULTS_{name}", long if LONG else short))


ENTITIES, MESSAGES = size("ENTITIES", 20, 200), size("MESSAGES", 6, 20)
WORKERS, KILLS = size("WORKERS", 3, 4), size("KILLS", 5, 50)
RESTARTS = size("RESTARTS", 2, 10)


@pytest.fixture(params=["embedded-sqlite", "procrastinate", "procrastinate-apart"])
def place(request, tmp_path) -> tuple[str, str, bool]:
    """Return an engine, the address of an empty store, and whether workers are machines apart."""
    engine, _, more = request.param.partition("-")
    if engine == "embedded":
        return engine, f"sqlite:///{tmp_path / 'store.db'}", False
    if more and subprocess.run(["unshare", "-pf", "true"], capture_output=True).returncode:
        pytest.skip("namespaces of processes need rights")
    server: Server = request.getfixturevalue("server")
    return engine, server.url(server.new_database()), bool(more)


class Crew:
    """Workers that are replaced when they are killed."""

    def __init__(self, start: Start, log: Path, apart: bool = False, **given: Any) -> None:
        self._start, self._log, self._given, self._apart = start, log, given, apart
        self._count = 0
        self.alive: dict[str, subprocess.Popen[str]] = {}

    def add(self) -> str:
        name = f"w{self._count}"
        self._count += 1
        if self._apart:  # numbers of processes of its own, as on another machine
            process = _apart(self._given | {"log": str(self._log), "name": name})
        else:
            process = self._start("work", log=str(self._log), name=name, **self._given)
        self.alive[name] = process
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready")
        return name

    def kill(self, name: str) -> None:
        process = self.alive.pop(name)
        if not self._apart:
            # Others may take over before the kill is noted: noted while the process stands still.
            process.send_signal(signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)
            self._note(name)
        process.kill()
        process.wait(10)
        if self._apart:
            self._note(name)

    def _note(self, name: str) -> None:
        with self._log.open("a", encoding="utf-8") as log:
            log.write(f"killed {time.time()} {name}\n")

    def end(self) -> None:
        for name in list(self.alive):
            self.kill(name)


def _apart(given: dict[str, Any]) -> subprocess.Popen[str]:
    import json

    program = Path(__file__).with_name("engine_worker.py")
    return subprocess.Popen(
        [
            *("unshare", "-pf", "--mount-proc", "--kill-child", sys.executable, str(program)),
            *("work", json.dumps(given)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def busy(log: Path) -> str | None:
    """Return the name of a process that is in the middle of a wake."""
    open_by: dict[str, int] = {}
    for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
        kind, _, *rest = line.split(" ", 5)
        name = rest[0] if kind == "killed" else rest[2]
        open_by[name] = open_by.get(name, 0) + (1 if kind == "begins" else -1)
        if kind == "killed":
            open_by[name] = -(10**6)
    found = [name for name, count in open_by.items() if count > 0]
    return random.choice(found) if found else None


def wait_for(true: Callable[[], Any], within: float) -> None:
    deadline = time.monotonic() + within
    while not true():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)


def test_workers_killed_in_mid_wake_lose_double_and_leave_nothing(place, start_engine, tmp_path):
    engine, url, apart = place
    log = tmp_path / "log"
    crew = Crew(start_engine, log, apart, url=url, engine=engine)
    try:
        for _ in range(WORKERS):
            crew.add()
        pause = 0.3 if not LONG else 0.1
        sender = start_engine(
            "send", url=url, engine=engine, entities=ENTITIES, messages=MESSAGES, pause=pause
        )
        for _ in range(KILLS):
            wait_for(lambda: busy(log) in crew.alive or sender.poll() is not None, 60)
            name = busy(log)
            if name in crew.alive:
                crew.kill(name)
                crew.add()
            time.sleep(0.1)
        assert sender.wait(300) == 0
        store = open_store(url)
        wait_for(lambda: not store.sessions(waiting=True), 90)
    finally:
        crew.end()
    noted = read_log(log)
    assert wrong(store, noted, ENTITIES, MESSAGES) == []
    assert noted.overlaps == []
    assert store.backlog().waiting == store.backlog().running == 0
    if noted.taken_over:
        median = statistics.median(noted.taken_over)
        print(
            f"{engine} {'apart' if apart else ''}: {KILLS} kills, {noted.begun} wakes, "
            f"{noted.cut} cut, taken over after {median:.2f} s, at most "
            f"{max(noted.taken_over):.2f} s"
        )
        # A lease is a minute; machines that are short of processors are slow.
        assert median < 5
        if LONG and engine == "procrastinate":
            assert sorted(noted.taken_over)[int(0.95 * len(noted.taken_over))] < 1
    store.close()


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_of_the_server_stops_no_worker_and_leaves_nothing(
    mode, own_server, start_engine, tmp_path
):
    log = tmp_path / "log"
    url = own_server.url(own_server.new_database())
    crew = Crew(start_engine, log, url=url, engine="procrastinate")
    crew.add(), crew.add()
    sender = start_engine(
        "send", url=url, engine="procrastinate", entities=10, messages=30, pause=0.1
    )
    for _ in range(RESTARTS):
        wait_for(lambda: busy(log), 60)
        own_server.stop(mode)
        time.sleep(0.5)
        own_server.start()
        time.sleep(1)
    assert sender.wait(120) == 0
    store = open_store(url)
    wait_for(lambda: not store.sessions(waiting=True), 90)
    assert all(process.poll() is None for process in crew.alive.values())
    for number in range(10):
        stored = [item.content for item in store.read(f"e/{number}") if item.kind == "message"]
        # A commit in doubt is sent again: then it is there twice, as the store says it may be.
        assert list(dict.fromkeys(stored)) == list(range(30))
        assert {turn.status for turn in store.turns(f"e/{number}")} == {"completed"}
    jobs = own_server.ask(
        "SELECT count(*) FROM procrastinate_jobs", url.split("/")[3].split("?")[0]
    )
    wait_for(lambda: jobs == [(0,)] or not _jobs(own_server, url), 60)
    store.close()
    crew.end()


def _jobs(server: Server, url: str) -> int:
    database = url.split("/")[3].partition("?")[0]
    return int(server.ask("SELECT count(*) FROM procrastinate_jobs", database)[0][0])


def test_a_worker_that_hangs_is_followed_and_writes_nothing_when_it_comes_back(
    server, start_engine, tmp_path
):
    url, log = server.url(server.new_database()), tmp_path / "log"
    given = {"url": url, "engine": "procrastinate", "silent": 2.0, "log": str(log)}
    hung = start_engine("work", name="hung", seconds=1.5, **given)
    assert hung.stdout is not None
    hung.stdout.readline()
    sender = start_engine("send", url=url, engine="procrastinate", entities=1, messages=1)
    wait_for(lambda: log.exists() and "begins" in log.read_text(encoding="utf-8"), 60)
    hung.send_signal(signal.SIGSTOP)
    other = start_engine("work", name="other", seconds=0.1, **given)
    store = open_store(url)
    wait_for(lambda: not store.sessions(waiting=True), 90)
    hung.send_signal(signal.SIGCONT)
    time.sleep(3)
    assert sender.wait(60) == 0
    assert hung.poll() is None
    assert other.poll() is None
    assert len([item for item in store.read("e/0") if item.kind == "context_inserted"]) == 1
    assert [turn.status for turn in store.turns("e/0")] == ["completed"]
    # It works on, as another worker.
    start_engine("send", url=url, engine="procrastinate", entities=10, messages=1).wait(60)
    wait_for(lambda: not store.sessions(waiting=True), 90)
    store.close()


def test_message_and_wake_are_both_there_or_neither_wherever_the_sender_dies(server, start_engine):
    url = server.url(server.new_database())
    process = start_engine("die", url=url)
    said = process.communicate(timeout=120)[0].splitlines()
    store = open_store(url)
    database = url.split("/")[3].partition("?")[0]
    jobs = server.ask("SELECT lock, args->>'turn' FROM procrastinate_jobs", database)
    stored = [(info.id, str(info.turns)) for info in store.sessions()]
    assert sorted(jobs) == sorted(stored)
    assert said[-1].endswith(" 0")  # the last was let go through
    assert len(said) > 5
    assert len(stored) >= 1
    store.close()
