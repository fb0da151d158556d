"""The MCP server: asked by the official client, in this process and over standard input."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from muntin import App, Session, ToolCall
from muntin.errors import InvalidInput
from muntin.mcp import mcp_server
from muntin.testing import ScriptedModel
from muntin.timeline import Item, open_store
from tests.runtime.conftest import run

Call = Callable[..., Awaitable[str]]


def look(n: int) -> str:
    """Look something up."""
    return f"the number {n} and its neighbours " * 20


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store in which Ada and Bob have talked, each about a secret of their own."""
    address = f"sqlite:///{tmp_path / 'talk.db'}"

    async def talk() -> None:
        async with App(address, budget=8_000) as app:
            for name, secret in (("ada", "violet"), ("bob", "orange")):
                model = ScriptedModel([ToolCall("c1", "look", '{"n":3}'), "Noted."])
                chat = app.conversation(name, model=model, tools=[look])
                await chat.send(f"My password is {secret}. Remember it.")

    run(talk())
    return address


def asked(url: str, session: str, ask: Callable[[Call], Awaitable[None]], **options: Any) -> None:
    """Let `ask` call the tools of a server in this process."""

    async def go() -> None:
        with open_store(url) as store:
            async with Client(mcp_server(store, session, **options)) as client:

                async def call(name: str, **arguments: Any) -> str:
                    result = await client.call_tool(name, arguments)
                    return "".join(each.text for each in result.content if each.type == "text")

                await ask(call)

    run(go())


def test_the_tools_read_what_was_said(url: str) -> None:
    async def ask(call: Call) -> None:
        assert "password is violet" in await call("search_history", query="password")
        assert "password is violet" in await call("load_range", start=1, end=1)
        assert await call("load_result", call_id="c1") == look(3)
        piece = await call("load_result", call_id="c1", start=4, end=10)
        assert piece.startswith("number\n[characters 4 to 10 of")
        window = await call("what_is_in_my_window")
        assert window.startswith("Turn 1, step 2: ")
        assert "of 8,000 tokens." in window
        assert [line.split()[0] for line in window.splitlines()[4:]] == ["timeline", "input", "run"]

    asked(url, "ada", ask)


def test_each_message_has_one_position_in_every_tool(url: str) -> None:
    """A call, its result and an answer belong to one run, and have positions of their own."""

    async def ask(call: Call) -> None:
        lines = (await call("search_history", query="Noted number password")).splitlines()
        positions = {int(line.split()[0]): line for line in lines if line.split()[0].isdigit()}
        assert sorted(positions) == [1, 3, 4, 5]
        for position, line in positions.items():
            (read,) = (await call("load_range", start=position, end=position)).splitlines()
            message = json.loads(read)
            assert message["at"] == position
            assert (message["content"] or "look")[:20] in line
        whole = (await call("load_range", start=1, end=9)).splitlines()
        assert [json.loads(read)["at"] for read in whole] == [1, 3, 4, 5]
        # A marker names the position of a run.
        run = (await call("load_range", start=2, end=2)).splitlines()
        assert [json.loads(read)["at"] for read in run] == [3, 4, 5]

    asked(url, "ada", ask)


def test_what_is_not_there_is_said(url: str) -> None:
    async def ask(call: Call) -> None:
        assert await call("search_history", query="zeppelin") == "(nothing was found)"
        assert (await call("search_history", query="")).startswith(("Error", "(nothing"))
        assert "begin at 1" in await call("load_range", start=0, end=4)
        # Nothing is behind the end: an agent that follows the markers comes to an end.
        assert await call("load_range", start=500, end=900) == "(nothing is there)"
        assert "[more:" not in await call("load_range", start=1, end=900)
        assert "no result of a call 'nope'" in await call("load_result", call_id="nope")

    asked(url, "ada", ask)


def test_no_other_session_can_be_read(url: str) -> None:
    async def ask(call: Call) -> None:
        told = [
            await call("search_history", query="orange password bob"),
            await call("load_range", start=1, end=200),
            await call("what_is_in_my_window"),
        ]
        assert "orange" not in "".join(told)

    asked(url, "ada", ask)


def test_a_projection_hides_what_it_hides(url: str) -> None:
    def redacted(item: Item) -> list[Any] | None:
        if item.message is None or "violet" not in item.message.text:
            return None
        return [{"role": item.message.role, "content": "(hidden)"}]

    async def ask(call: Call) -> None:
        told = [
            await call("search_history", query="password violet"),
            await call("load_range", start=1, end=200),
        ]
        assert "violet" not in "".join(told)

    asked(url, "ada", ask, projection=redacted)


def test_a_session_without_a_window_says_so(url: str) -> None:
    with open_store(url) as store:
        Session("carl", store=store).append({"role": "user", "content": "Hello."})

    async def ask(call: Call) -> None:
        assert await call("what_is_in_my_window") == "(no window of this conversation is kept)"

    asked(url, "carl", ask)


def test_a_session_that_is_not_there_is_refused(url: str) -> None:
    with open_store(url) as store, pytest.raises(InvalidInput, match="no session 'dora'"):
        mcp_server(store, "dora")
