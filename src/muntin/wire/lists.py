"""Lists of messages in any form: read as pieces, and written with the pieces that stay."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import is_dataclass, replace
from itertools import groupby
from typing import Any, Literal, NamedTuple, TypeAlias

from muntin.core.checks import compact_json
from muntin.core.forms import joins_others, messages_from
from muntin.core.message import ROLES, Message, Role, role_of
from muntin.core.parts import Other, Text, ToolCall, as_plain
from muntin.errors import MuntinError
from muntin.wire import google, responses
from muntin.wire.lenient import made_id, normal, spelled_role
from muntin.wire.pieces import Piece, Pieces, Placed

# The marks of a block that is a result, in the forms of Anthropic and of Google.
_RESULTS = ("tool_result", "function_response", "functionResponse")


class Ref(NamedTuple):
    """Where a piece stands: in the items from `first` to `end`, of which it is the part `part`."""

    first: int
    end: int
    part: int = 0


class NotSingle(Exception):
    """An item is not one message, although each item was expected to be one."""


def pieces_of(items: Sequence[Any], *, single: bool = False) -> Pieces:
    """Return the pieces of a list, read when they are needed.

    All items are checked for several messages in one item, and several items in one message. With
    `single` each item is expected to be one message; reading another item raises `NotSingle`.
    """
    if single:
        reader = _Reader(items, None, single=True)
        return Pieces(range(len(items)), reader.read, role=reader.role)
    odd = [
        number
        for number, item in enumerate(items)
        if item.__class__ is not dict or item.get("content").__class__ is not str
    ]
    groups: Sequence[range] | None = None
    if any(joins_others(items[number]) for number in odd):
        groups = _groups(items)
    reader = _Reader(items, groups)
    if groups is None:
        several = {n: len(spans) for n in odd if len(spans := spans_of(items[n])) > 1}
        return Pieces(range(len(items)), reader.read, several=several, role=reader.role)
    counts = (len(spans_of(items[group[0]])) for group in groups)
    several = {n: count for n, count in enumerate(counts) if count > 1}
    return Pieces(range(len(groups)), reader.read, several=several, role=reader.role)


def piece(data: Any, ref: Any) -> Piece:
    """Return one item that means one message as a piece.

    A result that does not say which call it answers is read only in its list, by `pieces_of`.
    """
    found = _read([data], ref)
    return found[0] if len(found) == 1 else _opaque(data, ref, f"it means {len(found)} messages")


def spans_of(item: Any) -> list[range]:
    """Return the blocks of each piece of an item: each result is a piece, and all blocks between
    two results are one piece."""
    blocks = blocks_of(item)
    if blocks is None or not any(map(is_result, blocks)):
        return [range(0)]
    spans: list[range] = []
    for number, block in enumerate(blocks):
        if spans and not is_result(block) and not is_result(blocks[number - 1]):
            spans[-1] = range(spans[-1].start, number + 1)
        else:
            spans.append(range(number, number + 1))
    return spans


def blocks_of(item: Any) -> Sequence[Any] | None:
    """Return the content blocks of an item, None if it has none."""
    for key in ("content", "parts"):
        found = item.get(key) if isinstance(item, Mapping) else getattr(item, key, None)
        if isinstance(found, list | tuple):
            return found
    return None


def is_result(block: Any) -> bool:
    """Say whether a block is the result of a call."""
    if isinstance(block, Mapping):
        told = block.get("type") == _RESULTS[0]
        return told or any(block.get(key) is not None for key in _RESULTS[1:])
    told = getattr(block, "type", None) == _RESULTS[0]
    return told or getattr(block, _RESULTS[1], None) is not None


def _groups(items: Sequence[Any]) -> list[range]:
    """Return which items are read together: the items of one answer of the Responses API."""
    groups: list[range] = []
    for joins, run in groupby(range(len(items)), lambda number: joins_others(items[number])):
        numbers = list(run)
        if joins:
            groups.append(range(numbers[0], numbers[-1] + 1))
        else:
            groups += [range(number, number + 1) for number in numbers]
    return groups


class _Reader:
    """Reads the items of one list."""

    def __init__(
        self, items: Sequence[Any], groups: Sequence[range] | None, *, single: bool = False
    ) -> None:
        self._items = items
        self._groups = groups
        self._single = single
        # The calls of OpenAI's own tools that the list answers; None until first asked for.
        self._own: frozenset[str] | None = None

    def read(self, number: int, _: int) -> Sequence[Piece]:
        """Return the pieces of an item, or of items that are read together."""
        span = range(number, number + 1) if self._groups is None else self._groups[number]
        ref = Ref(span.start, span.stop)
        if len(span) > 1:
            return [self._answer(each) for each in _read([self._items[n] for n in span], ref)]
        item = self._items[span.start]
        if item.__class__ is dict and _answers_unnamed(item):
            item = {**item, "tool_call_id": self._call_id(span.start, item)}
        plain = item.__class__ is dict and item.get("content").__class__ is str
        count = 1 if plain else len(spans_of(item))
        if self._single and not plain and (count > 1 or joins_others(item)):
            raise NotSingle
        found = _read([item], ref)
        # An item that could not be read is one piece, whatever its content.
        missing = count - len(found)
        if self._groups is not None:
            found = [self._answer(each) for each in found]
        return [*found, *[Piece(Message("user"), ref)] * missing]

    def _answer(self, piece: Piece) -> Piece:
        """Return a piece with the calls of OpenAI's own tools, if it is an answer with some."""
        message = piece.message
        if message is None or message.role != "assistant":
            return piece
        if self._own is None:
            self._own = responses.own_answered(self._items)
        return piece._replace(message=responses.with_own_calls(message, self._own))

    def role(self, number: int) -> Role | None:
        """Return the role of an item, if it is known without reading it."""
        first = number if self._groups is None else self._groups[number].start
        item = self._items[first]
        if item.__class__ is not dict:
            return None
        role = spelled_role(item.get("role"))
        if role == "user" and item.get("content").__class__ is not str:
            return None  # the item may hold results
        return role

    def _call_id(self, number: int, item: Mapping[str, Any]) -> str:
        """Return the id of the call that a result without an id answers: of the calls right before
        it, the first with its name, else the call at its place."""
        owner = number - 1
        while owner >= 0 and role_of(self._items[owner]) in ("tool", "function"):
            owner -= 1
        found = self.read(owner, owner)[0].message if owner >= 0 and self._groups is None else None
        calls = found.tool_calls if found is not None else ()
        before = [self._items[each] for each in range(owner + 1, number)]
        name = item.get("name")
        same = [call for call in calls if call.name == name]
        place = sum(isinstance(each, Mapping) and each.get("name") == name for each in before)
        if not same:
            same, place = list(calls), len(before)
        return same[place].id if place < len(same) else made_id(str(name), "", place)


def _answers_unnamed(item: Mapping[str, Any]) -> bool:
    return item.get("role") in ("tool", "function") and not item.get("tool_call_id")


def _read(items: Sequence[Any], ref: Any) -> list[Piece]:
    """Return the pieces of items that are read together."""
    if len(items) == 1:
        item = items[0]
        message = item if isinstance(item, Message) else None
        if item.__class__ is dict:
            with suppress(MuntinError, KeyError, TypeError):
                message = _plain(item)
        if message is None:
            with suppress(MuntinError, TypeError, AttributeError):
                data = as_plain(item)
                message = responses.own_result(data) if isinstance(data, Mapping) else None
        if message is not None:
            return [Piece(message, ref)]
    try:
        found = [normal(each) for each in items]
        messages = messages_from([each for each, _ in found])
    except (MuntinError, RecursionError) as error:
        return [_opaque(items[0] if len(items) == 1 else list(items), ref, str(error))]
    repaired = any(each for _, each in found)
    if not messages:
        messages = [Message("user")]
    refs = [ref._replace(part=n) for n in range(len(messages))] if isinstance(ref, Ref) else None
    return [
        Piece(message, refs[n] if refs else ref, repaired=repaired)
        for n, message in enumerate(messages)
    ]


def _plain(item: dict[str, Any]) -> Message | None:
    """Return a plain message of Chat Completions, as most are; None for any other."""
    role, content = item.get("role"), item.get("content", item)
    if content.__class__ is not str and content is not None:
        return None
    if len(item) == 2 and role in ROLES and role != "tool":
        return Message(role, content)
    if len(item) != 3:
        return None
    if role == "tool" and item.get("tool_call_id"):
        return Message("tool", content, tool_call_id=item["tool_call_id"])
    if role == "assistant" and item.get("tool_calls").__class__ is list:
        calls = [(each["id"], each["function"]) for each in item["tool_calls"] if len(each) == 3]
        if len(calls) == len(item["tool_calls"]) and all(len(told) == 2 for _, told in calls):
            made = [ToolCall(name, told["name"], told["arguments"]) for name, told in calls]
            return Message("assistant", content, tool_calls=tuple(made))
    return None


def _opaque(item: Any, ref: Any, why: str) -> Piece:
    """Return an item that could not be read, in the role that it names, if any."""
    data = as_plain(item)
    told = data if isinstance(data, Mapping) else {}
    role: Any = spelled_role(told.get("role")) or "user"
    try:
        text = compact_json(data)
    except (TypeError, ValueError, RecursionError):
        text = repr(data)
    # Not a text that could be cut: the item is sent unchanged, or not at all.
    part = Other({"type": "unread", "value": text})
    called = told.get("tool_call_id")
    if role == "tool" and isinstance(called, str):
        return Piece(Message("tool", (part,), tool_call_id=called), ref, opaque=why)
    return Piece(Message("user" if role == "tool" else role, (part,)), ref, opaque=why)


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
