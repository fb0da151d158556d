"""Texts that a model sees for one turn only and that stay in the request after it.

Claude does not show them again once a user message follows, nor bills them; as long as they stay in
their places, what stands behind them is found in the cache. Owns where they stood and where they
stand now: https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from muntin.core.caching.wire_order import SentMessage
from muntin.core.message import Message

CLEAR_AT = "clear_at"
_NEXT = "next_user_message"


class ClearedText(NamedTuple):
    """A text behind the first `place` other messages of a request; None if it was lost."""

    place: int
    text: str | None


def make_cleared(text: str) -> Message:
    """Return a text for one turn as a message."""
    return Message("system", text, extra={CLEAR_AT: _NEXT})


def is_cleared(message: Message) -> bool:
    """Say whether a message is a text for one turn."""
    extra = message.extra
    return extra is not None and extra.get(CLEAR_AT) == _NEXT


def find_cleared(messages: Sequence[Message]) -> tuple[ClearedText, ...]:
    """Return the texts for one turn among messages in the order in which they are sent."""
    texts, place = [], 0
    for message in messages:
        if is_cleared(message):
            texts.append(ClearedText(place, message.text))
        else:
            place += 1
    return tuple(texts)


def put_back(
    pieces: Sequence[SentMessage], cleared: Sequence[ClearedText]
) -> list[tuple[int, Message]]:
    """Return the messages to put in, each with the index of the message before which it stands.

    `pieces` are the messages of a request in the order in which they are sent. A text stands where
    it stood if an answer follows it; the API refuses it elsewhere.
    """
    others = [piece for piece in pieces if not is_cleared(piece.message)]
    found = []
    for place, text in cleared:
        if text is None or place >= len(others) or others[place].message.role != "assistant":
            continue
        index = others[place].place
        if index is not None:
            found.append((index, make_cleared(text)))
    return found
