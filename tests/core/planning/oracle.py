"""A slow, readable oracle for the planner: it lists every legal window and picks the right one.

It shares no code with the planner. All combinations of the slots' states are windows. A window is
*fair* if nothing is missing from a slot while one that must give before it could still give. Of the
fair windows that fit, the rules demand the largest; the oracle checks that it contains every other
one, so the demand is never a matter of taste.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import inf

from muntin import Message
from tests.core.planning.oracle_slots import (
    Fate,
    Given,
    Place,
    State,
    Verdict,
    all_states,
    amount,
    apply_caps,
    legal,
    places,
    protect,
    set_limits,
    set_priorities,
)

# What a provider that wants a user first gets, where the window has none.
LEAD = len("(earlier messages omitted)")


@dataclass(frozen=True)
class Look:
    """One state of a slot, how deep it cuts into the slot, and what the slot could still give.

    Depth 0: nothing given. 1: given, not below the floor; where the floor cannot be met exactly
    it yields, so the largest state below it counts too. 2: further below. `open` holds the depths
    at which the slot could give more.
    """

    state: State
    depth: int
    open: frozenset[int]


def looks(place: Place, fates: dict[int, Fate]) -> list[Look]:
    """List what a slot may look like, given the fates of the tool groups it shares."""
    everything = set(all_states(place))
    if place.joined:  # a part of a joined text is kept or dropped
        everything = {place.capped, tuple(None for _ in place.capped)}
    alive = [g for g, fate in fates.items() if fate.alive]
    mortal = [g for g in alive if fates[g].ours and not (place.by_char and fates[g].held)]
    here = [s for s in everything if legal(place, s, fates, place.capped)]
    reach = set(here)  # all that the slot could become by giving
    for count in range(1, len(mortal) + 1):
        for died in combinations(mortal, count):
            then = {g: Fate(f.alive and g not in died, f.ours, f.held) for g, f in fates.items()}
            reach |= {s for s in everything if legal(place, s, then, place.capped)}
    lost = {  # to other slots
        i
        for unit in place.units
        if unit.group is not None and not fates[unit.group].alive and not fates[unit.group].ours
        for i in unit.members
    }
    start = tuple(None if i in lost else kept for i, kept in enumerate(place.capped))
    brink = max((s for s in reach if place.size(s) <= place.floor), key=amount, default=None)

    def depth(state: State) -> int:
        if state == start:
            return 0
        return 1 if place.size(state) >= place.floor or state == brink else 2

    return [
        Look(s, depth(s), frozenset(depth(t) for t in reach if t != s and within(t, s)))
        for s in here
        if all(
            unit.group is None
            or not fates[unit.group].alive
            or place.text_is_empty(s, unit) == fates[unit.group].empty
            for unit in place.units
        )
    ]


def within(small: State, large: State) -> bool:
    """Say whether `small` is what may be left of `large`."""
    return all(
        kept is None or (was is not None and kept <= was)
        for kept, was in zip(small, large, strict=True)
    )


def fair(worse: Look, better: Look) -> bool:
    """Say whether two slots gave in the right order.

    Nobody gives at one depth while the other could still give at a lesser one; at the same depth
    the better protected slot gives only when the other has nothing left to give.
    """
    better_waited = not better.depth or all(depth > better.depth for depth in worse.open)
    worse_waited = all(depth >= worse.depth for depth in better.open)
    return better_waited and worse_waited


def fair_windows(window: list[Place]) -> Iterator[tuple[State, ...]]:
    """List every fair window: what each slot looks like."""
    numbers = range(len(window))
    victims = sorted(numbers, key=lambda n: (window[n].priority, window[n].given.is_input, n))
    for fates in all_fates(window):
        choices = [looks(window[n], {g: f[n] for g, f in fates.items() if n in f}) for n in victims]
        for chosen in _choose(choices, []):
            yield tuple(chosen[victims.index(n)].state for n in numbers)


def _choose(choices: list[list[Look]], chosen: list[Look]) -> Iterator[list[Look]]:
    if len(chosen) == len(choices):
        yield chosen
        return
    for look in choices[len(chosen)]:
        if all(fair(worse, look) for worse in chosen):
            yield from _choose(choices, [*chosen, look])


def all_fates(window: list[Place]) -> Iterator[dict[int, dict[int, Fate]]]:
    """List what may become of the groups that several slots share, as each of them sees it."""
    groups = sorted({u.group for place in window for u in place.units if u.group is not None})
    for picked in product(*(_fates_of(window, group) for group in groups)):
        yield dict(zip(groups, picked, strict=True))


def _fates_of(window: list[Place], group: int) -> list[dict[int, Fate]]:
    """List the fates of one group: dead in the turn of some slots, or alive with some texts."""
    units = {n: u for n, place in enumerate(window) for u in place.units if u.group == group}
    members = list(units)
    if all(window[n].capped[i] is None for n in members for i in units[n].members):
        return [{n: Fate(alive=False, ours=False) for n in members}]  # a ceiling ended it
    may_die = not any(
        window[n].given.is_input or window[n].protected & set(units[n].members) for n in members
    )
    texts = {n: sum(window[n].lengths[i] for i in units[n].members) for n in members}
    found: list[dict[int, Fate]] = []
    for flags in product((False, True), repeat=len(members)):
        empty = dict(zip(members, flags, strict=True))
        if not (all(flags) and any(texts.values()) and may_die):  # with its last text it goes
            found.append(
                {
                    n: Fate(
                        alive=True,
                        ours=may_die,
                        held=not may_die or not all(empty[m] for m in members if m != n),
                        empty=empty[n],
                    )
                    for n in members
                }
            )
        turn = empty  # the same choices once more: in whose turn did it die?
        dropped = any(turn[n] and not window[n].by_char for n in members)
        emptied = any(flags) and all(turn[n] or not texts[n] for n in members)
        if may_die and (dropped or emptied):
            found.append({n: Fate(alive=False, ours=turn[n]) for n in members})
    return found


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
            return replace(verdict, over_budget=verdict.over_budget or size + lead > budget)
        goal = size - 1  # until then nothing changes


def _needs_lead(messages: Sequence[Message]) -> bool:
    roles = [message.role for message in messages if message.role != "system"]
    return bool(roles) and roles[0] != "user"


def _judge(slots: Sequence[Given], budget: int, goal: int, overhead: int) -> tuple[Verdict, int]:
    """Return what the rules demand of a window that is to fit `goal`, and its size."""
    window = places(slots, overhead)
    set_priorities(window)
    set_limits(window, budget, fallback=False)
    apply_caps(window)
    protect(window)
    fallback = sum(_need(place) for place in window) > goal
    if fallback:
        set_limits(window, budget, fallback=True)
        apply_caps(window)
        protect(window)
    found = set(fair_windows(window))
    fitting = [w for w in found if _size(window, w, overhead) <= goal]
    if fitting:
        best = max(fitting, key=_extent)
        assert all(_contains(best, other) for other in fitting), "the rules leave a choice"
        over_budget = budget == 0 and any(place.messages for place in window)
    else:
        best = min(found, key=_extent)
        assert all(_contains(other, best) for other in found), "the rules leave a choice"
        best = tuple(  # rule 8: the input stays whole
            place.capped if place.given.is_input else state
            for place, state in zip(window, best, strict=True)
        )
        over_budget = True
    size = _size(window, best, overhead)
    over_budget = over_budget and (size > budget or budget == 0)
    return Verdict(texts(window, best), over_budget, fallback), size


def _need(place: Place) -> float:
    safe = tuple(k if i in place.protected else None for i, k in enumerate(place.capped))
    return max(min(place.floor, place.size(place.capped)), place.size(safe))


def _size(window: list[Place], states: Sequence[State], overhead: int) -> int:
    """Count a window: the slots, and what joining adds to its parts."""
    size = sum(place.size(state) for place, state in zip(window, states, strict=True))
    for group in {place.given.group for place in window if place.joined}:
        members = [
            place.given.group == group and state != (None,) and state != ()
            for place, state in zip(window, states, strict=True)
        ]
        if any(members):
            assert group is not None
            assert group.join is not None
            size += overhead + len(group.join) * (sum(members) - 1)
    return size


def _extent(states: Sequence[State]) -> tuple[int, int]:
    amounts = [amount(state) for state in states]
    return sum(a for a, _ in amounts), sum(b for _, b in amounts)


def _contains(large: Sequence[State], small: Sequence[State]) -> bool:
    return all(within(s, t) for s, t in zip(small, large, strict=True))


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
