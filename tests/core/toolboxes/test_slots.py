"""Toolboxes in `Slots`: the same windows for a loop of one's own, and for `run_agent`."""

from __future__ import annotations

import asyncio
import json
import pickle
from typing import Any

import pytest

from muntin import InvalidInput, Slots, Toolbox, ToolCall, assistant, fit, tool, user
from muntin.agent import run_agent
from muntin.core.message import Message
from muntin.core.window import Window
from muntin.testing import ScriptedModel
from tests.tool_rules import check_anthropic, check_chat
from tests.toolboxes import boxes, schemas, toolboxes

CLAUDE, CHAT = "anthropic/claude-sonnet-5", "ollama/qwen3"


def window_of(messages: list[Any], previous: Window | None = None, **options: Any) -> Window:
    options = {"profile": CHAT, "tools": toolboxes(), **options}
    slots = Slots(8_000, previous=previous, **options)
    slots.add("system", "You help.")
    slots.add("history", messages)
    return slots.render()


def find(query: str, id: str = "1") -> ToolCall:
    return ToolCall(id, "find_tools", json.dumps({"query": query}))


@pytest.mark.parametrize("profile", [CLAUDE, CHAT])
def test_a_loop_of_ones_own_finds_tools_and_reads_calls(profile):
    messages: list[Any] = [user("Make a PDF")]
    first = window_of(messages, profile=profile)
    search = first.tool_search
    assert search is not None
    messages.append(assistant(tool_calls=[find("convert_to_pdf")]))
    messages.append(search.answer(messages[-1].tool_calls[0]))
    second = window_of(messages, first, profile=profile)
    assert second.tool_search is not None
    by_name = profile == CLAUDE
    raw = ToolCall("2", "convert_to_pdf", '{"path":"a"}') if by_name else ToolCall(
        "2", "call_tool", '{"name":"convert_to_pdf","arguments":{"path":"a"}}'
    )  # fmt: skip
    assert second.tool_search.target(raw) == ToolCall("2", "convert_to_pdf", '{"path":"a"}')
    messages.append(second.tool_search.recorded(assistant(tool_calls=[raw])))
    messages.append(tool("2", "saved"))
    third = window_of(messages, second, profile=profile)
    statuses = {t.name: (t.status, t.calls) for t in third.report.tools}
    assert statuses["convert_to_pdf"] == ("found", 1)
    if profile == CLAUDE:
        check_anthropic(third.anthropic())
    else:
        check_chat(third.openai())
    again = third.tool_search.answer(find("convert_to_pdf", "3"))  # type: ignore[union-attr]
    assert again.text == "Loaded before: convert_to_pdf"


def test_answers_survive_as_plain_dicts():
    messages: list[Any] = [{"role": "user", "content": "Make a PDF"}]
    search = window_of(messages).tool_search
    assert search is not None
    call = find("convert_to_pdf")
    messages.append(assistant(tool_calls=[call]).to_dict())
    messages.append(json.loads(json.dumps(search.answer(call).to_dict())))
    window = window_of(messages)
    assert {t.name for t in window.report.tools if t.status == "found"} == {"convert_to_pdf"}
    assert "found_tools" not in json.dumps(window.openai())


def test_without_need_nothing_is_searched():
    assert window_of([user("Hi")], tools=schemas()[:3]).tool_search is None
    assert window_of([user("Hi")], tools=[Toolbox("a", schemas()[:3])]).tool_search is None
    few = window_of([user("Hi")], tools=toolboxes()[:1], tool_search=False)
    assert few.tool_search is None
    assert len(few.tools) == 12
    assert pickle.loads(pickle.dumps(window_of([user("Hi")]))).tool_search is None


def test_a_window_of_plain_schemas_is_the_same_as_before():
    plain = Slots(8_000, tools=schemas()[:5])
    plain.add("input", "Hi")
    assert [t["name"] for t in plain.render().tools] == [t["name"] for t in schemas()[:5]]
    assert plain.render().report.tools == ()


def test_only_searches_are_answered():
    search = window_of([user("Hi")]).tool_search
    assert search is not None
    with pytest.raises(InvalidInput, match="takes calls of find_tools, not of 'forecast'"):
        search.answer(ToolCall("1", "forecast"))
    assert search.target(ToolCall("1", "forecast")) == ToolCall("1", "forecast")


def test_run_agent_finds_and_runs_tools_of_toolboxes():
    windows: list[Window] = []

    def compose(run: tuple[Message, ...]) -> Window:
        slots = Slots(8_000, profile=CHAT, tools=toolboxes(), ladder=True)
        slots.add("input", "Make a PDF")
        slots.add("run", list(run))
        windows.append(slots.render())
        return windows[-1]

    run_it = '{"name":"convert_to_pdf","arguments":{"path":"a"}}'
    script: list[Any] = [find("convert_to_pdf"), ToolCall("2", "call_tool", run_it), "done"]
    recorded: list[Message] = []
    model = ScriptedModel(script, name=CHAT)
    asyncio.run(run_agent(model, compose, tools=toolboxes(), record=recorded.extend))
    assert windows[-1].messages[-1].text == 'convert_to_pdf ran with {"path": "a"}'
    assert [c.name for m in recorded for c in m.tool_calls] == ["find_tools", "convert_to_pdf"]
    # Stopped behind the search, it is answered again as it was.
    model = ScriptedModel(script[1:], name=CHAT)
    asyncio.run(run_agent(model, compose, tools=toolboxes(), resume=recorded[:1]))
    assert model.windows[0].messages == windows[1].messages
    assert len(boxes()) == 10


def test_fit_refuses_a_toolbox_and_says_what_to_do():
    with pytest.raises(InvalidInput, match=r"tools\[1\] is a toolbox: .* Slots\(tools="):
        fit([{"role": "user", "content": "Hi"}], 8_000, tools=[schemas()[0], *toolboxes()])
