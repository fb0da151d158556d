"""What vendors refuse in requests with tools that are found: each rule raises with its name.

Anthropic: https://platform.claude.com/docs/en/agents-and-tools/tool-use/tool-search-tool
OpenAI: https://platform.openai.com/docs/guides/tools-tool-search
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def check_anthropic(request: Mapping[str, Any]) -> None:
    """Check a request of the Messages API."""
    tools = request.get("tools", [])
    names = [tool["name"] for tool in tools]
    assert len(set(names)) == len(names), "two tools of one name"
    shown = {tool["name"] for tool in tools if not tool.get("defer_loading")}
    assert shown or not tools, "at least one tool must not be deferred"
    for tool in tools:
        marked = tool.get("defer_loading") and "cache_control" in tool
        assert not marked, "a deferred tool cannot be marked"
    seen = set(shown)
    waiting: list[str] = []
    for message in request["messages"]:
        blocks = message["content"] if isinstance(message["content"], list) else []
        answered = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        if waiting:
            assert message["role"] == "user", "results follow their calls"
            assert sorted(answered) == sorted(waiting), "each call has one result"
        else:
            assert not answered, "a result needs a call"
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        for block in blocks:
            inner = block.get("content") if block["type"] == "tool_result" else None
            inner = inner if isinstance(inner, list) else []
            kinds = {part["type"] for part in inner}
            assert "tool_reference" not in kinds or len(kinds) == 1, "references stand alone"
            for part in inner:
                if part["type"] == "tool_reference":
                    assert part["tool_name"] in names, "a reference needs its declaration"
                    seen.add(part["tool_name"])
    assert not waiting, "the last call has a result"


def check_responses(request: Mapping[str, Any]) -> None:
    """Check a request of the Responses API."""
    top = [tool["name"] for tool in request.get("tools", [])]
    assert len(set(top)) == len(top), "two tools of one name"
    assert not any(tool.get("defer_loading") for tool in request.get("tools", []))
    added: set[str] = set()
    calls: dict[str, bool] = {}
    for item in request["input"]:
        kind = item.get("type")
        if kind == "additional_tools":
            assert item["role"] == "developer"
            for tool in item["tools"]:
                assert tool["type"] == "function"
                added.add(tool["name"])
        elif kind == "function_call":
            assert item["call_id"] not in calls or calls[item["call_id"]], "an id twice"
            calls[item["call_id"]] = False
            if item["name"] in added and item["name"] not in top:
                assert item.get("namespace") == item["name"], "missing namespace"
            else:
                assert "namespace" not in item, "the namespace does not exist"
        elif kind == "function_call_output":
            assert calls.get(item["call_id"]) is False, "an output needs a call"
            calls[item["call_id"]] = True
    assert all(calls.values()), "each call has an output"


def check_chat(request: Mapping[str, Any]) -> None:
    """Check a request of Chat Completions."""
    names = [tool["function"]["name"] for tool in request.get("tools", [])]
    assert len(set(names)) == len(names), "two tools of one name"
    waiting: list[str] = []
    for message in request["messages"]:
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting, "a result needs a call"
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting, "each call has a result"
        called = message.get("tool_calls") or []
        waiting = [call["id"] for call in called]
        if "call_tool" in names:
            assert all(call["function"]["name"] in names for call in called), "an unknown function"
    assert not waiting, "the last call has a result"
