"""The oracle's slots: what they may look like, by the rules for one slot alone.

It shares no code with the planner. A text counts its characters; a message costs a constant more.

A *state* of a slot says for each of its messages how many characters are left (None: the message
is gone). All states are listed and those the rules forbid are struck out, so what remains of a
slot is every way it may look.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations, product
from math import floor, inf

from muntin import Group, Input, Message

NO_RESULT = "(no result was recorded)"
LEAST = 256  # so much of the input is never cut
TIERS = ("pinned", "stable", "slow-changing", "volatile")

State = tuple[int | None, ...]


@dataclass(frozen=True)
class Given:
    """What one `Slots.add` call was given, as plain data."""

    name: str
    content: str | Input | Message | Sequence[Message] | None
    priority: int = field(default=0, kw_only=True)
    max_ratio: float = field(default=1.0, kw_only=True)
    min_ratio: float = field(default=0.0, kw_only=True)
    min_tokens: int = field(default=0, kw_only=True)
    position: int | None = field(default=None, kw_only=True)
    role: str | None = field(default=None, kw_only=True)
    trim_behavior: str = field(default="message", kw_only=True)
    max_tokens: int | None = field(default=None, kw_only=True)
    tier: str | None = field(default=None, kw_only=True)
    keep: str = field(default="tail", kw_only=True)
    required: bool = field(default=False, kw_only=True)
    group: Group | None = field(default=None, kw_only=True)
    marker: str | None = field(default=None, kw_only=True)

    def messages(self) -> list[Message]:
        """Rule 1: what the content stands for."""
        content = self.content
        role = self.role or ("system" if self.name == "system" else "user")
        if isinstance(content, str):
            return [Message(role, content)] if content else []  # type: ignore[arg-type]
        if isinstance(content, Input):
            return [Message(role, content.text)] if content.text else []  # type: ignore[arg-type]
        if content is None:
            return []
        listed = [content] if isinstance(content, Message) else content
        # An empty text adds nothing; an empty result still answers its call.
        return [m for m in listed if m.text or m.tool_calls or m.tool_call_id is not None]

    @property
    def is_input(self) -> bool:
        """Rule 1: the current input."""
        return self.name == "input" or isinstance(self.content, Input)


@dataclass(frozen=True)
class Verdict:
    """What the rules demand: the texts that are left, in order, and the two flags."""

    messages: tuple[Message, ...]
    over_budget: bool
    fallback: bool


@dataclass
class Unit:
    """What goes together: one message, or the members that one tool group has in one slot."""

    members: list[int]
    group: str | None  # of a tool group that reaches into other slots


class Place:
    """One slot in its place in the window, with everything the rules say about it."""

    def __init__(self, given: Given, messages: list[Message], costs: list[int]) -> None:
        self.given = given
        self.messages = messages
        self.fixed = costs  # what each message costs beside its text
        self.lengths = [len(m.text) for m in messages]
        self.full: State = tuple(self.lengths)
        self.units: list[Unit] = []  # in the order in which they give
        self.cap = self.floor = 0.0
        self.capped: State = self.full
        self.protected: set[int] = set()
        self.priority: float = given.priority
        self.fallback = False

    def size(self, state: State) -> int:
        return sum(self.fixed[i] + kept for i, kept in enumerate(state) if kept is not None)

    @property
    def by_char(self) -> bool:
        return self.given.trim_behavior == "char"

    @property
    def joined(self) -> bool:
        """Whether the text is a part of a joined one."""
        return self.given.group is not None and self.given.group.join is not None

    def text_is_empty(self, state: State, unit: Unit) -> bool:
        return all(not state[i] for i in unit.members)


# -- the states of one slot ------------------------------------------------------------------


def all_states(place: Place) -> Iterator[State]:
    """List every state in which at most one text ends in the middle (each message: gone, empty,
    one character, whole; one of them: anything)."""
    if place.given.is_input:
        yield from _input_states(place)
        return
    if not (place.by_char or place.floor):
        yield from product(*({None, n} for n in place.lengths))  # nothing else would be legal
        return
    ends = [{None, 0, min(1, n), n} for n in place.lengths]
    yield from set(product(*ends))
    for i, n in enumerate(place.lengths):
        for kept in range(2, n):
            yield from product(*ends[:i], {kept}, *ends[i + 1 :])


def _input_states(place: Place) -> Iterator[State]:
    """Rule 6: an input is whole, or its longest text is cut, to no less than 256 tokens."""
    yield place.full
    if place.given.required or not place.lengths:
        return
    longest = place.lengths.index(max(place.lengths))
    for kept in range(place.lengths[longest]):
        state = tuple(kept if i == longest else n for i, n in enumerate(place.lengths))
        if place.size(state) >= LEAST:
            yield state


def shortened(text: str, size: int) -> str:
    """Return beginning and end of a text with a line between them, as much as has that size."""
    for kept in range(len(text), -1, -1):
        line = f"\n[{len(text) - kept:,} characters of this message are left out here]\n"
        if kept + len(line) <= size:
            return text[: kept - kept // 2] + line + text[len(text) - kept // 2 :]
    raise AssertionError(size)


@dataclass(frozen=True)
class Fate:
    """What becomes of a tool group that reaches into several slots, as one slot sees it.

    `alive`: it is in the window. `ours`: this slot may end it, or did, in its turn. `held`: it
    cannot die of empty texts here, because a text of it is left in another slot or because it
    may not die at all. `empty`: no text of it is left in this slot.
    """

    alive: bool
    ours: bool
    held: bool = False
    empty: bool = False


def legal(place: Place, state: State, fates: dict[str, Fate], top: State) -> bool:
    """Say whether the rules allow this slot to look like this; `top` is what it looked like."""
    if any(
        kept is not None and (was is None or kept > was)
        for kept, was in zip(state, top, strict=True)
    ):
        return False
    if place.given.is_input:
        return True  # it has no other states than those that are listed
    if any(state[i] != top[i] for i in place.protected):
        return False  # rules 7 and 8: neither dropped nor trimmed
    turn: list[Unit] = []
    for unit in place.units:
        gone = [state[i] is None for i in unit.members]
        if any(gone) != all(gone):
            return False  # groups live and die together
        if unit.group is not None:
            fate = fates[unit.group]
            if fate.alive == gone[0]:
                return False
            if not fate.alive and not fate.ours:
                continue  # it went because its group went elsewhere: not this slot's turn
            if fate.alive and not fate.ours and not place.by_char:
                if not _whole(place, state, unit):
                    return False
                continue  # it may not go, because another slot may not lose its part
        whole = _whole(place, state, unit)
        if not gone[0] and not whole and not _cut_well(place, state, unit, fates):
            return False
        turn.append(unit)
    if place.given.trim_behavior == "slot":
        free = [i for unit in turn for i in unit.members if i not in place.protected]
        return len({state[i] is None for i in free}) <= 1
    # Oldest first: what gave before the boundary gave all it has, what comes after it is whole.
    return not turn or any(
        all(_spent(place, state, unit, fates) for unit in turn[:boundary])
        and all(_whole(place, state, unit) for unit in turn[boundary + 1 :])
        for boundary in range(len(turn))
    )


def _whole(place: Place, state: State, unit: Unit) -> bool:
    return all(state[i] == place.lengths[i] for i in unit.members)


def _spent(place: Place, state: State, unit: Unit, fates: dict[str, Fate]) -> bool:
    """Say whether a unit has nothing left to give."""
    if all(state[i] is None for i in unit.members):
        return True
    return (
        place.by_char
        and unit.group is not None
        and fates[unit.group].held
        and place.text_is_empty(state, unit)
    )


def _cut_well(place: Place, state: State, unit: Unit, fates: dict[str, Fate]) -> bool:
    """Say whether a unit that is there but not whole may be cut, and is cut in the right place."""
    is_group = bool(
        len(unit.members) > 1
        or unit.group is not None
        or place.messages[unit.members[0]].tool_calls
    )
    held = unit.group is not None and fates[unit.group].held
    if place.text_is_empty(state, unit) and not (is_group and held):
        return False  # cut to nothing is gone
    order = unit.members if _from_oldest(place) else unit.members[::-1]
    if not any(
        all(not state[i] for i in order[:k])
        and all(state[i] == place.lengths[i] for i in order[k + 1 :])
        for k in range(len(order))
    ):
        return False
    if place.by_char:
        return True
    if place.fallback:  # a slot that had a floor
        return place.given.trim_behavior == "message" and place.floor > 0
    without = tuple(None if i in unit.members else kept for i, kept in enumerate(state))
    # A boundary message is cut only because dropping it whole would cross the floor.
    return place.given.trim_behavior == "message" and place.size(without) < place.floor


def _from_oldest(place: Place) -> bool:
    return not (place.by_char and place.given.keep == "head")


# -- the window as given ---------------------------------------------------------------------


def arrange(slots: Sequence[Given]) -> list[Given]:
    """Rule 2: the order of the slots in the window."""
    tiered = any(slot.tier for slot in slots)

    def key(slot: Given) -> tuple[int, float]:
        tier = TIERS.index(slot.tier or "volatile") if tiered else 0
        return tier, inf if slot.position is None else slot.position

    return sorted(slots, key=key)


def _merged(one: Given, other: Given) -> bool:
    """Say whether messages of two slots are merged: then their order is not known yet."""
    return one.group is not None and one.group.interleave and one.group == other.group


def places(
    slots: Sequence[Given], overhead: int, dead: frozenset[object] = frozenset()
) -> list[Place]:
    """Find the tool groups, leave out orphaned results and groups that are dead, and count."""
    ordered = arrange(slots)
    group_of: dict[tuple[int, int], str] = {}
    callers: dict[str, tuple[int, int]] = {}
    answered: set[str] = set()
    orphans: set[tuple[int, int]] = set()
    listed = [(s, m, x) for s, slot in enumerate(ordered) for m, x in enumerate(slot.messages())]
    for s, m, message in listed:
        if message.tool_calls:
            group_of[s, m] = message.tool_calls[0].id  # a name no other group has
            callers |= {call.id: (s, m) for call in message.tool_calls}
    for s, m, message in listed:
        if message.tool_call_id is not None:
            caller = callers.get(message.tool_call_id)
            if caller is not None and (caller < (s, m) or _merged(ordered[caller[0]], ordered[s])):
                group_of[s, m] = group_of[caller]
                answered.add(message.tool_call_id)
            else:
                orphans.add((s, m))
    orphans |= {place for place, group in group_of.items() if group in dead}
    found = []
    for s, slot in enumerate(ordered):
        kept = [(m, x) for m, x in enumerate(slot.messages()) if (s, m) not in orphans]
        parts = slot.group is not None and slot.group.join is not None
        costs = [
            (0 if parts else overhead)  # a joined text is one message
            + sum(len(c.name) + len(c.arguments) for c in x.tool_calls)
            + sum(overhead + len(NO_RESULT) for c in x.tool_calls if c.id not in answered)
            for _, x in kept
        ]
        place = Place(slot, [x for _, x in kept], costs)
        units: dict[object, Unit] = {}
        for i, (m, _) in enumerate(kept):
            group = group_of.get((s, m))
            crosses = any(g == group and t != s for (t, _), g in group_of.items())
            key = ("alone", i) if group is None else group
            units.setdefault(key, Unit([], group if crosses else None)).members.append(i)
        in_order = list(units.values())
        if not _from_oldest(place):
            in_order.reverse()
        # In a slot that mixes them, system messages give last.
        system = [u for u in in_order if place.messages[u.members[0]].role == "system"]
        place.units = [u for u in in_order if u not in system] + system
        found.append(place)
    return found


def set_limits(window: list[Place], budget: int, *, fallback: bool) -> None:
    """Rule 3, and in fallback rule 4: ceilings and floors."""
    for place in window:
        given = place.given
        asked = given.max_ratio < 1 or given.max_tokens is not None
        most = inf if given.max_tokens is None else given.max_tokens
        # Without a ratio asked for, `max_tokens` alone is the ceiling.
        share = floor(budget * Fraction(str(given.max_ratio))) if given.max_ratio < 1 else inf
        ratio = min(Fraction(str(given.min_ratio)), Fraction(str(given.max_ratio)))
        wanted = max(given.min_tokens, floor(budget * ratio))
        cap = min(max(share, given.min_tokens), most) if asked else inf
        place.floor = min(wanted, cap)
        place.cap = cap
        place.fallback = fallback
        if fallback:
            place.cap = min(share, most) if asked else inf
            place.floor = min(place.floor, place.cap)


def apply_caps(window: list[Place]) -> None:
    """Rule 3: each slot becomes the largest of its legal states within its ceiling. Rule 8: what is
    protected does not vanish; it is cut where it is cut by characters, else it stays."""
    for place in window:
        place.capped = place.full
    protect(window)
    dead: set[str] = set()
    for place in window:
        if place.size(place.full) <= place.cap:
            continue
        protected, cut = place.protected, place.by_char and not place.given.is_input
        if cut:
            place.protected = set()
        states = _capped_states(place, window)
        fitting = [x for x in states if place.size(x[0]) <= place.cap]
        if protected and cut:
            fitting = [x for x in fitting if any(kept is not None for kept in x[0])]
        place.protected = protected
        if not fitting:  # what is protected stays, and nothing else
            states = _capped_states(place, window)
        if fitting:
            place.capped, died = max(fitting, key=lambda x: amount(x[0]))
        else:
            place.capped, died = min(states, key=lambda x: amount(x[0]))
        dead |= set(died)
    for place in window:
        for unit in place.units:
            if unit.group in dead:
                place.capped = tuple(
                    None if i in unit.members else kept for i, kept in enumerate(place.capped)
                )


def _capped_states(place: Place, window: list[Place]) -> list[tuple[State, tuple[str, ...]]]:
    crossing = [u.group for u in place.units if u.group is not None]
    mortal = [group for group in crossing if may_die(window, group)]
    return [
        (state, died)
        for count in range(len(mortal) + 1)
        for died in combinations(mortal, count)
        for fates in [{g: Fate(g not in died, ours=g in mortal, held=True) for g in crossing}]
        for state in set(all_states(place))
        if legal(place, state, fates, place.full)
    ]


def may_die(window: list[Place], group: str) -> bool:
    """Say whether a group may go: no part of it is in a slot that may not lose it."""
    return not any(
        place.given.is_input or place.protected & set(unit.members)
        for place in window
        for unit in place.units
        if unit.group == group
    )


def amount(state: State) -> tuple[int, int]:
    there = [kept for kept in state if kept is not None]
    return sum(there), len(there)


def protect(window: list[Place]) -> None:
    """Rules 7 and 8: what is neither dropped nor trimmed."""
    calm = all(place.given.priority == 0 for place in window if place.messages)
    for place in window:
        place.protected = {
            i
            for i, message in enumerate(place.messages)
            if place.given.required or (calm and message.role == "system" and not place.joined)
        }


def set_priorities(window: list[Place]) -> None:
    """Rule 5: the current input goes last, unless it has a priority of its own."""
    for place in window:
        place.priority = place.given.priority
        if place.given.is_input and not place.given.priority:
            place.priority = inf
