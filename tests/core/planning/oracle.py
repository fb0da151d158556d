"""A slow, readable oracle for the planner: it lists everything a slot may look like, and picks.

It shares no code with the planner. Slots take room from the one that goes last to the one that
goes first. Each becomes the largest of all its legal states with which the window still fits, if
those before it stay as they are and those after it get only what they need. Where a slot or a group
that was dropped had cost others something, the same slots without it are judged instead. If a slot
that stood while this was seen is dropped in the end, all is judged without that slot first, unless
one of those that stayed would go then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf
from typing import Any

from muntin import Message
from tests.core.planning.oracle_slots import (
    LEAST,
    Fate,
    Given,
    Place,
    State,
    Verdict,
    all_states,
    amount,
    apply_caps,
    arrange,
    legal,
    may_die,
    places,
    set_limits,
    set_priorities,
    shortened,
)

# What a provider that wants a user first gets, where the window has none.
LEAD = len("(earlier messages omitted)")

# What each slot looks like, by its place in the window.
Taken = dict[int, State]


def within(small: State, large: State) -> bool:
    """Say whether `small` is what may be left of `large`."""
    return all(
        kept is None or (was is not None and kept <= was)
        for kept, was in zip(small, large, strict=True)
    )


def judge(
    slots: Sequence[Given], budget: int, *, overhead: int = 0, user_first: bool = False
) -> Verdict:
    """Return what the rules demand of a window of `budget` tokens.

    Where a user must come first, the largest goal is looked for at which the window does not need
    a lead, or leaves room for it.
    """
    goal = budget
    while True:
        verdict, size = _judge(slots, budget, goal, overhead)
        lead = overhead + LEAD if user_first and _needs_lead(verdict.messages) else 0
        if not lead or size > goal or size + lead <= budget:
            nothing = budget == 0 and any(place.messages for place in places(slots, overhead))
            return replace(verdict, over_budget=size + lead > budget or nothing)
        goal = size - 1  # until then nothing changes


def _needs_lead(messages: Sequence[Message]) -> bool:
    roles = [message.role for message in messages if message.role != "system"]
    return bool(roles) and roles[0] != "user"


@dataclass(frozen=True)
class Found:
    """A verdict, its size, the slots that stand, and those that stood when others were left out."""

    verdict: Verdict
    size: int
    standing: frozenset[int]
    stood: frozenset[int]
    left_out: frozenset[int]


def _judge(slots: Sequence[Given], budget: int, goal: int, overhead: int) -> tuple[Verdict, int]:
    """Return what the rules demand of a window that is to fit `goal`, and its size."""
    slots = arrange(slots)
    found = _attempt(slots, slots, budget, goal, overhead, frozenset(), frozenset())
    while vain := found.stood - found.standing - found.left_out:
        slots = [replace(s, content=None) if n in vain else s for n, s in enumerate(slots)]
        other = _attempt(slots, slots, budget, goal, overhead, frozenset(), frozenset())
        if not found.standing <= other.standing:
            break
        found = other
    return found.verdict, found.size


def _attempt(
    whole: Sequence[Given],
    slots: Sequence[Given],
    budget: int,
    goal: int,
    overhead: int,
    dead: frozenset[object],
    stood: frozenset[int],
) -> Found:
    """Judge slots, and again without what was dropped in vain.

    `slots` are those of `whole` that are not known to be dropped in vain.
    """
    window = places(slots, overhead, dead)
    set_priorities(window)
    set_limits(window, budget, fallback=False)
    apply_caps(window)
    numbers = range(len(window))
    pinned = {n: _pinned(window[n]) for n in numbers if window[n].joined}
    needed = _size(window, pinned, overhead) + sum(_need(window[n], window) for n in numbers)
    fallback = needed > goal
    if fallback:
        set_limits(window, budget, fallback=True)
        apply_caps(window)
    order = sorted((n for n in numbers), key=lambda n: (window[n].priority, n))
    taken, died = _take(window, order, goal, overhead)
    standing = frozenset(n for n in taken if any(kept is not None for kept in taken[n]))
    if died:
        return _attempt(whole, slots, budget, goal, overhead, dead | died, stood)
    gone = _gone(window, order, taken)
    for n in gone:  # a floor was kept for it
        capped_away = all(kept is None for kept in window[n].capped)
        if window[n].floor and not fallback and not capped_away:
            left = [replace(s, content=None) if s is window[n].given else s for s in slots]
            return _attempt(whole, left, budget, goal, overhead, dead, stood | standing)
    kept = [place for n, place in enumerate(window) if n not in gone]
    if priorities_in_vain(places(whole, overhead), kept):
        left = [replace(s, content=None) if s.priority else s for s in whole]
        return _attempt(left, left, budget, goal, overhead, frozenset(), frozenset())
    if _size(window, taken, overhead) > goal:  # rule 8: the input stays whole
        taken |= {n: window[n].capped for n in numbers if window[n].given.is_input}
    size = _size(window, taken, overhead)
    verdict = Verdict(texts(window, [taken[n] for n in numbers]), size > budget, fallback)
    left_out = frozenset(n for n, s in enumerate(slots) if s.content is None)
    return Found(verdict, size, standing, stood, left_out)


def _take(
    window: list[Place], order: list[int], goal: int, overhead: int
) -> tuple[Taken, frozenset[object]]:
    """Let every slot take room; return what they look like, and the groups that died."""
    taken: Taken = {n: _pinned(window[n]) for n in order if window[n].joined}
    waiting = [n for n in order if not window[n].joined]
    dead: frozenset[object] = frozenset()
    for turn in reversed(_turns(window, order)):
        waiting = [n for n in waiting if n not in turn]
        needed = sum(_need(window[n], window) for n in waiting)

        def fits(then: Taken, needed: int = needed) -> bool:
            return _size(window, then, overhead) + needed <= goal

        if window[turn[0]].joined:
            everyone = [n for n in order if not window[n].joined]
            spare = goal - sum(_need(window[n], window) for n in everyone)
            taken |= _joined_turn(window, turn, taken, fits, spare, overhead)
            continue
        (n,) = turn
        for late in (False, True):  # a group that no other slot can let go of dies if it must
            found = [
                (state, died, {**_without(window, taken, died), n: state})
                for state, died in _choices(window, n, taken, dead, late=late)
            ]
            fitting = [
                each
                for each in found
                if fits(each[2]) and (not late or _are_oldest(window[n], each[1], dead))
            ]
            if fitting:
                break
        if fitting and late:  # the oldest first
            best = max(fitting, key=lambda each: (-len(each[1]), amount(each[0])))
        elif fitting:
            best = max(fitting, key=lambda each: (amount(each[0]), -len(each[1])))
        else:
            best = min(found, key=lambda each: (amount(each[0]), -len(each[1])))
        _, died, then = best
        torn = [g for g in died if _without(window, taken, frozenset({g})) != taken]
        if torn:
            return taken, frozenset(torn)  # others had made room for groups that have no place
        for m in waiting:
            window[m].capped = _less(window[m], window[m].capped, died)
        dead |= died
        taken = then
    return taken, frozenset()


def _are_oldest(place: Place, died: frozenset[object], dead: frozenset[object]) -> bool:
    """Say whether no group of a slot that is older than one that died is alive."""
    ages: dict[object, int] = {u.group: min(u.members) for u in place.units if u.group is not None}
    alive = [age for group, age in ages.items() if group not in died | dead]
    return not died or max(ages[group] for group in died) < min(alive, default=len(place.messages))


def _turns(window: list[Place], order: list[int]) -> list[list[int]]:
    """Put neighbours of one joined text together."""
    turns: list[list[int]] = []
    for n in order:
        group = window[n].given.group if window[n].joined else None
        before = window[turns[-1][0]] if turns else None
        if before is not None and before.joined and before.given.group == group:
            turns[-1].append(n)
        elif window[n].messages or not window[n].joined:
            turns.append([n])
    return turns


def _joined_turn(
    window: list[Place], turn: list[int], taken: Taken, fits: Any, spare: int, overhead: int
) -> Taken:
    """The seed's rule for contexts: the lowest goes first until it fits; before them all that
    would not fit alone beside those that are pinned."""
    free = [n for n in turn if not window[n].given.required and window[n].capped != (None,)]
    free = [n for n in free if window[n].messages]
    whole = {n: window[n].capped for n in free}
    pinned = {n: _pinned(place) for n, place in enumerate(window) if place.joined}
    if fits({**taken, **whole}):
        return whole
    large = [n for n in free if _size(window, {**pinned, n: whole[n]}, overhead) > spare]
    large = [n for n in large if not window[n].by_char]
    small = [n for n in free if n not in large]
    left: Taken = {**whole, **dict.fromkeys(large, (None,))}
    for last in (None, *small):
        if last is not None:
            pieces = (
                range(window[last].size(whole[last]) - 1, 0, -1) if window[last].by_char else ()
            )
            for kept in pieces:  # by characters, the last that goes is cut
                if fits({**taken, **left, last: (kept,)}):
                    return {**left, last: (kept,)}
            left[last] = (None,)
        if fits({**taken, **left}):
            return left
    return left


def _pinned(place: Place) -> State:
    """What is left of a joined part whatever happens."""
    return place.capped if place.given.required else tuple(None for _ in place.capped)


def _choices(
    window: list[Place], n: int, taken: Taken, dead: frozenset[object], *, late: bool
) -> Iterator[tuple[State, frozenset[object]]]:
    """List what a slot may look like, and the groups of several slots that die with that."""
    place = window[n]
    groups = sorted({u.group for u in place.units if u.group is not None}, key=str)
    options = []
    for group in groups:
        elsewhere = [
            (m, u) for m, other in enumerate(window) for u in other.units if u.group == group
        ]
        ended = all(window[m].capped[i] is None for m, u in elsewhere for i in u.members)
        if ended or group in dead:  # by a ceiling, or by a slot that had its turn
            options.append([Fate(alive=False, ours=False)])
            continue
        text = any(
            taken.get(m, window[m].capped)[i] for m, u in elsewhere if m != n for i in u.members
        )
        mortal = may_die(window, group)
        fates = [Fate(alive=True, ours=mortal, held=text or not mortal)]
        waits = any(m not in taken for m, _ in elsewhere if m != n)
        if mortal and not (place.by_char and text and (waits or not late)):
            fates.append(Fate(alive=False, ours=True))
        options.append(fates)
    states = set(all_states(place))
    for picked in product(*options):
        chosen = dict(zip(groups, picked, strict=True))
        died = frozenset(g for g, fate in chosen.items() if fate.ours and not fate.alive)
        for state in states:
            if legal(place, state, chosen, place.capped):
                yield state, died


def _without(window: list[Place], taken: Taken, died: frozenset[object]) -> Taken:
    """What slots look like that had their room when groups died."""
    return {n: _less(window[n], state, died) for n, state in taken.items()}


def _less(place: Place, state: State, died: frozenset[object]) -> State:
    lost = {i for unit in place.units if unit.group in died for i in unit.members}
    return tuple(None if i in lost else kept for i, kept in enumerate(state))


def _gone(window: list[Place], order: list[int], taken: Taken) -> list[int]:
    """Return the slots that were dropped, in the order in which they go."""
    gone = [n for n in order if window[n].messages and not window[n].size(taken[n])]
    return [n for n in gone if all(kept is None for kept in taken[n])]


def priorities_in_vain(whole: list[Place], left: list[Place]) -> bool:
    """Say whether no slot with a priority is left, and system messages had to be unprotected."""
    spoken = any(m.role == "system" for place in whole for m in place.messages)
    eager = any(place.given.priority for place in whole if place.messages)
    return spoken and eager and not any(p.given.priority for p in left if p.messages)


def _need(place: Place, window: list[Place]) -> int:
    """Rules 3 and 4: what must be left for a slot."""
    if place.joined:
        return 0  # what is pinned is counted in its text
    size = place.size(place.capped)
    if place.given.is_input and not place.given.required:
        firm = min(size, LEAST)
    else:
        firm = 0
        for unit in place.units:
            held = unit.group is not None and not may_die(window, unit.group)
            for i in unit.members:
                kept = place.capped[i]
                if kept is None:
                    continue
                if i in place.protected:
                    firm += place.fixed[i] + kept
                elif held:
                    firm += place.fixed[i] + (0 if place.by_char else kept)
    return int(max(firm, 0 if place.fallback else min(place.floor, size)))


def _size(window: list[Place], taken: Taken, overhead: int) -> int:
    """Count slots, and what joining adds to their parts."""
    size = sum(window[n].size(state) for n, state in taken.items())
    for group in {window[n].given.group for n in taken if window[n].joined}:
        members = sum(
            window[n].given.group == group and any(kept is not None for kept in state)
            for n, state in taken.items()
        )
        if members:
            assert group is not None
            assert group.join is not None
            size += overhead + len(group.join) * (members - 1)
    return size


def texts(window: list[Place], states: Sequence[State]) -> tuple[Message, ...]:
    """Return the messages of a window; a group stands where its first slot stands."""
    left = [_left(place, state) for place, state in zip(window, states, strict=True)]
    found: list[Message] = []
    done = set()
    for number, place in enumerate(window):
        group = place.given.group
        if group is None or not (place.joined or group.interleave):
            found += left[number]
        elif group not in done:
            done.add(group)
            members = [kept for kept, p in zip(left, window, strict=True) if p.given.group == group]
            found += _joined(members, group.join) if group.join is not None else merged(members)
    return tuple(found)


def _left(place: Place, state: State) -> list[Message]:
    found = []
    for message, kept in zip(place.messages, state, strict=True):
        if kept is not None:
            text = message.text
            if place.given.is_input and kept < len(text):
                found.append(replace(message, content=shortened(text, kept)))
                continue
            cut = text[:kept] if place.given.keep == "head" else text[len(text) - kept :]
            found.append(message if cut == text else replace(message, content=cut))
    return found


def _joined(members: Sequence[Sequence[Message]], separator: str) -> list[Message]:
    parts = [message for kept in members for message in kept]
    return [replace(parts[0], content=separator.join(m.text for m in parts))] if parts else []


def merged(members: Sequence[Sequence[Message]]) -> list[Message]:
    """Merge slots by the running maximum of `at`; results stand behind their call, wherever they
    were given."""
    results = {m.tool_call_id: m for kept in members for m in kept if m.tool_call_id is not None}
    called = {call.id for kept in members for m in kept for call in m.tool_calls}
    keyed: list[tuple[float, int, list[Message]]] = []
    for place, kept in enumerate(members):
        latest = -inf
        own = {m.tool_call_id for m in kept}
        for message in kept:
            latest = latest if message.at is None else max(latest, message.at)
            if message.tool_call_id is not None and message.tool_call_id in called:
                continue
            ids = [call.id for call in message.tool_calls if call.id in results]
            near = [m for m in kept if m.tool_call_id in ids]
            far = [results[each] for each in ids if each not in own]
            # Elsewhere they were found in the order of the slots, then of the messages.
            order = [m for other in members for m in other]
            far.sort(key=lambda m: next(n for n, each in enumerate(order) if each is m))
            keyed.append((latest, place, [message, *near, *far]))
    keyed.sort(key=lambda each: each[:2])
    return [message for *_, unit in keyed for message in unit]
