"""Writing: the items of a list that stay, as they were; new ones only where a text is another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

from muntin.fitting.pieces import Placed


def written(items: Sequence[Any], placed: Sequence[Placed]) -> list[Any]:
    """Return the items that are placed; each stays the object it was if nothing of it changed."""
    found: list[Any] = []
    for each in placed:
        if each.ref is None:
            found.append({"role": each.message.role, **_added(each)})
            continue
        number, _ = each.ref
        item = items[number]
        if found and found[-1] is item:
            continue
        found.append(item if each.is_whole else _changed(item, each))
    return found


def _added(placed: Placed) -> dict[str, Any]:
    message = placed.message
    told = {"tool_call_id": message.tool_call_id} if message.tool_call_id else {}
    return {"content": message.text, **told}


def _changed(item: Any, placed: Placed) -> Any:
    if not isinstance(item, Mapping):
        if hasattr(item, "model_copy"):
            return item.model_copy(update={"content": placed.text})
        return copy(item)
    data = dict(item)
    if placed.text is not None:
        data["content"] = placed.text
    return data
