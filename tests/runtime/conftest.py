"""Apps on each of the three stores, and short words for what the tests of the runtime say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from muntin import Window
from muntin.runtime.app import App
from muntin.runtime.ctx import Ctx
from muntin.runtime.engine import Embedded
from muntin.testing import ScriptedModel
from muntin.timeline.items import Item
from muntin.timeline.store.memory import MemoryStore
from tests.timeline.conftest import store, store_url  # noqa: F401
from tests.words import call as call
from tests.words import texts as texts
from tests.workers import Start, workers

T = TypeVar("T")
Handled = Callable[[Ctx], Awaitable[Any]]


def run(work: Awaitable[T], within: float = 30) -> T:
    """Run to the end; what hangs fails."""

    async def limited() -> T:
        async with asyncio.timeout(within):
            return await work

    return asyncio.run(limited())


def said(items: Sequence[Item]) -> list[str]:
    return [item.message.text for item in items if item.message is not None]


def statuses(app: App, session: str) -> list[str]:
    """Return how the turns of a session stand, the oldest first."""
    return [turn.status for turn in reversed(app.store.turns(session))]


class Elsewhere(Embedded):
    """The engine of an app that sends, and leaves handling to others."""

    def start(self) -> None:
        pass

    def stored(self, session: str, turn: int) -> None:
        pass


def memory(**given: Any) -> App:
    """Return an app in memory, whose tokens are characters."""
    return App(MemoryStore(), tokenizer=len, **given)


async def wakes(app: App, handler: Handled, *payloads: Any, entity: str = "e/1") -> list[Any]:
    """Register a handler of ctx, wake it with each payload in turn, and return what it gave."""
    results: list[Any] = []

    @app.entity(entity.partition("/")[0])
    async def handle(ctx: Ctx, wake: Any) -> None:
        results.append(await handler(ctx))

    for payload in payloads:
        await app.ask(entity, payload)
    await app.close()
    return results


async def window_of(
    app: App, *payloads: Any, sources: dict[str, Any], source_budget: int, **agent: Any
) -> list[Window]:
    """Return the window of each wake of an agent with these sources."""
    model = ScriptedModel(lambda window: "ok")

    async def handler(ctx: Ctx) -> None:
        made = {
            name: source(ctx) if getattr(source, "__name__", "") == "of_ctx" else source
            for name, source in sources.items()
        }
        ctx.use_context(source_budget=source_budget, sources=made)
        ctx.use_agent(model=model, **agent)
        await ctx.agent.run()

    await wakes(app, handler, *payloads)
    return model.windows


@pytest.fixture
def start() -> Iterator[Start]:
    """Return what starts a worker."""
    with workers(Path(__file__).with_name("worker.py")) as starting:
        yield starting


@pytest.fixture(params=["sqlite", "postgresql"])
def lasting_url(request, tmp_path) -> str:
    """Return the address of an empty store that several processes can open."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    running = request.getfixturevalue("server")
    return str(running.url(running.new_database()))
