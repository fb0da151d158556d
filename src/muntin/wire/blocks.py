"""Items with blocks, written back with the blocks that stay, shorter results and new arguments.

An item is a message, or an item of the Responses API: a dict or an SDK's object. Knows no vendor's
format; a `Spelling` does. Owns too how requests are put together whose turns alternate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from muntin.core.message import Message
from muntin.core.parts import Text, ToolCall
from muntin.core.profile import OMITTED
from muntin.wire.common import get, with_fields
from muntin.wire.pieces import Placed


class Ref(NamedTuple):
    """Where a piece stands: in the items from `first` to `end`, of which it is the part `part`."""

    first: int
    end: int
    part: int = 0


def _nothing(item: Any, placed: Placed) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class Spelling:
    """How an API writes items.

    `key` is the field of an item's blocks, `model` the role of the model's messages. `call` returns
    what holds the id of a call, None for other blocks. `text` returns the text of a block that is
    only text. `stays` says which other blocks stay when a message has one text now. `said` makes a
    text, `answered` gives a result another text, `called` a call other arguments. `beside` returns
    the changed fields beside the blocks. `added` makes an item of a message that Muntin adds, in a
    list of these items; a result comes with its call.
    """

    model: str
    is_result: Callable[[Any], bool]
    call: Callable[[Any], Any]
    text: Callable[[Any], str | None]
    stays: Callable[[Any], bool]
    said: Callable[[str], Any]
    answered: Callable[[Any, str], Any]
    called: Callable[[Any, str], Any]
    added: Callable[[Message, ToolCall | None, Sequence[Any]], dict[str, Any]]
    key: Callable[[Any], str] = lambda item: "content"
    beside: Callable[[Any, Placed], Mapping[str, Any]] = _nothing

    def blocks(self, item: Any) -> Sequence[Any]:
        """Return the blocks of an item; a text is one block."""
        content = get(item, self.key(item))
        if isinstance(content, str):
            return [self.said(content)]
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


def written(
    items: Sequence[Any],
    placed: Sequence[Placed],
    spelling_of: Callable[[Any], Spelling],
) -> tuple[list[Any], list[int]]:
    """Return the placed items, an unchanged item as the same object, and where each placed message
    ends among them. A message that is added is written as its call is, else as the first item."""
    found: list[Any] = []
    ends: list[int] = []
    callers: dict[str, tuple[ToolCall, Spelling]] = {}
    refs = [each.ref for each in placed if each.ref is not None]
    place = 0
    while place < len(placed):
        each = placed[place]
        ref: Ref | None = each.ref
        if ref is None:
            called = each.message.tool_call_id
            first = items[refs[0].first] if refs else None
            call, spelling = callers[called] if called else (None, spelling_of(first))
            found.append(spelling.added(each.message, call, items))
            ends.append(len(found))
            place += 1
            continue
        end = place + 1
        while end < len(placed) and placed[end].ref and placed[end].ref.first == ref.first:
            end += 1
        calls = [call for part in placed[place:end] for call in part.message.tool_calls]
        if calls:
            spelling = spelling_of(items[ref.first])
            callers |= {call.id: (call, spelling) for call in calls}
        if ref.end - ref.first > 1:
            kept = [_with_calls(items[at], each, spelling_of) for at in range(ref.first, ref.end)]
        else:
            kept = [_rewritten(items[ref.first], placed[place:end], spelling_of)]
        found += kept
        ends += [len(found)] * (end - place)
        place = end
    return found, ends


def _with_calls(item: Any, placed: Placed, spelling_of: Callable[[Any], Spelling]) -> Any:
    """Return an item of an answer of several items: its text is never cut."""
    if not placed.arguments:
        return item
    return with_fields(item, **spelling_of(item).beside(item, placed._replace(text=None)))


def _rewritten(item: Any, parts: Sequence[Placed], spelling_of: Callable[[Any], Spelling]) -> Any:
    """Return an item with these parts of it, as they are now."""
    content = item.get("content") if item.__class__ is dict else None
    if content.__class__ is str and parts[0].is_whole:
        return item  # as for most items
    placed = parts[0]
    if isinstance(item, Message):
        return item if placed.is_whole else placed.message
    if isinstance(item, str):
        return item if placed.is_whole else placed.text
    spelling = spelling_of(item)
    blocks = get(item, spelling.key(item))
    spans = [range(0)]
    if isinstance(blocks, list | tuple):
        spans = spans_of(blocks, spelling.is_result)
    if len(parts) == len(spans) and all(part.is_whole for part in parts):
        return item
    if isinstance(item, tuple):
        return item[0], placed.text
    new: dict[str, Any] = {}
    if isinstance(blocks, list | tuple):
        kept = [
            block
            for part in parts
            for block in reshaped([blocks[n] for n in spans[part.ref.part]], part, spelling)
        ]
        new = {spelling.key(item): kept or (placed.text or [])}
    elif placed.text is not None:
        new = {spelling.key(item): placed.text}
    return with_fields(item, **{**new, **spelling.beside(item, placed)})


def reshaped(blocks: list[Any], placed: Placed, spelling: Spelling) -> list[Any]:
    """Return the blocks of a piece with their new texts and arguments."""
    if placed.arguments:
        held = [spelling.call(block) for block in blocks]
        texts = iter(new_arguments([each for each in held if each is not None], placed))
        new = [None if each is None else next(texts) for each in held]
        blocks = [
            block if text is None else spelling.called(block, text)
            for block, text in zip(blocks, new, strict=True)
        ]
    if placed.text is None:
        return blocks
    if len(blocks) == 1 and spelling.is_result(blocks[0]):
        return [spelling.answered(blocks[0], placed.text)]
    content = placed.message.content
    texts_now = [placed.text]
    several = False
    if isinstance(content, tuple):
        own = [part.text for part in content if isinstance(part, Text)]
        several = len(own) == sum(spelling.text(block) is not None for block in blocks)
        texts_now = own if several else texts_now
    found: list[Any] = []
    for block in blocks:
        was = spelling.text(block)
        if was is not None:
            now = texts_now.pop(0) if texts_now else ""
            if now.strip():
                found.append(block if now == was else _with_text(block, now))
        elif several or spelling.stays(block):
            found.append(block)
    return [*found, *(spelling.said(text) for text in texts_now if text.strip())]


def _with_text(block: Any, text: str) -> Any:
    return text if isinstance(block, str) else with_fields(block, text=text)


def new_arguments(held: Sequence[Any], placed: Placed) -> list[str | None]:
    """Return the new arguments of each call of an item, None where they are unchanged.

    Calls are known by their ids; of calls with one id only the first was read, and calls without an
    id stand in the order of the message's others.
    """
    ids = [get(call, "id") or get(call, "call_id") for call in held]
    unnamed = iter([call.id for call in placed.message.tool_calls if call.id not in ids])
    found: list[str | None] = []
    for number, name in enumerate(ids):
        known = name or next(unnamed, "")
        found.append(None if name and name in ids[:number] else placed.arguments.get(known))
    return found


def joined_results(
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


def turns(messages: Sequence[Any], placed: Sequence[Placed], spelling: Spelling) -> list[Turn]:
    """Return the kept messages, which alternate wherever the messages of the request did."""
    made: list[Turn] = []
    calls: dict[str, ToolCall] = {}
    for place, each in enumerate(placed):
        calls |= {call.id: call for call in each.message.tool_calls}
        first = 0
        if each.ref is None:
            turn = _added(each.message, calls, messages, spelling)
        else:
            turn, first = _kept(messages[each.ref.first], each, spelling)
        _add(made, turn, first, spelling)
        if made:
            made[-1].ends.append((place, len(made[-1].blocks)))
    return made


def _added(
    message: Message, calls: Mapping[str, ToolCall], messages: Sequence[Any], spelling: Spelling
) -> Turn:
    role = spelling.model if message.role == "assistant" else "user"
    if message.tool_call_id is not None:
        item = spelling.added(message, calls[message.tool_call_id], messages)
        return Turn(role, None, list(spelling.blocks(item)))
    return Turn(role, None, [spelling.said(message.text)] if message.text.strip() else [])


def _kept(message: Any, placed: Placed, spelling: Spelling) -> tuple[Turn, int]:
    """Return a piece of a message as a turn, and where its blocks began."""
    at = placed.ref.first
    if not isinstance(message, Mapping):
        return Turn("?", at, [message], whole=True), 0
    role = str(message.get("role", "user"))
    given = spelling.blocks(message)
    span = spans_of(given, spelling.is_result)[placed.ref.part]
    blocks = [given[number] for number in span]
    if not placed.is_whole:
        blocks = reshaped(blocks, placed, spelling)
    return Turn(role, at, blocks, whole=placed.is_whole), span.start


def _add(made: list[Turn], turn: Turn, first: int, spelling: Spelling) -> None:
    last = made[-1] if made else None
    own = turn.role == spelling.model
    if not turn.blocks and not turn.whole:
        return
    if last is not None and turn.source is not None and last.source == turn.source:
        last.whole = last.whole and turn.whole and len(last.blocks) == first
        last.blocks += turn.blocks
        return
    turn.whole = turn.whole and first == 0
    if last is None or last.role != turn.role:
        if own and last is None and turn.source != 0:
            made.append(_omitted(spelling))
        made.append(turn)
    elif turn.source is not None and last.source == turn.source - 1:
        made.append(turn)  # they stood so in the request
    elif own:  # thoughts of two answers cannot stand in one turn
        made += [_omitted(spelling), turn]
    else:
        last.blocks += turn.blocks
        last.source, last.whole = turn.source, False


def _omitted(spelling: Spelling) -> Turn:
    return Turn("user", None, [spelling.said(OMITTED.text)])


def in_turns(messages: Sequence[Any], made: Iterable[Turn], spelling: Spelling) -> list[Any]:
    """Return the messages of the request; messages that stay whole are the same objects."""
    found: list[Any] = []
    for turn in made:
        message = {"role": turn.role} if turn.source is None else messages[turn.source]
        if not isinstance(message, Mapping):
            found.append(message)
            continue
        given, key = spelling.blocks(message), spelling.key(message)
        if turn.whole and len(given) == len(turn.blocks):
            found.append(message)
        elif isinstance(message.get(key), str) and _is_plain(turn.blocks, spelling):
            found.append({**message, key: spelling.text(turn.blocks[0])})
        else:
            found.append({**message, key: turn.blocks})
    return found


def _is_plain(blocks: Sequence[Any], spelling: Spelling) -> bool:
    return len(blocks) == 1 and blocks[0].keys() == spelling.said("").keys()
