"""Conversations: a user's text in, an answer out, composed by a strategy.

A strategy is any module or object with `on_context_build(ctx)`. The user's message is recorded
before anything else happens, and stays whatever the strategy does.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from muntin.agent.loop import last_reply, to_the_end
from muntin.agent.tools import ToolLike, as_tools, tool_schema
from muntin.calls import in_thread, settle
from muntin.core.budget import Budget
from muntin.core.message import Input, Message, as_message, role_of, user
from muntin.core.parts import Attachment
from muntin.core.planning.slot import Exact, MessageLike, Slot, Trimming
from muntin.core.planning.slots import Slots
from muntin.core.planning.window import Window
from muntin.errors import InvalidType, StrategyError
from muntin.prompts.adapt import merge_settings
from muntin.providers.model import Event, Finished, Model, Reply
from muntin.runtime.ctx import Ctx
from muntin.runtime.recorded_run import Work, in_store, queue
from muntin.runtime.window import budget_for, model_for, profile_for, trimming_for
from muntin.settings import check_settings
from muntin.timeline.items import draft_of
from muntin.timeline.past import TimelineMessages
from muntin.timeline.session import Session

if TYPE_CHECKING:
    from muntin.runtime.app import App

TIMEOUT = 30.0
# How many of the newest messages of a slot are looked at for a copy of the input.
_NEAR = 100


class Conversation:
    """One conversation by its id; made by `App.conversation`."""

    def __init__(
        self,
        app: App,
        session: Session,
        *,
        strategy: Any,
        model: str | Model | None,
        tools: Sequence[ToolLike],
        settings: Mapping[str, Any] | None,
        budget: Budget | int | None,
        trimming: Trimming | None,
        timeout: float,
        max_steps: int,
    ) -> None:
        if strategy is not None and not callable(getattr(strategy, "on_context_build", None)):
            raise InvalidType(
                f"a strategy is a module or object with on_context_build(ctx), not {strategy!r}"
            )
        check_settings(settings, "conversation")
        self._app = app
        self.session = session
        self._strategy = strategy
        self._model = model_for(app, model, "conversation")
        self._tools = as_tools(tools, "conversation")
        self._settings = settings
        self._budget = budget_for(app, self._model, budget)
        self._trimming = trimming
        self._timeout = timeout
        self._max_steps = max_steps
        self._ready = False

    def __repr__(self) -> str:
        return f"<Conversation {self.session.id!r} with {self._model.name}>"

    async def send(
        self,
        text: str,
        *,
        attachments: Sequence[Attachment] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> Reply:
        """Send a user's text, and return the answer when it is recorded."""
        return await last_reply(self._turn(_input(text, attachments), settings, False))

    async def stream(
        self,
        text: str,
        *,
        attachments: Sequence[Attachment] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[Event]:
        """Send a user's text, and yield the answer as it comes; the last event is `Finished`."""
        async with aclosing(self._turn(_input(text, attachments), settings, True)) as events:
            async for event in events:
                yield event

    async def _turn(
        self, given: Input, settings: Mapping[str, Any] | None, streaming: bool
    ) -> AsyncGenerator[Event, None]:
        check_settings(settings, "conversation")
        work = await self._record(given)
        ctx = Ctx(
            work,
            door="a strategy",
            input=given,
            message=given,
            budget=self._budget,
            slots=self._slots(),
        )
        try:
            async with work.held():
                await work.wait()
                if not self._ready:
                    await self._call("on_init", ctx)
                    self._ready = True
                base = await self._compose(ctx)
                events = work.events(
                    lambda run: _with_run(base(), run),
                    self._model,
                    tools=self._tools,
                    settings=merge_settings(self._settings, settings),
                    max_steps=self._max_steps,
                    streaming=streaming,
                )
                async with aclosing(events):
                    async for event in events:
                        if isinstance(event, Finished):
                            await self._call("on_turn_end", ctx)
                            await work.finish("completed")
                        yield event
        except (asyncio.CancelledError, GeneratorExit):
            await to_the_end(work.finish("failed"))
            raise
        except Exception as error:
            await work.finish("failed")
            try:
                await self._call("on_error", ctx, error)
            except StrategyError as another:
                error.add_note(f"and {another}")
            raise

    async def _record(self, given: Input) -> Work:
        """Record the user's message, as a turn that waits for those before it."""
        message = user(given.text, attachments=given.attachments)
        return await queue(self._app, self.session, draft_of(message))

    def _slots(self) -> Slots:
        return Slots(
            self._budget,
            tokenizer=self.session.counter.tokenizer,
            tools=[tool_schema(tool) for tool in self._tools],
            profile=profile_for(self._model),
            trimming=self._trimming or self._app.trimming or Exact(),
        )

    async def _compose(self, ctx: Ctx) -> Callable[[], Slots]:
        """Ask the strategy, and return a function that makes the slots it meant."""
        if self._strategy is None:
            trimming = trimming_for(self._app, self._trimming, profile_for(self._model))
            ctx.slots.add("timeline", ctx.timeline_messages(), trimming=trimming)
            given = None
        else:
            given = await self._call("on_context_build", ctx)
        return await in_store(self.session, lambda: base_slots(given, ctx, self._slots))

    async def _call(self, name: str, ctx: Ctx, *more: Any) -> Any:
        """Call a hook of the strategy, if it has it; a slow or failing one is an error."""
        hook = getattr(self._strategy, name, None)
        if hook is None:
            return None
        try:
            async with asyncio.timeout(self._timeout) as limit:
                if inspect.iscoroutinefunction(hook):
                    return await hook(ctx, *more)
                return await settle(await in_thread(lambda: hook(ctx, *more)))
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                raise StrategyError(name, f"took longer than {self._timeout:g} s") from error
            raise StrategyError(name, f"raised {type(error).__name__}: {error}") from error


def _input(text: str, attachments: Sequence[Attachment]) -> Input:
    return Input(text, tuple(attachments))


def base_slots(given: Any, ctx: Ctx, fresh: Callable[[], Slots]) -> Callable[[], Slots]:
    """Return a function that makes new slots with what a strategy returned, the input once."""
    messages: Any = given
    if isinstance(given, Window):
        # The seed's own ending: `return ctx.slots.render()`.
        messages = None if given == ctx.slots.render() else given.messages
    elif isinstance(given, Mapping):
        if given.get("messages") is None:
            raise StrategyError("on_context_build", 'returned a dict without "messages"')
        messages = given["messages"]
    if messages is None:
        declared = [_without_input(slot, ctx) for slot in ctx.slots.declared]
        return lambda: _from_slots(fresh(), declared, ctx)
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise StrategyError("on_context_build", f"returned a {type(given).__name__}")
    shown = [as_message(message) for message in messages]
    asked = max((n for n, each in enumerate(shown) if _is_input(each, ctx)), default=len(shown))
    before = [each for each in shown[:asked] if not _is_input(each, ctx)]
    after = shown[asked + 1 :]

    def make() -> Slots:
        slots = fresh()
        slots.add("messages", before)
        slots.add("input", ctx.message)
        slots.add("messages", after)
        return slots

    return make


def _is_input(message: MessageLike, ctx: Ctx) -> bool:
    """Say whether a message is the current input; what history has of the same text is dated."""
    if role_of(message) != "user":
        return False
    each = as_message(message)
    if each.at is not None:
        return each.at >= ctx._work.first
    return ctx.message is not None and each.text == ctx.message.text


def _without_input(slot: Slot, ctx: Ctx) -> Slot:
    """Return a slot without the current input, unless that is all there is in it."""
    messages = slot.messages
    if isinstance(messages, TimelineMessages):
        messages = messages.newest(ctx.budget.remaining_input_tokens if ctx.budget else 0)
    elif slot.is_input or len(messages) < 2:
        return slot
    # A copy of the input can only stand among the newest.
    near = max(0, len(messages) - _NEAR)
    if not any(_is_input(each, ctx) for each in messages[near:]):
        return replace(slot, messages=messages)
    kept = [*messages[:near], *(each for each in messages[near:] if not _is_input(each, ctx))]
    return replace(slot, messages=kept)


def _from_slots(slots: Slots, declared: Sequence[Slot], ctx: Ctx) -> Slots:
    """Take over the declared slots; the input once, at the end if the strategy left it out."""
    seen = False
    for slot in declared:
        asks = slot.is_input or (len(slot.messages) == 1 and _is_input(slot.messages[0], ctx))
        if asks and seen:
            slots.exclude(slot.name, reason="duplicate", detail="the input is there already")
            continue
        seen = seen or asks
        slots.take(slot)
    if not seen:
        slots.add("input", ctx.message)
    return slots


def _with_run(slots: Slots, run: Sequence[Message]) -> Slots:
    if run:
        # As well protected as anything but the system's: or it would be the first to go.
        others = [
            slot.priority
            for slot in slots.declared
            if slot.messages and role_of(slot.messages[0]) != "system"
        ]
        slots.add("run", list(run), priority=max(others, default=0))
    return slots
