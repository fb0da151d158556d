"""An MCP server as a toolbox: the SDK's own server over standard input and output, killed twice in
a conversation of forty steps."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import AsyncExitStack, suppress
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from muntin import App, InvalidInput, Toolbox, ToolCall
from muntin.agent.mcp_tools import result_text
from muntin.errors import InvalidType
from muntin.testing import ScriptedModel
from tests.paths import ROOT
from tests.runtime.test_found_tools_wires import encoded, history

STEPS = 40
CLAUDE = "anthropic/claude-sonnet-5"


class Server:
    """A server that is started again when it is gone."""

    def __init__(self) -> None:
        self.starts = 0
        self._session: ClientSession | None = None
        self._stack = AsyncExitStack()

    async def session(self) -> ClientSession:
        if self._session is None:
            self.starts += 1
            command = [sys.executable, "-m", "tests.agent.mcp_sixty"]
            started = StdioServerParameters(command=command[0], args=command[1:], cwd=str(ROOT))
            streams = await self._stack.enter_async_context(stdio_client(started))
            session = await self._stack.enter_async_context(ClientSession(*streams))
            await session.initialize()
            self._session = session
        return self._session

    def kill(self, process: int) -> None:
        os.kill(process, signal.SIGKILL)
        self._session = None

    async def close(self) -> None:
        with suppress(Exception):  # two of its servers were killed
            await self._stack.aclose()


def reply(step: int) -> Any:
    if step in (0, 20):
        query = "save a document as pdf" if step == 0 else "create_chart"
        return ToolCall(f"c{step}", "find_tools", json.dumps({"query": query}))
    name = "convert_to_pdf" if step < 20 else "create_chart"
    return ToolCall(f"c{step}", name, json.dumps({"path": f"page {step}"}))


def test_a_server_with_sixty_tools_is_killed_twice_in_forty_steps():
    server = Server()
    steps = iter(range(STEPS + 1))
    killed: list[int] = []

    def answer(window: Any) -> Any:
        step = next(steps)
        if step in (10, 30):  # between two steps: the next call finds it gone
            newest = window.messages[-1].text
            killed.append(int(newest.rpartition(" ")[2]))
            server.kill(killed[-1])
        return "done" if step == STEPS else reply(step)

    async def go() -> None:
        box = Toolbox.from_mcp(server.session, name="office", about="Documents and mail")
        model = ScriptedModel(answer, name=CLAUDE, budget=5_000)
        async with App("memory:", model=model, recall=False) as app:
            await app.conversation("ada", tools=[box], max_steps=50).send("Work")
        requests = [encoded(window, CLAUDE) for window in model.windows]
        assert len(requests) == STEPS + 1
        assert len(requests[0]["tools"]) == 62
        pairs = list(pairwise(requests))
        moved = [b for a, b in pairs if history(b)[: len(history(a))] != history(a)]
        assert len(moved) <= 3
        assert all(request["tools"] == requests[0]["tools"] for request in requests)
        results = [m.text for m in model.windows[-1].messages if m.role == "tool"]
        assert results[-1].startswith("create_chart of page 39 x 1 in ")
        await server.close()

    asyncio.run(go())
    assert server.starts == 3
    assert len(set(killed)) == 2


class Fake:
    """A session whose server may be away."""

    server_info = SimpleNamespace(name="notes")
    instructions = "Notes of a team. They are short."

    def __init__(self) -> None:
        self.is_away = False
        self.names = ["add_note"]

    async def list_tools(self, params: Any = None) -> Any:
        if self.is_away:
            raise ConnectionError("gone")
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        tools = [
            SimpleNamespace(name=n, description=None, title="A note", input_schema=schema)
            for n in self.names
        ]
        return SimpleNamespace(tools=tools, next_cursor=None)

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        if self.is_away:
            raise ConnectionError("gone")
        part = SimpleNamespace(type="text", text=f"{name} {arguments}")
        return SimpleNamespace(content=[part], is_error=False)


def test_a_session_says_name_and_text_and_is_asked_each_turn():
    fake = Fake()
    box = Toolbox.from_mcp(fake, prefix="n_")
    assert (box.name, box.about) == ("notes", "Notes of a team.")

    async def go() -> list[list[str]]:
        names = [sorted((await box.ask()).functions)]
        fake.names.append("drop_note")
        names.append(sorted((await box.ask()).functions))
        fake.is_away = True
        names.append(sorted((await box.ask()).functions))
        return names

    assert asyncio.run(go()) == [["n_add_note"], *[["n_add_note", "n_drop_note"]] * 2]


def test_a_call_of_a_server_that_is_away_is_an_error_for_the_model():
    fake = Fake()
    script = [ToolCall("1", "add_note", '{"text":"a"}'), ToolCall("2", "add_note", '{"text":3}')]
    script.append(ToolCall("3", "add_note", '{"text":"b"}'))
    steps = iter([*script, "done"])

    def answer(window: Any) -> Any:
        step = next(steps)
        fake.is_away = step is script[-1]
        return step

    async def go() -> list[str]:
        model = ScriptedModel(answer, name="mine")
        async with App("memory:", model=model) as app:
            await app.conversation("ada", tools=[Toolbox.from_mcp(fake)]).send("Note it")
        return [m.text for m in model.windows[-1].messages if m.role == "tool"]

    first, second, third = asyncio.run(go())
    assert first == "add_note {'text': 'a'}"
    assert second.startswith("Error: invalid arguments for tool 'add_note': text: must be string")
    assert third == "Error: tool 'add_note' failed: ConnectionError: gone"


def test_results_are_read_as_text():
    def made(*parts: dict[str, Any], **fields: Any) -> Any:
        return SimpleNamespace(content=[SimpleNamespace(**part) for part in parts], **fields)

    image = {"type": "image", "data": "…"}
    assert result_text(made({"type": "text", "text": "a"}, image)) == (
        "a\n[image, which cannot be read as text]"
    )
    assert result_text(made(structured_content={"a": 1})) == '{"a":1}'
    assert result_text(made()) == "(done)"
    assert result_text(made({"type": "text", "text": "no"}, is_error=True)) == "Error: no"
    resource = SimpleNamespace(text="of a file")
    assert result_text(made({"type": "resource", "resource": resource})) == "of a file"


def test_wrong_sessions_are_refused():
    with pytest.raises(InvalidType, match="takes a session of the MCP SDK"):
        Toolbox.from_mcp("office")
    with pytest.raises(InvalidInput, match="give name="):
        Toolbox.from_mcp(lambda: None)
