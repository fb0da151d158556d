"""One run with ever more steps: what a step takes, and what all of them hold."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Sequence
from time import process_time
from typing import Any

from bench.runs.ours import MAX_STEPS, Policy
from bench.runs.score import MODELS
from bench.runs.script import script
from muntin import App, ToolCall, Window
from muntin.testing import MemoryStore, ScriptedModel

WINDOW = 16_000


class Growing:
    """A turn in which the model calls a tool, again and again."""

    def __init__(self, policy: Policy, steps: int) -> None:
        self._policy = policy
        self._steps = steps
        # Results of a length that many tools have; enough of them that the window is full.
        self._texts = [
            call.result for turn in script(400).turns for step in turn.steps for call in step
            if len(call.result) < 2_000
        ]  # fmt: skip

    def seconds(self) -> list[float]:
        """Return the processor time between two requests, step by step."""
        taken: list[float] = []
        before = process_time()

        def asked(_: int) -> None:
            nonlocal before
            taken.append(process_time() - before)
            before = process_time()

        gc.collect()
        gc.disable()  # its time grows with whatever else is held
        try:
            asyncio.run(self._run(asked))
        finally:
            gc.enable()
        return taken

    def memory(self, steps: Sequence[int]) -> list[tuple[int, float]]:
        """Return the bytes that are held after so many steps, beside what was held before."""
        held: list[tuple[int, float]] = []
        start = tracemalloc.get_traced_memory()[0]

        def asked(number: int) -> None:
            if number in steps:
                gc.collect()
                held.append((number, float(tracemalloc.get_traced_memory()[0] - start)))

        asyncio.run(self._run(asked))
        return held

    async def _run(self, asked: Callable[[int], None]) -> None:
        number = 0

        def answer(window: Window) -> Any:
            nonlocal number
            model.windows.clear()
            model.settings.clear()
            model.files.clear()
            number += 1
            asked(number)
            if number > self._steps:
                return "Done."
            return ToolCall(f"call_s{number:05}a", "look", f'{{"step": {number}}}')

        def look(step: int) -> str:
            """Look it up."""
            return f"{step}: {self._texts[step % len(self._texts)]}"

        async def handler(ctx: Any, wake: Any) -> None:
            ctx.use_agent(system_prompt="You are a clerk.", tools=[look], max_steps=MAX_STEPS)
            await ctx.agent.run()

        model = ScriptedModel(answer, name=MODELS["openai"])
        app = App(MemoryStore(), model=model, budget=WINDOW, **self._policy.options)
        app.entity("clerk")(handler)
        async with app:
            await app.ask("clerk/1", "Look everything up, one by one.")
