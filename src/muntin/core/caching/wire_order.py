"""The order on the wire: which messages are sent, in which order, and what the wire adds.

Owns the rules that all encoders follow and that caching depends on: results stand right behind
their call, a call without a result gets a fixed one, an empty message is not sent. Differences
between providers are data of the Profile. Knows no provider's format.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from muntin.core.compaction import may_come_first
from muntin.core.message import NO_RESULT, Message, has_refusal_or_audio
from muntin.core.parts import ToolCall
from muntin.core.profile import OMITTED, Profile

# A call with the message that answers it and that message's index (None: the fixed result).
Answer: TypeAlias = tuple[ToolCall, Message | None, int]
ArrangedMessage: TypeAlias = tuple[int, Message, Sequence[Answer]]


class SentMessage(NamedTuple):
    """A message as it is sent.

    `place` is its index in the window, None if the wire adds it. `owner` is the index of the
    message to whose slot it belongs: for an added result, its call.
    """

    place: int | None
    owner: int
    message: Message


def arrange(messages: Sequence[Message]) -> list[ArrangedMessage]:
    """Return (index, message, answers) in wire order: results stand with their call.

    A result belongs to the nearest unanswered call before it that has its id: ids may repeat. A
    result without a call stands by itself.
    """
    arranged: list[ArrangedMessage] = []
    waiting: dict[str, list[tuple[list[Answer], int]]] = {}
    for index, message in enumerate(messages):
        if message.tool_calls:
            answers: list[Answer] = [(call, None, index) for call in message.tool_calls]
            for place, call in enumerate(message.tool_calls):
                waiting.setdefault(call.id, []).append((answers, place))
            arranged.append((index, message, answers))
        elif message.tool_call_id is not None and waiting.get(message.tool_call_id):
            answers, place = waiting[message.tool_call_id].pop()
            answers[place] = answers[place][0], message, index
        else:
            arranged.append((index, message, ()))
    return arranged


def as_sent(messages: Sequence[Message], profile: Profile | None = None) -> list[SentMessage]:
    """Return the pieces of a request, in the order in which a provider hashes them."""
    pieces = list(_messages_in_order(messages))
    if profile is None or not (profile.system_first or profile.user_first):
        return pieces
    roles = (piece.message.role for piece in pieces)
    opening = next((n for n, role in enumerate(roles) if role != "system"), len(pieces))
    if profile.system_first:
        # System texts that open the window stand apart. Later system texts become the user's, and
        # so do all of them if there is no other message.
        apart = opening if opening < len(pieces) else 0
        pieces[apart:] = [_as_user(piece) for piece in pieces[apart:]]
    if profile.user_first and opening < len(pieces):
        first = pieces[opening]
        if first.message.role == "assistant" and not may_come_first(first.message):
            pieces.insert(opening, SentMessage(None, first.owner, OMITTED))
    return pieces


def is_sent_unchanged(messages: Sequence[Message], profile: Profile | None = None) -> bool:
    """Say whether messages are sent unchanged, as most are: nothing moves, nothing is added.

    The check is quick rather than complete: for a few such lists it returns False.
    """
    system_first = profile is not None and profile.system_first
    user_first = profile is not None and profile.user_first
    has_opened = False
    waiting: tuple[ToolCall, ...] = ()
    for message in messages:
        if message.role == "system":
            if has_opened and system_first:
                return False
        elif not has_opened:
            if user_first and message.role == "assistant":
                return False
            has_opened = True
        if waiting:
            if message.tool_call_id != waiting[0].id:
                return False
            waiting = waiting[1:]
        elif message.tool_calls:
            waiting = message.tool_calls
        elif not message.content and not message.attachments:
            return False
    return not waiting and (has_opened or not system_first)


def _messages_in_order(messages: Sequence[Message]) -> Iterator[SentMessage]:
    for index, message, answers in arrange(messages):
        if message.content or answers or message.attachments or has_refusal_or_audio(message):
            yield SentMessage(index, index, message)
        for call, result, at in answers:
            if result is None:
                missing = Message("tool", NO_RESULT, tool_call_id=call.id)
                yield SentMessage(None, index, missing)
            else:
                yield SentMessage(at, at, result)


def _as_user(piece: SentMessage) -> SentMessage:
    if piece.message.role != "system":
        return piece
    return piece._replace(message=replace(piece.message, role="user"))
