"""Many entities, many processes, some of them killed: everything handled once, in order, alone.

`MUNTIN_ENTITIES=200x20x4` says how many entities, messages for each, and processes.
"""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from pathlib import Path

from muntin.timeline.store import open_store
from tests.workers import Start

ENTITIES, MESSAGES, PROCESSES = map(int, os.environ.get("MUNTIN_ENTITIES", "10x5x2").split("x"))
KILLS = max(1, PROCESSES // 2)
# Long enough for a slow machine: it is not speed that is tested here.
PATIENCE = 30 + ENTITIES * MESSAGES * PROCESSES / 20


def lines(log: Path) -> list[list[str]]:
    found = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return [line.split() for line in found]


def handled(log: Path) -> int:
    return sum(line[0] == "handle" for line in lines(log))


def settled(url: str) -> bool:
    with open_store(url) as store:
        return not store.sessions(waiting=True, limit=1)


def wait_until(done: object, what: str) -> None:
    assert callable(done)
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)


def test_many_entities_of_many_processes_some_of_them_killed(server, start: Start, tmp_path):
    url = server.url(server.new_database())
    log = tmp_path / "log"
    open_store(url).close()
    began = time.monotonic()
    processes = [
        start(
            "entities",
            url=url,
            log=str(log),
            sender=number,
            entities=ENTITIES,
            messages=MESSAGES,
            senders=PROCESSES,
        )
        for number in range(PROCESSES)
    ]
    total = ENTITIES * MESSAGES
    for number in range(KILLS):
        part = total * (number + 1) // (3 * KILLS)
        wait_until(lambda part=part: handled(log) >= part, f"{part} messages handled")
        processes[number].kill()
        assert processes[number].wait() == -signal.SIGKILL
    for process in processes[KILLS:]:
        assert process.stdout is not None
        while process.stdout.readline() not in ("sent\n", ""):
            pass
    wait_until(lambda: settled(url), "nothing waits any more")
    Path(f"{log}.stop").touch()
    for process in processes[KILLS:]:
        assert process.wait(timeout=30) == 0
    figures = check(url, lines(log), {str(process.pid) for process in processes[:KILLS]})
    print(
        f"{ENTITIES} entities x {MESSAGES} messages from {PROCESSES} processes, {KILLS} killed: "
        f"{figures}, {time.monotonic() - began:.0f} s"
    )


def check(url: str, log: list[list[str]], killed: set[str]) -> dict[str, int]:
    """Nothing lost, nothing twice, in order, and never two at once."""
    stored: dict[str, list[tuple[int, int]]] = {}
    with open_store(url) as store:
        for number in range(ENTITIES):
            id = f"e/{number}"
            items = [item for item in store.read(id) if item.kind == "message"]
            stored[id] = [(item.position, item.payload) for item in items]
            statuses = {turn.status for turn in store.turns(id)}
            assert statuses <= {"completed"}, (id, statuses)
    for what, id, *rest in log:
        if what == "sent":  # acknowledged, so it is there
            assert tuple(map(int, rest)) in stored[id]
    repeated = check_order(log, stored, killed)
    check_alone(log, killed)
    everything = sum(len(each) for each in stored.values())
    return {"stored": everything, "handled again after a kill": repeated}


def check_order(
    log: list[list[str]], stored: dict[str, list[tuple[int, int]]], killed: set[str]
) -> int:
    """Each message is handled to the end, in the order of the timeline, and by one process.

    Only a process that was killed before the end of its wake was recorded has a successor.
    Returns how many messages had one.
    """
    working: dict[tuple[str, str], list[tuple[int, int]]] = {}
    finished: dict[str, list[tuple[int, int]]] = defaultdict(list)
    by: dict[tuple[str, int], list[str]] = defaultdict(list)
    for what, id, *rest in log:
        if what == "begin":
            working[id, rest[0]] = []
        elif what == "handle":
            pid = rest[0]
            working[id, pid].append((int(rest[1]), int(rest[2])))
            by[id, int(rest[1])].append(pid)
        elif what == "end":
            finished[id] += working.pop((id, rest[0]))
    for id, expected in stored.items():
        assert list(dict.fromkeys(finished[id])) == expected, id
    for (id, position), pids in by.items():
        *earlier, _last = pids
        assert set(earlier) <= killed, (id, position, pids)
        assert len(pids) == len(set(pids)), (id, position, pids)
    return sum(len(pids) > 1 for pids in by.values())


def check_alone(log: list[list[str]], killed: set[str]) -> None:
    """Between the begin and the end of a wake nobody else begins one of the same entity."""
    working: dict[str, str] = {}
    last_word = {line[2]: number for number, line in enumerate(log) if line[0] in ("begin", "end")}
    for number, line in enumerate(log):
        if line[0] == "begin":
            _, id, pid = line
            if id in working:  # its process is dead, or they are two
                assert working[id] in killed, f"two handlers of {id} at once"
                assert last_word[working[id]] < number, f"two handlers of {id} at once"
            working[id] = pid
        elif line[0] == "end":
            _, id, pid = line
            assert working.pop(id) == pid
