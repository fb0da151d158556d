"""Whether a request is valid: by the official SDK's own types, and by the vendor's written rules.

Each `check_*` raises AssertionError (or the SDK's ValidationError), naming what is wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter

NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
# Fields of compatible servers that the official types do not know.
REASONING = ("reasoning_content", "reasoning", "reasoning_details")


@cache
def adapter(name: str) -> TypeAdapter[Any]:
    if name == "chat":
        from openai.types.chat.completion_create_params import (
            CompletionCreateParamsNonStreaming as Chat,
        )

        return TypeAdapter(Chat)
    if name == "responses":
        from openai.types.responses.response_create_params import (
            ResponseCreateParamsNonStreaming as Responses,
        )

        return TypeAdapter(Responses)
    from anthropic.types.message_create_params import MessageCreateParamsNonStreaming as Anthropic

    return TypeAdapter(Anthropic)


def exhaust(value: Any) -> None:
    """Pydantic checks an Iterable only while it is read."""
    if isinstance(value, Mapping):
        for each in value.values():
            exhaust(each)
    elif not isinstance(value, str | bytes) and hasattr(value, "__iter__"):
        for each in value:
            exhaust(each)


def check_types(name: str, request: Mapping[str, Any]) -> None:
    exhaust(adapter(name).validate_python(request, extra="forbid"))


# -- OpenAI Chat Completions: https://platform.openai.com/docs/api-reference/chat/create ----------


def check_chat(request: Mapping[str, Any]) -> None:
    messages = [
        {key: value for key, value in message.items() if key not in REASONING}
        for message in request["messages"]
    ]
    check_types("chat", {**request, "messages": messages, "model": "gpt-5"})
    waiting: list[str] = []
    seen: set[str] = set()
    for message in messages:
        content = message["content"]
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting, "a result right behind its call"
            waiting.remove(message["tool_call_id"])
        else:
            assert not waiting, "every call has its result before anything else comes"
            assert content or message.get("tool_calls"), "no message is empty"
        assert content != [], "no list is empty"
        for part in content if isinstance(content, list) else ():
            assert part["type"] != "text" or part["text"], "no text is empty"
        for call in message.get("tool_calls", ()):
            assert len(call["id"]) <= 40
            assert call["id"] not in seen, "ids are unique"
            seen.add(call["id"])
            waiting.append(call["id"])
            name = call.get("function", call.get("custom"))["name"]
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name), name
        if "name" in message:
            assert re.fullmatch(r"[^\s<|\\/>]{1,64}", message["name"])
    assert not waiting
    marks = [part for part in walk(messages) if "prompt_cache_breakpoint" in part]
    assert len(marks) <= 4


# -- OpenAI Responses: https://platform.openai.com/docs/guides/conversation-state ------------------

CALLS = ("function_call", "custom_tool_call")
OUTPUTS = ("function_call_output", "custom_tool_call_output")


def check_responses(request: Mapping[str, Any]) -> None:
    check_types("responses", {**request, "model": "gpt-5"})
    waiting: list[str] = []
    seen: set[str] = set()
    thinking = False
    for item in request["input"]:
        kind = item.get("type", "message")
        if kind in OUTPUTS:
            assert not thinking, "what the model thought led to something"
            waiting.remove(item["call_id"])
            continue
        if kind in CALLS:
            assert len(item["call_id"]) <= 64
            assert item["call_id"] not in seen, "ids are unique"
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", item["name"])
            seen.add(item["call_id"])
            waiting.append(item["call_id"])
            thinking = False
        elif kind == "reasoning":
            thinking = True
        else:
            assert not waiting, "every call has its output before anything else comes"
            if kind == "message":
                assert item["content"], "no message is empty"
                assert not thinking or item["role"] == "assistant"
            thinking = False
        for part in item["content"] if isinstance(item.get("content"), list) else ():
            assert part.get("text") != "", "no text is empty"
    assert not waiting
    assert not thinking
    marks = [part for part in walk(request["input"]) if "prompt_cache_breakpoint" in part]
    assert len(marks) <= 4


# -- Anthropic Messages: https://docs.claude.com/en/api/messages ----------------------------------

THINKING = ("thinking", "redacted_thinking")


def check_anthropic(request: Mapping[str, Any]) -> None:
    check_types("anthropic", {**request, "model": "claude-sonnet-4-5", "max_tokens": 1})
    turns = request["messages"]
    for number, turn in enumerate(turns):
        assert turn["role"] == ("user", "assistant")[number % 2], "roles alternate, user first"
        assert turn["content"], "no message is empty"
    seen: set[str] = set()
    for number, turn in enumerate(turns):
        following = turns[number + 1] if number + 1 < len(turns) else None
        check_blocks(turn["content"])
        called = [block for block in turn["content"] if block["type"] == "tool_use"]
        for block in called:
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", block["id"])
            assert NAME.fullmatch(block["name"])
            assert block["id"] not in seen, "ids are unique"
            seen.add(block["id"])
        if turn["role"] == "assistant":
            assert turn["content"][-1]["type"] not in THINKING, "thoughts do not end a turn"
            answers = following["content"][: len(called)] if following else []
            assert [a.get("tool_use_id") for a in answers] == [c["id"] for c in called]
            rest = following["content"][len(called) :] if following else []
        else:
            assert not called, "only the assistant calls"
            rest = turn["content"] if turn is turns[0] else []
        assert not [block for block in rest if block["type"] == "tool_result"]
    if turns and turns[-1]["role"] == "assistant":
        text = turns[-1]["content"][-1].get("text", "")
        assert text == text.rstrip(), "a prefill does not end in white space"
    assert request.get("system") != []
    check_blocks(request.get("system", ()))
    marks = [each for each in walk(dict(request)) if "cache_control" in each]
    assert len(marks) <= 4, "at most four cache marks"
    assert not [each for each in marks if each.get("type") in THINKING]


def check_blocks(blocks: Any) -> None:
    for block in blocks:
        if block["type"] == "text":
            assert block["text"].strip(), "no text is blank"
        if block["type"] == "thinking":
            assert isinstance(block["signature"], str)
        if block["type"] == "tool_result" and isinstance(block.get("content"), list):
            assert block["content"], "no list is empty"
            check_blocks(block["content"])


# -- Google: https://ai.google.dev/gemini-api/docs/function-calling -------------------------------

DATA = {
    "text",
    "inline_data",
    "file_data",
    "function_call",
    "function_response",
    "executable_code",
    "code_execution_result",
    "tool_call",
    "tool_response",
}


def check_google(request: Mapping[str, Any]) -> None:
    from google.genai import types

    assert set(request) == {"contents", "config"}
    types.GenerateContentConfig.model_validate(request["config"])
    contents = request["contents"]
    for content in contents:
        types.Content.model_validate(content)
    called: list[tuple[str, str]] = []
    seen: set[str] = set()
    for number, content in enumerate(contents):
        assert content["role"] == ("user", "model")[number % 2], "roles alternate, user first"
        parts = content["parts"]
        assert parts, "no content is empty"
        for part in parts:
            assert len(DATA & set(part)) == 1, "a part is one thing"
            assert part.get("text") != "" or "thought_signature" in part, "no text is empty"
            assert isinstance(part.get("thought_signature", b""), bytes)
        answers = [part["function_response"] for part in parts if "function_response" in part]
        assert [(a["id"], a["name"]) for a in answers] == called
        assert parts[: len(answers)] == [p for p in parts if "function_response" in p]
        calls = [part for part in parts if "function_call" in part]
        assert not calls or content["role"] == "model"
        assert not calls or "thought_signature" in calls[0], "the first call is signed"
        called = [(c["function_call"]["id"], c["function_call"]["name"]) for c in calls]
        for call_id, name in called:
            assert call_id not in seen, "ids are unique"
            seen.add(call_id)
            assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}", name)
    assert not called
    instruction = request["config"].get("system_instruction")
    assert instruction is None or instruction["parts"]


def check_json(request: Mapping[str, Any]) -> None:
    """Whether it can be written as strict JSON, bytes as text, and sent as UTF-8."""
    json.dumps(request, allow_nan=False, ensure_ascii=False, default=bytes.hex).encode()


def walk(value: Any) -> list[dict[str, Any]]:
    """Return every dict inside a value."""
    if isinstance(value, dict):
        return [value, *(each for inner in value.values() for each in walk(inner))]
    if isinstance(value, list | tuple):
        return [each for inner in value for each in walk(inner)]
    return []


def strings(value: Any) -> list[str]:
    """Return every text inside a value, keys left out."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [each for inner in value.values() for each in strings(inner)]
    if isinstance(value, list | tuple):
        return [each for inner in value for each in strings(inner)]
    return []


CHECKS: dict[str, Callable[[Mapping[str, Any]], None]] = {
    "chat": check_chat,
    "responses": check_responses,
    "anthropic": check_anthropic,
    "google": check_google,
}
