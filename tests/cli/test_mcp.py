"""`muntin mcp`, started as an MCP client starts it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from muntin import Session, user
from muntin.core.counting.exact import openai_tokenizer
from muntin.timeline import open_store
from tests.cli.command import MUNTIN, fails
from tests.runtime.conftest import run

TOOLS = ["search_history", "load_range", "load_result", "what_is_in_my_window"]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store in which Ada has said something."""
    address = f"sqlite:///{tmp_path / 'talk.db'}"
    with open_store(address) as store:
        Session("ada", store=store).append(user("My password is violet."))
    return address


def test_a_server_is_started_by_its_command_and_writes_nothing(url: str) -> None:
    with open_store(url) as store:
        before = store.read("ada")
    asked = ["mcp", "--session", "ada", "--store", url]
    server = StdioServerParameters(command=str(MUNTIN), args=asked)

    async def ask() -> None:
        async with Client(stdio_client(server)) as client:
            listed = (await client.list_tools()).tools
            assert [tool.name for tool in listed] == TOOLS
            assert all(tool.annotations and tool.annotations.read_only_hint for tool in listed)
            schemas = [tool.model_dump(by_alias=True, exclude_none=True) for tool in listed]
            assert openai_tokenizer("o200k_base").count(json.dumps(schemas)) <= 500
            found = await client.call_tool("search_history", {"query": "password"})
            assert "violet" in str(found.content)

    run(ask())
    with open_store(url) as store:
        assert store.read("ada") == before


def test_what_cannot_be_served_is_refused(url: str, tmp_path: Path) -> None:
    assert "no session 'dora'" in fails("mcp", "--session", "dora", "--store", url)
    missing = f"sqlite:///{tmp_path / 'nowhere.db'}"
    assert "nowhere.db" in fails("mcp", "--session", "ada", "--store", missing)
    assert "empty in a new process" in fails("mcp", "--session", "ada", "--store", "memory://")
    assert not (tmp_path / "nowhere.db").exists()
