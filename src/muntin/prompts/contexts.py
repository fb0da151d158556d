"""Contexts: reusable pieces of system text, their conditions, and the part of the input that each
context sees.

Each context gets an instance of its own model with only its own fields; a context without a model
sees the merged input. Nothing is resolved here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, get_args

from muntin.agent.signatures import problems
from muntin.agent.tools import ToolLike, as_tools
from muntin.calls import arity, check_plain
from muntin.core.checks import check_optional_text, check_text, shown
from muntin.core.planning.slot import CONTEXT, SYSTEM
from muntin.errors import InvalidInput, InvalidType
from muntin.resolver_cache import CacheOptions, as_options

if TYPE_CHECKING:
    from pydantic import BaseModel

MOST_NESTED = 32

Resolver: TypeAlias = str | Callable[..., Any] | None
Predicate: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """A reusable piece of system text; two contexts are the same only if they are one object."""

    id: str | None
    system: Resolver
    priority: int
    required: bool
    when: Predicate | None
    input: type[BaseModel] | None
    use: tuple[Use, ...]
    tools: tuple[ToolLike, ...]
    cache: CacheOptions | None
    description: str | None
    depth: int
    # Whether the budget can never drop it.
    is_pinned: bool
    # How many conditions stand directly around a context: none here.
    wraps: ClassVar[int] = 0


@dataclass(frozen=True, slots=True, eq=False)
class When:
    """A context that takes part only while a predicate holds."""

    predicate: Predicate
    target: Use
    depth: int
    wraps: int


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """A choice among contexts by a value."""

    on: Predicate
    cases: Mapping[Hashable, tuple[Use, ...]]
    default: tuple[Use, ...] | None
    depth: int
    wraps: int


Use: TypeAlias = Context | When | Match | None


def context(
    *,
    system: Resolver,
    id: str | None = None,
    priority: int = CONTEXT,
    required: bool = False,
    when: Predicate | None = None,
    input: type[BaseModel] | None = None,
    use: Sequence[Any] = (),
    tools: Sequence[ToolLike] = (),
    cache: int | bool | CacheOptions | None = None,
    description: str | None = None,
) -> Context:
    """Define a reusable piece of system text.

    `system` is a text or a resolver: `()`, `(input)` or `(input, ctx)`, sync or async. `cache` is a
    time to live in milliseconds, True for five minutes, or `CacheOptions`.
    """
    if id is not None and not check_text(id, "context: id").strip():
        raise InvalidInput("context: id must not be empty")
    what = f"context {id!r}" if id else "context"
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise InvalidType(f"{what}: priority must be an int, not {shown(priority)}")
    if not isinstance(required, bool):
        raise InvalidType(f"{what}: required must be a bool, not {shown(required)}")
    if when is not None:
        check_plain(when, f"{what}: when")
    check_resolver(system, f"{what}: system")
    check_model(input, f"{what}: input")
    check_optional_text(description, f"{what}: description")
    options = as_options(cache, what)
    if options is not None:
        _check_cached(what, id, system, input)
    uses = as_uses(use, f"{what}: use")
    return Context(
        id=id,
        system=system,
        priority=priority,
        required=required,
        when=when,
        input=input,
        use=uses,
        tools=as_tools(tools, what),
        cache=options,
        description=description,
        depth=1 + check_depth(uses, what, MOST_NESTED - 1),
        is_pinned=required or priority >= SYSTEM,
    )


def when(predicate: Predicate, target: Any) -> When:
    """Use a context only while `predicate` of the merged input holds."""
    check_plain(predicate, "when()")
    (use,) = as_uses([target], "when()")
    if use is None:
        raise InvalidType(f"when() needs a context, not {shown(target)}")
    return When(predicate, use, check_depth([use], "when()"), _wrap([use], "when()"))


def match(*, on: Predicate, cases: Mapping[Any, Any], default: Any = None) -> Match:
    """Choose contexts by the value of `on`; a case is a context or a list of them."""
    check_plain(on, "match(): on")
    if not isinstance(cases, Mapping) or not cases:
        raise InvalidType(f"match(): cases must be a mapping with a case, not {shown(cases)}")
    chosen = {value: _case(case, f"match(): case {shown(value)}") for value, case in cases.items()}
    other = None if default is None else _case(default, "match(): default")
    uses = [use for case in (*chosen.values(), other or ()) for use in case]
    return Match(on, chosen, other, check_depth(uses, "match()"), _wrap(uses, "match()"))


def _case(case: Any, what: str) -> tuple[Use, ...]:
    return as_uses(case if isinstance(case, list | tuple) else [case], what)


def as_uses(entries: Any, what: str) -> tuple[Use, ...]:
    """Check the entries of a `use` list; False and None are empty places."""
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        raise InvalidType(f"{what} must be a list of contexts, not {shown(entries)}")
    for index, entry in enumerate(entries):
        if (
            entry is not None
            and entry is not False
            and not isinstance(entry, Context | When | Match)
        ):
            raise InvalidType(
                f"{what}[{index}] must be a context, when() or match(), not {shown(entry)}"
            )
    return tuple(entry or None for entry in entries)


def check_resolver(value: Any, what: str) -> None:
    """Refuse anything but a text, a function by the arity rule, or None."""
    if isinstance(value, str):
        check_text(value, what)
    elif callable(value):
        arity(value, what)
    elif value is not None:
        raise InvalidType(f"{what} must be a str or a function, not {shown(value)}")


def check_model(model: Any, what: str) -> None:
    """Refuse anything but a Pydantic model class or None."""
    if model is not None and not (inspect.isclass(model) and hasattr(model, "model_fields")):
        raise InvalidType(f"{what} must be a Pydantic model class, not {shown(model)}")


def _check_cached(
    what: str, id: str | None, system: Resolver, model: type[BaseModel] | None
) -> None:
    """Refuse a cached resolver that could see more than its declared input."""
    if id is None:
        raise InvalidInput(f"{what}: a cached context needs an id")
    if not callable(system):
        return
    takes = arity(system, f"{what}: system")
    if takes == 2:
        raise InvalidInput(f"{what}: a cached resolver cannot take ctx, only its declared input")
    if takes == 1 and model is None:
        raise InvalidInput(
            f"{what}: a cached resolver that takes input needs a declared input model"
        )


def check_depth(uses: Sequence[Use], what: str, most: int = MOST_NESTED) -> int:
    """Return how deep these contexts are nested; refuse more than 32."""
    depth = max((use.depth for use in uses if use is not None), default=0)
    if depth > most:
        raise InvalidInput(f"{what}: use is nested deeper than {MOST_NESTED}")
    return depth


def _wrap(uses: Sequence[Use], what: str) -> int:
    """Return how deep conditions are nested; refuse more than 32."""
    wraps = 1 + max((use.wraps for use in uses if use is not None), default=0)
    if wraps > MOST_NESTED:
        raise InvalidInput(f"{what}: conditions are nested deeper than {MOST_NESTED}")
    return wraps


@dataclass(frozen=True, slots=True)
class ReachedContext:
    """A context as a prompt reaches it: its name, and whether it always takes part."""

    context: Context
    source: str
    is_conditional: bool = field(default=False)


def reach(uses: Sequence[Use]) -> list[ReachedContext]:
    """Return every context that may take part, once, nested contexts before their owner.

    A context is conditional only if every way to it has a condition.
    """
    reached: dict[int, ReachedContext] = {}

    def visit_all(uses: Sequence[Use], prefix: str, is_conditional: bool) -> None:
        for index, use in enumerate(uses):
            visit(use, index, prefix, is_conditional)

    def visit(use: Use, index: int, prefix: str, is_conditional: bool) -> None:
        if isinstance(use, Context):
            source = source_of(use, index, prefix)
            is_conditional = is_conditional or use.when is not None
            earlier = reached.get(id(use))
            if earlier is None or (earlier.is_conditional and not is_conditional):
                visit_all(use.use, f"{source}.", is_conditional)
                reached[id(use)] = ReachedContext(
                    use, earlier.source if earlier else source, is_conditional
                )
        elif isinstance(use, When):
            visit(use.target, index, prefix, True)
        elif isinstance(use, Match):
            for case in (*use.cases.values(), use.default or ()):
                visit_all(case, f"{prefix}match[{index}].", True)

    visit_all(uses, "", False)
    return list(reached.values())


def target_of(use: Use) -> Context | None:
    """Return the context inside of conditions, if it is a context and not a choice."""
    while isinstance(use, When):
        use = use.target
    return use if isinstance(use, Context) else None


def source_of(use: Context, index: int, prefix: str) -> str:
    """Return the name of a context: its id, or its place."""
    return f"context:{use.id}" if use.id else f"{prefix}context[{index}]"


# The input of each context with a model, by the context's id(), or why it is not valid. Without
# conditional contexts whose fields are missing.
Seen: TypeAlias = "dict[int, BaseModel | Exception]"


class MergedInput(SimpleNamespace):
    """All input fields together: the prompt's, its contexts', and other given fields."""


def check_fields(reached: Sequence[ReachedContext], model: type[BaseModel] | None) -> None:
    """Refuse one field claimed by two contexts, unless the prompt itself declares it."""
    owners: dict[str, ReachedContext] = {}
    declared = set(model.model_fields) if model is not None else set()
    for entry in reached:
        for name in entry.context.input.model_fields if entry.context.input else ():
            owner = owners.setdefault(name, entry)
            if owner.context is not entry.context and name not in declared:
                raise InvalidInput(
                    f"input field {name!r} is declared by {owner.source} and by {entry.source}; "
                    "declare it once, or on the prompt"
                )


def as_mapping(value: Any) -> dict[str, Any]:
    """Return the given input as a dict of fields."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        for name in value:
            check_text(name, "the name of an input field")
        return dict(value)
    if hasattr(type(value), "model_fields"):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {spec.name: getattr(value, spec.name) for spec in fields(value)}
    raise InvalidType(f"input must be a mapping, a model or a dataclass, not {shown(value)}")


def missing_fields(model: type[BaseModel], values: Mapping[str, Any]) -> list[str]:
    """Return the required fields of a model that are missing, or None where None is invalid."""
    return [
        name
        for name, info in model.model_fields.items()
        if info.is_required()
        and all(values.get(key) is None for key in _keys(name, info))
        and not (any(key in values for key in _keys(name, info)) and _takes_none(info.annotation))
    ]


def _takes_none(annotation: Any) -> bool:
    return annotation is Any or annotation is None or type(None) in get_args(annotation)


def _keys(name: str, info: Any) -> set[str]:
    """Return the names under which a field may be given."""
    keys = {name}
    for alias in (info.alias, info.validation_alias):
        # AliasChoices has choices, AliasPath a path that begins with a name.
        for choice in getattr(alias, "choices", [alias]):
            first = getattr(choice, "path", [choice])[0]
            if isinstance(first, str):
                keys.add(first)
    return keys


def validate(model: type[BaseModel], values: Mapping[str, Any], what: str) -> BaseModel:
    """Return an instance of the model with only its own fields in it."""
    declared = {
        key: values[key]
        for name, info in model.model_fields.items()
        for key in _keys(name, info)
        if key in values
    }
    return validate_value(model, declared, what)


def validate_value(model: type[BaseModel], value: Any, what: str) -> BaseModel:
    """Return a value as an instance of the model, or raise what is wrong with it."""
    from pydantic import ValidationError

    check_defined(model, what)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InvalidInput(f"{what}: invalid input: {problems(error, 'input')}") from error


def check_defined(model: type[BaseModel] | None, what: str) -> None:
    """Refuse a model with a field whose type cannot be found."""
    from pydantic.errors import PydanticUndefinedAnnotation

    if model is None or getattr(model, "__pydantic_complete__", True):
        return
    try:
        model.model_rebuild()  # the type may be defined by now
    except PydanticUndefinedAnnotation as error:
        raise InvalidInput(
            f"{what}: the model {model.__name__} is not whole: its fields name {error.name!r}, "
            "which cannot be found where the model is defined; import it there, outside of "
            "TYPE_CHECKING, or call model_rebuild() with it"
        ) from error


def merge(
    values: Mapping[str, Any], own_fields: BaseModel | None, reached: Sequence[ReachedContext]
) -> tuple[MergedInput, Seen]:
    """Return all fields together, validated, and the input of each context.

    Fields of conditional contexts are None if they are missing, and unchanged if they are not
    valid: an invalid field is an error only if its context takes part.
    """
    merged = dict(values)
    seen: Seen = {}
    for entry in reached:
        model = entry.context.input
        if model is None:
            continue
        own_values: Mapping[str, Any] = {name: merged.get(name) for name in model.model_fields}
        if not entry.is_conditional or not missing_fields(model, values):
            try:
                valid = validate(model, values, entry.source)
            except Exception as error:
                if not entry.is_conditional:
                    raise
                seen[id(entry.context)] = error
            else:
                seen[id(entry.context)] = valid
                own_values = dict(valid)
        merged.update(own_values)
    if own_fields is not None:
        merged.update(dict(own_fields))
    return MergedInput(**merged), seen
