"""Signatures: the parameters of a function as JSON Schema, and reading arguments by it.

Pydantic describes and checks types of all kinds. Without Pydantic, plain types get the same schema:
text, numbers, true or false, each of them or null. Arguments of plain types must then have the type
that the schema names; Pydantic also accepts "3" for 3.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import MethodType, NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin
from weakref import WeakKeyDictionary

from muntin.core.checks import copy_json
from muntin.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError


class WrongArguments(Exception):
    """The arguments of a call do not fit the function; the text is for the model."""


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """The parameters of a function and their JSON Schema.

    `model` is a Pydantic model whose fields are the parameters in order, None without Pydantic.
    """

    parameters: tuple[inspect.Parameter, ...]
    schema: dict[str, Any]
    model: type[BaseModel] | None = None

    def bind(self, arguments: str) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of a call, by position and by name."""
        text = arguments if arguments.strip() else "{}"  # some servers write no arguments so
        values = self._read(text) if self.model is None else _validate(self.model, text)
        positional, named = [], {}
        for parameter, value in zip(self.parameters, values, strict=True):
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                named[parameter.name] = value
        return positional, named

    def _read(self, text: str) -> list[Any]:
        """Return the values of plain types, which must have the type that the schema names."""
        try:
            json_values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise WrongArguments(f"arguments: Invalid JSON: {error}") from error
        if not isinstance(json_values, dict):
            raise WrongArguments("arguments: Input should be an object")
        values, wrong = [], []
        for parameter in self.parameters:
            name, kinds = parameter.name, _plain_types(parameter) or ()
            is_given, value = name in json_values, json_values.pop(name, parameter.default)
            if not is_given:
                wrong += [f"{name}: Field required"] if value is parameter.empty else []
            elif type(value) is int and int not in kinds and float in kinds:
                value = float(value)  # JSON writes 3 for 3.0 too
            elif type(value) not in kinds:
                names = " or ".join(_JSON_TYPES[kind] for kind in kinds)
                wrong.append(f"{name}: Input should be a valid {names}")
            values.append(value)
        wrong += [f"{name}: Extra inputs are not permitted" for name in json_values]
        if wrong:
            raise WrongArguments("; ".join(wrong))
        return values


def _validate(model: type[BaseModel], text: str) -> list[Any]:
    from pydantic import ValidationError

    try:
        values = model.model_validate_json(text)
    except ValidationError as error:
        raise WrongArguments(problems(error)) from error
    return [getattr(values, field) for field in model.model_fields]


_JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def _plain_types(parameter: inspect.Parameter) -> tuple[type, ...] | None:
    """Return the plain types of a parameter in their order; None if it has another type."""
    annotation = parameter.annotation
    is_union = get_origin(annotation) in (Union, UnionType)
    types = get_args(annotation) if is_union else (annotation,)
    return (
        types if all(isinstance(type_, type) and type_ in _JSON_TYPES for type_ in types) else None
    )


def problems(error: ValidationError, whole: str = "arguments") -> str:
    """Say in one line what Pydantic found wrong; `whole` names the value itself."""
    return "; ".join(
        f"{'.'.join(str(step) for step in problem['loc']) or whole}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_context=False, include_input=False)
    )


# Making a model costs a millisecond, and a turn asks for every tool several times. Methods are kept
# by their function: a bound method is a new object at each access.
_functions: WeakKeyDictionary[Callable[..., Any], Signature] = WeakKeyDictionary()
_methods: WeakKeyDictionary[Callable[..., Any], Signature] = WeakKeyDictionary()


def signature(name: str, fn: Callable[..., Any]) -> Signature:
    """Return the parameters of a function, read once for each function; `name` is for errors."""
    cached, key = (_methods, fn.__func__) if isinstance(fn, MethodType) else (_functions, fn)
    try:
        if key not in cached:
            cached[key] = _read_signature(name, fn)
        return cached[key]
    except TypeError:  # not hashable, or takes no weak references
        return _read_signature(name, fn)


def _read_signature(name: str, fn: Callable[..., Any]) -> Signature:
    parameters = _parameters(name, fn)
    try:
        return _describe(name, parameters)
    except MissingExtra:
        raise
    except Exception as error:
        for parameter in parameters:
            try:
                _describe(name, [parameter])
            except Exception:
                raise _refusal(name, parameter, error) from error
        raise _refusal(name, None, error) from error


def _parameters(name: str, tool: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function, their annotations evaluated.

    The annotation of what it returns is not evaluated: it may be known to type checkers only.
    """
    try:
        inner = inspect.unwrap(tool.func if isinstance(tool, partial) else tool)
        names = getattr(
            inner if inspect.isroutine(inner) else type(inner).__call__, "__globals__", {}
        )
        parameters = list(inspect.signature(tool).parameters.values())
    except Exception as error:
        raise _refusal(name, None, error) from error
    evaluated = []
    for parameter in parameters:
        annotation = parameter.annotation
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise _refusal(name, parameter, "a tool cannot take *args or **kwargs")
        if annotation is parameter.empty:
            raise InvalidInput(
                f"tool {name!r}: parameter {parameter.name!r} has no type annotation; "
                f"write its type, such as {parameter.name}: str"
            )
        try:
            evaluated_type = eval(annotation, names) if isinstance(annotation, str) else annotation
        except Exception as error:
            raise _refusal(name, parameter, error) from error
        evaluated.append(parameter.replace(annotation=evaluated_type))
    return evaluated


def _describe(name: str, parameters: Sequence[inspect.Parameter]) -> Signature:
    try:
        from pydantic import ConfigDict, create_model
    except ImportError:
        return _describe_plainly(name, parameters)
    # Fields with other names, because a model cannot have fields `schema`, `model_config` or `_x`.
    names = {f"parameter{index}": p.name for index, p in enumerate(parameters)}
    fields: dict[str, Any] = {
        field: (p.annotation, ... if p.default is p.empty else p.default)
        for field, p in zip(names, parameters, strict=True)
    }
    # An unknown argument is the model's mistake, and the model should be told.
    config = ConfigDict(alias_generator=names.__getitem__, extra="forbid")
    model = create_model(name, __config__=config, **fields)
    schema: dict[str, Any] = copy_json(model.model_json_schema(), "the schema")
    schema.pop("title", None)
    schema.pop("additionalProperties", None)  # not every provider takes it
    return Signature(tuple(parameters), schema, model)


def _describe_plainly(name: str, parameters: Sequence[inspect.Parameter]) -> Signature:
    properties: dict[str, Any] = {}
    for parameter in parameters:
        types = _plain_types(parameter)
        if types is None:
            raise MissingExtra(
                f"tool {name!r}: parameter {parameter.name!r} is no plain text, number or bool: "
                "describing it needs the 'prompts' extra: pip install 'muntin[prompts]'"
            )
        alternatives = [{"type": _JSON_TYPES[type_]} for type_ in types]
        default = {} if parameter.default is parameter.empty else {"default": parameter.default}
        title = {"title": parameter.name.replace("_", " ").title()}
        if len(types) > 1:
            properties[parameter.name] = {"anyOf": alternatives, **default, **title}
        else:
            properties[parameter.name] = {**default, **title, **alternatives[0]}
    needed = [p.name for p in parameters if p.default is p.empty]
    required = {"required": needed} if needed else {}
    schema = copy_json({"properties": properties, **required, "type": "object"}, "the schema")
    return Signature(tuple(parameters), schema)


def _refusal(name: str, parameter: inspect.Parameter | None, reason: object) -> InvalidInput:
    where = f"parameter {parameter.name!r}" if parameter else "its signature cannot be read"
    first = str(reason).partition("\n")[0]
    return InvalidInput(f"tool {name!r}: {where}: {first}")
