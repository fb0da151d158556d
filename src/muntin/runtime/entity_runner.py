"""Entities: sessions that handle the items sent to them, one wake at a time.

Owns waking: which process may handle an entity now, what woke it, how long a wake may take, how its
turn ends, and who waits for the answer. The engine decides when and where a turn runs.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from muntin import telemetry
from muntin.agent.loop import to_the_end
from muntin.core.checks import shown
from muntin.core.message import Input
from muntin.errors import InvalidInput, MuntinError, StoreError, TurnLost
from muntin.providers.model import Reply
from muntin.providers.overload import tried_later
from muntin.runtime.ctx import Ctx, Wake
from muntin.runtime.engine.protocol import Again, Engine
from muntin.runtime.inbox import Inbox, Registered, entity_type
from muntin.runtime.store_thread import provider_busy, run_in_store, store_away
from muntin.runtime.suspects import MAX_ATTEMPTS, Suspects
from muntin.runtime.turn import ActiveTurn
from muntin.timeline.items import UNSETTLED, Status, error_draft
from muntin.timeline.owner import done, new_owner
from muntin.timeline.project import default_messages
from muntin.timeline.session import WAKES, Session
from muntin.timeline.turn import LEASE

if TYPE_CHECKING:
    from muntin.runtime.app import App

_TYPES = {"message": "inbox", "signal": "signal", "wake": "timer"}
# Seconds between questions whether a turn that runs elsewhere is over: at first, and at most.
ASK_SECONDS = (0.02, 0.2)
# Seconds before the next try: of a turn held by a conversation, of a type without a handler here,
# of a turn left because the store was away.
BUSY_SECONDS, UNKNOWN_SECONDS, AWAY_SECONDS = 0.2, 5.0, 1.0
# How often a turn is taken without getting further while its provider has too much to do; how long
# it waits, twice as long each time; the longest wait; the longest wait that a provider may ask for.
MAX_BUSY, BACK_OFF_SECONDS, LONGEST_SECONDS, LONGEST_ASKED = 20, 2.0, 300.0, 3_600.0

_log = logging.getLogger(__name__)


class EntityRunner:
    """The entities of an app: their handlers, running wakes, and callers that wait for replies."""

    def __init__(self, app: App, engine: Engine, max_pending: int | None) -> None:
        self._app = app
        self.store = app.store
        self.engine = engine
        self.handlers: dict[str, Registered] = {}
        self.inbox = Inbox(app, engine, self.handlers, max_pending)
        engine.bind(self)
        # The types whose handlers read the history or the entries: these are read ahead.
        self._looking: set[str] = set()
        self._waiters: dict[tuple[str, int], list[asyncio.Future[Reply | None]]] = {}
        # The entities that are handled here, by event loop, each with an event for the end.
        self._here: dict[tuple[asyncio.AbstractEventLoop, str], asyncio.Event] = {}
        self._suspects = Suspects(app.queue)

    def register(self, kind: str, registered: Registered) -> None:
        """Register the handler of a type of entities."""
        if not inspect.iscoroutinefunction(registered.handler):
            raise InvalidInput(f"the handler of {kind!r} must be an async function")
        try:
            inspect.signature(registered.handler).bind(None, None)
        except TypeError as error:
            raise InvalidInput(f"the handler of {kind!r} must take (ctx, wake): {error}") from None
        self.handlers[kind] = registered
        with suppress(RuntimeError):  # registered before the app runs
            self.engine.start()

    # Callers that wait for a reply.

    async def answer(self, entity: str, turn: int) -> Reply | None:
        """Wait until a turn of an entity is over, here or in another process."""
        future: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        with self._app.queue.waits_for(entity):
            waiters = self._waiters.setdefault((entity, turn), [])
            waiters.append(future)
            try:
                return await self._wait_for_reply(future, entity, turn)
            finally:
                waiters.remove(future)
                if not waiters and self._waiters.get((entity, turn)) is waiters:
                    del self._waiters[entity, turn]

    async def _wait_for_reply(
        self, future: asyncio.Future[Reply | None], entity: str, turn: int
    ) -> Reply | None:
        pause = ASK_SECONDS[0]
        while not future.done():
            over = asyncio.ensure_future(self._wait_for_end(entity, turn, pause))
            both: list[asyncio.Future[Any]] = [future, over]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                over.cancel()
            if not future.done():
                try:
                    await self._look_for_reply(entity, turn)
                except StoreError as error:
                    if not error.passing:  # else the message is stored, and handled later
                        raise
            pause = min(2 * pause, ASK_SECONDS[1])
        return future.result()

    async def _wait_for_end(self, entity: str, turn: int, pause: float) -> None:
        """Wait until a turn may be over; while it is handled here, the store is not asked."""
        await self.engine.settled(entity, turn, pause)
        while here := self._here.get((asyncio.get_running_loop(), entity)):
            await here.wait()

    async def _look_for_reply(self, entity: str, turn: int) -> None:
        """Notify the waiters if the store says that another process has ended the turn."""
        session = self._session(entity)
        turns = await run_in_store(session, partial(session.store.turns, entity, number=turn))
        status = turns[0].status if turns else "failed"
        if status == "failed":
            failed = MuntinError(f"turn {turn} of {entity!r} failed in another process")
            self._notify_waiters(entity, turn, failed)
        elif status == "completed":
            read = partial(session.store.read, entity, first_turn=turn, last_turn=turn)
            messages = [
                m for item in await run_in_store(session, read) for m in default_messages(item)
            ]
            answers = [message for message in messages if message.role == "assistant"]
            self._notify_waiters(entity, turn, Reply(answers[-1]) if answers else None)

    def _notify_waiters(self, entity: str, turn: int, result: Reply | BaseException | None) -> None:
        """Tell all callers that wait how a turn ended."""
        for future in self._waiters.pop((entity, turn), ()):
            if future.done():
                continue
            if not isinstance(result, BaseException):
                future.set_result(result)
            elif isinstance(result, Exception):
                future.set_exception(result)
            else:
                ended = MuntinError(f"the handler of {entity!r} ended by {shown(result)}")
                future.set_exception(ended)

    # The parts for an engine.

    async def release_timers(self) -> None:
        """Release the timers that are due, again and again, until cancelled."""
        await self.inbox.release_timers()

    async def run(self, session: str, turn: int, *, sure: bool = False) -> int:
        """Handle the turns of an entity up to and with this turn: the one way to take a turn."""
        kind = entity_type(session)
        if kind not in self.handlers:  # another version of the program may know it
            raise Again(f"no entities of type {kind!r} are registered here", UNKNOWN_SECONDS)
        key = (asyncio.get_running_loop(), session)
        over = self._here[key] = asyncio.Event()
        opened = self._session(session)
        last = 0
        try:
            while last < turn:
                handled = await self._handle_next(opened, sure)
                if handled is None:
                    read = partial(opened.store.turns, session, number=turn)
                    if any(
                        waiting.status in UNSETTLED for waiting in await run_in_store(opened, read)
                    ):
                        raise Again(f"turn {turn} of {session!r} cannot be taken yet", BUSY_SECONDS)
                    break
                last = handled
            return last
        finally:
            if self._here.get(key) is over:
                del self._here[key]
            over.set()

    # A wake.

    def _session(self, entity: str) -> Session:
        """Return the session of an entity; dead turns are failed when its turns are taken."""
        return self._app.session(entity, mend=False)

    async def _handle_next(self, session: Session, sure: bool = False) -> int | None:
        """Take the next turn that waits, and handle it; None if none can be taken now."""
        suspects = self._suspects
        if suspects.are_alone:
            return None
        handled = await self._take_and_handle(session, sure, most_tries=0)
        if handled is not None or not await suspects.enter(session.id):
            return handled
        try:
            return await self._take_and_handle(session, sure, most_tries=suspects.most_tries)
        finally:
            suspects.leave(session.id)

    async def _take_and_handle(
        self, session: Session, sure: bool, *, most_tries: int
    ) -> int | None:
        owner = new_owner()
        try:
            take = partial(self._take_turn, session, owner, sure, most_tries)
            taking = asyncio.ensure_future(run_in_store(session, take))
            try:
                ctx = await asyncio.shield(taking)
            except asyncio.CancelledError:
                with suppress(MuntinError, asyncio.CancelledError):
                    ctx = await to_the_end(taking)
                    if ctx is not None:
                        await ctx.turn.leave()
                raise
            if ctx is None:
                return None
            self._suspects.handled.add(session.id)
            await self._handle(ctx)
            if not ctx.turn.is_settled:  # lost to another process, or its end was not written
                raise Again(f"turn {ctx.turn.number} of {session.id!r} is not over", AWAY_SECONDS)
            return ctx.turn.number
        finally:
            self._suspects.handled.discard(session.id)
            done(owner)  # an unsettled turn is taken by the next process

    def _take_turn(self, session: Session, owner: str, sure: bool, most_tries: int) -> Ctx | None:
        """Take the next turn that waits, and read what its handler may need."""
        taken = session.store.take(
            session.id,
            owner,
            LEASE,
            resumable=True,
            max_attempts=MAX_ATTEMPTS,
            most_tries=most_tries,
            sure=sure,
        )
        if taken is None:
            return None
        turn = ActiveTurn(self._app, session, taken.number, owner=owner, attempt=taken.attempt)
        turn.on_progress = partial(self._suspects.leave, session.id)
        turn.stalled = taken.attempt - taken.progress
        self._suspects.note_taken(session.id, taken.tries)
        try:
            return self._ctx(session, turn)
        except StoreError:
            with suppress(StoreError):
                turn.hand_back()
            raise

    def _ctx(self, session: Session, turn: ActiveTurn) -> Ctx:
        """Return the ctx of a turn's handler, with its items read."""
        items = turn.items()
        turn.resume(items)
        events = [item for item in items if item.kind in WAKES and item.run is None]
        newest = events[-1]
        wake = Wake(
            type=_TYPES[newest.kind],
            source=newest.meta.get("sender"),
            payload=newest.payload if newest.message is None else newest.message.text,
            from_position=events[0].position,
            to_position=newest.position,
            count=len(events),
        )
        ctx = Ctx(
            turn,
            where="the handler of an entity",
            input=wake.payload,
            message=Input(default_messages(newest)[0].text),
            budget=None if self._app.model is None else self._app.own_composer().budget,
            wake=wake,
            events=events,
        )
        if entity_type(session.id) in self._looking:
            ctx.load()
        return ctx

    async def _handle(self, ctx: Ctx) -> None:
        """Handle a turn that was taken, and settle it; `Again` if the store was away."""
        turn, session = ctx.turn, ctx.session
        # Who sent what woke it: the wake is part of the newest sender's trace.
        marks = [mark for item in ctx.events if (mark := item.meta.get("trace"))]
        with telemetry.doing(
            "wake",
            entity_type(session.id),
            session.id,
            sent_by=marks,
            turn=turn.number,
            attempt=turn.attempt or 1,
        ) as work:
            await self._handle_in(work, ctx)

    async def _handle_in(self, work: telemetry.Work, ctx: Ctx) -> None:
        turn, session = ctx.turn, ctx.session
        try:
            async with turn.held():
                with turn.inside(), tried_later():
                    await self.inbox.handler(session.id).call(ctx)
                await turn.finish("completed")
        except TurnLost:
            pass  # the new owner settles it; `ask` polls for that
        except asyncio.CancelledError:
            await turn.leave()  # it stays open for the next process
            raise
        except GeneratorExit:
            raise  # the event loop has ended: awaiting is impossible
        except BaseException as error:
            work.fail(error)
            await self._hand_back(turn, error)
            await self._fail(turn, error)
            if not isinstance(error, Exception | SystemExit):
                raise  # the program is being stopped
        else:
            reply = turn.replies[-1] if turn.replies else None
            self._notify_waiters(session.id, turn.number, reply)
        if ctx.looked:
            self._looking.add(entity_type(session.id))

    async def _hand_back(self, turn: ActiveTurn, error: BaseException) -> None:
        """Hand a turn back after an error that is not the handler's, and raise when to try again.

        The wait for a store has no end; the wait for a provider that has too much to do ends after
        some hours.
        """
        busy = provider_busy(error)
        if turn.is_settled:
            return
        if store_away(error):
            pause, wait = 0.0, AWAY_SECONDS
        elif busy is not None and turn.stalled < MAX_BUSY:
            # Longer each time, as long as the provider asks for, and with a random part.
            doubled = 2.0 ** min(max(turn.stalled - 1, 0), 20)
            pause = min(BACK_OFF_SECONDS * doubled, LONGEST_SECONDS)
            pause = max(pause, min(busy.retry_after or 0.0, LONGEST_ASKED))
            pause = wait = pause * random.uniform(1.0, 1.25)
        else:
            return
        where = f"turn {turn.number} of {turn.session.id!r}"
        _log.warning("%s is left, to be handled in %.1f s: %s", where, wait, error)
        await turn.leave(pause)
        raise Again(f"{where} is to be handled later", wait) from error

    async def _fail(self, turn: ActiveTurn, error: BaseException) -> None:
        """End a turn that failed, and tell the callers that wait."""
        before, reason = "", None
        if provider_busy(error) is not None and turn.stalled >= MAX_BUSY:
            before = f"gave_up: the turn was taken {turn.stalled} times, at last: "
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
        self._notify_waiters(turn.session.id, turn.number, error)
