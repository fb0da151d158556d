"""What the schemas of tools cost, by the formula that OpenAI published.

https://cookbook.openai.com/examples/how_to_count_tokens_with_tiktoken
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from muntin.core.accepted import OPENAI

# Tokens for the properties of a function, for each property, each enum, each value, the list.
_PROPERTIES, _PROPERTY, _ENUM, _VALUE, _END = 3, 3, -3, 3, 12


def name_forms(name: str) -> tuple[str, ...]:
    """Return the name of a tool, and the names under which it may be sent."""
    if OPENAI.fitted(name) == name:
        return (name,)
    return (name, OPENAI.fitted(name), OPENAI.marked(name))


def tools_tokens(
    tools: Iterable[Mapping[str, Any]], count: Callable[[str], int], overhead: int
) -> int:
    """Return what the functions among these tools cost, each with `overhead` beside its texts."""
    counts = [_function(tool, count) for tool in tools]
    functions = [overhead + tokens for tokens in counts if tokens is not None]
    return sum(functions) + _END if functions else 0


def _function(tool: Mapping[str, Any], count: Callable[[str], int]) -> int | None:
    function = tool.get("function")
    held = function if isinstance(function, Mapping) else tool
    if not isinstance(held.get("name"), str):
        return None
    about = str(held.get("description") or "").removesuffix(".")
    lines = [f"{name}:{about}" for name in name_forms(held["name"])]
    tokens = max(map(count, lines))
    schema = held.get("parameters", held.get("input_schema"))
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping) or not properties:
        return tokens
    return tokens + _PROPERTIES + sum(_property(*item, count) for item in properties.items())


def _property(name: str, schema: Any, count: Callable[[str], int]) -> int:
    fields = schema if isinstance(schema, Mapping) else {}
    about = str(fields.get("description") or "").removesuffix(".")
    tokens = _PROPERTY + count(f"{name}:{fields.get('type', '')}:{about}")
    values = fields.get("enum")
    if isinstance(values, list | tuple):
        tokens += _ENUM + sum(_VALUE + count(str(value)) for value in values)
    return tokens
