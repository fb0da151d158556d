"""An active turn: an open turn as async code works on it, shared by all doors.

Waits for the turn, holds its lease, appends to it, settles it. All doors write through it, and
none of its calls to the store runs on the event loop.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from threading import Lock
from typing import Any, Literal, Protocol, TypeVar

from muntin.agent.loop import to_the_end
from muntin.agent.tools import ToolLike
from muntin.composer import Composer
from muntin.core.budget import Budget
from muntin.core.counting.counter import Counter
from muntin.core.message import Message
from muntin.core.planning.slot import Trimming
from muntin.errors import MuntinError, StoreError, TurnEnded, TurnLost
from muntin.providers.model import Event, Finished, Model, Reply
from muntin.runtime.embedding import Embeddings
from muntin.runtime.in_store import in_store, patiently, store_away, while_dropped
from muntin.runtime.reports import Receipts
from muntin.runtime.run_rules import NO_RULES, RunRules
from muntin.runtime.summaries import Summaries, Summary
from muntin.runtime.turn_entries import TurnEntries
from muntin.runtime.turn_queue import TurnQueue
from muntin.runtime.turn_write import TurnWrite
from muntin.timeline.items import Draft, Item, SideWrites, Status, Visibility
from muntin.timeline.receipts import Bounds
from muntin.timeline.session import LEASE, OpenTurn, Session

T = TypeVar("T")


class Host(Protocol):
    """The parts of an app that a turn needs."""

    queue: TurnQueue
    keep_reports: int
    report_bounds: Bounds
    rules: RunRules
    summary: Summary | None
    summaries: Summaries
    embeddings: Embeddings

    def answering(self, model: str | Model | None, what: str) -> Model:
        """Return the model meant by a name; the app's own for None."""

    def composer(
        self,
        model: Model | None,
        *,
        budget: Budget | int | None = None,
        trimming: Trimming | None = None,
        tools: Sequence[ToolLike] = (),
        caching: bool = True,
        rules: RunRules = NO_RULES,
    ) -> Composer:
        """Return how windows for a model are made."""


@dataclass(slots=True)
class RunItem:
    """The run that an agent works on; `position` is that of its item, None at first."""

    label: Mapping[str, Any]
    visibility: Visibility
    position: int | None = None
    # The step whose report is stored with the next append.
    step: int = 0


class ActiveTurn:
    """A turn in progress: the app, the open turn, and the results so far.

    `items` are the items of an earlier attempt at the turn, whose runs go on where they stopped;
    `step` is the last step for which that attempt composed a window.
    """

    def __init__(
        self, app: Host, open_turn: OpenTurn, items: Sequence[Item] = (), *, step: int = 0
    ) -> None:
        self.app = app
        self.open = open_turn
        self.session = open_turn.session
        # The position of the item that began the turn, if this process began it.
        self.first = 0
        # All items of this turn and of later turns, while this turn waits for no other turn.
        self.alone: list[Item] | None = None
        # The flow's trimming of histories and its rules for runs, if the turn is a flow's.
        self.trimming: Trimming | None = None
        self.rules = NO_RULES
        # The flow's summary setting.
        self.summary: Summary | Literal[False] | None = None
        self.replies: list[Reply] = []
        # The error that a run has recorded: the turn need not record it again.
        self.recorded: BaseException | None = None
        # The results of the functions of capabilities in this turn, by capability.
        self.cap: dict[Any, Any] = {}
        # Runs that an earlier attempt has begun: (item, its children), not yet resumed.
        self.begun = [
            (item, [each for each in items if each.run == item.position])
            for item in items
            if item.kind == "run" and item.run is None
        ]
        self.receipts = Receipts(open_turn, app.keep_reports, app.report_bounds)
        self.receipts.step = step
        self.entries = TurnEntries(self.session)
        self._staged: list[Draft] = []
        self._staging = Lock()
        # Closed: nothing more can be written. Settled: the end of the turn is durable.
        self._closed = self._settled = False
        self._also: Callable[[], object] | None = None
        self._taken: bool | Exception = False
        # When the lease ends, by the monotonic clock, as far as this process knows.
        self._holds = time.monotonic() + LEASE.total_seconds()

    @classmethod
    def queued(cls, app: Host, session: Session) -> ActiveTurn:
        """Return a turn that `begin` begins, behind earlier turns."""
        return cls(app, OpenTurn(session, opens="queue"))

    async def begin(
        self, item: Draft | Message, also: Callable[[], object] | None = None
    ) -> ActiveTurn:
        """Append the item that begins the turn; if no other turn comes first, take the turn too.

        `also` is called in the visit to the store that takes the turn.
        """
        self.app.queue.check(self.session.id)
        self._also = also
        try:
            write = partial(self._begin, item)
            await to_the_end(patiently(self.session, write, while_dropped()))
        except BaseException as error:
            await self.fail(error)
            raise
        return self

    def _begin(self, item: Draft | Message) -> None:
        begun = self.open.begin(item)
        self.first = begun.position
        self.alone = [begun]
        try:
            if not self._take():
                self.alone = None
        except Exception as error:  # the turn has begun: `wait` raises the error
            self.alone = None
            self._taken = False if store_away(error) else error

    def _take(self) -> bool:
        self._taken = self.open.take()
        if self._taken and self._also is not None:
            self._also()
        return self._taken

    @property
    def number(self) -> int:
        """The number of the turn in its session."""
        return self.open.number or 0

    @property
    def resuming(self) -> set[int]:
        """The positions of runs that an earlier attempt began and this attempt has not resumed."""
        return {item.position for item, _ in self.begun}

    async def wait(self) -> None:
        """Wait until the turns before this one are over."""
        if isinstance(self._taken, Exception):
            raise self._taken
        if not self._taken:
            await self.app.queue.wait(self.session.id, self.number, self._try)

    async def _try(self) -> bool:
        """Take the turn if that is possible now; False while the store is away."""
        try:
            return await in_store(self.session, self._take)
        except StoreError as error:
            if not error.passing or time.monotonic() > self._holds:
                raise
            return False

    def read(self, work: Callable[[], T]) -> Awaitable[T]:
        """Read something; while the store is away, try again until the lease ends."""
        return patiently(self.session, work, lambda _: self._holds)

    async def visit(self, work: Callable[[], T]) -> T:
        """Do something with the store; while it is away, try again until the lease ends."""
        began = time.monotonic()
        done = await patiently(self.session, work, lambda _: self._holds)
        self._holds = max(self._holds, began + LEASE.total_seconds())
        return done

    @asynccontextmanager
    async def settled(self) -> AsyncIterator[None]:
        """Wait for the turn, hold it, and settle it at the end of the block."""
        try:
            async with self.held():
                await self.wait()
                yield
            await self.finish("completed")
        except BaseException as error:
            await self.fail(error)
            raise

    async def fail(self, error: BaseException) -> None:
        """End the turn after an error or a cancellation; an error of the store becomes a note."""
        cancelled = isinstance(error, asyncio.CancelledError | GeneratorExit)
        try:
            await to_the_end(self.finish("failed", reason="cancelled" if cancelled else None))
        except MuntinError as lost:
            error.add_note(f"and the turn could not be marked failed: {lost}")

    async def settling(
        self, item: Draft | Message, begin: Callable[[], Awaitable[AsyncGenerator[Event, None]]]
    ) -> AsyncGenerator[Event, None]:
        """Begin the turn, and yield the events of its only run; the turn is settled before the last
        event."""
        await self.begin(item)
        finished = None
        async with self.settled():
            with self.inside():
                events = await begin()
            async with aclosing(events):
                async for event in events:
                    if isinstance(event, Finished):
                        finished = event
                    else:
                        yield event
        if finished is not None:
            yield finished

    def inside(self) -> AbstractContextManager[None]:
        """Run users' functions in the block: waiting there for this turn to end is refused."""
        return self.app.queue.inside(self.open)

    async def append(
        self,
        *items: Draft | Message,
        counter: Counter | None = None,
        run: RunItem | None = None,
        ends: Status | None = None,
        then: Callable[[], object] | None = None,
    ) -> list[Item]:
        """Append to the turn, and return the items when they are durable.

        The items are part of `run`, and the run's report is stored with them. `ends` settles the
        turn with the last item. `then` is called in the same visit to the store.
        """
        session = self.session
        if counter not in (None, session.counter):
            session = session.counted_by(counter)
        given: dict[str, Any] = {"turn": self.number}
        if run is not None:
            given.update(run=run.position, visibility=run.visibility)
        drafts = [session.draft(item, **given) for item in items[:-1]]
        drafts += [session.draft(item, **given, ends=ends) for item in items[-1:]]
        step = 0 if run is None else run.step
        write, added = TurnWrite(self, drafts, step, ends=ends), list[Item]()

        def visit() -> None:
            if not added:  # once, even if `then` is tried again
                added.extend(write())
            if then is not None:
                then()

        await self.visit(visit)
        if ends is not None:
            self._leave()
        return added

    async def begin_run(
        self, run: RunItem, line: str, then: Callable[[], object] | None = None
    ) -> None:
        """Record that a run begins: before the staged drafts, or with `then` behind them.

        The frontier that its first window follows is read in the same visit to the store; `then` is
        called there.
        """
        draft = Draft("run", payload=run.label, visibility=run.visibility, turn=self.number)
        write = TurnWrite(self, [draft] if run.position is None else [], first=then is None)

        def begin() -> None:
            if run.position is None:
                (item,) = write()
                run.position = item.position
            elif self._staged or write.in_doubt:
                write()
            self.receipts.load(line)
            if then is not None:
                then()

        await self.visit(begin)

    def write(self, draft: Draft) -> Item:
        """Append one draft at once; for code that runs in a thread."""
        self.check()
        write = TurnWrite(self, [self.session.draft(draft, turn=self.number)])
        try:
            (item,) = write()
        except StoreError:
            if not write.in_doubt:
                raise
            (item,) = write()  # checks whether it was stored
        return item

    def unstage(self, *, ends: bool) -> list[Draft]:
        """Return the staged drafts, to be written now; after `ends` nothing more can be staged."""
        with self._staging:
            staged, self._staged = self._staged, []
            self._closed = self._closed or ends
        return staged

    def stage_again(self, staged: Sequence[Draft]) -> None:
        """Stage drafts again that could not be written."""
        with self._staging:
            self._staged = [*staged, *self._staged]

    def beside(self, step: int) -> SideWrites | None:
        """Return what is to be stored for a step, if it is not stored yet."""
        return self.receipts.beside(step)

    def wrote(self, step: int, *, ends: bool) -> None:
        """Note what is durable now: the report of a step, the end of the turn."""
        if step:
            self.receipts.settle(step)
        self._settled = self._settled or ends

    def stage(self, draft: Draft) -> None:
        """Append a draft with the next append, or at the end of the turn."""
        counted = self.session.draft(draft, turn=self.number)
        with self._staging:
            self.check()
            self._staged.append(counted)

    def check(self) -> None:
        """Refuse to write or run anything in a turn that has ended."""
        self.open.check()
        if self._closed:
            raise TurnEnded(self.session.id, self.number)

    async def flush(self, then: Callable[[], T]) -> T:
        """Write the staged drafts, and call `then` in the same visit to the store."""
        write = TurnWrite(self, ())

        def visit() -> T:
            if self._staged or write.in_doubt:
                write()
            return then()

        return await self.visit(visit)

    async def flush_staged(self, then: Callable[[], object] = lambda: None) -> None:
        """Do the same as `flush`, if anything is staged."""
        if self._staged:
            await self.flush(then)

    async def items(self) -> list[Item]:
        """Return all items of the turn."""
        return await self.read(self.open.items)

    @property
    def is_settled(self) -> bool:
        """Whether the end of the turn is durable."""
        return self._settled

    async def hand_back(self, after: float = 0) -> None:
        """Leave the turn to other processes, after some seconds; errors of the store are ignored.

        This does not count as a try. Staged drafts are not written: they will be staged again.
        """
        with self._staging:
            self._closed = True
        leave = partial(self.open.hand_back, timedelta(seconds=after))
        try:
            with suppress(MuntinError):
                await to_the_end(self.visit(leave))
        finally:
            self._leave()

    async def finish(
        self, status: Status, then: Callable[[], T] | None = None, *, reason: str | None = None
    ) -> T | None:
        """Settle the turn with the staged drafts; nothing happens if it is settled or not ours.

        `then` is called in the same visit to the store. `reason` says why the turn failed.
        """
        if self._settled and then is None:
            return None
        with self._staging:
            self._closed = True

        # A reason is stored by `settle`, not by the last append.
        write = TurnWrite(self, (), ends=status if reason is None else None)

        def visit() -> T | None:
            if not self._settled:
                self._settle(status, reason, write)
            return None if then is None else then()

        try:
            return await self.visit(visit)
        finally:
            self._leave()

    def _settle(self, status: Status, reason: str | None, write: TurnWrite) -> None:
        try:
            if self._staged or write.in_doubt:
                write()
        except MuntinError as error:
            # The error that made a turn fail counts more than an entry that cannot be written.
            if status != "failed" or store_away(error):
                raise
        if not self._settled:
            beside = []
            for step in self.receipts.unwritten:  # of runs that were cancelled
                with suppress(TypeError, ValueError, RecursionError):
                    beside.append(self.receipts.beside(step) or SideWrites())
            self.open.settle(status, reason=reason, beside=beside)
            self._settled = True

    def _leave(self) -> None:
        """Stop working on the turn, and call the next turn."""
        self.open.release()
        self.app.queue.call(self.session.id)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Renew the lease while the block runs; cancel the block when the turn was lost."""
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        renewing: list[asyncio.Task[None]] = []

        def begin() -> None:
            renewing.append(loop.create_task(self._renew(task)))

        timer = loop.call_later(LEASE.total_seconds() / 3, begin)  # most turns are over by then
        try:
            yield
        except asyncio.CancelledError:
            ended = [each for each in renewing if each.done() and not each.cancelled()]
            if not self._settled and any(each.exception() is None for each in ended):
                raise TurnLost(self.session.id, self.number) from None
            raise
        finally:
            timer.cancel()
            if renewing and not loop.is_closed():
                renewing[0].cancel()
                await asyncio.wait(renewing)

    async def _renew(self, task: asyncio.Task[Any] | None) -> None:
        while True:
            began = time.monotonic()
            try:
                ours = await in_store(self.session, self.open.renew)
            except MuntinError:
                pause = random.uniform(0.5, 1.5)  # the store may come back before the lease ends
            else:
                if not ours:
                    if task is not None and not self._settled:
                        task.cancel()
                    return
                self._holds = began + LEASE.total_seconds()
                pause = LEASE.total_seconds() / 3
            await asyncio.sleep(pause)
