"""The user's messages of a turn: the generator's own, and recorded ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from muntin.calls import call_async, together
from muntin.core.checks import refuse_blank, shown
from muntin.core.forms import messages_from
from muntin.core.message import Input, Message, user
from muntin.core.parts import Text
from muntin.errors import InvalidInput, InvalidType
from muntin.runtime.ctx import Ctx
from muntin.runtime.generators.context import DEEPEST
from muntin.timeline.items import Item
from muntin.timeline.project import default_messages


def messages_of(value: Any, what: str) -> list[Message]:
    """Return a text, an input or a message as messages; a text is the user's."""
    if value is None or value is False:
        return []
    if isinstance(value, str):
        return [user(value)] if value.strip() else []
    if isinstance(value, Input):
        return [user(value.text, attachments=value.attachments)]
    if isinstance(value, Message | Mapping) or hasattr(value, "model_dump"):
        try:
            return messages_from(value)
        except InvalidInput as error:
            raise type(error)(f"{what}: {error}") from error
    raise InvalidType(f"{what} must be a text, a message or a list of them, not {shown(value)}")


async def user_messages(
    value: Any, what: str, ctx: Ctx, *, alone: bool = False, depth: int = 1
) -> list[Message]:
    """Return the messages of a generator's `user=`, with functions called.

    A blank text adds nothing; if the turn has no other input (`alone`), it is refused.
    """
    if depth > DEEPEST:
        raise InvalidInput(f"{what}: functions give functions more than {DEEPEST} deep")
    if callable(value):
        result = await call_async(value, what, ctx.input, ctx, timeout=ctx.timeout)
        if alone:
            refuse_blank(result, what)
        return await user_messages(result, what, ctx, alone=alone, depth=depth + 1)
    if isinstance(value, list | tuple):
        message_lists = await together(
            user_messages(item, what, ctx, depth=depth + 1) for item in value
        )
        return [message for messages in message_lists for message in messages]
    return messages_of(value, what)


def turn_inputs(items: Sequence[Item]) -> list[Message]:
    """Return the user's messages of this turn so far, each with its position."""
    return [
        replace(message, at=item.position)
        for item in items
        if item.kind in ("message", "wake", "signal")
        and item.run is None
        and item.visibility.history
        and "repair" not in item.meta
        for message in default_messages(item)
        if message.role == "user"
    ]


def turn_input(
    user_items: Sequence[Message], recorded: Sequence[Message]
) -> tuple[list[Message], set[float]]:
    """Return the user's messages, and the positions of the recorded ones that they repeat.

    A generator without messages of its own gets the turn's input.
    """
    if not user_items:
        user_items = recorded
    positions: set[float] = set()
    messages: list[Message] = []
    for message in user_items:
        same = [earlier for earlier in recorded if _content(earlier) == _content(message)]
        positions |= {earlier.at or 0 for earlier in same}
        # The recorded message may have files.
        richer = next((earlier for earlier in same if earlier.attachments), message)
        messages.append(replace(message if message.attachments else richer, at=None))
    return messages, positions


def _content(message: Message) -> tuple[str, Any]:
    """Return the content of a message; a single text part equals the plain text."""
    content = message.content
    if isinstance(content, tuple) and len(content) == 1 and isinstance(content[0], Text):
        content = content[0].text
    return message.role, content
