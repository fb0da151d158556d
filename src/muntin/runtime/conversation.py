"""Conversations: a user's text in, an answer out, composed by a strategy.

A strategy is any module or object with `on_context_build(ctx)`. The user's message is recorded
first, and stays even if the strategy fails.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from muntin.agent.loop import last_reply
from muntin.agent.tools import ToolLike, as_tools
from muntin.calls import off_loop
from muntin.composer import Composer, TurnInput, TurnSlots, texts_of
from muntin.core.budget import Budget
from muntin.core.checks import (
    check_optional_text,
    check_text,
    refuse_blank,
    shown,
)
from muntin.core.forms import messages_from
from muntin.core.message import Input, Message, system, user
from muntin.core.parts import Attachment
from muntin.core.planning.plan import Plan
from muntin.core.planning.slot import Slot
from muntin.core.planning.slots import Slots
from muntin.core.window import Window
from muntin.errors import InvalidInput, InvalidType, StrategyError, TimedOut
from muntin.providers.model import Event, Finished, Model, Reply
from muntin.runtime.ctx import Ctx
from muntin.runtime.recorded_run import DeclareStep, RecordedRun
from muntin.runtime.recovery import offering
from muntin.runtime.run_rules import INHERIT, CallOptions
from muntin.runtime.store_thread import run_in_store
from muntin.runtime.sync import Facade, blocking, iterating
from muntin.runtime.turn import ActiveTurn, nothing
from muntin.settings import check_settings, merge_settings
from muntin.timeline.items import Item
from muntin.timeline.session import Session

if TYPE_CHECKING:
    from muntin.runtime.app import App

# The hooks of a strategy.
_HOOKS = ("on_init", "on_context_build", "on_turn_end", "on_error")


class Conversation:
    """One conversation by its id; made by `App.conversation`."""

    def __init__(
        self,
        app: App,
        id: str,
        system_prompt: str | None,
        strategy: Any,
        model: str | Model | None,
        tools: Sequence[ToolLike],
        options: CallOptions,
    ) -> None:
        build = getattr(strategy, "on_context_build", None)
        if strategy is not None and not callable(build):
            raise InvalidType(
                "a strategy is a module or object with on_context_build(ctx), not "
                f"{shown(strategy)}"
            )
        if isinstance(strategy, type) and not _takes_ctx(build):
            raise InvalidType(
                f"a strategy is an object, not its class: pass strategy={strategy.__name__}()"
            )
        check_optional_text(system_prompt, "conversation: system_prompt")
        if strategy is not None:
            if system_prompt:
                raise InvalidInput(
                    "conversation: a strategy composes the window itself; let it add the system "
                    "prompt to its slots, and give no system_prompt"
                )
            if options.rules.recall not in (INHERIT, False):
                raise InvalidInput(
                    "conversation: a strategy composes the window itself; let it add "
                    "ctx.history.relevant(...) to its slots, and give no recall"
                )
            options = replace(options, rules=replace(options.rules, recall=False))
        self._app = app
        self._strategy = strategy
        self._system = system(system_prompt) if system_prompt else None
        self._model = app.answering(model, "conversation")
        self._tools = as_tools(tools, "conversation")
        self._options = options
        self._composer = app.composer(self._model, options, "conversation", tools=self._tools)
        self._recovers = bool(self._tools) and options.rules.over(app.rules).recovers
        self.session = app.session(id, counter=self._composer.counter)
        self._ready = False

    @property
    def budget(self) -> Budget:
        """How many tokens its windows may have."""
        return self._composer.budget

    def __repr__(self) -> str:
        return f"<Conversation {self.session.id!r} with {self._model.name}>"

    def send(
        self,
        text: str,
        *,
        attachments: Sequence[Attachment] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> Coroutine[Any, Any, Reply]:
        """Send a user's text, and return the answer when it is recorded."""
        return last_reply(self._turn(_read_input(text, attachments), settings, False))

    def stream(
        self,
        text: str,
        *,
        attachments: Sequence[Attachment] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Send a user's text, and yield the answer as it comes; the last event is `Finished`."""
        return self._turn(_read_input(text, attachments), settings, True)

    def try_again(self, *, settings: Mapping[str, Any] | None = None) -> Coroutine[Any, Any, Reply]:
        """Go on with the newest turn, which failed, where it stopped; return the answer when it is
        recorded. Nothing that ran is run again; a turn that reached its `max_steps` has as many as
        this conversation allows."""
        return last_reply(self._turn(None, settings, False))

    async def _turn(
        self, text: Input | None, settings: Mapping[str, Any] | None, streaming: bool
    ) -> AsyncGenerator[Event, None]:
        if settings is not None:
            check_settings(settings, "conversation")
        turn = ActiveTurn(self._app, self.session)
        begins: Message | None = None
        if text is None:
            self._app.queue.check(self.session.id)
            item = await run_in_store(self.session, turn.reopen)
            message = item.message or Message("user")
            text = Input(message.text, message.attachments)
        else:
            begins = message = user(text.text, attachments=text.attachments)
        ctx = Ctx(turn, where="a strategy", input=text, message=text, budget=self.budget)
        load = partial(self._load, ctx)
        await turn.start(begins, load)
        try:
            async with turn.held():
                await turn.wait(load)
                turn_input = TurnInput(
                    (message,),
                    {(self.session.id, turn.first)},
                    turn.parts,
                    projected=ctx.projected,
                )
                # The tool that reads results of the other tools.
                recovery = (ctx.load_result,) if self._recovers else ()
                with turn.inside():
                    composer, tools = await offering(
                        self._composer, self._tools, recovery, "conversation"
                    )
                if self._strategy is not None:
                    following = composer.after(turn.receipts.load("window"))
                    if composer.summary is not None:
                        following = following.with_summary(turn.receipts.summaries("window"))
                    ctx.give(slots=TurnSlots(following, turn_input))
                if not self._ready:
                    await self._call("on_init", ctx)
                    self._ready = True
                declare = await self._declare(composer, ctx, turn_input)
                with turn.work.inside():
                    run = RecordedRun(
                        turn,
                        composer,
                        self._model,
                        tools=tools,
                        settings=merge_settings(self._options.settings, settings),
                        max_steps=self._options.max_steps,
                        ends=getattr(self._strategy, "on_turn_end", None) is None,
                        projection=ctx.projections,
                    )
                await run.begin(nothing)
                async with aclosing(run.ask(declare, streaming=streaming)) as events:
                    async for event in events:
                        if isinstance(event, Finished):
                            await self._call("on_turn_end", ctx)
                            await turn.finish("completed")
                        yield event
        except BaseException as error:
            try:
                if isinstance(error, Exception) and turn.is_taken:
                    await self._call("on_error", ctx, error)
            except StrategyError as another:
                error.add_note(f"and {another}")
            finally:
                await turn.fail(error)
            raise

    def _load(self, ctx: Ctx, begun: list[Item] | None = None) -> None:
        """Read what the window and the hooks need, in the visit that takes the turn."""
        ctx.turn.receipts.load("window")
        if self._composer.summary is not None:
            ctx.turn.receipts.summaries("window")
        hooks = [getattr(self._strategy, name, None) for name in _HOOKS]
        ctx.load(
            begun,
            timeline=self.budget.remaining_input_tokens,
            history=any(inspect.iscoroutinefunction(hook) for hook in hooks),
        )

    async def _declare(self, composer: Composer, ctx: Ctx, turn_input: TurnInput) -> DeclareStep:
        """Ask the strategy, and return how each step is declared."""
        if self._strategy is None:
            room = composer.budget.remaining_input_tokens
            visible, (past,) = turn_input.taken_out_of([ctx.timeline_messages().newest(room)])

            def declare(composer: Composer, run: tuple[Message, ...]) -> Slots:
                slots = composer.slots()
                if self._system is not None:
                    slots.add("system", [self._system], tier="pinned", required=True)
                slots.add("timeline", past, trimming=composer.history_trimming)
                slots.add("input", list(visible.messages))
                return composer.add_run(slots, run)

            return declare
        returned = await self._call("on_context_build", ctx)
        window: Window | None = returned if returned is ctx.slots.rendered else None
        declared = (
            ctx.slots.declared if window else _declared(returned, ctx.slots, turn_input, composer)
        )

        def declare_again(composer: Composer, run: tuple[Message, ...]) -> Slots | Window:
            if window is not None and not run:
                return window
            return composer.add_run(composer.with_input(declared, turn_input), run)

        return declare_again

    async def _call(self, name: str, ctx: Ctx, *more: Any) -> Any:
        """Call a hook of the strategy, if it has the hook; a slow or failing hook is an error."""
        hook = getattr(self._strategy, name, None)
        if hook is None:
            return None
        try:
            with ctx.turn.inside():
                return await off_loop(hook, ctx, *more, timeout=self._options.timeout)
        except TimedOut as error:
            raise StrategyError(name, f"took longer than {error.seconds:g} s") from error
        except Exception as error:
            raise StrategyError(name, f"raised {type(error).__name__}: {error}") from error


class SyncConversation(Facade[Conversation]):
    """A conversation for code without an event loop; made by `SyncApp.conversation`."""

    send = blocking(Conversation.send)
    stream = iterating(Conversation.stream)
    try_again = blocking(Conversation.try_again)

    @property
    def session(self) -> Session:
        """The durable timeline of the conversation."""
        return self.target.session

    @property
    def budget(self) -> Budget:
        """How many tokens its windows may have."""
        return self.target.budget


def _takes_ctx(hook: Any) -> bool:
    """Say whether a hook can be called with a context alone: it does not wait for `self`."""
    try:
        inspect.signature(hook).bind(None)
    except TypeError:
        return False
    except ValueError:  # what is not written in Python may have no signature
        return True
    return True


def _read_input(text: str, attachments: Sequence[Attachment]) -> Input:
    """Return a user's input; refuse empty input."""
    if not isinstance(attachments, Sequence) or isinstance(attachments, str | bytes):
        raise InvalidType(f"attachments must be a list of Attachment, not {shown(attachments)}")
    turn_message = Input(check_text(text, "text"), tuple(attachments))
    if not turn_message.attachments:
        refuse_blank(text, "text")
    return turn_message


def _declared(
    returned: Any, slots: TurnSlots, turn_input: TurnInput, composer: Composer
) -> Sequence[Slot]:
    """Return the slots that a strategy means by what it returned."""
    if returned is None:
        return slots.declared
    if isinstance(returned, Window) and isinstance(returned.explained, Plan):
        return returned.explained.declared.slots
    messages = returned
    if isinstance(returned, Window):
        messages = returned.messages
    elif isinstance(returned, Mapping):
        messages = returned.get("messages")
        if messages is None:
            raise StrategyError("on_context_build", 'returned a dict without "messages"')
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise StrategyError("on_context_build", f"returned a {type(returned).__name__}")
    listed = messages_from(messages)
    user_places = [n for n, message in enumerate(listed) if message.role == "user"]
    # The newest message of the user is the input, if it has its words or is its item.
    place = (
        user_places[-1]
        if user_places and _is_input(listed[user_places[-1]], turn_input)
        else len(listed)
    )
    new_slots = composer.slots()
    new_slots.add("messages", listed[:place], trimming=composer.history_trimming)
    if place < len(listed):
        is_copy = texts_of([listed[place]]) == texts_of(turn_input.messages)
        new_slots.add("input", list(turn_input.messages) if is_copy else [listed[place]])
    new_slots.add("messages", listed[place + 1 :])
    return new_slots.declared


def _is_input(message: Message, turn_input: TurnInput) -> bool:
    if message.item is not None:
        return turn_input.holds(message)
    versions = (*turn_input.messages, *(turn_input.projected() or ()))
    return message.text in texts_of(versions)
