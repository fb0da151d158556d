"""Stepped trimming: how far a history may grow, how far it is cut, and where it begins.

Arithmetic and searching only: `plan` asks, and decides who gives. docs/caching.md has the
derivation of the low level.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from muntin.core.message import as_message, at_of, opens_turn
from muntin.core.planning.frontier import Start, digest
from muntin.core.planning.limits import ratio_of
from muntin.core.planning.read import Load
from muntin.core.planning.slot import MessageLike, Slot, Stepped
from muntin.core.profile import Caching

# What a volatile slot without a ceiling may take, as a share of the budget.
VOLATILE_RATIO = 0.25
# How many messages are looked at for a frontier that is not where it was.
SEARCH = 1_000
# So many full histories may be owed to the average, or be ahead of it.
_MEMORY = 16
# A step makes up for the average by this share of the high level, at most.
_MAKE_UP = 0.0625


@dataclass(frozen=True, slots=True)
class Room:
    """What the other slots leave to the histories: `stable` tokens stand before them, and
    `volatile` are kept free behind."""

    budget: int
    stable: int
    volatile: int

    @property
    def high(self) -> int:
        """The high level of all histories together."""
        return max(0, self.budget - self.stable - self.volatile)


def room_for(others: Iterable[Load], budget: int) -> Room:
    """Divide the budget: lasting content by its size, volatile slots by their ceilings, so that
    the histories' share does not depend on how large those happen to be."""
    stable = ceilings = unbounded = 0
    for each in others:
        slot = each.slot
        if slot.lasting and not slot.is_input:
            stable += each.tokens if each.cap is None else min(each.tokens, each.cap)
        elif each.cap is not None:
            ceilings += each.cap
        elif slot.excluded is None:
            unbounded += ratio_of(budget, VOLATILE_RATIO)
    # Many slots without a ceiling do not crowd out the conversation.
    unbounded = min(unbounded, max(0, budget - stable - ceilings) // 2)
    return Room(budget, stable, ceilings + unbounded)


def high_levels(caps: Sequence[int | None], high: int) -> list[int]:
    """Divide the high level among histories: those with a ceiling up to it, the rest evenly."""
    levels = [0 if cap is None else min(cap, high) for cap in caps]
    free = [place for place, cap in enumerate(caps) if cap is None]
    if free:
        share = max(0, high - sum(levels)) // len(free)
        for place in free:
            levels[place] = share
    return levels


def growth_of(load: Load, before: Start | None) -> float:
    """Return the growth a request since the frontier last moved, or by the turns in sight."""
    sizes = [0]
    for unit in load.units:
        if opens_turn(load.slot.messages, unit.indices[0]):
            sizes.append(0)
        sizes[-1] += unit.tokens
    turns = [size for size in sizes if size] or [1]
    if before is not None and before.requests:
        return max(1.0, (load.tokens - before.base) / (before.requests + 1))
    return sum(turns) / len(turns)


def least_kept(rules: Stepped, high: int) -> float:
    """Return what a step must leave so that, on average, `retain` of the high level is kept."""
    # Between two steps the history grows evenly from what was left up to the high level.
    return max((2 * rules.retain - 1) * high, 0.0)


def cost(kept: int, high: int, growth: float, stable: int, caching: Caching) -> float:
    """Return what a request costs on average until the next step, in tokens of plain input."""
    requests = max(1.0, (high - kept) / growth)
    read = caching.read * (stable + (kept + high) / 2)
    rewritten = (caching.write - caching.read) * kept / requests
    # While the window is below the minimum prefix, nothing of it is cached.
    short = min(requests, max(0.0, (caching.min_prefix - stable - kept) / growth))
    missed = (1 - caching.read) * (stable + kept + short * growth / 2) * short / requests
    return read + rewritten + missed


@dataclass(slots=True)
class SteppedSlot:
    """One history in one plan: where it begins, and where that came from.

    `moved` says that its frontier moved in this plan, `lost` that the message at the frontier was
    not found again; `forced` that it moved because the window did not fit otherwise.
    """

    rules: Stepped
    number: int
    first: int
    before: Start | None = None
    high: int = 0
    moved: bool = False
    lost: bool = False
    forced: bool = False


class Steps:
    """The histories of one plan, however often it is made."""

    def __init__(
        self,
        slots: Sequence[Slot],
        previous: Iterable[Start],
        caching: Caching | None,
        tools_tokens: int,
    ) -> None:
        known = {(start.slot, start.number): start for start in previous}
        numbers: dict[str, int] = {}
        self._caching = caching
        self._tools_tokens = self._stable = tools_tokens
        self._steps: dict[int, SteppedSlot] = {}
        for slot in slots:
            if isinstance(slot.trimming, Stepped):
                number = numbers.get(slot.name, 0)
                numbers[slot.name] = number + 1
                self._steps[slot.index] = _begin(slot, number, known.get((slot.name, number)))

    def __bool__(self) -> bool:
        return bool(self._steps)

    def __contains__(self, slot: Slot) -> bool:
        return slot.index in self._steps

    def __getitem__(self, slot: Slot) -> SteppedSlot:
        return self._steps[slot.index]

    def room(self, others: Iterable[Load], budget: int) -> Room:
        """Work out what the histories may have, and remember what stands before them."""
        room = room_for(others, budget)
        self._stable = room.stable + self._tools_tokens
        return room

    def advance(self, load: Load, high: int, *, force: bool = False) -> None:
        """Move the frontier of a history that is to have at most `high` tokens."""
        step = self._steps[load.slot.index]
        first = max(step.first, self._cut(load, step, high))
        step.forced = step.forced or (force and first > step.first)
        step.first = first
        step.moved = True

    def _cut(self, load: Load, step: SteppedSlot, high: int) -> int:
        """Return where the history is to begin: at a turn, or between groups if turns are long."""
        rules = step.rules
        ends = _ends(load, high)
        if rules.low is not None:
            return _within(ends, ratio_of(high, rules.low), high, len(load.slot.messages))
        growth = growth_of(load, None if step.moved else step.before)
        least = _least(step, high, growth)
        for places in ends:
            # Beyond the middle the next step would come too soon.
            near = [place for place in places if least <= place[0] <= (least + high) / 2]
            if near:
                return min(near, key=lambda place: self._cost(place[0], high, growth))[1]
        beyond = [place for place in ends[0] if place[0] > least]
        if beyond:  # the next step comes soon, but no turn is torn
            return beyond[0][1]
        return _within(ends, int(least), high, len(load.slot.messages))

    def _cost(self, kept: int, high: int, growth: float) -> float:
        if self._caching is None:
            return kept
        return cost(kept, high, growth, self._stable, self._caching)

    def forced(self) -> bool:
        """Say whether a history was forced to move since this was last asked."""
        forced = any(step.forced for step in self._steps.values())
        for step in self._steps.values():
            step.forced = False
        return forced

    def starts(self, loads: Iterable[Load]) -> tuple[Start, ...]:
        """Return where the histories begin now."""
        return tuple(_start(each, self[each.slot]) for each in loads if each.slot in self)

    def names(self, loads: Iterable[Load], attribute: str) -> set[str]:
        """Return the names of the histories that moved, or were lost."""
        return {
            each.slot.name
            for each in loads
            if each.slot in self and getattr(self[each.slot], attribute)
        }


def _least(step: SteppedSlot, high: int, growth: float) -> float:
    """Return what a step must leave: more than usual while the average is behind, less while it is
    ahead."""
    least = least_kept(step.rules, high)
    if step.before is None or not step.before.first:
        return least
    requests = max(1.0, (high - least) / growth)
    # One full history is kept in hand, so that turns of uneven size do not leave it short.
    owed = 2 * (high - step.before.surplus) / requests
    bound = _MAKE_UP * high
    return min(max(least + max(-bound, min(bound, owed)), 0.0), high)


def _begin(slot: Slot, number: int, before: Start | None) -> SteppedSlot:
    assert isinstance(slot.trimming, Stepped)
    step = SteppedSlot(slot.trimming, number, 0, before)
    if before is not None and before.first:
        found = locate(slot.messages, before)
        step.first, step.lost = (0, True) if found is None else (found, False)
        if step.lost:
            step.before = None
    return step


def _start(load: Load, step: SteppedSlot) -> Start:
    slot, before = load.slot, step.before
    surplus = 0
    if step.first:
        asked = step.high - ratio_of(step.high, 1 - step.rules.retain)
        # Bounded: one long lack or glut is not made up for by many steps in the other direction.
        bound = _MEMORY * step.high
        surplus = (before.surplus if before is not None else 0) + load.tokens - asked
        surplus = max(-bound, min(bound, surplus))
    if before is not None and not step.moved:
        return Start(
            slot.name,
            step.number,
            step.first,
            before.at,
            before.digest,
            before.base,
            before.requests + 1,
            surplus,
        )
    at = name = None
    if 0 < step.first < len(slot.messages):
        at = at_of(slot.messages[step.first])
        name = digest(as_message(slot.messages[step.first]))
    return Start(slot.name, step.number, step.first, at, name, load.tokens, 0, surplus)


def locate(items: Sequence[MessageLike], start: Start) -> int | None:
    """Find the message at which a history began; None if it is not there any more.

    A message is known by its `at`, or by its bytes where it has none. A list that only grew has it
    where it was; one that lost its beginning, or got more in front, has it near.
    """
    first = start.first
    if start.digest is None:  # everything was cut: what came since is new
        return first if first <= len(items) else None
    if first < len(items) and _is_at(items[first], start):
        return first
    if start.at is not None:
        found = bisect_left(items, start.at, key=_sort_at)
        return found if found < len(items) else None
    near = min(first, len(items))
    below = range(near - 1, max(-1, near - 1 - SEARCH), -1)
    above = range(near, min(len(items), near + SEARCH))
    return next((n for span in (below, above) for n in span if _is_at(items[n], start)), None)


def _is_at(item: MessageLike, start: Start) -> bool:
    if start.at is not None:
        return at_of(item) == start.at
    return digest(as_message(item)) == start.digest


def _sort_at(item: MessageLike) -> float:
    at = at_of(item)
    return -inf if at is None else at


# How much is left, and the index of the message it begins at.
Place: TypeAlias = tuple[int, int]


def _ends(load: Load, high: int) -> tuple[list[Place], list[Place]]:
    """Return where the history could begin with at most `high` tokens left, the shortest first:
    at turns, and between any groups."""
    turns: list[Place] = []
    groups: list[Place] = []
    left = sum(unit.tokens for unit in load.units if unit.system)
    for unit in reversed(load.units):
        if unit.system:
            continue
        left += unit.tokens
        if left > high:
            break
        groups.append((left, unit.indices[0]))
        if opens_turn(load.slot.messages, unit.indices[0]):
            turns.append(groups[-1])
    return turns, groups


def _within(ends: tuple[list[Place], list[Place]], low: int, high: int, end: int) -> int:
    """Return the place that leaves most within the low level; at a turn, if that is at least half
    of it. If the newest group alone is larger, within the high level; else nothing stays."""
    turns, groups = ends
    for level in (low, high):
        for places, least in ((turns, level / 2), (groups, 0)):
            within = [place for place in places if least <= place[0] <= level]
            if within:
                return within[-1][1]
    return end
