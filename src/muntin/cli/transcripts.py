"""Chats in files: OpenAI-style messages as JSON or JSON Lines, and exports of `muntin sessions`.

Owns how the commands read them. Must not know what a command does with the messages.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muntin.cli.terminal import naming
from muntin.core.forms import joins_others
from muntin.core.message import Message, MessageLike
from muntin.errors import InvalidInput
from muntin.timeline.items import Item
from muntin.timeline.lines import FORMAT, Lines, read_item
from muntin.timeline.project import default_messages


class NotAChat(InvalidInput):
    """A file holds something else than chats."""


@dataclass(frozen=True, slots=True)
class Chat:
    """The messages of a conversation, and what stands beside them as its tools."""

    messages: list[MessageLike] = field(default_factory=list)
    tools: Any = None


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file; `-` is the standard input."""
    with naming(path):
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()


def read_chats(data: bytes, name: str) -> list[Chat]:
    """Return the chats of a file; messages that have a line each are one chat.

    Raises `NotAChat` if the file is no export and holds something else.
    """
    lines = Lines(data.splitlines(keepends=True))
    chats: list[Chat] = []
    is_export = False
    try:
        for value in lines:
            is_export = is_export or (not chats and _is_header(value))
            if is_export and not _is_header(value):
                chats[-1].messages.extend(_item_messages(value))
            elif is_export or not _is_message(value):
                chats.append(Chat() if is_export else _chat(value))
            elif chats:
                chats[-1].messages.append(value)
            else:
                chats.append(Chat([value]))
    except InvalidInput as error:
        kind = InvalidInput if is_export else NotAChat
        raise kind(f"{name}{lines.place}: {error}") from error
    return chats


def _is_header(value: object) -> bool:
    """Say whether a value is the first line of an exported session."""
    return isinstance(value, dict) and value.get("format") == FORMAT


def _is_message(value: object) -> bool:
    return isinstance(value, dict) and ("role" in value or "parts" in value or joins_others(value))


def _chat(value: object) -> Chat:
    """Return a list of messages, or an object with such a list, as a chat."""
    beside = value if isinstance(value, dict) else {"messages": value}
    messages = beside.get("messages")
    if not isinstance(messages, list) or not all(map(_is_message, messages)):
        raise InvalidInput(
            "neither a message, nor a list of messages, nor an object with 'messages'"
        )
    return Chat(messages, beside.get("tools"))


def _item_messages(value: Any) -> Iterator[Message]:
    """Yield the messages that the model sees of an exported item; the status of a turn has none."""
    if isinstance(value, dict) and "position" in value:
        draft = read_item(value, value["position"])
        if draft.visibility.history:
            yield from default_messages(Item(1, draft.kind, 1, draft.message, draft.payload), (1,))
