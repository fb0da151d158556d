"""Entities: sessions that handle the items sent to them, one wake at a time.

Owns waking: which process may handle an entity now, what woke it, how long a wake may take, how its
turn ends, and who waits for the answer. The engine decides when and where a turn runs.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from muntin.agent.loop import to_the_end
from muntin.core.checks import shown
from muntin.core.message import Input
from muntin.errors import (
    InvalidInput,
    MuntinError,
    StoreError,
    TurnLost,
)
from muntin.providers.model import Reply
from muntin.providers.overload import tried_later
from muntin.runtime.ctx import Ctx, Wake
from muntin.runtime.engine.protocol import Again, Engine
from muntin.runtime.inbox import Inbox, Registered, entity_type
from muntin.runtime.store_thread import provider_busy, run_in_store, store_away
from muntin.runtime.turn import ActiveTurn
from muntin.timeline.items import UNSETTLED, Item, Status, error_draft
from muntin.timeline.owner import done, new_owner
from muntin.timeline.project import default_messages
from muntin.timeline.session import LEASE, WAKES, Session
from muntin.timeline.store import Store

if TYPE_CHECKING:
    from muntin.runtime.app import App

_TYPES = {"message": "inbox", "signal": "signal", "wake": "timer"}
# Seconds between questions whether a turn that runs elsewhere is over: at first, and at most.
ASK_SECONDS = (0.02, 0.2)
# Seconds before the next try: of a turn held by a conversation, of a type without a handler here,
# of a turn left because the store was away.
BUSY_SECONDS, UNKNOWN_SECONDS, AWAY_SECONDS = 0.2, 5.0, 1.0
# How often a turn is taken without being settled, before it is given up.
MAX_ATTEMPTS = 5
# How often a turn is taken while its provider has too much to do; how long it waits, twice as long
# each time; the longest wait; the longest wait that a provider may ask for.
MAX_BUSY, BACK_OFF_SECONDS, LONGEST_SECONDS, LONGEST_ASKED = 20, 2.0, 300.0, 3_600.0

_log = logging.getLogger(__name__)


class Wakes:
    """The entities of an app: their handlers, running wakes, and callers that wait for answers."""

    def __init__(self, app: App, engine: Engine) -> None:
        self._app = app
        self.engine = engine
        self._handlers: dict[str, Registered] = {}
        self.inbox = Inbox(app, engine, self._handlers)
        engine.bind(self)
        # The types whose handlers read the history or the entries: these are read ahead.
        self._looking: set[str] = set()
        self._asked: dict[tuple[str, int], list[asyncio.Future[Reply | None]]] = {}
        # The entities that are handled here, by event loop, each with an event for the end.
        self._here: dict[tuple[asyncio.AbstractEventLoop, str], asyncio.Event] = {}

    def register(self, kind: str, found: Registered) -> None:
        """Register the handler of a type of entities."""
        if not inspect.iscoroutinefunction(found.handler):
            raise InvalidInput(f"the handler of {kind!r} must be an async function")
        try:
            inspect.signature(found.handler).bind(None, None)
        except TypeError as error:
            raise InvalidInput(f"the handler of {kind!r} must take (ctx, wake): {error}") from None
        self._handlers[kind] = found
        with suppress(RuntimeError):  # registered before the app runs
            self.engine.start()

    def knows(self, kind: str) -> bool:
        """Say whether entities of a type have a handler."""
        return kind in self._handlers

    def handler(self, entity: str) -> Registered:
        """Return the handler of an entity."""
        return self.inbox.handler(entity)

    async def answer(self, entity: str, turn: int) -> Reply | None:
        """Wait until a turn of an entity is over, here or in another process."""
        with self._app.queue.waits_for(entity):
            return await self._answer(entity, turn)

    async def _answer(self, entity: str, turn: int) -> Reply | None:
        future: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        asked = self._asked.setdefault((entity, turn), [])
        asked.append(future)
        try:
            return await self._heard(future, entity, turn)
        finally:
            asked.remove(future)
            if not asked and self._asked.get((entity, turn)) is asked:
                del self._asked[entity, turn]

    async def _heard(
        self, future: asyncio.Future[Reply | None], entity: str, turn: int
    ) -> Reply | None:
        """Wait for an answer that is told here, or that the store has from another process."""
        pause = ASK_SECONDS[0]
        while True:
            settled = asyncio.ensure_future(self._settled(entity, turn, pause))
            both: list[asyncio.Future[Any]] = [future, settled]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                settled.cancel()
            if future.done():
                return future.result()
            session = self._session(entity)
            try:
                found = await run_in_store(session, partial(session.store.turn, entity, turn))
            except StoreError as error:
                if error.passing:  # the message is stored, and handled later
                    continue
                raise
            status = found.status if found is not None else "failed"
            if future.done():
                return future.result()
            if status == "completed":
                return await _stored_reply(session, turn)
            if status == "failed":
                raise MuntinError(f"turn {turn} of {entity!r} failed in another process")
            pause = min(2 * pause, ASK_SECONDS[1])

    async def _settled(self, entity: str, turn: int, pause: float) -> None:
        """Wait until a turn may be over; while it is handled here, the store is not asked."""
        await self.engine.settled(entity, turn, pause)
        while here := self._here.get((asyncio.get_running_loop(), entity)):
            await here.wait()

    # The parts for an engine.

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

    async def run(self, session: str, turn: int, *, sure: bool = False) -> int:
        """Handle the turns of an entity up to and with this turn: the one way to take a turn."""
        kind = entity_type(session)
        if kind not in self._handlers:  # another version of the program may know it
            raise Again(f"no entities of type {kind!r} are registered here", UNKNOWN_SECONDS)
        key = (asyncio.get_running_loop(), session)
        over = self._here[key] = asyncio.Event()
        try:
            return await self._run(session, turn, sure)
        finally:
            if self._here.get(key) is over:
                del self._here[key]
            over.set()

    async def _run(self, session: str, turn: int, sure: bool) -> int:
        opened = self._session(session)
        last = 0
        while last < turn:
            handled = await self._handle_next(opened, sure)
            if handled is None:
                found = await run_in_store(opened, partial(opened.store.turn, session, turn))
                if found is not None and found.status in UNSETTLED:
                    raise Again(f"turn {turn} of {session!r} cannot be taken yet", BUSY_SECONDS)
                break
            last = handled
        return last

    async def release(self) -> float:
        """Release the timers that are due; return in how many seconds to look again."""
        return await self.inbox.release()

    def _session(self, entity: str) -> Session:
        """Return the session of an entity; dead turns are failed when its turns are taken."""
        return self._app.session(entity, mend=False)

    async def _handle_next(self, session: Session, sure: bool = False) -> int | None:
        """Take the next turn that waits, and handle it; None if there is none."""
        owner = new_owner()
        try:
            ctx = await self._taken(session, owner, sure)
            if ctx is None:
                return None
            await self._handle(ctx)
            if not ctx.turn.is_settled:  # lost to another process, or its end was not written
                raise Again(f"turn {ctx.turn.number} of {session.id!r} is not over", AWAY_SECONDS)
            return ctx.turn.number
        finally:
            done(owner)  # an unsettled turn is taken by the next process

    async def _taken(self, session: Session, owner: str, sure: bool) -> Ctx | None:
        """Take the next turn; hand it back if this task is cancelled meanwhile."""
        take = partial(self._take, session, owner, sure)
        taking = asyncio.ensure_future(run_in_store(session, take))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            with suppress(MuntinError, asyncio.CancelledError):
                ctx = await to_the_end(taking)
                if ctx is not None:
                    await ctx.turn.leave()
            raise

    async def _handle(self, ctx: Ctx) -> None:
        """Handle a turn that was taken, and settle it; `Again` if the store was away."""
        turn, session = ctx.turn, ctx.session
        try:
            async with turn.held():
                with turn.inside(), tried_later():
                    await self.handler(session.id).call(ctx)
                await turn.finish("completed")
        except TurnLost:
            pass  # the new owner settles it; `ask` polls for that
        except asyncio.CancelledError:
            await turn.leave()  # it stays open for the next process
            raise
        except GeneratorExit:
            raise  # the event loop has ended: awaiting is impossible
        except BaseException as error:
            again = await self._handed_back(turn, error)
            if again is not None:
                raise again from error
            await self._failed(turn, error)
            if not isinstance(error, Exception | SystemExit):
                raise  # the program is being stopped
        else:
            self._tell(session.id, turn.number, turn.replies[-1] if turn.replies else None)
        if ctx.looked:
            self._looking.add(entity_type(session.id))

    async def _handed_back(self, turn: ActiveTurn, error: BaseException) -> Again | None:
        """Hand a turn back after an error that is not the handler's; return when to try again.

        None if the handler is at fault. The wait for a store has no end; the wait for a provider
        that has too much to do ends after some hours.
        """
        busy = provider_busy(error) if isinstance(error, Exception) else None
        if turn.is_settled:
            return None
        if store_away(error):
            pause, wait = 0.0, AWAY_SECONDS
        elif busy is not None and (turn.attempt or 0) < MAX_BUSY:
            pause = wait = _back_off(turn.attempt or 1, busy.retry_after)
        else:
            return None
        where = f"turn {turn.number} of {turn.session.id!r}"
        _log.warning("%s is left, to be handled in %.1f s: %s", where, wait, error)
        await turn.leave(pause)
        return Again(f"{where} is to be handled later", wait)

    async def _failed(self, turn: ActiveTurn, error: BaseException) -> None:
        """End a turn that failed, and tell the callers that asked."""
        before, reason = "", None
        if provider_busy(error) is not None and (turn.attempt or 0) >= MAX_BUSY:
            before = f"gave_up: the turn was taken {turn.attempt} times, at last: "
            turn.recorded, reason = None, "gave_up"
        try:
            if turn.recorded is not error and not turn.is_settled:
                with suppress(MuntinError):
                    ends: Status | None = "failed" if reason is None else None
                    await turn.record(error_draft(error, before), ends=ends)
            await turn.finish("failed", reason=reason)
        except MuntinError as another:
            error.add_note(f"and the turn could not be marked failed: {another}")
        finally:
            turn.release()
        self._tell(turn.session.id, turn.number, error)

    def _take(self, session: Session, owner: str, sure: bool) -> Ctx | None:
        """Take the next turn that waits, and read what its handler may need."""
        taken = session.store.take(
            session.id, owner, LEASE, resumable=True, max_attempts=MAX_ATTEMPTS, sure=sure
        )
        if taken is None:
            return None
        turn = ActiveTurn(self._app, session, taken.number, owner=owner, attempt=taken.attempt)
        try:
            return self._ctx(session, turn)
        except StoreError:
            with suppress(StoreError):
                turn.hand_back()
            raise

    def _ctx(self, session: Session, turn: ActiveTurn) -> Ctx:
        """Return the ctx of a turn's handler, with its items read."""
        items = turn.items()
        if any(item.kind == "run" for item in items):
            turn.resume(items, _last_step(turn, items))
        events = [item for item in items if item.kind in WAKES and item.run is None]
        wake = _wake(events)
        ctx = Ctx(
            turn,
            where="the handler of an entity",
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
        """Tell all callers that asked how a turn ended."""
        for future in self._asked.pop((entity, turn), ()):
            if future.done():
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            elif isinstance(result, BaseException):
                future.set_exception(
                    MuntinError(f"the handler of {entity!r} ended by {shown(result)}")
                )
            else:
                future.set_result(result)


def _back_off(attempt: int, asked: float | None) -> float:
    """Return how many seconds to wait for a provider: longer each time, with a random part, and as
    long as the provider asks for."""
    pause = min(BACK_OFF_SECONDS * 2.0 ** min(attempt - 1, 20), LONGEST_SECONDS)
    return max(pause, min(asked or 0.0, LONGEST_ASKED)) * random.uniform(1.0, 1.25)


def _last_step(turn: ActiveTurn, items: Sequence[Item]) -> int:
    """Return the last step of an earlier attempt at a turn: by its reports, or by its answers."""
    number = turn.number
    kept = turn.session.store.reports(turn.session.id, first=number, last=number)
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
    items = await run_in_store(session, lambda: read(session.id, first_turn=turn, last_turn=turn))
    for item in reversed(items):
        for message in default_messages(item):
            if message.role == "assistant":
                return Reply(message)
    return None
