"""A talk: the pieces of one request as messages, and where its parts begin.

Owns what is the opening, the history, the question and the run of a list that a framework sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from muntin.core.counting.counter import Counter
from muntin.core.message import Message, Role, counted
from muntin.core.parts import Other, compact_json
from muntin.fitting.pieces import Piece, Pieces


class Talk(Sequence[Message]):
    """The messages of a list of pieces, each read when it is first looked at.

    `opening` is how many system messages stand in front, `question` the place of the user's last
    message: behind all of them if there is none.
    """

    def __init__(self, pieces: Sequence[Piece], counter: Counter) -> None:
        self.pieces = pieces
        self._counter = counter
        self._known: dict[int, Message] = {}
        self.opening = self._opening()
        self.question = self._question()

    def __len__(self) -> int:
        return len(self.pieces)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        known = self._known.get(index)
        if known is None:
            known = self._known[index] = self._message(self.pieces[index])
        return known

    def role(self, index: int) -> Role:
        """Return the role of a message, without reading it where that can be done."""
        pieces = self.pieces
        role = pieces.role(index) if isinstance(pieces, Pieces) else None
        return role or self[index].role

    def part(self, first: int, end: int) -> Part:
        """Return some of the messages that follow each other."""
        return Part(self, first, end)

    def _opening(self) -> int:
        count = 0
        while count < len(self) and self.role(count) == "system":
            count += 1
        return count

    def _question(self) -> int | None:
        for place in range(len(self) - 1, self.opening - 1, -1):
            if self.role(place) == "user":
                return place
        return None

    def _message(self, piece: Piece) -> Message:
        message = piece.message
        if message is None:
            text = _written(piece.ref)
            # No text that could be cut: it must come back as it is, or not at all.
            message = Message("user", (Other({"type": "unread", "value": text}),))
        if piece.tokens is not None:
            # A message of its own, which may be counted otherwise elsewhere.
            message = Message(
                message.role,
                message.content,
                tool_calls=message.tool_calls,
                tool_call_id=message.tool_call_id,
                name=message.name,
                extra=message.extra,
            )
            counted(message, self._counter.key(message), piece.tokens)  # type: ignore[arg-type]
        return message


class Part(Sequence[Message]):
    """Messages of a talk that follow each other."""

    def __init__(self, talk: Talk, first: int, end: int) -> None:
        self._talk, self._first, self._end = talk, first, end

    def __len__(self) -> int:
        return self._end - self._first

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self._talk[self._first + index % len(self)]


def _written(value: Any) -> str:
    """Return about what an item has when it is sent."""
    try:
        return compact_json(value)
    except (TypeError, ValueError, RecursionError):
        return repr(value)
