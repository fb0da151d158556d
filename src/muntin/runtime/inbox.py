"""Sending to entities: messages, signals, wakes at a time. The engine is told of each stored one.

Owns the handlers of entities, how much may wait, and the items that timers become. The entity
runner handles the turns.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from muntin.agent.loop import to_the_end
from muntin.core.checks import check_seconds, copy_json, shown
from muntin.errors import InvalidInput, InvalidType, MuntinError, Overloaded, StoreError, TimedOut
from muntin.runtime.ctx import Ctx, Wake
from muntin.runtime.engine.protocol import POLL_SECONDS, Engine
from muntin.runtime.engine.schedule import Schedule
from muntin.runtime.entity_agent import Agent
from muntin.runtime.store_thread import retry, run_in_store, while_dropped
from muntin.timeline.items import EPOCH, UNSETTLED, Draft, Item, check_id, check_session_id
from muntin.timeline.session import Session
from muntin.timeline.timers import Released, Timer
from muntin.timeline.turn import is_of

if TYPE_CHECKING:
    from muntin.runtime.app import App

Handler: TypeAlias = Callable[[Ctx, Wake], Awaitable[Any]]

_log = logging.getLogger(__name__)

# The timer of an entity that is woken again and again.
EVERY = "every"
# How many timers are released in one transaction.
RELEASED = 50
# How many items back a sent item in doubt is looked for.
LOOKED = 1_000
# For how many seconds the number of waiting wakes is remembered.
LOOK_SECONDS = 0.1


def entity_type(id: str) -> str:
    """Return the type of an entity, written `type/name`."""
    if not isinstance(id, str):
        raise InvalidType(f"an entity is named by a str like 'order/7', not {shown(id)}")
    kind, slash, name = id.partition("/")
    if not (kind and slash and name):
        raise InvalidInput(f"an entity is named like 'order/7', not {shown(id)}")
    return kind


@dataclass(frozen=True, slots=True)
class Registered:
    """The handler of a type of entities, its time limit in seconds, and other settings.

    `at_once` is how many entities of the type a process handles side by side. Types with a higher
    `priority` come first. `max_pending` is how many messages may wait for one entity. An entity
    that exists is woken `every` so often.
    """

    handler: Handler
    timeout: float | None = None
    at_once: int | None = None
    priority: int = 0
    max_pending: int | None = None
    every: Schedule | None = None

    async def call(self, ctx: Ctx) -> None:
        """Handle a wake; an agent that the handler returns is run and ends the wake."""
        try:
            async with asyncio.timeout(self.timeout) as limit:
                last = await self.handler(ctx, ctx.wake)
                declared: Agent | None = ctx.get("agent")
                if isinstance(last, Agent):
                    await last.end(ctx)
                elif declared is not None and not declared.has_run:
                    _log.warning(
                        "the handler of %r declared an agent and did not run it: "
                        "return ctx.use_agent(…), or await ctx.agent.run()",
                        ctx.session.id,
                    )
        except TimeoutError as error:
            if self.timeout is None or not limit.expired():
                raise
            raise TimedOut(f"the handler of {ctx.session.id!r}", self.timeout) from error


class Inbox:
    """The inboxes of an app's entities."""

    def __init__(
        self,
        app: App,
        engine: Engine,
        handlers: Mapping[str, Registered],
        max_pending: int | None,
    ) -> None:
        self._app = app
        self._engine = engine
        self._handlers = handlers
        # How many wakes of all entities may wait.
        self._max_pending = max_pending
        # When the waiting wakes were last counted, and how many there were.
        self._waiting = (-math.inf, 0)

    def handler(self, entity: str) -> Registered:
        """Return the handler of an entity."""
        kind = entity_type(entity)
        if kind not in self._handlers:
            names = ", ".join(sorted(self._handlers)) or "none"
            raise InvalidInput(
                f"no entities of type {kind!r} are registered; known: {names}. "
                f"Register a handler with @app.entity({kind!r})"
            )
        return self._handlers[kind]

    async def deliver(self, entity: str, draft: Draft) -> Item:
        """Append something to an entity's inbox, once, and have the entity handled."""
        session, until = self._session(entity), while_dropped()
        await retry(self._engine.ready, until)
        # By its time the item is found again if a commit was in doubt.
        opening = replace(session.draft(draft), opens="inbox", time=datetime.now(UTC))
        begun: dict[str, int] = {}
        is_in_doubt = False

        def append() -> Item:
            nonlocal is_in_doubt
            begun.clear()
            for item in session.store.read(entity, newest=LOOKED) if is_in_doubt else ():
                if item.time == opening.time and is_of(item, opening):
                    begun[entity] = item.turn
                    return item
            self._refuse_too_much(entity)
            try:
                (item,) = session.store.append(entity, [opening], begun=partial(self._begin, begun))
            except StoreError as error:
                is_in_doubt = error.in_doubt
                raise
            return item

        try:
            # To the end: an item of a cancelled call must not arrive behind items sent later.
            item = await to_the_end(run_in_store(session, append, until))
        except asyncio.CancelledError:
            self._stored(begun)
            raise
        self._stored(begun)
        return item

    def _stored(self, begun: Mapping[str, int]) -> None:
        self._engine.start()
        for entity, turn in begun.items():
            self._engine.stored(entity, turn)

    def _begin(self, begun: dict[str, int], tx: Any, session: str, turn: int) -> None:
        """Tell the engine of a turn that waits, and set the timer of a new entity."""
        handler = self._handlers[entity_type(session)]
        begun[session] = turn
        self._engine.waits(tx, session, turn, priority=handler.priority)
        if handler.every is not None:
            now = datetime.now(UTC)
            timer = Timer(session, EVERY, handler.every.after(now, now), every=handler.every.text)
            self._app.store.put_timer(timer, new=True, tx=tx)

    def _refuse_too_much(self, entity: str) -> None:
        """Refuse a message for which the entity, or the app, has no room."""
        most = self.handler(entity).max_pending
        if most is not None and self._app.store.backlog(entity, most=most).messages >= most:
            raise Overloaded(f"{entity!r} has {most} waiting, and may have no more (max_pending)")
        most = self._max_pending
        if most is None:
            return
        looked, waiting = self._waiting
        if time.monotonic() - looked > LOOK_SECONDS:  # counting for each message would be slow
            waiting = self._app.store.backlog().waiting
            self._waiting = time.monotonic(), waiting
        if waiting >= most:
            raise Overloaded(f"{waiting} wakes wait, and no more than {most} may (max_pending)")

    async def cancel(self, entity: str, turn: int) -> bool:
        """Settle a turn as failed, and stop it where it runs; False if it is over."""
        store = self._app.store

        def settle() -> str | None:
            for stored in store.turns(entity, number=turn):
                if stored.status in UNSETTLED and store.settle(
                    entity, turn, "failed", reason="cancelled"
                ):
                    return stored.status
            return None

        status = await run_in_store(self._session(entity), settle)
        if status == "open":  # a waiting turn is settled now, and never begins
            await self._engine.cancel(entity, turn)
        return status is not None

    # Timers.

    async def set_timer(
        self,
        entity: str,
        payload: Any,
        meta: Mapping[str, Any],
        at: datetime | None,
        after: float | timedelta | None,
        id: str | None,
    ) -> Timer:
        """Store a timer, `after` some seconds by the store's clock; the same id replaces it."""
        check_session_id(entity)
        if at is not None and after is not None:
            raise InvalidInput("a wake comes `at` a time or `after` some: give one of them")
        if id == EVERY:
            raise InvalidInput(
                f"the id {EVERY!r} is that of the wakes which entity(every=…) asks for"
            )
        name = uuid.uuid4().hex if id is None else check_id(id, "the id of a timer")
        if at is not None and (not isinstance(at, datetime) or at.tzinfo is None):
            raise InvalidType(f"at must be a datetime with a time zone, not {shown(at)}")
        span = None
        if after is not None:
            seconds = after.total_seconds() if isinstance(after, timedelta) else after
            span = timedelta(seconds=check_seconds(seconds, "after"))
        timer = Timer(entity, name, at or EPOCH, copy_json(payload, "payload of a wake"), meta)
        until = while_dropped()
        await retry(self._engine.ready, until)
        put = partial(self._app.store.put_timer, timer, after=span)
        stored = await run_in_store(self._session(entity), put, until)
        self._engine.start()
        return stored

    async def release_timers(self) -> None:
        """Release the timers that are due, again and again, until cancelled."""
        while True:
            pause = POLL_SECONDS
            try:
                pause = await self.release()
            except MuntinError as error:  # the store may come back
                _log.warning("timers could not be looked at: %s", error)
            await asyncio.sleep(min(max(pause, 0.0), POLL_SECONDS))

    async def release(self) -> float:
        """Release the timers that are due; return in how many seconds to look again."""
        begun: dict[str, int] = {}
        release = partial(self._app.store.release, most=RELEASED, begun=partial(self._begin, begun))
        pause = await asyncio.to_thread(release, list(self._handlers), self._release)
        if begun:
            self._stored(begun)
        return math.inf if pause is None else pause

    def _release(self, timer: Timer, now: datetime) -> Released:
        """Return the item of a timer that is due, and when the timer is due again."""
        due = timer.due.isoformat()
        again, payload, meta = None, timer.payload, {**timer.meta, "timer": timer.id, "due": due}
        if timer.every is not None:
            every = self._handlers[timer.kind].every
            if every is None:  # the program no longer has `every`
                return Released(None)
            again, payload = every.after(timer.due, now), {"every": every.text, "due": due}
        draft = self._session(timer.entity).draft(Draft("wake", payload=payload, meta=meta))
        return Released(replace(draft, opens="inbox"), again)

    def _session(self, entity: str) -> Session:
        return self._app.session(entity, mend=False)
