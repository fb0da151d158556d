"""The steps of a turn are numbered 1, 2, 3, …, without gaps or repeats, also after a resume."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from muntin import App
from muntin.runtime import Ctx
from muntin.testing import ScriptedModel
from tests.products import PRICED
from tests.runtime.conftest import call, run


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'm.db'}"


def look(word: str) -> str:
    """Look a word up."""
    return f"found {word}"


class Stopping:
    """A model that answers from a list, and waits without end where the list says so."""

    name = "scripted"

    def __init__(self, *answers: Any) -> None:
        self._model = ScriptedModel([each for each in answers if each is not None], name=PRICED)
        self._answers = list(answers)
        self.stopped = asyncio.Event()

    async def complete(self, window: Any, *, settings: Any = None) -> Any:
        if self._answers.pop(0) is None:
            self.stopped.set()
            await asyncio.Event().wait()
        return await self._model.complete(window, settings=settings)

    def stream(self, window: Any, *, settings: Any = None) -> Any:
        return self._model.stream(window, settings=settings)


def crashed(url: str, *answers: Any, runs: int = 1) -> None:
    """Handle a wake until the model hangs, and stop there, as if the process had died."""

    async def work() -> None:
        model = Stopping(*answers, None)
        await register(url, model, runs).send("e/1", "hi")
        await model.stopped.wait()

    run(work())


def register(url: str, model: Any, runs: int) -> App:
    app = App(url, model=model)

    @app.entity("e")
    async def handler(ctx: Ctx, wake: Any) -> None:
        for _ in range(runs):
            ctx.use_agent(tools=[look])
            await ctx.agent.run()

    return app


def resume(
    url: str, *answers: Any, runs: int = 1, then: str | None = None
) -> list[tuple[int, int]]:
    """Take up what was left, and return the turn and step of each report."""

    async def work() -> list[tuple[int, int]]:
        async with register(url, ScriptedModel(answers, name=PRICED), runs) as app:
            while [turn.status for turn in app.store.turns("e/1")] != ["completed"]:
                await asyncio.sleep(0.01)
            if then is not None:
                await app.ask("e/1", then)
            return [(record.turn, record.step) for record in app.store.reports("e/1")]

    return run(work())


def counted(steps: list[tuple[int, int]], at_least: int) -> bool:
    """Say whether steps are counted 1, 2, 3, …; one that was not answered may have its report."""
    whole = [(1, n) for n in range(1, len(steps) + 1)]
    return steps == whole and at_least <= len(steps) <= at_least + 1


@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_resumed_run_goes_on_counting(before, url):
    crashed(url, *[call("look", id=f"c{n}", word=str(n)) for n in range(before)])
    steps = resume(url, call("look", id="z", word="z"), "done")
    assert counted(steps, before + 2)


def test_several_calls_in_one_step_are_one_step(url):
    crashed(url, [call("look", id=f"c{n}", word=str(n)) for n in range(5)])
    assert counted(resume(url, "done"), 2)


def test_several_runs_of_a_turn_count_on(url):
    crashed(url, "first", call("look", word="a"), runs=2)
    assert counted(resume(url, "done", runs=2), 3)


def test_the_next_turn_begins_at_one(url):
    crashed(url, call("look", word="a"))
    *first, last = resume(url, "done", "hello", then="again")
    assert counted(first, 2)
    assert last == (2, 1)
