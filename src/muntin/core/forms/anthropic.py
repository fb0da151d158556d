"""Messages as Anthropic writes them: content blocks, results inside of user messages.

https://platform.claude.com/docs/en/api/messages/create
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from muntin.core.checks import compact_json, shown
from muntin.core.message import Message
from muntin.core.parts import (
    Other,
    Part,
    Reasoning,
    Text,
    ToolCall,
    as_plain,
    joined,
    part_from_dict,
    put_before,
)
from muntin.errors import InvalidInput, InvalidType

# The fields of a response that are not part of its message.
_ENVELOPE = frozenset(
    {
        "id",
        "type",
        "model",
        "stop_reason",
        "stop_sequence",
        "stop_details",
        "usage",
        "container",
        "context_management",
        "diagnostics",
    }
)


def has_blocks(data: Mapping[str, Any]) -> bool:
    """Say whether a message holds a block that becomes a message or a call of Muntin's."""
    content = data.get("content")
    return isinstance(content, list | tuple) and any(is_message_block(each) for each in content)


def is_message_block(block: object) -> bool:
    """Say whether a block is kept outside of a message's content: a call or a result."""
    kind = block.get("type") if isinstance(block, Mapping) else getattr(block, "type", None)
    return kind in ("tool_use", "tool_result")


def is_response(data: Mapping[str, Any]) -> bool:
    """Say whether this is a whole response of Anthropic's."""
    return "stop_reason" in data and isinstance(data.get("content"), list | tuple)


def read(data: Mapping[str, Any]) -> list[Message]:
    """Read a message; a user's message becomes one message more for each of its tool results."""
    role = data.get("role")
    blocks = [as_plain(block) for block in data["content"] or ()]
    known = {key: data[key] for key in ("at", "name") if data.get(key) is not None}
    rest = {k: v for k, v in data.items() if k not in ("role", "content", "at", "name")}
    if is_response(data):
        rest = {k: v for k, v in rest.items() if k not in _ENVELOPE}
    if role == "assistant":
        given = rest.pop("tool_calls", None) or ()
        own = Message.from_dict({"role": role, "tool_calls": given}).tool_calls if given else ()
        return [assistant_message(blocks, calls=own, extra=rest or None, **known)]
    if role != "user":
        raise InvalidInput(f"a message of role {role!r} cannot hold tool calls or results")
    return _user(blocks, known, rest or None)


def assistant_message(
    blocks: Sequence[Mapping[str, Any]], *, calls: Sequence[ToolCall] = (), **known: Any
) -> Message:
    """Read the blocks that a model made; `calls` are calls that are known already."""
    parts: list[Part] = []
    made = list(calls)
    ids = {call.id for call in calls}
    behind: list[int] = []
    for block in blocks:
        if not isinstance(block, Mapping):
            raise InvalidType(f"a content block must be a mapping, not {shown(block)}")
        kind = block.get("type")
        if kind == "tool_result":
            raise InvalidInput("a tool_result belongs to a user message, not to an assistant's")
        if kind != "tool_use":
            if made:
                behind.append(len(parts))
            parts.append(part(block))
        elif block.get("id") not in ids:
            made.append(_call(block))
            for index in behind:  # the part stood between two calls
                parts[index] = put_before(parts[index], made[-1].id)
            behind = []
    return Message("assistant", joined(parts), tool_calls=tuple(made), **known)


def _call(block: Mapping[str, Any]) -> ToolCall:
    for key in ("id", "name"):
        if not isinstance(block.get(key), str):
            raise InvalidInput(f"a tool_use block needs an {key!r}: {shown(block)}")
    rest = {k: v for k, v in block.items() if k not in ("type", "id", "name", "input")}
    given = block.get("input")
    value = given if isinstance(given, str | Mapping) else compact_json(given or {})
    extra = {k: v for k, v in rest.items() if v is not None}
    return ToolCall(block["id"], block["name"], value, extra=extra or None)  # type: ignore[arg-type]


def part(block: Mapping[str, Any]) -> Part:
    """Read one block that is neither a call nor a result."""
    rest = {key: value for key, value in block.items() if value is not None and key != "type"}
    if block.get("type") == "text":
        return Text(rest.pop("text"), extra=rest or None)
    if block.get("type") == "thinking":
        text, signature = rest.pop("thinking"), rest.pop("signature", None)
        return Reasoning(text, signature=signature, extra=rest or None)
    return Other(block)


def _user(
    blocks: Sequence[Any], known: Mapping[str, Any], extra: Mapping[str, Any] | None
) -> list[Message]:
    found: list[Message] = []
    said: list[Part] = []

    def close() -> None:
        nonlocal extra
        if said:
            found.append(Message("user", tuple(said), extra=extra, **known))
            extra = None
            said.clear()

    for block in blocks:
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind == "tool_use":
            raise InvalidInput("a tool_use belongs to an assistant's message, not to a user's")
        if kind == "tool_result":
            close()
            found.append(_result(block, known.get("at")))
        else:
            said.append(part_from_dict(block))
    close()
    if extra and found:  # fields of a message of results alone
        first = found[0]
        found[0] = Message(
            "tool",
            first.content,
            tool_call_id=first.tool_call_id,
            at=first.at,
            extra={**extra, **(first.extra or {})},
        )
    return found


def _result(block: Mapping[str, Any], at: float | None) -> Message:
    call_id = block.get("tool_use_id")
    if not isinstance(call_id, str):
        raise InvalidInput(f"a tool_result block needs a 'tool_use_id': {shown(block)}")
    content = block.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        content = tuple(part_from_dict(each) for each in content)
    rest = {k: v for k, v in block.items() if k not in ("type", "tool_use_id", "content")}
    extra = {k: v for k, v in rest.items() if v is not None}
    return Message("tool", content, tool_call_id=call_id, at=at, extra=extra or None)
