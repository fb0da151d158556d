"""Signatures: the parameters of a function as JSON Schema, and reading arguments by it.

Pydantic describes and checks types of all kinds. Without Pydantic, plain types get the same schema:
text, numbers, true or false, each of them or null. Arguments of plain types must then have the type
that the schema names; Pydantic also accepts "3" for 3.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import MethodType, NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeAlias, Union, get_args, get_origin
from weakref import WeakKeyDictionary

from muntin.core.checks import copy_json
from muntin.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

Bound: TypeAlias = tuple[list[Any], dict[str, Any]]


class WrongArguments(Exception):
    """The arguments of a call do not fit the function; the text is for the model."""


@dataclass(frozen=True, slots=True, eq=False)
class _Modelled:
    """Reads arguments by a Pydantic model.

    `fields` are (the model's field, the parameter's name; None for a positional parameter).
    """

    schema: dict[str, Any]
    model: type[BaseModel]
    fields: tuple[tuple[str, str | None], ...]

    def bind(self, arguments: str) -> Bound:
        from pydantic import ValidationError

        try:
            values = self.model.model_validate_json(_given(arguments))
        except ValidationError as error:
            raise WrongArguments(problems(error)) from error
        given = [(name, getattr(values, each)) for each, name in self.fields]
        by_position = [value for name, value in given if name is None]
        return by_position, {name: value for name, value in given if name is not None}


@dataclass(frozen=True, slots=True, eq=False)
class _Plain:
    """Reads arguments by the kinds of JSON values that parameters take."""

    schema: dict[str, Any]
    parameters: Sequence[inspect.Parameter]

    def bind(self, arguments: str) -> Bound:
        try:
            given = json.loads(_given(arguments))
        except (ValueError, RecursionError) as error:
            raise WrongArguments(f"arguments: Invalid JSON: {error}") from error
        if not isinstance(given, dict):
            raise WrongArguments("arguments: Input should be an object")
        wrong = list(self._wrong(given))
        if wrong:
            raise WrongArguments("; ".join(wrong))
        by_position, named = [], {}
        for each in self.parameters:
            value = given.get(each.name, each.default)
            if each.name in given and type(value) is int and int not in (_kinds(each) or ()):
                value = float(value)  # JSON writes 3 for 3.0 too
            if each.kind is each.POSITIONAL_ONLY:
                by_position.append(value)
            else:
                named[each.name] = value
        return by_position, named

    def _wrong(self, given: dict[str, Any]) -> Iterator[str]:
        for each in self.parameters:
            kinds, kind = _kinds(each) or (), type(given.get(each.name))
            if each.name not in given:
                if each.default is each.empty:
                    yield f"{each.name}: Field required"
            elif kind not in kinds and not (kind is int and float in kinds):
                names = " or ".join(_KINDS[kind] for kind in kinds)
                yield f"{each.name}: Input should be a valid {names}"
        known = {each.name for each in self.parameters}
        yield from (
            f"{name}: Extra inputs are not permitted" for name in given if name not in known
        )


Signature: TypeAlias = _Modelled | _Plain

_KINDS = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def _kinds(parameter: inspect.Parameter) -> tuple[type, ...] | None:
    """Return the plain types of a parameter in their order; None if it has another type."""
    annotation = parameter.annotation
    several = get_origin(annotation) in (Union, UnionType)
    found = get_args(annotation) if several else (annotation,)
    return found if all(isinstance(each, type) and each in _KINDS for each in found) else None


def _given(arguments: str) -> str:
    """Return the arguments of a call: some servers write an empty text for no arguments."""
    return arguments if arguments.strip() else "{}"


def problems(error: ValidationError, whole: str = "arguments") -> str:
    """Say in one line what Pydantic found wrong; `whole` names the value itself."""
    return "; ".join(
        f"{'.'.join(str(step) for step in each['loc']) or whole}: {each['msg']}"
        for each in error.errors(include_url=False, include_context=False, include_input=False)
    )


# Making a model costs a millisecond, and a turn asks for every tool several times.
_signatures: WeakKeyDictionary[Callable[..., Any], Signature] = WeakKeyDictionary()
# By the function of a method: a bound method is a new object at each access.
_method_signatures: WeakKeyDictionary[Callable[..., Any], Signature] = WeakKeyDictionary()


def signature(name: str, fn: Callable[..., Any]) -> Signature:
    """Return the parameters of a function, read once for each function; `name` is for errors."""
    known, key = _signatures, fn
    if isinstance(fn, MethodType):
        known, key = _method_signatures, fn.__func__
    try:
        found = known.get(key)
    except TypeError:  # not hashable, or takes no weak references
        return _read_signature(name, fn)
    if found is None:
        found = known[key] = _read_signature(name, fn)
    return found


def _read_signature(name: str, fn: Callable[..., Any]) -> Signature:
    parameters = _parameters(name, fn)
    try:
        return _describe(name, parameters)
    except MissingExtra:
        raise
    except Exception as error:
        for culprit in parameters:
            try:
                _describe(name, [culprit])
            except Exception:
                raise _refusal(name, culprit, error) from error
        raise _refusal(name, None, error) from error


def _parameters(name: str, tool: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function, their annotations evaluated."""
    try:
        parameters = list(inspect.signature(tool, eval_str=True).parameters.values())
    except Exception as error:
        known = _resolved(name, tool)
        if known is None:
            raise _refusal(name, None, error) from error
        parameters = known
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise _refusal(name, parameter, "a tool cannot take *args or **kwargs")
        if parameter.annotation is parameter.empty:
            raise InvalidInput(
                f"tool {name!r}: parameter {parameter.name!r} has no type annotation; "
                f"write its type, such as {parameter.name}: str"
            )
    return parameters


def _resolved(name: str, tool: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """Return the parameters of a function whose return annotation cannot be evaluated.

    The return annotation is not needed: the value itself tells its type. None for a function that
    is not written in Python.
    """
    try:
        inner = tool.func if isinstance(tool, partial) else inspect.unwrap(tool)
        names = (inner if inspect.isroutine(inner) else type(inner).__call__).__globals__
        parameters = list(inspect.signature(tool).parameters.values())
    except Exception:
        return None
    found = []
    for parameter in parameters:
        annotation = parameter.annotation
        try:
            known = eval(annotation, names) if isinstance(annotation, str) else annotation
        except Exception as error:
            raise _refusal(name, parameter, error) from error
        found.append(parameter.replace(annotation=known))
    return found


def _describe(name: str, parameters: Sequence[inspect.Parameter]) -> Signature:
    try:
        from pydantic import ConfigDict, create_model
    except ImportError:
        return _describe_plainly(name, parameters)
    # Fields with other names, because a model cannot have fields `schema`, `model_config` or `_x`.
    names = {f"parameter{index}": each.name for index, each in enumerate(parameters)}
    fields: dict[str, Any] = {
        field: (each.annotation, ... if each.default is each.empty else each.default)
        for field, each in zip(names, parameters, strict=True)
    }
    # An unknown argument is the model's mistake, and the model should be told.
    config = ConfigDict(alias_generator=names.__getitem__, extra="forbid")
    made = create_model(name, __config__=config, **fields)
    schema: dict[str, Any] = copy_json(made.model_json_schema(), "the schema")
    schema.pop("title", None)
    schema.pop("additionalProperties", None)  # not every provider takes it
    by_position = {each.name for each in parameters if each.kind is each.POSITIONAL_ONLY}
    return _Modelled(
        schema,
        made,
        tuple((field, None if each in by_position else each) for field, each in names.items()),
    )


def _describe_plainly(name: str, parameters: Sequence[inspect.Parameter]) -> Signature:
    described: dict[str, Any] = {}
    for each in parameters:
        kinds = _kinds(each)
        if kinds is None:
            raise MissingExtra(
                f"tool {name!r}: parameter {each.name!r} is no plain text, number or bool: "
                "describing it needs the 'prompts' extra: pip install 'muntin[prompts]'"
            )
        types = [{"type": _KINDS[kind]} for kind in kinds]
        told: dict[str, Any] = {"anyOf": types} if len(types) > 1 else {}
        if each.default is not each.empty:
            told["default"] = each.default
        told["title"] = each.name.replace("_", " ").title()
        described[each.name] = told if len(types) > 1 else {**told, **types[0]}
    needed = [each.name for each in parameters if each.default is each.empty]
    required = {"required": needed} if needed else {}
    schema = {"properties": described, **required, "type": "object"}
    return _Plain(copy_json(schema, "the schema"), tuple(parameters))


def _refusal(name: str, parameter: inspect.Parameter | None, reason: object) -> InvalidInput:
    where = f"parameter {parameter.name!r}" if parameter else "its signature cannot be read"
    first = str(reason).partition("\n")[0]
    return InvalidInput(f"tool {name!r}: {where}: {first}")
