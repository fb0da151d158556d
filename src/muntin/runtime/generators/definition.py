"""Generators: a prompt, tagged context, history and the user's message, as one model call.

Declares and checks generators, and runs them as turns of their own; `call` does what happens in
a call.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import uuid4

from muntin.agent.loop import last_reply
from muntin.agent.toolbox import ToolSearchLike
from muntin.agent.tools import ToolLike, as_tools
from muntin.calls import TIMEOUT, arity, takes_arguments_of
from muntin.core.budget import Budget
from muntin.core.checks import (
    check_optional_text,
    check_text,
    refuse_blank,
    shown,
)
from muntin.core.planning.slot import Trimming
from muntin.core.window import Window
from muntin.errors import InvalidInput, InvalidType, MuntinError
from muntin.prompts.contexts import as_mapping, check_model, validate_value
from muntin.prompts.contexts import context as make_context
from muntin.prompts.definition import Prompt
from muntin.prompts.definition import prompt as make_prompt
from muntin.prompts.files import PromptFile
from muntin.providers.model import Event, Model, Reply
from muntin.runtime.app import App
from muntin.runtime.generators.call import UNNAMED, GeneratorCall, gather_tools
from muntin.runtime.generators.capabilities import Use, as_uses, check_names, known
from muntin.runtime.generators.context import CONTEXTS, ContextSpec, ResolvedContext, read
from muntin.runtime.generators.history import as_history
from muntin.runtime.generators.user import messages_of
from muntin.runtime.run_rules import (
    INHERIT,
    CallOptions,
    LadderLike,
    RecoveryLike,
    ResultsLike,
    RunRules,
    SummaryLike,
)
from muntin.runtime.store_thread import run_in_store
from muntin.runtime.turn import ActiveTurn
from muntin.timeline.history import Tokens, Turns
from muntin.timeline.items import VISIBLE, Draft, Visibility, check_session_id
from muntin.timeline.recall.settings import RecallLike, StandingLike
from muntin.timeline.session import Session

if TYPE_CHECKING:
    from pydantic import BaseModel

HIDDEN = Visibility(client=False, history=False)


# Where context that is made again at every step stands.
ContextPlace: TypeAlias = Literal["front", "behind"]


@dataclass(frozen=True, slots=True, eq=False)
class Generator:
    """A model call with everything it is given; made by `generator()`."""

    name: str
    model: str | Model | None
    prompt: Any = field(repr=False)
    context: ContextSpec = field(repr=False)
    history: Any
    user: Any = field(repr=False)
    uses: tuple[Use, ...] = field(repr=False)
    tools: tuple[ToolLike, ...] = field(repr=False)
    input: type[BaseModel] | None
    output: type[BaseModel] | None
    visibility: Visibility
    options: CallOptions
    place: ContextPlace
    # The app of sessions that are used without an app.
    _memory: App = field(default_factory=lambda: App("memory:"), repr=False)

    @property
    def what(self) -> str:
        """Its name in errors."""
        return f"generator {self.name!r}"

    async def run(
        self,
        input: Any = None,
        *,
        app: App | None = None,
        session: str | None = None,
        model: str | Model | None = None,
    ) -> Reply:
        """Run the generator as a turn of its own, and return the answer when it is recorded.

        The user's message is recorded with it. Without an app the session is kept in memory.
        """
        return await last_reply(
            self._turn(input, app=app, session=session, model=model, streaming=False)
        )

    @takes_arguments_of(run)
    def stream(self, *args: Any, **options: Any) -> AsyncGenerator[Event, None]:
        """Do the same as `run`, and yield the events; the last event is `Finished`."""
        return self._turn(*args, streaming=True, **options)

    async def window(
        self,
        input: Any = None,
        *,
        app: App | None = None,
        session: str | None = None,
        model: str | Model | None = None,
    ) -> Window:
        """Compose the window that `run` would send first; nothing is sent or recorded."""
        valid = self.validate(input)
        place, log = home(app, session, self.name, self._memory)
        newest = await run_in_store(log, lambda: log.store.turns(log.id, newest=1))
        number = newest[0].number + 1 if newest else 1
        turn = _Preview(place, log, number)
        return await (await GeneratorCall.begin(self, turn, valid, model)).first_window()

    def _turn(
        self,
        input: Any = None,
        *,
        app: App | None = None,
        session: str | None = None,
        model: str | Model | None = None,
        streaming: bool,
    ) -> AsyncGenerator[Event, None]:
        valid = self.validate(input)
        payload = {"type": "generator", "payload": self.name}
        turn = ActiveTurn(*home(app, session, self.name, self._memory))
        return turn.settling(
            Draft("signal", payload=payload, visibility=HIDDEN),
            partial(self.events, turn, valid, model, record=True, streaming=streaming, ends=True),
        )

    async def run_in(self, turn: ActiveTurn, input: Any = None) -> Reply:
        """Run inside of a turn that has begun; only the answer is recorded."""
        reply = await last_reply(await self.events(turn, self.validate(input)))
        if self.visibility.client:
            turn.replies.append(reply)
        return reply

    async def events(
        self,
        turn: ActiveTurn,
        valid: Any,
        model: str | Model | None = None,
        *,
        record: bool = False,
        streaming: bool = False,
        ends: bool = False,
    ) -> AsyncGenerator[Event, None]:
        """Begin to run inside of a turn, and return the events.

        `record` adds the user's message to the turn; with `ends` the answer ends the turn.
        """
        turn.check()
        call = await GeneratorCall.begin(self, turn, valid, model, record=record)
        call.ends = ends
        return await call.events(streaming=streaming)

    def validate(self, input: Any) -> Any:
        """Return the input as an instance of the declared model, or raise what is wrong with it."""
        return valid_input(self.input, input, self.what)


def generator(
    *,
    name: str | None = None,
    model: str | Model | None = None,
    prompt: Any = None,
    context: Any = None,
    history: Any = None,
    user: Any = None,
    uses: Any = (),
    tools: Sequence[ToolLike] = (),
    input: type[BaseModel] | None = None,
    output: type[BaseModel] | None = None,
    visibility: Visibility | Mapping[str, bool] | None = None,
    settings: Mapping[str, Any] | None = None,
    budget: Budget | int | None = None,
    max_steps: int | None = None,
    trimming: Trimming | None = None,
    timeout: float = TIMEOUT,
    place: ContextPlace = "front",
    results: ResultsLike = INHERIT,
    ladder: LadderLike = INHERIT,
    recovery: RecoveryLike = INHERIT,
    recall: RecallLike = INHERIT,
    standing: StandingLike = INHERIT,
    summary: SummaryLike = INHERIT,
    tool_search: ToolSearchLike = INHERIT,
) -> Generator:
    """Define a generator.

    `prompt` is a text, a function, a prompt file, a `prompt()`, or texts and contexts in a list.
    `context` is a mapping of tags, or a list of mappings, texts, functions, contexts and messages.
    `history` is True, a number of turns, `Turns`, `Tokens`, or a function. `user` is a text, a
    message, a list of them, or a function. Functions take `()`, `(input)` or `(input, ctx)`.
    `trimming` applies to the history: where the provider prices caching, `history=True` is cut in
    steps, else turn by turn. `timeout` is how many seconds each function may take. `place` is where
    context that functions make again at every step goes: in front of the history, where it ends
    the part that a provider can cache, or `behind` the history. `results` is the ceiling of each
    tool result, `ladder` how calls and results leave; `recovery` adds tools that read the parts
    that were cut. `recall` brings back messages of the history that have left the window and bear
    on the input, within the flow's window; with a history of some turns only if it is given;
    `standing` keeps what the user asked for for good wherever something is recalled.
    `summary` summarises the messages that leave the history, `tool_search` says when tools of
    toolboxes are found instead of declared. Of these seven, a setting that is not given is the
    flow's or the app's; False or None is off.
    """
    front = prompt.config if isinstance(prompt, PromptFile) else {}
    check_optional_text(name, "generator: name")
    called = name or front.get("name") or UNNAMED
    what = f"generator {called!r}"
    model = front.get("model") if model is None else model
    if not isinstance(model, str | None) and not callable(getattr(model, "complete", None)):
        raise InvalidType(
            f"{what}: a model is a name like 'anthropic/claude-sonnet-4-6' or an object with "
            f"`complete` and `stream`, not {shown(model)}"
        )
    for option, value in (("input", input), ("output", output)):
        check_model(value, f"{what}: {option}")
    if place not in ("front", "behind"):
        raise InvalidInput(f"{what}: place must be 'front' or 'behind', not {shown(place)}")
    definition = Generator(
        name=called,
        model=model,
        prompt=_as_prompt(prompt, called, what),
        context=read(f"generator {called}", context),
        history=as_history(history, what),
        user=_check_user(user, f"{what}: user"),
        uses=as_uses(uses, what),
        tools=as_tools(tools, what),
        input=input,
        output=output if output is not None or not isinstance(prompt, Prompt) else prompt.output,
        visibility=_as_visibility(visibility, what),
        options=CallOptions.of(
            what,
            RunRules.of(what, results, ladder, recovery, recall, summary, tool_search, standing),
            settings=settings,
            budget=budget,
            max_steps=max_steps,
            trimming=trimming,
            timeout=timeout,
        ),
        place=place,
    )
    check_names(definition.uses, what)
    gather_tools(definition, list(known(definition.uses)), ResolvedContext())
    return definition


def _as_prompt(prompt: Any, called: str, what: str) -> Any:
    """Return a prompt as one of four: a text, a function, a prompt file, a `prompt()`."""
    if isinstance(prompt, Prompt):
        if prompt.messages is not None:
            raise InvalidInput(f"{what}: a prompt with messages= cannot be used; give it system=")
        return prompt
    if isinstance(prompt, CONTEXTS):
        prompt = [prompt]
    if isinstance(prompt, list | tuple):
        use = [
            make_context(system=entry, required=True) if isinstance(entry, str) else entry
            for entry in prompt
        ]
        return make_prompt(id=called, use=use)
    if isinstance(prompt, PromptFile):
        return prompt
    if prompt is not None and not isinstance(prompt, str) and not callable(prompt):
        raise InvalidType(
            f"{what}: prompt must be a text, a function, a prompt file, a prompt() or a list of "
            f"texts and contexts, not {shown(prompt)}"
        )
    if callable(prompt):
        arity(prompt, f"{what}: prompt")
        return prompt
    return check_text(prompt or "", f"{what}: prompt")


def _check_user(user: Any, what: str) -> Any:
    if isinstance(user, list | tuple):
        return tuple(_check_user(value, what) for value in user)
    if callable(user):
        arity(user, what)
    else:
        messages_of(user, what)
    return user


def _as_visibility(visibility: Any, what: str) -> Visibility:
    if visibility is None:
        return VISIBLE
    if isinstance(visibility, Visibility):
        return visibility
    if not isinstance(visibility, Mapping) or not set(visibility) <= {"client", "history"}:
        raise InvalidType(
            f"{what}: visibility must be {{'client': True or False, 'history': True or False}}, "
            f"not {shown(visibility)}"
        )
    for name, value in visibility.items():
        if not isinstance(value, bool):
            raise InvalidType(
                f"{what}: visibility[{name!r}] must be True or False, not {shown(value)}"
            )
    return Visibility(**visibility)


class _Preview(ActiveTurn):
    """A turn for looking only: it has not begun, and nothing can be written to it."""

    def check(self) -> None:
        """Refuse every write."""
        raise MuntinError("window() only composes: nothing can be recorded or run in it")


def home(
    app: App | None,
    session: str | None,
    name: str,
    memory: App,
    window: Turns | Tokens | None = None,
) -> tuple[App, Session]:
    """Return the app and the session of a turn; a session without a name is a new one."""
    if not isinstance(app, App | None):
        raise InvalidType(f"app must be an App, not {shown(app)}")
    if session is not None:
        check_session_id(session)
    if app is None:
        # A session without a name cannot be asked for again, so it need not be kept.
        app = App("memory:") if session is None else memory
    return app, app.session(session or f"{name}-{uuid4().hex}", window=window)


def valid_input(model: type[BaseModel] | None, input: Any, what: str) -> Any:
    """Return the input as an instance of its model; unchanged without a model."""
    refuse_blank(input, f"{what}: the input")
    if model is None or isinstance(input, model):
        return input
    with suppress(InvalidType):  # a bare value: the model says what is wrong with it
        input = as_mapping(input)
    return validate_value(model, input, what)
