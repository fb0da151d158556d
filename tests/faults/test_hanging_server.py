"""A server that hangs is like one that is gone: an error in time, and then everything goes on."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from typing import Any

import pytest

from muntin import App
from muntin.core.message import assistant
from muntin.core.parts import ToolCall
from muntin.errors import StoreError
from muntin.runtime.ctx import Ctx, Wake
from muntin.testing import ScriptedModel
from muntin.timeline.store import Store, open_store
from tests.faults.checks import settled
from tests.faults.test_connections import INTERFACES, app_on, check
from tests.products import NAMES
from tests.reliability.server import Server

# The limit of a use of the store here, how much later its error may come, and more than enough.
LIMIT = 1.0
LATER = 4.0
ENOUGH = 60.0


@pytest.fixture
def store(own_server: Server, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr("muntin.runtime.store_thread.BEGIN_SECONDS", LIMIT)
    return open_store(own_server.url(own_server.new_database()), timeout=LIMIT)


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_use_of_a_server_that_hangs_is_an_error_in_time_and_nothing_is_twice(
    own_server: Server, store: Store, interface: str
) -> None:
    session, use = INTERFACES[interface]

    async def refused(app: App) -> None:
        await (app.send(session, "refused") if interface == "app.send" else use(app, "refused"))

    async def work() -> None:
        async with app_on(store) as app:
            assert await use(app, "first") == "Yes."
            with own_server.hanging():
                for _ in range(2):  # with a connection from before, and with a new one
                    began = time.monotonic()
                    with pytest.raises(StoreError, match=r"did not answer|timeout") as error:
                        await refused(app)
                    assert time.monotonic() - began < 2 * LIMIT + LATER
                    assert error.value.away
                    assert error.value.passing
            assert await use(app, "second") == "Yes."

    asyncio.run(work())
    check(store, session, ["first", "second"])


@pytest.mark.parametrize("model", NAMES)
@pytest.mark.parametrize("interface", ["conversation", "entity"])
def test_a_run_whose_server_hangs_between_its_steps_goes_on(
    own_server: Server, store: Store, interface: str, model: str
) -> None:
    """It hangs for three times the limit, while a tool runs and when its result is stored."""

    def answers(window: Any) -> Any:
        count = sum(message.role == "tool" for message in window.messages)
        if count == 2:
            return "Yes."
        return assistant(tool_calls=[ToolCall(f"call{count}", "look", "{}")])

    async def work() -> None:
        looked = 0
        tasks: list[asyncio.Task[None]] = []
        with ExitStack() as stack:

            async def go_on() -> None:
                await asyncio.sleep(3 * LIMIT)
                stack.close()

            async def look() -> str:
                """Look."""
                nonlocal looked
                looked += 1
                if looked == 1:
                    stack.enter_context(own_server.hanging())
                    tasks.append(asyncio.create_task(go_on()))
                return "nothing"

            async with App(store, model=ScriptedModel(answers, name=model)) as app:

                @app.entity("e")
                async def handler(ctx: Ctx, wake: Wake) -> None:
                    ctx.use_agent(tools=[look])
                    await ctx.agent.run()

                async with asyncio.timeout(ENOUGH):
                    if interface == "entity":
                        reply: Any = await app.ask("e/1", "so?")
                    else:
                        reply = await app.conversation("e/1", tools=[look]).send("so?")
                    assert reply.text == "Yes."
                    while not await asyncio.to_thread(settled, app.store, ["e/1"]):
                        await asyncio.sleep(0.05)
        assert looked == 2

    asyncio.run(work())
    roles = [item.role for item in store.read("e/1") if item.role]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant"]


def test_work_without_a_limit_may_take_longer_than_a_use(own_server: Server, store: Store) -> None:
    store.read("s")
    store.database.run_script(lambda tx: tx.text(f"SELECT pg_sleep({1.5 * LIMIT})"))
    with pytest.raises(StoreError, match="longer than a use of the store may take"):
        store.database.query(f"SELECT pg_sleep({1.5 * LIMIT})")
    assert store.read("s") == []
