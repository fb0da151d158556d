"""Chats in files: OpenAI-style messages as JSON or JSON Lines, and exports of `muntin sessions`.

Owns how the commands read them. Must not know what a command does with the messages.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from muntin.cli.terminal import naming
from muntin.core.message import Message
from muntin.errors import InvalidInput
from muntin.timeline.items import Item
from muntin.timeline.lines import FORMAT, read_item
from muntin.timeline.project import default_messages


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file; `-` is the standard input."""
    with naming(path):
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()


def is_header(value: object) -> bool:
    """Say whether a value is the first line of an exported session."""
    return isinstance(value, dict) and value.get("format") == FORMAT


def exported_messages(values: Sequence[Any]) -> Iterator[tuple[int, Message]]:
    """Yield the model's messages of exported sessions, each with the number of its session."""
    session = 0
    for number, value in enumerate(values, 1):
        session += is_header(value)
        if not isinstance(value, dict) or "position" not in value:
            continue  # the header of a session, or the status of a turn
        try:
            draft = read_item(value, value["position"])
        except InvalidInput as error:
            raise InvalidInput(f"line {number}: {error}") from error
        if draft.visibility.history:
            item = Item(1, draft.kind, 1, draft.message, draft.payload)
            for message in default_messages(item, (1,)):
                yield session, message
