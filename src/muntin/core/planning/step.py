"""Stepped trimming: how far a history may grow, how far it is cut, and where it begins.

Arithmetic and searching only: which slot gives is decided elsewhere. docs/caching.md has the
derivation of the low level.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TypeAlias

from muntin.core.message import as_message, at_of, opens_turn
from muntin.core.planning.frontier import Start, digest
from muntin.core.planning.limits import ratio_of
from muntin.core.planning.read import Reading, Unit
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


def room_for(others: Iterable[Reading], budget: int) -> Room:
    """Divide the budget: lasting content by its size, volatile slots by their ceilings, so that
    the histories' share does not depend on how large volatile slots happen to be."""
    stable = ceilings = unbounded = 0
    for each in others:
        slot, cap = each.slot, each.limits.cap
        if slot.lasting and not slot.is_input:
            stable += each.tokens if cap is None else min(each.tokens, cap)
        elif cap is not None:
            ceilings += cap
        elif slot.excluded is None:
            unbounded += ratio_of(budget, VOLATILE_RATIO)
    # Many slots without a ceiling do not crowd out the conversation.
    unbounded = min(unbounded, max(0, budget - stable - ceilings) // 2)
    return Room(budget, stable, ceilings + unbounded)


def high_levels(caps: Sequence[int | None], high: int) -> list[int]:
    """Divide the high level among histories: up to a ceiling where there is one, else evenly."""
    levels = [0 if cap is None else min(cap, high) for cap in caps]
    free = [place for place, cap in enumerate(caps) if cap is None]
    if free:
        share = max(0, high - sum(levels)) // len(free)
        for place in free:
            levels[place] = share
    return levels


def growth_of(
    slot: Slot, units: Iterable[tuple[Unit, int]], tokens: int, before: Start | None
) -> float:
    """Return the growth a request since the frontier last moved, or by the turns in sight."""
    sizes = [0]
    for unit, kept in units:
        if opens_turn(slot.messages, unit.indices[0]):
            sizes.append(0)
        sizes[-1] += kept
    turns = [size for size in sizes if size] or [1]
    if before is not None and before.requests:
        return max(1.0, (tokens - before.base) / (before.requests + 1))
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


@dataclass(frozen=True, slots=True)
class Ground:
    """What a step costs: so many tokens stand before the histories, and caching is priced so."""

    stable: int
    caching: Caching | None

    def under(self, stable: int) -> Ground:
        """Return the ground with so many tokens more before the histories."""
        return replace(self, stable=self.stable + stable)

    def cost(self, kept: int, high: int, growth: float) -> float:
        """Return what a request costs on average after a step that leaves `kept`."""
        if self.caching is None:
            return kept
        return cost(kept, high, growth, self.stable, self.caching)


@dataclass(frozen=True, slots=True)
class SteppedSlot:
    """One history in one plan: where it begins, and where that came from.

    `moved` says that its frontier moved in this plan, `lost` that the message at the frontier was
    not found again.
    """

    rules: Stepped
    number: int
    first: int
    before: Start | None = None
    high: int = 0
    moved: bool = False
    lost: bool = False

    def below(self, high: int) -> SteppedSlot:
        """Return the history with its high level."""
        return replace(self, high=high)

    def start(self, slot: Slot, tokens: int) -> Start:
        """Return where the history begins now, with so many tokens in the window."""
        before = self.before
        surplus = 0
        if self.first:
            asked = self.high - ratio_of(self.high, 1 - self.rules.retain)
            # Bounded: one long lack or glut is not made up for by many steps the other way.
            bound = _MEMORY * self.high
            surplus = (before.surplus if before is not None else 0) + tokens - asked
            surplus = max(-bound, min(bound, surplus))
        if before is not None and not self.moved:
            requests = before.requests + 1
            return replace(before, first=self.first, requests=requests, surplus=surplus)
        at = name = None
        if 0 < self.first < len(slot.messages):
            at = at_of(slot.messages[self.first])
            name = digest(as_message(slot.messages[self.first]))
        return Start(slot.name, self.number, self.first, at, name, tokens, 0, surplus)


def find_again(slots: Iterable[Slot], previous: Iterable[Start]) -> dict[int, SteppedSlot]:
    """Find where the histories began in the turn before, by the index of their slots."""
    known = {(start.slot, start.number): start for start in previous}
    numbers: dict[str, int] = {}
    steps = {}
    for slot in slots:
        if isinstance(slot.trimming, Stepped):
            number = numbers.get(slot.name, 0)
            numbers[slot.name] = number + 1
            steps[slot.index] = _begin(slot, slot.trimming, number, known.get((slot.name, number)))
    return steps


def _begin(slot: Slot, rules: Stepped, number: int, before: Start | None) -> SteppedSlot:
    if before is None or not before.first:
        return SteppedSlot(rules, number, 0, before)
    found = locate(slot.messages, before)
    if found is None:
        return SteppedSlot(rules, number, 0, lost=True)
    return SteppedSlot(rules, number, found, before)


def advance(
    step: SteppedSlot,
    slot: Slot,
    sizes: Sequence[tuple[Unit, int]],
    tokens: int,
    high: int,
    ground: Ground,
) -> SteppedSlot:
    """Move the frontier of a history that is to have at most `high` tokens.

    `sizes` are its units with the tokens they have now, `tokens` is the size of the slot.
    """
    first = max(step.first, _cut(step, slot, sizes, tokens, high, ground))
    return replace(step, first=first, moved=True)


def _cut(
    step: SteppedSlot,
    slot: Slot,
    sizes: Sequence[tuple[Unit, int]],
    tokens: int,
    high: int,
    ground: Ground,
) -> int:
    """Return where the history is to begin: at a turn, or between groups if turns are long."""
    ends = _ends(slot, sizes, high)
    if step.rules.low is not None:
        return _within(ends, ratio_of(high, step.rules.low), high, len(slot.messages))
    growth = growth_of(slot, sizes, tokens, None if step.moved else step.before)
    least = _least(step, high, growth)
    for places in ends:
        # Beyond the middle the next step would come too soon.
        near = [place for place in places if least <= place[0] <= (least + high) / 2]
        if near:
            return min(near, key=lambda place: ground.cost(place[0], high, growth))[1]
    beyond = [place for place in ends[0] if place[0] > least]
    if beyond:  # the next step comes soon, but no turn is torn
        return beyond[0][1]
    return _within(ends, int(least), high, len(slot.messages))


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


def _ends(
    slot: Slot, sizes: Sequence[tuple[Unit, int]], high: int
) -> tuple[list[Place], list[Place]]:
    """Return where the history could begin with at most `high` tokens left, the shortest first:
    at turns, and between any groups."""
    turns: list[Place] = []
    groups: list[Place] = []
    left = sum(tokens for unit, tokens in sizes if unit.system)
    for unit, tokens in reversed(sizes):
        if unit.system:
            continue
        left += tokens
        if left > high:
            break
        groups.append((left, unit.indices[0]))
        if opens_turn(slot.messages, unit.indices[0]):
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
