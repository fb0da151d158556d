"""Lists of messages in any form: read as pieces, and written with the pieces that stay."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from muntin.core.compaction import compaction_of, is_compaction
from muntin.core.counting.memo import FormMemo
from muntin.core.forms import joins_others
from muntin.core.message import ROLES, Message, Role, role_of
from muntin.core.parts import Other, as_plain
from muntin.core.standing import TYPES
from muntin.errors import InvalidInput, MuntinError
from muntin.wire import anthropic, chat, google, responses
from muntin.wire import blocks as shared
from muntin.wire.blocks import ItemFormat, Ref, merge_results
from muntin.wire.common import as_text, clean, get, with_fields
from muntin.wire.lenient import made_id, normal, spelled_role
from muntin.wire.pieces import Piece, Pieces, Placed
from muntin.wire.reading import read_messages

_UNREADABLE = (MuntinError, KeyError, TypeError, AttributeError, ValueError, RecursionError)


class NotSingle(Exception):
    """An item is not one message, although each item was expected to be one."""


def format_of(item: Any) -> ItemFormat:
    """Return how an item is written."""
    if get(item, "parts") is not None:
        return google.ITEM_FORMAT
    kind = get(item, "type")
    if isinstance(kind, str) and kind in responses.TYPES:
        return responses.ITEM_FORMAT
    content = get(item, "content")
    blocks = content if kind != "ai" and isinstance(content, list | tuple) else ()
    is_anthropic = any(anthropic.is_message_block(block) for block in blocks)
    return anthropic.ITEM_FORMAT if is_anthropic else chat.ITEM_FORMAT


def spans_of(item: Any) -> list[range]:
    """Return the blocks of each piece of an item: each result is a piece, and all blocks between
    two results are one piece."""
    item_format = format_of(item)
    return shared.spans_of(_blocks(item, item_format), item_format.is_result)


def _blocks(item: Any, item_format: ItemFormat) -> Sequence[Any]:
    blocks = get(item, item_format.key(item))
    return blocks if isinstance(blocks, list | tuple) else ()


# reading


def pieces_of(items: Sequence[Any], *, single: bool = False, mends: bool = True) -> Pieces:
    """Return the pieces of a list, read when they are needed.

    All items are checked for several messages in one item, and several items in one message. With
    `single` each item is expected to be one message; reading another item raises `NotSingle`.
    Unless the list `mends`, an item with half a character is sent unchanged.
    """
    if single:
        reader = _Reader(items, None, mends, single=True)
        return Pieces(range(len(items)), reader.read, role=reader.role, summary=reader.summary)
    odd = [
        number
        for number, item in enumerate(items)
        if item.__class__ is not dict or item.get("content").__class__ is not str
    ]
    groups: list[range] | None = None
    if any(joins_others(items[number]) for number in odd):
        groups = []
        for joins, run in groupby(range(len(items)), lambda number: joins_others(items[number])):
            numbers = list(run)
            if not joins:
                groups += [range(number, number + 1) for number in numbers]
                continue
            # A summary begins an answer: what stands before it leaves. What an app puts in stands
            # alone.
            ran = {get(items[n], "call_id") for n in numbers if get(items[n], "type") == "program"}
            alone = [n for n in numbers if _stands_alone(items[n], ran)]
            begins = {n for n in numbers if is_compaction(items[n])}
            begins |= {*alone, *[n + 1 for n in alone]}
            cuts = sorted(begins & {*numbers[1:]})
            ends = [*cuts, numbers[-1] + 1]
            groups += map(range, [numbers[0], *cuts], ends)
    reader = _Reader(items, groups, mends)
    heads = odd if groups is None else [group[0] for group in groups]
    several = {
        number: len(spans)
        for number, head in zip(odd if groups is None else range(len(heads)), heads, strict=True)
        if len(spans := spans_of(items[head])) > 1
    }
    count = len(items) if groups is None else len(groups)
    kinds = [get(item, "type") for item in items] if groups is not None else []
    has_standing = any(isinstance(kind, str) and kind in TYPES for kind in kinds)
    pieces = Pieces(
        range(count), reader.read, several=several, role=reader.role, summary=reader.summary
    )
    pieces.has_standing = has_standing
    if any(get(items[number], "parts") is not None for number in odd):
        for number in range(len(pieces)):  # ids of Google's calls are made in their order
            pieces[number]
    return pieces


# Items of an app that stand between answers.
_ALONE = ("additional_tools", "configuration_update")


def _stands_alone(item: Any, programs: Collection[Any]) -> bool:
    """Say whether an item is no part of the answer beside it, which ran these `programs`."""
    kind = get(item, "type")
    is_result = kind == "program_output" and get(item, "call_id") not in programs
    return is_result or kind in _ALONE


def piece(data: Any, ref: Any) -> Piece:
    """Return one item that means one message as a piece.

    A result that does not say which call it answers is read only in its list, by `pieces_of`.
    """
    return _Reader([data], None, mends=True).piece(data, ref)


class _Reader:
    """Reads the items of one list."""

    def __init__(
        self,
        items: Sequence[Any],
        groups: Sequence[range] | None,
        mends: bool,
        *,
        single: bool = False,
    ) -> None:
        self._items = items
        self._groups = groups
        self._mends = mends
        self._single = single
        self._ids = google.Ids()
        # The calls of OpenAI's own tools that the list answers; None until first asked for.
        self._own: frozenset[str] | None = None

    def read(self, number: int, _: int) -> Sequence[Piece]:
        """Return the pieces of an item, or of items that are read together."""
        span = range(number, number + 1) if self._groups is None else self._groups[number]
        ref = Ref(span.start, span.stop)
        item = self._items[span.start]
        if len(span) > 1:
            return [self._answer(self._repaired(self._piece([self._items[n] for n in span], ref)))]
        if item.__class__ is dict and item.get("content").__class__ is str:
            if item.get("role") in ("tool", "function") and not item.get("tool_call_id"):
                item = {**item, "tool_call_id": self._call_id(span.start, item)}
            return [self.piece(item, ref)]
        if item.__class__ is dict and _answers_unnamed(item):
            item = {**item, "tool_call_id": self._call_id(span.start, item)}
        spans = spans_of(item)
        if self._single and (len(spans) > 1 or joins_others(item) or get(item, "parts")):
            raise NotSingle
        if len(spans) == 1:
            piece = self.piece(item, ref)
            return [piece if self._groups is None else self._answer(piece)]
        data, key = as_plain(item), format_of(item).key(item)
        return [
            self.piece({**data, key: [data[key][n] for n in span]}, ref._replace(part=part))
            for part, span in enumerate(spans)
        ]

    def piece(self, item: Any, ref: Any) -> Piece:
        """Return an item that means one message, or a part of an item, as a piece."""
        if isinstance(item, Message):
            return Piece(item, ref)
        key = _key(item)
        cached = None if key is None else _messages.get(key)
        if cached is not None:
            return Piece(cached, ref)
        piece = self._piece([item], ref)
        if key is not None and piece.opaque is None and not piece.repaired:
            _messages.put(key, piece.message, 2 * sum([len(text or "") for text in key]))
        return self._repaired(piece)

    def _repaired(self, piece: Piece) -> Piece:
        return piece if self._mends or not piece.repaired else piece._replace(repaired=False)

    def _piece(self, items: Sequence[Any], ref: Any) -> Piece:
        """Read items that are one message."""
        try:
            if len(items) == 1 and (message := _quickly(items[0])) is not None:
                return Piece(message, ref)
            if len(items) == 1 and responses.is_own_result(items[0]):
                item = as_plain(items[0])
                cleaned = clean(item)
                return Piece(responses.own_result(cleaned), ref, repaired=cleaned != item)
            pairs = [normal(item) for item in items]
            data = [item for item, _ in pairs]
            message = _one(read_messages(data, ids=self._ids))
            return Piece(message, ref, repaired=any(cleaned for _, cleaned in pairs))
        except _UNREADABLE as error:
            why = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            why = why.removeprefix("message 0: ")  # the place is the list's
        with suppress(*_UNREADABLE):
            simpler = [normal(item)[0] for item in _simpler([as_plain(item) for item in items])]
            return Piece(_one(read_messages(simpler, ids=self._ids)), ref, opaque=why)
        return _opaque(items[0] if len(items) == 1 else list(items), ref, why)

    def _answer(self, piece: Piece) -> Piece:
        """Return a piece with the calls of OpenAI's own tools, if it is an answer with some."""
        message = piece.message
        if message is None or message.role != "assistant":
            return piece
        if self._own is None:
            groups = self._groups or ()
            alone = [self._items[group.start] for group in groups if len(group) == 1]
            self._own = responses.own_answered(alone)
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

    def summary(self, number: int) -> Any:
        """Return the provider's summary that an item holds, without reading the item."""
        first = number if self._groups is None else self._groups[number].start
        item = self._items[first]
        if item.__class__ is dict and item.get("content").__class__ is str:
            return None
        return compaction_of(item)

    def _call_id(self, number: int, item: Mapping[str, Any]) -> str:
        """Return the id of the call that a result without an id answers: of the unanswered calls
        right before it, the first with its name, else the first."""
        owner = number - 1
        while owner >= 0 and role_of(self._items[owner]) in ("tool", "function"):
            owner -= 1
        caller = self.read(owner, owner)[0].message if owner >= 0 and self._groups is None else None
        free = list(caller.tool_calls) if caller is not None else []
        for answer in (*self._items[owner + 1 : number], item):
            name, call_id = get(answer, "name"), get(answer, "tool_call_id")
            same = [
                call for call in free if call.id == call_id or (not call_id and call.name == name)
            ]
            answered = (same or ([] if call_id else free))[:1]
            free = [call for call in free if call not in answered]
        return answered[0].id if answered else made_id(str(item.get("name")), "", number - owner)


def _answers_unnamed(item: Mapping[str, Any]) -> bool:
    return item.get("role") in ("tool", "function") and not item.get("tool_call_id")


def _one(messages: Sequence[Message]) -> Message:
    if len(messages) > 1:
        raise InvalidInput(f"it means {len(messages)} messages")
    return messages[0] if messages else Message("user")


_PLAIN = frozenset({"role", "content", "tool_calls", "tool_call_id"})


def _quickly(item: Any) -> Message | None:
    """Read a message of Chat Completions whose content is a text, as most are; None for others."""
    if item.__class__ is dict and item.keys() <= _PLAIN and item.get("role") in ROLES:
        content = item.get("content")
        if content.__class__ is str or content is None:
            with suppress(MuntinError, TypeError):
                return Message.from_dict(item)
    return None


def _simpler(items: Sequence[Any]) -> list[Any]:
    """Return the calls and results of an item or of an answer, and the rest as a text."""
    if len(items) > 1:
        calls = [item for item in items if item.get("type") in responses.CALLS]
        rest = [item for item in items if item.get("type") not in responses.CALLS]
        text = {"type": "output_text", "text": as_text(rest)}
        return [{"type": "message", "content": [text]}, *calls]
    (item,) = items
    item_format = format_of(item)
    if isinstance(item.get("output"), list) and item.get("call_id"):
        return [{**item, "output": as_text(item["output"])}]
    blocks = _blocks(item, item_format)
    calls = [block for block in blocks if item_format.call(block) is not None]
    results = [
        item_format.with_result_text(block, as_text(block))
        for block in blocks
        if item_format.is_result(block)
    ]
    rest = [block for block in blocks if item_format.call(block) is None]
    if calls and rest:
        calls = [item_format.make_text(as_text(rest)), *calls]
    if not (results or calls):
        raise InvalidInput("it holds neither a call nor a result")
    return [{**item, item_format.key(item): results or calls}]


def _opaque(item: Any, ref: Any, why: str) -> Piece:
    """Return an item that could not be read, in the role that it names, if any."""
    data = as_plain(item)
    named = data if isinstance(data, Mapping) else {}
    role: Any = spelled_role(named.get("role")) or "user"
    # Not a text that could be cut: the item is sent unchanged, or not at all.
    part = Other({"type": "unread", "value": as_text(data)})
    called = named.get("tool_call_id")
    if role == "tool" and isinstance(called, str):
        return Piece(Message("tool", (part,), tool_call_id=called), ref, opaque=why)
    return Piece(Message("user" if role == "tool" else role, (part,)), ref, opaque=why)


# Most messages of a request were in the request before.
_messages = FormMemo(32_000_000)
_TEXTS = {str, type(None)}


def _key(item: Any) -> tuple[str | None, ...] | None:
    """Return a key that tells a message from all others; None where it depends on its list."""
    if item.__class__ is not dict or "parts" in item:
        return None
    role, content = item.get("role"), item.get("content", item)
    if len(item) == 2 and role.__class__ is content.__class__ is str:
        return role, content
    key = [role, content, item.get("tool_call_id")]
    size, calls = len(item), item.get("tool_calls")
    try:
        if size == 3 and calls.__class__ is list:
            for call in calls:
                function = call["function"]
                if len(call) != 3 or call["type"] != "function" or len(function) != 2:
                    return (json.dumps(item),)
                key += call["id"], function["name"], function["arguments"]
        elif size != 2 and (size != 3 or key[2] is None):
            return (json.dumps(item),)
        return tuple(key) if {*map(type, key)} <= _TEXTS else (json.dumps(item),)
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


# writing


def write_items(items: Sequence[Any], placed: Sequence[Placed]) -> list[Any]:
    """Return the placed items; an unchanged item is the same object."""
    new_items, _ = shared.write_items(items, placed, format_of)
    added = any(part.ref is None and part.message.tool_call_id for part in placed)
    return merge_results(new_items, items, _answers, _merge_messages) if added else new_items


def _answers(item: Any) -> bool:
    return any(map(google.ITEM_FORMAT.is_result, get(item, "parts") or ()))


def _merge_messages(one: Any, other: Any) -> Any:
    # A dict may hold parts of both kinds, an SDK's object only its own.
    whole = one if isinstance(one, Mapping) else other
    return with_fields(whole, parts=[*get(one, "parts"), *get(other, "parts")])
