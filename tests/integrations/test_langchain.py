"""LangChain: the middleware, with the frontier in a private channel of the state."""

from __future__ import annotations

import asyncio
from threading import Barrier, Thread
from types import SimpleNamespace
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware.types import ModelRequest
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import (
    AIMessage,
    ChatMessage,
    HumanMessage,
    InvalidToolCall,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.memory import InMemorySaver

from bench.frameworks.langchain import CONFIG, agent, tools
from bench.frameworks.stage import Stage, played
from muntin.errors import BudgetExceeded
from muntin.fitting import Fitted, Fitter
from muntin.integrations.langchain import MuntinMiddleware
from muntin.integrations.messages import pieces_of, written
from muntin.timeline.store import open_store
from tests.integrations.contract import BUDGET, check, check_fits, check_same_bytes, session_of

LONG = "A sentence that says nothing. " * 40


class Answers(GenericFakeChatModel):  # type: ignore[misc, unused-ignore]
    """A model with its answers written down, for an agent with tools."""

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self


def request(messages: list[Any], **given: Any) -> ModelRequest:
    return ModelRequest(model=SimpleNamespace(), messages=messages, **given)


def test_every_request_is_valid_and_fits(whole):
    check_fits(whole)


def test_the_same_bytes_are_sent_after_a_restart(whole, tmp_path):
    check_same_bytes("langchain", tmp_path, whole)


def test_anthropic_is_streamed_to_and_every_request_is_valid():
    script = played(30)
    stage = Stage(script, BUDGET, rules="anthropic", check=check)
    with stage.open() as url:
        made = create_agent(
            ChatAnthropic(model="claude-sonnet-4-5", base_url=url, api_key="none"),
            tools=tools(script),
            system_prompt=script.system,
            middleware=[MuntinMiddleware(BUDGET)],
            checkpointer=InMemorySaver(),
        )

        async def run() -> None:
            for turn in script.turns:
                said = {"messages": [{"role": "user", "content": stage.begin(turn)}]}
                async for _ in made.astream(said, CONFIG, stream_mode="messages"):
                    pass

        asyncio.run(run())
    row = stage.score.row("anthropic")
    assert (row.requests, row.invalid, row.over, row.question_lost) == (30, 0, 0, 0)
    assert all(each["stream"] for each in stage.requests)


def test_the_frontier_is_no_part_of_what_callers_see():
    stage = Stage(played(3))
    with stage.open() as url:
        made = agent(stage.script, url, [MuntinMiddleware(BUDGET)], InMemorySaver())
        state = made.invoke({"messages": [("user", stage.script.turns[0].text)]}, CONFIG)
    assert set(state) == {"messages"}
    assert "muntin_frontier" in made.get_state(CONFIG).values


def test_messages_come_back_as_the_objects_they_were():
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s1g"}
    used = {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "Oslo"}}
    call = {"id": "c1", "name": "look", "args": {"at": "Oslo"}, "type": "tool_call"}
    messages = [
        HumanMessage("Where?"),
        AIMessage([thought, used], tool_calls=[call]),
        ToolMessage("Here.", tool_call_id="c1", artifact={"kept": True}),
    ]
    fitted, sent = MuntinMiddleware(1_000).fitted(request(messages))
    assert all(one is other for one, other in zip(sent.messages, messages, strict=True))
    assert fitted.unread == ()


def test_a_shortened_result_keeps_all_but_its_text():
    call = {"id": "c1", "name": "look", "args": {}, "type": "tool_call"}
    result = ToolMessage(LONG * 10, tool_call_id="c1", artifact=[1], name="look", id="m3")
    messages = [HumanMessage("Where?"), AIMessage("", tool_calls=[call]), result]
    _, sent = MuntinMiddleware(600).fitted(request(messages))
    made = sent.messages[-1]
    assert len(made.content) < len(result.content)
    assert (made.artifact, made.id, made.name, made.tool_call_id) == ([1], "m3", "look", "c1")
    assert result.content == LONG * 10


def test_long_arguments_that_are_no_json_are_sent_as_they_were_counted():
    messages: list[Any] = []
    for number in range(12):
        cut_off = InvalidToolCall(
            name="write", args=f'{{"text": "{LONG}', id=f"c{number}", error=None
        )
        messages += [
            HumanMessage(f"Question {number}"),
            AIMessage("", invalid_tool_calls=[cut_off]),
            ToolMessage("These are no arguments.", tool_call_id=f"c{number}"),
        ]
    fitted = Fitter(2_000).fit(pieces_of([*messages, HumanMessage("And?")]))
    sent = written([*messages, HumanMessage("And?")], fitted.placed)
    again = Fitter(1_000_000).fit(pieces_of(sent))
    assert again.window.tokens == fitted.window.tokens <= 2_000
    assert "left_out" in sent[1].invalid_tool_calls[0]["args"]


def test_what_cannot_be_read_is_carried_counted_and_named():
    told: list[Fitted] = []
    odd = ChatMessage("What is this?", role="critic")
    block = HumanMessage([{"type": "hologram", "data": "x" * 400}, {"type": "text", "text": "Hm?"}])
    middleware = MuntinMiddleware(2_000, on_fit=told.append)
    _, sent = middleware.fitted(request([HumanMessage("Hi"), odd, block]))
    assert sent.messages[1] is odd
    assert sent.messages[2] is block
    assert "critic" in told[0].unread[0]
    assert told[0].window.tokens > 100


def test_a_budget_smaller_than_the_system_text_is_an_error_that_says_so():
    system = SystemMessage(LONG)
    with pytest.raises(BudgetExceeded):
        MuntinMiddleware(50).fitted(request([HumanMessage("Hi")], system_message=system))


def test_a_frontier_of_another_conversation_is_left_aside_and_the_report_says_so():
    told: list[Fitted] = []
    middleware = MuntinMiddleware(500, on_fit=told.append)
    for name in ("one", "other"):
        said = [HumanMessage(f"{name} {n} {LONG}") for n in range(10)]
        state = {"messages": said, "muntin_frontier": told[0].frontier if told else None}
        middleware.fitted(request(said, state=state))
    assert told[0].fresh is None
    assert told[1].fresh


def test_two_requests_of_one_conversation_at_once_are_both_whole():
    middleware = MuntinMiddleware(Fitter(500))
    said = [HumanMessage(f"{n} {LONG}") for n in range(10)]
    gate, sent = Barrier(2), []

    def run() -> None:
        gate.wait()
        sent.append(middleware.fitted(request(said))[1].messages)

    threads = [Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sent[0] == sent[1]
    assert sent[0][-1] is said[-1]


def test_a_conversation_is_recorded_under_the_framework_s_own_id(tmp_path):
    assert session_of("langchain", tmp_path) == "1"


def test_an_agent_in_a_tool_is_recorded_beside_its_thread():
    store = open_store("memory:")
    middleware = MuntinMiddleware(Fitter(2_000, store=store))
    inner = create_agent(Answers(messages=iter(["Inside."])), middleware=[middleware])

    def ask_expert(question: str) -> str:
        """Ask an expert."""
        return str(inner.invoke({"messages": [("user", question)]})["messages"][-1].content)

    called = {"name": "ask_expert", "args": {"question": "Why?"}, "id": "c1"}
    outer = create_agent(
        Answers(messages=iter([AIMessage("", tool_calls=[called]), "Outside."])),
        tools=[ask_expert],
        middleware=[middleware],
        checkpointer=InMemorySaver(),
    )

    async def talk(thread: str) -> None:
        config = {"configurable": {"thread_id": thread}}
        await outer.ainvoke({"messages": [("user", f"I am {thread}")]}, config)

    asyncio.run(talk("ada/1"))
    names = sorted(info.id for info in store.sessions())
    assert names[0] == "ada/1"
    assert [name.rpartition(":")[0] for name in names[1:]] == ["ada/1/tools"]
    asked = {name: store.read(name)[0].message for name in names}
    assert [each.text for each in asked.values() if each] == ["I am ada/1", "Why?"]


def test_bound_thoughts_leave_at_a_move_and_those_made_after_it_stay() -> None:
    said: list[Any] = [HumanMessage("Why does the build fail?")]
    fitter, sent = Fitter(4_000, model="anthropic/claude-opus-5-5"), list[list[str]]()
    state: dict[str, Any] = {}
    for number in range(8):
        fitted = fitter.fit(pieces_of(said), previous=state)
        state = fitted.frontier
        answers = [m.content for m in written(said, fitted.placed) if isinstance(m, AIMessage)]
        blocks = [block for content in answers for block in content if isinstance(block, dict)]
        sent.append([b["signature"] for b in blocks if b["type"] == "thinking"])
        thought = {"type": "thinking", "thinking": "Hm.", "signature": f"s{number}"}
        call = {"name": "read", "args": {}, "id": f"t{number}"}
        said.append(AIMessage([thought, {"type": "text", "text": "I read."}], tool_calls=[call]))
        said.append(ToolMessage("line\n" * 400, tool_call_id=f"t{number}"))
    assert sent[:5] == [[f"s{n}" for n in range(count)] for count in range(5)]
    assert sent[5:7] == [[], ["s5"]]


class Knowing(Answers):  # type: ignore[misc, unused-ignore]
    """A model that answers with the number of the locker if its request has it."""

    def _generate(self, messages: list[Any], *given: Any, **options: Any) -> Any:
        known = any("QX7731" in str(message.content) for message in messages)
        self.messages = iter([AIMessage("QX7731." if known else "I do not know. " * 8)])
        return super()._generate(messages, *given, **options)


@pytest.mark.parametrize(("recall", "answer"), [(True, "QX7731."), (False, "I do not know. " * 8)])
def test_with_recall_an_agent_answers_in_turn_55_with_the_fact_of_turn_3(recall, answer):
    fitter = Fitter(2_000, recall=recall)
    made = create_agent(
        Knowing(messages=iter([])), middleware=[MuntinMiddleware(fitter, model="openai/gpt-5.2")]
    )
    said = {3: "My locker is number QX7731, in the east hall.", 55: "What is my locker's number?"}
    messages: list[Any] = []
    for turn in range(55):
        weather = f"What is the weather on day {turn}? " + "Please say more. " * 6
        messages += [HumanMessage(said.get(turn, weather)), AIMessage("It will be fine. " * 10)]
    answered = made.invoke({"messages": [*messages, HumanMessage(said[55])]})
    assert answered["messages"][-1].content == answer
