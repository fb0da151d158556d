"""Many processes write at once: nothing lost, nothing twice, nothing out of order.

`MUNTIN_WRITERS` says how many and how much; `make soak` takes 8x2000.
"""

import json
import os
import time

import pytest

from muntin.timeline.store import Store

WRITERS, APPENDS = map(int, os.environ.get("MUNTIN_WRITERS", "2x200").split("x"))
MESSAGES = 2


def check_session(store: Store, session: str, told: dict[tuple[int, int], list[int]]) -> None:
    """Check that the session holds exactly what its writers were told, in their order."""
    items = store.read(session)
    assert [item.position for item in items] == list(range(1, len(items) + 1))
    found: dict[tuple[int, int], list[int]] = {}
    for item in items:
        writer, number, _ = map(int, str(item.content).split())
        found.setdefault((writer, number), []).append(item.position)
    assert found == told
    assert all(last - first + 1 == MESSAGES for first, *_, last in found.values())
    for writer in range(WRITERS):
        own = [number for who, number in found if who == writer]
        assert own == sorted(own)
    assert [turn.number for turn in store.turns(session)] == list(range(len(told), 0, -1))


@pytest.mark.parametrize("sessions", [1, 100])
def test_writers_at_once_lose_and_double_and_reorder_nothing(url, start, sessions):
    workers = [
        start(
            "append_with_others",
            url=url,
            writer=writer,
            appends=APPENDS,
            sessions=sessions,
            messages=MESSAGES,
        )
        for writer in range(WRITERS)
    ]
    # All have opened the new store at once, and begin together.
    assert [worker.stdout.readline() for worker in workers] == ["ready\n"] * WRITERS
    before = time.monotonic()
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    told: dict[str, dict[tuple[int, int], list[int]]] = {}
    for writer, worker in enumerate(workers):
        for session, number, positions in json.loads(worker.stdout.read()):
            told.setdefault(session, {})[writer, number] = positions
        assert worker.wait() == 0
    took = time.monotonic() - before

    assert sum(map(len, told.values())) == WRITERS * APPENDS
    with Store(url) as store:
        assert {info.id for info in store.sessions(limit=sessions + 1)} == set(told)
        for session in told:
            check_session(store, session, told[session])
    rate = WRITERS * APPENDS / took
    print(
        f"{url.partition(':')[0]}: {WRITERS} writers x {APPENDS} appends to {sessions} sessions "
        f"in {took:.1f} s ({rate:,.0f} a second)"
    )
