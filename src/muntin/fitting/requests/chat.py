"""Requests of OpenAI's Chat Completions: read as pieces, written with the kept pieces.

https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from muntin.core.message import ROLES, Message, Role, role_of
from muntin.errors import InvalidInput
from muntin.fitting.pieces import Fitted, Piece, Pieces, Placed
from muntin.fitting.requests.common import (
    Body,
    Key,
    Request,
    as_text,
    breakpoints,
    count_marks,
    inside,
    key_of,
    last_marks,
    listed,
    named,
    read_piece,
    recall,
    text_of,
    tools_of,
    with_texts,
)
from muntin.providers.wire.chat_request import MARK, MARKS, cache_options, mark

# A list of up to this many messages is read at once: reading each when needed is slower.
_FEW = 500


def read(body: Body) -> Request:
    """Read the body of a request."""
    messages = listed(body, "messages", "a request of Chat Completions")
    legacy = cache(lambda: _legacy_ids(messages))  # few requests have any

    def read_one(item: Any, number: int) -> Piece:
        key = _key(item)
        known = None if key is None else recall(key)
        if known is not None:
            # Most messages: they were in the request before.
            return Piece(known, number)
        data = _repaired(item, number, legacy)
        if data is not item:
            key = _key(data)
        role: Role = "assistant" if role_of(data) == "assistant" else "user"
        return read_piece(Message.from_dict, data, number, role, _simpler, key)

    found: Sequence[Piece]
    if len(messages) <= _FEW:
        found = [read_one(item, number) for number, item in enumerate(messages)]
    else:
        found = Pieces(messages, lambda item, number: (read_one(item, number),), role=_role)
    return Request(
        found,
        tools=(*tools_of(body), *_functions(body)),
        model=named("openai", body.get("model")),
        user=text_of(body.get("safety_identifier")) or text_of(body.get("user")),
        output=inside(body, "response_format", "json_schema"),
    )


def write(body: Body, fitted: Fitted) -> dict[str, Any]:
    """Return the request with the kept messages, marked where it may be cached."""
    given = body["messages"]
    messages: list[Any] = [
        given[each.ref] if each.is_whole else _written(given, each) for each in fitted.placed
    ]
    options = _mark(messages, fitted, "content", _part)
    return {**body, **{k: v for k, v in options.items() if k not in body}, "messages": messages}


def _key(item: Any) -> Key | None:
    """Return the key of a message; for most messages by the quickest way."""
    calls = None
    if item.__class__ is dict:
        size, role, content = len(item), item.get("role"), item.get("content")
        if size == 2 and role.__class__ is content.__class__ is str:
            return "chat", role, content
        if size == 3:
            called, calls = item.get("tool_call_id"), item.get("tool_calls")
            if called.__class__ is role.__class__ is content.__class__ is str:
                return "chat", role, content, called
    if calls.__class__ is not list:
        return key_of("chat", item)
    key = ["calls", item.get("role"), item.get("content", item)]
    try:
        for call in calls:
            function = call["function"]
            if len(call) != 3 or call["type"] != "function" or len(function) != 2:
                return key_of("chat", item)
            key += call["id"], function["name"], function["arguments"]
    except (KeyError, TypeError):
        return key_of("chat", item)
    return tuple(key) if {*map(type, key)} <= _TEXTS else None


_TEXTS = {str, type(None)}


def _role(item: Any) -> Role | None:
    role = role_of(item) if isinstance(item, Mapping) else None
    return role if role in ROLES else None


def _functions(body: Body) -> tuple[Mapping[str, Any], ...]:
    """Return tools in the older form, `functions`."""
    found = body.get("functions")
    given = found if isinstance(found, list | tuple) else ()
    return tuple(
        {"type": "function", "function": each} for each in given if isinstance(each, Mapping)
    )


def _legacy_ids(messages: Sequence[Any]) -> dict[int, str]:
    """Return ids for results of functions, which have none: made from the call before them."""
    found: dict[int, str] = {}
    called: int | None = None
    for number, item in enumerate(messages):
        if not isinstance(item, dict):
            continue
        if item.get("function_call"):
            called = number
        elif item.get("role") == "function":
            found[number] = f"function_{called if called is not None else number}"
            called = None
    return found


def _repaired(item: Any, number: int, legacy: Callable[[], Mapping[int, str]]) -> Any:
    """Return a message in the form that is read: lax servers take messages that OpenAI refuses."""
    if not isinstance(item, dict) or len(item) == 2:
        return item
    if item.get("role") == "function":
        return {"role": "tool", "content": item.get("content"), "tool_call_id": legacy()[number]}
    calls = item.get("tool_calls")
    call = item.get("function_call")
    if isinstance(calls, list | tuple) and calls:
        made = [_call(each, f"{number}_{n}") for n, each in enumerate(calls)]
        same = all(one is other for one, other in zip(made, calls, strict=True))
        return item if same else {**item, "tool_calls": made}
    if isinstance(call, Mapping) and item.get("role") == "assistant":
        rest = {key: value for key, value in item.items() if key != "function_call"}
        one = {"id": f"function_{number}", "type": "function", "function": call}
        return {**rest, "tool_calls": [_call(one, "")]}
    return item


def _simpler(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return only the call or the result of a message, with the rest as a text."""
    rest = {key: value for key, value in data.items() if key not in _GROUPED}
    if not data.get("tool_calls") and not isinstance(data.get("tool_call_id"), str):
        raise InvalidInput("it is neither a call nor a result")
    kept = {key: data[key] for key in _GROUPED if data.get(key)}
    return {**kept, "content": as_text(rest)}


_GROUPED = ("role", "tool_calls", "tool_call_id")


def _call(call: Any, made: str) -> Any:
    if not isinstance(call, Mapping):
        return call
    function = call.get("function")
    if isinstance(function, Mapping) and not isinstance(function.get("arguments"), str):
        call = {**call, "function": {**function, "arguments": function.get("arguments") or "{}"}}
    return call if isinstance(call.get("id"), str) else {**call, "id": f"call_{made}"}


def _written(messages: Sequence[Any], placed: Placed) -> Any:
    message = placed.message
    if placed.ref is None:
        told = {} if message.tool_call_id is None else {"tool_call_id": message.tool_call_id}
        return {"role": message.role, "content": message.text, **told}
    item = messages[placed.ref]
    data = dict(item)
    if placed.text is not None:
        data["content"] = with_parts(item.get("content"), placed, _text, _part)
    if placed.arguments and isinstance(item.get("function_call"), Mapping):
        data["function_call"] = _shorter(item["function_call"], message.tool_calls[0].arguments)
    elif placed.arguments:
        calls = zip(item["tool_calls"], message.tool_calls, strict=True)
        data["tool_calls"] = [_with_arguments(given, call.arguments) for given, call in calls]
    return data


def with_parts(
    content: Any,
    placed: Placed,
    text: Callable[[Any], str | None],
    made: Callable[[str], dict[str, Any]],
) -> Any:
    """Return the content of a message with its new text, in the form of the old content."""
    if not isinstance(content, list | tuple):
        return placed.text
    return with_texts(content, placed, text, lambda _: False, made) or placed.text


def _with_arguments(call: Mapping[str, Any], arguments: str) -> dict[str, Any]:
    key = "custom" if "custom" in call else "function"
    return {**call, key: _shorter(call[key], arguments)}


def _shorter(call: Mapping[str, Any], arguments: str) -> dict[str, Any]:
    return {**call, "input" if "input" in call else "arguments": arguments}


def _text(part: Any) -> str | None:
    text = part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None
    return text if isinstance(text, str) else None


def _part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _mark(
    messages: list[Any], fitted: Fitted, key: str, made: Callable[[str], dict[str, Any]]
) -> dict[str, Any]:
    """Mark the messages behind which to cache; return the options that belong to marks."""
    points = breakpoints(fitted)
    if not points:
        return {}
    for place, point in last_marks(points, MARKS - count_marks(messages, MARK)):
        at = next((n for n in range(place, -1, -1) if _markable(messages[n], key)), None)
        if at is not None:
            content = messages[at][key]
            parts = [made(content)] if isinstance(content, str) else list(content)
            if MARK not in parts[-1]:
                parts[-1] = {**parts[-1], MARK: mark(point)}
                messages[at] = {**messages[at], key: parts}
    return cache_options(fitted.window)


def _markable(message: Any, key: str) -> bool:
    content = message.get(key) if isinstance(message, Mapping) else None
    if not content or message.get("role") == "assistant":
        return False
    return isinstance(content, str) or (
        isinstance(content[-1], Mapping) and content[-1].get("type") != "refusal"
    )
