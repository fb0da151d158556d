"""Repair: what frameworks send in practice, as dicts that can be read.

Owns every form beyond the providers' own: other names of roles and fields, calls without an id or
arguments, results without an id, texts with lone surrogates. Never changes the given values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from muntin.core.checks import compact_json, digest, has_surrogates, replace_surrogates
from muntin.core.message import Message, Role
from muntin.core.parts import as_plain
from muntin.errors import InvalidInput, InvalidType
from muntin.wire import google
from muntin.wire.responses import OUTPUTS

_ROLES: dict[str, Role] = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    # OpenAI's newer and older words, Google's, and LangChain's.
    "developer": "system",
    "function": "tool",
    "model": "assistant",
    "human": "user",
    "ai": "assistant",
    "SystemMessage": "system",
    "HumanMessage": "user",
    "AIMessage": "assistant",
    "ToolMessage": "tool",
    "FunctionMessage": "tool",
    "AIMessageChunk": "assistant",
    "HumanMessageChunk": "user",
}
# The fields beside the content that are counted or name a breakpoint. All other fields belong to
# the item and stay with it.
_BESIDE = (
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "refusal",
    "audio",
    "is_error",
    "clear_at",
    "cache_control",
    "prompt_cache_breakpoint",
)

# The fields that are read of unknown objects.
_FIELDS = ("role", "content", "tool_calls", "tool_call_id", "name", "function_call")


def spelled_role(role: object) -> Role | None:
    """Return the role that a word stands for."""
    return _ROLES.get(role) if isinstance(role, str) else None


def made_id(name: str, arguments: str, place: int) -> str:
    """Return an id for a call that has none: always the same for the same call."""
    return f"call_{digest(f'{name} {arguments}', 6)}_{place}"


def normal(item: Any) -> tuple[Any, bool]:
    """Return an item in a readable form, and whether it cannot be sent as it is."""
    if isinstance(item, Message):
        return item, False
    if isinstance(item, str):
        return {"role": "user", "content": replace_surrogates(item)}, has_surrogates(item)
    if isinstance(item, tuple) and len(item) == 2 and all(isinstance(e, str) for e in item):
        item = {"role": item[0], "content": item[1]}  # LangChain's shorthand
    data = _fields(item)
    clean = _Cleaner()
    data = clean.value(_unwrap(data))
    if "parts" in data:
        data = google.known_fields(data)
    elif data.get("type") == "reasoning" and data.get("id") is None:
        data = {**data, "id": ""}  # nothing is kept at OpenAI
    elif "role" in data or spelled_role(data.get("type")):
        data = _message(data)
    return data, clean.found


def _fields(item: Any) -> Mapping[str, Any]:
    """Return the fields of an item: of a dict, of an SDK's object, or of any object with a role."""
    data = as_plain(item)
    if isinstance(data, Mapping):
        if item is data or "role" in data or "parts" in data or data.get("type") is not None:
            return data
        return {**data, "type": type(item).__name__}  # a dump leaves constant fields out
    fields = {key: value for key in _FIELDS if (value := getattr(item, key, None)) is not None}
    if "role" not in fields and spelled_role(type(item).__name__) is None:
        raise InvalidType(f"a {type(item).__name__} cannot be read as a message")
    return fields if "role" in fields else {**fields, "type": type(item).__name__}


class _Cleaner:
    """Replaces each lone surrogate by a question mark, and notes that there was one."""

    def __init__(self) -> None:
        self.found = False

    def value(self, value: Any) -> Any:
        """Return a value whose texts can be sent; without lone surrogates, the same value."""
        if isinstance(value, str):
            if value.isascii() or not has_surrogates(value):
                return value
            self.found = True
            return replace_surrogates(value)
        if isinstance(value, Mapping):
            return {key: self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(as_plain(item)) for item in value]
        return value


def _unwrap(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message without the envelope in which LangChain stores it."""
    inner = data.get("kwargs") if "lc" in data else None
    if isinstance(inner, Mapping) and isinstance(data.get("id"), Sequence) and data["id"]:
        return {**inner, "type": str(data["id"][-1])}
    inner = data.get("data")
    if isinstance(inner, Mapping) and "role" not in data and spelled_role(data.get("type")):
        return {**inner, "type": data["type"]}
    return data


def _message(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message with a role as a dict that can be read."""
    kind = data.get("type")
    if "role" in data and isinstance(kind, str) and kind in OUTPUTS:
        return dict(data)  # an item of the Responses API
    word = data.get("role") or data.get("type")
    role = spelled_role(word)
    if role is None:
        raise InvalidInput(f"unknown role {word!r}")
    message: dict[str, Any] = {key: data[key] for key in _BESIDE if data.get(key) is not None}
    message |= {"role": role, "content": _content(data.get("content"))}
    if data.get("stop_reason") is not None:
        message["stop_reason"] = data["stop_reason"]
    if isinstance(data.get("name"), str) and role != "tool":
        message["name"] = data["name"]
    if role == "assistant":
        calls = _calls(data)
        message["content"] = _without_calls(message["content"], calls)
        if calls:
            message["tool_calls"] = calls
    if role == "tool":
        message["tool_call_id"] = _text(data.get("tool_call_id"))
    return message


def _text(value: Any) -> str:
    """Return a value as the text that is sent for it."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    try:
        return compact_json(value)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def _spaced_json(value: Any) -> str:
    """Return arguments as LangChain, which holds them parsed, sends them."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return _text(value)


def _content(content: Any) -> Any:
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        return _text(content)
    parts = [_part(part) for part in content]
    return [part for part in parts if part is not None]


def _part(part: Any) -> Any:
    """Return one part of a content."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, Mapping):
        return {"type": "text", "text": _text(part)}
    kind, url = part.get("type"), part.get("image_url")
    if kind == "text" and part.get("text") is None:
        return None
    if kind == "image_url" and isinstance(url, str):
        return {"type": "image_url", "image_url": {"url": url}}
    if kind == "image" and "source" not in part:
        return _image(part)
    if not isinstance(kind, str):
        text = part.get("text")
        return {"type": "text", "text": text if isinstance(text, str) else _text(part)}
    return part


def _image(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return LangChain's form of an image in the form of Chat Completions."""
    data = part.get("base64") or part.get("data")
    url = part.get("url")
    if isinstance(data, str):
        url = f"data:{part.get('mime_type') or 'image/png'};base64,{data}"
    return {"type": "image_url", "image_url": {"url": url if isinstance(url, str) else ""}}


def _without_calls(content: Any, calls: Sequence[Mapping[str, Any]]) -> Any:
    """Return a content without the blocks that are calls, if the calls also stand beside it."""
    if not isinstance(content, list):
        return content
    call_ids = {call["id"] for call in calls}
    kinds = ("tool_call", "tool_call_chunk", "tool_use", "function_call")
    return [p for p in content if not (p.get("type") in kinds and _block_id(p) in call_ids)] or None


def _block_id(block: Mapping[str, Any]) -> Any:
    return block.get("call_id") or block.get("id")


def _calls(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the calls of a message, item with an id of its own and arguments."""
    listed = data.get("tool_calls")
    items = list(listed) if isinstance(listed, list | tuple) else []
    legacy = data.get("function_call")
    if isinstance(legacy, Mapping) and not items:
        items = [{"function": legacy}]
    calls: dict[str, dict[str, Any]] = {}
    for place, item in enumerate(items):
        call = _call(item, place)
        calls.setdefault(call["id"], call)  # a repeated call is counted once
    return list(calls.values())


def _call(call: Any, place: int) -> dict[str, Any]:
    if not isinstance(call, Mapping):
        raise InvalidType(f"tool_calls[{place}] is a {type(call).__name__}")
    inner = call.get("function") or call.get("custom")
    fields = inner if isinstance(inner, Mapping) else call
    key = next((key for key in ("arguments", "args", "input") if fields.get(key) is not None), "")
    arguments: Any = fields.get(key)
    is_parsed = key == "args" and not isinstance(arguments, str)
    written = (_spaced_json(arguments) if is_parsed else _text(arguments)) or "{}"
    name = _text(fields.get("name")) or "unknown"
    call_id = _text(call.get("id") or call.get("call_id")) or made_id(name, written, place)
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": written},
    }
