"""Runs inside of a run are found by their place: none gets the answer to another's question."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from muntin import user
from muntin.timeline.items import draft_of
from muntin.timeline.store import Store, open_store
from tests.faults.checks import settled
from tests.faults.subruns_worker import PLACES
from tests.products import PRICED
from tests.workers import Start, workers

LONG = bool(os.environ.get("MUNTIN_FAULTS"))


@pytest.fixture
def start_worker() -> Iterator[Start]:
    """Return what starts a worker."""
    with workers(Path(__file__).with_name("subruns_worker.py")) as starting:
        yield starting


def check_answers(store: Store, entity: str) -> None:
    """Check that each question has its own answer, in the tools and in `gather`."""
    (entry,) = store.read(entity, live=True)
    assert json.loads(entry.payload["content"]) == [f"answer to flag of {of}?" for of in PLACES]
    answers = [
        item.message.text
        for item in store.read(entity)
        if item.kind == "tool_result" and item.message
    ]
    assert sorted(answers) == sorted(f"answer to capital of {of}?" for of in PLACES)
    calls: dict[str, str] = {}
    for item in store.read(entity):
        if item.message is not None:
            for call in item.message.tool_calls:
                calls[call.id] = json.loads(call.arguments)["of"]
            if item.kind == "tool_result":
                of = calls[str(item.message.tool_call_id)]
                assert item.message.text == f"answer to capital of {of}?"


@pytest.mark.parametrize(
    ("how", "times"),
    [(signal.SIGTERM, 50 if LONG else 5), (signal.SIGKILL, 20 if LONG else 5)],
    ids=["deploy", "kill"],
)
def test_no_answer_is_exchanged(
    tmp_path: Path, start_worker: Start, how: signal.Signals, times: int
) -> None:
    url, ended, entities = f"sqlite:///{tmp_path / 'store.db'}", 0, 0
    random.seed(7)
    with open_store(url) as store:
        while ended < times:
            entity, entities = f"research/{entities}", entities + 1
            store.append(entity, [draft_of(user("go"), opens="inbox")])
            while not settled(store, [entity]):
                worker = start_worker("work", url=url, name=PRICED)
                assert worker.stdout is not None
                assert worker.stdout.readline() == "ready\n"
                end = time.monotonic() + random.uniform(0.1, 0.8)
                while time.monotonic() < end and not settled(store, [entity]):
                    time.sleep(0.02)
                worker.send_signal(how)
                worker.wait(30)
                ended += 1
            assert [turn.status for turn in store.turns(entity)] == ["completed"]
            check_answers(store, entity)
