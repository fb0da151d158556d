"""Tools: schemas as the providers want them, and the names they go by."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
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
    try:
        from pydantic import create_model
    except ImportError as error:
        raise MissingExtra(
            "tools given as functions need the 'prompts' extra: pip install 'muntin[prompts]'"
        ) from error
    name = tool_name(tool)
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(tool, eval_str=True).parameters.values():
        if parameter.annotation is parameter.empty:
            raise InvalidInput(
                f"tool {name!r}: parameter {parameter.name!r} has no type annotation"
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (parameter.annotation, default)
    schema = create_model(name, **fields).model_json_schema()
    schema.pop("title", None)
    described = {"description": inspect.cleandoc(tool.__doc__)} if tool.__doc__ else {}
    return {"type": "function", "function": {"name": name, **described, "parameters": schema}}
