"""A recorded run: an agent at work in a turn, every step recorded, its window's report kept."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from inspect import isawaitable
from typing import Any, TypeAlias, TypeVar

from muntin.agent.loop import Run, is_paused
from muntin.agent.tools import Tools
from muntin.composer import Composer
from muntin.core.counting.book import CountedRequest
from muntin.core.message import Message, answered, at_position
from muntin.core.parts import ToolCall
from muntin.core.planning.slots import Slots
from muntin.core.usage import Usage
from muntin.core.window import Window
from muntin.errors import MuntinError
from muntin.providers.model import Event, Model
from muntin.providers.names import cost_of
from muntin.runtime.places import serving
from muntin.runtime.recall import Recalling
from muntin.runtime.standing import KeptWishes
from muntin.runtime.store_thread import provider_busy
from muntin.runtime.turn import ActiveTurn
from muntin.timeline.entries import ContextEntry
from muntin.timeline.items import VISIBLE, Draft, Visibility, error_draft
from muntin.timeline.project import Projection, project

T = TypeVar("T")

# Declares the slots of the next step for the messages of the run so far, or returns the window.
DeclareStep: TypeAlias = Callable[
    [Composer, tuple[Message, ...]], Slots | Window | Awaitable[Slots | Window]
]


class RecordedRun(Run):
    """An agent at work in a turn: `begin` records that it begins, `ask` runs it.

    A run that an earlier attempt at the turn began goes on where it stopped: it is found by its
    label, and its `place` if it has one. `line` names a sequence of windows: each window is
    compared with the one before it in its line. With `ends`, the answer that calls no tool
    completes the turn. `projection` is how items are shown, `completed` says that the history has
    completed turns only: summaries follow both. With `reads_entries`, `entries` are the live
    context entries when the run or a result was written.
    """

    def __init__(
        self,
        turn: ActiveTurn,
        composer: Composer,
        model: Model,
        *,
        tools: Tools,
        settings: Mapping[str, Any],
        max_steps: int,
        visibility: Visibility = VISIBLE,
        label: Mapping[str, Any] | None = None,
        place: str | None = None,
        line: str = "window",
        ends: bool = False,
        projection: Projection | None = None,
        completed: bool = False,
        reads_entries: bool = False,
    ) -> None:
        turn.check()
        self._turn = turn
        self._composer = composer
        self._line = line
        self._ends = ends
        self._projection = projection
        self._completed = completed
        self._recalling: Recalling | None = None
        if composer.recall is not None:
            self._recalling = Recalling(turn, composer.recall, projection, completed)
        self._wishes: KeptWishes | None = None
        if composer.standing is not None and composer.recall is not None:
            self._wishes = KeptWishes(turn, composer.standing, projection, completed)
        self._reads_entries = reads_entries
        self.entries: Sequence[ContextEntry] = ()
        meta = {} if place is None else {"place": place}
        # What is recorded when the run begins.
        self._opening = Draft("run", payload=dict(label or {}), visibility=visibility, meta=meta)
        # The position of the item of the run, 0 until the run has begun.
        self._position = 0
        # The newest window until its answer comes, and its step.
        self._sent: Window | None = None
        self._step = 0
        super().__init__(
            model,
            tools=tools,
            resume=self._resumed(),
            max_steps=max_steps,
            settings=settings,
            counter=composer.counter,
            conversation=turn.session.id,
        )

    def _resumed(self) -> list[Message]:
        """Return the messages that an earlier attempt recorded of this run."""
        label, place = self._opening.payload, self._opening.meta.get("place")
        for begun in self._turn.begun:
            item, children = begun
            if item.payload == label and item.meta.get("place") == place:
                self._turn.begun.remove(begun)
                self._position = item.position
                session = self._turn.session.id
                return _in_run(project([item, *children], session=session)) if children else []
        return []

    def inside(self, call: ToolCall | None = None) -> AbstractContextManager[None]:
        """Run users' functions in the block: waiting there for this turn to end is refused."""
        turn = self._turn
        answer = None if call is None else self.answer
        if call is None or answer is None or answer.item is None:
            return turn.app.queue.inside(turn)
        return self._inside_call(call.id, answer.item[1])

    @contextmanager
    def _inside_call(self, call: str, answer: int) -> Iterator[None]:
        turn = self._turn
        with turn.app.queue.inside(turn), serving(turn.session.id, turn.number, answer, call):
            yield

    async def begin(self, read: Callable[[], T]) -> T:
        """Record that the run begins, behind the staged drafts; return what `read` reads in the
        same visit to the store. The frontier that the first window follows is read there too."""
        turn = self._turn
        drafts = [] if self._position else [replace(self._opening, turn=turn.number)]

        def then() -> T:
            turn.receipts.load(self._line)
            self._read_entries()
            return read()

        result, items = await turn.flush(then, *drafts)
        if items:
            self._position = items[0].position
        return result

    def _read_entries(self) -> None:
        if self._reads_entries:
            self.entries = self._turn.session.list_context()

    def ask(self, declare: DeclareStep, *, streaming: bool) -> AsyncGenerator[Event, None]:
        """Run the agent, whose steps `declare` declares, and yield the events."""
        self._declare = declare
        return self.events(streaming=streaming)

    async def compose(self, messages: tuple[Message, ...]) -> Window:
        """Compose the next step, for the messages of the run so far."""
        turn, line = self._turn, self._line
        turn.check()
        await turn.flush_staged(self._read_entries)
        composer = self._composer.after(turn.receipts.load(line))
        if composer.summary is not None:
            state = await turn.read(partial(turn.receipts.summaries, line, again=True))
            composer = composer.with_summary(state)
        window = self._declare(composer, messages)
        if isawaitable(window):
            window = await window
        if isinstance(window, Slots):
            if composer.trouble is not None:
                composer.report_summary_failure(window)
            window = await self._composed(window, composer)
        limit = turn.app.max_cost
        if limit is not None:
            spent = await turn.read(turn.receipts.load_spent)
            limit.check(self._model.name, window, spent, turn.session.id)
        self._sent = window
        self._step = turn.receipts.keep(window, line)
        for start in window.lazy_frontier.starts:
            if start.at == self._position and start.item is not None:
                self.forget(start.item)
        return window

    async def _composed(self, slots: Slots, composer: Composer) -> Window:
        """Return the window of slots, with what is recalled and what is kept for good."""
        recalling = self._recalling

        async def compose(slots: Slots, composer: Composer) -> Window:
            return await recalling.compose(slots, composer) if recalling else composer.render(slots)

        if self._wishes is None:
            return await compose(slots, composer)
        return await self._wishes.compose(slots, composer, compose)

    async def record(self, message: Message) -> Message:
        """Record an answer, or a result; return it as the next turn reads it."""
        turn, counter = self._turn, self._composer.counter
        is_answer, usage = message.role == "assistant", self._usages[-1]
        is_last = is_answer and not (message.tool_calls or is_paused(message))
        has_cost, used = is_answer and usage != Usage(), usage.to_dict()
        if has_cost:
            cost = cost_of(self._model.name, usage)
            turn.receipts.spend(cost)
            used = used if cost is None else {**used, "cost": str(cost)}
        (item,) = await turn.record(
            message,
            counter=counter,
            run=self._position,
            visibility=self._opening.visibility,
            meta={"usage": used} if has_cost else None,
            step=self._step,
            ends="completed" if self._ends and is_last else None,
            then=self._read_entries if message.role == "tool" else None,
        )
        if self._composer.summary is not None and is_answer and self._sent is not None:
            sent, self._sent = self._sent, None
            turn.app.summaries.consider(
                turn,
                self._line,
                self._position,
                self._step,
                sent,
                self._composer,
                message,
                self._projection,
                self._completed,
            )
        key = counter.key(message)
        counted = None if key is None or key not in item.tokens else (key, item.tokens[key])
        shows = (turn.session.id, item.position)
        return at_position(message, self._position, counted, shows, message.answer_tokens)

    def learn_size(self, counted: CountedRequest, reported: int) -> None:
        """Enter it for the windows to come."""
        if self._composer.book is not None:
            self._composer.book.enter(self._model.name, counted, reported)

    async def record_failure(self, error: Exception) -> None:
        """Record the error, unless the wake is handed back for it."""
        draft = error_draft(error)
        with suppress(MuntinError):  # the first error counts
            if provider_busy(error) is None:
                await self._turn.record(
                    draft, run=self._position, visibility=self._opening.visibility, step=self._step
                )
            else:  # the wake is handed back and runs again
                self._turn.stage(
                    replace(draft, run=self._position, visibility=self._opening.visibility)
                )
            self._turn.recorded = error


def _in_run(messages: Sequence[Message]) -> list[Message]:
    """Return the messages of a run that goes on: the reasoning of its answers is read again."""
    return [
        answered(message, known and known._replace(in_run=True))
        for message in messages
        for known in (message.answer_tokens,)
    ]
