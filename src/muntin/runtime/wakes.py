"""Entities: sessions that handle what is sent to them, one wake at a time.

Owns waking: who may handle an entity now, what woke it, and how its turn ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from muntin.core.message import Input
from muntin.errors import InvalidInput, TurnLost
from muntin.providers.model import Reply
from muntin.runtime.ctx import Ctx
from muntin.runtime.recorded_run import Work, error_text, in_store
from muntin.runtime.window import budget_of
from muntin.timeline.items import Draft, Item, Turn
from muntin.timeline.owner import done, new_owner
from muntin.timeline.project import default_messages
from muntin.timeline.session import LEASE

if TYPE_CHECKING:
    from muntin.runtime.app import App
    from muntin.timeline.session import Session

Handler: TypeAlias = Callable[["Ctx", "Wake"], Awaitable[Any]]

WAKES = ("message", "signal", "wake")
_TYPES = {"message": "inbox", "signal": "signal", "wake": "timer"}


@dataclass(frozen=True, slots=True)
class Wake:
    """Why a handler runs: what came since it last ran.

    `payload` and `source` are those of the newest; `ctx.events` has all `count` of them.
    """

    type: str
    source: str | None
    payload: Any
    from_position: int
    to_position: int
    count: int


def entity_type(id: str) -> str:
    """Return the type of an entity, written `type/name`."""
    kind, slash, name = id.partition("/")
    if not (kind and slash and name):
        raise InvalidInput(f"an entity is named like 'horton/42', not {id!r}")
    return kind


async def wake_all(app: App, session: Session) -> None:
    """Handle what waits for an entity, until nothing waits, or someone else is at it."""
    while True:
        owner = new_owner()
        until = datetime.now(UTC) + LEASE
        turn, items = await in_store(session, partial(_take, session, owner, until))
        if turn is None:
            done(owner)
            return
        await _handle(app, session, turn, items, owner)


def _take(session: Session, owner: str, until: datetime) -> tuple[Turn | None, list[Item]]:
    """Take the next turn that waits, and read it."""
    turn = session.store.take(session.id, owner, until, resumable=True)
    if turn is None:
        return None, []
    number = turn.number
    return turn, session.store.read(session.id, first_turn=number, last_turn=number)


async def _handle(
    app: App, session: Session, turn: Turn, items: Sequence[Item], owner: str
) -> None:
    work = Work(app, session, turn.number, owner)
    try:
        async with work.held():
            work.resume(items)
            events = [item for item in items if item.kind in WAKES and item.run is None]
            wake = _wake(events)
            ctx = Ctx(
                work,
                door="the handler of an entity",
                input=wake.payload,
                message=Input(default_messages(events[-1])[0].text),
                budget=budget_of(app),
                wake=wake,
                events=events,
            )
            handler = app.handler(entity_type(session.id))
            await handler(ctx, wake)
            await work.finish("completed")
        reply = work.replies[-1] if work.replies else None
        app.settled(session.id, turn.number, reply)
    except TurnLost:
        pass  # whoever took it over will settle it; who asked looks for that
    except asyncio.CancelledError:
        done(owner)
        raise  # the turn stays open: whoever comes next takes it up again
    except Exception as error:
        if work.recorded is not error:
            await work.append(Draft("error", payload=error_text(error)))
        await work.finish("failed")
        app.settled(session.id, turn.number, error)


def _wake(events: Sequence[Item]) -> Wake:
    newest = events[-1]
    return Wake(
        type=_TYPES[newest.kind],
        source=newest.meta.get("sender"),
        payload=_payload(newest),
        from_position=events[0].position,
        to_position=newest.position,
        count=len(events),
    )


def _payload(item: Item) -> Any:
    if item.message is not None:
        return item.message.text
    return item.payload


async def stored_reply(session: Session, turn: int) -> Reply | None:
    """Return the last answer of a turn that another process handled."""
    read = session.store.read
    items = await in_store(session, lambda: read(session.id, first_turn=turn, last_turn=turn))
    for item in reversed(items):
        for message in default_messages(item):
            if message.role == "assistant":
                return Reply(message)
    return None
