"""Digests of messages: names by which a message is found again, in another window or process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muntin.core.checks import compact_json, replace_surrogates
from muntin.core.checks import digest as hashed
from muntin.core.counting.memo import memoize_by_identity
from muntin.core.message import Message, characters_of
from muntin.core.parts import Part, Text
from muntin.core.schemas import USER_BREAKPOINTS
from muntin.core.thoughts import without_thoughts

BYTES = 8  # of a digest


@memoize_by_identity(characters_of)
def digest(message: Message) -> str:
    """Return a digest of a message's bytes, without position, breakpoints and thoughts."""
    return hashed(_hashed_text(message), BYTES)


def _hashed_text(message: Message) -> str:
    content = message.content or ""
    if content.__class__ is tuple:
        message = without_thoughts(message)
        content = message.content or ""
        if content.__class__ is tuple:
            content = _plain(content)
    extra = message.extra and _without_breakpoints(message.extra)
    if message.attachments or content.__class__ is not str or extra:
        return _full_text(message)
    # The path of most messages, and the quickest: it may run for a whole window every turn.
    role, result, name = message.role, message.tool_call_id or "", message.name or ""
    if not message.tool_calls:
        sizes = f"[{len(role)}, {len(result)}, {len(name)}, {len(content)}]"
        return f"{sizes}{role}{result}{name}{content}"
    pieces: list[str] = [role, result, name, content]
    for call in message.tool_calls:
        if call.extra:
            return _full_text(message)
        pieces += (call.id, call.name, call.arguments)
    # With lengths, so that two different lists of pieces never give one text.
    return f"{[len(piece) for piece in pieces]}{''.join(pieces)}"


def _plain(parts: tuple[Part, ...]) -> str | tuple[Part, ...]:
    """Return the text of a single text part: a breakpoint turns a str into parts."""
    part = parts[0]
    if len(parts) == 1 and isinstance(part, Text) and not _without_breakpoints(part.extra):
        return part.text
    return parts


def _full_text(message: Message) -> str:
    data = _without_breakpoints(message.to_dict())
    data.pop("at", None)
    if isinstance(data["content"], list):
        data["content"] = [_without_breakpoints(part) for part in data["content"]]
    try:
        text = compact_json(data)
    except (TypeError, ValueError):  # values of the caller's that no JSON can carry
        text = repr(data)
    return replace_surrogates(text)


def _without_breakpoints(data: Mapping[str, Any] | None) -> dict[str, Any]:
    return (
        {}
        if data is None
        else {key: value for key, value in data.items() if key not in USER_BREAKPOINTS}
    )
