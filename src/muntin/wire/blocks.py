"""Requests whose messages hold blocks, results among them: Anthropic's and Google's.

Owns which blocks are one message of Muntin's, and how a request is put together from the blocks
that stay: roles alternate wherever they did, and the user begins. Knows no vendor's format; a
`Spelling` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from muntin.core.message import Message, Role
from muntin.core.parts import ToolCall
from muntin.core.profile import OMITTED
from muntin.errors import InvalidInput
from muntin.wire.pieces import Piece, Placed
from muntin.wire.requests import as_text, key_of, read_piece, with_texts

Block: TypeAlias = Mapping[str, Any]


class Ref(NamedTuple):
    """Blocks of a request: the index of their message, of the first block, and where they end."""

    message: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Spelling:
    """How an API writes messages of blocks.

    With a `name`, messages mean the same wherever they stand. `key` is the field of a message's
    blocks, `model` the role of the model's messages. `text` returns the text of a block that is
    only text, `said` makes such a block. `answered` gives a result another text, `called` a call
    other arguments, `result` makes the result of a call. `made` says which blocks of an answer stay
    whatever its text is.
    """

    name: str | None
    key: str
    model: str
    is_result: Callable[[Block], bool]
    is_call: Callable[[Block], bool]
    made: Callable[[Block], bool]
    text: Callable[[Block], str | None]
    said: Callable[[str], dict[str, Any]]
    answered: Callable[[Block, str], dict[str, Any]]
    called: Callable[[Block, ToolCall], dict[str, Any]]
    result: Callable[[Message, ToolCall], dict[str, Any]]
    read: Callable[[Mapping[str, Any]], Message]

    def blocks(self, message: Mapping[str, Any]) -> Sequence[Any]:
        """Return the blocks of a message; a text is one block."""
        content = message.get(self.key)
        if isinstance(content, str):
            return [self.said(content)]
        return content if isinstance(content, list | tuple) else ()


def pieces(messages: Sequence[Any], spelling: Spelling) -> list[Piece]:
    """Read the messages of a request: each result is a piece, and so are the blocks between."""
    found: list[Piece] = []
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            found.append(read_piece(spelling.read, message, Ref(index, 0, 0)))
            continue
        role: Role = "assistant" if message.get("role") == spelling.model else "user"
        for first, end in _runs(message, spelling):
            part = message
            if not isinstance(message.get(spelling.key), str):
                part = {**message, spelling.key: list(spelling.blocks(message)[first:end])}
            ref = Ref(index, first, end)
            simpler = partial(_simpler, spelling)
            key = None if spelling.name is None else key_of(spelling.name, part)
            found.append(read_piece(spelling.read, part, ref, role, simpler, key))
    return found


def _simpler(spelling: Spelling, message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message with only its calls and results, and the rest as a text."""
    kept: list[Any] = []
    blocks = [block for block in message[spelling.key] if isinstance(block, Mapping)]
    for block in blocks:
        if spelling.is_result(block):
            kept.append(spelling.answered(block, as_text(block)))
        elif spelling.is_call(block):
            kept.append(block)
    if not kept:
        raise InvalidInput("it holds neither a call nor a result")
    if not spelling.is_result(kept[0]):
        rest = [block for block in blocks if not spelling.is_call(block)]
        kept = [*([spelling.said(as_text(rest))] if rest else []), *kept]
    return {**message, spelling.key: kept}


def _runs(message: Mapping[str, Any], spelling: Spelling) -> Iterator[tuple[int, int]]:
    """Yield which blocks are one message of Muntin's."""
    blocks = spelling.blocks(message)
    first = 0
    if message.get("role") != spelling.model:
        for place, block in enumerate(blocks):
            if isinstance(block, Mapping) and spelling.is_result(block):
                if first < place:
                    yield first, place
                yield place, place + 1
                first = place + 1
    if first < len(blocks) or not blocks:
        yield first, len(blocks)


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
        if each.ref is None:
            turn = _added(each.message, calls, spelling)
            last = None
        else:
            last = each.ref
            turn = _kept(messages[last.message], each, spelling)
        _add(made, turn, last, spelling)
        if made:
            made[-1].ends.append((place, len(made[-1].blocks)))
    return made


def _added(message: Message, calls: Mapping[str, ToolCall], spelling: Spelling) -> Turn:
    if message.tool_call_id is not None:
        return Turn("user", None, [spelling.result(message, calls[message.tool_call_id])])
    role = spelling.model if message.role == "assistant" else "user"
    return Turn(role, None, [spelling.said(message.text)] if message.text.strip() else [])


def _kept(message: Any, placed: Placed, spelling: Spelling) -> Turn:
    ref: Ref = placed.ref
    if not isinstance(message, Mapping):
        return Turn("?", ref.message, [message], whole=True)
    role = str(message.get("role", "user"))
    blocks = list(spelling.blocks(message)[ref.first : ref.end])
    if placed.is_whole:
        return Turn(role, ref.message, blocks, whole=True)
    return Turn(role, ref.message, reshaped(blocks, placed, spelling))


def _add(made: list[Turn], turn: Turn, ref: Ref | None, spelling: Spelling) -> None:
    last = made[-1] if made else None
    own = turn.role == spelling.model
    if not turn.blocks and not turn.whole:
        return
    if last is not None and ref is not None and last.source == ref.message:
        last.whole = last.whole and turn.whole and len(last.blocks) == ref.first
        last.blocks += turn.blocks
        return
    turn.whole = turn.whole and (ref is None or ref.first == 0)
    if last is None or last.role != turn.role:
        if own and last is None and turn.source != 0:
            made.append(_omitted(spelling))
        made.append(turn)
    elif ref is not None and last.source == ref.message - 1:
        made.append(turn)  # they stood so in the request
    elif own:  # thoughts of two answers cannot stand in one turn
        made += [_omitted(spelling), turn]
    else:
        last.blocks += turn.blocks
        last.source, last.whole = turn.source, False


def _omitted(spelling: Spelling) -> Turn:
    return Turn("user", None, [spelling.said(OMITTED.text)])


def reshaped(blocks: list[Any], placed: Placed, spelling: Spelling) -> list[Any]:
    """Return blocks with their new texts and arguments."""
    if placed.arguments:
        calls = iter(placed.message.tool_calls)
        blocks = [
            spelling.called(block, next(calls)) if _is_call(block, spelling) else block
            for block in blocks
        ]
    if placed.text is None:
        return blocks
    if len(blocks) == 1 and isinstance(blocks[0], Mapping) and spelling.is_result(blocks[0]):
        return [spelling.answered(blocks[0], placed.text)]

    def text(block: Any) -> str | None:
        return spelling.text(block) if isinstance(block, Mapping) else None

    def stays(block: Any) -> bool:
        return not isinstance(block, Mapping) or spelling.made(block)

    return with_texts(blocks, placed, text, stays, spelling.said)


def _is_call(block: Any, spelling: Spelling) -> bool:
    return isinstance(block, Mapping) and spelling.is_call(block)


def written(messages: Sequence[Any], made: Iterable[Turn], spelling: Spelling) -> list[Any]:
    """Return the messages of the request; messages that stay whole are the same objects."""
    found: list[Any] = []
    for turn in made:
        if turn.source is None:
            found.append({"role": turn.role, spelling.key: turn.blocks})
            continue
        message = messages[turn.source]
        if not isinstance(message, Mapping):
            found.append(message)
            continue
        given = spelling.blocks(message)
        if turn.whole and len(given) == len(turn.blocks):
            found.append(message)
        elif isinstance(message.get(spelling.key), str) and _plain(turn.blocks, spelling):
            found.append({**message, spelling.key: spelling.text(turn.blocks[0])})
        else:
            found.append({**message, spelling.key: turn.blocks})
    return found


def _plain(blocks: Sequence[Any], spelling: Spelling) -> bool:
    return len(blocks) == 1 and blocks[0].keys() == spelling.said("").keys()
