"""Checks the arguments of a call against the JSON Schema of a tool that is no Python function.

It reads what models get wrong: missing, unknown and mistyped values, and values of an enum. What it
does not know it lets pass: the tool's own server checks again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from muntin.core.checks import shown

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_DEEPEST = 32


def mistakes(schema: Mapping[str, Any], value: Any) -> list[str]:
    """Return what is wrong with a value, each mistake with its path; nothing if it fits."""
    return list(_mistakes(schema, value, "", schema, 0))


def _mistakes(
    schema: Any, value: Any, path: str, root: Mapping[str, Any], depth: int
) -> Iterator[str]:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return
    if "$ref" in schema:
        yield from _mistakes(_resolved(schema["$ref"], root), value, path, root, depth + 1)
        return
    where = path or "arguments"
    kinds = schema.get("type")
    names = [kinds] if isinstance(kinds, str) else list(kinds or ())
    is_known = bool(names) and all(name in _TYPES for name in names)
    if is_known and not any(_is_a(value, name) for name in names):
        yield f"{where}: must be {' or '.join(names)}, not {shown(value)}"
        return
    if isinstance(schema.get("enum"), list | tuple) and value not in schema["enum"]:
        yield f"{where}: must be one of {', '.join(map(shown, schema['enum']))}"
    if "const" in schema and value != schema["const"]:
        yield f"{where}: must be {shown(schema['const'])}"
    for key in ("anyOf", "oneOf"):
        options = schema.get(key)
        if isinstance(options, list | tuple) and options:
            found = [list(_mistakes(o, value, path, root, depth + 1)) for o in options]
            if all(found):
                yield from min(found, key=len)
    for part in schema.get("allOf") or ():
        yield from _mistakes(part, value, path, root, depth + 1)
    if isinstance(value, dict):
        yield from _object_mistakes(schema, value, path, root, depth)
    if isinstance(value, list):
        for number, item in enumerate(value):
            inner = schema.get("items")
            yield from _mistakes(inner, item, f"{path}[{number}]", root, depth + 1)


def _object_mistakes(
    schema: Mapping[str, Any], value: dict[str, Any], path: str, root: Mapping[str, Any], depth: int
) -> Iterator[str]:
    prefix = f"{path}." if path else ""
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    for name in schema.get("required") or ():
        if name not in value:
            yield f"{prefix}{name}: is missing"
    for name, inner in value.items():
        if name in properties:
            yield from _mistakes(properties[name], inner, f"{prefix}{name}", root, depth + 1)
        elif schema.get("additionalProperties") is False and not schema.get("patternProperties"):
            yield f"{prefix}{name}: is no parameter"


def _is_a(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[name])


def _resolved(reference: Any, root: Mapping[str, Any]) -> Any:
    """Return the definition that a reference inside of a schema names."""
    found: Any = root
    for step in str(reference).removeprefix("#/").split("/") if str(reference) != "#" else ():
        found = found.get(step) if isinstance(found, Mapping) else None
    return found
