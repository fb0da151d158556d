"""A failed turn goes on where it stopped: the same turn, with all that it did before."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from muntin import App, InvalidInput, StepLimit, ToolCall, Window
from muntin.runtime.ctx import Ctx, Wake
from muntin.testing import ScriptedModel
from muntin.timeline.store import Store, open_store
from tests.products import NAMES, PRICED
from tests.reliability.server import Server
from tests.wire.rules import CHECKS

STEPS = 7


class Agent:
    """An app whose agent looks up rows one after the other, each once."""

    def __init__(self, store: Store | str, name: str, max_steps: int, ran: list[int]) -> None:
        self.model = ScriptedModel(self.reply, name=name, budget=8_000)
        self.app = App(store, model=self.model)
        self.max_steps = max_steps
        self.ran = ran

        @self.app.entity("e")
        async def handler(ctx: Ctx, wake: Wake) -> None:
            ctx.use_agent(tools=[self.look], max_steps=max_steps)
            await ctx.agent.run()

    def look(self, row: int) -> str:
        """Look up a row."""
        self.ran.append(row)
        return f"row {row} is fine"

    @staticmethod
    def reply(window: Window) -> Any:
        rows = sum(message.role == "tool" for message in window.messages)
        if rows == STEPS - 1:
            return "All rows are fine."
        return ToolCall(f"c{rows}", "look", json.dumps({"row": rows}))

    def conversation(self) -> Any:
        return self.app.conversation("c", tools=[self.look], max_steps=self.max_steps)

    def requests(self) -> list[Any]:
        """Return the encoded requests, each held against the rules of its vendor."""
        encoded = [window.anthropic() for window in self.model.windows]
        for request in encoded:
            CHECKS["anthropic"]({"model": "m", "max_tokens": 1, **request})
        return encoded


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("interface", ["conversation", "entity"])
def test_a_turn_that_took_all_its_steps_goes_on_with_more(
    interface: str, name: str, tmp_path: Path
) -> None:
    url, ran = f"sqlite:///{tmp_path}/s.db", list[int]()

    async def fail() -> None:
        agent = Agent(url, name, 3, ran)
        async with agent.app:
            ask = agent.conversation().send
            if interface == "entity":
                ask = partial(agent.app.ask, "e/1")
            with pytest.raises(StepLimit):
                await ask("Check!")

    async def go_on(max_steps: int) -> Agent:
        agent = Agent(url, name, max_steps, ran)
        async with agent.app:
            if interface == "conversation":
                answer = await agent.conversation().try_again()
                assert answer.text == "All rows are fine."
            else:
                (item,) = agent.app.session("e/1").try_again(1)
                assert (item.turn, item.position) == (1, 1)
                assert (await agent.app.resume()).handled == ("e/1",)
        return agent

    asyncio.run(fail())
    assert ran == [0, 1]
    again = asyncio.run(go_on(20))
    assert ran == [*range(STEPS - 1)]
    first = again.requests()[0]["messages"]
    text = json.dumps(first)
    assert [text.count(part) for part in ("Check!", '"c0"', '"c1"', '"c2"')] == [1, 2, 2, 2]
    assert "StepLimit" not in text
    with open_store(url) as store:
        session = "c" if interface == "conversation" else "e/1"
        (turn,) = store.turns(session)
        assert (turn.status, turn.reason) == ("completed", None)
        shown = [item.kind for item in store.read(session, view="history")]
        assert shown.count("error") == 0
        assert shown.count("tool_result") == STEPS - 1
        assert [item.kind for item in store.read(session)].count("error") == 1, "it stays"


def test_a_conversation_whose_process_ended_goes_on_without_its_question_twice(
    tmp_path: Path,
) -> None:
    url, ran = f"sqlite:///{tmp_path}/s.db", list[int]()

    async def work() -> Any:
        agent = Agent(url, PRICED, 20, ran)
        agent.model._replies = (ToolCall("c0", "look", '{"row": 0}'), OSError("the network"), "Ok.")
        talk = agent.conversation()
        with pytest.raises(OSError, match="the network"):
            await talk.send("Check!")
        answer = await talk.try_again()
        with pytest.raises(InvalidInput, match="turn 1 of session 'c' is completed"):
            await talk.try_again()
        with pytest.raises(InvalidInput, match="no turn that could be tried again"):
            await agent.app.conversation("new").try_again()
        await agent.app.close()
        return answer.text, agent.requests()

    text, requests = asyncio.run(work())
    assert (text, ran) == ("Ok.", [0])
    assert requests[1] == requests[2], "the request that failed comes again"


def test_an_older_turn_is_handled_again_as_a_new_one(tmp_path: Path) -> None:
    async def work() -> None:
        agent = Agent(f"sqlite:///{tmp_path}/s.db", PRICED, 3, [])
        async with agent.app:
            for text in ("one", "two"):
                with pytest.raises(StepLimit):
                    await agent.app.ask("e/1", text)
            (item,) = agent.app.session("e/1").try_again(1)
            assert (item.turn, item.meta["again"]) == (3, 1)

    asyncio.run(work())


def test_a_worker_takes_a_turn_that_was_opened_again(server: Server) -> None:
    url = server.url(server.new_database())

    async def work() -> None:
        ran: list[int] = []
        for max_steps, status in ((3, "failed"), (20, "completed")):
            agent = Agent(url, PRICED, max_steps, ran)
            agent.app = App(url, model=agent.model, engine="procrastinate")

            @agent.app.entity("e")
            async def handler(ctx: Ctx, wake: Wake, agent: Agent = agent) -> None:
                ctx.use_agent(tools=[agent.look], max_steps=agent.max_steps)
                await ctx.agent.run()

            store, stop = agent.app.store, asyncio.Event()
            if status == "failed":
                await agent.app.send("e/1", "Check!")
            else:
                assert [item.turn for item in agent.app.session("e/1").try_again(1)] == [1]
            working = asyncio.create_task(agent.app.work(stop=stop))
            while store.turns("e/1")[0].status != status:
                await asyncio.sleep(0.05)
            stop.set()
            await working
            await agent.app.close()
        assert ran == [*range(STEPS - 1)]

    asyncio.run(asyncio.wait_for(work(), 60))
