"""A process may be killed at any moment: what was acknowledged stays, nothing is half there.

`MUNTIN_KILLS` says how often; `make soak` kills 50 times.
"""

import os
import random
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from muntin.core.message import assistant, user
from muntin.timeline.session import Session
from muntin.timeline.store.sql import Store
from tests.workers import Start

KILLS = int(os.environ.get("MUNTIN_KILLS", "3"))
# Opening after a crash is a matter of milliseconds; this leaves room for a busy machine only.
AT_ONCE = 30.0


@dataclass
class Told:
    """What a process said before it died."""

    tried: int = -1
    appended: dict[int, tuple[int, int]] = field(default_factory=dict)
    completed: list[int] = field(default_factory=list)


def kill_at_a_random_moment(
    start: Start, url: str, session: str, chance: random.Random, *, while_opening: bool
) -> Told:
    process = start("append_for_ever", url=url, session=session, seed=str(chance.random()))
    assert process.stdout is not None
    awaited = "opening" if while_opening else "appended"
    lines = list(iter_until(awaited, process.stdout))
    time.sleep(chance.uniform(0, 0.05 if while_opening else 0.3))
    process.kill()
    lines += process.stdout
    assert process.wait() == -signal.SIGKILL
    return read(lines)


def iter_until(word: str, lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield line
        if line.startswith(word):
            return
    raise AssertionError(f"the process ended before it said {word!r}")


def read(lines: list[str]) -> Told:
    told = Told()
    for line in lines:
        if not line.endswith("\n"):
            break  # killed while it said so: that is no acknowledgement
        what, *numbers = line.split()
        if what == "trying":
            told.tried = int(numbers[0])
        elif what == "appended":
            batch, position, size = map(int, numbers)
            told.appended[batch] = position, size
        elif what == "completed":
            told.completed.append(int(numbers[0]))
    return told


def check_items(log: Session, told: Told) -> None:
    """Every acknowledged append is there, every other is there whole or not at all."""
    items = log.items.all()
    assert [item.position for item in items] == list(range(1, len(items) + 1))
    found: dict[int, list[tuple[int, int, int]]] = {}
    for item in items:
        batch, number, size = map(int, str(item.content).split()[:3])
        found.setdefault(batch, []).append((item.position, number, size))
    assert list(found) == list(range(len(found)))
    for batch, rows in found.items():
        first, size = rows[0][0], rows[0][2]
        assert rows == [(first + n, n, size) for n in range(size)]
        assert told.appended.get(batch, (first, size)) == (first, size)
    # The one that was on its way may have been stored before it could be acknowledged.
    assert set(told.appended) <= set(found) <= {*told.appended, told.tried}


def check_turns(log: Session, told: Told) -> int:
    """Return how many turns were interrupted: one at most, the newest, and it is failed."""
    found = {turn.number: turn.status for turn in log.store.turns(log.id)}
    failed = [number for number, status in found.items() if status == "failed"]
    assert set(found.values()) <= {"completed", "failed"}
    assert failed in ([], [max(found, default=0)])
    assert all(found[number] == "completed" for number in told.completed)
    return len(failed)


def test_a_kill_loses_nothing_acknowledged_and_leaves_nothing_half_written(
    url, start, let_the_server_finish
):
    chance = random.Random(f"{url.partition(':')[0]} {KILLS}")
    figures: Counter[str] = Counter()
    slowest = 0.0
    heads = {}
    for number in range(KILLS):
        session = f"session {number}"
        while_opening = number % 5 == 0
        told = kill_at_a_random_moment(start, url, session, chance, while_opening=while_opening)
        let_the_server_finish()
        before = time.monotonic()
        with Store(url) as store:
            log = Session(session, store=store)
            slowest = max(slowest, time.monotonic() - before)
            check_items(log, told)
            figures["interrupted turns"] += check_turns(log, told)
            head = len(log.items.all())
            assert [item.position for item in log.append(user("On we go."))] == [head + 1]
            heads[session] = head + 1
        figures["acknowledged appends"] += len(told.appended)
    assert slowest < AT_ONCE
    assert figures["acknowledged appends"] >= KILLS - KILLS // 5 - 1
    with Store(url) as store:
        assert {info.id: info.items for info in store.sessions(limit=KILLS)} == heads
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as file:
            assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    store_name = url.partition(":")[0]
    print(f"{store_name}: {KILLS} kills, {dict(figures)}, slowest opening {slowest:.3f} s")


def begin(start: Start, url: str, session: str) -> "subprocess.Popen[str]":
    process = start("begin_a_turn", url=url, session=session)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def statuses(log: Session) -> list[str]:
    return [turn.status for turn in log.store.turns(log.id)]


def test_the_turn_of_a_living_process_stays_open_when_others_open_the_session(url, start):
    begin(start, url, "s")
    with Store(url) as store:
        assert statuses(Session("s", store=store)) == ["open"]


def test_the_turn_of_a_killed_process_is_failed_at_the_next_use_and_can_be_tried_again(url, start):
    process = begin(start, url, "s")
    process.kill()
    # Dead, but not yet collected by its parent: dead all the same.
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    with Store(url) as store:
        log = Session("s", store=store)
        asked = ["Book me a flight.", "To where?"]
        assert [message.text for message in log.messages()] == asked
        assert statuses(log) == ["failed"]
        log.append(user("Try again."), assistant("Where do you want to go?"))
        assert statuses(Session("s", store=store)) == ["completed", "failed"]
        assert log.messages()[0].text == "Try again."
        assert [item.position for item in log.items.all()] == [1, 2, 3, 4]


def test_an_append_waits_for_the_disk_whatever_the_server_is_set_to(url, request):
    Store(url).close()
    if url.startswith("sqlite"):
        asked, expected = "PRAGMA synchronous", "2"  # FULL
    else:
        server, database = (request.getfixturevalue(name) for name in ("server", "database"))
        server.ask(f"ALTER DATABASE {database} SET synchronous_commit = off")
        asked, expected = "SHOW synchronous_commit", "on"
    with Store(url) as store:
        rows = store.database.query(asked)
        assert [[str(value) for value in row] for row in rows] == [[expected]]
