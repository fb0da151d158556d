"""A disk that is really full, or cannot be written: a clear error, nothing half, and it goes on."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from muntin import App
from muntin.errors import StoreError
from muntin.runtime.ctx import Ctx, Wake
from muntin.testing import ScriptedModel
from muntin.timeline.store import open_store
from tests.faults.checks import check_entity
from tests.workers import Start

ENOUGH = 60.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return where a disk of two megabytes is."""
    where = tmp_path / "disk"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(where)]
    try:
        refused = subprocess.run(mount, capture_output=True).returncode
    except FileNotFoundError:
        refused = 1
    if refused:
        pytest.skip("mounting needs rights")
    yield where
    subprocess.run(["umount", "-l", str(where)], check=True)


def fill(disk: Path) -> Path:
    """Write until nothing fits any more, and return what was written."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65_536, 4_096, 1):
            while True:
                try:
                    file.write(b"x" * size)
                except OSError:
                    break
    return filler


def app_on(path: Path, answer: Callable[[Any], Any]) -> App:
    app = App(f"sqlite:///{path}", model=ScriptedModel(answer))

    @app.entity("e")
    async def handler(ctx: Ctx, wake: Wake) -> None:
        ctx.use_agent()
        await ctx.agent.run()

    return app


def check_whole(path: Path) -> None:
    """Check with SQLite itself that nothing is half written."""
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


def test_a_disk_that_is_full_is_a_clear_error_and_what_runs_waits_for_room(disk: Path) -> None:
    path = disk / "store.db"
    big = "x" * 300_000

    async def work() -> None:
        asked, full = asyncio.Event(), asyncio.Event()

        async def answers(window: Any) -> str:
            if not full.is_set():
                asked.set()
                await full.wait()
                return big
            return "Yes."

        async with app_on(path, answers) as app:
            asking = asyncio.create_task(app.ask("e/1", "hello"))
            await asked.wait()
            filler = await asyncio.to_thread(fill, disk)
            full.set()
            await asyncio.sleep(0.5)
            for call in (app.send("e/2", big), app.conversation("c").send(big)):
                with pytest.raises(StoreError, match=r"store\.db: .*full.*make room") as told:
                    await asyncio.wait_for(call, 60)
                assert told.value.passing
            for session in ("e/2", "c"):  # reading works
                assert await asyncio.to_thread(app.store.read, session) == []
            assert not asking.done()
            filler.unlink()
            reply = await asyncio.wait_for(asking, ENOUGH)
            assert reply is not None
            assert reply.text == big
            assert (await app.conversation("c").send("again")).text == "Yes."
            await app.ask("e/2", "again")

    asyncio.run(work())
    check_whole(path)
    with open_store(f"sqlite:///{path}") as store:
        check_entity(store, "e/1", ["hello"])
        check_entity(store, "e/2", ["again"])
        check_entity(store, "c", ["again"])
        (turn,) = store.turns("e/1")
        assert turn.attempt == 1


def test_a_disk_that_cannot_be_written_is_a_clear_error_and_works_when_it_can(disk: Path) -> None:
    path = disk / "store.db"

    def mount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)

    async def works(text: str) -> None:
        async with app_on(path, lambda window: "Yes.") as app:
            await app.ask("e/1", text)

    async def refused() -> None:
        async with app_on(path, lambda window: "Yes.") as app:
            for call in (app.send("e/1", "no"), app.conversation("c").send("no")):
                with pytest.raises(StoreError, match=r"store\.db: .*may it be written"):
                    await asyncio.wait_for(call, 60)

    asyncio.run(works("first"))
    mount("ro")
    asyncio.run(refused())
    mount("rw")
    asyncio.run(works("second"))
    check_whole(path)
    with open_store(f"sqlite:///{path}") as store:
        check_entity(store, "e/1", ["first", "second"])
        assert store.read("c") == []


def test_a_file_without_permission_is_named_at_the_first_write_of_every_interface(
    tmp_path: Path, start: Start
) -> None:
    path = tmp_path / "store.db"
    open_store(f"sqlite:///{path}").close()
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(0o755)
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        worker = start("send_as_nobody", url=f"sqlite:///{path}")
        told = worker.communicate(timeout=ENOUGH)[0].splitlines()
    finally:
        tmp_path.chmod(0o755)
    assert [line.split()[0] for line in told] == ["send", "app.send", "ask", "wake"]
    for line in told:
        assert f"True sqlite:///{path}: " in line
        assert line.endswith("it cannot be written; look at its permissions"), line
    assert os.listdir(tmp_path) == ["store.db"]
    with open_store(f"sqlite:///{path}") as store:
        assert store.sessions() == []
