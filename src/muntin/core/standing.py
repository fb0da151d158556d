"""Items with standing effect: they hold until the end of the conversation, or until the next one.

Tools that were added or found (OpenAI's `additional_tools` and `tool_search_output`), and updates
of the configuration. One that left as an old message would take its effect along.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from muntin.core.message import Message
from muntin.core.parts import Other

TYPES = frozenset({"additional_tools", "configuration_update", "tool_search_output"})
# What an update of the configuration may set.
_SETTINGS = ("reasoning", "text")


def standing_places(messages: Sequence[Any]) -> tuple[int, ...]:
    """Return the places of the messages whose effect holds, the oldest first.

    Found tools count if they are called later, an update unless later ones set all that it sets. A
    list that is read when it is needed says so itself, by a method of this name.
    """
    finder = getattr(messages, "standing_places", None)
    if finder is not None:
        places: tuple[int, ...] = finder()
        return places
    if not isinstance(messages, list | tuple):
        return ()
    # Most lists have texts alone.
    kinds = {message.content.__class__ for message in messages if message.__class__ is Message}
    if tuple not in kinds:
        return ()
    held: list[int] = []
    called: set[str] = set()
    updated: set[str] = set()
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if message.__class__ is not Message:
            continue
        if message.tool_calls:
            called.update([call.name for call in message.tool_calls])
        if message.content.__class__ is not tuple:
            continue  # most messages
        parts = [part.data for part in message.content if part.__class__ is Other]
        effects = [_holds(data, called, updated) for data in reversed(parts)]
        if True in effects:
            held.append(place)
    return tuple(reversed(held))


def _holds(item: Mapping[str, Any], called: set[str], updated: set[str]) -> bool:
    """Say whether an item still holds; note what an update sets."""
    kind = item["type"]
    if kind == "configuration_update":
        new = {key for key in _SETTINGS if item.get(key)} - updated
        updated |= new
        return bool(new)
    if kind == "tool_search_output":
        return not called.isdisjoint(_names(item.get("tools")))
    return bool(kind == "additional_tools")


def _names(tools: Any) -> set[str]:
    """Return the names of tools, those inside of namespaces included."""
    names: set[str] = set()
    for tool in tools if isinstance(tools, list | tuple) else ():
        if isinstance(tool, Mapping):
            function = tool.get("function")
            held = function if isinstance(function, Mapping) else tool
            names.add(str(held.get("name")))
            names |= _names(tool.get("tools"))
    return names
