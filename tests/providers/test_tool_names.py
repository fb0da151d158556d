"""Tools of names that an API refuses: the agent runs the right one, with every real SDK."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from muntin import Message, Slots, Tool, ToolCall, Window, user
from muntin.agent.loop import stream_agent
from muntin.agent.tools import ToolLike, tool_schema
from muntin.providers.client import Client
from muntin.providers.model import Finished, ToolCalled
from muntin.wire import anthropic, chat, google, responses
from tests.providers.servers import PROTOCOLS, Answer, Protocol, Received, serving

pytest.importorskip("openai")
pytest.importorskip("anthropic")
pytest.importorskip("google.genai")

# As MCP names them, and as they become alike where a dot is refused; one is too long.
LONG = "mcp__" + "very_" * 30 + "long"
NAMES = ("server.tool", "server_tool", "server:tool", "server/tool", LONG, "two words")


def tools(ran: list[str]) -> list[ToolLike]:
    """Return tools that the agent runs, and schemas of names that a function may not have."""

    def made(name: str) -> ToolLike:
        def run() -> str:
            ran.append(name)
            return f"ran {name}"

        if name.startswith("server"):
            return Tool(run, name=name, description=f"about {name}")
        return {"name": name, "description": f"about {name}", "input_schema": {}}

    return [made(name) for name in NAMES]


def declared(body: dict[str, Any]) -> dict[str, str]:
    """Return the names under which tools were sent, by description."""
    found: dict[str, str] = {}
    for tool in body["tools"]:
        for each in tool.get("functionDeclarations", [tool.get("function", tool)]):
            found[each["description"]] = each["name"]
    return found


def called(protocol: str, name: str, streamed: bool) -> Answer:
    """Return an answer that calls a tool, as the vendor writes it."""
    if protocol == "chat":
        function = {"name": name, "arguments": "{}"}
        call = {"id": "c1", "type": "function", "index": 0, "function": function}
        said = {"role": "assistant", "content": None, "tool_calls": [call]}
        key = "delta" if streamed else "message"
        choice = {"index": 0, key: said, "finish_reason": "tool_calls"}
        return sent({"id": "1", "created": 1, "model": "m", "choices": [choice],
                     "object": "chat.completion"}, streamed)  # fmt: skip
    if protocol == "responses":
        item = {"type": "function_call", "id": "fc", "call_id": "c1", "name": name,
                "arguments": "{}", "status": "completed"}  # fmt: skip
        whole = {**PROTOCOLS["responses"].body, "output": [item]}
        done = {"type": "response.output_item.done", "item": item, "output_index": 0,
                "sequence_number": 1}  # fmt: skip
        last = {"type": "response.completed", "response": whole, "sequence_number": 2}
        return sent([done, last] if streamed else whole, streamed)
    if protocol == "messages":
        block = {"type": "tool_use", "id": "c1", "name": name, "input": {}}
        whole = {**PROTOCOLS["messages"].body, "content": [block], "stop_reason": "tool_use"}
        begun = {**whole, "content": [], "stop_reason": None}
        events = [
            {"type": "message_start", "message": begun},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"},
             "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]  # fmt: skip
        return sent(events if streamed else whole, streamed)
    content = {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": name}}]}
    return sent({"candidates": [{"content": content, "finishReason": "STOP"}]}, streamed)


def sent(body: Any, streamed: bool) -> Answer:
    if not streamed:
        return Answer(body=body)
    events = body if isinstance(body, list) else [body]
    named = [f"event: {each['type']}\n" if "type" in each else "" for each in events]
    pieces = [f"data: {json.dumps(each)}\n\n" for each in events]
    return Answer(pieces=tuple(map(str.__add__, named, pieces)))


@pytest.mark.parametrize("wanted", NAMES)
@pytest.mark.parametrize("streamed", [False, True], ids=["complete", "stream"])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_agent_runs_the_tool_that_the_model_called(name, streamed, wanted):
    protocol: Protocol = PROTOCOLS[name]
    ran: list[str] = []
    offered = tools(ran)

    def answer(received: Received) -> Answer:
        names = declared(received.body)
        assert len(set(names.values())) == len(NAMES), "no name stands twice"
        if len(server.received) == 1:
            return called(name, names[f"about {wanted}"], streamed)
        assert json.dumps(names[f"about {wanted}"]) in json.dumps(
            [received.body.get(key) for key in ("messages", "input", "contents")]
        ), "the call goes back under the name that the tool has"
        return Answer(pieces=protocol.pieces) if streamed else Answer(body=protocol.body)

    def compose(messages: Sequence[Message]) -> Window:
        slots = Slots(10_000, tokenizer=len, tools=[tool_schema(tool) for tool in offered])
        slots.add("run", [user("Go."), *messages])
        return slots.render()

    async def run() -> list[Any]:
        base = server.url + protocol.base
        client = Client(protocol.model, api=protocol.api, base_url=base, api_key="k", max_retries=0)
        async with client:
            model: Any = client if streamed else Whole(client)
            return [event async for event in stream_agent(model, compose, tools=offered)]

    with serving(answer) as server:
        events = asyncio.run(run())
    assert isinstance(events[-1], Finished)
    if wanted.startswith("server"):
        assert ran == [wanted]
        assert events[-1].reply.text == "Hello, world"
    else:  # a schema: the call is the caller's
        assert [call.name for call in events[-1].reply.tool_calls] == [wanted]
    assert wanted in [e.call.name for e in events if isinstance(e, ToolCalled)]


class Whole:
    """A client that never streams."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.name = client.name

    async def complete(self, *args: Any, **options: Any) -> Any:
        return await self._client.complete(*args, **options)

    async def stream(self, *args: Any, **options: Any) -> Any:
        reply = await self._client.complete(*args, **options)
        for call in reply.tool_calls:
            yield ToolCalled(call)
        yield Finished(reply)


CHOICES: dict[str, dict[str, Any]] = {
    "chat": {"tool_choice": {"type": "function", "function": {"name": "server.tool"}}},
    "responses": {"tool_choice": {"type": "function", "name": "server.tool"}},
    "messages": {"tool_choice": {"type": "tool", "name": "server.tool"}},
    "generate_content": {
        "tool_config": {
            "function_calling_config": {"mode": "ANY", "allowed_function_names": ["two words"]}
        }
    },
}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_setting_that_names_a_tool_names_it_as_it_is_sent(name):
    protocol: Protocol = PROTOCOLS[name]
    slots = Slots(10_000, tokenizer=len, tools=[tool_schema(tool) for tool in tools([])])
    slots.add("input", "Go.")
    with serving(Answer(body=protocol.body)) as server:
        base = server.url + protocol.base
        client = Client(protocol.model, api=protocol.api, base_url=base, api_key="k", max_retries=0)
        client.complete_sync(slots.render(), settings=CHOICES[name])
    body = server.received[0].body
    sent_choice = json.dumps([body.get("tool_choice"), body.get("toolConfig")])
    wanted = "two words" if name == "generate_content" else "server.tool"
    assert json.dumps(declared(body)[f"about {wanted}"]) in sent_choice
    assert wanted not in sent_choice


# --- without a client


MODULES = {"chat": chat, "responses": responses, "anthropic": anthropic, "google": google}


def window(*given: dict[str, Any]) -> Window:
    slots = Slots(10_000, tokenizer=len, tools=given)
    slots.add("input", "Go.")
    return slots.render()


@pytest.mark.parametrize("provider", MODULES)
def test_names_depend_on_nothing_but_the_tools(provider):
    names = MODULES[provider].names_of(window(*[{"name": n, "input_schema": {}} for n in NAMES]))
    again = MODULES[provider].names_of(
        window(*[{"name": n, "input_schema": {}} for n in reversed(NAMES)])
    )
    assert [names.back(names(name)) for name in NAMES] == list(NAMES)
    assert [names(name) for name in ("server_tool", LONG)] == [
        again(name) for name in ("server_tool", LONG)
    ]


def test_a_tool_of_anthropic_keeps_its_name_and_a_function_of_that_name_gets_another():
    own = {"type": "web_search_20250305", "name": "web_search"}
    made = window({"name": "web_search", "input_schema": {"type": "object"}}, own)
    function, search = made.anthropic()["tools"]
    assert search == own
    assert function["name"] != "web_search"
    block = {"type": "tool_use", "id": "1", "name": function["name"], "input": {}}
    reply = anthropic.decode({"content": [block], "stop_reason": "tool_use"}, made)
    assert reply.tool_calls == (ToolCall("1", "web_search", "{}"),)
    assert anthropic.decode({"content": [block]}).tool_calls[0].name == function["name"]
