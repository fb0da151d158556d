"""Inputs: what the caller gives, divided among the contexts that declared it.

Each context gets an instance of its own model with nothing else in it; a context without a model
sees the merged input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

from muntin.agent.tools import problems
from muntin.core.checks import check_text
from muntin.errors import InvalidInput, InvalidType
from muntin.prompts.contexts import Reached

if TYPE_CHECKING:
    from pydantic import BaseModel


# What each context with a model sees, by the context's id(), or why it is not valid. Conditional
# contexts whose fields are missing are not in it.
Seen: TypeAlias = "dict[int, BaseModel | Exception]"


class MergedInput(SimpleNamespace):
    """All input fields together: the prompt's, its contexts', and what else was given."""


def check_fields(reached: Sequence[Reached], own: type[BaseModel] | None) -> None:
    """Refuse one field claimed by two contexts, unless the prompt itself declares it."""
    owners: dict[str, Reached] = {}
    mine = set(own.model_fields) if own is not None else set()
    for each in reached:
        for name in each.context.input.model_fields if each.context.input else ():
            owner = owners.setdefault(name, each)
            if owner.context is not each.context and name not in mine:
                raise InvalidInput(
                    f"input field {name!r} is declared by {owner.source} and by {each.source}; "
                    "declare it once, or on the prompt"
                )


def as_mapping(value: Any) -> dict[str, Any]:
    """Return what was given as input as a dict of fields."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        for name in value:
            check_text(name, "the name of an input field")
        return dict(value)
    if hasattr(type(value), "model_fields"):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    raise InvalidType(f"input must be a mapping, a model or a dataclass, not {value!r}")


def missing_fields(model: type[BaseModel], given: Mapping[str, Any]) -> list[str]:
    """Return the required fields of a model that were not given, or given as a None they refuse."""
    return [
        name
        for name, info in model.model_fields.items()
        if info.is_required()
        and all(given.get(key) is None for key in _keys(name, info))
        and not (any(key in given for key in _keys(name, info)) and _takes_none(info.annotation))
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


def validate(model: type[BaseModel], given: Mapping[str, Any], what: str) -> BaseModel:
    """Return an instance of the model with only its own fields in it."""
    mine = {
        key: given[key]
        for name, info in model.model_fields.items()
        for key in _keys(name, info)
        if key in given
    }
    return validate_value(model, mine, what)


def validate_value(model: type[BaseModel], value: Any, what: str) -> BaseModel:
    """Return a value as an instance of the model, or say what is wrong with it."""
    from pydantic import ValidationError

    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InvalidInput(f"{what}: invalid input: {problems(error, 'input')}") from error


def merge(
    given: Mapping[str, Any], own: BaseModel | None, reached: Sequence[Reached]
) -> tuple[MergedInput, Seen]:
    """Return all fields together, validated, and what each context sees of them.

    Fields of conditional contexts are None if they are missing, and as they were given if they
    are not valid: that is an error only of a context that takes part.
    """
    merged = dict(given)
    seen: Seen = {}
    for each in reached:
        model = each.context.input
        if model is None:
            continue
        values: Mapping[str, Any] = {name: merged.get(name) for name in model.model_fields}
        if not each.conditional or not missing_fields(model, given):
            try:
                valid = validate(model, given, each.source)
            except Exception as error:
                if not each.conditional:
                    raise
                seen[id(each.context)] = error
            else:
                seen[id(each.context)] = valid
                values = dict(valid)
        merged.update(values)
    if own is not None:
        merged.update(dict(own))
    return MergedInput(**merged), seen
