"""Thoughts of Claude's: messages without them, and how many a message holds.

The newest models bind a thought to all that stood before it: docs/anthropic.md.
"""

from __future__ import annotations

from dataclasses import replace

from muntin.core.counting.memo import memoize_by_identity
from muntin.core.message import Message, characters_of
from muntin.core.parts import is_thought, joined


def count_thoughts(message: Message) -> int:
    """Return how many thoughts a message holds."""
    content = message.content
    return 0 if content is None or isinstance(content, str) else sum(map(is_thought, content))


@memoize_by_identity(characters_of)
def without_thoughts(message: Message) -> Message:
    """Return a message without its thoughts; the message itself if it has none."""
    if not count_thoughts(message):
        return message
    content = message.content if isinstance(message.content, tuple) else ()
    return replace(message, content=joined([part for part in content if not is_thought(part)]))
