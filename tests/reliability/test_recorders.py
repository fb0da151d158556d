"""What processes record: each message once, all reports, and nothing is lost at their end."""

import json

from muntin.timeline.session import Session
from muntin.timeline.store import open_store
from tests.fitting.talks import growing


def test_processes_that_record_the_same_requests_at_once_append_each_message_once(url, start):
    workers = [start("record_with_others", url=url, session="c") for _ in range(2)]
    assert [worker.stdout.readline() for worker in workers] == ["ready\n"] * 2
    requests = 0
    for talk in growing(2):
        requests += 1
        for worker in workers:
            worker.stdin.write(json.dumps(talk) + "\n")
            worker.stdin.flush()
        assert [worker.stdout.readline() for worker in workers] == ["recorded\n"] * 2
    with open_store(url) as store:
        spoken = [(m.role, m.text) for m in Session("c", store=store).timeline_messages()]
        assert spoken == [(each["role"], each["content"] or "") for each in talk[1:-1]]
        steps = [(each.turn, each.step) for each in store.reports("c")]
        assert steps == [(turn, step) for turn in (1, 2) for step in range(1, requests + 1)]
        assert {turn.status for turn in store.turns("c")} == {"completed"}


def test_a_process_that_ends_writes_what_its_slow_store_has_not_written_yet(url, start):
    (talk, *_) = growing(1)
    worker = start("fit_and_end", url=url, session="c")
    worker.stdin.write(json.dumps(talk) + "\n")
    worker.stdin.flush()
    assert worker.wait(60) == 0
    with open_store(url) as store:
        assert [item.kind for item in store.read("c")]
        assert store.reports("c")
