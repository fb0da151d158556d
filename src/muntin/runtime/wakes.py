"""Entities: sessions that handle what is sent to them, one wake at a time.

Owns waking: who may handle an entity now, what woke it, how its turn ends, who waits for the
answer, and the sweep for entities that other processes left behind.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from muntin.core.message import Input
from muntin.errors import InvalidInput, MuntinError, TurnLost
from muntin.providers.model import Reply
from muntin.runtime.active_turn import ActiveTurn
from muntin.runtime.ctx import Ctx, Wake
from muntin.runtime.in_store import in_store
from muntin.runtime.recorded_run import error_text
from muntin.timeline.items import Draft, Item, check_session_id
from muntin.timeline.owner import done, new_owner
from muntin.timeline.project import default_messages
from muntin.timeline.session import LEASE, OpenTurn, Session

if TYPE_CHECKING:
    from muntin.runtime.app import App

Handler: TypeAlias = Callable[[Ctx, Wake], Awaitable[Any]]

WAKES = ("message", "signal", "wake")
_TYPES = {"message": "inbox", "signal": "signal", "wake": "timer"}
# How often to look for entities that wait: those whose process died, or were woken elsewhere.
SWEEP_SECONDS = 1.0


def entity_type(id: str) -> str:
    """Return the type of an entity, written `type/name`."""
    kind, slash, name = id.partition("/")
    if not (kind and slash and name):
        raise InvalidInput(f"an entity is named like 'horton/42', not {id!r}")
    return kind


class Wakes:
    """The entities of an app: their handlers, the wakes that run, and who waits for answers."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._handlers: dict[str, Handler] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._asked: dict[tuple[str, int], list[asyncio.Future[Reply | None]]] = {}
        self._sweeper: asyncio.Task[None] | None = None

    def register(self, kind: str, handler: Handler) -> None:
        """Register the handler of a type of entities."""
        if not inspect.iscoroutinefunction(handler):
            raise InvalidInput(f"the handler of {kind!r} must be an async function")
        self._handlers[kind] = handler
        with suppress(RuntimeError):  # registered before the app runs
            self.sweep()

    def knows(self, kind: str) -> bool:
        """Say whether entities of a type have a handler."""
        return kind in self._handlers

    def handler(self, entity: str) -> Handler:
        """Return the handler of an entity."""
        kind = entity_type(entity)
        if kind not in self._handlers:
            known = ", ".join(sorted(self._handlers)) or "none"
            raise InvalidInput(f"no entities of type {kind!r} are registered; known: {known}")
        return self._handlers[kind]

    async def deliver(self, entity: str, draft: Draft) -> Item:
        """Append something to an entity's inbox, and have the entity handled."""
        check_session_id(entity)
        session = self._session(entity)
        opening = replace(session.draft(draft), opens="inbox")
        (item,) = await in_store(session, lambda: session.store.append(entity, [opening]))
        self.start(entity)
        return item

    async def answer(self, entity: str, turn: int) -> Reply | None:
        """Wait until a turn of an entity is over, here or in another process."""
        future: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        self._asked.setdefault((entity, turn), []).append(future)
        self.start(entity)
        session = self._session(entity)
        while True:
            ended, _ = await asyncio.wait([future], timeout=0.2)
            if ended:
                return future.result()
            found = await in_store(session, partial(session.store.turn, entity, turn))
            status = found.status if found is not None else "failed"
            if future.done():
                return future.result()
            if status == "completed":
                return await _stored_reply(session, turn)
            if status == "failed":
                raise MuntinError(f"turn {turn} of {entity!r} failed in another process")

    def start(self, entity: str) -> None:
        """Have an entity handled by this process, unless it is at it."""
        self.sweep()
        if entity in self._running:
            self._again.add(entity)
        else:
            self._running[entity] = asyncio.create_task(self._handle_all(entity))

    async def close(self) -> None:
        """Let running wakes come to an end."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweeper
        while self._running:
            await asyncio.gather(*self._running.values(), return_exceptions=True)
        self._sweeper = None  # not before: a wake that ends may send, and would begin another

    def sweep(self) -> None:
        """Begin to look for entities that wait, if nothing of this event loop does."""
        loop = asyncio.get_running_loop()
        if self._handlers and (self._sweeper is None or self._sweeper.get_loop() is not loop):
            self._sweeper = loop.create_task(self._sweep_on())

    async def _sweep_on(self) -> None:
        waiting = self._app.store.waiting
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            with suppress(MuntinError):  # the store may come back
                page = await asyncio.to_thread(waiting)
                while page:
                    for entity in page:
                        kind, slash, _ = entity.partition("/")
                        if slash and kind in self._handlers and entity not in self._running:
                            self.start(entity)
                    page = await asyncio.to_thread(partial(waiting, after=page[-1]))

    def _session(self, entity: str) -> Session:
        """Return the session of an entity; taking its turns mends what must be mended."""
        return self._app.session(entity, mend=False)

    async def _handle_all(self, entity: str) -> None:
        """Handle what waits for an entity, until nothing waits, or another process is at it."""
        session = self._session(entity)
        try:
            while True:
                self._again.discard(entity)
                while await self._handle_next(session):
                    pass
                if entity not in self._again:
                    return
        finally:
            self._running.pop(entity, None)

    async def _handle_next(self, session: Session) -> bool:
        """Take the next turn that waits, and handle it; False if there is none."""
        owner = new_owner()
        ctx = await in_store(session, partial(self._take, session, owner))
        if ctx is None:
            done(owner)
            return False
        turn = ctx.turn
        try:
            async with turn.held():
                await self.handler(session.id)(ctx, ctx.wake)
                await turn.finish("completed")
            reply = turn.replies[-1] if turn.replies else None
            self._tell(session.id, turn.number, reply)
        except TurnLost:
            pass  # the process that took it over will settle it; who asked looks for that
        except asyncio.CancelledError:
            turn.open.release()
            raise  # the turn stays open: the next process takes it up again
        except Exception as error:
            if turn.recorded is not error:
                await turn.append(Draft("error", payload=error_text(error)))
            await turn.finish("failed")
            self._tell(session.id, turn.number, error)
        return True

    def _take(self, session: Session, owner: str) -> Ctx | None:
        """Take the next turn that waits, and read what its handler may look at."""
        taken = session.store.take(session.id, owner, datetime.now(UTC) + LEASE, resumable=True)
        if taken is None:
            return None
        opened = OpenTurn(session, taken.number, owner=owner)
        items = opened.items()
        events = [item for item in items if item.kind in WAKES and item.run is None]
        wake = _wake(events)
        ctx = Ctx(
            ActiveTurn(self._app, opened, items),
            door="the handler of an entity",
            input=wake.payload,
            message=Input(default_messages(events[-1])[0].text),
            budget=None if self._app.model is None else self._app.own_composer().budget,
            wake=wake,
            events=events,
        )
        ctx.load()
        return ctx

    def _tell(self, entity: str, turn: int, result: Reply | BaseException | None) -> None:
        """Tell everyone who asked how a turn ended."""
        for future in self._asked.pop((entity, turn), ()):
            if future.done():
                continue
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)


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


async def _stored_reply(session: Session, turn: int) -> Reply | None:
    """Return the last answer of a turn that another process handled."""
    read = session.store.read
    items = await in_store(session, lambda: read(session.id, first_turn=turn, last_turn=turn))
    for item in reversed(items):
        for message in default_messages(item):
            if message.role == "assistant":
                return Reply(message)
    return None
