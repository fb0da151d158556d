"""Rendering: putting the messages that a plan keeps in order.

Owns joining and interleaving. It decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple

from muntin.core.message import Message
from muntin.core.planning.slot import Group, Slot
from muntin.core.planning.verdict import SlotPlan


class Rendered(NamedTuple):
    """Messages in window order, each with its slot; `origins` is that slot's index.

    Joined texts have no origin, and a slot that stands for all of theirs.
    """

    messages: list[Message]
    origins: list[int | None]
    slots: list[Slot]


def render(plans: Sequence[SlotPlan]) -> Rendered:
    """Put the kept messages together."""
    result = Rendered([], [], [])
    for messages, slot, origin in _runs(plans):
        result.messages.extend(messages)
        result.origins.extend([origin] * len(messages))
        result.slots.extend([slot] * len(messages))
    return result


def opens_with_user(plans: Sequence[SlotPlan]) -> bool:
    """Say whether the user's message is the first that is not system text."""
    roles = (message.role for messages, _, _ in _runs(plans) for message in messages)
    return next((role for role in roles if role != "system"), "user") == "user"


def _runs(plans: Sequence[SlotPlan]) -> list[tuple[list[Message], Slot, int | None]]:
    """Return messages of one slot, slot and origin; a group stands where its first slot stands."""
    runs: list[tuple[list[Message], Slot, int | None]] = []
    done: set[Group] = set()
    for plan in plans:
        group = plan.slot.group
        if group is None or not (group.interleave or group.join is not None):
            runs.append((plan.kept(), plan.slot, plan.slot.index))
        elif group not in done:
            done.add(group)
            members = [each for each in plans if each.slot.group == group]
            if group.join is not None:
                runs += _join(group, group.join, members)
            elif len(members) == 1:
                runs.append((plan.kept(), plan.slot, plan.slot.index))
            else:
                runs += [([message], slot, slot.index) for message, slot in _interleave(members)]
    return runs


def _join(
    group: Group, separator: str, members: Sequence[SlotPlan]
) -> Iterator[tuple[list[Message], Slot, None]]:
    """Yield the one message of joined texts, if any is left, under the name of the group."""
    kept = [message for each in members for message in each.kept()]
    text = separator.join(message.text for message in kept)
    if text:
        asked = any(each.slot.breakpoint for each in members)
        slot = replace(members[0].slot, name=group.name, messages=(), breakpoint=asked)
        yield [Message(kept[0].role, text)], slot, None


def _interleave(members: Sequence[SlotPlan]) -> list[tuple[Message, Slot]]:
    """Merge by `at`, keeping the order inside each slot and tool groups in one piece."""
    placed: list[tuple[float, int, Message, Slot]] = []
    for place, plan in enumerate(members):
        latest, end, fixed = -math.inf, -1, -math.inf
        dated: list[tuple[float, int, Message, Slot]] = []
        for index, message, last, slot in _in_slot_order(plan, members):
            if message.at is not None and slot.index == plan.slot.index:
                latest = max(latest, message.at)
            if index > end:
                end, fixed = last, latest
            dated.append((fixed, place, message, slot))
        first = dated[0][0] if dated else -math.inf
        dated[:0] = [(first, place, message, plan.slot) for message in plan.front]
        placed.extend(dated)
    placed.sort(key=itemgetter(0, 1))
    return [(message, slot) for _, _, message, slot in placed]


def _in_slot_order(
    plan: SlotPlan, members: Sequence[SlotPlan]
) -> list[tuple[int, Message, int, Slot]]:
    """Return (index, message, last index of its unit, its slot), in the slot's order.

    Results of a call of this slot that stand in others of `members` come right behind the call.
    """
    slots = {each.slot.index: each for each in members}
    found = []
    for unit, messages in plan.left():
        near = [key for key in unit.mates if key[0] in slots] if unit.mates else ()
        if near and not any(message.tool_calls for message in unit.messages):
            continue
        last = unit.indices[-1]
        for index, message in zip(unit.indices, messages, strict=True):
            found.append((index, message, last, plan.slot))
        for key in near:
            (result,) = (left for mate, left in slots[key[0]].left() if mate.key == key)
            found.append((last, result[0], last, slots[key[0]].slot))
    found.sort(key=itemgetter(0))
    return found
