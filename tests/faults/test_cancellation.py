"""A call that is cancelled, wherever it waits, leaves its conversation or entity usable."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from muntin import App, assistant
from muntin.core.parts import ToolCall
from muntin.runtime.ctx import Ctx, Wake
from muntin.testing import ScriptedModel
from muntin.timeline.items import Item, Turn
from tests.faults.checks import settled, wait_until
from tests.faults.conftest import times
from tests.faults.steps import CancelledAt
from tests.workers import Start

# How many seconds a step may take before the next is cancelled instead.
ENOUGH = 20.0


def model() -> ScriptedModel:
    """Return a model that calls a tool before it answers."""

    ids = count(1)

    def reply(window: Any) -> Any:
        if window.messages[-1].role == "tool":
            return "Found."
        return assistant(tool_calls=[ToolCall(f"c{next(ids)}", "look", "{}")])

    return ScriptedModel(reply)


async def look() -> str:
    """Look."""
    await asyncio.sleep(0)
    return "seen"


async def sends(app: App, text: str) -> None:
    await app.conversation("c", tools=[look]).send(text)


async def streams(app: App, text: str) -> None:
    async for _ in app.conversation("c", tools=[look]).stream(text):
        await asyncio.sleep(0)


async def asks(app: App, text: str) -> None:
    await app.ask("e/1", text)


INTERFACES: dict[str, tuple[str, Callable[[App, str], Coroutine[Any, Any, None]]]] = {
    "send": ("c", sends),
    "stream": ("c", streams),
    "ask": ("e/1", asks),
}


def made(url: str) -> App:
    app = App(url, model=model())

    @app.entity("e")
    async def handler(ctx: Ctx, wake: Wake) -> None:
        ctx.use_agent(tools=[look])
        await ctx.agent.run()

    return app


def check(turns: list[Turn], items: list[Item], asked: list[str]) -> None:
    """Check that all is settled, in order, and nothing doubled."""
    for turn in turns:
        assert turn.status in ("completed", "failed"), turns
        assert turn.owner is None, turns
        assert turn.status == "completed" or turn.reason == "cancelled", turns
    said = [item.message.text for item in items if item.role == "user" and item.message]
    assert said == [text for text in asked if text in said]
    results = [(item.turn, item.run) for item in items if item.kind == "tool_result"]
    assert len(results) == len(set(results)), "a finished call was run again"


async def cancel_everywhere(app: App, interface: str) -> int:
    """Cancel it at every step in turn, use it behind each; return how many steps it has."""
    session, use = INTERFACES[interface]
    asked: list[str] = []
    for step in range(1, 10_000, max(1, times("STRIDE", 1))):
        asked.append(f"question {step}")
        cancelled = CancelledAt(use(app, asked[-1]), step)

        async def run(each: CancelledAt = cancelled) -> None:
            await each

        task = asyncio.create_task(run())
        await asyncio.wait([task], timeout=ENOUGH)
        assert task.done(), f"stuck when cancelled at step {step}"
        asked.append(f"after {step}")
        async with asyncio.timeout(ENOUGH):
            await use(app, asked[-1])
        turns, items = app.store.turns(session), app.store.read(session)
        check(turns, items, asked)
        assert turns[0].status == "completed"
        if not cancelled.cancelled:
            return step
    raise AssertionError("it has too many steps")


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_call_that_is_cancelled_at_any_step_leaves_its_session_usable(
    interface: str, url: str
) -> None:
    async def work() -> int:
        async with made(url) as app:
            return await cancel_everywhere(app, interface)

    assert asyncio.run(work()) > 2


def test_a_wake_that_is_cancelled_at_any_step_is_handled_again(url: str) -> None:
    """The task that handles an entity is cancelled, as at a shutdown; another process goes on."""
    handled: list[int] = []

    async def once(step: int) -> bool:
        app = made(url)
        entity = f"e/{step}"
        session = app.session(entity)
        first = CancelledAt(app._wakes._handle_next(session), step)

        async def run() -> None:
            await first

        await asyncio.to_thread(
            app.store.append, entity, [session.draft(_sent("go"), opens="inbox")]
        )
        task = asyncio.create_task(run())
        await asyncio.wait([task], timeout=ENOUGH)
        assert task.done(), f"stuck when cancelled at step {step}"
        async with made(url) as other:
            async with asyncio.timeout(ENOUGH):
                await other.resume()
                while other.store.turns(entity)[0].status != "completed":
                    await asyncio.sleep(0.01)
        (turn,) = other.store.turns(entity)
        assert turn.tries <= 1, turn  # handed back, which is no try that failed
        items = other.store.read(entity)
        assert sum(item.kind == "tool_result" for item in items) == 1, "a finished call ran again"
        handled.append(turn.attempt)
        await app.close()
        return first.cancelled

    async def work() -> None:
        for step in range(1, 1_000):
            if not await once(step):
                return

    asyncio.run(work())
    assert handled[0] >= 1
    assert max(handled) == 2


def test_a_wake_that_is_cancelled_at_any_step_is_handled_by_another_process(
    url: str, tmp_path: Path, start: Start
) -> None:
    """While this one lives, and does nothing more about it: its store is slow, so that it takes the
    turn when the wake is gone already."""
    entities: list[str] = []

    async def once(app: App, step: int) -> bool:
        entities.append(f"e/{step}")
        session = app.session(entities[-1])
        wake = CancelledAt(app._wakes._handle_next(session), step, after=0.01)

        async def run() -> None:
            await wake

        await asyncio.to_thread(
            app.store.append, session.id, [session.draft(_sent("go"), opens="inbox")]
        )
        task = asyncio.create_task(run())
        await asyncio.wait([task], timeout=ENOUGH)
        assert task.done(), f"stuck when cancelled at step {step}"
        return wake.cancelled

    app = made(url)  # outside of an event loop, so that it sweeps nothing

    async def work() -> None:
        take = app.store.take

        def slow(*given: Any, **named: Any) -> Any:
            time.sleep(0.05)
            return take(*given, **named)

        app.store.take = slow  # type: ignore[method-assign]
        steps = range(1, 1_000, max(1, times("STRIDE", 1)))
        for step in steps:
            if not await once(app, step):
                break
        other = start("handle", url=url, log=str(tmp_path / "log"))
        await asyncio.to_thread(wait_until, lambda: settled(app.store, entities), "handled", ENOUGH)
        other.kill()
        for entity in entities:
            assert [turn.status for turn in app.store.turns(entity)] == ["completed"]
        await app.close()

    asyncio.run(work())
    assert len(entities) > 2


def _sent(text: str) -> Any:
    from muntin import user
    from muntin.timeline.items import draft_of

    return draft_of(user(text))


def test_a_wake_whose_event_loop_ends_is_handled_by_the_next(tmp_path: Path) -> None:
    """The loop is closed while a handler waits, and nothing in it is ever cancelled."""
    url = f"sqlite:///{tmp_path / 's.db'}"
    begun: list[str] = []

    def app() -> App:
        made = App(url)

        @made.entity("e")
        async def handler(ctx: Ctx, wake: Wake) -> None:
            begun.append(str(wake.payload))
            if len(begun) == 1:
                await asyncio.Event().wait()

        return made

    async def begin(first: App) -> None:
        await first.send("e/1", "hello")
        while not begun:
            await asyncio.sleep(0.01)

    first, loop = app(), asyncio.new_event_loop()
    loop.run_until_complete(begin(first))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()

    async def go_on() -> None:
        async with app() as other, asyncio.timeout(ENOUGH):
            while other.store.turns("e/1")[0].status != "completed":
                await asyncio.sleep(0.01)

    asyncio.run(go_on())
    assert begun == ["hello", "hello"]
    del first
