"""Reading: items in any form that is sent in practice, as pieces; never raises.

Owns how a list is divided into pieces. An item that cannot be read, even repaired, is an opaque
piece: it says why, and counts by its size. The reference of a piece is (first item, end of items,
part).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, NamedTuple

from muntin.core.checks import compact_json
from muntin.core.forms import joins_others, messages_from, responses
from muntin.core.message import ROLES, Message, Role, role_of
from muntin.core.parts import Other, ToolCall, as_plain
from muntin.errors import MuntinError
from muntin.fitting.pieces import Piece, Pieces
from muntin.fitting.repair import made_id, normal, spelled_role

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
