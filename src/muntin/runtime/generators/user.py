"""What was said: the user's messages of a turn, and the history before them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from muntin.calls import arity, call_async
from muntin.core.message import Input, Message, as_message, user
from muntin.core.parts import Text
from muntin.errors import InvalidInput, InvalidType
from muntin.runtime.ctx import Ctx
from muntin.runtime.generators.context import DEEPEST
from muntin.runtime.in_store import in_store
from muntin.timeline.history import History, Tokens, Turns
from muntin.timeline.items import Item
from muntin.timeline.project import default_messages
from muntin.timeline.session import Session

if TYPE_CHECKING:
    from muntin.runtime.generators.definition import Generator

# A turn of the history, if it is known which, and what was said in it.
PastTurn: TypeAlias = tuple[int | None, list[Message]]


def messages_of(value: Any, what: str) -> list[Message]:
    """Return what someone gave as the user's message; a text is a user's."""
    if value is None or value is False:
        return []
    if isinstance(value, str):
        return [user(value)] if value else []
    if isinstance(value, Input):
        return [user(value.text, attachments=value.attachments)]
    if isinstance(value, Message | Mapping):
        try:
            return [as_message(value)]
        except InvalidInput as error:
            raise type(error)(f"{what}: {error}") from error
    raise InvalidType(f"{what} must be a text, a message or a list of them, not {value!r}")


async def said(value: Any, what: str, ctx: Ctx, depth: int = 1) -> list[Message]:
    """Return what a generator says for the user, functions called."""
    if depth > DEEPEST:
        raise InvalidInput(f"{what}: functions give functions more than {DEEPEST} deep")
    if callable(value):
        return await said(await call_async(value, what, ctx.input, ctx), what, ctx, depth + 1)
    if isinstance(value, list | tuple):
        found = [await said(each, what, ctx, depth + 1) for each in value]
        return [message for each in found for message in each]
    return messages_of(value, what)


def asked(items: Sequence[Item]) -> list[Message]:
    """Return what this turn was asked so far, each with its position."""
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


def once(own: Sequence[Message], heard: Sequence[Message]) -> tuple[list[Message], set[float]]:
    """Return the user's messages, and the positions of the recorded ones they stand for.

    Without any of its own a generator is asked what the turn was asked.
    """
    if not own:
        return [replace(message, at=None) for message in heard], {m.at or 0 for m in heard}
    shown: set[float] = set()
    found: list[Message] = []
    for message in own:
        same = [each for each in heard if _content(each) == _content(message)]
        shown |= {each.at or 0 for each in same}
        # The recorded one may have files.
        richer = next((each for each in same if each.attachments), None)
        found.append(replace(richer, at=None) if richer and not message.attachments else message)
    return found, shown


def _content(message: Message) -> tuple[str, Any]:
    """Return what a message says, a single part of text being the same as the text."""
    content = message.content
    if isinstance(content, tuple) and len(content) == 1 and isinstance(content[0], Text):
        content = content[0].text
    return message.role, content


# History.


def as_history(history: Any, what: str) -> Any:
    """Return how much history is wanted: None, True, a limit or a function."""
    if history is None or history is False:
        return None
    if history is True or isinstance(history, Turns | Tokens):
        return history
    if isinstance(history, int):
        return Turns(history)
    if not callable(history):
        raise InvalidType(
            f"{what}: history must be True, a number of turns, Turns(n), Tokens(n) or a function, "
            f"not {history!r}"
        )
    arity(history, f"{what}: history")
    return history


async def past(made: Generator, ctx: Ctx, shown: set[float]) -> list[PastTurn]:
    """Return the turns of the history; what stands elsewhere in the window is left out."""
    limit = made.history
    if callable(limit):
        limit = await call_async(limit, f"history of {made.what}", ctx.input, ctx)
        if isinstance(limit, Sequence) and not isinstance(limit, str):
            messages = [as_message(each) for each in limit]
            given = [message for message in messages if message.at not in shown]
            spans = reversed(list(History(given)._turns()))
            return [(None, given[begin:end]) for begin, end in spans]
        limit = as_history(limit, made.what)
    if limit is None:
        return []
    turn = ctx.turn
    return await in_store(
        ctx.session,
        lambda: _turns(
            ctx.session, None if limit is True else limit, turn.number, turn.resuming, shown
        ),
    )


def _turns(
    session: Session,
    limit: Turns | Tokens | None,
    turn: int,
    begun: set[int],
    shown: set[float],
) -> list[PastTurn]:
    # Turns that wait behind this one are not its past, and a run that goes on tells of itself.
    items = [
        item
        for item in session.items.history(limit)
        if item.turn <= turn and item.position not in begun and item.run not in begun
    ]
    owner = {item.run: item.turn for item in items if item.run is not None}
    owner.update({item.position: item.turn for item in items})
    found: dict[int, list[Message]] = {}
    for message in session.project(items, live=session.live(items)):
        if message.at not in shown:
            found.setdefault(owner[int(message.at or 0)], []).append(message)
    return sorted(found.items())
