"""Flows: the actions of a session's users; each action runs a block in a turn of its own.

Owns the order: the input is checked, the user's message is recorded, the block runs. The block is
the user's own code.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from muntin.agent.toolbox import ToolSearchLike
from muntin.calls import arity, call_async
from muntin.core.checks import check_text, refuse_blank, shown
from muntin.core.message import Input, Message
from muntin.core.planning.slot import Trimming
from muntin.errors import InvalidInput, InvalidType
from muntin.prompts.contexts import check_model
from muntin.providers.model import Event
from muntin.runtime.app import App
from muntin.runtime.ctx import Ctx
from muntin.runtime.generators.definition import HIDDEN, Generator, home, valid_input
from muntin.runtime.generators.user import messages_of
from muntin.runtime.run_rules import (
    INHERIT,
    NO_RULES,
    LadderLike,
    RecoveryLike,
    ResultsLike,
    RunRules,
    SummaryLike,
)
from muntin.runtime.turn import ActiveTurn, FlowSettings
from muntin.timeline.history import Tokens, Turns
from muntin.timeline.items import Draft, draft_of
from muntin.timeline.recall.settings import RecallLike, StandingLike
from muntin.timeline.views import DEFAULT_WINDOW

if TYPE_CHECKING:
    from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class Action:
    """Something that a user can do in a flow.

    `block` is a generator or an async function of `(input, ctx)`. `user_message` makes, from the
    input, the user's message that is recorded before the block runs.
    """

    block: Generator | Callable[..., Awaitable[Any]]
    input: type[BaseModel] | None = field(default=None, kw_only=True)
    user_message: Callable[..., Any] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.block, Generator):
            if not inspect.iscoroutinefunction(self.block):
                raise InvalidType(
                    "Action.block must be a generator or an async function of (input, ctx), "
                    f"not {shown(self.block)}"
                )
            arity(self.block, "Action.block")
        check_model(self.input, "Action.input")
        if self.user_message is not None:
            if not callable(self.user_message):
                raise InvalidType(
                    f"Action.user_message must be a function, not {shown(self.user_message)}"
                )
            if arity(self.user_message, "Action.user_message") > 1:
                raise InvalidType("Action.user_message must take () or (input)")


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """Actions on one kind of session; made by `flow()`."""

    kind: str
    actions: Mapping[str, Action]
    history_window: Turns | Tokens
    trimming: Trimming | None
    rules: RunRules = NO_RULES
    # The app of sessions that are used without an app.
    _memory: App = field(default_factory=lambda: App("memory:"), repr=False)

    async def run(
        self,
        action: str,
        input: Any = None,
        *,
        session: str | None = None,
        app: App | None = None,
    ) -> Any:
        """Do an action: return the Reply of a generator, or the result of a function.

        Without an app the session is kept in memory.
        """
        chosen, valid = self._checked(action, input)
        turn, draft = await self._begin(action, chosen, valid, session, app)
        block, text = chosen.block, draft.message
        if isinstance(block, Generator):
            await turn.start(draft)
            async with turn.settled():
                with turn.inside():
                    return await block.run_in(turn, valid)
        ctx = Ctx(
            turn,
            where=f"flow {self.kind!r}",
            input=valid,
            message=Input(text.text, text.attachments) if text else None,
        )
        await turn.start(draft, ctx.load)
        async with turn.settled():
            with turn.inside():
                return await call_async(block, self._what(action), valid, ctx, timeout=None)

    async def stream(
        self,
        action: str,
        input: Any = None,
        *,
        session: str | None = None,
        app: App | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Do an action whose block is a generator, and yield the events."""
        chosen, valid = self._checked(action, input)
        block = chosen.block
        if not isinstance(block, Generator):
            raise InvalidInput(f"{self._what(action)} is a function: only generators can stream")
        turn, draft = await self._begin(action, chosen, valid, session, app)
        begin = partial(block.events, turn, block.validate(valid), streaming=True, ends=True)
        async with aclosing(turn.settling(draft, begin)) as settled:
            async for event in settled:
                yield event

    def _checked(self, name: str, input: Any) -> tuple[Action, Any]:
        """Return the action and its input, which both the action and its generator accept."""
        if check_text(name, f"action of flow {self.kind!r}") not in self.actions:
            names = ", ".join(self.actions)
            raise InvalidInput(f"flow {self.kind!r} has no action {name!r}; it has: {names}")
        action = self.actions[name]
        valid = valid_input(action.input, input, self._what(name))
        if isinstance(action.block, Generator):
            inner = action.block.validate(valid)
            valid = valid if action.input is not None else inner
        return action, valid

    async def _begin(
        self, name: str, action: Action, valid: Any, session: str | None, app: App | None
    ) -> tuple[ActiveTurn, Draft]:
        """Return a turn and the draft that begins it: the user's message, if there is one."""
        message = await self._user_message(name, action, valid)
        meta = {"flow": self.kind, "action": name}
        if message is None:
            payload = {"type": "action", "payload": meta}
            draft = Draft("signal", payload=payload, visibility=HIDDEN)
        else:
            draft = draft_of(message, meta=meta)
        place = home(app, session, self.kind, self._memory, self.history_window)
        turn = ActiveTurn(*place, flow=FlowSettings(self.trimming, self.rules))
        return turn, draft

    async def _user_message(self, name: str, action: Action, valid: Any) -> Message | None:
        if action.user_message is None:
            return None
        what = f"user_message of {self._what(name)}"
        message = await call_async(action.user_message, what, valid)
        refuse_blank(message, what)
        messages = messages_of(message, what)
        if messages and messages[0].role != "user":
            raise InvalidInput(f"{what} must be a user message, not {shown(messages[0].role)}")
        return messages[0] if messages else None

    def _what(self, action: str) -> str:
        return f"action {action!r} of flow {self.kind!r}"


def flow(
    kind: str,
    *,
    actions: Mapping[str, Action],
    history_window: Turns | Tokens = DEFAULT_WINDOW,
    trimming: Trimming | None = None,
    results: ResultsLike = INHERIT,
    ladder: LadderLike = INHERIT,
    recovery: RecoveryLike = INHERIT,
    recall: RecallLike = INHERIT,
    standing: StandingLike = INHERIT,
    summary: SummaryLike = INHERIT,
    tool_search: ToolSearchLike = INHERIT,
) -> Flow:
    """Define a flow. `history_window` is the largest part of the past that its generators can see.
    `trimming`, `summary`, `results`, `ladder`, `recovery`, `recall`, `standing` and `tool_search`
    are the settings of its generators that have none of their own. A setting that is not given is
    the app's; False or None is off.
    """
    if not check_text(kind, "flow: kind"):
        raise InvalidInput("flow: kind must not be empty")
    what = f"flow {kind!r}"
    if not isinstance(actions, Mapping) or not actions:
        raise InvalidType(f"{what}: actions must map names to Action(...), not {shown(actions)}")
    for name, action in actions.items():
        check_text(name, f"{what}: the name of an action")
        if not isinstance(action, Action):
            raise InvalidType(f"{what}: actions[{name!r}] must be an Action, not {shown(action)}")
    if not isinstance(history_window, Turns | Tokens):
        raise InvalidType(
            f"{what}: history_window must be Turns(n) or Tokens(n), not {shown(history_window)}"
        )
    rules = RunRules.of(what, results, ladder, recovery, recall, summary, tool_search, standing)
    return Flow(kind, dict(actions), history_window, trimming, rules)
