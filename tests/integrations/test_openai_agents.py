"""The OpenAI Agents SDK: the filter, and the session that keeps the frontier."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import Agent, Runner, SQLiteSession
from agents.memory import Session
from agents.run_config import CallModelData, ModelInputData

from bench.frameworks.openai_agents import agent, say
from bench.frameworks.stage import Stage, played
from muntin.errors import BudgetExceeded
from muntin.fitting import Fitted
from muntin.integrations.openai_agents import MuntinFilter, MuntinSession
from tests.integrations.contract import BUDGET, REQUESTS, check, check_same_bytes, session_of

LONG = "A sentence that says nothing. " * 40


def data(items: list[Any], instructions: str | None = None) -> CallModelData[Any]:
    made = ModelInputData(input=items, instructions=instructions)
    return CallModelData(model_data=made, agent=Agent("clerk"), context=None)


def test_every_request_to_responses_is_valid(whole):
    assert len(whole.requests) == REQUESTS
    shown = [len(str(each["input"])) for each in whole.requests]
    assert max(shown) < 2 * BUDGET * 4


def test_the_same_bytes_are_sent_after_a_restart(whole, tmp_path):
    check_same_bytes("openai_agents", tmp_path, whole)


def test_chat_completions_are_streamed_to_and_every_request_is_valid_and_fits():
    script = played(30)
    stage = Stage(script, BUDGET, check=check)
    with stage.open() as url:
        made, session = agent(script, url), MuntinSession(SQLiteSession("1"), BUDGET)

        async def run() -> None:
            for turn in script.turns:
                said = stage.begin(turn)
                config = session.run_config()
                done = Runner.run_streamed(
                    made, said, session=session, run_config=config, max_turns=100
                )
                async for _ in done.stream_events():
                    pass

        asyncio.run(run())
    row = stage.score.row("chat")
    assert (row.requests, row.invalid, row.over, row.question_lost) == (30, 0, 0, 0)


def test_a_session_shows_the_items_of_the_one_it_wraps_and_not_the_frontier():
    async def run() -> None:
        inner = SQLiteSession("1")
        session = MuntinSession(inner, BUDGET)
        assert isinstance(session, Session)
        stage = Stage(played(6))
        with stage.open() as url:
            await say(
                agent(stage.script, url), stage.script.turns[0].text, session, session.run_config()
            )
        items = await session.get_items()
        assert [each.get("type") for each in await inner.get_items()][-1] == "muntin_frontier"
        assert all(each.get("type") != "muntin_frontier" for each in items)
        assert await session.get_items(2) == items[-2:]
        assert await session.pop_item() == items[-1]
        assert await session.get_items() == items[:-1]
        again = MuntinSession(inner, BUDGET)  # as after a restart
        await again.add_items([items[-1]])
        assert (await inner.get_items())[-1]["type"] == "muntin_frontier"
        await again.pop_item()
        await session.unwrap()
        assert await inner.get_items() == items[:-1]
        await session.clear_session()
        assert await inner.get_items() == []

    asyncio.run(run())


def test_items_come_back_as_the_objects_they_were():
    items: list[Any] = [
        {"role": "user", "content": "Where?"},
        {"type": "reasoning", "id": "r1", "summary": [], "encrypted_content": "s1g"},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}", "id": "f1"},
        {"type": "function_call_output", "call_id": "c1", "output": "Here."},
    ]
    sent = asyncio.run(MuntinFilter(2_000)(data(items)))
    assert all(one is other for one, other in zip(sent.input, items, strict=True))


def test_what_cannot_be_read_is_carried_counted_and_named():
    told: list[Fitted] = []
    odd = {"type": "hologram", "data": "x" * 400}
    items = [{"role": "user", "content": "Hi"}, odd, {"role": "user", "content": "So?"}]
    sent = asyncio.run(MuntinFilter(2_000, on_fit=told.append)(data(items)))
    assert sent.input[1] is odd
    assert told[0].unread
    assert told[0].window.tokens > 80


def test_a_budget_smaller_than_the_instructions_is_an_error_that_says_so():
    with pytest.raises(BudgetExceeded):
        asyncio.run(MuntinFilter(50)(data([{"role": "user", "content": "Hi"}], LONG)))


def test_two_requests_of_one_conversation_at_once_are_both_whole():
    async def run() -> list[Any]:
        made = MuntinFilter(500)
        items = [{"role": "user", "content": f"{n} {LONG}"} for n in range(10)]
        return [items, *await asyncio.gather(made(data(items)), made(data(items)))]

    items, one, other = asyncio.run(run())
    assert one.input == other.input
    assert one.input[-1] is items[-1]


def test_a_conversation_is_recorded_under_the_framework_s_own_id(tmp_path):
    assert session_of("openai_agents", tmp_path) == "1"
