"""Rendering: the messages that stay, in the author's order.

Owns joining and interleaving. It decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple

from muntin.core.compaction import may_come_first, stands_first
from muntin.core.message import Message
from muntin.core.planning.compact import SHORT, STUB
from muntin.core.planning.draft import SlotPlan
from muntin.core.planning.slot import Group, Slot


class Rendered(NamedTuple):
    """Messages in window order, each with its slot; `origins` is that slot's index.

    Joined texts have no origin, and a slot that stands for all of theirs.
    """

    messages: list[Message]
    origins: list[int | None]
    slots: list[Slot]


def render(plans: Sequence[SlotPlan]) -> Rendered:
    """Put the messages together that stay."""
    result = Rendered([], [], [])
    for messages, slot, origin in _stretches(plans):
        result.messages.extend(messages)
        result.origins.extend([origin] * len(messages))
        result.slots.extend([slot] * len(messages))
    return _with_summary_first(plans, result)


def _with_summary_first(plans: Sequence[SlotPlan], result: Rendered) -> Rendered:
    """Put the provider's summary before all that is no system text: the model reads nothing that
    stands before it."""
    units = [form.unit for plan in plans for form in plan.view.forms if form.unit.begins]
    if not units or not stands_first(units[0].messages[0]):
        return result
    messages = result.messages
    begin = next(n for n, message in enumerate(messages) if message is units[0].messages[0])
    end = begin + 1
    while end < len(messages) and messages[end].role == "tool":
        end += 1
    system = [n for n in range(begin) if messages[n].role == "system"]
    rest = [n for n in range(begin) if messages[n].role != "system"]
    if not rest:
        return result
    order = [*system, *range(begin, end), *rest, *range(end, len(messages))]
    return Rendered(*[[column[n] for n in order] for column in result])


def opens_with_user(plans: Sequence[SlotPlan]) -> bool:
    """Say whether the first message that is not system text may come first: the user's, or a
    summary of the provider's."""
    messages = (message for messages, _, _ in _stretches(plans) for message in messages)
    first = next((message for message in messages if message.role != "system"), None)
    return first is None or may_come_first(first)


def find_last_lowered(plans: Sequence[SlotPlan]) -> list[Message]:
    """Return the last short and the last stubbed message of conversations that move: from there on
    the next move changes the window."""
    lowest: dict[int, Message] = {}
    for plan in plans:
        if not plan.slot.is_stepped:
            continue
        for form in plan.view.forms:
            level = {"short": SHORT, "stubbed": STUB}.get(form.status)
            if level is not None and form.unit.is_group:
                lowest[level] = form.messages[-1]
    return [lowest[level] for level in (SHORT, STUB) if level in lowest]


def _stretches(plans: Sequence[SlotPlan]) -> Iterator[tuple[list[Message], Slot, int | None]]:
    """Yield messages of one slot, slot and origin; a group stands where its first slot stands."""
    done: set[Group] = set()
    for plan in plans:
        group = plan.slot.place.group
        if group is None or not (group.interleave or group.join is not None):
            yield plan.messages(), plan.slot, plan.slot.index
        elif group not in done:
            done.add(group)
            members = [plan for plan in plans if plan.slot.place.group == group]
            if group.join is not None:
                yield from _join(group, group.join, members)
            elif len(members) == 1:
                yield plan.messages(), plan.slot, plan.slot.index
            else:
                for message, slot in _interleave(members):
                    yield [message], slot, slot.index


def _join(
    group: Group, separator: str, members: Sequence[SlotPlan]
) -> Iterator[tuple[list[Message], Slot, None]]:
    """Yield the one message of joined texts, if any is left, under the name of the group."""
    messages = [message for member in members for message in member.messages()]
    text = separator.join(message.text for message in messages)
    if text:
        places = [member.slot.place for member in members if member.view.forms]
        first = members[0].slot
        place = replace(
            first.place,
            breakpoint=any(place.breakpoint for place in places),
            changes=any(place.changes for place in places),
        )
        slot = replace(first, name=group.name, messages=(), place=place)
        yield [Message(messages[0].role, text)], slot, None


def _interleave(members: Sequence[SlotPlan]) -> list[tuple[Message, Slot]]:
    """Merge by `at`, keeping the order inside each slot and tool groups in one piece."""
    slots = {id(member.slot) for member in members}
    placed: list[tuple[float, int, Message, Slot]] = []
    for place, member in enumerate(members):
        latest, end, fixed = -math.inf, -1, -math.inf
        dated: list[tuple[float, int, Message, Slot]] = []
        for index, message, last, slot in sorted(_in_slot(member, slots), key=itemgetter(0)):
            if message.at is not None and slot is member.slot:
                latest = max(latest, message.at)
            if index > end:
                end, fixed = last, latest
            dated.append((fixed, place, message, slot))
        first = dated[0][0] if dated else -math.inf
        view = member.view
        added = [*view.front, *view.notes]
        dated[:0] = [(first, place, message, member.slot) for message in added]
        placed.extend(dated)
    placed.sort(key=itemgetter(0, 1))
    return [(message, slot) for _, _, message, slot in placed]


def _in_slot(member: SlotPlan, slots: set[int]) -> Iterator[tuple[int, Message, int, Slot]]:
    """Yield (index, message, last index of its unit, its slot). Results of a call of this slot that
    stand in other slots of the group come right behind the call."""
    for form in member.view.forms:
        unit = form.unit
        last = unit.indices[-1]
        for index, message in zip(unit.indices, form.messages, strict=False):
            yield index, message, last, member.slot
        behind = zip(unit.elsewhere, form.messages[len(unit.indices) :], strict=True)
        for (slot, _), message in behind:
            if id(slot) in slots:
                yield last, message, last, slot
