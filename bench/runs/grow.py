"""One run with ever more steps: what a step takes, and what all of them hold.

    python bench/runs/grow.py POLICY STEPS ...

A program of its own, so that the memory is that of the run alone. The store is a SQLite file: what
grows is what the process holds. Prints the points as JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.runs.ours import MAX_STEPS, POLICIES, Policy
from bench.runs.score import MODELS
from bench.runs.script import calls, script
from muntin import App, ToolCall, Window
from muntin.testing import ScriptedModel

WINDOW = 16_000
# Results of a length that many tools have.
LONGEST = 2_000
# The collector of cycles runs so often, and outside of what is timed: it walks all that is held.
COLLECT = 250

Points = list[tuple[int, float]]


def grow(name: str, steps: Sequence[int]) -> tuple[Points, Points]:
    """Return the seconds that a step takes after so many, and the bytes that were taken."""
    command = [sys.executable, __file__, name, *map(str, steps)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    times, memory = ([(int(n), float(v)) for n, v in pairs] for pairs in json.loads(said))
    return times, memory


class Growing:
    """A turn in which the model calls a tool, again and again."""

    def __init__(self, policy: Policy, steps: Sequence[int]) -> None:
        self._policy = policy
        self._steps = steps
        found = [call.result for call in calls(script(400).turns)]
        self._texts = [text for text in found if len(text) < LONGEST]
        self._model = ScriptedModel(self._answer, name=MODELS["openai"])
        self._seconds: list[float] = []
        self._memory: Points = []
        self._started = 0.0

    def run(self) -> tuple[Points, Points]:
        """Run it all; a time is the mean of the last quarter of the steps before it."""
        gc.collect()
        before = _peak()
        gc.disable()
        try:
            asyncio.run(self._play())
        finally:
            gc.enable()
        times = [(n, fmean(self._seconds[n - n // 4 : n])) for n in self._steps]
        return times, [(n, max(1.0, peak - before)) for n, peak in self._memory]

    def _answer(self, window: Window) -> Any:
        self._seconds.append(process_time() - self._started)
        number = len(self._seconds)
        for kept in (self._model.windows, self._model.settings, self._model.files):
            kept.clear()
        if number % COLLECT == 0 or number in self._steps:
            gc.collect()
        if number in self._steps:
            self._memory.append((number, _peak()))
        self._started = process_time()
        if number > self._steps[-1]:
            return "Done."
        return ToolCall(f"call_s{number:05}a", "look", f'{{"step": {number}}}')

    async def _play(self) -> None:
        def look(step: int) -> str:
            """Look it up."""
            return f"{step}: {self._texts[step % len(self._texts)]}"

        async def handler(ctx: Any, wake: Any) -> None:
            ctx.use_agent(system_prompt="You are a clerk.", tools=[look], max_steps=MAX_STEPS)
            await ctx.agent.run()

        with TemporaryDirectory() as folder:
            url = f"sqlite:///{Path(folder) / 'run.db'}"
            async with App(url, model=self._model, budget=WINDOW, **self._policy.options) as app:
                app.entity("clerk")(handler)
                self._started = process_time()
                await app.ask("clerk/1", "Look everything up, one by one.")


def _peak() -> float:
    """Return the most memory that the process has taken so far, in bytes."""
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(taken if sys.platform == "darwin" else 1_024 * taken)


if __name__ == "__main__":
    print(json.dumps(Growing(POLICIES[sys.argv[1]], [int(n) for n in sys.argv[2:]]).run()))
