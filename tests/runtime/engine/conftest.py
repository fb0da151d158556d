"""Every engine, each on the stores it is for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import pytest

from muntin.runtime.app import App
from muntin.timeline.store.memory import MemoryStore

Make: TypeAlias = Callable[..., App]


@pytest.fixture(params=["embedded-memory", "embedded-sqlite", "procrastinate"])
def make(request, tmp_path) -> Iterator[Make]:
    """Return what makes apps that share an empty store."""
    store: Any = MemoryStore()
    if request.param == "embedded-sqlite":
        store = f"sqlite:///{tmp_path / 'store.db'}"
    elif request.param == "procrastinate":
        server = request.getfixturevalue("server")
        store = server.url(server.new_database())
    engine = request.param.partition("-")[0]
    made: list[App] = []

    def app(**given: Any) -> App:
        made.append(App(store, **{"engine": engine, "tokenizer": len, **given}))
        return made[-1]

    yield app
    for each in made:
        each.store.close()


@asynccontextmanager
async def working(
    app: App, *, concurrency: int = 20, timeout: float = 10
) -> AsyncIterator[asyncio.Event]:
    """Have an app work while the block runs; gives what stops it."""
    stop = asyncio.Event()
    work = asyncio.create_task(app.work(concurrency=concurrency, stop=stop, timeout=timeout))
    try:
        yield stop
    finally:
        stop.set()
        await work
        await app.close()


async def until(true: Callable[[], Any], within: float = 60) -> None:
    """Wait for something to become true."""
    async with asyncio.timeout(within):
        while not true():
            await asyncio.sleep(0.01)


def settled(app: App, *entities: str) -> bool:
    """Say whether all turns of these entities are settled, and there are some."""
    turns = [turn for entity in entities for turn in app.store.turns(entity)]
    return bool(turns) and all(turn.status in ("completed", "failed") for turn in turns)
