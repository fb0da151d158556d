"""Groups across slots: calls and results that belong together, and texts that become one.

Owns which result answers which call when they stand in different slots. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from muntin.core.counting.counter import Counter
from muntin.core.message import Role, role_of
from muntin.core.planning.read import Key, Reading, Unit, convert
from muntin.core.planning.slot import Group
from muntin.errors import InvalidInput


def link(readings: Sequence[Reading], counter: Counter) -> list[Reading]:
    """Tie groups across slots, leave out results without a call, and count missing results.

    `readings` are in window order. A result belongs to the nearest call before it that has its id
    and no result yet: ids may repeat, as they do in real traffic. Inside an interleaved group of
    slots the order is found later, so any call of another slot of the group will do.
    """
    if not any(each.open or each.pending for each in readings):
        return list(readings)
    # The calls of each id that wait for a result: (place of the slot, first message of the unit).
    callers: _Callers = {}
    for place, each in enumerate(readings):
        for call_id, firsts in each.pending.items():
            callers.setdefault(call_id, []).extend((place, first) for first in firsts)
    answers: dict[Key, list[Unit]] = {}
    result = []
    for place, each in enumerate(readings):
        orphans = _orphans(place, readings, callers, answers)
        result.append(each._replace(left_out=(*each.left_out, *orphans)))
    families = [(caller, *(mate.key for mate in found)) for caller, found in answers.items()]
    mates = {
        key: tuple(other for other in family if other != key)
        for family in families
        for key in family
    }
    own: dict[int, list[Unit]] = {}
    for units in answers.values():
        for unit in units:
            own.setdefault(unit.slot, []).append(unit._replace(mates=mates[unit.key]))
    for place, each in enumerate(result):
        settled = [_settled(unit, answers.get(unit.key, ()), mates, counter) for unit in each.units]
        units = settled + own.get(each.slot.index, [])
        if len(units) > len(settled):
            units.sort(key=lambda unit: unit.indices[0])
        # The tokens of a summary in front of the units stay.
        tokens = each.tokens + sum([unit.tokens for unit in units])
        tokens -= sum([unit.tokens for unit in each.units])
        result[place] = each._replace(units=tuple(units), tokens=tokens)
    return result


_Callers: TypeAlias = dict[str, list[tuple[int, int]]]


def _orphans(
    place: int,
    readings: Sequence[Reading],
    callers: _Callers,
    answers: dict[Key, list[Unit]],
) -> Iterable[tuple[int, str, int]]:
    """Yield the results of a slot that answer no call; tie the others to their callers."""
    reading = readings[place]
    waiting = [(result, call_id) for call_id, found in reading.open.items() for result in found]
    for (index, message, tokens), call_id in sorted(waiting, key=lambda each: each[0][0]):
        nearest = (
            other
            for other in reversed(callers.get(call_id, ()))
            # A result that stands before a call in one slot does not answer it.
            if other[0] != place and may_follow(readings[other[0]], reading, other[0] < place)
        )
        caller = next(nearest, None)
        if caller is None:
            yield index, "orphaned", tokens
            continue
        callers[call_id].remove(caller)
        key = readings[caller[0]].slot.index, caller[1]
        unit = Unit(reading.slot.index, (index,), (message,), (tokens,), tokens, False)
        answers.setdefault(key, []).append(unit)


def _settled(
    unit: Unit, answers: Sequence[Unit], mates: dict[Key, tuple[Key, ...]], counter: Counter
) -> Unit:
    """Return a unit with its mates and the cost of the results that are still missing."""
    if not unit.missing:
        return unit
    answered = {answer.messages[0].tool_call_id for answer in answers}
    missing = tuple(call_id for call_id in unit.missing if call_id not in answered)
    added = len(missing) * counter.missing_result() if missing else 0
    caller = next(n for n, message in enumerate(unit.messages) if message.tool_calls)
    costs = list(unit.costs)
    costs[caller] += added
    return unit._replace(
        missing=missing,
        mates=mates.get(unit.key, ()),
        costs=tuple(costs),
        tokens=unit.tokens + added,
    )


def may_follow(caller: Reading, follower: Reading, before: bool) -> bool:
    """Say whether a result in `follower` may answer a call in `caller`, `before` it or behind."""
    group = caller.slot.group
    return before or (group is not None and group.interleave and group == follower.slot.group)


def find(reading: Reading, called: set[str], answered: set[str], most: int) -> int | None:
    """Return the farthest unread message, of the nearest `most`, that makes one of the calls
    `called` or is a result of one of `answered`; roles are read, nothing is counted."""
    unread, slot = reading.unread, reading.slot
    items = slot.messages
    tail = unread.stop < len(items) or unread.start == 0  # the newest were read
    found = []
    for index in unread[-most:] if tail else unread[:most]:
        role = role_of(items[index])
        if role == "assistant" and called:
            calls = convert(items[index], slot, index).tool_calls
            if any(call.id in called for call in calls):
                found.append(index)
        elif role == "tool" and answered:
            found += [index] if convert(items[index], slot, index).tool_call_id in answered else []
    if not found:
        return None
    return min(found) if tail else max(found)


def join(readings: Sequence[Reading], counter: Counter) -> list[Reading]:
    """Check that joined texts share one role; parts of a joined text carry no overhead."""
    roles: dict[Group, Role] = {}
    result = list(readings)
    for place, each in enumerate(readings):
        group = each.slot.group
        if group is None or group.join is None or not each.units:
            continue
        (unit,) = each.units
        role = unit.messages[0].role
        if roles.setdefault(group, role) != role:
            raise InvalidInput(
                f"slot {each.slot.name!r} has role {role!r}, but the texts of group "
                f"{group.name!r} have role {roles[group]!r}; joined texts share one role"
            )
        tokens = unit.tokens - counter.overhead
        unit = Unit(unit.slot, unit.indices, unit.messages, (tokens,), tokens, unit.system)
        result[place] = Reading(each.slot, (unit,), tokens, 1, limit=each.limit, limits=each.limits)
    return result
