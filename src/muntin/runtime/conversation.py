"""Conversations: a user's text in, an answer out, composed by a strategy.

A strategy is any module or object with `on_context_build(ctx)`. The user's message is recorded
before anything else happens, and stays whatever the strategy does.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from muntin.agent.loop import last_reply, to_the_end
from muntin.agent.tools import ToolLike, as_tools
from muntin.calls import settle
from muntin.composer import Asked, Composer, TurnSlots
from muntin.core.budget import Budget
from muntin.core.message import Input, Message, as_message, user
from muntin.core.parts import Attachment
from muntin.core.planning.plan import Plan
from muntin.core.planning.slot import Slot, Trimming
from muntin.core.planning.slots import Slots
from muntin.core.planning.window import Window
from muntin.errors import InvalidType, StrategyError
from muntin.providers.model import Event, Finished, Model, Reply
from muntin.runtime.active_turn import ActiveTurn
from muntin.runtime.ctx import Ctx
from muntin.runtime.recorded_run import DeclareStep, recorded_run
from muntin.settings import check_settings, merge_settings
from muntin.threads import in_thread
from muntin.timeline.items import draft_of

if TYPE_CHECKING:
    from muntin.runtime.app import App

TIMEOUT = 30.0
# The hooks of a strategy.
_HOOKS = ("on_init", "on_context_build", "on_turn_end", "on_error")


class Conversation:
    """One conversation by its id; made by `App.conversation`."""

    def __init__(
        self,
        app: App,
        id: str,
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
        self._strategy = strategy
        self._model = app.answering(model, "conversation")
        self._tools = as_tools(tools, "conversation")
        self._settings = settings
        self._composer = app.composer(
            self._model, budget=budget, trimming=trimming, tools=self._tools
        )
        self.session = app.session(id, counter=self._composer.counter)
        self._timeout = timeout
        self._max_steps = max_steps
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
        return last_reply(self._turn(Input(text, tuple(attachments)), settings, False))

    def stream(
        self,
        text: str,
        *,
        attachments: Sequence[Attachment] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Send a user's text, and yield the answer as it comes; the last event is `Finished`."""
        return self._turn(Input(text, tuple(attachments)), settings, True)

    async def _turn(
        self, given: Input, settings: Mapping[str, Any] | None, streaming: bool
    ) -> AsyncGenerator[Event, None]:
        check_settings(settings, "conversation")
        message = user(given.text, attachments=given.attachments)
        turn = await ActiveTurn.queue(self._app, self.session, draft_of(message))
        ctx = Ctx(turn, door="a strategy", input=given, message=given, budget=self.budget)
        asked = Asked((message,), (turn.first,), self.session.id, projected=ctx.projected)
        try:
            async with turn.held():
                await turn.wait(lambda: self._load(ctx))
                ctx.give(slots=self._slots(turn, asked))
                if not self._ready:
                    await self._call("on_init", ctx)
                    self._ready = True
                events = recorded_run(
                    turn,
                    self._composer,
                    await self._declare(ctx, asked),
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
                            await turn.finish("completed")
                        yield event
        except (asyncio.CancelledError, GeneratorExit):
            await to_the_end(turn.finish("failed"))
            raise
        except Exception as error:
            await turn.finish("failed")
            try:
                await self._call("on_error", ctx, error)
            except StrategyError as another:
                error.add_note(f"and {another}")
            raise

    def _load(self, ctx: Ctx) -> None:
        """Read what the window and the hooks need, in the visit that takes the turn."""
        ctx.turn.receipts.load("window")
        hooks = [getattr(self._strategy, name, None) for name in _HOOKS]
        ctx.load(
            timeline=self.budget.remaining_input_tokens,
            history=any(inspect.iscoroutinefunction(hook) for hook in hooks),
        )

    def _slots(self, turn: ActiveTurn, asked: Asked) -> TurnSlots:
        return self._composer.after(turn.receipts.load("window")).turn_slots(asked)

    async def _declare(self, ctx: Ctx, asked: Asked) -> DeclareStep:
        """Ask the strategy, and return how each step is declared."""
        slots: TurnSlots = ctx.slots
        given = None
        if self._strategy is None:
            trimming = self._composer.history_trimming
            slots.add("timeline", ctx.timeline_messages(), trimming=trimming)
        else:
            given = await self._call("on_context_build", ctx)
        declared, window = _meant(given, slots, asked, self._composer)

        def declare(composer: Composer, run: tuple[Message, ...]) -> Slots | Window:
            if window is not None and not run:
                return window
            return composer.declared(declared, asked, run)

        return declare

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


def _meant(
    given: Any, slots: TurnSlots, asked: Asked, composer: Composer
) -> tuple[Sequence[Slot], Window | None]:
    """Return the slots that a strategy meant, and the window if it has rendered one."""
    messages: Any = given
    if isinstance(given, Window):
        # The seed's own ending: `return ctx.slots.render()`.
        if given is slots.rendered:
            return slots.declared, given
        # A window of slots of its own.
        if isinstance(given.explained, Plan) and len(asked.found(given.messages)) == 1:
            return given.explained.declared.slots, given
        messages = given.messages
    elif isinstance(given, Mapping):
        if given.get("messages") is None:
            raise StrategyError("on_context_build", 'returned a dict without "messages"')
        messages = given["messages"]
    if messages is None:
        return slots.declared, None
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise StrategyError("on_context_build", f"returned a {type(given).__name__}")
    shown = [as_message(message) for message in messages]
    # Behind an answer, such as the beginning of the next one, only the newest can be meant.
    found = asked.found(shown) or {n for n, each in enumerate(shown) if asked.holds(each)}
    last = max(found, default=len(shown))
    others = asked.found(shown) - {last}
    said = asked.shown_as([shown[last : last + 1] if last < len(shown) else []])
    own = composer.slots()
    own.add("messages", [each for n, each in enumerate(shown[:last]) if n not in others])
    own.add("input", list(said.messages))
    own.add("messages", shown[last + 1 :])
    return own.declared, None
