"""A history that moves: which tools stay loaded, and when the index is written again."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest

from muntin import App, Toolbox, ToolCall
from muntin.core.window import Window
from tests.runtime.test_found_tools_wires import CHAT, CLAUDE, GPT, encoded, history, scripted
from tests.runtime.test_tool_search import find
from tests.toolboxes import boxes, functions, toolboxes


def read(path: str) -> str:
    """Read a page."""
    return f"{path} lorem ipsum dolor" * 60


def work(n: int) -> ToolCall:
    return ToolCall(f"c{n}", "read", json.dumps({"path": f"page {n}"}))


def pdf(n: int) -> ToolCall:
    return ToolCall(f"c{n}", "convert_to_pdf", json.dumps({"path": f"{n}"}))


async def windows_of(name: str, script: list[Any], tools: list[Any]) -> list[Window]:
    model = scripted([*script, "done"], name, 4_000)
    async with App("memory:", model=model, recall=False) as app:
        talk = app.conversation("ada", tools=[read, *tools], max_steps=60)
        await talk.send("Work")
    return model.windows


def statuses(window: Window) -> dict[str, str]:
    return {t.name: t.status for t in window.report.tools if t.status in ("found", "carried")}


@pytest.mark.parametrize("name", [CLAUDE, GPT, CHAT])
def test_a_tool_that_was_called_stays_loaded_at_a_move_and_others_are_listed_again(name):
    script: list[Any] = [work(n) for n in range(40)]
    script[1] = find("f", "convert_to_pdf, forecast, send_message")
    for n in range(3, 36, 4):
        script[n] = pdf(n)
    windows = asyncio.run(windows_of(name, script, toolboxes()))
    requests = [history(encoded(window, name)) for window in windows]
    moved = [n for n, (a, b) in enumerate(pairwise(requests), 1) if b[: len(a)] != a]
    assert 2 <= len(moved) <= 10  # every other request begins as the one before it
    before, after = windows[moved[0] - 1], windows[moved[0]]
    found = {"convert_to_pdf": "found", "forecast": "found", "send_message": "found"}
    assert statuses(before) == found
    assert statuses(after) == {"convert_to_pdf": "carried"}
    (row,) = [row for row in after.report.slots if row.name == "(tools loaded)"]
    assert row.messages_kept == 2
    assert statuses(windows[32]) == {"convert_to_pdf": "carried"}  # called again
    text = json.dumps(requests[32])
    assert "[find_tools: loaded" in json.dumps(requests[moved[0]])
    kinds = {CLAUDE: '"tool_reference"', GPT: '"additional_tools"', CHAT: "Loaded before:"}
    assert text.count(kinds[name]) == 1


def test_a_tool_that_was_called_long_ago_leaves_with_its_calls():
    script: list[Any] = [work(n) for n in range(59)]
    script[1], script[3] = find("f", "convert_to_pdf"), pdf(3)
    last = asyncio.run(windows_of(CLAUDE, script, toolboxes()))[-1]
    assert statuses(last) == {}
    assert "carried" not in json.dumps(encoded(last, CLAUDE))


def test_the_index_stays_until_a_move_while_a_search_finds_the_new_tool_at_once():
    lost = ["search_code"]
    github = Toolbox("github", lambda: functions(boxes()[0], lost))
    rest = [box for box in toolboxes() if box.name != "github"]
    texts = [find("f", "search_code"), "found", *[work(n) for n in range(36)], "done"]
    model = scripted(["hi", *texts], CHAT, 8_000)

    async def go() -> None:
        async with App("memory:", model=model, recall=False) as app:
            for text in ("Hello", "Find it", "Work"):
                talk = app.conversation("ada", tools=[read, github, *rest], max_steps=60)
                await talk.send(text)
                lost.clear()

    asyncio.run(go())
    windows = model.windows
    indexes = [window.messages[0].text for window in windows]
    assert "search_code" not in indexes[0]
    assert statuses(windows[2]) == {"search_code": "found"}
    assert indexes[1] == indexes[0]
    requests = [history(encoded(window, CHAT)) for window in windows]
    move = next(n for n, (a, b) in enumerate(pairwise(requests), 1) if b[: len(a)] != a)
    assert move > 3
    assert all(index == indexes[0] for index in indexes[:move])
    assert all("search_code" in index for index in indexes[move:])


def test_a_toolbox_that_is_added_is_in_the_index_at_once():
    model = scripted(["hi", "ho"], CHAT, 8_000)

    async def go() -> None:
        async with App("memory:", model=model) as app:
            for tools in (toolboxes()[:-1], toolboxes()):
                await app.conversation("ada", tools=tools).send("Hello")

    asyncio.run(go())
    first, second = (window.messages[0].text for window in model.windows)
    assert "browser" not in first
    assert "browser" in second
