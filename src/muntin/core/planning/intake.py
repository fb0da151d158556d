"""Intake: how far back every slot of a window is read, and where its histories begin.

Owns the order of reading: slots that give last are read first. A slot that gives before them can
have at most the room that they leave (or its floor), so no more of it need be read.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from muntin.core.counting.counter import Counter
from muntin.core.message import role_of
from muntin.core.planning.groups import find, join, link, may_follow
from muntin.core.planning.ladder import rungs_of
from muntin.core.planning.limits import NO_LIMITS, Limits, limits
from muntin.core.planning.past import Past
from muntin.core.planning.read import LOOK_BACK, Reading, read
from muntin.core.planning.room import high_levels, room_for
from muntin.core.planning.shapes import NO_LEVELS, Forms, Levels, Shape
from muntin.core.planning.slot import INPUT_LEAST, Slot
from muntin.core.planning.step import Ground, SteppedSlot, advance


class Intake(NamedTuple):
    """The readings of all slots, in window order.

    `goal` is what the window is to fit, `room` what ceilings are shares of. `calm` says that no
    slot has a priority: then system messages are protected.
    """

    readings: tuple[Reading, ...]
    steps: Mapping[int, SteppedSlot]
    ground: Ground
    counter: Counter
    room: int
    goal: int
    calm: bool


def read_all(
    slots: Sequence[Slot],
    steps: Mapping[int, SteppedSlot],
    ground: Ground,
    counter: Counter,
    room: int,
    goal: int,
    gone: Collection[int] = (),
) -> Intake:
    """Read the slots, in window order, as far as anything of them could fit.

    `gone` are slots that have no place in the window: other slots do not depend on them.
    """
    heard = [slot for slot in slots if slot.messages and slot.index not in gone]
    calm = all(slot.priority == 0 for slot in heard)
    found = _read_others(slots, steps, counter, room, goal, calm)
    moved, under = steps, ground
    if steps:
        others = [each for each in found.values() if each.slot.index not in gone]
        moved, under = _read_histories(slots, found, others, steps, ground, counter, room)
    readings = _read_on([found[place] for place in range(len(slots))], counter)
    readings = join(link(readings, counter), counter)
    blank = {each.slot.index for each in readings if not each.units and not each.beyond}
    if not calm and all(slot.priority == 0 for slot in heard if slot.index not in blank):
        # Slots that turned out to hold nothing do not count either.
        return read_all(slots, steps, ground, counter, room, goal, {*gone, *blank})
    return Intake(tuple(readings), moved, under, counter, room, goal, calm)


def _read_others(
    slots: Sequence[Slot],
    steps: Mapping[int, SteppedSlot],
    counter: Counter,
    room: int,
    goal: int,
    calm: bool,
) -> dict[int, Reading]:
    """Read all slots but the histories; the slots that go last are read first.

    `most` is the most tokens that the next slot can have, `least` the tokens that it can count on.
    """
    found: dict[int, Reading] = {}
    allowed = [_limits(slot, room) for slot in slots]
    order = sorted(range(len(slots)), key=lambda n: (*_safety(slots[n], steps, calm), n))
    places = [place for place in reversed(order) if slots[place].index not in steps]
    most = goal
    # A history takes its room before slots that are gone next turn, and has not been read yet.
    least = 0 if steps else goal - sum([allowed[place].floor for place in places])
    # How many of the slots still to be read may hold an unknown amount that nothing may drop.
    unknown = sum([_may_hold(slots[place], calm) for place in places])
    for place in places:
        slot, limits = slots[place], allowed[place]
        limit = _limit(slot, max(0, most, limits.floor), limits.cap)
        shape = shape_of(slot, counter, room)
        found[place] = each = read(slot, limit, counter, limits=limits, shape=shape)
        unknown -= _may_hold(slot, calm)
        unknown += slot.required and bool(each.open or each.pending)
        least += 0 if steps else limits.floor
        if place != places[-1]:  # after the last slot, no slot needs them
            most -= _certain(each, 0 if unknown else least)
            # A call without a result gets one when it is sent, unless another slot has the result.
            calls = sum([len(waiting) for waiting in each.pending.values()])
            least -= each.tokens + (calls * counter.missing_result() if calls else 0)
    return found


def _may_hold(slot: Slot, calm: bool) -> bool:
    """Say whether a list may hold what nothing may drop: system texts, or the newest calls."""
    return slot.run or slot.asks or (calm and not slot.made)


def _safety(
    slot: Slot, steps: Mapping[int, SteppedSlot], calm: bool
) -> tuple[bool, bool, bool, int]:
    """How late a slot goes, as far as that is known before it is read."""
    protected = calm and len(slot.messages) == 1 and role_of(slot.messages[0]) == "system"
    stays = not steps or slot.lasting
    return slot.required or protected, slot.is_input, stays, slot.priority


def _certain(each: Reading, least: int) -> int:
    """Return how many tokens of a slot are sure to stay if it is left at least `least` tokens."""
    slot, cap = each.slot, each.limits.fallback_cap
    if slot.group is not None or each.pending or each.open or slot.ladder is not None:
        return 0
    if slot.required and cap is None:
        return each.tokens
    if slot.is_input:
        sure = INPUT_LEAST if slot.priority else max(INPUT_LEAST, least)
        return min(each.tokens, sure) if cap is None else 0
    room = least if cap is None else min(least, cap)
    if each.tokens <= room and not each.beyond:
        return each.tokens
    if slot.trim_behavior != "message" or slot.marker is not None:
        return 0
    kept = 0
    for unit in sorted(each.units, key=lambda unit: (not unit.system, -unit.indices[0])):
        if kept + unit.tokens > room:
            break
        kept += unit.tokens
    return kept


def _limits(slot: Slot, room: int) -> Limits:
    if slot.max_ratio == 1 and slot.max_tokens is None and not slot.min_ratio + slot.min_tokens:
        return NO_LIMITS
    return limits(
        room,
        max_ratio=slot.max_ratio,
        min_ratio=slot.min_ratio,
        min_tokens=slot.min_tokens,
        max_tokens=slot.max_tokens,
    )


def _limit(slot: Slot, most: int, cap: int | None) -> int:
    """How many tokens of a slot need be read: more cannot stay."""
    if slot.is_input or slot.required:
        return sys.maxsize
    if cap is None:
        return most
    # A slot that is dropped whole is read up to its ceiling, to know whether it is larger.
    return cap if slot.trim_behavior == "slot" else min(most, cap)


def shape_of(slot: Slot, counter: Counter, room: int, levels: Levels = NO_LEVELS) -> Shape | None:
    """Return how the groups of a slot are shown, None if they are shown whole."""
    results = slot.results
    if slot.made or (results is None and slot.ladder is None):
        return None
    forms = Forms(counter, slot.recovery)
    if results is None:
        return Shape(forms, ladder=slot.ladder, levels=levels)
    return Shape(forms, results.ceiling(room), results.keep, slot.ladder, levels)


def _read_histories(
    slots: Sequence[Slot],
    found: dict[int, Reading],
    others: Sequence[Reading],
    steps: Mapping[int, SteppedSlot],
    ground: Ground,
    counter: Counter,
    room: int,
) -> tuple[dict[int, SteppedSlot], Ground]:
    """Read the pasts from their frontiers on; a past that passes its high level steps."""
    places = {slot.index: place for place, slot in enumerate(slots)}
    pasts = [step.members for index, step in steps.items() if step.members[0] == index]
    inside = {index for members in pasts for index in members}
    share = room_for([each for each in others if each.slot.index not in inside], room)
    ground = ground.under(share.stable)
    caps = [_limits(slots[places[members[0]]], room).cap for members in pasts]
    moved: dict[int, SteppedSlot] = {}
    for members, high in zip(pasts, high_levels(caps, share.high), strict=True):
        own = [slots[places[index]] for index in members]
        step = steps[members[0]].below(high)
        past, fits = _read_past(own, found, places, steps, step, counter, room)
        if not fits:
            offsets = Past([slot.messages for slot in own]).offsets[:-1]
            step = _within_sight(step, past, offsets)
            rungs = rungs_of(past, offsets)
            tokens = sum([each.tokens for each in past])
            step = advance(step, own[0].ladder, rungs, tokens, high, ground)
            past, _ = _read_past(own, found, places, steps, step, counter, room, again=True)
        for each in past:
            index = each.slot.index
            if index in steps:
                found[places[index]] = each
                moved[index] = steps[index].like(step)
    return moved, ground


def _read_past(
    members: Sequence[Slot],
    found: Mapping[int, Reading],
    places: Mapping[int, int],
    steps: Mapping[int, SteppedSlot],
    step: SteppedSlot,
    counter: Counter,
    room: int,
    *,
    again: bool = False,
) -> tuple[list[Reading], bool]:
    """Read the slots of a past, the newest first; say whether it is within its high level."""
    readings: list[Reading] = []
    left, fits = step.high, True
    for slot in reversed(members):
        if slot.index not in steps:
            each = found[places[slot.index]]
        else:
            offset = steps[slot.index].offset
            levels = step.levels.moved(-offset)
            # The ladder frees room: each slot is read as if the others had gone down.
            most = step.high if slot.ladder is not None else max(0, left)
            each = read(
                slot,
                sys.maxsize if again else most,
                counter,
                start=levels.gone,
                limits=_limits(slot, room),
                shape=shape_of(slot, counter, room, levels),
                asked=range(step.asked.start - offset, step.asked.stop - offset),
            )
            fits = fits and each.unread.stop <= levels.gone
            if slot is members[0]:
                each = each._replace(tokens=each.tokens + step.told_tokens)
        left -= each.tokens
        readings.append(each)
    return readings[::-1], fits and left >= 0


def _within_sight(
    step: SteppedSlot, past: Sequence[Reading], offsets: Sequence[int]
) -> SteppedSlot:
    """Return a past on a ladder without the messages that were not read: they are so old that not
    even their lowest forms fit."""
    if past[0].slot.ladder is None:
        return step
    stops = [offset + each.unread.stop for each, offset in zip(past, offsets, strict=True)]
    gone = max((stop for stop, each in zip(stops, past, strict=True) if each.unread), default=0)
    return replace(step, levels=replace(step.levels, gone=max(step.levels.gone, gone)))


def _read_on(readings: list[Reading], counter: Counter) -> list[Reading]:
    """Read further where tool groups across slots may be torn, or where dropping one frees room."""
    while any(each.beyond for each in readings):
        loose = [(place, each) for place, each in enumerate(readings) if each.open or each.pending]
        if not loose:
            break
        waiting = [result for _, each in loose for found in each.open.values() for result in found]
        calling = [unit for _, each in loose for unit in each.units for _ in unit.missing]
        freed = sum(result[2] for result in waiting) + sum(unit.tokens for unit in calling)
        unread = [each.unread for each in readings]
        for place, each in enumerate(readings):
            others = [(at, other) for at, other in loose if at != place]
            if each.beyond and others and each.start is None:
                readings[place] = _read_further(place, each, others, freed, counter)
        if unread == [each.unread for each in readings]:
            break
    return readings


def _read_further(
    place: int, each: Reading, others: Sequence[tuple[int, Reading]], freed: int, counter: Counter
) -> Reading:
    """Read a slot back to the calls and results that other slots miss, if it may hold them."""
    until = each.until
    met = False
    for at, other in others:
        called = set(other.open) if may_follow(each, other, place < at) else set()
        answered = set(other.pending) if may_follow(other, each, at < place) else set()
        met = met or bool(called & set(each.pending) or answered & set(each.open))
        called -= set(each.pending)
        answered -= set(each.open)
        if called or answered:
            most = len(each.unread) if other.slot.required else LOOK_BACK
            found = find(each, called, answered, most)
            if found is not None:
                farther = max if each.slot.keep == "head" else min
                until = found if until is None else farther(until, found)
    if until == each.until and not met:
        return each
    limit = each.limit + (freed if met else 0)
    again = read(each.slot, limit, counter, until=until, limits=each.limits, shape=each.shape)
    return again._replace(limit=each.limit)
