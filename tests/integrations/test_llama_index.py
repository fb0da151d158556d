"""LlamaIndex: the memory and the agent, with the frontier in the chat store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow
from llama_index.core.base.llms.types import (
    ChatMessage,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.storage.chat_store import SimpleChatStore
from llama_index.core.workflow import Context

from bench.frameworks.llama_index import agent, model
from bench.frameworks.stage import Stage, played
from muntin.errors import BudgetExceeded, InvalidInput
from muntin.fitting import Fitted
from muntin.integrations.llama_index import MuntinMemory
from muntin.timeline.store import open_store
from tests.integrations.contract import BUDGET, check, check_fits, check_same_bytes

LONG = "A sentence that says nothing. " * 40
MODEL = "openai/gpt-4.1"


def said(text: str, role: str = "user") -> ChatMessage:
    return ChatMessage(text, role=role)


def remembered(budget: int, messages: list[Any], **given: Any) -> tuple[list[Any], list[Fitted]]:
    """Return what a memory of these messages returns, and what it told."""
    told: list[Fitted] = []
    memory = MuntinMemory.from_defaults(
        messages, token_limit=budget, model=MODEL, on_fit=told.append, **given
    )
    return memory.get(), told


def test_every_request_is_valid_and_fits(whole):
    check_fits(whole)


def test_the_same_bytes_are_sent_after_a_restart(whole, tmp_path):
    check_same_bytes("llama_index", tmp_path, whole)


def test_a_workflow_goes_on_with_a_context_that_was_written_and_read():
    stage = Stage(played(20), BUDGET, check=check)

    async def run(url: str) -> MuntinMemory:
        spoken = agent(stage.script, url, ours=True)
        spoken.streaming = True
        flow = AgentWorkflow(agents=[spoken], timeout=None)
        memory = MuntinMemory.from_defaults(token_limit=BUDGET, llm=model(url))
        context = Context(flow)
        for turn in stage.script.turns:
            await flow.run(stage.begin(turn), memory=memory, ctx=context, max_iterations=1_000)
            context = Context.from_dict(flow, context.to_dict())
            memory = await context.store.get("memory")
        return memory

    with stage.open() as url:
        memory = asyncio.run(run(url))
    row = stage.score.row("streamed")
    assert (row.requests, row.invalid, row.over, row.question_lost) == (20, 0, 0, 0)
    assert all(each["stream"] for each in stage.requests)
    asked = [each.content for each in memory.get_all() if each.role == "user"]
    assert asked == [turn.text for turn in stage.script.turns]


def test_a_chat_engine_sends_what_fits_with_its_own_system_prompt():
    told: list[Fitted] = []
    stage = Stage(played(3))
    with stage.open() as url:
        memory = MuntinMemory.from_defaults(
            [said(f"{n} {LONG}") for n in range(20)],
            llm=model(url),
            token_limit=1_000,
            on_fit=told.append,
        )
        engine = SimpleChatEngine.from_defaults(
            llm=model(url), memory=memory, system_prompt="Be brief."
        )
        engine.chat("Hello?")
    (request,) = stage.requests
    assert request["messages"][0] == {"role": "system", "content": "Be brief."}
    assert request["messages"][-1]["content"] == "Hello?"
    assert len(request["messages"]) < 10
    assert told[0].window.tokens <= 1_000


def test_messages_come_back_as_the_objects_they_were():
    call = ToolCallBlock(tool_call_id="c1", tool_name="look", tool_kwargs={"at": "Oslo"})
    image = ImageBlock(image=b"\x89PNG", image_mimetype="image/png")
    answered = {"tool_call_id": "c1", "kept": True}
    messages = [
        ChatMessage(role="user", blocks=[TextBlock(text="Where?"), image]),
        ChatMessage(role="assistant", blocks=[ThinkingBlock(content="Hm."), call]),
        ChatMessage("Here.", role="tool", additional_kwargs=answered),
    ]
    sent, told = remembered(4_000, messages)
    assert all(one is other for one, other in zip(sent, messages, strict=True))
    assert told[0].unread == ()


def test_a_shortened_result_keeps_all_but_its_text():
    call = ToolCallBlock(tool_call_id="c1", tool_name="look", tool_kwargs="{}")
    answered = {"tool_call_id": "c1", "kept": True}
    result = ChatMessage(LONG * 10, role="tool", additional_kwargs=answered)
    asked = [said("Where?"), ChatMessage(role="assistant", blocks=[call])]
    sent, _ = remembered(600, [*asked, result])
    assert len(sent[-1].content) < len(LONG * 10)
    assert sent[-1].additional_kwargs == answered
    assert result.content == LONG * 10


def test_calls_that_only_openai_s_objects_tell_are_read():
    function = {"name": "look", "arguments": "{}"}
    calls = [{"id": "c1", "type": "function", "function": function}]
    asked = ChatMessage(role="assistant", blocks=[], additional_kwargs={"tool_calls": calls})
    result = ChatMessage("Here.", role="tool", additional_kwargs={"tool_call_id": "c1"})
    messages = [said("Where?"), asked, result]
    sent, told = remembered(1_000, messages)
    assert sent == messages
    assert told[0].unread == ()


def test_calls_beside_the_blocks_are_shortened_as_they_were_counted():
    messages = []
    for number in range(12):
        function = {"name": "write", "arguments": f'{{"text": "{LONG}"}}'}
        calls = [{"id": f"c{number}", "type": "function", "function": function}]
        answers = {"tool_call_id": f"c{number}"}
        messages += [
            said(f"Question {number}"),
            ChatMessage(None, role="assistant", additional_kwargs={"tool_calls": calls}),
            ChatMessage("done", role="tool", additional_kwargs=answers),
        ]
    sent, told = remembered(2_000, [*messages, said("And?")])
    _, again = remembered(1_000_000, sent)
    assert again[0].window.tokens == told[0].window.tokens <= 2_000
    assert "left out" in str(sent[1].additional_kwargs)


def test_blocks_of_other_kinds_are_carried_and_counted():
    odd = ChatMessage(role="user", blocks=[ThinkingBlock(content="x" * 400)])
    sent, told = remembered(1_000, [said("Hi"), odd, said("So?")])
    assert odd in sent
    assert told[0].window.tokens > 60


@pytest.mark.parametrize("given", [{"system_prompt": LONG}, {"margin": 1_000}])
def test_a_budget_smaller_than_what_stands_beside_is_an_error_that_says_so(given):
    with pytest.raises(BudgetExceeded):
        remembered(50, [said("Hi")], **given)


def test_the_agent_raises_our_error_and_sends_nothing():
    stage = Stage(played(3))

    async def run(url: str) -> None:
        memory = MuntinMemory.from_defaults(token_limit=50, llm=model(url))
        await agent(stage.script, url, ours=True).run("Hi", memory=memory)

    with stage.open() as url, pytest.raises(BudgetExceeded):
        asyncio.run(run(url))
    assert stage.requests == []


def test_the_agent_says_that_it_needs_the_memory():
    stage = Stage(played(3))

    async def run(url: str) -> None:
        memory = ChatMemoryBuffer.from_defaults(token_limit=500)
        await agent(stage.script, url, ours=True).run("Hi", memory=memory)

    with stage.open() as url, pytest.raises(InvalidInput, match="needs a MuntinMemory"):
        asyncio.run(run(url))


def test_a_frontier_of_another_conversation_is_left_aside_and_the_report_says_so():
    store = SimpleChatStore()
    _, one = remembered(500, [said(f"{n} {LONG}") for n in range(9)], chat_store=store)
    assert one[0].fresh is None
    _, other = remembered(500, [said("Another")], chat_store=store)
    assert other[0].fresh


def test_two_requests_of_one_conversation_at_once_are_both_whole():
    messages = [said(f"{n} {LONG}") for n in range(10)]
    memory = MuntinMemory.from_defaults(messages, token_limit=500, model=MODEL)

    async def run() -> Any:
        return await asyncio.gather(memory.aget(), memory.aget())

    one, other = asyncio.run(run())
    assert one == other
    assert one[-1] is messages[-1]


def test_a_memory_is_written_and_read_back():
    memory = MuntinMemory.from_defaults([said("Hi")], token_limit=500, system_prompt="Be brief.")
    memory.get()
    again = MuntinMemory.from_dict(memory.to_dict())
    assert again.get_all() == memory.get_all()
    assert again.get() == memory.get()
    assert (again.token_limit, again.system_prompt) == (500, "Be brief.")


def test_a_conversation_is_recorded_under_the_key_of_its_chat_store():
    store = open_store("memory:")
    for key in ("ada/1", "bob/1"):
        remembered(1_000, [said(f"I am {key}")], chat_store_key=key, store=store)
    assert sorted(info.id for info in store.sessions()) == ["ada/1", "bob/1"]
