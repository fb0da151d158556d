"""Work is never given up wrongly: not a run that gets further, not what runs beside a message that
ends its process."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from muntin.runtime.app import App
from muntin.timeline.store import Store, open_store
from tests.faults.checks import settled
from tests.products import PRICED
from tests.reliability.server import Server
from tests.workers import Start, workers

LONG = bool(os.environ.get("MUNTIN_FAULTS"))


@pytest.fixture(params=["embedded", "procrastinate"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Return an engine and the address of an empty store."""
    if request.param == "embedded":
        return "embedded", f"sqlite:///{tmp_path / 'store.db'}"
    server: Server = request.getfixturevalue("server")
    return "procrastinate", server.url(server.new_database())


@pytest.fixture
def start_worker() -> Iterator[Start]:
    """Return what starts a worker."""
    with workers(Path(__file__).with_name("attempts_worker.py")) as starting:
        yield starting


def send(url: str, engine: str, entities: list[str]) -> None:
    """Send every entity a message, in a process that handles nothing."""
    from tests.faults.engine_worker import Elsewhere, _nothing

    async def run() -> None:
        app = App(url, engine=Elsewhere() if engine == "embedded" else engine)
        for kind in ("job", "plain", "poison"):
            app.entity(kind)(_nothing)
        for entity in entities:
            await app.send(entity, "go")
        await app.close()

    asyncio.run(run())


def supervise(
    store: Store,
    start: Start,
    entities: list[str],
    *,
    kill_after: float | None = None,
    **given: object,
) -> int:
    """Restart a worker that ends, or is killed after some seconds if it got further, until all is
    settled; return how often."""
    end, restarts = time.monotonic() + (600 if LONG else 200), 0

    def written() -> int:
        return sum(item.run is not None for entity in entities for item in store.read(entity))

    while True:
        worker = start("work", **given)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        began, before = time.monotonic(), written()
        while worker.poll() is None:
            if settled(store, entities):
                worker.kill()
                return restarts
            assert time.monotonic() < end, [store.turns(entity) for entity in entities]
            took = time.monotonic() - began
            if kill_after is not None and took > kill_after and written() > before:
                worker.kill()
                worker.wait()
            time.sleep(0.05)
        restarts += 1


def test_only_the_message_that_ends_its_process_is_given_up(
    place: tuple[str, str], start_worker: Start
) -> None:
    engine, url = place
    jobs = [f"job/{number}" for number in range(5)]
    plain = [f"plain/{number}" for number in range(2)]
    with open_store(url) as store:
        send(url, engine, [*jobs, *plain, "poison/1"])
        steps = 150 if LONG else 30
        every = [*jobs, *plain, "poison/1"]
        deaths = supervise(
            store, start_worker, every, url=url, engine=engine, name=PRICED, steps=steps
        )
        assert deaths == 6  # the first time it wrote something
        assert [info.id for info in store.sessions(gave_up=True)] == ["poison/1"]
        (turn,) = store.turns("poison/1")
        assert (turn.status, turn.reason, turn.tries) == ("failed", "gave_up", 5)
        for entity in [*jobs, *plain]:
            assert [turn.status for turn in store.turns(entity)] == ["completed"], entity
        for entity in jobs:
            results = [item for item in store.read(entity) if item.kind == "tool_result"]
            assert len(results) == steps


def test_a_run_that_gets_further_is_never_given_up(
    place: tuple[str, str], start_worker: Start
) -> None:
    engine, url = place
    # A worker of procrastinate needs a second to notice that the one before it is gone.
    steps, seconds = (20, 1.0) if engine == "embedded" else (40, 2.0)
    if LONG:
        steps, seconds = 60, 2.5
    with open_store(url) as store:
        send(url, engine, ["job/1"])
        kills = supervise(
            store,
            start_worker,
            ["job/1"],
            kill_after=seconds,
            url=url,
            engine=engine,
            name=PRICED,
            steps=steps,
            step=0.3,
        )
        assert kills > 5
        (turn,) = store.turns("job/1")
        assert (turn.status, turn.attempt, turn.tries) == ("completed", kills + 1, 0)
        results = [item for item in store.read("job/1") if item.kind == "tool_result"]
        assert [item.message.tool_call_id for item in results if item.message] == [
            f"call-{number}" for number in range(steps)
        ]
