"""A handler may return its agent: it is run, and the turn ends with its answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from muntin import InvalidInput
from muntin.errors import TimedOut
from muntin.runtime.app import App
from muntin.testing import ScriptedModel
from tests.runtime.conftest import memory, run, statuses


async def returned(handler: Any, *payloads: str) -> tuple[App, ScriptedModel]:
    """Ask an entity with this handler, and return the app and its model."""
    model = ScriptedModel(lambda window: "Hi.")
    app = memory(model=model)
    app.entity("e")(handler)
    for payload in payloads:
        reply = await app.ask("e/1", payload)
        assert reply is not None
        assert reply.text == "Hi."
    await app.close()
    return app, model


def test_an_agent_that_the_handler_returns_ends_the_turn():
    async def handler(ctx, wake):
        return ctx.use_agent(system_prompt="Be kind.")

    app, model = run(returned(handler, "hello", "again"))
    assert len(model.windows) == 2
    assert statuses(app, "e/1") == ["completed", "completed"]


def test_an_agent_that_has_run_is_not_run_again_when_it_is_returned():
    async def handler(ctx, wake):
        agent = ctx.use_agent()
        await agent.run()
        return agent

    _, model = run(returned(handler, "hello"))
    assert len(model.windows) == 1


def test_an_agent_that_was_declared_and_not_run_is_told_in_the_log(caplog):
    async def idle(ctx, wake):
        ctx.use_agent()

    async def runs(ctx, wake):
        ctx.use_agent()
        await ctx.agent.run()

    async def returns(ctx, wake):
        return ctx.use_agent()

    async def work(handler):
        app = memory(model=ScriptedModel(lambda window: "Hi."))
        app.entity("e")(handler)
        await app.ask("e/1", "hello")
        await app.close()

    for handler in (runs, returns):
        run(work(handler))
    assert "did not run it" not in caplog.text
    run(work(idle))
    assert "the handler of 'e/1' declared an agent and did not run it: return" in caplog.text


def test_an_agent_of_another_wake_is_refused():
    kept = []

    async def handler(ctx, wake):
        kept.append(ctx.use_agent())
        return kept[0]

    async def work():
        app = memory(model=ScriptedModel(lambda window: "Hi."))
        app.entity("e")(handler)
        await app.ask("e/1", "hello")
        with pytest.raises(InvalidInput, match="the agent of its own ctx"):
            await app.ask("e/1", "again")
        await app.close()
        return statuses(app, "e/1")

    assert run(work()) == ["completed", "failed"]


def test_an_agent_that_is_returned_has_the_time_of_its_handler():
    async def handler(ctx, wake):
        return ctx.use_agent(model=Slow([]))

    class Slow(ScriptedModel):
        async def complete(self, window: Any, **given: Any) -> Any:
            await asyncio.sleep(60)

    async def work():
        app = memory()
        app.entity("e", timeout=0.1)(handler)
        with pytest.raises(TimedOut, match="the handler of 'e/1'"):
            await app.ask("e/1", "hello")
        await app.close()
        return statuses(app, "e/1")

    assert run(work()) == ["failed"]
