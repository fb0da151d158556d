"""Requests of OpenAI's Responses API: read as pieces, written with the kept pieces.

https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from muntin.core.forms import responses as form
from muntin.core.message import Message, Role
from muntin.core.parts import ToolCall, as_plain
from muntin.errors import InvalidInput
from muntin.fitting.pieces import Fitted, Piece, Placed
from muntin.fitting.requests.common import (
    Body,
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
    text_of,
    tools_of,
    with_texts,
)
from muntin.providers.wire.chat_request import MARK, MARKS, cache_options, mark

_TEXTS = ("input_text", "output_text", "text")
# Fields that say that OpenAI keeps the rest of the conversation.
_ELSEWHERE = ("previous_response_id", "conversation", "prompt")


class Ref(NamedTuple):
    """Items of a request that are one message: the index of the first, and where they end."""

    first: int
    end: int


def read(body: Body) -> Request:
    """Read the body of a request."""
    given = body.get("input")
    items = [given] if isinstance(given, str) else listed(body, "input", "a request of Responses")
    told = text_of(body.get("instructions"))
    system = [] if told is None else [read_piece(_system, told, None, "system").message]
    kept = next((key for key in _ELSEWHERE if body.get(key)), None)
    return Request(
        _pieces(items),
        system=tuple(each for each in system if each is not None),
        tools=tools_of(body),
        model=named("openai", body.get("model")),
        user=text_of(body.get("safety_identifier")) or text_of(body.get("user")),
        passes=None if kept is None else f"the rest of the conversation is at OpenAI ({kept!r})",
        output=inside(body, "text", "format", "schema"),
    )


def write(body: Body, fitted: Fitted) -> dict[str, Any]:
    """Return the request with the kept messages, marked where it may be cached."""
    given = body["input"]
    items: list[Any] = []
    ends: list[int] = []
    calls: dict[str, ToolCall] = {}
    for placed in fitted.placed:
        calls |= {call.id: call for call in placed.message.tool_calls}
        items += _written([given] if isinstance(given, str) else given, placed, calls)
        ends.append(len(items))
    options = {key: each for key, each in _mark(items, ends, fitted).items() if key not in body}
    sent = items[0] if isinstance(given, str) and [str] == [type(each) for each in items] else items
    return {**body, **options, "input": sent}


def _system(text: str) -> Message:
    return Message("system", text)


def _pieces(items: Sequence[Any]) -> list[Piece]:
    """Read the items of a request: the items of one answer are one message."""
    found: list[Piece] = []
    first, own = 0, form.own_answered(items)
    while first < len(items):
        end = first
        while end < len(items) and _is_output(items[end]):
            end += 1
        if end > first:
            part = list(items[first:end])
            said = read_piece(_answer, part, Ref(first, end), "assistant", _calls_of)
            if own and said.message is not None:
                said = said._replace(message=form.with_own_calls(said.message, own))
            found.append(said)
            first = end
            continue
        found.append(_piece(items[first], Ref(first, first + 1)))
        first += 1
    return found


def _is_output(item: Any) -> bool:
    try:
        return isinstance(item, Mapping) and form.is_output(item)
    except (TypeError, AttributeError):
        return False


def _answer(items: Sequence[Mapping[str, Any]]) -> Message:
    # If nothing is kept at OpenAI, reasoning is sent without its id.
    given = [{"id": "", **item} if item["type"] == "reasoning" else item for item in items]
    for item in given:
        form.check(item)
    return form.answer(given)


def _calls_of(items: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the calls of an answer, and the rest as a text."""
    rest = [item for item in items if item["type"] not in form.CALLS]
    said = {"type": "message", "content": [{"type": "output_text", "text": as_text(rest)}]}
    return [said, *(item for item in items if item["type"] in form.CALLS)]


def _piece(item: Any, ref: Ref) -> Piece:
    role: Role = "user"
    if isinstance(item, Mapping):
        if item.get("type") in form.RESULTS:
            key = key_of("responses", item)
            return read_piece(form.result, item, ref, "user", _as_output, key)
        result = form.own_result(item)
        if result is not None:
            return Piece(result, ref)
        if item.get("role") != "user":  # an unknown item was made by the model, or by its tools
            role = "assistant"
    return read_piece(_said, item, ref, role, None, key_of("responses", item))


def _as_output(item: Mapping[str, Any]) -> dict[str, Any]:
    return {**item, "output": as_text(item.get("output"))}


def _said(item: Any) -> Message:
    if isinstance(item, str):
        return Message("user", item)
    if not isinstance(item, Mapping) or "role" not in item:
        kind = item.get("type") if isinstance(item, Mapping) else type(item).__name__
        raise InvalidInput(f"an item of type {kind!r} is not known")
    content = item.get("content")
    if not isinstance(content, str | list | tuple):
        raise InvalidInput(f"its content is a {type(content).__name__}")
    return Message.from_dict(form.as_input(as_plain(item)))


def _written(items: Sequence[Any], placed: Placed, calls: Mapping[str, ToolCall]) -> list[Any]:
    message = placed.message
    if placed.ref is None:
        called = message.tool_call_id
        if called is not None:
            kind = form.result_type(calls[called])
            return [{"type": kind, "call_id": called, "output": message.text}]
        return [{"role": message.role, "content": message.text}] if message.text else []
    kept = list(items[placed.ref.first : placed.ref.end])
    if placed.is_whole:
        return kept
    kept = [_shorter(item, placed) for item in kept]
    if placed.text is None:
        return kept
    if message.role == "assistant" and len(kept) > 1:
        return kept  # the text of an answer is never cut
    return [_with_text(kept[0], placed)]


def _shorter(item: Any, placed: Placed) -> Any:
    """Return a call with its new arguments."""
    key = form.CALLS.get(str(item.get("type"))) if isinstance(item, Mapping) else None
    arguments = placed.arguments.get(str(item.get("call_id"))) if key is not None else None
    return item if key is None or arguments is None else {**item, key: arguments}


def _with_text(item: Any, placed: Placed) -> Any:
    if isinstance(item, str):
        return placed.text
    key = "output" if "output" in item else "content"
    content = item.get(key)
    if item.get("type") not in form.RESULTS and key == "output":
        return {**item, key: form.shorter_output(item, placed.text)}
    if not isinstance(content, list | tuple):
        return {**item, key: placed.text}
    parts = with_texts(content, placed, _text, lambda _: False, _part)
    return {**item, key: parts or placed.text}


def _text(part: Any) -> str | None:
    text = part.get("text") if isinstance(part, Mapping) and part.get("type") in _TEXTS else None
    return text if isinstance(text, str) else None


def _part(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


def _mark(items: list[Any], ends: Sequence[int], fitted: Fitted) -> dict[str, Any]:
    """Mark the items behind which to cache; return the options that belong to marks."""
    points = breakpoints(fitted)
    if not points:
        return {}
    for place, point in last_marks(points, MARKS - count_marks(items, MARK)):
        end = ends[place] if place >= 0 else 0
        at = next((n for n in range(end - 1, -1, -1) if _markable(items[n])), None)
        if at is None:
            continue
        item = (
            items[at] if isinstance(items[at], Mapping) else {"role": "user", "content": items[at]}
        )
        key = "output" if "output" in item else "content"
        parts = [_part(item[key])] if isinstance(item[key], str) else list(item[key])
        if MARK not in parts[-1]:
            parts[-1] = {**parts[-1], MARK: mark(point)}
            items[at] = {**item, key: parts}
    return cache_options(fitted.window)


def _markable(item: Any) -> bool:
    if isinstance(item, str):
        return bool(item)
    if not isinstance(item, Mapping):
        return False
    told = item.get("role") in ("user", "system", "developer")
    content: Any = item.get("output" if item.get("type") in form.RESULTS else "content")
    if not content or not (told or item.get("type") in form.RESULTS):
        return False
    return isinstance(content, str) or isinstance(content[-1], Mapping)
