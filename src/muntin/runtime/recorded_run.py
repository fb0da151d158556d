"""A recorded run: an agent at work in a turn, every step recorded, its window's report kept."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from inspect import isawaitable
from typing import Any, TypeAlias

from muntin.agent.loop import MAX_STEPS, Run
from muntin.agent.tools import ToolLike
from muntin.composer import Composer
from muntin.core.counting.counter import Counter
from muntin.core.message import Message, at_position
from muntin.core.planning.slots import Slots
from muntin.core.usage import Usage
from muntin.core.window import Window
from muntin.errors import MuntinError
from muntin.providers.model import Event, Model
from muntin.runtime.active_turn import ActiveTurn, RunItem
from muntin.runtime.in_store import provider_busy
from muntin.runtime.recall import Recalling
from muntin.timeline.items import VISIBLE, Draft, Item, Status, Visibility, draft_of, error_draft
from muntin.timeline.project import Projection, project

# Declares the slots of the next step for the messages of the run so far, or returns the window.
DeclareStep: TypeAlias = Callable[
    [Composer, tuple[Message, ...]], Slots | Window | Awaitable[Slots | Window]
]


def recorded_run(
    turn: ActiveTurn,
    composer: Composer,
    declare: DeclareStep,
    model: Model,
    *,
    tools: Sequence[ToolLike] = (),
    settings: Mapping[str, Any] | None = None,
    max_steps: int = MAX_STEPS,
    visibility: Visibility = VISIBLE,
    label: Mapping[str, Any] | None = None,
    line: str = "window",
    streaming: bool = False,
    ends: bool = False,
    projection: Projection | None = None,
    completed: bool = False,
    reading: Callable[[], object] | None = None,
    looking: Callable[[], object] = lambda: None,
) -> AsyncGenerator[Event, None]:
    """Run an agent in a turn, and yield the events.

    A run that an earlier attempt at the turn began goes on where it stopped. `line` names a
    sequence of windows: each window is compared with the one before it in its line. With `ends`,
    the answer that calls no tool completes the turn. `projection` is how items are shown,
    `completed` says that the history has completed turns only: summaries follow both. `reading` is
    called in the visit to the store that begins the run, behind the staged drafts; `looking` in
    the visits that write what the next window may show.
    """
    turn.open.check()
    run, resumed = _begin(turn, dict(label or {}), visibility)
    recorded = _Recorded(
        turn=turn,
        composer=composer,
        declare=declare,
        run=run,
        line=line,
        recalling=Recalling(turn, composer.recall, projection, completed),
        ends=ends,
        projection=projection,
        completed=completed,
        reading=reading,
        looking=looking,
        begun=run.position is not None and reading is None,
    )
    recorded.agent = Run(
        model,
        recorded.window,
        tools=tools,
        record=recorded.record,
        failed=recorded.failed,
        resume=resumed,
        max_steps=max_steps,
        settings=settings,
        counter=composer.counter,
        inside=partial(turn.app.queue.inside, turn.open),
        conversation=turn.session.id,
    )
    return recorded.agent.events(streaming=streaming)


@dataclass(slots=True, kw_only=True)
class _Recorded:
    """The writes of a run into its turn: its windows, its messages, and its error."""

    turn: ActiveTurn
    composer: Composer
    declare: DeclareStep
    run: RunItem
    line: str
    recalling: Recalling
    ends: bool
    projection: Projection | None
    completed: bool
    reading: Callable[[], object] | None
    looking: Callable[[], object]
    begun: bool
    agent: Run = field(init=False)
    # The newest window, until its answer comes.
    sent: Window | None = None

    async def window(self, messages: tuple[Message, ...]) -> Window:
        """Compose the next step, for the messages of the run so far."""
        turn, composer = self.turn, self.composer
        turn.check()
        if not self.begun:
            await turn.begin_run(self.run, self.line, self.reading)
            self.begun = True
        await turn.flush_staged(self.looking)
        following = composer.after(await turn.receipts.previous(self.line))
        if composer.summary is not None:
            read = partial(turn.receipts.summaries, self.line, again=True)
            following = following.recalling(await turn.read(read))
        made = self.declare(following, messages)
        if isawaitable(made):
            made = await made
        if isinstance(made, Slots):
            following.tell_trouble(made)
            made = await self.recalling.compose(made, following)
        self.sent = made
        self.run.step = turn.receipts.keep(made, self.line)
        for start in made.lazy_frontier.starts:
            if start.at == self.run.position and start.item is not None:
                self.agent.forget(start.item)
        return made

    async def record(self, messages: tuple[Message, ...]) -> Message:
        """Record an answer, or results; return the newest message as the next turn reads it."""
        turn, composer, answer = self.turn, self.composer, messages[-1]
        last = self.ends and answer.role == "assistant" and not answer.tool_calls
        status: Status | None = "completed" if last else None
        drafts = [_costed(message, self.agent.answered) for message in messages]
        then = self.looking if answer.role == "tool" else None
        items = await turn.append(
            *drafts, counter=composer.counter, run=self.run, ends=status, then=then
        )
        if composer.summary is not None and answer.role == "assistant" and self.sent is not None:
            sent, self.sent = self.sent, None
            turn.app.summaries.consider(
                turn, self.line, sent, composer, answer, self.projection, self.completed
            )
        return _placed(answer, items[-1], self.run, composer.counter, turn.session.id)

    async def failed(self, error: Exception) -> None:
        """Record the error of a run, if the run has begun."""
        run = self.run
        if run.position is None:
            return
        draft = error_draft(error)
        with suppress(MuntinError):  # the first error counts
            if provider_busy(error) is None:
                await self.turn.append(draft, run=run)
            else:  # the wake is handed back and runs again
                self.turn.stage(replace(draft, run=run.position, visibility=run.visibility))
            self.turn.recorded = error


def _costed(message: Message, usage: Usage) -> Message | Draft:
    """Return an answer with its cost; any other message unchanged."""
    if message.role != "assistant" or usage == Usage():
        return message
    return draft_of(message, meta={"usage": asdict(usage)})


def _placed(message: Message, item: Item, run: RunItem, counter: Counter, session: str) -> Message:
    """Return a message of a run as the next turn reads it: where a frontier finds it again."""
    if run.position is None:
        return message
    key = counter.key(message)
    known = None if key is None or key not in item.tokens else (key, item.tokens[key])
    return at_position(message, run.position, known, (session, item.position))


def _begin(
    turn: ActiveTurn, label: dict[str, Any], visibility: Visibility
) -> tuple[RunItem, list[Message]]:
    """Return a run, and the messages that an earlier attempt recorded of it."""
    for known in turn.begun:
        item, children = known
        if item.payload == label:
            turn.begun.remove(known)
            told = project([item, *children], session=turn.session.id) if children else []
            return RunItem(label, visibility, item.position), told
    return RunItem(label, visibility), []
