"""The schemas of tools: checked, copied and written once, even if they are counted often."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, cast

from muntin.core.checks import compact_json, copy_json, shown
from muntin.errors import InvalidType

# The providers' own names for breakpoints; breakpoints are no part of the cached text.
USER_BREAKPOINTS = ("cache_control", "prompt_cache_breakpoint")


class Schemas(tuple[Mapping[str, Any], ...]):
    """Schemas that no caller can change: the schemas that are sent are the schemas counted."""

    @classmethod
    def of(cls, tools: Iterable[Mapping[str, Any]]) -> Schemas:
        """Check schemas, and copy them."""
        if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
            raise InvalidType(f"tools must be a list of schemas, not {shown(tools)}")
        checked = []
        for number, schema in enumerate(tools):
            what, name = f"tools[{number}]", _name(schema) if isinstance(schema, Mapping) else ""
            if not isinstance(schema, Mapping):
                raise InvalidType(f"{what} must be a mapping (a schema), not {shown(schema)}")
            checked.append(copy_json(schema, f"{what} {name!r}" if name else what))
        return cls(checked)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Each schema as compact JSON."""
        return tuple([compact_json(dict(schema)) for schema in self])

    @cached_property
    def loaded(self) -> tuple[str, ...]:
        """The schemas that a model reads from the beginning, as a set: in the order of their texts,
        without breakpoints."""
        loaded = [tool for tool in self if not tool.get("defer_loading")]
        plain = [{k: v for k, v in tool.items() if k not in USER_BREAKPOINTS} for tool in loaded]
        return tuple(sorted(map(compact_json, plain)))

    @cached_property
    def by_name(self) -> Schemas:
        """The schemas in the order of their names: they stand before everything that is cached.
        If the user has marked one of them, the given order stays."""
        if not self or any(tool.get(key) for tool in self for key in USER_BREAKPOINTS):
            return self
        return Schemas(sorted(self, key=_name))

    @cached_property
    def in_prompt(self) -> Schemas:
        """The schemas that the model reads: a deferred tool is read where it is loaded."""
        if not any(map(is_deferred, self)):
            return self
        return Schemas(tool for tool in self if not is_deferred(tool))

    def copied(self) -> tuple[Mapping[str, Any], ...]:
        """Return copies for callers."""
        if self._written is None:
            return cast("tuple[Mapping[str, Any], ...]", copy_json(tuple(self), "tools"))
        return cast("tuple[Mapping[str, Any], ...]", marshal.loads(self._written))

    @cached_property
    def _written(self) -> bytes | None:
        """The schemas as bytes, from which a copy is made in a tenth of the time; None if a value
        only looks like JSON."""
        try:
            return marshal.dumps(copy_json(tuple(self), "tools"))
        except ValueError:
            return None


NO_SCHEMAS = Schemas()


def is_deferred(tool: Mapping[str, Any]) -> bool:
    """Say whether the model does not see a tool, in Anthropic's form, before a result loads it."""
    return bool(tool.get("defer_loading")) and "input_schema" in tool


def _name(tool: Mapping[str, Any]) -> str:
    function = tool.get("function")
    name = function.get("name") if isinstance(function, Mapping) else None
    return str(tool.get("name") or name or "")
