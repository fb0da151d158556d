"""Compaction: the summary that a provider wrote, with which the past of a conversation begins.

Anthropic writes a block of an answer, OpenAI an item. What stands before the newest one is not read
by the model any more. Knows how one is recognised, in a message and in the form of its provider.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from muntin.core.message import Message
from muntin.core.model_name import ModelName
from muntin.core.parts import Other
from muntin.core.profile import Profile

_TYPE = "compaction"


def is_compaction(block: Any) -> bool:
    """Say whether a block or an item holds a summary; one that failed holds none."""
    return _field(block, "type") == _TYPE and bool(_field(block, _content_key(block)))


def compaction_of(message: Any) -> Any:
    """Return the newest summary that a message, or an item in a provider's form, holds."""
    if message.__class__ is Message:
        content = message.content
        if content.__class__ is not tuple:
            return None
        parts: Iterable[Any] = (part.data for part in content if part.__class__ is Other)
    else:
        if is_compaction(message):
            return message
        content = _field(message, "content")
        if content.__class__ is str or not isinstance(content, list | tuple):
            return None
        parts = content
    return next((part for part in reversed([*parts]) if is_compaction(part)), None)


def stands_first(message: Message) -> bool:
    """Say whether nothing that stands before the summary of a message is read: of OpenAI's item,
    the user's messages before it are."""
    block = compaction_of(message)
    return block is not None and _content_key(block) == "content"


def may_come_first(message: Message) -> bool:
    """Say whether a message may begin a conversation where the provider wants the user's first."""
    return message.role == "user" or compaction_of(message) is not None


def newest_compaction(messages: Sequence[Any], profile: Profile | None = None) -> int | None:
    """Return the place of the newest message with a summary that the model reads.

    A list that is read when it is needed says so itself, by a method of this name.
    """
    finder = getattr(messages, "newest_compaction", None)
    if finder is not None:
        place: int | None = finder(profile)
        return place
    if not isinstance(messages, list | tuple):
        return None
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if message.__class__ is Message and message.content.__class__ is not tuple:
            continue  # most messages
        block = compaction_of(message)
        if block is not None and is_readable(block, profile):
            return place
    return None


def is_readable(block: Any, profile: Profile | None) -> bool:
    """Say whether a model reads a summary: one of its own provider's, as far as names tell."""
    maker = None if profile is None else ModelName.parse(profile.name).maker
    return maker is None or maker == ("anthropic" if _content_key(block) == "content" else "openai")


def _content_key(block: Any) -> str:
    """Return the field of the summary: Anthropic's blocks have `content`, OpenAI's items do not."""
    has_content = "content" in block if isinstance(block, Mapping) else hasattr(block, "content")
    return "content" if has_content else "encrypted_content"


def _field(block: Any, key: str) -> Any:
    return block.get(key) if isinstance(block, Mapping) else getattr(block, key, None)
