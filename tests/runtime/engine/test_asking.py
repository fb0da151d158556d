"""Who asks an entity that is handled in the same process is told; nobody looks at the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from muntin import App
from muntin.runtime.ctx import Ctx
from tests.runtime.conftest import Elsewhere, run
from tests.runtime.engine.conftest import Make, working

# Longer than the longest pause between two looks.
SECONDS = 0.5


class Looks:
    """Counts the looks at turns of an app's store."""

    def __init__(self, app: App, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        turns: Callable[..., Any] = app.store.turns

        def looked(*given: Any, **chosen: Any) -> Any:
            self.count += 1
            return turns(*given, **chosen)

        patch.setattr(app.store, "turns", looked)


def slow(app: App, looks: Looks) -> list[int]:
    """Register a slow handler; return the looks while each of its wakes ran."""
    seen: list[int] = []

    @app.entity("e")
    async def handler(ctx: Ctx, wake: Any) -> None:
        before = looks.count
        await asyncio.sleep(SECONDS)
        seen.append(looks.count - before)

    return seen


def test_nobody_looks_for_a_turn_that_is_handled_here(make: Make, monkeypatch) -> None:
    async def work() -> list[int]:
        app = make()
        seen = slow(app, Looks(app, monkeypatch))
        async with working(app):
            await app.ask("e/1", "hello")
        return seen

    assert run(work()) == [0]


def test_nobody_looks_for_a_turn_that_waits_here_for_its_place(tmp_path, monkeypatch) -> None:
    async def work() -> tuple[int, list[int]]:
        app = App(f"sqlite:///{tmp_path / 'store.db'}")
        looks = Looks(app, monkeypatch)
        seen = slow(app, looks)
        async with working(app, concurrency=1):
            await asyncio.gather(app.ask("e/1", "hello"), app.ask("e/2", "hello"))
        return looks.count, seen

    assert run(work()) == (0, [0, 0])


def test_an_ask_that_another_app_answers_or_that_is_cancelled_leaves_nothing_in_memory(
    tmp_path,
) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"

    def with_handler(app: App) -> App:
        @app.entity("e")
        async def handler(ctx: Ctx, wake: Any) -> None:
            await asyncio.sleep(0.05)

        return app

    async def work() -> tuple[int, int]:
        asking = with_handler(App(url, engine=Elsewhere()))
        async with with_handler(App(url)):
            for number in range(5):
                await asking.ask("e/1", f"question {number}")
            answered = held(asking)
            cancelled = asyncio.create_task(asking.ask("e/2", "never mind"))
            await asyncio.sleep(0.02)
            tasks = len(asyncio.all_tasks())
            cancelled.cancel()
            await asyncio.gather(cancelled, return_exceptions=True)
            await asyncio.sleep(0)
            assert len(asyncio.all_tasks()) < tasks
            return answered, held(asking)

    def held(app: App) -> int:
        return len(app._wakes._waiters)

    assert run(work()) == (0, 0)
