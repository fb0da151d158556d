"""Reading: items of any form that Muntin knows as pieces, and nothing that raises.

What cannot be read is an opaque piece: it says why, and counts by its size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from muntin.core.forms import messages_from
from muntin.core.message import ROLES, Message, Role, role_of
from muntin.core.parts import Other, as_plain, compact_json
from muntin.errors import MuntinError
from muntin.fitting.pieces import Piece, Pieces


def pieces_of(items: Sequence[Any]) -> Pieces:
    """Return the pieces of a list; the reference of each is the number of its item and its own."""
    odd = [n for n, item in enumerate(items) if not _is_plain(item)]
    several = {n: count for n in odd if (count := _count(items[n])) != 1}
    return Pieces(items, read_item, several=several, role=_peek)


def read_item(item: Any, number: int) -> Sequence[Piece]:
    """Return the pieces of an item."""
    try:
        found = messages_from(item if isinstance(item, Message) else [item])
    except MuntinError as error:
        return [_opaque(item, number, str(error))]
    return [Piece(message, (number, part)) for part, message in enumerate(found)]


def _is_plain(item: Any) -> bool:
    return item.__class__ is dict and item.get("content").__class__ is str


def _peek(item: Any) -> Role | None:
    role = role_of(item) if _is_plain(item) else None
    return role if role in ROLES else None


def _count(item: Any) -> int:
    """Return how many pieces an item is."""
    return len(read_item(item, 0))


def _opaque(item: Any, number: int, why: str) -> Piece:
    data = as_plain(item)
    role = role_of(data) if isinstance(data, Mapping) else None
    try:
        text = compact_json(data)
    except (TypeError, ValueError, RecursionError):
        text = repr(data)
    part = Other({"type": "unread", "value": text})
    message = Message(role if role in ("user", "assistant", "system") else "user", (part,))
    return Piece(message, (number, 0), opaque=why)
