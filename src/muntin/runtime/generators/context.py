"""Authored context: what generators and capabilities write in `context=`.

Owns what an entry may be: it is read and checked once, where it is defined, and resolved at every
model step. `core.tags` merges tags; `prompts` writes the text of a context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any, TypeAlias

from muntin.agent.tools import ToolLike
from muntin.calls import arity, call_async, together
from muntin.core.checks import check_text
from muntin.core.message import ROLES, Message, system
from muntin.core.planning.slot import CONTEXT
from muntin.core.tags.tree import Contribution, contribute, fields_of
from muntin.errors import InvalidInput, InvalidType
from muntin.prompts.contexts import Context, Match, When, as_mapping, target_of
from muntin.prompts.definition import text_of
from muntin.prompts.texts import Excluded

# How deep functions may return functions.
DEEPEST = 32
CONTEXTS = (Context, When, Match)


@dataclass(frozen=True, slots=True)
class Deferred:
    """A function among the entries; its result is read like any entry."""

    path: str
    function: Callable[..., Any]


Entry: TypeAlias = str | Message | Contribution | Deferred | Context | When | Match


@dataclass(frozen=True, slots=True)
class ContextSpec:
    """The context of one author: entries in order, all checked; made by `read`."""

    author: str
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class LooseMessage:
    """A message beside the tagged block: a plain text, a context's text, or a given message."""

    name: str
    message: Message
    author: str
    priority: int = field(default=CONTEXT, kw_only=True)
    required: bool = field(default=False, kw_only=True)
    changes: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class ResolvedContext:
    """Everything the authors gave, each kind in author order.

    `changing` are the outermost tags with a part that is made again at every step.
    """

    tagged: tuple[Contribution, ...] = ()
    loose: tuple[LooseMessage, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    tools: tuple[tuple[str, Sequence[ToolLike]], ...] = ()
    changing: frozenset[str] = frozenset()

    def __add__(self, other: ResolvedContext) -> ResolvedContext:
        return ResolvedContext(
            self.tagged + other.tagged,
            self.loose + other.loose,
            self.excluded + other.excluded,
            self.tools + other.tools,
            self.changing | other.changing,
        )


def read(author: str, value: object) -> ContextSpec:
    """Read an author's context; a value that cannot be context is an error."""
    return ContextSpec(author, tuple(_read(author, value, "")))


def _read(author: str, value: object, path: str) -> Iterable[Entry]:
    if value is None or value is False:
        return
    if isinstance(value, str):
        if value:
            yield str.__str__(check_text(value, _where(author, path)))
    elif isinstance(value, Message | Context | When | Match):
        yield value
    elif isinstance(value, Mapping) and "role" in value:
        yield _message(author, value, path)
    elif fields_of(value) is not None:
        contribution = contribute(author, value, CONTEXTS)
        for call in contribution.calls:
            if not isinstance(call.function, CONTEXTS):
                arity(call.function, f"context key {call.path!r} from {author!r}")
        yield contribution
    elif isinstance(value, list | tuple):
        if path.count("[") >= DEEPEST:
            raise InvalidInput(f"{_where(author, path)}: lists are nested more than {DEEPEST} deep")
        for index, entry in enumerate(value):
            yield from _read(author, entry, f"{path}[{index}]")
    elif callable(value):
        arity(value, _where(author, path))
        yield Deferred(path, value)
    else:
        raise InvalidType(
            f"{_where(author, path)}: cannot use a {type(value).__name__}; give a mapping, a text, "
            "a message, a context() or a function"
        )


def _where(author: str, path: str) -> str:
    return f"context{path} from {author!r}"


def _message(author: str, value: Mapping[Any, Any], path: str) -> Message:
    role = value["role"]
    if isinstance(role, str) and role in ROLES and "content" in value:
        try:
            return Message.from_dict(value)
        except InvalidInput as error:
            raise type(error)(f"{_where(author, path)}: {error}") from error
    key = f"{path}.role".removeprefix(".")
    raise InvalidInput(
        f"context key {key!r} from {author!r}: the tag name 'role' is reserved. A mapping with a "
        f"role is a message only if that is one of {', '.join(ROLES)} and it has content; for a "
        "tag, choose another name, such as agent-role"
    )


# Resolving.


async def resolve(authors: Iterable[ContextSpec], ctx: Any) -> ResolvedContext:
    """Resolve the context of all authors; async functions are awaited together."""
    entries = [(author.author, entry) for author in authors for entry in author.entries]
    return _sum(await together(_resolve(author, entry, ctx, 1) for author, entry in entries))


def _sum(resolved: Iterable[ResolvedContext]) -> ResolvedContext:
    return reduce(add, resolved, ResolvedContext())


async def _resolve(author: str, entry: Entry, ctx: Any, depth: int) -> ResolvedContext:
    if isinstance(entry, str):
        return ResolvedContext(loose=(LooseMessage("context", system(entry), author),))
    if isinstance(entry, Message):
        return ResolvedContext(loose=(LooseMessage("context", entry, author),))
    if isinstance(entry, Contribution):
        return await _fill(entry, ctx)
    if not isinstance(entry, Deferred):
        text, resolved = await _context_text(entry, ctx)
        return replace(resolved, loose=(_loose(author, entry, text),)) if text else resolved
    what = _where(author, entry.path)
    if depth > DEEPEST:
        raise InvalidInput(f"{what}: functions give functions more than {DEEPEST} deep")
    result = await call_async(entry.function, what, ctx.input, ctx, timeout=ctx.timeout)
    contributions = tuple(_read(author, result, entry.path))
    return _changing(
        _sum(await together(_resolve(author, inner, ctx, depth + 1) for inner in contributions))
    )


def _changing(resolved: ResolvedContext) -> ResolvedContext:
    """Mark everything that a function gave as changing."""
    return replace(
        resolved,
        loose=tuple(replace(message, changes=True) for message in resolved.loose),
        changing=frozenset(name for author in resolved.tagged for name in author.names),
    )


def _changes(function: Any) -> bool:
    """Say whether a function, called at every step, may give another text each time."""
    if isinstance(function, Context):
        return (callable(function.system) and function.cache is None) or any(
            _changes(context) for context in function.use if context is not None
        )
    return True


def _loose(author: str, entry: Context | When | Match, text: str) -> LooseMessage:
    """Return the text of a `context()` as a message of its own."""
    target = target_of(entry)
    return LooseMessage(
        f"context:{target.id}" if target and target.id else "context",
        system(text),
        author,
        priority=target.priority if target else CONTEXT,
        required=bool(target and target.is_pinned),
        changes=_changes(entry),
    )


async def _fill(contribution: Contribution, ctx: Any) -> ResolvedContext:
    """Call the functions of a tree, and functions that these return, until none is left."""
    resolved = ResolvedContext(changing=contribution.called(_changes))
    for _ in range(DEEPEST):
        if not contribution.calls:
            break
        results = await together(
            _called(call.function, f"context key {call.path!r} from {contribution.author!r}", ctx)
            for call in contribution.calls
        )
        contribution = contribution.fill(value for value, _ in results)
        resolved = _sum([resolved, *(more for _, more in results)])
    if contribution.calls:
        raise InvalidInput(
            f"context key {contribution.calls[0].path!r} from {contribution.author!r}: functions "
            f"give functions more than {DEEPEST} deep"
        )
    return replace(resolved, tagged=(*resolved.tagged, contribution))


async def _called(function: Any, what: str, ctx: Any) -> tuple[Any, ResolvedContext]:
    if isinstance(function, CONTEXTS):
        return await _context_text(function, ctx)
    value = await call_async(function, what, ctx.input, ctx, timeout=ctx.timeout)
    return value, ResolvedContext()


async def _context_text(entry: Context | When | Match, ctx: Any) -> tuple[str, ResolvedContext]:
    """Return the text of a `context()`, and the other parts that it brings."""
    text = await text_of(entry, fields(ctx.input), ctx)
    target = target_of(entry)
    source = f"context:{target.id}" if target and target.id else "a context"
    tools = ((source, text.tools),) if text.tools else ()
    return text.system, ResolvedContext(excluded=text.excluded, tools=tools)


def fields(value: object) -> dict[str, Any]:
    """Return the fields of an input; a bare value has none."""
    try:
        return as_mapping(value)
    except InvalidType:
        return {}
