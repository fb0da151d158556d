"""LangChain's messages as pieces, and the messages that fit as the same objects.

Used by LangChain and LangGraph, which both import it when LangChain is installed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.runnables.config import var_child_runnable_config

from muntin.core.message import Message, Role
from muntin.core.parts import Text
from muntin.fitting import Piece, Pieces, Placed
from muntin.integrations.shared import call, model_name
from muntin.wire.blocks import THINKING
from muntin.wire.lists import piece


def name_of(model: Any) -> str | None:
    """Return the name of a LangChain model as Muntin writes it, if its maker is known."""
    name = getattr(model, "model_name", None) or getattr(model, "model", None)
    return model_name(type(model).__module__.partition(".")[0], name)


def thread_name() -> str | None:
    """Return the thread of the graph that runs here, and which subgraph of it this is; None if it
    has no thread."""
    config = var_child_runnable_config.get() or {}
    place = config.get("configurable") or {}
    thread = place.get("thread_id")
    # The last part of the namespace is the node.
    subgraph = str(place.get("checkpoint_ns") or "").rpartition("|")[0]
    return None if thread is None else f"{thread}/{subgraph}" if subgraph else f"{thread}"


# Reading.

_ROLES: Mapping[str, Role] = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
}
# Blocks that repeat the `tool_calls` of the message.
_CALLS = ("tool_use", "tool_call", "function_call", "server_tool_call")


def pieces_of(messages: Sequence[BaseMessage]) -> Pieces:
    """Return the pieces of a list of LangChain's messages; the reference is a message's number."""
    return Pieces(messages, _read, role=lambda message: _ROLES.get(message.type))


def read(message: BaseMessage) -> Message:
    """Return one message as it is counted."""
    return piece(_as_dict(message), 0).message or Message("user")


def _read(message: BaseMessage, number: int) -> Sequence[Piece]:
    return [piece(_as_dict(message), number)]


def _as_dict(message: BaseMessage) -> dict[str, Any]:
    """Return the counted part of a message, in the form of Chat Completions."""
    role = _ROLES.get(message.type) or getattr(message, "role", message.type)
    content = message.content
    if isinstance(content, list):
        parts = [{"type": "text", "text": b} if isinstance(b, str) else b for b in content]
        content = [part for part in parts if part.get("type") not in _CALLS] or ""
    data: dict[str, Any] = {"role": role, "content": content}
    if isinstance(message, ToolMessage):
        return {**data, "tool_call_id": message.tool_call_id}
    calls = [
        call(called.get("id"), called.get("name"), called.get("args"))
        for called in (
            *getattr(message, "tool_calls", ()),
            *getattr(message, "invalid_tool_calls", ()),
        )
    ]
    return {**data, "tool_calls": calls} if calls else data


# Writing.


def written(messages: Sequence[BaseMessage], placed: Sequence[Placed]) -> list[BaseMessage]:
    """Return the messages that are sent; a message whose text is unchanged is the same object."""
    return [
        _make_message(part.message)
        if part.ref is None
        else messages[part.ref]
        if part.is_whole
        else _change_message(messages[part.ref], part)
        for part in placed
    ]


_ADDED = {"user": HumanMessage, "assistant": AIMessage, "system": SystemMessage}


def _make_message(message: Message) -> BaseMessage:
    if message.role == "tool":
        return ToolMessage(message.text, tool_call_id=message.tool_call_id)
    return _ADDED[message.role](message.text)


def _change_message(message: BaseMessage, placed: Placed) -> BaseMessage:
    content = message.content if placed.text is None else _content(message, placed)
    if placed.is_bare and isinstance(content, list):
        content = [b for b in content if isinstance(b, str) or b.get("type") not in THINKING]
    update: dict[str, Any] = {"content": content}
    if placed.arguments:
        arguments = {id: json.loads(text) for id, text in placed.arguments.items()}
        update["tool_calls"] = [
            {**called, "args": arguments.get(called["id"], called["args"])}
            for called in message.tool_calls
        ]
        # Calls whose arguments are no JSON are sent too, as texts.
        update["invalid_tool_calls"] = [
            {**called, "args": placed.arguments.get(called["id"], called["args"])}
            for called in message.invalid_tool_calls
        ]
        if isinstance(content, list):
            update["content"] = [_block(block, placed.arguments) for block in content]
    return message.model_copy(update=update)


def _content(message: BaseMessage, placed: Placed) -> Any:
    """Return the content with the new text; blocks other than text stay where they may."""
    if isinstance(message.content, str):
        return placed.text
    texts = [placed.text]
    stay = message.type == "ai"
    if isinstance(placed.message.content, tuple):
        texts, stay = [p.text for p in placed.message.content if isinstance(p, Text)], True
    blocks: list[Any] = []
    for block in message.content:
        if isinstance(block, str) or block.get("type") == "text":
            if texts:
                extra = {"type": "text"} if isinstance(block, str) else block
                blocks.append({**extra, "text": texts.pop(0)})
        elif stay:
            blocks.append(block)
    return [*({"type": "text", "text": text} for text in texts if text), *blocks]


def _block(block: Any, arguments: Mapping[str, str]) -> Any:
    """Return a block with its new arguments, if it is a call with new arguments."""
    if not isinstance(block, Mapping) or block.get("type") not in _CALLS:
        return block
    text = arguments.get(block.get("call_id") or block.get("id") or "")
    if text is None:
        return block
    if "arguments" in block:
        return {**block, "arguments": text}
    key = "input" if "input" in block else "args"
    return {**block, key: json.loads(text)}
