"""Schemas: the tools of a request as they are counted, in whatever form a framework gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from muntin.agent.tools import tool_schema
from muntin.core.checks import shown
from muntin.core.parts import as_plain
from muntin.core.tool_marks import ToolSource
from muntin.errors import InvalidInput, InvalidType, MuntinError
from muntin.wire.google import as_json


def schemas(tools: Sequence[Any]) -> tuple[tuple[Mapping[str, Any], ...], list[str]]:
    """Return the schemas of tools, and which of them could not be read, and why: such a tool
    counts as its text."""
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Sequence):
        raise InvalidType(f"tools must be a list of schemas, not {shown(tools)}")
    tool_schemas: list[Mapping[str, Any]] = []
    unread: list[str] = []
    for number, tool in enumerate(tools):
        if isinstance(tool, ToolSource):
            raise InvalidInput(
                f"tools[{number}] is a toolbox: whoever fits a list cannot answer its searches; "
                "compose with Slots(tools=[...]), or give the schemas of its tools"
            )
        try:
            plain = as_plain(tool)
            tool_schemas.append(as_json(plain) if isinstance(plain, Mapping) else tool_schema(tool))
        except (MuntinError, RecursionError, ValueError, TypeError) as error:
            unread.append(f"tools[{number}]: {error}")
            tool_schemas.append({"name": f"tool_{number}", "description": repr(tool)})
    return tuple(tool_schemas), unread
