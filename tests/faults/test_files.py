"""A file that is deleted or cannot be written under a running process, and forks in the middle."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from muntin import App
from muntin.errors import StoreError
from muntin.runtime.ctx import Ctx, Wake
from muntin.testing import ScriptedModel
from muntin.timeline.store import open_store
from muntin.timeline.store.sql import Store
from tests.faults.checks import check_entity
from tests.faults.conftest import times
from tests.words import asks


def test_a_file_deleted_under_a_process_is_noticed_at_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with open_store(f"sqlite:///{path}") as store:
        store.append("s", [asks("one")])
        for each in tmp_path.iterdir():
            each.unlink()
        for _ in range(2):
            with pytest.raises(StoreError, match="was deleted or moved under this process"):
                store.append("s", [asks("two")])
        assert not path.exists()


def test_a_file_that_is_brought_back_is_the_store_again(tmp_path: Path) -> None:
    path, copy = tmp_path / "s.db", tmp_path / "copy.db"
    with open_store(f"sqlite:///{path}") as store:
        store.append("s", [asks("one")])
        store.close()
        shutil.copy(path, copy)
        store.append("s", [asks("lost")])
        store.close()
        for each in tmp_path.glob("s.db*"):
            each.unlink()
        with pytest.raises(StoreError):
            store.append("s", [asks("refused")])
        copy.rename(path)
        store.append("s", [asks("two")])
        assert [item.content for item in store.read("s")] == ["one", "two"]


def test_an_app_goes_on_when_its_file_is_brought_back(tmp_path: Path) -> None:
    path, away = tmp_path / "s.db", tmp_path / "away.db"

    async def work() -> None:
        asked, moved = asyncio.Event(), asyncio.Event()

        async def answers(window: object) -> str:
            asked.set()
            await moved.wait()
            return "Yes."

        async with App(f"sqlite:///{path}", model=ScriptedModel(answers)) as app:

            @app.entity("e")
            async def handler(ctx: Ctx, wake: Wake) -> None:
                ctx.use_agent()
                await ctx.agent.run()

            asking = asyncio.create_task(app.ask("e/1", "hello"))
            await asked.wait()
            app.store.close()  # so that all of it stands in the one file
            path.rename(away)
            moved.set()
            await asyncio.sleep(1)
            away.rename(path)
            reply = await asyncio.wait_for(asking, 30)
            assert reply is not None
            check_entity(app.store, "e/1", ["hello"])

    asyncio.run(work())


def forked(work: Callable[[], None]) -> int:
    """Run work in a child, which gets 30 seconds; return its id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        signal.alarm(30)
        work()
        status = 0
    finally:
        os._exit(status)


def test_a_fork_with_transactions_under_way_neither_hangs_nor_refuses_the_child(url: str) -> None:
    """Other threads write at full speed while the process forks, and the children write too."""
    forks, threads = times("FORKS", 5), 3
    over = threading.Event()
    written = [0] * threads

    with Store(url) as store:
        store.append("s", [asks("first")])

        def write(number: int) -> None:
            while not over.is_set():
                store.append(f"thread {number}", [asks(str(written[number]))])
                written[number] += 1

        writers = [threading.Thread(target=write, args=(number,)) for number in range(threads)]
        for each in writers:
            each.start()
        try:
            for number in range(forks):
                time.sleep(0.02)
                began = time.monotonic()
                child = forked(lambda number=number: _append(store, f"child {number}"))  # type: ignore[misc]
                assert time.monotonic() - began < 15
                assert os.waitpid(child, 0)[1] == 0
        finally:
            over.set()
            for each in writers:
                each.join(30)
        assert not any(each.is_alive() for each in writers), "a writer is stuck"
        for number in range(forks):
            assert len(store.read(f"child {number}")) == 3
        for number in range(threads):
            said = [item.content for item in store.read(f"thread {number}")]
            assert said == [str(each) for each in range(written[number])]


def _append(store: Store, session: str) -> None:
    for number in range(3):
        store.append(session, [asks(str(number))])
