"""The history of a generator: how much of it is wanted, and its turns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from muntin.calls import arity, call_async
from muntin.core.checks import shown
from muntin.core.forms import messages_from
from muntin.core.message import Message
from muntin.errors import InvalidType
from muntin.runtime.ctx import Ctx
from muntin.timeline.history import History, Tokens, Turns
from muntin.timeline.past import newest_items
from muntin.timeline.session import Session

if TYPE_CHECKING:
    from muntin.runtime.generators.definition import Generator

# A turn of the history: its number, if known, and its messages.
PastTurn: TypeAlias = tuple[int | None, list[Message]]


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
            f"not {shown(history)}"
        )
    arity(history, f"{what}: history")
    return history


async def past_turns(definition: Generator, ctx: Ctx, ours: Collection[float]) -> list[PastTurn]:
    """Return the turns of the history, without this turn's input at the positions `ours`."""
    limit = definition.history
    if callable(limit):
        what = f"history of {definition.what}"
        limit = await call_async(limit, what, ctx.input, ctx, timeout=ctx.timeout)
        if isinstance(limit, Sequence) and not isinstance(limit, str):
            messages = messages_from(limit)
            projected = [
                message
                for message in messages
                if message.item is None
                or message.item[0] != ctx.session.id
                or message.item[1] not in ours
            ]
            spans = reversed(list(History(projected).turns()))
            return [(None, projected[begin:end]) for begin, end in spans]
        limit = as_history(limit, definition.what)
    if limit is None:
        return []
    turn = ctx.turn
    return await turn.read(
        lambda: _read(
            ctx.session,
            ctx.budget.remaining_input_tokens if limit is True else limit,
            turn.number,
            turn.resuming,
            ours,
        ),
    )


def _read(
    session: Session,
    limit: Turns | Tokens | int,
    turn: int,
    begun: set[int],
    ours: Collection[float],
) -> list[PastTurn]:
    """Return the turns within a limit; for a number of turns all, or more than `tokens` hold."""
    if isinstance(limit, int):
        items = newest_items(session, lambda items: sum(map(session.count, items)) > limit)
    else:
        items = session.items.history(limit)
    # Turns that wait behind this turn are not its past; a resumed run shows its own messages.
    items = [
        item
        for item in items
        if item.turn <= turn and item.position not in begun and item.run not in begun
    ]
    owner = {item.run: item.turn for item in items if item.run is not None}
    owner.update({item.position: item.turn for item in items})
    turns: dict[int, list[Message]] = {}
    for message in session.project(items, live=session.live(items)):
        if message.at not in ours:
            position = message.item[1] if message.item else int(message.at or 0)
            turns.setdefault(owner[position], []).append(message)
    return sorted(turns.items())
