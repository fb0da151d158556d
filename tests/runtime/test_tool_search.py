"""Toolboxes in the interfaces of the runtime: what is sent, found, run and recorded."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from muntin import (
    App,
    BudgetExceeded,
    Toolbox,
    ToolCall,
    capability,
    context,
    generate,
    generator,
    prompt,
)
from muntin.core.window import Window
from muntin.providers.model import Finished, ToolCalled, ToolFinished
from muntin.testing import ScriptedModel
from tests.toolboxes import boxes, functions, toolboxes

# Priced by the table, known without a price, unknown, no provider at all.
NAMES = ["openai/gpt-5.6", "google/gemini-3-pro", "ollama/qwen3", "mine"]


def find_order(id: str) -> str:
    """Find an order by its id."""
    return f"order {id}"


def find(id: str, query: str) -> ToolCall:
    return ToolCall(id, "find_tools", json.dumps({"query": query}))


def call(id: str, name: str, arguments: Any = None) -> ToolCall:
    return ToolCall(id, "call_tool", json.dumps({"name": name, "arguments": arguments or {}}))


SCRIPT: list[Any] = [
    find("1", "convert a word document to pdf"),
    [call("2", "convert_to_pdf", {"path": "a.docx"}), find("3", "weather warnings")],
    [call("4", "weather_warnings", {"region": "Oslo"}), ToolCall("5", "find_order", '{"id":"7"}')],
    "done",
]


async def in_conversation(app: App, **options: Any) -> Any:
    talk = app.conversation("ada", tools=[find_order, *toolboxes()], **options)
    return [await talk.send("Make a PDF of a.docx"), await talk.send("Thank you")]


async def in_entity(app: App, **options: Any) -> Any:
    @app.entity("helper")
    async def helper(ctx: Any, wake: Any) -> None:
        ctx.use_agent(tools=[find_order, *toolboxes()], **options)
        await ctx.agent.run()

    for text in ("Make a PDF of a.docx", "Thank you"):
        await app.ask("helper/ada", text)


async def in_generator(app: App, **options: Any) -> Any:
    made = generator(
        prompt="Help.",
        history=True,
        tools=[find_order],
        uses=[capability("boxes", presets={"all": {"tools": toolboxes()}})],
        user=lambda text: text,
        **options,
    )
    for text in ("Make a PDF of a.docx", "Thank you"):
        await made.run(text, app=app, session="ada")


INTERFACES: list[Callable[..., Any]] = [in_conversation, in_entity, in_generator]


def replies() -> list[Any]:
    return [*SCRIPT, "you are welcome"]


def names(request: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in request["tools"]]


def unmarked(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the messages without the marks of a cache, which are no part of the text."""
    messages = []
    for message in request["messages"]:
        content = message["content"]
        if isinstance(content, list):
            (part,) = content
            content = part["text"]
        messages.append({**message, "content": content})
    return messages


def check_beginnings(requests: list[dict[str, Any]]) -> None:
    """Every request begins with the whole request before it."""
    for one, next_one in itertools.pairwise(requests):
        assert next_one["tools"] == one["tools"]
        assert unmarked(next_one)[: len(one["messages"])] == unmarked(one)


async def run_interface(interface: Callable[..., Any], model: str) -> list[Window]:
    scripted = ScriptedModel(replies(), name=model, budget=32_000)
    async with App("memory:", model=scripted, recall=False) as app:
        await interface(app)
    return scripted.windows


@pytest.mark.parametrize("model", NAMES)
@pytest.mark.parametrize("interface", INTERFACES)
def test_tools_are_found_and_run_and_no_beginning_changes(interface, model):
    windows = asyncio.run(run_interface(interface, model))
    requests = [window.openai() for window in windows]
    assert len(requests) == 5
    assert {"call_tool", "find_order", "find_tools"} <= set(names(requests[0]))
    assert len(names(requests[0])) <= 9
    check_beginnings(requests)
    systems = [m["content"] for m in requests[0]["messages"] if m["role"] == "system"]
    assert sum(text.startswith("More tools can be loaded with find_tools") for text in systems) == 1
    last = unmarked(requests[-1])
    results = {m["tool_call_id"]: m["content"] for m in last if m["role"] == "tool"}
    assert results["1"].startswith("Loaded; run them with call_tool(name, arguments):\n")
    assert '"name":"convert_to_pdf"' in results["1"]
    assert results["2"] == 'convert_to_pdf ran with {"path": "a.docx"}'
    assert results["4"] == 'weather_warnings ran with {"region": "Oslo"}'
    assert results["5"] == "order 7"
    calls = [c["function"] for m in last for c in m.get("tool_calls", ())]
    assert [c["name"] for c in calls] == [
        "find_tools", "call_tool", "find_tools", "call_tool", "find_order",
    ]  # fmt: skip
    assert json.loads(calls[1]["arguments"]) == {
        "name": "convert_to_pdf", "arguments": {"path": "a.docx"},
    }  # fmt: skip


@pytest.mark.parametrize("encode", ["openai", "responses", "google", "anthropic"])
def test_on_every_wire_a_found_tool_runs_by_call_tool(encode):
    windows = asyncio.run(run_interface(in_conversation, "mine"))
    for window in windows:
        if encode == "responses":
            text = json.dumps(window.openai(api="responses"))
        else:
            text = json.dumps(getattr(window, encode)(), default=str)
        assert not window.report.not_carried
    # The declaration and two calls; Gemini's results have the name of the tool too.
    assert text.count('"call_tool"') == (5 if encode == "google" else 3)
    assert "found_tools" not in text
    assert '"toolbox"' not in text


def test_the_record_has_the_tool_itself_and_what_was_loaded():
    async def go() -> list[Any]:
        scripted = ScriptedModel(replies(), name="mine", budget=32_000)
        async with App("memory:", model=scripted) as app:
            await in_conversation(app)
            return app.session("ada").messages()

    messages = asyncio.run(go())
    called = [c.name for m in messages for c in m.tool_calls]
    assert called == [
        "find_tools", "convert_to_pdf", "find_tools", "weather_warnings", "find_order",
    ]  # fmt: skip
    loaded = [m.extra["found_tools"] for m in messages if m.extra and "found_tools" in m.extra]
    assert [tools[0]["name"] for tools in loaded] == ["convert_to_pdf", "weather_warnings"]


def test_events_name_the_tool_itself():
    async def go() -> list[Any]:
        scripted = ScriptedModel(replies(), name="mine", budget=32_000)
        async with App("memory:", model=scripted) as app:
            talk = app.conversation("ada", tools=toolboxes())
            return [event async for event in talk.stream("Make a PDF of a.docx")]

    events = asyncio.run(go())
    names = [event.call.name for event in events if isinstance(event, ToolCalled)]
    assert names[:2] == ["find_tools", "convert_to_pdf"]
    ran = [event.call.name for event in events if isinstance(event, ToolFinished)]
    assert "convert_to_pdf" in ran
    assert isinstance(events[-1], Finished)


def answers(script: list[Any], tools: list[Any], **options: Any) -> list[str]:
    """Return the results that a model reads."""

    async def go() -> list[str]:
        scripted = ScriptedModel([*script, "done"], name="mine", budget=16_000)
        async with App("memory:", model=scripted) as app:
            await app.conversation("ada", tools=tools, **options).send("Go on")
        return [m.text for m in scripted.windows[-1].messages if m.role == "tool"]

    return asyncio.run(go())


def test_a_tool_that_was_not_loaded_runs_if_its_arguments_fit():
    script = [
        call("1", "forecast", {"place": "Oslo"}),
        ToolCall("2", "forecast", '{"place":"Rome"}'),
    ]
    assert answers(script, toolboxes()) == [
        'forecast ran with {"place": "Oslo"}',
        'forecast ran with {"place": "Rome"}',
    ]


def test_wrong_arguments_show_the_schema_once_and_load_the_tool():
    wrong = [call("1", "forecast", {"town": 3}), call("2", "forecast"), find("3", "forecast")]
    first, second, third = answers(wrong, toolboxes())
    assert first.startswith("Error: invalid arguments for tool 'forecast': place: is missing")
    assert '"enum":["metric","imperial"]' in first
    assert second == "Error: invalid arguments for tool 'forecast': place: is missing"
    assert third == "Loaded before: forecast"


def test_an_unknown_name_is_answered_with_names_like_it_never_with_all():
    (text,) = answers([call("1", "convert_word_to_pdf")], toolboxes())
    assert text.startswith("Error: there is no tool 'convert_word_to_pdf'. Near: convert_to_pdf")
    assert text.endswith(" find_tools searches others.")
    assert text.count(",") == 4


def test_call_tool_without_a_name_says_what_it_needs():
    (text,) = answers([ToolCall("1", "call_tool", "{}")], toolboxes())
    assert text == "Error: call_tool needs the name of a tool and its arguments."


def test_a_tool_that_its_toolbox_has_lost_is_not_there_any_more():
    async def go() -> list[str]:
        lost: list[str] = []
        github = Toolbox("github", lambda: functions(boxes()[0], lost))
        rest = [box for box in toolboxes() if box.name != "github"]
        script = [
            find("1", "merge_pull_request"), "found",
            call("2", "merge_pull_request", {"repo": "a/b", "number": 1}), "gone",
        ]  # fmt: skip
        scripted = ScriptedModel(script, name="openai/gpt-5.6", budget=16_000)
        async with App("memory:", model=scripted) as app:
            for text in ("Find it", "Run it"):
                await app.conversation("ada", tools=[github, *rest]).send(text)
                lost.append("merge_pull_request")
        requests = [window.openai() for window in scripted.windows]
        check_beginnings(requests[:2])
        return [m["content"] for m in requests[-1]["messages"] if m["role"] == "tool"]

    loaded, gone = asyncio.run(go())
    assert '"name":"merge_pull_request"' in loaded
    assert gone == "Error: tool 'merge_pull_request' is not there any more."


@pytest.mark.parametrize("search", [True, False])
def test_search_is_inherited_and_can_be_switched_off(search):
    async def go() -> list[str]:
        scripted = ScriptedModel(["hi"], name="mine", budget=64_000)
        async with App("memory:", model=scripted, tool_search=not search) as app:
            await app.conversation("ada", tools=toolboxes(), tool_search=search).send("Hi")
        return names(scripted.windows[0].openai())

    assert ("find_tools" in asyncio.run(go())) is search


def test_the_receipt_says_what_became_of_every_tool():
    window = asyncio.run(run_interface(in_conversation, "openai/gpt-5.6"))[3]
    report = window.report
    counted = dict.fromkeys(("declared", "found", "listed"), 0)
    for tool in report.tools:
        counted[tool.status] += 1
    assert counted["declared"] == 2  # find_order, and the tool that reads results
    assert sum(counted.values()) == 98
    pdf = next(tool for tool in report.tools if tool.name == "convert_to_pdf")
    assert (pdf.box, pdf.status, pdf.reason, pdf.rung, pdf.calls) == (
        "word", "found", "query", "full", 1,
    )  # fmt: skip
    assert pdf.query == "convert a word document to pdf"
    assert pdf.step is not None
    assert window.messages[pdf.step].tool_call_id == "1"
    listed = next(tool for tool in report.tools if tool.name == "set_topic")
    assert (listed.status, listed.reason) == ("listed", "over_share")
    assert listed.fits_with is not None
    assert listed.fits_with > 32_000
    rows = sum(row.tokens_kept for row in report.slots)
    assert rows + report.tools_tokens + report.answer_tokens == report.tokens == window.tokens
    text = str(report)
    assert "first lines of 96 tools in 10 toolboxes" in text
    assert (
        f"tools: 2 declared, {counted['found']} found, {counted['listed']} listed; all would be"
        in text
    )
    stored = window.kept_report.to_dict()["tools"]
    assert len(stored) < 40
    assert sum(tool["count"] for tool in stored) == 98


def test_without_a_toolbox_a_report_says_nothing_of_them():
    async def go() -> Any:
        scripted = ScriptedModel(["hi"], name="mine")
        async with App("memory:", model=scripted) as app:
            return await app.conversation("ada", tools=[find_order]).send("Hi")

    report = asyncio.run(go()).window.report
    assert report.tools == ()
    assert "tools" not in report.to_dict()


def test_prompts_and_generate_search_their_contexts_toolboxes():
    asking = prompt(
        system="Help.",
        prompt="Make a PDF",
        use=[context(id="boxes", system="Tools.", tools=toolboxes())],
    )
    scripted = ScriptedModel(replies(), name="mine", budget=32_000)
    script: list[Any] = [
        find("1", "convert_to_pdf"),
        call("2", "convert_to_pdf", {"path": "a"}),
        "done",
    ]
    scripted = ScriptedModel(script, name="mine", budget=32_000)
    reply = asyncio.run(generate(asking, model=scripted))
    assert reply.message.text == "done"
    assert not any(window.over_budget for window in scripted.windows)
    requests = [window.openai() for window in scripted.windows]
    check_beginnings(requests)
    assert requests[-1]["messages"][-1]["content"] == 'convert_to_pdf ran with {"path": "a"}'


def test_too_many_tools_without_a_toolbox_are_an_error_that_says_what_to_do():
    listed = [tool for box in boxes() for tool in functions(box)]

    async def go() -> None:
        scripted = ScriptedModel(["hi"], name="mine", budget=4_000)
        async with App("memory:", model=scripted) as app:
            await app.conversation("ada", tools=listed).send("Hi")

    with pytest.raises(BudgetExceeded, match="put them into a Toolbox"):
        asyncio.run(go())
