"""Entities: sessions that handle what is sent to them, one wake at a time.

Owns waking: who may handle an entity now, what woke it, how long that may take, how its turn ends,
and who waits for the answer. When and where a turn is run is the engine's.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from muntin.core.message import Input
from muntin.errors import (
    InvalidInput,
    InvalidType,
    MuntinError,
    Overloaded,
    TimedOut,
    TurnLost,
)
from muntin.providers.model import Reply
from muntin.runtime.active_turn import ActiveTurn
from muntin.runtime.ctx import Ctx, Wake
from muntin.runtime.engine.protocol import Again, Engine
from muntin.runtime.engine.schedule import Schedule
from muntin.runtime.engine.timers import EVERY, NewTimer
from muntin.runtime.in_store import in_store
from muntin.runtime.recorded_run import error_text
from muntin.timeline.items import UNSETTLED, Draft, Item, check_session_id
from muntin.timeline.owner import done, new_owner
from muntin.timeline.project import default_messages
from muntin.timeline.session import LEASE, OpenTurn, Session
from muntin.timeline.store import Store
from muntin.timeline.timers import Released, Timer

if TYPE_CHECKING:
    from muntin.runtime.app import App

Handler: TypeAlias = Callable[[Ctx, Wake], Awaitable[Any]]

WAKES = ("message", "signal", "wake")
_TYPES = {"message": "inbox", "signal": "signal", "wake": "timer"}
# How often one who asked looks whether a turn is over that runs elsewhere: at first, and at last.
ASK_SECONDS = (0.02, 0.2)
# When to try again what is held by a conversation, and what has no handler here.
BUSY_SECONDS, UNKNOWN_SECONDS = 0.2, 5.0
# How many timers are released in one transaction.
RELEASED = 50
# How long it is remembered how much waits.
LOOK_SECONDS = 0.1


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
    """The handler of a type of entities, how many seconds it may take, and what else is said.

    `at_once` is how many entities of the type a process handles side by side; of types that wait,
    those with a higher `priority` come first. `max_pending` is how many messages may wait for one
    entity. An entity that is there is woken `every` so often.
    """

    handler: Handler
    timeout: float | None = None
    at_once: int | None = None
    priority: int = 0
    max_pending: int | None = None
    every: Schedule | None = None

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

    def __init__(self, app: App, engine: Engine) -> None:
        self._app = app
        self.engine = engine
        engine.bind(self)
        # When it was last looked how much waits, and how much did.
        self._waiting = (-math.inf, 0)
        self._handlers: dict[str, Registered] = {}
        # The types whose handlers look at the history or the entries: these are read ahead.
        self._looking: set[str] = set()
        self._asked: dict[tuple[str, int], list[asyncio.Future[Reply | None]]] = {}

    def register(self, kind: str, found: Registered) -> None:
        """Register the handler of a type of entities."""
        if not inspect.iscoroutinefunction(found.handler):
            raise InvalidInput(f"the handler of {kind!r} must be an async function")
        self._handlers[kind] = found
        with suppress(RuntimeError):  # registered before the app runs
            self.engine.start()

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
        await self.engine.ready()
        session = self._session(entity)
        opening = replace(session.draft(draft), opens="inbox")
        begun: dict[str, int] = {}

        def append() -> Item:
            self._refuse_too_much(entity)
            (item,) = session.store.append(entity, [opening], begun=partial(self._begun, begun))
            return item

        item = await in_store(session, append)
        self._stored(begun)
        return item

    def _stored(self, begun: Mapping[str, int]) -> None:
        self.engine.start()
        for entity, turn in begun.items():
            self.engine.stored(entity, turn)

    def _begun(self, begun: dict[str, int], tx: Any, session: str, turn: int) -> None:
        """Tell the engine of a turn that waits, and have an entity that is new woken in time."""
        kind = entity_type(session)
        begun[session] = turn
        self.engine.waits(tx, session, turn, priority=self.priority(kind))
        every = self._handlers[kind].every
        if every is not None:
            now = datetime.now(UTC)
            timer = Timer(session, EVERY, every.after(now, now), every=every.text)
            self._app.store.timers.put_in(tx, timer, new=True)

    def _refuse_too_much(self, entity: str) -> None:
        """Refuse what an entity, or the app, has no room for."""
        most = self.handler(entity).max_pending
        if most is not None and self.store.pending(entity, most) >= most:
            raise Overloaded(f"{most} messages wait for {entity!r}, and no more may (max_pending)")
        most = self._app.max_pending
        if most is None:
            return
        looked, waiting = self._waiting
        if time.monotonic() - looked > LOOK_SECONDS:  # counting all for each message would cost
            waiting = self.store.backlog().waiting
            self._waiting = time.monotonic(), waiting
        if waiting >= most:
            raise Overloaded(f"{waiting} wakes wait, and no more than {most} may (max_pending)")

    async def timer(self, wanted: NewTimer) -> Timer:
        """Keep a timer."""
        await self.engine.ready()
        put = partial(self.store.timers.put, wanted.timer, after=wanted.after)
        kept = await asyncio.to_thread(put)
        self.engine.start()
        return kept

    async def cancel(self, entity: str, turn: int) -> bool:
        """Settle a turn as failed, and have it stopped where it runs; False if it is over."""
        session = self._session(entity)

        def settle() -> bool:
            found = session.store.turn(entity, turn)
            if found is None or found.status not in UNSETTLED:
                return False
            return session.store.settle(entity, turn, "failed", reason="cancelled")

        if not await in_store(session, settle):
            return False
        await self.engine.cancel(entity, turn)
        return True

    async def answer(self, entity: str, turn: int) -> Reply | None:
        """Wait until a turn of an entity is over, here or in another process."""
        with self._app.queue.waits_for(entity):
            return await self._answer(entity, turn)

    async def _answer(self, entity: str, turn: int) -> Reply | None:
        future: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        self._asked.setdefault((entity, turn), []).append(future)
        pause = ASK_SECONDS[0]
        while True:
            heard = asyncio.ensure_future(self.engine.settled(entity, turn, pause))
            await asyncio.wait([future, heard], return_when=asyncio.FIRST_COMPLETED)
            heard.cancel()
            if future.done():
                return future.result()
            session = self._session(entity)
            found = await in_store(session, partial(session.store.turn, entity, turn))
            status = found.status if found is not None else "failed"
            if future.done():
                return future.result()
            if status == "completed":
                return await _stored_reply(session, turn)
            if status == "failed":
                raise MuntinError(f"turn {turn} of {entity!r} failed in another process")
            pause = min(2 * pause, ASK_SECONDS[1])

    # What an engine is given.

    @property
    def store(self) -> Store:
        """Where the timelines are."""
        return self._app.store

    def kinds(self) -> Collection[str]:
        """Return the types of entities that have a handler."""
        return self._handlers.keys()

    def at_once(self, kind: str) -> int | None:
        """Return how many entities of a type may be handled at once."""
        return self._handlers[kind].at_once if kind in self._handlers else None

    def priority(self, kind: str) -> int:
        """Return the priority of a type."""
        return self._handlers[kind].priority if kind in self._handlers else 0

    async def run(self, session: str, turn: int, *, sure: bool = False) -> None:
        """Handle the turns of an entity up to and with this one: the one way to take a turn."""
        kind = entity_type(session)
        if kind not in self._handlers:  # another version of the program may know it
            raise Again(f"no entities of type {kind!r} are registered here", UNKNOWN_SECONDS)
        opened = self._session(session)
        done: int | None = 0
        while done is not None and done < turn:
            done = await self._handle_next(opened, sure)
        if done is None:
            found = await in_store(opened, partial(opened.store.turn, session, turn))
            if found is not None and found.status in UNSETTLED:
                raise Again(f"turn {turn} of {session!r} cannot be taken yet", BUSY_SECONDS)

    async def release(self) -> float:
        """Release the timers that are due; return in how many seconds to look again."""
        begun: dict[str, int] = {}
        timers, kinds = self.store.timers, list(self.kinds())

        def work() -> float:
            pause = timers.next(kinds)
            if pause is None or pause > 0:  # most who look find nothing, and write nothing
                return math.inf if pause is None else pause
            told = partial(self._begun, begun)
            timers.release(kinds, self._release, most=RELEASED, begun=told)
            return 0.0

        pause = await asyncio.to_thread(work)
        if begun:
            self._stored(begun)
        return pause

    def _release(self, timer: Timer, now: datetime) -> Released:
        """Return what a timer that is due becomes, and when it is due again."""
        due = timer.due.isoformat()
        again, payload, meta = None, timer.payload, {**timer.meta, "timer": timer.id, "due": due}
        if timer.every is not None:
            every = self._handlers[timer.kind].every
            if every is None:  # the program no longer says so
                return Released(None)
            again, payload = every.after(timer.due, now), {"every": every.text, "due": due}
        draft = self._session(timer.entity).draft(Draft("wake", payload=payload, meta=meta))
        return Released(replace(draft, opens="inbox"), again)

    def _session(self, entity: str) -> Session:
        """Return the session of an entity; taking its turns mends what must be mended."""
        return self._app.session(entity, mend=False)

    async def _handle_next(self, session: Session, sure: bool) -> int | None:
        """Take the next turn that waits, and handle it; None if there is none."""
        owner = new_owner()
        try:
            ctx = await in_store(session, partial(self._take, session, owner, sure))
            if ctx is None:
                return None
            await self._handle(ctx)
            return ctx.turn.number
        finally:
            done(owner)  # a turn that is not settled: the next process takes it up again

    async def _handle(self, ctx: Ctx) -> None:
        """Handle a turn that was taken."""
        turn, session = ctx.turn, ctx.session
        try:
            async with turn.held():
                with turn.inside():
                    await self.handler(session.id).call(ctx)
                await turn.finish("completed")
            reply = turn.replies[-1] if turn.replies else None
            self._tell(session.id, turn.number, reply)
        except TurnLost:
            pass  # who took it over will settle it; who asked looks for that
        except asyncio.CancelledError:
            raise  # the turn stays open: the next process takes it up again
        except (Exception, SystemExit) as error:
            await self._fail(turn, error)
        except BaseException as error:
            await self._fail(turn, error)
            raise  # not ours to keep: the program is being stopped
        if ctx.looked:
            self._looking.add(entity_type(session.id))

    async def _fail(self, turn: ActiveTurn, error: BaseException) -> None:
        """End a turn that failed, and tell who asked, even if the store is gone."""
        try:
            if turn.recorded is not error:
                with suppress(MuntinError):
                    await turn.append(Draft("error", payload=error_text(error)), ends="failed")
            await turn.finish("failed")
        except MuntinError as another:
            error.add_note(f"and the turn could not be marked failed: {another}")
        finally:
            turn.open.release()
            self._tell(turn.session.id, turn.number, error)

    def _take(self, session: Session, owner: str, sure: bool) -> Ctx | None:
        """Take the next turn that waits, and read what its handler may look at."""
        taken = session.store.take(session.id, owner, LEASE, resumable=True, sure=sure)
        if taken is None:
            return None
        opened = OpenTurn(session, taken.number, owner=owner, attempt=taken.attempt)
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
