"""Resolving: which contexts take part, their texts, and the slots of these texts.

Conditions come first; an excluded context is never resolved and contributes nothing. Nothing is
counted and nothing is planned here.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
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
    sync_twin,
    together,
)
from muntin.core.checks import check_text, shown
from muntin.core.forms import messages_from
from muntin.core.message import Message
from muntin.core.planning.slot import RUN, SYSTEM, Group
from muntin.core.planning.slots import Slots
from muntin.core.profile import Caching
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
from muntin.threads import own

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
_around: ContextVar[tuple[tuple[str, Sequence[Active]], ...]] = own(
    ContextVar("muntin_prompts_around", default=())
)
# Whether a sync twin asks. Then resolvers stay in the caller's thread, as sync code expects: a
# database connection of another thread has another transaction.
_asked_by_twin: ContextVar[bool] = own(ContextVar("muntin_asked_by_twin", default=False))

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
class Gathered:
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
class Active:
    """A context that takes part, with the input it sees."""

    context: Context
    source: str
    input: Any


@dataclass(slots=True)
class _Walk:
    """One walk over the `use` lists of a prompt."""

    given: Mapping[str, Any]
    merged: MergedInput
    inputs: Seen
    ctx: Any = None
    active: list[Active] = field(default_factory=list)
    # By context, so that a context that takes part after all is not listed; else by name.
    excluded: dict[int | str, Excluded] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)

    def all(self, uses: Sequence[Use], prefix: str) -> None:
        """Visit every entry of a list; empty places count."""
        for index, use in enumerate(uses):
            if use is not None:
                self.one(use, index, prefix)

    def one(self, use: Use, index: int, prefix: str) -> None:
        """Visit an entry."""
        if isinstance(use, Context):
            self.context(use, source_of(use, index, prefix))
        elif isinstance(use, When):
            target = target_of(use)
            name = f"{prefix}match[{index}]"
            if target is not None:
                name = source_of(target, index, prefix)
            if self.holds(use.predicate, f"when() of {name}", self.merged):
                self.one(use.target, index, prefix)
            else:
                detail = f"{_called(use.predicate)} of when()"
                self.exclude(target, name, "condition_false", detail)
        elif isinstance(use, Match):
            self.match(use, f"{prefix}match[{index}]")

    def match(self, use: Match, source: str) -> None:
        """Choose a case."""
        what = f"match() ({source})"
        value = call(use.on, what, self.merged, self.ctx)
        refuse_awaitable(value, what)
        try:
            case = use.cases.get(value, use.default)
        except TypeError:
            raise InvalidType(f"{what} returned {shown(value)}, which no case can be") from None
        if case is None:
            detail = f"no case for {shown(value)} and no default"
            self.exclude(None, source, "condition_false", detail)
        else:
            self.all(case, f"{source}.")

    def context(self, use: Context, source: str) -> None:
        """Take a context in, the contexts nested in it first, or exclude it."""
        if id(use) in self.seen:
            return
        seen: Any = self.merged
        if use.input is not None:
            seen = self.inputs.get(id(use))
            if seen is None:
                names = ", ".join(map(repr, missing_fields(use.input, self.given)))
                self.exclude(use, source, "input_missing", f"no {names} in the input")
                return
            if isinstance(seen, Exception):
                raise seen
        if use.when is not None and not self.holds(use.when, f"the condition of {source}", seen):
            detail = f"{_called(use.when)} of its own when="
            self.exclude(use, source, "condition_false", detail)
            return
        self.seen.add(id(use))
        self.excluded.pop(id(use), None)
        self.all(use.use, f"{source}.")
        self.active.append(Active(use, source, seen))

    def exclude(self, use: Context | None, source: str, reason: str, detail: str) -> None:
        """Note a context that is left out, unless it takes part in another way."""
        if use is None or id(use) not in self.seen:
            self.excluded.setdefault(source if use is None else id(use), (source, reason, detail))

    def holds(self, predicate: Callable[..., Any], what: str, value: Any) -> bool:
        """Call a predicate."""
        answer = call(predicate, what, value, self.ctx)
        refuse_awaitable(answer, what)
        try:
            return bool(answer)
        except Exception as error:  # raised by the value's own __bool__
            note(error, what)
            raise


def _called(fn: Callable[..., Any]) -> str:
    return f"the predicate {getattr(fn, '__name__', repr(fn))}"


def activate(
    uses: Sequence[Use],
    given: Mapping[str, Any],
    merged: MergedInput,
    inputs: Seen,
    ctx: Any = None,
) -> tuple[list[Active], list[Excluded]]:
    """Return the contexts that take part, in order, and the excluded contexts."""
    walk = _Walk(given, merged, inputs, ctx)
    walk.all(uses, "")
    return walk.active, list(walk.excluded.values())


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
    prompt: Prompt, own: Any, active: Sequence[Active], ctx: Any = None
) -> tuple[tuple[SystemPart, ...], str | None, tuple[Message, ...]]:
    """Return the parts of the system text in order, the text of the prompt, and its messages.

    All resolvers run side by side, sync resolvers in threads, unless a sync twin asks.
    """
    around = _around.get()
    asked: list[tuple[str, Any]] = []
    if len(around) >= DEEPEST:
        inner = [f"{name} ({', '.join(each.source for each in used)})" for name, used in around]
        raise InvalidInput(
            f"resolvers resolve prompts more than {DEEPEST} deep, at last "
            f"{' → '.join(inner[-3:])}; a resolver must not need the prompt it belongs to"
        )
    before = _around.set((*around, (f"prompt {prompt.id!r}" if prompt.id else "a prompt", active)))
    try:
        for what, resolver in (
            ("the system text of the prompt", prompt.system),
            ("the prompt text", prompt.prompt),
            ("the messages of the prompt", prompt.messages),
        ):
            asked.append((what, _ask(resolver, what, own, ctx)))
        for each in active:
            what = f"the system text of {each.source}"
            asked.append((what, _ask_context(each, ctx)))
        names, values = zip(*asked, strict=True)
        system, said, messages, *texts = await together(values, names)
    except BaseException:
        for _, value in asked:
            if inspect.iscoroutine(value):
                value.close()
        raise
    finally:
        _around.reset(before)
    own_text = _text(system, "the system text of the prompt")
    parts = [SystemPart("prompt", own_text, changes=callable(prompt.system))]
    parts += [_part(each, answer) for each, answer in zip(active, texts, strict=True)]
    return (
        tuple(parts),
        None if prompt.prompt is None else _text(said, "the prompt text"),
        () if messages is None else as_messages(messages, "the messages of the prompt"),
    )


def _part(each: Active, answer: Any) -> SystemPart:
    """Return the resolved text of a context, as a part of the system text."""
    use = each.context
    known = answer if isinstance(answer, Answer) else None
    return SystemPart(
        each.source,
        _text(known.text if known else answer, f"the system text of {each.source}"),
        use.priority,
        use.pinned,
        use.cache is not None and use.cache.provider,
        known.outcome if known else None,
        known.age if known else None,
        changes=callable(use.system) and use.cache is None,
    )


def _ask(resolver: Any, what: str, value: Any, ctx: Any = None) -> Any:
    if not callable(resolver):
        return resolver
    if _asked_by_twin.get():
        return call(resolver, what, value, ctx)
    # An async function can have a timeout of its own, and be cancelled; a sync function cannot.
    seconds = None if is_async(resolver) else TIMEOUT
    return call_async(resolver, what, value, ctx, timeout=seconds)


def _ask_context(each: Active, ctx: Any) -> Any:
    use = each.context
    what = f"the system text of {each.source}"
    if use.cache is None or not callable(use.system):
        return _ask(use.system, what, each.input, ctx)
    declared = dict(each.input) if use.input is not None and arity(use.system, what) else {}
    key = (use.id, identity(use.system), use.input, use.cache, freeze(declared, each.source))

    async def later(text: Awaitable[Any]) -> str:
        try:
            return _text(await text, what)
        except Exception as error:
            note(error, what)
            raise

    def checked() -> Any:  # a text is checked before it is cached
        text = _ask(use.system, what, each.input)
        return later(text) if inspect.isawaitable(text) else _text(text, what)

    return (cache_around() or defaults().cache).get(key, each.source, use.cache.ttl, checked)


def as_messages(value: Any, what: str) -> tuple[Message, ...]:
    """Return a list of messages, or any other sequence but a text, as messages."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InvalidType(f"{what} must be a list of messages, not {shown(value)}")
    return tuple(messages_from(value, where=f"{what}[{{}}]"))


def _text(value: Any, what: str) -> str:
    return "" if value is None else check_text(value, what)


def declare(slots: Slots, gathered: Gathered) -> None:
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


def is_divided(parts: Sequence[SystemPart], caching: Caching | None) -> bool:
    """Say whether the parts that are not cached stand in a message of their own."""
    asked = any(part.breakpoint and part.text for part in parts)
    others = any(_is_uncached(part) and part.text for part in parts)
    return asked and others and caching is not None and caching.breakpoints > 0


def declare_parts(slots: Slots, parts: Sequence[SystemPart]) -> None:
    """Declare the parts of a system text: joined, each kept whole or dropped."""
    divided = is_divided(parts, slots.profile.caching if slots.profile else None)
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
