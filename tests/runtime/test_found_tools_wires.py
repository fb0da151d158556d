"""Found tools on the wires of Anthropic and of Responses, and a change of the provider."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from muntin import App, Profile, Toolbox, ToolCall
from muntin.core.window import Window
from muntin.providers import Client
from muntin.testing import ScriptedModel
from tests.runtime.test_tool_search import find
from tests.tool_rules import check_anthropic, check_chat, check_responses
from tests.toolboxes import boxes, functions, toolboxes

LOCAL = "http://localhost:8000/v1"
CLAUDE, GPT, CHAT = "anthropic/claude-sonnet-5", "openai/gpt-5.6", "ollama/qwen3"


def call(id: str, name: str, arguments: Any = None) -> ToolCall:
    return ToolCall(id, name, json.dumps(arguments or {}))


def scripted(script: list[Any], name: str, budget: int = 32_000) -> ScriptedModel:
    model = ScriptedModel(script, name=name, budget=budget)
    if name == GPT:  # as a Client of the Responses API says of itself
        model.tool_loading = "item"  # type: ignore[attr-defined]
    return model


def encoded(window: Window, name: str) -> dict[str, Any]:
    """Return the request as its vendor gets it, checked."""
    if name == CLAUDE:
        request, check = window.anthropic(), check_anthropic
    elif name == GPT:
        request, check = window.openai(api="responses"), check_responses
    else:
        request, check = window.openai(), check_chat
    check(request)
    assert not window.report.not_carried
    assert not window.over_budget
    plain: dict[str, Any] = unmarked(request)
    return plain


def unmarked(value: Any) -> Any:
    """Return a request without the marks of a cache, a marked text as it is without a mark."""
    if isinstance(value, dict):
        kept = {k: unmarked(v) for k, v in value.items()}
        kept.pop("cache_control", None)
        kept.pop("prompt_cache_breakpoint", None)
        return kept
    if isinstance(value, list):
        items = [unmarked(item) for item in value]
        if len(items) == 1 and isinstance(items[0], dict) and set(items[0]) == {"type", "text"}:
            return items[0]["text"]
        return items
    return value


def history(request: dict[str, Any]) -> list[Any]:
    return request["messages"] if "messages" in request else request["input"]  # type: ignore[no-any-return]


SCRIPT: list[Any] = [
    find("1", "convert_to_pdf"),
    [call("2", "convert_to_pdf", {"path": "a"}), find("3", "warnings of storms")],
    [call("4", "weather_warnings", {"region": "Oslo"}), call("5", "forecast")],
    "done",
    call("6", "convert_to_pdf", {"path": "b"}),
    "again",
]


async def talk(name: str, script: list[Any], texts: list[str], **options: Any) -> list[Window]:
    model = scripted(script, name)
    async with App("memory:", model=model, recall=False) as app:
        for text in texts:
            await app.conversation("ada", tools=toolboxes(), **options).send(text)
    return model.windows


@pytest.mark.parametrize("name", [CLAUDE, GPT, CHAT])
def test_no_beginning_changes_over_steps_and_turns(name):
    windows = asyncio.run(talk(name, SCRIPT, ["Make a PDF", "And b"], system_prompt="Help."))
    requests = [encoded(window, name) for window in windows]
    assert len(requests) == 6
    for one, later in itertools.pairwise(requests):
        assert one["tools"] == later["tools"]
        assert history(later)[: len(history(one))] == history(one)
        assert one.get("system") == later.get("system")


def test_claude_gets_deferred_declarations_from_the_first_request_on_and_references():
    windows = asyncio.run(talk(CLAUDE, SCRIPT, ["Make a PDF", "And b"]))
    first, last = (encoded(windows[n], CLAUDE) for n in (0, -1))
    deferred = [tool["name"] for tool in first["tools"] if tool.get("defer_loading")]
    assert deferred == sorted(tool["name"] for box in boxes() for tool in box["tools"])
    assert [tool["name"] for tool in first["tools"][:2]] == ["find_tools", "load_result"]
    assert windows[0].tokens < 2_500  # deferred declarations are no part of the prompt
    text = json.dumps(last)
    assert '{"type": "tool_reference", "tool_name": "convert_to_pdf"}' in text
    assert "call_tool" not in text
    assert "Loaded" not in text


def test_a_small_conversation_of_claude_has_room_for_sixty_deferred_tools():
    some = [box for box in toolboxes() if box.name in ("github", "slack", "word", "excel", "files")]
    model = scripted(["hi"], CLAUDE, 1_200)

    async def go() -> None:
        async with App("memory:", model=model) as app:
            await app.conversation("ada", tools=some).send("Hello")

    asyncio.run(go())
    report = model.windows[0].report
    assert report.tools_tokens <= 300
    assert report.tools_asked > 3_000


def test_responses_gets_an_item_behind_the_results_and_a_namespace():
    windows = asyncio.run(talk(GPT, SCRIPT, ["Make a PDF", "And b"]))
    last = encoded(windows[-1], GPT)
    assert [tool["name"] for tool in last["tools"]] == ["find_tools", "load_result"]
    kinds = [item.get("type") for item in last["input"]]
    place = kinds.index("additional_tools")
    assert last["input"][place - 1] == {
        "type": "function_call_output", "call_id": "1", "output": "Loaded: convert_to_pdf",
    }  # fmt: skip
    (function,) = last["input"][place]["tools"]
    assert (function["name"], function["strict"]) == ("convert_to_pdf", False)
    assert list(function["parameters"]["properties"]) == ["path", "output"]
    called = [item for item in last["input"] if item.get("name") == "convert_to_pdf"]
    assert [item["namespace"] for item in called] == ["convert_to_pdf"] * 2


@pytest.mark.parametrize("first", [CLAUDE, GPT, CHAT])
@pytest.mark.parametrize("then", [CLAUDE, GPT, CHAT])
def test_a_conversation_goes_on_with_another_provider(first, then):
    async def go() -> Window:
        one, other = scripted(SCRIPT[:4], first), scripted(SCRIPT[4:], then)
        async with App("memory:") as app:
            for model in (one, other):
                await app.conversation("ada", tools=toolboxes(), model=model).send("Go on")
        return other.windows[-1]

    window = asyncio.run(go())
    request = encoded(window, then)
    text = json.dumps(request)
    assert text.count("convert_to_pdf ran with") == 2  # nothing was searched or run again
    statuses = {tool.name: tool.status for tool in window.report.tools}
    assert statuses["convert_to_pdf"] == statuses["weather_warnings"] == "found"


@pytest.mark.parametrize("name", [CLAUDE, GPT, CHAT])
def test_a_found_tool_that_its_server_lost_stays_declared_in_the_window(name):
    async def go() -> list[Window]:
        lost: list[str] = []
        github = Toolbox("github", lambda: functions(boxes()[0], lost))
        rest = [box for box in toolboxes() if box.name != "github"]
        script = [
            find("1", "merge_pull_request"),
            "found",
            "hm",
            call("2", "merge_pull_request"),
            "x",
        ]
        model = scripted(script, name)
        async with App("memory:", model=model) as app:
            for text in ("Find it", "Wait", "Run it"):
                await app.conversation("ada", tools=[github, *rest]).send(text)
                lost[:] = ["merge_pull_request"]
        return model.windows

    windows = asyncio.run(go())
    requests = [encoded(window, name) for window in windows]
    found = next(t for t in windows[-1].report.tools if t.name == "merge_pull_request")
    assert found.status == "found"
    for one, later in itertools.pairwise(requests):
        assert history(later)[1 : len(history(one))] == history(one)[1:]
    if name == CLAUDE:
        names = [tool["name"] for tool in requests[-1]["tools"]]
        assert names[-1] == "merge_pull_request"
    results = [m.text for m in windows[-1].messages if m.role == "tool"]
    assert results[-1] == "Error: tool 'merge_pull_request' is not there any more."


@pytest.mark.parametrize(
    ("model", "loading"),
    [
        ("anthropic/claude-sonnet-4-5", "reference"),
        ("anthropic/claude-haiku-4.5-20251001", "reference"),
        ("anthropic/claude-opus-5", "reference"),
        ("claude-fable-5", "reference"),
        ("anthropic/claude-sonnet-4", "text"),
        ("anthropic/claude-3-5-haiku-latest", "text"),
        ("anthropic/claude-opus-4-20250514", "text"),
        ("openrouter/anthropic/claude-sonnet-5", "text"),
        ("openai/gpt-5.6", "text"),
        ("google/gemini-3-pro", "text"),
        ("ollama/qwen3", "text"),
    ],
)
def test_a_profile_says_how_found_tools_get_into_a_request(model, loading):
    assert Profile.for_model(model).tool_loading == loading


@pytest.mark.parametrize(
    ("make", "loading"),
    [
        (lambda: Client("openai/gpt-5.6", api="responses", api_key="k"), "item"),
        (lambda: Client("openai/gpt-5.6", api_key="k"), None),
        (
            lambda: Client("openai/m", api="responses", api_key="k", base_url=LOCAL),
            "text",
        ),
        (
            lambda: Client("anthropic/claude-opus-5", api_key="k", base_url=LOCAL),
            "text",
        ),
        (lambda: Client("anthropic/claude-opus-5", api_key="k"), None),
    ],
)
def test_a_client_knows_whether_its_server_is_the_vendors(make: Callable[[], Client], loading):
    assert make().tool_loading == loading
