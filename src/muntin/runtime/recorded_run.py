"""Work: one turn of one session while it is worked on.

Owns the lease, what is recorded when, and the reports that are kept. All doors write through it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from muntin.agent.loop import MAX_STEPS, Run, to_the_end
from muntin.agent.tools import ToolLike
from muntin.core.message import Message
from muntin.core.parts import compact_json
from muntin.core.planning.frontier import Frontier
from muntin.core.planning.slot import Stepped, Trimming
from muntin.core.planning.slots import Slots
from muntin.core.planning.window import Window
from muntin.errors import BudgetExceeded, InvalidInput, MuntinError, StoreError, TurnLost
from muntin.providers.model import Event, Finished, Model, Reply
from muntin.runtime.reports import keep_report
from muntin.timeline.items import VISIBLE, Draft, Item, Status, Turn, Visibility, draft_of
from muntin.timeline.owner import done, new_owner
from muntin.timeline.project import project
from muntin.timeline.session import LEASE, Session
from muntin.timeline.store.memory import MemoryStore

if TYPE_CHECKING:
    from muntin.runtime.app import App

T = TypeVar("T")

# How often to look whether an earlier turn is done.
_POLL = 0.05

# Makes the slots of the next step from the messages of the run so far.
Compose: TypeAlias = Callable[[tuple[Message, ...]], Slots | Awaitable[Slots]]


async def in_store(session: Session, work: Callable[[], T]) -> T:
    """Do something with a store without holding up the event loop."""
    if isinstance(session.store, MemoryStore):
        return work()
    return await asyncio.to_thread(work)


async def queue(app: App, session: Session, draft: Draft) -> Work:
    """Append what begins a turn, which waits for those before it."""
    owner = new_owner()
    opening = session._opening(draft, "queue")
    until = datetime.now(UTC) + LEASE
    append = partial(session.store.append, session.id, [opening], owner=owner, until=until)
    (item,) = await to_the_end(in_store(session, append))
    work = Work(app, session, item.turn, owner)
    work.first = item.position
    return work


def error_text(error: BaseException) -> str:
    """Return an error as the timeline keeps it: in one line."""
    return f"{type(error).__name__}: {error}".partition("\n")[0][:500]


# Under which name the frontier of a line of windows is kept.
_STATE = "frontier:"


def _remembers(slots: Slots) -> bool:
    """Say whether the next window depends on this one, or is compared with it."""
    caching = slots.profile is not None and slots.profile.caching is not None
    return caching or any(
        each.tier is not None or isinstance(each.trimming, Stepped) for each in slots.declared
    )


class Work:
    """A turn in progress: its session, its number, and who holds it."""

    def __init__(self, app: App, session: Session, turn: int, owner: str) -> None:
        self.app = app
        self.session = session
        self.turn = turn
        self.owner = owner
        self.first = 0
        # How the flow, if it is one's turn, wants histories trimmed.
        self.trimming: Trimming | None = None
        self.replies: list[Reply] = []
        # The error that a run has recorded: the turn need not record it again.
        self.recorded: BaseException | None = None
        # What the functions of capabilities gave this turn, by capability.
        self.cap: dict[Any, Any] = {}
        self._step = 0
        # The newest window of each line of windows.
        self._windows: dict[str, Window | Frontier | None] = {}
        # Runs an earlier attempt at this turn has begun: (item, its children), not yet resumed.
        self._begun: list[tuple[Item, list[Item]]] = []

    async def wait(self) -> None:
        """Wait until the turns before this one are over.

        Of those that wait here only the first looks at the store, now and then, because other
        processes have turns too; the others are called by the one before them.
        """
        key = (asyncio.get_running_loop(), self.session.id)
        queue = self.app._queues.setdefault(key, {})
        called = queue[self.turn] = asyncio.Event()
        try:
            while True:
                first = min(queue) == self.turn
                if first and await in_store(self.session, self._take) is not None:
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(_POLL if first else None):
                        await called.wait()
                called.clear()
        finally:
            del queue[self.turn]
            if not queue:
                del self.app._queues[key]
            self._call()

    def _take(self) -> Turn | None:
        until = datetime.now(UTC) + LEASE
        return self.session.store.take(self.session.id, self.owner, until, number=self.turn)

    def _call(self) -> None:
        """Tell the first of those that wait that something happened."""
        queue = self.app._queues.get((asyncio.get_running_loop(), self.session.id))
        if queue:
            queue[min(queue)].set()

    @asynccontextmanager
    async def settled(self) -> AsyncIterator[None]:
        """Wait for the turn, hold it, and settle it at the end of the block."""
        try:
            async with self.held():
                await self.wait()
                yield
            await self.finish("completed")
        except BaseException as error:
            try:
                await to_the_end(self.finish("failed"))
            except StoreError as lost:
                error.add_note(f"and the turn could not be marked failed: {lost}")
            raise

    async def append(self, *items: Draft | Message) -> list[Item]:
        """Append to the turn, and return the items when they are durable."""
        return await in_store(self.session, partial(self._append, self._drafts(*items)))

    def append_now(self, draft: Draft) -> Item:
        """Append one draft to the turn, without giving way to anything else."""
        return self._append(self._drafts(draft))[0]

    def _drafts(self, *items: Draft | Message) -> list[Draft]:
        return [replace(self.session._draft(item), turn=self.turn) for item in items]

    def _append(self, drafts: Sequence[Draft]) -> list[Item]:
        until = datetime.now(UTC) + LEASE
        return self.session.store.append(self.session.id, drafts, owner=self.owner, until=until)

    async def items(self) -> list[Item]:
        """Return all items of the turn."""
        read = self.session.store.read
        return await in_store(
            self.session,
            lambda: read(self.session.id, first_turn=self.turn, last_turn=self.turn),
        )

    def resume(self, items: Sequence[Item]) -> None:
        """Remember which runs an earlier attempt at this turn has begun."""
        self._begun = [
            (item, [each for each in items if each.run == item.position])
            for item in items
            if item.kind == "run" and item.run is None
        ]
        self._step = sum(len(children) for _, children in self._begun)

    @property
    def begun(self) -> set[int]:
        """Where the runs stand that an earlier attempt has begun and this one not yet resumed."""
        return {item.position for item, _ in self._begun}

    async def finish(self, status: Status) -> None:
        """Settle the turn; nothing happens if it is no longer ours."""
        settle, id = self.session.store.settle, self.session.id
        try:
            await in_store(self.session, lambda: settle(id, self.turn, status, by=self.owner))
        finally:
            done(self.owner)  # not before: who waits would take an open turn for given up
            self._call()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Renew the lease while the block runs; cancel it when the turn was lost."""
        task = asyncio.current_task()
        renewing = asyncio.create_task(self._renew(task))
        try:
            yield
        except asyncio.CancelledError:
            if renewing.done() and not renewing.cancelled() and renewing.exception() is None:
                raise TurnLost(self.session.id, self.turn) from None
            raise
        finally:
            renewing.cancel()
            with suppress(asyncio.CancelledError, MuntinError):
                await renewing

    async def _renew(self, task: asyncio.Task[Any] | None) -> None:
        store, id = self.session.store, self.session.id
        while True:
            await asyncio.sleep(LEASE.total_seconds() / 3)
            until = datetime.now(UTC) + LEASE
            renew = partial(store.renew, id, self.turn, self.owner, until)
            try:
                ours = await in_store(self.session, renew)
            except MuntinError:
                continue  # the store may come back before the lease runs out
            if not ours and task is not None:
                task.cancel()
                return

    async def events(
        self,
        compose: Compose,
        model: Model,
        *,
        tools: Sequence[ToolLike] = (),
        settings: Mapping[str, Any] | None = None,
        max_steps: int = MAX_STEPS,
        visibility: Visibility = VISIBLE,
        label: Mapping[str, Any] | None = None,
        line: str = "window",
        streaming: bool = False,
    ) -> AsyncGenerator[Event, None]:
        """Run an agent in this turn: every step is recorded, its window's report kept.

        A run that an earlier attempt at the turn has begun goes on where it stopped.
        """
        payload = dict(label or {})
        mine = next((each for each in self._begun if each[0].payload == payload), None)
        if mine is not None:
            self._begun.remove(mine)
            item, children = mine
        else:
            draft = Draft("run", payload=payload, visibility=visibility)
            item, children = await self._begin(draft, line), []
        past = project(children) if children else []

        async def record(messages: tuple[Message, ...]) -> None:
            drafts = [
                draft_of(message, run=item.position, visibility=visibility) for message in messages
            ]
            await self.append(*drafts)

        async def window(messages: tuple[Message, ...]) -> Window:
            made = compose(messages)
            slots = made if isinstance(made, Slots) else await made
            slots.previous = await self._previous(line) if _remembers(slots) else None
            rendered = slots.render()
            if _remembers(slots):
                self._windows[line] = rendered
            await self._keep(slots, rendered, line)
            if rendered.over_budget:
                raise BudgetExceeded(rendered.tokens, rendered.report.budget, rendered.report)
            return rendered

        run = Run(
            model,
            window,
            tools=tools,
            record=record,
            resume=past,
            max_steps=max_steps,
            settings=settings,
            tokenizer=self.session.counter.tokenizer,
        )
        try:
            async with aclosing(run.events(streaming=streaming)) as events:
                async for event in events:
                    yield event
        except Exception as error:
            told = error_text(error)
            draft = Draft("error", payload=told, run=item.position, visibility=visibility)
            with suppress(MuntinError):  # what went wrong first is what counts
                await self.append(draft)
                self.recorded = error
            raise

    async def _begin(self, run: Draft, line: str) -> Item:
        """Record the beginning of a run, and read what it needs in the same visit to the store."""
        drafts = self._drafts(run)

        def begin() -> Item:
            (item,) = self._append(drafts)
            self._read_state(line)
            return item

        return await in_store(self.session, begin)

    def _read_state(self, line: str) -> None:
        """Read what the window before left to the next, of this line of windows."""
        if line in self._windows:
            return
        text = self.session.store.state(self.session.id, _STATE + line)
        self._windows[line] = None
        with suppress(InvalidInput, ValueError):  # of another version: begin anew
            if text is not None:
                self._windows[line] = Frontier.from_dict(json.loads(text))

    async def _previous(self, line: str) -> Window | Frontier | None:
        if line not in self._windows:
            await in_store(self.session, partial(self._read_state, line))
        return self._windows[line]

    async def _keep(self, slots: Slots, window: Window, line: str) -> None:
        """Keep the report of a window, and what it leaves to the next."""
        self._step += 1
        session, keep = self.session, self.app.keep_reports
        states = {}
        if _remembers(slots):
            states[_STATE + line] = compact_json(window.frontier.to_dict())
        if keep:
            work = partial(keep_report, session, self.turn, self._step, slots, window, keep, states)
            await in_store(session, work)
        elif states:
            await in_store(session, partial(session.store.put_states, session.id, states))


async def settling(work: Work, events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """Yield the events of a turn's only run; the turn is settled before the last of them."""
    finished = None
    async with work.settled(), aclosing(events):
        async for event in events:
            if isinstance(event, Finished):
                finished = event
            else:
                yield event
    if finished is not None:
        yield finished
