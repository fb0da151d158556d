"""Messages as other makers write them: Anthropic, Google, OpenAI's Responses, the SDKs' objects.

The codecs of `muntin.wire` read them; they are imported late, because they know the core.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from muntin.core.checks import shown
from muntin.core.message import Message, MessageLike
from muntin.errors import InvalidType, NeedsConversation


def messages_from(
    given: MessageLike | Iterable[MessageLike] | object,
    *,
    where: str = "message {}",
    first: int = 0,
) -> list[Message]:
    """Read messages in any form that Muntin knows, one or many, as a list of Messages.

    Known are Messages, OpenAI-style dicts, the messages of Anthropic and of Google, the items of
    OpenAI's Responses API, the objects of their SDKs, and whole responses. One of their messages
    may be several Messages: an Anthropic user message with two tool results and a text is three.
    The given values are neither changed nor kept. `where` names an item in errors by its number,
    counted from `first`.
    """
    if isinstance(given, Message):
        return [given]
    if isinstance(given, list | tuple) and all(item.__class__ is Message for item in given):
        return list(given)
    if isinstance(given, str | bytes):
        raise InvalidType(f"messages must be a list, not the {type(given).__name__} {shown(given)}")
    from muntin.wire.google import Ids
    from muntin.wire.reading import read_messages

    if isinstance(given, Mapping) or hasattr(given, "model_dump"):
        return read_messages([given], ids=Ids())
    if not isinstance(given, Iterable):
        raise InvalidType(f"messages must be a list, not {shown(given)}")
    return read_messages(list(given), ids=Ids(), where=where, first=first)


def one_message(data: object) -> Message:
    """Read a value in another maker's form that means one message."""
    from muntin.wire.reading import read_messages

    messages = read_messages([data])
    if len(messages) == 1:
        return messages[0]
    kinds = ", ".join(message.role for message in messages) or "none"
    raise NeedsConversation(
        f"this means {len(messages)} messages ({kinds}), not one; read it with messages_from(...)"
    )


def joins_others(item: object) -> bool:
    """Say whether an item of a list is read together with its neighbours."""
    kind = item.get("type") if isinstance(item, Mapping) else getattr(item, "type", None)
    if not isinstance(kind, str):
        return False
    from muntin.wire.responses import is_output

    return is_output(item)
