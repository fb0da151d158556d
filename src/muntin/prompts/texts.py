"""Resolving: which contexts take part, their texts, and the slots of these texts.

Conditions come first; an excluded context is never resolved and contributes nothing. Nothing is
counted and nothing is planned here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from muntin.agent.tools import ToolLike
from muntin.calls import (
    TIMEOUT,
    arity,
    call,
    call_async,
    is_async,
    note,
    refuse_awaitable,
    settle,
    sync_twin,
    together,
)
from muntin.core.checks import check_text, shown
from muntin.core.forms import messages_from
from muntin.core.message import Message
from muntin.core.planning.slot import RUN, SYSTEM, Group
from muntin.core.planning.slots import Slots
from muntin.core.profile import Profile
from muntin.core.report import Status
from muntin.errors import InvalidInput, InvalidType
from muntin.prompts.contexts import (
    Context,
    Match,
    MergedInput,
    Seen,
    Use,
    When,
    missing_fields,
    source_of,
    target_of,
)
from muntin.resolver_cache import Answer, cache_around, freeze, identity
from muntin.settings import defaults
from muntin.threads import register_variable

if TYPE_CHECKING:
    from muntin.prompts.definition import Prompt


P = ParamSpec("P")
T = TypeVar("T")

# The parts of a system text become one message; of its contexts, none stays when a better protected
# one is dropped. Where a provider is asked to cache contexts, they end a message of their own, and
# the other parts stand in a second one behind it: then a mark can stand at their end.
SEPARATOR = "\n\n"
SYSTEM_TEXT = Group("system", join=SEPARATOR, chain=True)
UNCACHED_TEXT = Group("system, not cached", join=SEPARATOR, chain=True)

# How deep prompts may be resolved inside of each other, by their own resolvers.
DEEPEST = 32
# The prompts whose resolvers are running around this code; tasks and threads inherit it.
_around: ContextVar[tuple[tuple[str, Sequence[ActiveContext]], ...]] = register_variable(
    ContextVar("muntin_prompts_around", default=())
)
# Whether a sync twin asks. Then resolvers stay in the caller's thread, as sync code expects: a
# database connection of another thread has another transaction.
_asked_by_twin: ContextVar[bool] = register_variable(
    ContextVar("muntin_asked_by_twin", default=False)
)

# A context that was left out: its source, the reason in one word, and the failed condition.
Excluded: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class SystemPart:
    """One part of the system text.

    With `breakpoint`, providers are asked to cache up to its end; `changes` says that it is made
    again for every request. `cache` says whether the text came from the cache, and `age` how many
    seconds ago it was made. `tokens` and `status` are the plan's; an inspection fills them in.
    """

    source: str
    text: str
    priority: int = SYSTEM
    required: bool = True
    breakpoint: bool = False
    cache: str | None = None
    age: float | None = None
    tokens: int = 0
    status: Status = "kept"
    changes: bool = False


@dataclass(frozen=True, slots=True)
class GatheredPrompt:
    """A prompt for one input, before anything is counted; made by `Prompt.gather`.

    `user` is the text of the prompt, None if it has none; `excluded` are the contexts that a
    condition left out.
    """

    parts: tuple[SystemPart, ...]
    user: str | None
    messages: tuple[Message, ...]
    tools: tuple[ToolLike, ...]
    settings: Mapping[str, Any] = field(repr=False)  # headers may hold keys
    excluded: tuple[Excluded, ...]

    @property
    def system(self) -> str:
        """The whole system text, nothing dropped."""
        return SEPARATOR.join(part.text for part in self.parts if part.text)


@dataclass(frozen=True, slots=True)
class ActiveContext:
    """A context that takes part, with the input it sees."""

    context: Context
    source: str
    input: Any


@dataclass(slots=True)
class Selection:
    """The contexts of a prompt that take part for one input, in order, and the excluded ones."""

    values: Mapping[str, Any]
    merged: MergedInput
    inputs: Seen
    ctx: Any = None
    active: dict[int, ActiveContext] = field(default_factory=dict)
    # By context, so that a context that takes part after all is not listed; else by name.
    excluded: dict[int | str, Excluded] = field(default_factory=dict)

    def visit_all(self, uses: Sequence[Use], prefix: str = "") -> None:
        """Visit every entry of a list; empty places count."""
        for index, use in enumerate(uses):
            self._visit(use, index, prefix)

    def _visit(self, use: Use, index: int, prefix: str) -> None:
        if isinstance(use, Context):
            self._visit_context(use, source_of(use, index, prefix))
        elif isinstance(use, When):
            target = target_of(use)
            source = source_of(target, index, prefix) if target else f"{prefix}match[{index}]"
            if self._holds(use.predicate, f"when() of {source}", self.merged):
                self._visit(use.target, index, prefix)
            else:
                detail = f"{_name(use.predicate)} of when()"
                self._exclude(target, source, "condition_false", detail)
        elif isinstance(use, Match):
            self._visit_match(use, f"{prefix}match[{index}]")

    def _visit_match(self, use: Match, source: str) -> None:
        what = f"match() ({source})"
        value = call(use.on, what, self.merged, self.ctx)
        refuse_awaitable(value, what)
        try:
            case = use.cases.get(value, use.default)
        except TypeError:
            raise InvalidType(f"{what} returned {shown(value)}, which no case can be") from None
        if case is None:
            detail = f"no case for {shown(value)} and no default"
            self._exclude(None, source, "condition_false", detail)
        else:
            self.visit_all(case, f"{source}.")

    def _visit_context(self, use: Context, source: str) -> None:
        """Take a context in, the contexts nested in it first, or exclude it."""
        if id(use) in self.active:
            return
        seen = self.inputs.get(id(use)) if use.input is not None else self.merged
        if use.input is not None and seen is None:
            names = ", ".join(map(repr, missing_fields(use.input, self.values)))
            self._exclude(use, source, "input_missing", f"no {names} in the input")
            return
        if isinstance(seen, Exception):
            raise seen
        if use.when is not None and not self._holds(use.when, f"the condition of {source}", seen):
            detail = f"{_name(use.when)} of its own when="
            self._exclude(use, source, "condition_false", detail)
            return
        self.excluded.pop(id(use), None)
        self.visit_all(use.use, f"{source}.")
        self.active[id(use)] = ActiveContext(use, source, seen)

    def _exclude(self, use: Context | None, source: str, reason: str, detail: str) -> None:
        """Note a context that is left out, unless it takes part in another way."""
        if id(use) not in self.active:
            self.excluded.setdefault(source if use is None else id(use), (source, reason, detail))

    def _holds(self, predicate: Callable[..., Any], what: str, value: Any) -> bool:
        holds = call(predicate, what, value, self.ctx)
        refuse_awaitable(holds, what)
        try:
            return bool(holds)
        except Exception as error:  # raised by the value's own __bool__
            note(error, what)
            raise


def _name(fn: Callable[..., Any]) -> str:
    return f"the predicate {getattr(fn, '__name__', repr(fn))}"


def prompt_twin(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Do the same as `sync_twin`, and keep resolvers in the caller's thread."""
    plain = sync_twin(method)

    @wraps(plain)
    def twin(*args: P.args, **kwargs: P.kwargs) -> T:
        before = _asked_by_twin.set(True)
        try:
            return plain(*args, **kwargs)
        finally:
            _asked_by_twin.reset(before)

    return twin


async def resolve_texts(
    prompt: Prompt, input: Any, active: Sequence[ActiveContext], ctx: Any = None
) -> tuple[tuple[SystemPart, ...], str | None, tuple[Message, ...]]:
    """Return the parts of the system text in order, the text of the prompt, and its messages.

    All resolvers run side by side, sync resolvers in threads, unless a sync twin asks.
    """
    around = _around.get()
    if len(around) >= DEEPEST:
        inner = [f"{name} ({', '.join(use.source for use in used)})" for name, used in around]
        raise InvalidInput(
            f"resolvers resolve prompts more than {DEEPEST} deep, at last "
            f"{' → '.join(inner[-3:])}; a resolver must not need the prompt it belongs to"
        )
    own_resolvers = {
        "the system text of the prompt": prompt.system,
        "the prompt text": prompt.prompt,
        "the messages of the prompt": prompt.messages,
    }
    names = [*own_resolvers, *(f"the system text of {context.source}" for context in active)]
    values: list[Any] = []
    before = _around.set((*around, (f"prompt {prompt.id!r}" if prompt.id else "a prompt", active)))
    try:
        for what, resolver in own_resolvers.items():
            values.append(_call_resolver(resolver, what, input, ctx))
        for context, what in zip(active, names[len(own_resolvers) :], strict=True):
            values.append(_resolve_context(context, what, ctx))
        results = await together(values, names)
    except BaseException:
        for value in filter(inspect.iscoroutine, values):
            value.close()
        raise
    finally:
        _around.reset(before)
    system, user, messages, *texts = results
    part = SystemPart("prompt", _as_text(system, names[0]), changes=callable(prompt.system))
    return (
        (part, *map(_part, active, texts)),
        None if prompt.prompt is None else _as_text(user, names[1]),
        () if messages is None else as_messages(messages, names[2]),
    )


def _part(active: ActiveContext, result: Any) -> SystemPart:
    """Return the resolved text of a context, as a part of the system text."""
    context = active.context
    answer = result if isinstance(result, Answer) else None
    return SystemPart(
        active.source,
        _as_text(answer.text if answer else result, f"the system text of {active.source}"),
        context.priority,
        context.is_pinned,
        context.cache is not None and context.cache.provider,
        answer.outcome if answer else None,
        answer.age if answer else None,
        changes=callable(context.system) and context.cache is None,
    )


def _call_resolver(resolver: Any, what: str, input: Any, ctx: Any = None) -> Any:
    if not callable(resolver):
        return resolver
    if _asked_by_twin.get():
        return call(resolver, what, input, ctx)
    # An async function can have a timeout of its own, and be cancelled; a sync function cannot.
    seconds = None if is_async(resolver) else TIMEOUT
    return call_async(resolver, what, input, ctx, timeout=seconds)


def _resolve_context(active: ActiveContext, what: str, ctx: Any) -> Any:
    context = active.context
    resolver, cache = context.system, context.cache
    if cache is None or not callable(resolver):
        return _call_resolver(resolver, what, active.input, ctx)
    takes_input = context.input is not None and arity(resolver, what)
    fields = freeze(dict(active.input) if takes_input else {}, active.source)
    key = (context.id, identity(resolver), context.input, cache, fields)

    async def make() -> str:  # a text is checked before it is cached
        return _as_text(await settle(_call_resolver(resolver, what, active.input)), what)

    return (cache_around() or defaults().cache).get(key, active.source, cache.ttl, make)


def as_messages(value: Any, what: str) -> tuple[Message, ...]:
    """Return a list of messages, or any other sequence but a text, as messages."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InvalidType(f"{what} must be a list of messages, not {shown(value)}")
    return tuple(messages_from(value, where=f"{what}[{{}}]"))


def _as_text(value: Any, what: str) -> str:
    return "" if value is None else check_text(value, what)


def declare(slots: Slots, gathered: GatheredPrompt) -> None:
    """Declare the slots of a prompt; only contexts can be dropped."""
    declare_parts(slots, gathered.parts)
    declare_excluded(slots, gathered.excluded)
    slots.add("user", gathered.user or None, role="user", required=True, priority=RUN)
    slots.add("messages", gathered.messages, required=True, priority=RUN)


def cached_first(parts: Sequence[SystemPart]) -> tuple[SystemPart, ...]:
    """Return the parts in the order they are sent: if contexts ask to be cached, they follow the
    prompt's own text, and parts that change stand last. A plain text may be built per request, so
    it does not stand before a cached one."""
    if not any(part.breakpoint for part in parts):
        return tuple(parts)
    return tuple(sorted(parts, key=lambda part: (part.changes, _is_uncached(part))))


def _is_uncached(part: SystemPart) -> bool:
    return not part.breakpoint and (part.source != "prompt" or part.changes)


def is_divided(parts: Sequence[SystemPart], profile: Profile | None) -> bool:
    """Say whether the parts that are not cached stand in a message of their own."""
    caching = profile.caching if profile is not None else None
    has_cached = any(part.breakpoint and part.text for part in parts)
    has_uncached = any(_is_uncached(part) and part.text for part in parts)
    return has_cached and has_uncached and caching is not None and caching.breakpoints > 0


def declare_parts(slots: Slots, parts: Sequence[SystemPart]) -> None:
    """Declare the parts of a system text: joined, each kept whole or dropped."""
    divided = is_divided(parts, slots.profile)
    for part in parts:
        apart = divided and _is_uncached(part)
        slots.add(
            part.source,
            part.text,
            role="system",
            priority=part.priority,
            required=part.required,
            trim_behavior="slot",
            group=UNCACHED_TEXT if apart else SYSTEM_TEXT,
            breakpoint=part.breakpoint,
            changes=apart and part.changes,
        )


def declare_excluded(slots: Slots, excluded: Sequence[Excluded]) -> None:
    """Declare the contexts that were left out, for the report."""
    for source, reason, detail in excluded:
        slots.exclude(source, reason=reason, detail=detail)
