"""Tools: schemas as the providers want them, and the names they go by."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from muntin.errors import InvalidInput, InvalidType, MissingExtra

ToolLike: TypeAlias = Mapping[str, Any] | Callable[..., Any]


def tool_name(tool: ToolLike) -> str:
    """Return the name of a tool: of a schema, or of a function."""
    if isinstance(tool, Mapping):
        function = tool.get("function")
        name = function.get("name") if isinstance(function, Mapping) else tool.get("name")
    else:
        name = getattr(tool, "__name__", None)
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"a tool needs a name: {tool!r}")
    return name


def tool_schema(tool: ToolLike) -> Mapping[str, Any]:
    """Return the OpenAI-style schema of a tool; a typed function is described by its signature."""
    if isinstance(tool, Mapping):
        return tool
    if not callable(tool):
        raise InvalidType(f"a tool must be a schema or a function, not {tool!r}")
    name = tool_name(tool)
    parameters = _parameters(name, tool)
    try:
        schema = _json_schema(name, parameters)
    except MissingExtra:
        raise
    except Exception as error:
        culprit = next((each for each in parameters if not _fits(name, each)), None)
        raise _refusal(name, culprit, error) from error
    described = {"description": inspect.cleandoc(tool.__doc__)} if tool.__doc__ else {}
    return {"type": "function", "function": {"name": name, **described, "parameters": schema}}


def _parameters(name: str, tool: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function, their annotations evaluated."""
    try:
        parameters = list(inspect.signature(tool, eval_str=True).parameters.values())
    except Exception as error:
        raise _refusal(name, _unresolved(tool), error) from error
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise _refusal(name, parameter, "a tool cannot take *args or **kwargs")
        if parameter.annotation is parameter.empty:
            raise InvalidInput(
                f"tool {name!r}: parameter {parameter.name!r} has no type annotation"
            )
    return parameters


def _unresolved(tool: Callable[..., Any]) -> inspect.Parameter | None:
    """Return the first parameter whose annotation cannot be evaluated, if it can be told."""
    try:
        names = inspect.unwrap(tool).__globals__
        parameters = list(inspect.signature(tool).parameters.values())
    except Exception:  # not a function written in Python
        return None
    for parameter in parameters:
        try:
            if isinstance(parameter.annotation, str):
                eval(parameter.annotation, names)
        except Exception:
            return parameter
    return None


def _json_schema(name: str, parameters: Sequence[inspect.Parameter]) -> dict[str, Any]:
    try:
        from pydantic import ConfigDict, create_model
    except ImportError as error:
        raise MissingExtra(
            "tools given as functions need the 'prompts' extra: pip install 'muntin[prompts]'"
        ) from error
    # Fields of other names, because a model has no room for `schema`, `model_config` or `_x`.
    names = {f"parameter{index}": each.name for index, each in enumerate(parameters)}
    fields: dict[str, Any] = {
        field: (each.annotation, ... if each.default is each.empty else each.default)
        for field, each in zip(names, parameters, strict=True)
    }
    made = create_model(name, __config__=ConfigDict(alias_generator=names.__getitem__), **fields)
    schema: dict[str, Any] = made.model_json_schema()
    schema.pop("title", None)
    return schema


def _fits(name: str, parameter: inspect.Parameter) -> bool:
    try:
        _json_schema(name, [parameter])
    except Exception:
        return False
    return True


def _refusal(name: str, parameter: inspect.Parameter | None, reason: object) -> InvalidInput:
    where = f"parameter {parameter.name!r}" if parameter else "its signature cannot be read"
    first = str(reason).partition("\n")[0]
    return InvalidInput(f"tool {name!r}: {where}: {first}")
