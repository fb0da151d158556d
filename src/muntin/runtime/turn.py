"""A turn in progress, as async code works on it, shared by all interfaces.

Waits for the turn, holds its lease, appends to it, settles it. All interfaces write through it, and
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
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from threading import Lock
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from muntin import telemetry
from muntin.agent.loop import to_the_end
from muntin.composer import Composer
from muntin.core.counting.counter import Counter
from muntin.core.message import Message
from muntin.core.planning.slot import Trimming
from muntin.errors import InvalidInput, MuntinError, StoreError, TurnEnded, TurnLost
from muntin.providers.model import Event, Finished, Model, Reply
from muntin.runtime.embedding import Embeddings
from muntin.runtime.reports import Receipts
from muntin.runtime.run_rules import NO_RULES, RunRules
from muntin.runtime.spending import MaxCost
from muntin.runtime.store_thread import run_in_store, store_away, while_dropped
from muntin.runtime.summaries import Summaries
from muntin.runtime.turn_queue import TurnQueue
from muntin.threads import aside
from muntin.timeline.entries import ContextEntry
from muntin.timeline.items import Draft, Item, SideWrites, Status, Visibility
from muntin.timeline.receipts import Bounds
from muntin.timeline.session import Session
from muntin.timeline.turn import LEASE, OpenTurn

T = TypeVar("T")


class TurnHost(Protocol):
    """The parts of an app that a turn needs."""

    queue: TurnQueue
    report_bounds: Bounds
    rules: RunRules
    summaries: Summaries
    embeddings: Embeddings
    max_cost: MaxCost | None

    @property
    def answering(self) -> Callable[[str | Model | None, str], Model]:
        """Return the model meant by a name; the app's own for None."""

    @property
    def composer(self) -> Callable[..., Composer]:
        """Return how windows for a model are made."""


def nothing() -> None:
    """Do nothing; where nothing is to be done in a visit to the store."""


class FlowSettings(NamedTuple):
    """The settings of a flow, for the generators in its turns."""

    trimming: Trimming | None = None
    rules: RunRules = NO_RULES


class TurnEntries:
    """The context entries of a session as all code of a turn sees them: the store's, with the
    turn's own writes, by id."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._stored: dict[str, ContextEntry] | None = None
        # The entries that this turn wrote, perhaps not durable yet; None: removed.
        self._written: dict[str, ContextEntry | None] = {}

    def load(self) -> None:
        """Read the entries ahead, for code on the event loop; runs in a thread."""
        self._stored = {entry.id: entry for entry in self._session.list_context()}

    def put(self, id: str, entry: ContextEntry | None) -> None:
        """Note that this turn inserted an entry, or with None, that it removed one."""
        self._written.pop(id, None)  # the newest stands last
        self._written[id] = entry

    def note(self, entry: ContextEntry) -> None:
        """Note the real position of an entry that was inserted before."""
        if self._written.get(entry.id) is not None:
            self._written[entry.id] = entry

    def all(self) -> list[ContextEntry]:
        """Return the live entries in the order in which they were inserted."""
        if self._stored is None:
            aside(self.load)
        entries = dict(self._stored or {})
        for id, entry in self._written.items():
            entries.pop(id, None)
            if entry is not None:
                entries[id] = entry
        return [*entries.values()]


class ActiveTurn(OpenTurn):
    """A turn in progress: the app, the open turn, and the results so far."""

    def __init__(
        self,
        app: TurnHost,
        session: Session,
        number: int | None = None,
        *,
        owner: str | None = None,
        attempt: int | None = None,
        flow: FlowSettings | None = None,
    ) -> None:
        super().__init__(session, number, owner=owner, attempt=attempt, opens="queue")
        self.app = app
        self.flow = flow or FlowSettings()
        self.replies: list[Reply] = []
        # The error that a run has recorded: the turn need not record it again.
        self.recorded: BaseException | None = None
        # The results of the functions of capabilities in this turn, by capability.
        self.cap: dict[Any, Any] = {}
        # Runs that an earlier attempt has begun: (item, its children), not yet resumed.
        self.begun: list[tuple[Item, list[Item]]] = []
        self.receipts = Receipts(self, app.report_bounds)
        self.entries = TurnEntries(session)
        self._staged: list[Draft] = []
        self._staging = Lock()
        # Closed: nothing more can be written. Settled: the end of the turn is durable.
        self._phase: Literal["open", "closed", "settled"] = "open"
        # How often the turn was taken since it got further, and what is called when a run does.
        self.stalled = 0
        self.on_progress: Callable[[], object] = nothing
        # The span of the turn; that of an entity is the wake's.
        self.work = telemetry.Work()
        # When the lease ends, by the monotonic clock, as far as this process knows.
        self._holds = time.monotonic() + LEASE.total_seconds()

    def resume(self, items: Sequence[Item]) -> None:
        """Go on where an earlier attempt stopped, if it did: with its runs, after its last step."""
        parts = [item for item in items if item.run is not None and item.kind != "error"]
        self.begun = [
            (item, [part for part in parts if part.run == item.position])
            for item in items
            if item.kind == "run" and item.run is None
        ]
        if self.begun:  # its last step: by its reports, or by its answers
            number = self.number
            reports = self.session.store.reports(self.session.id, first=number, last=number)
            answers = [part for part in parts if part.role == "assistant"]
            self.receipts.step = max((report.step for report in reports), default=len(answers))

    @property
    def resuming(self) -> set[int]:
        """The positions of runs that an earlier attempt began and this attempt has not resumed."""
        return {item.position for item, _ in self.begun}

    @property
    def is_taken(self) -> bool:
        """Whether the turn is worked on here; before that it waits for other turns."""
        return self.attempt is not None

    @property
    def parts(self) -> set[tuple[str, int]]:
        """The items of these runs: the session and the position of each."""
        id = self.session.id
        return {(id, item.position) for run, parts in self.begun for item in (run, *parts)}

    @property
    def is_settled(self) -> bool:
        """Whether the end of the turn is durable."""
        return self._phase == "settled"

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Run users' functions in the block: waiting there for this turn to end is refused."""
        with self.app.queue.inside(self), self.work.inside():
            yield

    def check(self) -> None:
        """Refuse to write or run anything in a turn that has ended."""
        if self.over or self._phase != "open":
            raise TurnEnded(self.session.id, self.number)

    # Beginning and ending.

    def reopen(self) -> Item:
        """Make this the newest turn of the session, which failed, and return the item that began
        it; for code in a thread."""
        session = self.session
        (newest,) = session.store.turns(session.id, newest=1) or (None,)
        if newest is None:
            raise InvalidInput(f"session {session.id!r} has no turn that could be tried again")
        items = session.try_again(newest.number)
        self.number, self.first = newest.number, items[0].position
        self.resume(self.items())
        return items[0]

    async def start(
        self,
        item: Draft | Message | None,
        on_taken: Callable[[list[Item] | None], object] | None = None,
    ) -> ActiveTurn:
        """Append the item that begins the turn, unless that was reopened; if no other turn comes
        first, take the turn too.

        `on_taken` is called with that item in the visit to the store that takes the turn.
        """
        self.app.queue.check(self.session.id)
        self.work = telemetry.begin("turn", None, self.session.id)
        try:
            begin = partial(self._begin_and_take, item, on_taken)
            with self.work.inside():
                await to_the_end(run_in_store(self.session, begin, while_dropped()))
        except BaseException as error:
            await self.fail(error)
            raise
        return self

    def _begin_and_take(
        self,
        item: Draft | Message | None,
        on_taken: Callable[[list[Item] | None], object] | None,
    ) -> None:
        begun = None if item is None else [self.begin(item)]
        try:
            self._take(None if on_taken is None else partial(on_taken, begun))
        except Exception as error:
            if not store_away(error):
                raise

    def _take(self, on_taken: Callable[[], object] | None) -> bool:
        is_taken = self.take()
        if is_taken and on_taken is not None:
            try:
                on_taken()
            except BaseException:
                self.attempt = None  # the next try takes the turn again, and calls it again
                raise
        return is_taken

    async def wait(self, on_taken: Callable[[], object] | None = None) -> None:
        """Wait until the turns before this one are over; `on_taken` is called in the visit to the
        store that takes the turn."""
        if not self.is_taken:
            await self.app.queue.wait(self.session.id, self.number, partial(self._try, on_taken))

    async def _try(self, on_taken: Callable[[], object] | None) -> bool:
        """Take the turn if that is possible now; False while the store is away."""
        try:
            return await run_in_store(self.session, partial(self._take, on_taken))
        except StoreError as error:
            if not error.passing or time.monotonic() > self._holds:
                raise
            return False

    async def settling(
        self, item: Draft | Message, begin: Callable[[], Awaitable[AsyncGenerator[Event, None]]]
    ) -> AsyncGenerator[Event, None]:
        """Begin the turn, and yield the events of its only run; the turn is settled before the last
        event."""
        await self.start(item)
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
        self.work.fail(error)
        cancelled = isinstance(error, asyncio.CancelledError | GeneratorExit)
        try:
            await to_the_end(self.finish("failed", reason="cancelled" if cancelled else None))
        except MuntinError as lost:
            error.add_note(f"and the turn could not be marked failed: {lost}")

    async def finish(self, status: Status, *, reason: str | None = None) -> None:
        """Settle the turn with the staged drafts; nothing happens if it is settled or not ours.

        `reason` says why the turn failed.
        """
        if self.is_settled:
            return
        with self._staging:
            self._phase = "closed"
        # A reason is stored by `settle`, not by the last append.
        write = self._append_once((), ends=status if reason is None else None)

        def settle() -> None:
            try:
                write()
            except MuntinError as error:
                # The error that made a turn fail counts more than an entry that cannot be written.
                if status != "failed" or store_away(error):
                    raise
            if not self.is_settled:
                unwritten = self.receipts.unwritten  # of runs that were cancelled
                beside = [self._beside(step) or SideWrites() for step in unwritten]
                self.settle(status, reason=reason, beside=beside)
                self._phase = "settled"

        try:
            await self._in_store(settle)
        finally:
            self._leave()

    async def leave(self, after: float = 0) -> None:
        """Leave the turn to other processes, after some seconds; errors of the store are ignored.

        This does not count as a try. Staged drafts are not written: they will be staged again.
        """
        with self._staging:
            self._phase = "closed"
        hand_back = partial(self.hand_back, timedelta(seconds=after))
        try:
            with suppress(MuntinError):
                await to_the_end(self._in_store(hand_back))
        finally:
            self._leave()

    def _leave(self) -> None:
        """Stop working on the turn, and call the next turn."""
        self.release()
        self.work.end()
        self.app.queue.call(self.session.id)

    # Reading and writing.

    async def read(self, work: Callable[[], T]) -> T:
        """Read something; while the store is away, try again until the lease ends."""
        with self.work.inside():
            return await run_in_store(self.session, work, lambda _: self._holds)

    async def _in_store(self, work: Callable[[], T]) -> T:
        """Write something, which renews the lease; try again as `read` does."""
        began = time.monotonic()
        done = await self.read(work)
        self._holds = max(self._holds, began + LEASE.total_seconds())
        return done

    async def record(
        self,
        *items: Draft | Message,
        counter: Counter | None = None,
        run: int | None = None,
        visibility: Visibility | None = None,
        meta: Mapping[str, Any] | None = None,
        step: int = 0,
        ends: Status | None = None,
        then: Callable[[], object] | None = None,
    ) -> list[Item]:
        """Append to the turn, and return the items when they are durable.

        The items are part of the run at the position `run`, and the report of its `step` is stored
        with them. `meta` holds facts about them. `ends` settles the turn with the last item. `then`
        is called in the same visit to the store.
        """
        session = self.session if counter is None else self.session.counted_by(counter)
        options: dict[str, Any] = {"turn": self.number}
        if run is not None:
            options.update(run=run, visibility=visibility)
        if meta:
            options["meta"] = meta
        drafts = [session.draft(item, **options) for item in items]
        _, added = await self.flush(then or nothing, *drafts, step=step, ends=ends)
        if run is not None:
            self.stalled = 0
            self.on_progress()
        if ends is not None:
            self._leave()
        return added

    async def flush(
        self, then: Callable[[], T], *drafts: Draft, step: int = 0, ends: Status | None = None
    ) -> tuple[T, list[Item]]:
        """Write the staged drafts and others; call `then` in the same visit to the store."""
        write = self._append_once(drafts, step, ends)

        def visit() -> tuple[T, list[Item]]:
            added = write()
            return then(), added

        return await self._in_store(visit)

    async def flush_staged(self, then: Callable[[], object] = nothing) -> None:
        """Do the same as `flush`, if anything is staged."""
        if self._staged:
            await self.flush(then)

    def stage(self, draft: Draft) -> None:
        """Append a draft with the next append, or at the end of the turn."""
        counted = self.session.draft(draft, turn=self.number)
        with self._staging:
            self.check()
            self._staged.append(counted)

    def append_now(self, draft: Draft) -> Item:
        """Append one draft at once; for code that runs in a thread."""
        self.check()
        write = self._append_once([self.session.draft(draft, turn=self.number)])
        try:
            return write()[0]
        except StoreError as error:
            if not error.in_doubt:
                raise
            return write()[0]  # checks whether it was stored

    def _append_once(
        self, drafts: Sequence[Draft], step: int = 0, ends: Status | None = None
    ) -> Callable[[], list[Item]]:
        """Return a function that appends the staged drafts and these, and returns the items of
        these; once, even if it is called again. For code in a thread.

        The report of a step is stored too; if it cannot be written, the items still are.
        """
        batch: list[Draft] | None = None
        added: list[Item] | None = None

        def write() -> list[Item]:
            nonlocal batch, added
            if added is not None:
                return added
            if batch is None:
                with self._staging:
                    batch, self._staged = [*self._staged, *drafts], []
                    if ends is not None and self._phase == "open":
                        self._phase = "closed"
                if ends is not None and batch:
                    batch[-1] = replace(batch[-1], ends=ends)
            staged = batch[: len(batch) - len(drafts)]
            try:
                items = self.write(batch, self._beside(step) if step else None)
            except BaseException:
                if id(batch) not in self._in_doubt:  # not written: the next append writes them
                    with self._staging:
                        again = [replace(draft, ends=None) for draft in staged]
                        self._staged = [*again, *self._staged]
                    batch = None
                raise
            if step:
                self.receipts.settle(step)
            if ends is not None and batch:
                self._phase = "settled"
            added = items[len(staged) :]
            return added

        return write

    def _beside(self, step: int) -> SideWrites | None:
        """Return what is to be stored for a step, if it is not stored yet."""
        with suppress(TypeError, ValueError, RecursionError):
            return self.receipts.beside(step)
        return None

    # The lease.

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
            ended = [task for task in renewing if task.done() and not task.cancelled()]
            if not self.is_settled and any(task.exception() is None for task in ended):
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
                is_ours = await run_in_store(self.session, self.renew)
            except MuntinError:
                pause = random.uniform(0.5, 1.5)  # the store may come back before the lease ends
            else:
                if not is_ours:
                    if task is not None and not self.is_settled:
                        task.cancel()
                    return
                self._holds = began + LEASE.total_seconds()
                pause = LEASE.total_seconds() / 3
            await asyncio.sleep(pause)
