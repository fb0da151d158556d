"""Microsoft Agent Framework: the chat middleware, with the frontier in the session."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from agent_framework import AgentSession, ChatContext, Content, Message

from bench.frameworks.agent_framework import agent
from bench.frameworks.stage import Stage, played
from muntin.errors import BudgetExceeded
from muntin.fitting import Fitted
from muntin.integrations.agent_framework import MuntinMiddleware
from muntin.integrations.shared import FRONTIER
from tests.integrations.contract import BUDGET, check, check_fits, check_same_bytes, session_of

LONG = "A sentence that says nothing. " * 40


def processed(budget: int, messages: list[Any], **given: Any) -> tuple[ChatContext, list[Fitted]]:
    """Return what the hook makes of a call, and what it told."""
    told: list[Fitted] = []
    context = ChatContext(client=object(), messages=messages, options={}, **given)

    async def call_next() -> None:
        pass

    asyncio.run(MuntinMiddleware(budget, on_fit=told.append).process(context, call_next))
    return context, told


def test_every_request_is_valid_and_fits(whole):
    check_fits(whole)


def test_the_same_bytes_are_sent_after_a_restart(whole, tmp_path):
    check_same_bytes("agent_framework", tmp_path, whole)


def test_streamed_requests_are_valid_and_fit():
    script = played(20)
    stage = Stage(script, BUDGET, check=check)

    async def run(url: str) -> None:
        made = agent(script, url, middleware=[MuntinMiddleware(BUDGET)])
        session = made.create_session()
        for turn in script.turns:
            async for _ in made.run(stage.begin(turn), session=session, stream=True):
                pass

    with stage.open() as url:
        asyncio.run(run(url))
    row = stage.score.row("streamed")
    assert (row.requests, row.invalid, row.over, row.question_lost) == (20, 0, 0, 0)
    assert all(each["stream"] for each in stage.requests)


def test_messages_come_back_as_the_objects_they_were_and_answers_without_the_framework_s_name():
    named = Message("assistant", ["Hello"], author_name="clerk")
    messages = [Message("user", ["Hi"]), named, Message("user", ["Bye"])]
    context, _ = processed(1_000, messages)
    assert context.messages[0] is messages[0]
    assert context.messages[2] is messages[2]
    assert context.messages[1].author_name is None
    assert context.messages[1].contents is named.contents
    assert named.author_name == "clerk"


def test_results_of_one_message_are_shortened_one_by_one():
    calls = [Content.from_function_call(f"c{n}", "look", arguments="{}") for n in range(2)]
    results = [Content.from_function_result(f"c{n}", result=LONG * 10) for n in range(2)]
    asked = [Message("user", ["Where?"]), Message("assistant", calls), Message("tool", results)]
    context, _ = processed(700, asked)
    made = context.messages[-1].contents
    assert [each.call_id for each in made] == ["c0", "c1"]
    assert all(len(each.result) < len(LONG * 10) for each in made)
    assert results[0].result == LONG * 10


def test_what_cannot_be_read_is_carried_counted_and_named():
    odd = Message("critic", ["x" * 400])
    context, told = processed(1_000, [Message("user", ["Hi"]), odd, Message("user", ["So?"])])
    assert context.messages[1] is odd
    assert "critic" in told[0].unread[0]
    assert told[0].window.tokens > 60


def test_a_budget_smaller_than_the_question_is_an_error_that_says_so():
    with pytest.raises(BudgetExceeded):
        processed(10, [Message("user", [LONG * 100])])


def test_a_frontier_of_another_conversation_is_left_aside_and_the_report_says_so():
    session = AgentSession()
    _, one = processed(500, [Message("user", [f"{n} {LONG}"]) for n in range(9)], session=session)
    assert session.state[FRONTIER] == one[0].frontier
    _, other = processed(500, [Message("user", ["Another"])], session=session)
    assert other[0].fresh


def test_a_conversation_is_recorded_under_the_framework_s_own_id(tmp_path):
    id = session_of("agent_framework", tmp_path)
    assert id == json.loads((tmp_path / "session.json").read_text())["session_id"]
