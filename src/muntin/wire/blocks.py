"""Items with blocks, written back with the blocks that stay, shorter results and new arguments.

An item is a message, or an item of the Responses API: a dict or an SDK's object. Knows no vendor's
format; a `ItemFormat` does. Owns too how requests are put together whose turns alternate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from muntin.core.compaction import is_compaction
from muntin.core.message import Message
from muntin.core.parts import Text, ToolCall
from muntin.core.profile import OMITTED
from muntin.wire.common import get, with_fields
from muntin.wire.pieces import Placed

# The types of Claude's thoughts.
THINKING = ("thinking", "redacted_thinking")


class Ref(NamedTuple):
    """Where a piece stands: in the items from `first` to `end`, of which it is the part `part`."""

    first: int
    end: int
    part: int = 0


def place_of(ref: Any, number: int) -> int:
    """Return the place in its list of a piece; its own number where that is not known."""
    return ref.first if isinstance(ref, Ref) else number


def _nothing(item: Any, placed: Placed) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class ItemFormat:
    """How an API writes items.

    `key` is the field of an item's blocks, `model` the role of the model's messages. `call` returns
    what holds the id of a call, None for other blocks. `text` returns the text of a block that is
    only text. `stays` says which other blocks stay when a message has one text now. `make_text`
    makes a text, `with_result_text` gives a result another text, `with_arguments` a call other
    arguments. `beside` returns the changed fields beside the blocks. `make_item` makes an item of a
    message that Muntin adds, in a list of these items; a result comes with its call.
    """

    model: str
    is_result: Callable[[Any], bool]
    call: Callable[[Any], Any]
    text: Callable[[Any], str | None]
    stays: Callable[[Any], bool]
    make_text: Callable[[str], Any]
    with_result_text: Callable[[Any, str], Any]
    with_arguments: Callable[[Any, str], Any]
    make_item: Callable[[Message, ToolCall | None, Sequence[Any]], dict[str, Any]]
    key: Callable[[Any], str] = lambda item: "content"
    beside: Callable[[Any, Placed], Mapping[str, Any]] = _nothing

    def blocks(self, item: Any) -> Sequence[Any]:
        """Return the blocks of an item; a text is one block."""
        content = get(item, self.key(item))
        if isinstance(content, str):
            return [self.make_text(content)]
        return content if isinstance(content, list | tuple) else ()


def spans_of(blocks: Sequence[Any], is_result: Callable[[Any], bool]) -> list[range]:
    """Return the blocks of each piece of an item: each result is a piece, and all blocks between
    two results are one piece."""
    spans: list[range] = []
    for number, block in enumerate(blocks):
        if spans and not is_result(block) and not is_result(blocks[number - 1]):
            spans[-1] = range(spans[-1].start, number + 1)
        else:
            spans.append(range(number, number + 1))
    return spans or [range(0)]


def write_items(
    items: Sequence[Any],
    placed: Sequence[Placed],
    format_of: Callable[[Any], ItemFormat],
) -> tuple[list[Any], list[int]]:
    """Return the placed items, an unchanged item as the same object, and where head placed message
    ends among them. A message that is added is written as its call is, else as the first item."""
    new_items: list[Any] = []
    ends: list[int] = []
    callers: dict[str, tuple[ToolCall, ItemFormat]] = {}
    refs = [part.ref for part in placed if part.ref is not None]
    place = 0
    while place < len(placed):
        head = placed[place]
        ref: Ref | None = head.ref
        if ref is None:
            called = head.message.tool_call_id
            first = items[refs[0].first] if refs else None
            call, item_format = callers[called] if called else (None, format_of(first))
            new_items.append(item_format.make_item(head.message, call, items))
            ends.append(len(new_items))
            place += 1
            continue
        end = place + 1
        while end < len(placed) and placed[end].ref and placed[end].ref.first == ref.first:
            end += 1
        calls = [call for part in placed[place:end] for call in part.message.tool_calls]
        if calls:
            item_format = format_of(items[ref.first])
            callers |= {call.id: (call, item_format) for call in calls}
        if ref.end - ref.first > 1:
            part_items = [
                _with_calls(items[at], head, format_of) for at in range(ref.first, ref.end)
            ]
        else:
            part_items = [_rewrite_item(items[ref.first], placed[place:end], format_of)]
        new_items += part_items
        ends += [len(new_items)] * (end - place)
        place = end
    return new_items, ends


def _with_calls(item: Any, placed: Placed, format_of: Callable[[Any], ItemFormat]) -> Any:
    """Return an item of an answer of several items: its text is never cut."""
    if not placed.arguments:
        return item
    return with_fields(item, **format_of(item).beside(item, placed._replace(text=None)))


def _rewrite_item(
    item: Any, parts: Sequence[Placed], format_of: Callable[[Any], ItemFormat]
) -> Any:
    """Return an item with these parts of it, as they are now."""
    content = item.get("content") if item.__class__ is dict else None
    if content.__class__ is str and parts[0].is_whole:
        return item  # as for most items
    placed = parts[0]
    if isinstance(item, Message):
        return item if placed.is_whole else placed.message
    if isinstance(item, str):
        return item if placed.is_whole else placed.text
    item_format = format_of(item)
    blocks = get(item, item_format.key(item))
    spans = [range(0)]
    if isinstance(blocks, list | tuple):
        spans = spans_of(blocks, item_format.is_result)
    if len(parts) == len(spans) and all(part.is_whole for part in parts):
        return item
    if isinstance(item, tuple):
        return item[0], placed.text
    new: dict[str, Any] = {}
    if isinstance(blocks, list | tuple):
        blocks_left = [
            block
            for part in parts
            for block in reshape_blocks(
                [blocks[n] for n in spans[part.ref.part]], part, item_format
            )
        ]
        new = {item_format.key(item): blocks_left or (placed.text or [])}
    elif placed.text is not None:
        new = {item_format.key(item): placed.text}
    return with_fields(item, **{**new, **item_format.beside(item, placed)})


def reshape_blocks(blocks: list[Any], placed: Placed, item_format: ItemFormat) -> list[Any]:
    """Return the blocks of a piece with their new texts and arguments."""
    if placed.is_bare:
        blocks = [block for block in blocks if get(block, "type") not in THINKING]
    if placed.arguments:
        held = [item_format.call(block) for block in blocks]
        texts = iter(new_arguments([text for text in held if text is not None], placed))
        new = [None if text is None else next(texts) for text in held]
        blocks = [
            block if text is None else item_format.with_arguments(block, text)
            for block, text in zip(blocks, new, strict=True)
        ]
    if placed.text is None:
        return blocks
    if len(blocks) == 1 and item_format.is_result(blocks[0]):
        return [item_format.with_result_text(blocks[0], placed.text)]
    content = placed.message.content
    texts_now = [placed.text]
    several = False
    if isinstance(content, tuple):
        part_texts = [part.text for part in content if isinstance(part, Text)]
        several = len(part_texts) == sum(item_format.text(block) is not None for block in blocks)
        texts_now = part_texts if several else texts_now
    new_blocks: list[Any] = []
    for block in blocks:
        was = item_format.text(block)
        if was is not None:
            now = texts_now.pop(0) if texts_now else ""
            if now.strip():
                new_blocks.append(block if now == was else _with_text(block, now))
        elif several or item_format.stays(block):
            new_blocks.append(block)
    return [*new_blocks, *(item_format.make_text(text) for text in texts_now if text.strip())]


def _with_text(block: Any, text: str) -> Any:
    return text if isinstance(block, str) else with_fields(block, text=text)


def new_arguments(held: Sequence[Any], placed: Placed) -> list[str | None]:
    """Return the new arguments of each call of an item, None where they are unchanged.

    Calls are known by their ids; of calls with one id only the first was read, and calls without an
    id stand in the order of the message's others.
    """
    ids = [get(call, "id") or get(call, "call_id") for call in held]
    unnamed = iter([call.id for call in placed.message.tool_calls if call.id not in ids])
    new_texts: list[str | None] = []
    for number, name in enumerate(ids):
        call_id = name or next(unnamed, "")
        new_texts.append(None if name and name in ids[:number] else placed.arguments.get(call_id))
    return new_texts


def merge_results(
    new_items: Sequence[Any],
    items: Sequence[Any],
    answers: Callable[[Any], bool],
    joined: Callable[[Any, Any], Any],
) -> list[Any]:
    """Put the results of the calls of one message into one message, for APIs that demand it; items
    that stood side by side before stay so.

    `answers` says whether an item holds results, `joined` makes one item from two.
    """
    item_ids = {id(item) for item in items}
    merged: list[Any] = []
    for item in new_items:
        new = merged and not {id(merged[-1]), id(item)} <= item_ids
        if new and answers(merged[-1]) and answers(item):
            merged[-1] = joined(merged[-1], item)
        else:
            merged.append(item)
    return merged


# requests whose turns alternate


@dataclass(slots=True)
class Turn:
    """A message of the new request.

    `source` is the message it was made from, None if it was added. `whole` says that its blocks are
    the first blocks of that message. `ends` says for each placed message where its blocks end here.
    """

    role: str
    source: int | None
    blocks: list[Any]
    whole: bool = False
    ends: list[tuple[int, int]] = field(default_factory=list)


def turns(messages: Sequence[Any], placed: Sequence[Placed], item_format: ItemFormat) -> list[Turn]:
    """Return the kept messages, which alternate wherever the messages of the request did."""
    new_turns: list[Turn] = []
    calls: dict[str, ToolCall] = {}
    for place, part in enumerate(placed):
        calls |= {call.id: call for call in part.message.tool_calls}
        first = 0
        if part.ref is None:
            turn = _make_turn(part.message, calls, messages, item_format)
        else:
            turn, first = _turn_of(messages[part.ref.first], part, item_format)
        _add(new_turns, turn, first, item_format)
        if new_turns:
            new_turns[-1].ends.append((place, len(new_turns[-1].blocks)))
    return new_turns


def _make_turn(
    message: Message,
    calls: Mapping[str, ToolCall],
    messages: Sequence[Any],
    item_format: ItemFormat,
) -> Turn:
    role = item_format.model if message.role == "assistant" else "user"
    if message.tool_call_id is not None:
        item = item_format.make_item(message, calls[message.tool_call_id], messages)
        return Turn(role, None, list(item_format.blocks(item)))
    return Turn(role, None, [item_format.make_text(message.text)] if message.text.strip() else [])


def _turn_of(message: Any, placed: Placed, item_format: ItemFormat) -> tuple[Turn, int]:
    """Return a piece of a message as a turn, and where its blocks began."""
    at = placed.ref.first
    if not isinstance(message, Mapping):
        return Turn("?", at, [message], whole=True), 0
    role = str(message.get("role", "user"))
    item_blocks = item_format.blocks(message)
    span = spans_of(item_blocks, item_format.is_result)[placed.ref.part]
    blocks = [item_blocks[number] for number in span]
    if not placed.is_whole:
        blocks = reshape_blocks(blocks, placed, item_format)
    return Turn(role, at, blocks, whole=placed.is_whole), span.start


def _add(turns: list[Turn], turn: Turn, first: int, item_format: ItemFormat) -> None:
    last = turns[-1] if turns else None
    is_answer = turn.role == item_format.model
    if not turn.blocks and not turn.whole:
        return
    if last is not None and turn.source is not None and last.source == turn.source:
        last.whole = last.whole and turn.whole and len(last.blocks) == first
        last.blocks += turn.blocks
        return
    turn.whole = turn.whole and first == 0
    if last is None or last.role != turn.role:
        is_lead = is_compaction(turn.blocks[0]) if turn.blocks else False
        if is_answer and last is None and turn.source != 0 and not is_lead:
            turns.append(_omission_turn(item_format))
        turns.append(turn)
    elif turn.source is not None and last.source == turn.source - 1:
        turns.append(turn)  # they stood so in the request
    elif is_answer:  # thoughts of two answers cannot stand in one turn
        turns += [_omission_turn(item_format), turn]
    else:
        last.blocks += turn.blocks
        last.source, last.whole = turn.source, False


def _omission_turn(item_format: ItemFormat) -> Turn:
    return Turn("user", None, [item_format.make_text(OMITTED.text)])


def write_turns(
    messages: Sequence[Any], turns: Iterable[Turn], item_format: ItemFormat
) -> list[Any]:
    """Return the messages of the request; messages that stay whole are the same objects."""
    new_messages: list[Any] = []
    for turn in turns:
        message = {"role": turn.role} if turn.source is None else messages[turn.source]
        if not isinstance(message, Mapping):
            new_messages.append(message)
            continue
        blocks, key = item_format.blocks(message), item_format.key(message)
        if turn.whole and len(blocks) == len(turn.blocks):
            new_messages.append(message)
        elif isinstance(message.get(key), str) and _is_plain(turn.blocks, item_format):
            new_messages.append({**message, key: item_format.text(turn.blocks[0])})
        else:
            new_messages.append({**message, key: turn.blocks})
    return new_messages


def _is_plain(blocks: Sequence[Any], item_format: ItemFormat) -> bool:
    return len(blocks) == 1 and blocks[0].keys() == item_format.make_text("").keys()
