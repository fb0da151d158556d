"""A recorded run: an agent at work in a turn, every step recorded, its window's report kept."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, TypeAlias

from muntin.agent.loop import MAX_STEPS, Run
from muntin.agent.tools import ToolLike
from muntin.calls import settle
from muntin.composer import Composer
from muntin.core.message import Message
from muntin.core.planning.slots import Slots
from muntin.core.planning.window import Window
from muntin.errors import BudgetExceeded, MuntinError
from muntin.providers.model import Event, Finished, Model
from muntin.runtime.active_turn import ActiveTurn
from muntin.runtime.in_store import in_store
from muntin.timeline.items import VISIBLE, Draft, Item, Visibility, draft_of
from muntin.timeline.project import project

# Declares the slots of the next step, for the messages of the run so far; or gives the window.
DeclareStep: TypeAlias = Callable[
    [Composer, tuple[Message, ...]], Slots | Window | Awaitable[Slots | Window]
]


def error_text(error: BaseException) -> str:
    """Return an error as the timeline keeps it: in one line."""
    return f"{type(error).__name__}: {error}".partition("\n")[0][:500]


async def recorded_run(
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
) -> AsyncGenerator[Event, None]:
    """Run an agent in a turn, and yield what happens.

    A run that an earlier attempt at the turn has begun goes on where it stopped. `line` names the
    windows that follow one another: each is compared with the one before it in its line.
    """
    item, resumed = await _begin(turn, dict(label or {}), visibility, line)

    async def record(messages: tuple[Message, ...]) -> None:
        drafts = [draft_of(each, run=item.position, visibility=visibility) for each in messages]
        await turn.append(*drafts, counter=composer.counter)

    async def window(messages: tuple[Message, ...]) -> Window:
        await turn.flush()
        previous = await turn.receipts.previous(line)
        made: Slots | Window = await settle(declare(composer.after(previous), messages))
        rendered = made if isinstance(made, Window) else made.render()
        await turn.receipts.keep(rendered, line)
        if rendered.over_budget:
            raise BudgetExceeded(rendered.tokens, rendered.report.budget, rendered.report)
        return rendered

    run = Run(
        model,
        window,
        tools=tools,
        record=record,
        resume=resumed,
        max_steps=max_steps,
        settings=settings,
        tokenizer=composer.counter.tokenizer,
    )
    try:
        async with aclosing(run.events(streaming=streaming)) as events:
            async for event in events:
                if isinstance(event, Finished):
                    await turn.receipts.answered()
                yield event
    except Exception as error:
        told = error_text(error)
        draft = Draft("error", payload=told, run=item.position, visibility=visibility)
        with suppress(MuntinError):  # what went wrong first is what counts
            await turn.append(draft)
            turn.recorded = error
        raise


async def _begin(
    turn: ActiveTurn, label: dict[str, Any], visibility: Visibility, line: str
) -> tuple[Item, list[Message]]:
    """Return the item of a run, and what an earlier attempt recorded of it.

    A new run is recorded, and what its first window follows is read, in one visit to the store.
    """
    for known in turn.begun:
        item, children = known
        if item.payload == label:
            turn.begun.remove(known)
            return item, project(children) if children else []
    drafts = [turn.session.draft(Draft("run", payload=label, visibility=visibility))]

    def begin() -> Item:
        (item,) = turn.open.write(drafts)
        turn.receipts.load(line)
        return item

    return await in_store(turn.session, begin), []
