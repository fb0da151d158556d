"""Entities: sessions that handle what is sent to them, one wake at a time.

Owns waking: who may handle an entity now, what woke it, how long that may take, how its turn ends,
who waits for the answer, and the sweep for entities that other processes left behind.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from muntin.agent.loop import to_the_end
from muntin.core.message import Input
from muntin.errors import InvalidInput, InvalidType, MuntinError, StoreError, TimedOut, TurnLost
from muntin.providers.model import Reply
from muntin.runtime.active_turn import ActiveTurn
from muntin.runtime.ctx import Ctx, Wake
from muntin.runtime.in_store import in_store, store_away
from muntin.runtime.recorded_run import error_text
from muntin.timeline.items import Draft, Item, check_session_id
from muntin.timeline.owner import done, new_owner
from muntin.timeline.project import default_messages
from muntin.timeline.session import LEASE, WAKES, OpenTurn, Session

if TYPE_CHECKING:
    from muntin.runtime.app import App

Handler: TypeAlias = Callable[[Ctx, Wake], Awaitable[Any]]

_TYPES = {"message": "inbox", "signal": "signal", "wake": "timer"}
# How often to look for entities that wait: those whose process died, or were woken elsewhere.
SWEEP_SECONDS = 1.0
# How often a turn is taken that is never settled, before it is given up.
MAX_ATTEMPTS = 5
# How long a wake that was told to stop may take to do so.
STOP_SECONDS = 1.0

_log = logging.getLogger(__name__)


def entity_type(id: str) -> str:
    """Return the type of an entity, written `type/name`."""
    if not isinstance(id, str):
        raise InvalidType(f"an entity is named by a str like 'horton/42', not {id!r}")
    kind, slash, name = id.partition("/")
    if not (kind and slash and name):
        raise InvalidInput(f"an entity is named like 'horton/42', not {id!r}")
    return kind


@dataclass(frozen=True, slots=True)
class Registered:
    """The handler of a type of entities, and how many seconds it may take."""

    handler: Handler
    timeout: float | None = None

    async def call(self, ctx: Ctx) -> None:
        """Handle a wake."""
        try:
            async with asyncio.timeout(self.timeout) as limit:
                await self.handler(ctx, ctx.wake)
        except TimeoutError as error:
            if self.timeout is None or not limit.expired():
                raise
            raise TimedOut(f"the handler of {ctx.session.id!r}", self.timeout) from error


class Wakes:
    """The entities of an app: their handlers, the wakes that run, and who waits for answers."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._handlers: dict[str, Registered] = {}
        # The types whose handlers look at the history or the entries: these are read ahead.
        self._looking: set[str] = set()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        # Those whose work was left by another process, or by an earlier one.
        self._found: set[str] = set()
        self._asked: dict[tuple[str, int], list[asyncio.Future[Reply | None]]] = {}
        self._sweeper: asyncio.Task[None] | None = None

    def register(self, kind: str, handler: Handler, timeout: float | None = None) -> None:
        """Register the handler of a type of entities."""
        if not inspect.iscoroutinefunction(handler):
            raise InvalidInput(f"the handler of {kind!r} must be an async function")
        self._handlers[kind] = Registered(handler, timeout)
        with suppress(RuntimeError):  # registered before the app runs
            self.sweep()

    def knows(self, kind: str) -> bool:
        """Say whether entities of a type have a handler."""
        return kind in self._handlers

    def handler(self, entity: str) -> Registered:
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
        append = partial(session.store.append, entity, [opening])
        try:
            # To the end: what a cancelled call sent must not arrive behind what is sent later.
            (item,) = await to_the_end(in_store(session, append))
        except asyncio.CancelledError:
            self.start(entity)
            raise
        self.start(entity)
        return item

    async def answer(self, entity: str, turn: int) -> Reply | None:
        """Wait until a turn of an entity is over, here or in another process."""
        with self._app.queue.waits_for(entity):
            return await self._answer(entity, turn)

    async def _answer(self, entity: str, turn: int) -> Reply | None:
        future: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        self._asked.setdefault((entity, turn), []).append(future)
        self.start(entity)
        while True:
            ended, _ = await asyncio.wait([future], timeout=0.2)
            if ended:
                return future.result()
            session = self._session(entity)
            try:
                found = await in_store(session, partial(session.store.turn, entity, turn))
            except StoreError as error:
                if error.passing:  # what was sent is stored, and is handled when the store is back
                    continue
                raise
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

    async def close(self, timeout: float) -> tuple[str, ...]:
        """Let running wakes come to an end; stop those that take longer, and return them."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweeper
        end = asyncio.get_running_loop().time() + timeout
        while self._running and (left := end - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(self._running.values(), timeout=left)
        stopped = tuple(self._running)
        for task in list(self._running.values()):
            task.cancel()
        if self._running:
            await asyncio.wait(self._running.values(), timeout=STOP_SECONDS)
        for entity in stopped:
            _log.warning(
                "closed while %r was being handled%s; its wake is unfinished, and is run again "
                "by a process that looks after it",
                entity,
                " (and would not stop)" if entity in self._running else "",
            )
        self._sweeper = None  # not before: a wake that ends may send, and would begin another
        return stopped

    async def resume(self) -> tuple[str, ...]:
        """Take up what waits for entities, and return whom when all of it is done."""
        found: list[str] = []
        async for entity in self._waiting():
            found.append(entity)
            self._take_up(entity)
        tasks = [self._running[entity] for entity in found if entity in self._running]
        if tasks:
            await asyncio.wait(tasks)
        return tuple(found)

    def sweep(self) -> None:
        """Begin to look for entities that wait, if nothing of this event loop does."""
        loop = asyncio.get_running_loop()
        if self._handlers and (self._sweeper is None or self._sweeper.get_loop() is not loop):
            self._sweeper = loop.create_task(self._sweep_on())

    async def _sweep_on(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            with suppress(MuntinError):  # the store may come back
                async for entity in self._waiting():
                    if entity not in self._running:
                        self._take_up(entity)

    def _take_up(self, entity: str) -> None:
        if entity not in self._running:
            self._found.add(entity)
        self.start(entity)

    async def _waiting(self) -> AsyncIterator[str]:
        """Yield the entities that wait for a handler of this process."""
        waiting = self._app.store.waiting
        page = await asyncio.to_thread(waiting)
        while page:
            for entity in page:
                kind, slash, _ = entity.partition("/")
                if slash and kind in self._handlers:
                    yield entity
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
            self._found.discard(entity)

    async def _handle_next(self, session: Session) -> bool:
        """Take the next turn that waits, and handle it; False if there is none."""
        owner = new_owner()
        try:
            ctx = await self._taken(session, owner)
            return ctx is not None and await self._handle(ctx)
        except StoreError as error:
            if not error.passing:
                raise
            _log.warning("%r cannot be handled now: %s", session.id, error)
            return False  # the sweep comes again
        finally:
            done(owner)  # a turn that is not settled: the next process takes it up again

    async def _taken(self, session: Session, owner: str) -> Ctx | None:
        """Take the next turn; who is cancelled meanwhile hands it back."""
        taking = asyncio.ensure_future(in_store(session, partial(self._take, session, owner)))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            with suppress(MuntinError, asyncio.CancelledError):
                ctx = await to_the_end(taking)
                if ctx is not None:
                    await ctx.turn.hand_back()
            raise

    async def _handle(self, ctx: Ctx) -> bool:
        """Handle a turn that was taken; False if nothing waits behind it."""
        turn, session = ctx.turn, ctx.session
        if session.id in self._found:
            _log.warning("took up unfinished work: turn %d of %r", turn.number, session.id)
        waits = True

        def more() -> bool:
            return bool(session.store.turns(session.id, status="pending", newest=1))

        try:
            async with turn.held():
                with turn.inside():
                    await self.handler(session.id).call(ctx)
                waits = bool(await turn.finish("completed", more))
        except TurnLost:
            pass  # who took it over will settle it; who asked looks for that
        except asyncio.CancelledError:
            await turn.hand_back()  # it stays open: the next process takes it up again
            raise
        except GeneratorExit:
            raise  # its event loop has ended: nothing can be waited for
        except BaseException as error:
            waits = await self._failed(turn, error)
            if not isinstance(error, Exception | SystemExit):
                raise  # not ours to keep: the program is being stopped
        else:
            self._tell(session.id, turn.number, turn.replies[-1] if turn.replies else None)
        if ctx.looked:
            self._looking.add(entity_type(session.id))
        return waits

    async def _failed(self, turn: ActiveTurn, error: BaseException) -> bool:
        """End a turn that failed, and tell who asked; False if it is to be handled again.

        A store that is away is not the handler's fault: the turn is left to who comes next.
        """
        if store_away(error) and not turn.is_settled:
            _log.warning("turn %d of %r is left: %s", turn.number, turn.session.id, error)
            await turn.hand_back()
            return False
        try:
            if turn.recorded is not error and not turn.is_settled:
                with suppress(MuntinError):
                    await turn.append(Draft("error", payload=error_text(error)), ends="failed")
            await turn.finish("failed")
        except MuntinError as another:
            error.add_note(f"and the turn could not be marked failed: {another}")
        finally:
            turn.open.release()
        self._tell(turn.session.id, turn.number, error)
        return True

    def _take(self, session: Session, owner: str) -> Ctx | None:
        """Take the next turn that waits, and read what its handler may look at."""
        taken = session.store.take(
            session.id, owner, LEASE, resumable=True, max_attempts=MAX_ATTEMPTS
        )
        if taken is None:
            return None
        opened = OpenTurn(session, taken.number, owner=owner, attempt=taken.attempt)
        try:
            return self._ctx(session, opened)
        except StoreError:
            with suppress(StoreError):
                opened.hand_back()
            raise

    def _ctx(self, session: Session, opened: OpenTurn) -> Ctx:
        """Read what the handler of a turn may look at."""
        items = opened.items()
        begun = any(item.kind == "run" for item in items)
        events = [item for item in items if item.kind in WAKES and item.run is None]
        wake = _wake(events)
        ctx = Ctx(
            ActiveTurn(self._app, opened, items, step=_last_step(opened, items) if begun else 0),
            door="the handler of an entity",
            input=wake.payload,
            message=Input(default_messages(events[-1])[0].text),
            budget=None if self._app.model is None else self._app.own_composer().budget,
            wake=wake,
            events=events,
        )
        if entity_type(session.id) in self._looking:
            ctx.load()
        return ctx

    def _tell(self, entity: str, turn: int, result: Reply | BaseException | None) -> None:
        """Tell everyone who asked how a turn ended."""
        for future in self._asked.pop((entity, turn), ()):
            if future.done():
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            elif isinstance(result, BaseException):
                future.set_exception(MuntinError(f"the handler of {entity!r} ended by {result!r}"))
            else:
                future.set_result(result)


def _last_step(turn: OpenTurn, items: Sequence[Item]) -> int:
    """Return the last step of an earlier attempt at a turn: by its reports, or by its answers."""
    number = turn.number
    kept = turn.session.store.reports(turn.session.id, first=number or 0, last=number)
    answers = [
        item for item in items if item.run and item.message and item.message.role == "assistant"
    ]
    return max((record.step for record in kept), default=len(answers))


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
