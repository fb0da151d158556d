"""A disk that is slow: all who send wait for their turn, and none of them for ever."""

from __future__ import annotations

import pytest

from muntin.timeline.store import open_store
from tests.faults.conftest import times
from tests.workers import Start

SENDERS, MESSAGES, COMMIT = 32, times("SLOW", 10), 0.01


@pytest.mark.parametrize("processes", [1, 4])
def test_of_many_senders_on_a_slow_disk_none_fails_and_none_starves(
    tmp_path, start: Start, processes: int
) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    each = SENDERS // processes
    given = {"url": url, "senders": each, "messages": MESSAGES, "commit": COMMIT}
    given["sent"] = str(tmp_path / "sent")
    running = [start("send_to_a_slow_disk", name=str(n), **given) for n in range(processes)]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    overtaken = [int(process.stdout.readline()) for process in running if process.stdout]
    assert [process.wait(120) for process in running] == [0] * processes
    # In turn, each of the others sends once during a call: a tenth of all, or a little more. What
    # a busy machine does to seconds, it does not do to turns.
    assert max(overtaken) < SENDERS * MESSAGES / 2
    with open_store(url) as store:
        for entity in (f"e/{n}-{number}" for n in range(processes) for number in range(each)):
            sent = [item.content for item in store.read(entity) if item.kind == "message"]
            assert sent == list(range(MESSAGES))
            assert {turn.status for turn in store.turns(entity)} == {"completed"}
