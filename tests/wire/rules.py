"""Whether a request is valid: by the official SDK's own types, and by the vendor's written rules.

Each `check_*` raises AssertionError (or the SDK's ValidationError), naming what is wrong.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
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
    for part in walk(messages):
        assert part.get("refusal") != "", "no refusal is empty"
        check_address(part.get("image_url", {}).get("url") if "image_url" in part else None)
        check_data(part.get("file_data"))
        if part.get("type") == "input_audio":
            check_base64(part["input_audio"]["data"])
    tools = [tool.get("function", tool.get("custom")) for tool in request.get("tools", ())]
    check_tools(tools, "parameters", r"[a-zA-Z0-9_-]{1,64}")


def check_tools(tools: Any, schema: str, names: str) -> None:
    """Whether declared tools have accepted names, each its own, and schemas of an object."""
    declared = [tool["name"] for tool in tools]
    assert len(set(declared)) == len(declared), "no tool name stands twice"
    for tool in tools:
        assert re.fullmatch(names, tool["name"]), tool["name"]
        if tool.get(schema) is not None:
            assert tool[schema]["type"] == "object", "a schema is an object's"


def check_base64(data: Any) -> None:
    assert isinstance(data, str)
    assert b64decode(data, validate=True), "data is base64, and not empty"


def check_data(url: Any) -> None:
    """Whether a data URL holds base64."""
    if url is not None:
        head, _, data = url.partition(",")
        assert re.fullmatch(r"data:[\w.+/-]+(;[\w=.-]+)*;base64", head, re.IGNORECASE), head
        check_base64(data)


def check_address(url: Any) -> None:
    """Whether an image or a file is base64 data, or can be fetched."""
    if url is not None and url[:5].lower() == "data:":
        check_data(url)
    elif url is not None:
        assert re.match(r"https?://.", url, re.IGNORECASE), "an address is one of the web"


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
    ids = [item["id"] for item in request["input"] if "id" in item]
    assert len(set(ids)) == len(ids), "no item id stands twice"
    for part in walk(request["input"]):
        check_address(part.get("image_url"))
        check_address(part.get("file_url"))
        check_data(part.get("file_data"))
    own = ("function", "custom")
    tools = [tool for tool in request.get("tools", ()) if tool["type"] in own]
    check_tools(tools, "parameters", r"[a-zA-Z0-9_-]{1,64}")


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
        has_thoughts = any(block["type"] in THINKING for block in turn["content"])
        check_blocks(turn["content"], as_made=turn["role"] == "assistant" and has_thoughts)
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
    check_ttls(request)
    tools = request.get("tools", ())
    check_tools(tools, "input_schema", r"[a-zA-Z0-9_-]{1,128}")
    for tool in tools:
        assert "input_schema" in tool or re.fullmatch(r".*_\d{8}", tool["type"])


def check_ttls(request: Mapping[str, Any]) -> None:
    """Whether no mark lasts longer than one before it: tools, then system, then messages."""
    order = [*request.get("tools", ()), *request.get("system", ())]
    order += [block for turn in request["messages"] for block in turn["content"]]
    ttls = [block["cache_control"].get("ttl", "5m") for block in order if "cache_control" in block]
    assert ttls == sorted(ttls, key=["1h", "5m"].index), "1h does not stand behind 5m"


def check_blocks(blocks: Any, *, as_made: bool = False) -> None:
    """An answer with thoughts goes back `as_made`: Claude writes blank texts, and takes them."""
    for block in blocks:
        if block["type"] == "text":
            assert as_made or block["text"].strip(), "no text is blank"
        if block["type"] == "thinking":
            assert isinstance(block["signature"], str)
        if block["type"] == "tool_result" and isinstance(block.get("content"), list):
            assert block["content"], "no list is empty"
            check_blocks(block["content"])
        if block["type"] == "tool_result" and block.get("is_error"):
            content = block.get("content")
            assert content, "a failed result says something"
            assert isinstance(content, str) or {each["type"] for each in content} == {"text"}
        source = block.get("source")
        if block["type"] in ("image", "document") and isinstance(source, dict):
            check_address(source.get("url"))
            if source["type"] == "base64":
                check_base64(source["data"])


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
            if "inline_data" in part:
                assert part["inline_data"]["data"], "data is bytes, and not empty"
            if "file_data" in part:
                uri = part["file_data"]["file_uri"]
                assert re.match(r"(https?|gs)://.|files?[-/].", uri, re.IGNORECASE), uri
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
    tools = request["config"].get("tools", ())
    functions = [each for tool in tools for each in tool.get("function_declarations", ())]
    check_tools(functions, "parameters_json_schema", r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")


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
