"""Conversations: a user's text in, an answer out, composed by a strategy.

A strategy is any module or object with `on_context_build(ctx)`. The user's message is recorded
first, and stays even if the strategy fails.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from muntin.agent.loop import last_reply
from muntin.agent.tools import ToolLike, as_tools
from muntin.calls import off_loop
from muntin.composer import Asked, Composer, TurnSlots
from muntin.core.budget import Budget
from muntin.core.checks import (
    check_count,
    check_optional_text,
    check_seconds,
    check_text,
    refuse_blank,
    shown,
)
from muntin.core.forms import messages_from
from muntin.core.message import Input, Message, system, user
from muntin.core.parts import Attachment
from muntin.core.planning.plan import Plan
from muntin.core.planning.slot import Slot, Trimming
from muntin.core.planning.slots import Slots
from muntin.core.window import Window
from muntin.errors import InvalidInput, InvalidType, StrategyError, TimedOut
from muntin.providers.model import Event, Finished, Model, Reply
from muntin.runtime.active_turn import ActiveTurn
from muntin.runtime.ctx import Ctx
from muntin.runtime.recorded_run import DeclareStep, recorded_run
from muntin.runtime.recovery import offering
from muntin.runtime.run_rules import INHERIT, NO_RULES, RunRules
from muntin.runtime.summaries import SummaryLike, check_summary
from muntin.settings import check_settings, merge_settings

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
        *,
        strategy: Any,
        model: str | Model | None,
        tools: Sequence[ToolLike],
        settings: Mapping[str, Any] | None,
        budget: Budget | int | None,
        trimming: Trimming | None,
        timeout: float,
        max_steps: int,
        system_prompt: str | None = None,
        summary: SummaryLike = INHERIT,
        rules: RunRules = NO_RULES,
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
        check_settings(settings, "conversation")
        check_optional_text(system_prompt, "conversation: system_prompt")
        own = check_summary(summary, "conversation")
        if strategy is not None:
            if system_prompt:
                raise InvalidInput(
                    "conversation: a strategy composes the window itself; let it add the system "
                    "prompt to its slots, and give no system_prompt"
                )
            if rules.recall not in (INHERIT, False):
                raise InvalidInput(
                    "conversation: a strategy composes the window itself; let it add "
                    "ctx.history.relevant(...) to its slots, and give no recall"
                )
            rules = replace(rules, recall=False)
        self._app = app
        self._strategy = strategy
        self._system = system(system_prompt) if system_prompt else None
        self._model = app.answering(model, "conversation")
        self._tools = as_tools(tools, "conversation")
        self._settings = settings
        self._composer = app.composer(
            self._model, budget=budget, trimming=trimming, tools=self._tools, rules=rules
        ).summarising(own, app.summary, "conversation")
        self._recovers = bool(self._tools) and rules.over(app.rules).recovers
        self.session = app.session(id, counter=self._composer.counter)
        self._timeout = check_seconds(timeout, "conversation: timeout")
        self._max_steps = check_count(max_steps, "conversation: max_steps")
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
        return last_reply(self._turn(_given(text, attachments), settings, False))

    def stream(
        self,
        text: str,
        *,
        attachments: Sequence[Attachment] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Send a user's text, and yield the answer as it comes; the last event is `Finished`."""
        return self._turn(_given(text, attachments), settings, True)

    async def _turn(
        self, given: Input, settings: Mapping[str, Any] | None, streaming: bool
    ) -> AsyncGenerator[Event, None]:
        if settings is not None:
            check_settings(settings, "conversation")
        message = user(given.text, attachments=given.attachments)
        turn = ActiveTurn.queued(self._app, self.session)
        # Made after the turn has begun, in the visit to the store that also takes the turn.
        own = cache(
            lambda: Ctx(turn, where="a strategy", input=given, message=given, budget=self.budget)
        )
        await turn.begin(message, lambda: self._load(own()))
        ctx = own()
        asked = Asked((message,), (turn.first,), self.session.id, projected=ctx.projected)
        try:
            async with turn.held():
                await turn.wait()
                composer, tools = self._offering(ctx)
                if self._strategy is not None:
                    ctx.give(slots=_slots(composer, turn, asked))
                if not self._ready:
                    await self._call("on_init", ctx)
                    self._ready = True
                events = recorded_run(
                    turn,
                    composer,
                    await self._declare(composer, ctx, asked),
                    self._model,
                    tools=tools,
                    settings=merge_settings(self._settings, settings),
                    max_steps=self._max_steps,
                    streaming=streaming,
                    ends=getattr(self._strategy, "on_turn_end", None) is None,
                    projection=ctx.projections,
                )
                async with aclosing(events):
                    async for event in events:
                        if isinstance(event, Finished):
                            await self._call("on_turn_end", ctx)
                            await turn.finish("completed")
                        yield event
        except BaseException as error:
            try:
                if isinstance(error, Exception):
                    await self._call("on_error", ctx, error)
            except StrategyError as another:
                error.add_note(f"and {another}")
            finally:
                await turn.fail(error)
            raise

    def _load(self, ctx: Ctx) -> None:
        """Read what the window and the hooks need, in the visit that takes the turn."""
        ctx.turn.receipts.load("window")
        if self._composer.summary is not None:
            ctx.turn.receipts.summaries("window")
        hooks = [getattr(self._strategy, name, None) for name in _HOOKS]
        ctx.load(
            timeline=self.budget.remaining_input_tokens,
            history=any(inspect.iscoroutinefunction(hook) for hook in hooks),
        )

    def _offering(self, ctx: Ctx) -> tuple[Composer, tuple[ToolLike, ...]]:
        """Return how windows are made, and all tools: the caller's, and if there are any, the tool
        that reads their results."""
        if not self._recovers:
            return self._composer, self._tools
        return offering(self._composer, self._tools, (ctx.load_result,))

    async def _declare(self, composer: Composer, ctx: Ctx, asked: Asked) -> DeclareStep:
        """Ask the strategy, and return how each step is declared."""
        window: Window | None = None
        if self._strategy is None:
            slots = composer.slots()
            if self._system is not None:
                slots.add("system", [self._system], tier="pinned", required=True)
            trimming = composer.history_trimming
            slots.add("timeline", ctx.timeline_messages(), trimming=trimming)
            declared: Sequence[Slot] = slots.declared
        else:
            given = await self._call("on_context_build", ctx)
            declared, window = _meant(given, ctx.slots, asked, composer)

        def declare(composer: Composer, run: tuple[Message, ...]) -> Slots | Window:
            if window is not None and not run:
                return window
            return composer.declared(declared, asked, run)

        return declare

    async def _call(self, name: str, ctx: Ctx, *more: Any) -> Any:
        """Call a hook of the strategy, if it has the hook; a slow or failing hook is an error."""
        hook = getattr(self._strategy, name, None)
        if hook is None:
            return None
        try:
            with ctx.turn.inside():
                return await off_loop(hook, ctx, *more, timeout=self._timeout)
        except TimedOut as error:
            raise StrategyError(name, f"took longer than {error.seconds:g} s") from error
        except Exception as error:
            raise StrategyError(name, f"raised {type(error).__name__}: {error}") from error


def _takes_ctx(hook: Any) -> bool:
    """Say whether a hook can be called with a context alone: it does not wait for `self`."""
    try:
        inspect.signature(hook).bind(None)
    except TypeError:
        return False
    except ValueError:  # what is not written in Python may have no signature
        return True
    return True


def _slots(composer: Composer, turn: ActiveTurn, asked: Asked) -> TurnSlots:
    """Return the slots of a strategy, which follow the window before and know the summary."""
    following = composer.after(turn.receipts.load("window"))
    if composer.summary is not None:
        following = following.recalling(turn.receipts.summaries("window"))
    return following.turn_slots(asked)


def _given(text: str, attachments: Sequence[Attachment]) -> Input:
    """Return a user's input; refuse empty input."""
    if not isinstance(attachments, Sequence) or isinstance(attachments, str | bytes):
        raise InvalidType(f"attachments must be a list of Attachment, not {shown(attachments)}")
    given = Input(check_text(text, "text"), tuple(attachments))
    if not given.attachments:
        refuse_blank(text, "text")
    return given


def _meant(
    given: Any, slots: TurnSlots, asked: Asked, composer: Composer
) -> tuple[Sequence[Slot], Window | None]:
    """Return the slots that a strategy meant, and the window if it has rendered one."""
    messages: Any = given
    if isinstance(given, Window):
        # The usual ending of a strategy: `return ctx.slots.render()`.
        if given is slots.rendered:
            return slots.declared, given
        # A window made from other slots.
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
    shown = messages_from(messages)
    # Behind an answer, such as the beginning of the next answer, only the newest can be the input.
    found = asked.found(shown) or {n for n, each in enumerate(shown) if asked.holds(each)}
    last = max(found, default=len(shown))
    others = asked.found(shown) - {last}
    said = asked.shown_as([shown[last : last + 1] if last < len(shown) else []])
    own = composer.slots()
    trimming = composer.history_trimming
    own.add(
        "messages",
        [each for n, each in enumerate(shown[:last]) if n not in others],
        trimming=trimming,
    )
    own.add("input", list(said.messages))
    own.add("messages", shown[last + 1 :])
    return own.declared, None
