"""Writing: the items of a list that stay, unchanged; new items only where a text changed.

An item that must change is copied in its own form: a dict, an SDK's object, a message of Muntin.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import is_dataclass, replace
from typing import Any, Literal, TypeAlias

from muntin.core.forms import google, responses
from muntin.core.message import Message
from muntin.core.parts import Text, ToolCall, as_plain
from muntin.fitting.pieces import Placed
from muntin.fitting.reading import Ref, blocks_of, is_result, spans_of

Form: TypeAlias = Literal["chat", "responses", "anthropic", "google"]
_TEXTS = ("text", "input_text", "output_text")


def written(items: Sequence[Any], placed: Sequence[Placed]) -> list[Any]:
    """Return the placed items; an unchanged item is the same object."""
    found: list[Any] = []
    place = 0
    while place < len(placed):
        each = placed[place]
        if each.ref is None:
            found.append(_added(each, items, placed))
            place += 1
            continue
        ref: Ref = each.ref
        parts = []
        while place < len(placed) and _is_of(placed[place].ref, ref):
            parts.append(placed[place])
            place += 1
        found += _items(items, ref, parts)
    added = any(each.ref is None and each.message.tool_call_id for each in placed)
    return answered_together(found, items, _answers, _joined) if added else found


def answered_together(
    found: Sequence[Any],
    items: Sequence[Any],
    answers: Callable[[Any], bool],
    joined: Callable[[Any, Any], Any],
) -> list[Any]:
    """Put the results of the calls of one message into one message, for APIs that demand it; items
    that stood side by side before stay so.

    `answers` says whether an item holds results, `joined` makes one item from two.
    """
    given = {id(item) for item in items}
    made: list[Any] = []
    for item in found:
        new = made and not {id(made[-1]), id(item)} <= given
        if new and answers(made[-1]) and answers(item):
            made[-1] = joined(made[-1], item)
        else:
            made.append(item)
    return made


def _answers(item: Any) -> bool:
    return any(map(is_result, get(item, "parts") or ()))


def _joined(one: Any, other: Any) -> Any:
    # A dict may hold parts of both kinds, an SDK's object only its own.
    whole = one if isinstance(one, Mapping) else other
    return with_fields(whole, parts=[*get(one, "parts"), *get(other, "parts")])


def _is_of(ref: Ref | None, other: Ref) -> bool:
    return ref is not None and ref.first == other.first


def _items(items: Sequence[Any], ref: Ref, parts: Sequence[Placed]) -> Iterable[Any]:
    """Yield the items of one reference with their changes."""
    if ref.end - ref.first > 1:  # an answer of the Responses API
        (answer,) = parts
        for number in range(ref.first, ref.end):
            item = items[number]
            told = answer.arguments.get(get(item, "call_id"))
            key = responses.CALLS.get(get(item, "type"), "")
            yield item if told is None else with_fields(item, **{key: told})
        return
    item = items[ref.first]
    plain = item.__class__ is dict and item.get("content").__class__ is str
    if plain and parts[0].is_whole:
        yield item  # as for most items
        return
    spans = spans_of(item)
    if len(parts) == len(spans) and all(part.is_whole for part in parts):
        yield item
    elif len(spans) > 1 or spans[0]:
        yield _some_blocks(item, spans, parts)
    else:
        yield changed(item, parts[0])


def _some_blocks(item: Any, spans: Sequence[range], parts: Sequence[Placed]) -> Any:
    """Return an item with some of its blocks, results with their new texts."""
    blocks = blocks_of(item) or ()
    key = "parts" if get(item, "parts") is not None else "content"
    kept: list[Any] = []
    for part in parts:
        span = spans[part.ref.part]
        own = [blocks[number] for number in span]
        if part.text is None:
            kept += own
        elif part.message.role == "tool":
            kept.append(_result(own[0], part.text))
        else:
            kept += _said(own, part.message)
    return with_fields(item, **{key: kept})


def _result(block: Any, text: str) -> Any:
    """Return a block that is a result, with another text."""
    for key in ("function_response", "functionResponse"):
        inner = get(block, key)
        if inner is not None:
            return with_fields(block, **{key: with_fields(inner, response={"output": text})})
    return with_fields(block, content=text)


def _said(blocks: Sequence[Any], message: Message) -> list[Any]:
    """Return blocks with the texts of a message."""
    content = message.content
    parts = content if isinstance(content, tuple) else (Text(content or ""),)
    texts = [part.text for part in parts if isinstance(part, Text)]
    kept = []
    for block in blocks:
        if not is_text(block):
            kept.append(block)
        elif texts:
            kept.append(_with_text(block, texts.pop(0)))
    return kept


def is_text(block: Any) -> bool:
    """Say whether a block is only a text."""
    if isinstance(block, str):
        return True
    kind = get(block, "type")
    return kind in _TEXTS or (kind is None and isinstance(get(block, "text"), str))


def _with_text(block: Any, text: str) -> Any:
    if isinstance(block, str):
        return text
    return block if get(block, "text") == text else with_fields(block, text=text)


def changed(item: Any, placed: Placed) -> Any:
    """Return a copy of an item that means one message, with its changes."""
    if isinstance(item, Message):
        return placed.message
    if isinstance(item, str):
        return placed.text
    if isinstance(item, tuple) and len(item) == 2:
        return item[0], placed.text
    new: dict[str, Any] = {}
    if placed.text is not None:
        new = _new_content(item, placed)
    if placed.arguments:
        new |= _new_calls(item, placed)
    return with_fields(item, **new)


def _new_content(item: Any, placed: Placed) -> dict[str, Any]:
    blocks = blocks_of(item)
    if get(item, "output") is not None:
        data = as_plain(item)
        return {"output": responses.shorter_output(data, placed.text)}
    if blocks is None or placed.message.role == "tool":
        return {"content": placed.text}
    key = "parts" if get(item, "parts") is not None else "content"
    return {key: _said(blocks, placed.message)}


def _new_calls(item: Any, placed: Placed) -> dict[str, Any]:
    """Return the fields of an item that hold its calls, with their new arguments."""
    new: dict[str, Any] = {}
    told = [placed.arguments.get(call.id) for call in placed.message.tool_calls]
    given = get(item, "tool_calls")
    if given:
        new["tool_calls"] = [
            each if text is None else _with_arguments(each, text)
            for each, text in zip(given, _in_place(given, told), strict=True)
        ]
    legacy = get(item, "function_call")
    if legacy is not None and told and told[0] is not None:
        new["function_call"] = with_fields(legacy, arguments=told[0])
    blocks = blocks_of(item)
    if blocks is not None:
        key = "parts" if get(item, "parts") is not None else "content"
        left = list(told)
        new[key] = [_call_block(block, left, placed.arguments) for block in blocks]
    if get(item, "type") in responses.CALLS and told and told[0] is not None:
        new[responses.CALLS[get(item, "type")]] = told[0]
    return new


def _in_place(given: Sequence[Any], told: Sequence[str | None]) -> list[str | None]:
    """Return the new arguments of each call; a call with a repeated id was not read."""
    texts, seen = iter(told), set[Any]()
    found: list[str | None] = []
    for call in given:
        name = get(call, "id") or get(call, "call_id")
        found.append(None if name in seen else next(texts, None))
        seen |= {name} if name else set()
    return found


def _call_block(block: Any, left: list[str | None], known: Mapping[str, str]) -> Any:
    """Return a block of an assistant's message; a call with its new arguments."""
    for key in ("function_call", "functionCall"):
        inner = get(block, key)
        if inner is not None:
            text = left.pop(0) if left else None
            return block if text is None else with_fields(block, **{key: _with_args(inner, text)})
    text = known.get(get(block, "id"))
    if get(block, "type") in ("tool_use", "tool_call") and text is not None:
        return _with_args(block, text)
    return block


def _with_arguments(call: Any, text: str) -> Any:
    """Return a call of Chat Completions, or one of LangChain's, with other arguments."""
    for key, field in (("function", "arguments"), ("custom", "input")):
        inner = get(call, key)
        if inner is not None:
            same = not isinstance(get(inner, field), str) and get(inner, field) is not None
            told = json.loads(text) if same else text
            return with_fields(call, **{key: with_fields(inner, **{field: told})})
    return _with_args(call, text)


def _with_args(call: Any, text: str) -> Any:
    key = next((each for each in ("args", "input", "arguments") if _has(call, each)), "args")
    return with_fields(call, **{key: json.loads(text)})


def _added(placed: Placed, items: Sequence[Any], others: Sequence[Placed]) -> Any:
    """Return a message that Muntin adds, in the form of the items beside it."""
    message, text = placed.message, placed.message.text
    called = message.tool_call_id
    form = _form(items, others, called)
    if called is None:
        if form == "google":
            return {"role": "user", "parts": [{"text": text}]}
        return {"role": message.role, "content": text}
    if form == "anthropic":
        block = {"type": "tool_result", "tool_use_id": called, "content": text}
        return {"role": "user", "content": [block]}
    if form == "responses":
        kind = responses.result_type(_call(called, others))
        return {"type": kind, "call_id": called, "output": text}
    if form == "google":
        told = google.response(_call(called, others), text)
        return {"role": "user", "parts": [{"function_response": told}]}
    return {"role": "tool", "tool_call_id": called, "content": text}


def _call(called: str, placed: Sequence[Placed]) -> ToolCall:
    return next(call for each in placed for call in each.message.tool_calls if call.id == called)


def _form(items: Sequence[Any], placed: Sequence[Placed], called: str | None) -> Form:
    """Return the form of the item that makes a call; without such an item, of the first item."""
    for each in placed:
        if each.ref is None:
            continue
        if called is None or any(call.id == called for call in each.message.tool_calls):
            item = items[each.ref.first]
            if get(item, "parts") is not None:
                return "google"
            if each.ref.end - each.ref.first > 1 or get(item, "type") in responses.CALLS:
                return "responses"
            blocks = blocks_of(item) or ()
            made = any(get(block, "type") == "tool_use" for block in blocks)
            return "anthropic" if made and get(item, "type") != "ai" else "chat"
    return "chat"


def get(value: Any, key: str) -> Any:
    """Return a field of a dict or of an object, None if it has none."""
    return value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)


def _has(value: Any, key: str) -> bool:
    return key in value if isinstance(value, Mapping) else hasattr(value, key)


def with_fields(value: Any, **new: Any) -> Any:
    """Return a copy of a dict or an object with some fields replaced."""
    if not new:
        return value
    if isinstance(value, Mapping):
        return {**value, **new}
    if hasattr(value, "model_copy"):
        return value.model_copy(update=new)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **new)
    other = copy(value)
    for key, each in new.items():
        setattr(other, key, each)
    return other
