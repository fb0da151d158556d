"""Requests of Anthropic's Messages API: read as pieces, written with the kept pieces.

https://platform.claude.com/docs/en/api/messages/create
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from muntin.core.forms import anthropic as form
from muntin.core.message import Message
from muntin.core.parts import ToolCall, part_from_dict
from muntin.fitting.pieces import Fitted
from muntin.fitting.requests.common import (
    Body,
    Request,
    breakpoints,
    count_marks,
    inside,
    last_marks,
    listed,
    named,
    read_piece,
    text_of,
    tools_of,
)
from muntin.fitting.requests.turns import Block, Spelling, Turn, pieces, turns, written

# https://platform.claude.com/docs/en/build-with-claude/prompt-caching
_MARK, _MARKS, _LONG = "cache_control", 4, "1h"
_THINKING = ("thinking", "redacted_thinking")


def read(body: Body) -> Request:
    """Read the body of a request."""
    messages = listed(body, "messages", "a request of Anthropic's Messages API")
    metadata = body.get("metadata")
    return Request(
        pieces(messages, _SPELLING),
        system=_system(body.get("system")),
        tools=tools_of(body),
        model=named("anthropic", body.get("model")),
        user=text_of(metadata.get("user_id")) if isinstance(metadata, Mapping) else None,
        output=inside(body, "output_config", "format", "schema"),
    )


def write(body: Body, fitted: Fitted) -> dict[str, Any]:
    """Return the request with the kept messages, marked where it may be cached."""
    messages = body["messages"]
    made = turns(messages, fitted.placed, _SPELLING)
    system = _mark(body, made, fitted)
    return {**body, **system, "messages": written(messages, made, _SPELLING)}


def _system(system: object) -> tuple[Message, ...]:
    if isinstance(system, str) and system:
        system = [_said(system)]
    if not isinstance(system, list | tuple) or not system:
        return ()
    message = read_piece(_texts, system, None, "system").message
    return () if message is None else (message,)


def _texts(blocks: Sequence[Any]) -> Message:
    return Message("system", tuple([part_from_dict(block) for block in blocks]))


def _message(data: Mapping[str, Any]) -> Message:
    content: Any = data.get("content")
    if isinstance(content, str):
        return Message(data["role"], content)
    if data["role"] == "system":
        return _texts(content)
    found = form.read(data)
    return found[0] if found else Message(data["role"], None)


def _text(block: Block) -> str | None:
    text = block.get("text")
    return text if block.get("type") == "text" and isinstance(text, str) else None


def _said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _called(block: Block, call: ToolCall) -> dict[str, Any]:
    return {**block, "input": json.loads(call.arguments)}


def _result(message: Message, _: ToolCall) -> dict[str, Any]:
    return {
        "type": "tool_result",
        "tool_use_id": message.tool_call_id,
        "content": message.text,
    }


_SPELLING = Spelling(
    name="anthropic",
    key="content",
    model="assistant",
    is_result=lambda block: block.get("type") == "tool_result",
    is_call=lambda block: block.get("type") == "tool_use",
    made=lambda block: block.get("type") in ("tool_use", *_THINKING),
    text=_text,
    said=_said,
    answered=lambda block, text: {**block, "content": text},
    called=_called,
    result=_result,
    read=_message,
)


def _mark(body: Body, made: Sequence[Turn], fitted: Fitted) -> dict[str, Any]:
    """Mark the blocks behind which to cache; return the system text if it is marked too."""
    system = body.get("system")
    blocks = [_said(system)] if isinstance(system, str) and system else list(system or ())
    held = [block for turn in made for block in turn.blocks]
    taken = count_marks([body.get("tools"), blocks, held, {_MARK: body.get(_MARK)}], _MARK)
    told: dict[str, Any] = {}
    for place, point in last_marks(breakpoints(fitted), _MARKS - taken):
        before = list(_before(blocks, made, place))
        found = _markable(before)
        if found is None:
            continue
        inside, at, turn = found
        marks = [*tools_of(body), *(inside[at] for inside, at, _ in before)]
        short = any(_is_short(block) for block in marks)
        ttl = {"ttl": _LONG} if point.ttl == _LONG and not short else {}
        inside[at] = {**inside[at], _MARK: {"type": "ephemeral", **ttl}}
        if turn is None:
            told["system"] = blocks
        else:
            turn.whole = False
    return told


def _before(
    system: list[Any], made: Sequence[Turn], place: int
) -> Iterator[tuple[list[Any], int, Turn | None]]:
    """Yield the blocks up to the end of a placed message, each with its place and its turn."""
    yield from ((system, at, None) for at in range(len(system)))
    for turn in made:
        end = max((end for at, end in turn.ends if at <= place), default=0)
        yield from ((turn.blocks, at, turn) for at in range(end))


def _markable(
    before: Sequence[tuple[list[Any], int, Turn | None]],
) -> tuple[list[Any], int, Turn | None] | None:
    """Return the last block that can be marked; None if it is marked already."""
    for found in reversed(before):
        block = found[0][found[1]]
        if not isinstance(block, Mapping) or block.get("type") in _THINKING:
            continue
        text = _text(block)
        if text is None or text.strip():
            return None if block.get(_MARK) else found
    return None


def _is_short(block: Any) -> bool:
    """Say whether a block has a mark of five minutes: no mark of an hour may stand behind it."""
    mark = block.get(_MARK) if isinstance(block, Mapping) else None
    return isinstance(mark, Mapping) and mark.get("ttl") != _LONG
