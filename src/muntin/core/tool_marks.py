"""The marks by which messages tell of toolboxes: tools that a result loads, calls of such tools.

They are fields of `extra`, stored with their messages and never sent as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from muntin.core.message import Message
from muntin.core.parts import ToolCall

# The tool that loads tools, and the tool that runs a loaded one where none can be declared later.
FIND, CALL = "find_tools", "call_tool"
# The fields: declarations in a result that loads them; in a call, the toolbox or what was loaded.
FOUND, CALLED = "found_tools", "toolbox"
# The slot that says which tools can be loaded.
TOOL_INDEX = "(tool index)"
# The slot of the tools that stay loaded when their results have left, and the id of its call.
TOOLS_CARRIED = "(tools loaded)"
CARRIED_CALL = "carried"
MARKS = (FOUND, CALLED)


class ToolSource:
    """A named list of tools: the kind of a `Toolbox`, whose tools this layer does not know."""

    __slots__ = ()


def found_tools(message: Message) -> list[Mapping[str, Any]]:
    """Return the declarations that a result loads."""
    extra = message.extra
    tools = extra.get(FOUND) if extra and message.role == "tool" else None
    if not isinstance(tools, list | tuple):
        return []
    return [tool for tool in tools if isinstance(tool, Mapping) and tool.get("name")]


def found_names(messages: Iterable[Message]) -> list[str]:
    """Return the names of the tools that messages load, the first found first."""
    names = (str(tool["name"]) for message in messages for tool in found_tools(message))
    return list(dict.fromkeys(names))


def is_boxed(call: ToolCall) -> bool:
    """Say whether a call is one of a tool of a toolbox, which may be sent by `call_tool`."""
    extra = call.extra
    return bool(extra and call.name != FIND and isinstance(extra.get(CALLED), Mapping))
