"""A marker names a tool only if the tool can read what is missing."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from muntin import Message, Source, Window, user
from muntin.agent.tools import tool_name
from muntin.runtime.ctx import Ctx
from muntin.testing import ScriptedModel
from tests.products import NAMES, PRICED
from tests.runtime.conftest import memory, run, texts, wakes

every_name = pytest.mark.parametrize("name", NAMES)
DATED = [Message("user", f"note {n} " + "x" * 40, at=1.7e9 + n) for n in range(40)]
LOW = [Message("user", f"note {n} " + "x" * 40, at=n / 100) for n in range(40)]


def woken(name: str, content: Any) -> tuple[Window, list[str]]:
    """Return a window with one source, and what the calls that its markers name give."""
    model = ScriptedModel(["ok"], name=name)
    read: list[str] = []

    async def handler(ctx: Ctx) -> None:
        ctx.use_context(source_budget=2_000, sources={"a": Source(content, max=600)})
        ctx.use_agent(model=model)
        await ctx.agent.run()
        tools: dict[str, Any] = {tool_name(tool): tool for tool in ctx.tools}
        for text in texts(model.windows[0]):
            for name, arguments in re.findall(r"(load_\w+)\(([^)]*)\)", text):
                read.append(await tools[name](*json.loads(f"[{arguments}]")))

    run(wakes(memory(), handler, "wake"))
    return model.windows[0], read


@every_name
@pytest.mark.parametrize("given", [DATED, LOW])
def test_dated_messages_of_a_source_are_read_from_the_source_not_from_the_timeline(given, name):
    window, read = woken(name, given)
    missing = [m.text for m in given if m.text not in texts(window)]
    assert missing
    assert len(read) == 1
    assert all(text in read[0] for text in missing)


@every_name
@pytest.mark.parametrize("size", [4_000_000, 5_000_001])
def test_the_marker_of_a_large_text_names_a_tool_if_the_text_is_kept(size, name):
    window, read = woken(name, "x" * size)
    assert "are not shown" in texts(window)[0]
    assert len(read) == (size < 5_000_000)
    assert not any("Error" in answer for answer in read)


@every_name
@pytest.mark.parametrize("at", [None, 1.7e9])
def test_the_marker_of_a_long_list_counts_all_that_is_missing_and_names_no_tool(at, name):
    given = [Message("user", "hello there", at=at)] * 20_000
    window, read = woken(name, given)
    shown = sum(text == "hello there" for text in texts(window))
    assert f"[a: {20_000 - shown} earlier messages are not shown]" in texts(window)
    assert read == []


def test_a_part_of_the_timeline_is_read_from_the_timeline():
    app = memory()
    app.session("e/1").append(*(user(f"said {n} " + "x" * 40) for n in range(40)))
    model = ScriptedModel(["ok"], name=PRICED)

    async def handler(ctx: Ctx) -> None:
        source = Source(lambda: [m for m in ctx.timeline_messages() if m.role == "user"], max=600)
        ctx.use_context(source_budget=2_000, sources={"a": source})
        ctx.use_agent(model=model)
        await ctx.agent.run()

    run(wakes(app, handler, "wake"))
    assert "load_timeline_range(1, " in "".join(texts(model.windows[0]))
