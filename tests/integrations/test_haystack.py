"""Haystack: the hooks, with the frontier in the meta of the last message."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from haystack import Pipeline
from haystack.components.agents import Agent
from haystack.components.agents.state import State
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import (
    ChatMessage,
    ImageContent,
    ReasoningContent,
    TextContent,
    ToolCall,
)
from haystack.utils import Secret

from bench.frameworks.haystack import MODEL, agent, say
from bench.frameworks.stage import Stage, played
from muntin.errors import BudgetExceeded, InvalidInput
from muntin.fitting import Fitted, Fitter
from muntin.integrations.haystack import MuntinHook, MuntinRestore
from muntin.integrations.shared import FRONTIER
from muntin.timeline.store import open_store
from tests.integrations.contract import BUDGET, check, check_fits, check_same_bytes

LONG = "A sentence that says nothing. " * 40


def begun(messages: list[Any], context: dict[str, Any] | None = None) -> State:
    """Return the state of a run that begins."""
    keys = {"messages": list[ChatMessage], "tools": list, "hook_context": dict[str, Any]}
    state = State(schema={key: {"type": kind} for key, kind in keys.items()})
    state.set("messages", messages)
    state.set("tools", [])
    state.set("hook_context", {} if context is None else context)
    return state


def hooked(budget: int, messages: list[Any]) -> tuple[list[Any], Fitted]:
    """Return what the hook makes of a request, and what it told."""
    told: list[Fitted] = []
    state = begun(messages)
    MuntinHook(budget, model=MODEL, on_fit=told.append).run(state)
    return state.data["messages"], told[0]


def test_every_request_is_valid_and_fits(whole):
    check_fits(whole)


def test_the_same_bytes_are_sent_after_a_restart(whole, tmp_path):
    check_same_bytes("haystack", tmp_path, whole)


def test_async_and_streamed_requests_are_valid_and_the_run_returns_all_messages():
    stage = Stage(played(20), BUDGET, check=check)

    async def seen(_: Any) -> None:
        pass

    async def run(url: str) -> list[Any]:
        made = agent(stage.script, url, MuntinHook(BUDGET, model=MODEL).hooks)
        past: list[Any] = []
        for turn in stage.script.turns:
            said = [*past, ChatMessage.from_user(stage.begin(turn))]
            done = await made.run_async(messages=said, streaming_callback=seen)
            past = [each for each in done["messages"] if not each.is_from("system")]
        return past

    with stage.open() as url:
        past = asyncio.run(run(url))
    row = stage.score.row("streamed")
    assert (row.requests, row.invalid, row.over, row.question_lost) == (20, 0, 0, 0)
    assert all(each["stream"] for each in stage.requests)
    asked = [each.text for each in past if each.is_from("user")]
    assert asked == [turn.text for turn in stage.script.turns]
    answers = sum(len(turn.steps) + 1 for turn in stage.script.turns)
    assert sum(each.is_from("assistant") for each in past) == answers
    assert past[-1].meta[FRONTIER]


def test_messages_come_back_as_the_objects_they_were():
    call = ToolCall("look", {"at": "Oslo"}, id="c1")
    image = ImageContent("iVBORw0KGgo=", mime_type="image/png", validation=False)
    messages = [
        ChatMessage.from_user(content_parts=[TextContent("Where?"), image]),
        ChatMessage.from_assistant(tool_calls=[call], reasoning=ReasoningContent("Hm.")),
        ChatMessage.from_tool("Here.", origin=call, meta={"kept": True}),
    ]
    sent, told = hooked(4_000, messages)
    assert all(one is other for one, other in zip(sent, messages, strict=True))
    assert told.unread == ()


@pytest.mark.parametrize("ids", [True, False])
def test_a_shortened_result_keeps_all_but_its_text(ids):
    call = ToolCall("look", {}, id="c1" if ids else None)
    result = ChatMessage.from_tool(LONG * 10, origin=call, error=True, meta={"kept": True})
    asked = [ChatMessage.from_user("Where?"), ChatMessage.from_assistant(tool_calls=[call])]
    sent, _ = hooked(600, [*asked, result])
    made = sent[-1].tool_call_result
    assert len(made.result) < len(LONG * 10)
    assert (made.origin, made.error, sent[-1].meta) == (call, True, {"kept": True})
    assert result.tool_call_result.result == LONG * 10


def test_what_is_added_behind_the_hook_is_taken_and_all_is_put_back():
    hook, said = (
        MuntinHook(500, model=MODEL),
        [ChatMessage.from_user(f"{n} {LONG}") for n in range(9)],
    )
    context = {"mine": 1}
    state = begun(said, context)
    for number in range(3):
        hook.run(state)
        assert len(state.data["messages"]) < len(said) + number
        state.set("messages", [ChatMessage.from_assistant(f"Answer {number}")])
    MuntinRestore().run(state)
    back = state.data["messages"]
    assert all(one is other for one, other in zip(back, said, strict=False))
    assert [each.text for each in back[9:]] == ["Answer 0", "Answer 1", "Answer 2"]
    assert context == {"mine": 1}


def test_what_cannot_be_read_is_carried_and_counted():
    odd = ChatMessage.from_assistant(reasoning=ReasoningContent("", extra={"data": "x" * 400}))
    messages = [ChatMessage.from_user("Hi"), odd, ChatMessage.from_user("So?")]
    sent, told = hooked(1_000, messages)
    assert sent[1] is odd
    assert told.window.tokens > 60


def test_a_budget_smaller_than_the_system_prompt_is_an_error_that_says_so():
    messages = [ChatMessage.from_system(LONG), ChatMessage.from_user("Hi")]
    with pytest.raises(BudgetExceeded):
        hooked(50, messages)
    assert len(messages) == 2


def test_the_agent_raises_our_error_and_sends_nothing():
    stage = Stage(played(3))
    with stage.open() as url, pytest.raises(BudgetExceeded):
        say(agent(stage.script, url, MuntinHook(50, model=MODEL).hooks), [], "Hi")
    assert stage.requests == []


def test_a_frontier_of_another_conversation_is_left_aside_and_the_report_says_so():
    _, one = hooked(500, [ChatMessage.from_user(f"{n} {LONG}") for n in range(9)])
    marked = ChatMessage.from_user("Another", meta={FRONTIER: one.frontier})
    _, other = hooked(500, [marked])
    assert other.fresh


def test_two_runs_of_one_conversation_at_once_are_both_whole():
    hook, said = (
        MuntinHook(500, model=MODEL),
        [ChatMessage.from_user(f"{n} {LONG}") for n in range(9)],
    )
    context: dict[str, Any] = {}  # one for both, as an app may have it

    async def run() -> list[Any]:
        states = [begun(list(said), context) for _ in range(2)]
        await asyncio.gather(*(hook.run_async(state) for state in states))
        sent = [state.data["messages"] for state in states]
        for state in states:
            MuntinRestore().run(state)
        return [*sent, *(state.data["messages"] for state in states)]

    one, other, *back = asyncio.run(run())
    assert one == other
    assert one[-1] is said[-1]
    assert back == [said, said]


def test_an_agent_with_the_hooks_is_written_into_a_pipeline_and_read_back():
    generator = OpenAIChatGenerator(
        model="gpt-5", api_key=Secret.from_env_var("NONE", strict=False)
    )
    pipeline = Pipeline()
    made = Agent(chat_generator=generator, hooks=MuntinHook(8_000, model=MODEL).hooks)
    pipeline.add_component("agent", made)
    allowed = ["muntin.integrations.haystack"]
    read = Pipeline.loads(pipeline.dumps(), allowed_modules=allowed).get_component("agent")
    assert read.hooks["before_llm"][0].to_dict() == made.hooks["before_llm"][0].to_dict()
    assert isinstance(read.hooks["after_run"][0], MuntinRestore)
    with pytest.raises(InvalidInput, match="as a number"):
        MuntinHook(Fitter(8_000)).to_dict()


def test_a_conversation_is_recorded_under_the_caller_s_name():
    store = open_store("memory:")
    for user, context in (("Ada", {"session_id": "ada/1"}), ("Bob", {"thread_id": 7})):
        state = begun([ChatMessage.from_user(f"I am {user}")], context)
        MuntinHook(Fitter(1_000, store=store), model=MODEL).run(state)
        assert state.data["hook_context"].items() >= context.items()
    assert sorted(info.id for info in store.sessions()) == ["7", "ada/1"]
