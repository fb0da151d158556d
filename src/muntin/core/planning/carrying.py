"""Carrying: what a window says of tools beside the declared ones, and how it stays the same.

The index of tools and the block of carried tools are slots that Muntin adds. Between moves both
keep their bytes. At a move the index is written anew, and tools that were called and whose result
leaves are carried: a call of `find_tools` and its result stand in front of the history.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from muntin.core.message import Message
from muntin.core.parts import ToolCall
from muntin.core.planning.compact import CUT
from muntin.core.planning.levels import NO_LEVELS
from muntin.core.planning.memory import is_conversation
from muntin.core.planning.plan import Declaration, Plan
from muntin.core.planning.planner import plan_window
from muntin.core.planning.slot import Place, Slot
from muntin.core.tool_marks import (
    CARRIED_CALL,
    FIND,
    FOUND,
    TOOL_INDEX,
    TOOLS_CARRIED,
    found_names,
    found_tools,
)
from muntin.core.toolboxes.finding import called_name, declaration_of
from muntin.core.toolboxes.offer import ToolOffer

# The slots that `plan_with_tools` adds.
ADDED = (TOOL_INDEX, TOOLS_CARRIED)
_ROUNDS = 4
# The name of a toolbox at the beginning of a line of the index.
_BOX = re.compile(r"(\S.*?)(?::| \(\d+)")


def plan_with_tools(declared: Declaration) -> Plan:
    """Decide what goes into a window, with the index of its tools and the carried ones."""
    offer = declared.tools
    if not isinstance(offer, ToolOffer) or not offer.is_search:
        return plan_window(declared)
    before = declared.before
    carried = () if before is None else before.carried
    index = None if before is None else _index_before(before.tool_index, offer)
    for _ in range(_ROUNDS):
        plan = plan_window(replace(declared, slots=_with_added(declared, offer, index, carried)))
        if not _has_moved(plan, carried):
            break
        wanted = _carried_after(plan, offer, carried)
        if (index, carried) == (None, wanted):
            break
        index, carried = None, wanted
    return plan


def _index_before(before: str, offer: ToolOffer) -> str | None:
    """Return the index of the window before, if it names the toolboxes of this one."""
    return before if before and _boxes_in(before) == _boxes_in(offer.index_text) else None


def _boxes_in(index: str) -> set[str]:
    lines = index.splitlines()[1:]
    return {match[1] for line in lines if (match := _BOX.match(line)) is not None}


def _with_added(
    declared: Declaration, offer: ToolOffer, index: str | None, carried: Sequence[str]
) -> tuple[Slot, ...]:
    """Return the slots with the index behind the system text, and the carried tools in front of the
    history."""
    slots = list(declared.slots)
    if carried:
        at = _history_place(slots)
        place = slots[at].place if at < len(slots) else Place()
        place = Place(place.position, place.tier, lasting=True)
        block = Slot(TOOLS_CARRIED, at, _block(carried), required=True, place=place)
        slots.insert(at, block)
        slots = [replace(s, index=n) if s.index != n else s for n, s in enumerate(slots)]
    text = offer.index_text if index is None else index
    if text:
        pinned = Place(tier="pinned", lasting=True)
        messages = (Message("system", text),)
        slot = Slot(TOOL_INDEX, len(slots), messages, "text", required=True, place=pinned)
        slots.append(replace(slot, detail=offer.words))
    return tuple(slots)


def _history_place(slots: Sequence[Slot]) -> int:
    """Return the place of the history: a conversation that steps, or is trimmed exactly."""
    stepped = (n for n, slot in enumerate(slots) if slot.is_stepped and slot.kind == "list")
    exact = (n for n, slot in enumerate(slots) if _is_exact_history(slot))
    turn = (n for n, slot in enumerate(slots) if slot.kind in ("input", "run"))
    return next(stepped, next(exact, next(turn, len(slots))))


def _is_exact_history(slot: Slot) -> bool:
    speaks = slot.kind == "list" and slot.may_step and bool(slot.messages)
    return speaks and is_conversation(slot.messages)


def _block(carried: Sequence[str]) -> tuple[Message, Message]:
    """Return the carried tools as a search and its result."""
    found: list[dict[str, Any]] = [json.loads(text) for text in carried]
    names = "\n".join(tool["name"] for tool in found)
    call = ToolCall(CARRIED_CALL, FIND, json.dumps({"query": names}, ensure_ascii=False))
    lines = [json.dumps(declaration_of(tool), ensure_ascii=False) for tool in found]
    text = "\n".join(["Loaded before:", *lines])
    result = Message("tool", text, tool_call_id=call.id, extra={FOUND: found})
    return Message("assistant", tool_calls=(call,)), result


def _has_moved(plan: Plan, carried: Sequence[str]) -> bool:
    """Say whether the history of a window does not go on where the one before ended."""
    talks = [part for part in plan.slots if part.conversation is not None]
    if not any(part.slot.is_stepped for part in talks):
        return True  # it is trimmed exactly, and remembers nothing
    if any(part.has_moved for part in talks):
        return True
    names = {json.loads(text)["name"] for text in carried}
    return bool(names & set(_found_whole(plan)))  # a turn that had less room is over


def _found_whole(plan: Plan) -> list[str]:
    """Return the names of the tools that results of the history load."""
    parts = [part for part in plan.slots if part.slot.name not in ADDED]
    return found_names(message for part in parts for message in part.messages())


def _carried_after(plan: Plan, offer: ToolOffer, carried: Sequence[str]) -> tuple[str, ...]:
    """Return the tools that are carried from a move on: those that were loaded and called in the
    window before, and that no result loads any more; the last called first, sorted by name."""
    declarations: dict[str, str] = {json.loads(text)["name"]: text for text in carried}
    called: list[str] = []
    for loaded, names in _shown_before(plan):
        declarations |= {str(t["name"]): json.dumps(t, ensure_ascii=False) for t in loaded}
        called += names
    whole = set(_found_whole(plan))
    left, kept = offer.limit // 2, {}
    for name in dict.fromkeys(reversed(called)):
        if name in declarations and name not in whole:
            size = offer.size_of(json.loads(declarations[name]))
            if size <= left:
                kept[name] = declarations[name]
                left -= size
    return tuple(kept[name] for name in sorted(kept))


def _shown_before(plan: Plan) -> Iterator[tuple[list[Mapping[str, Any]], list[str]]]:
    """Yield the tools that messages loaded and called which the window before showed whole, and
    those since: what was called before the last move is a line by now, or gone."""
    for part in plan.slots:
        if part.slot.name in ADDED:
            continue
        talk = part.conversation
        levels = NO_LEVELS if talk is None else talk.lasting.joined(talk.in_turn)
        for unit in part.reading.units:
            if levels.of(unit) > CUT:
                continue
            loaded = [tool for message in unit.messages for tool in found_tools(message)]
            calls = [call for message in unit.messages for call in message.tool_calls]
            yield loaded, [called_name(call) for call in calls]
