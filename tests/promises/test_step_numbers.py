"""The steps of a turn are numbered 1, 2, 3, …, without gaps or repeats, also after a resume."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from muntin import App
from muntin.runtime import Ctx
from muntin.testing import ScriptedModel
from tests.runtime.conftest import call, run


def look(word: str) -> str:
    """Look a word up."""
    return f"found {word}"


class Stopping:
    """A model that answers from a list, and waits without end where the list says so."""

    name = "scripted"

    def __init__(self, *answers: Any) -> None:
        self._model = ScriptedModel([each for each in answers if each is not None])
        self._answers = list(answers)
        self.stopped = asyncio.Event()

    async def complete(self, window: Any, *, settings: Any = None) -> Any:
        if self._answers.pop(0) is None:
            self.stopped.set()
            await asyncio.Event().wait()
        return await self._model.complete(window, settings=settings)

    def stream(self, window: Any, *, settings: Any = None) -> Any:
        return self._model.stream(window, settings=settings)


async def crashed(url: str, model: Stopping, runs: int) -> None:
    """Handle a wake until the model hangs, and stop there, as if the process had died."""
    app = register(url, model, runs)
    await app.send("e/1", "hi")
    await model.stopped.wait()
    await app.close(0.01)


def register(url: str, model: Any, runs: int, keep_reports: int = 1_000) -> App:
    app = App(url, model=model, keep_reports=keep_reports)

    @app.entity("e")
    async def handler(ctx: Ctx, wake: Any) -> None:
        for _ in range(runs):
            ctx.use_agent(tools=[look])
            await ctx.agent.run()

    return app


def steps(app: App) -> list[tuple[int, int]]:
    return [(record.turn, record.step) for record in app.store.reports("e/1")]


@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_resumed_run_goes_on_counting(before, tmp_path):
    url = f"sqlite:///{tmp_path / 'm.db'}"
    asks = [call("look", id=f"c{n}", word=str(n)) for n in range(before)]

    async def work() -> None:
        await crashed(url, Stopping(*asks, None), 1)
        model = ScriptedModel([call("look", id="z", word="z"), "done"])
        app = register(url, model, 1)
        await app.resume()
        # The step that was composed before the crash, and was not answered, has its report too.
        assert steps(app) == [(1, n) for n in range(1, before + 4)]
        assert [turn.status for turn in app.store.turns("e/1")] == ["completed"]
        await app.close()

    run(work())


def test_several_calls_in_one_step_are_one_step(tmp_path):
    url = f"sqlite:///{tmp_path / 'm.db'}"
    asks = [call("look", id=f"c{n}", word=str(n)) for n in range(5)]

    async def work() -> None:
        await crashed(url, Stopping(asks, None), 1)
        app = register(url, ScriptedModel(["done"]), 1)
        await app.resume()
        assert steps(app) == [(1, 1), (1, 2), (1, 3)]
        await app.close()

    run(work())


def test_several_runs_of_a_turn_count_on(tmp_path):
    url = f"sqlite:///{tmp_path / 'm.db'}"

    async def work() -> None:
        await crashed(url, Stopping("first", call("look", word="a"), None), 2)
        app = register(url, ScriptedModel(["done"]), 2)
        await app.resume()
        assert steps(app) == [(1, n) for n in range(1, 5)]
        await app.close()

    run(work())


def test_the_next_turn_begins_at_one(tmp_path):
    url = f"sqlite:///{tmp_path / 'm.db'}"

    async def work() -> None:
        await crashed(url, Stopping(call("look", word="a"), None), 1)
        app = register(url, ScriptedModel(["done", "hello"]), 1)
        await app.resume()
        await app.ask("e/1", "again")
        assert steps(app) == [(1, 1), (1, 2), (1, 3), (2, 1)]
        await app.close()

    run(work())
