"""An active turn: an open turn as async code works on it, and what its doors share.

Waits for the turn, holds its lease, appends to it, settles it. All doors write through it, and
none of its calls to the store runs on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import (
    AbstractContextManager,
    aclosing,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from threading import Lock
from typing import Any, Protocol

from muntin.agent.loop import to_the_end
from muntin.agent.tools import ToolLike
from muntin.composer import Composer
from muntin.core.budget import Budget
from muntin.core.counting.counter import Counter
from muntin.core.message import Message
from muntin.core.planning.slot import Trimming
from muntin.errors import MuntinError, StoreError, TurnEnded, TurnLost
from muntin.providers.model import Event, Finished, Model, Reply
from muntin.runtime.in_store import in_store
from muntin.runtime.reports import Receipts
from muntin.runtime.turn_entries import TurnEntries
from muntin.runtime.turn_queue import TurnQueue
from muntin.timeline.items import Draft, Item, Status
from muntin.timeline.session import LEASE, OpenTurn, Session


class Host(Protocol):
    """What a turn needs of its app."""

    queue: TurnQueue
    keep_reports: int

    def answering(self, model: str | Model | None, what: str) -> Model:
        """Return the model meant."""

    def composer(
        self,
        model: Model | None,
        *,
        budget: Budget | int | None = None,
        trimming: Trimming | None = None,
        tools: Sequence[ToolLike] = (),
        caching: bool = True,
    ) -> Composer:
        """Return how windows for a model are made."""


class ActiveTurn:
    """A turn in progress: the app, the open turn, and what was done in it so far.

    `items` are those of an earlier attempt at the turn, whose runs go on where they stopped, and
    `step` is the last step it composed a window for.
    """

    def __init__(
        self, app: Host, open_turn: OpenTurn, items: Sequence[Item] = (), *, step: int = 0
    ) -> None:
        self.app = app
        self.open = open_turn
        self.session = open_turn.session
        self.first = 0
        # How the flow wants histories trimmed, if the turn is a flow's.
        self.trimming: Trimming | None = None
        self.replies: list[Reply] = []
        # The error that a run has recorded: the turn need not record it again.
        self.recorded: BaseException | None = None
        # What the functions of capabilities gave this turn, by capability.
        self.cap: dict[Any, Any] = {}
        # Runs that an earlier attempt has begun: (item, its children), not yet resumed.
        self.begun = [
            (item, [each for each in items if each.run == item.position])
            for item in items
            if item.kind == "run" and item.run is None
        ]
        self.receipts = Receipts(self.session, open_turn.number or 0, app.keep_reports)
        self.receipts.step = step
        self.entries = TurnEntries(self.session)
        self._staged: list[Draft] = []
        self._closed = False
        self._staging = Lock()

    @classmethod
    async def queue(cls, app: Host, session: Session, draft: Draft) -> ActiveTurn:
        """Append what begins a turn, which waits for the turns before it."""
        app.queue.check(session.id)
        opened = OpenTurn(session, opens="queue")
        (item,) = await to_the_end(in_store(session, lambda: opened.append(draft)))
        turn = cls(app, opened)
        turn.first = item.position
        return turn

    @property
    def number(self) -> int:
        """Which turn of the session it is."""
        return self.open.number or 0

    @property
    def resuming(self) -> set[int]:
        """Where the runs stand that an earlier attempt has begun and this one not yet resumed."""
        return {item.position for item, _ in self.begun}

    async def wait(self, also: Callable[[], object] | None = None) -> None:
        """Wait until the turns before this one are over.

        `also` is called in the visit to the store that takes the turn.
        """

        def take() -> bool:
            taken = self.open.take()
            if taken and also is not None:
                also()
            return taken

        queue = self.app.queue
        await queue.wait(self.session.id, self.number, lambda: in_store(self.session, take))

    @asynccontextmanager
    async def settled(self, also: Callable[[], object] | None = None) -> AsyncIterator[None]:
        """Wait for the turn, hold it, and settle it at the end of the block."""
        try:
            async with self.held():
                await self.wait(also)
                yield
            await self.finish("completed")
        except BaseException as error:
            try:
                await to_the_end(self.finish("failed"))
            except StoreError as lost:
                error.add_note(f"and the turn could not be marked failed: {lost}")
            raise

    async def settling(self, events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
        """Yield the events of a turn's only run; the turn is settled before the last of them."""
        finished = None
        async with self.settled(), aclosing(self.driving(events)) as driven:
            async for event in driven:
                if isinstance(event, Finished):
                    finished = event
                else:
                    yield event
        if finished is not None:
            yield finished

    def inside(self) -> AbstractContextManager[None]:
        """Run users' functions in the block: they cannot wait for this turn to end."""
        return self.app.queue.inside(self.open)

    async def driving(self, events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
        """Yield events; what makes them runs inside of the turn, who reads them does not."""
        async with aclosing(events):
            while True:
                with self.inside():
                    event = await anext(events, None)
                if event is None:
                    return
                yield event

    async def append(self, *items: Draft | Message, counter: Counter | None = None) -> list[Item]:
        """Append to the turn, and return the items when they are durable."""
        session = self.session if counter is None else self.session.counted_by(counter)
        drafts = [session.draft(item) for item in items]
        return await in_store(self.session, lambda: self._write(drafts))

    def write(self, draft: Draft) -> Item:
        """Append one draft at once; for code that runs in a thread."""
        self.check()
        (item,) = self._write([self.session.draft(draft)])
        return item

    def _write(self, drafts: Sequence[Draft]) -> list[Item]:
        """Append what was staged, and drafts behind it; return the items of the drafts."""
        with self._staging:
            staged, self._staged = self._staged, []
        try:
            added = self.open.write([*staged, *drafts])
        except BaseException:
            with self._staging:  # not written: the next append tries again
                self._staged = [*staged, *self._staged]
            raise
        return added[len(staged) :]

    def stage(self, draft: Draft) -> None:
        """Append a draft with the next append, or at the end of the turn."""
        counted = self.session.draft(draft)
        with self._staging:
            self.check()
            self._staged.append(counted)

    def check(self) -> None:
        """Refuse to write or run anything in a turn that has ended."""
        self.open.check()
        if self._closed:
            raise TurnEnded(self.session.id, self.number)

    async def flush(self) -> None:
        """Make durable what was staged."""
        if self._staged:
            await self.append()

    async def items(self) -> list[Item]:
        """Return all items of the turn."""
        return await in_store(self.session, self.open.items)

    async def finish(self, status: Status) -> None:
        """Settle the turn with what was staged; nothing happens if it is no longer ours."""
        with self._staging:
            self._closed = True
        # What made a turn fail counts more than an entry that cannot be written.
        with suppress(MuntinError) if status == "failed" else nullcontext():
            await self.flush()
        try:
            await in_store(self.session, lambda: self.open.settle(status))
        finally:
            self.open.release()
            self.app.queue.call(self.session.id)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Renew the lease while the block runs; cancel it when the turn was lost."""
        task = asyncio.current_task()
        renewing = asyncio.create_task(self._renew(task))
        try:
            yield
        except asyncio.CancelledError:
            if renewing.done() and not renewing.cancelled() and renewing.exception() is None:
                raise TurnLost(self.session.id, self.number) from None
            raise
        finally:
            renewing.cancel()
            with suppress(asyncio.CancelledError, MuntinError):
                await renewing

    async def _renew(self, task: asyncio.Task[Any] | None) -> None:
        while True:
            await asyncio.sleep(LEASE.total_seconds() / 3)
            try:
                ours = await in_store(self.session, self.open.renew)
            except MuntinError:
                continue  # the store may come back before the lease runs out
            if not ours and task is not None:
                task.cancel()
                return
