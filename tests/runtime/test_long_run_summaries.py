"""Long runs by a model that knows only its window: no call is made twice, and none is unknown."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from muntin import App, Source, StepLimit, Summary, ToolCall, Window, generator
from muntin.runtime import Ctx
from muntin.testing import ScriptedModel
from tests.products import NAMES, PRICED, UNKNOWN, sample

CALLS, BUDGET = 250, 4_000
_SHOWN = re.compile(r"\[(\d+) earlier calls? (?:is|are) not shown: look")
_RECORDED = re.compile(r'"n": (\d+)')


def as_ranges(numbers: set[int]) -> str:
    """Return numbers as a short text: 0-3 7-7."""
    ends = sorted(n for n in numbers if n + 1 not in numbers)
    begins = sorted(n for n in numbers if n - 1 not in numbers)
    return " ".join(f"{first}-{last}" for first, last in zip(begins, ends, strict=True))


def from_ranges(text: str) -> set[int]:
    pairs = re.findall(r"\b(\d+)-(\d+)\b", text)
    return {n for first, last in pairs for n in range(int(first), int(last) + 1)}


class Worker:
    """Looks up rows in order, and knows of those that its window shows, or speaks of."""

    def __init__(self, name: str, calls: int = CALLS, *, is_summarised: bool = True) -> None:
        self.model = ScriptedModel(self.answer, name=name, budget=BUDGET)
        self.calls = calls
        self.max_steps = 900
        self.is_summarised = is_summarised
        self.made: list[int] = []
        self.unknown: set[int] = set()

    def known(self, window: Window) -> set[int]:
        found: set[int] = set()
        for message in window.messages:
            if message.role == "tool":
                found.add(int((message.tool_call_id or "").partition("-")[2]))
            if message.text.startswith("<summary"):
                found |= from_ranges(message.text.partition(">")[2])
            elif not self.is_summarised:
                found |= {n for count in _SHOWN.findall(message.text) for n in range(int(count))}
        return found

    def answer(self, window: Window) -> Any:
        known = self.known(window)
        self.unknown |= {*self.made} - known
        left = [n for n in range(self.calls) if n not in known]
        if not left or len(self.made) > 2 * self.calls:
            return "Done with all of it."
        return ToolCall(f"c{len(self.made)}-{left[0]}", "look", json.dumps({"n": left[0]}))

    def look(self, n: int) -> str:
        """Look up a row."""
        self.made.append(n)
        return f"row {n}: fine. " + f"Nothing to report of row {n}. " * 40


def summariser() -> ScriptedModel:
    """Names all calls that its record or the summary so far names, and nothing else."""

    def summarise(window: Window) -> str:
        text = "\n".join(message.text for message in window.messages[1:])
        so_far = re.search(r"<summary-so-far>(.*?)</summary-so-far>", text)
        told = from_ranges(so_far[1]) if so_far else set()
        return as_ranges(told | {int(n) for n in _RECORDED.findall(text)})

    return ScriptedModel(summarise)


Door = Callable[[App, Worker, Any, str], Awaitable[Any]]


async def by_conversation(app: App, worker: Worker, summary: Any, text: str) -> None:
    chat = app.conversation(
        "s", model=worker.model, tools=[worker.look], summary=summary, max_steps=worker.max_steps
    )
    await chat.send(text)


def register(app: App, worker: Worker, summary: Any) -> None:
    @app.entity("e")
    async def handle(ctx: Ctx, wake: Any) -> None:
        ctx.use_agent(
            system_prompt="Be brief.",
            model=worker.model,
            tools=[worker.look],
            summary=summary,
            max_steps=worker.max_steps,
        )
        await ctx.agent.run()


async def by_entity(app: App, worker: Worker, summary: Any, text: str) -> None:
    register(app, worker, summary)
    await app.ask("e/s", text)


async def by_sources(app: App, worker: Worker, summary: Any, text: str) -> None:
    async def handle(ctx: Ctx, wake: Any) -> None:
        ctx.use_context(
            source_budget=2_000,
            sources={
                "rules": Source("Be brief.", max=100, cache="stable"),
                "talk": Source(ctx.timeline_messages, max=1_500),
            },
        )
        ctx.use_agent(
            model=worker.model, tools=[worker.look], summary=summary, max_steps=worker.max_steps
        )
        await ctx.agent.run()

    app.entity("e")(handle)
    await app.ask("e/s", text)


async def by_generator(app: App, worker: Worker, summary: Any, text: str) -> None:
    made = generator(
        model=worker.model,
        prompt="Be brief.",
        history=True,
        user=lambda given: given,
        tools=[worker.look],
        summary=summary,
        max_steps=worker.max_steps,
    )
    await made.run(text, app=app, session="s")


DOORS: dict[str, Door] = {
    name.removeprefix("by_"): door for name, door in list(globals().items()) if name[:3] == "by_"
}


CASES = sample(
    [(door, name, which) for door in DOORS for name in NAMES for which in ("summary", "plain")],
    ("conversation", PRICED, "summary"),
    ("conversation", UNKNOWN, "plain"),
    ("entity", UNKNOWN, "summary"),
    ("generator", PRICED, "summary"),
    ("sources", PRICED, "plain"),
)


@pytest.mark.parametrize(("door", "name", "which"), CASES)
def test_a_model_that_knows_only_its_window_makes_each_call_once(
    door: str, name: str, which: str
) -> None:
    is_summarised = which == "summary"
    worker, writer = Worker(name, is_summarised=is_summarised), summariser()

    async def main() -> None:
        async with App("memory:") as app:
            summary = Summary(writer) if is_summarised else None
            await DOORS[door](app, worker, summary, "Look up all rows.")

    asyncio.run(main())
    assert worker.unknown == set()
    assert worker.made == [*range(CALLS)]
    assert not any(window.over_budget for window in worker.model.windows)
    # A summary is made of what the window showed, and stubs.
    assert len(writer.windows) <= 8
    assert sum(window.tokens for window in writer.windows) <= 2 * BUDGET * len(writer.windows)
    if is_summarised:
        assert "<summary" in "".join(message.text for message in worker.model.windows[-1].messages)


@pytest.mark.parametrize(
    ("door", "name"),
    sample(
        [(door, name) for door in ("conversation", "entity") for name in NAMES],
        ("conversation", UNKNOWN),
        ("entity", PRICED),
    ),
)
def test_an_agent_that_took_all_its_steps_goes_on_with_more(
    door: str, name: str, tmp_path: Path
) -> None:
    """Each time in another app, by another message; an entity's failed turn is tried again too."""
    worker, writer = Worker(name, 60), summariser()

    async def main(max_steps: int, text: str) -> None:
        async with App(f"sqlite:///{tmp_path / 'a.db'}") as app:
            worker.max_steps = max_steps
            await DOORS[door](app, worker, Summary(writer), text)

    async def try_again() -> None:
        async with App(f"sqlite:///{tmp_path / 'a.db'}") as app:
            worker.max_steps = 60  # of the whole turn
            register(app, worker, Summary(writer))
            (failed, *_) = app.store.turns("e/s", status="failed", newest=1)
            app.session("e/s").try_again(failed.number)
            await app.resume()

    for text, max_steps in (("Look up all rows.", 20), ("Go on.", 25)):
        with pytest.raises(StepLimit):
            asyncio.run(main(max_steps, text))
    asyncio.run(try_again() if door == "entity" else main(30, "Go on."))
    assert worker.unknown == set()
    assert worker.made == [*range(60)]
