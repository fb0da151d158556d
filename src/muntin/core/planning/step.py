"""Stepped trimming: how far a history is cut, and where it begins.

Arithmetic and searching only: other modules decide which slot gives. docs/caching.md has the
derivation of the low level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple, TypeAlias

from muntin.core.message import Message, as_message, at_of
from muntin.core.planning.frontier import Start, digest
from muntin.core.planning.ladder import Rung, descend, freed, newest_of, question_of
from muntin.core.planning.limits import ratio_of
from muntin.core.planning.past import NOBODY, Past, ask_again, item_of, locate
from muntin.core.planning.shapes import NO_LEVELS, Ladder, Levels
from muntin.core.planning.slot import Recap, Slot, Stepped
from muntin.core.profile import Caching

# The average may be behind or ahead by this many full histories at most.
_MEMORY = 16
# A step corrects the average by at most this share of the high level.
_MAKE_UP = 0.0625
# The low levels that are tried, as shares of the way from the least kept to the high level.
_LOWS = (0.0, 0.25, 0.5)
# A low level at which the ladder costs this much more than dropping is taken only if all do.
_DEARER = 1.05
# A summary takes at most this share of a history.
_RECAP_RATIO = 0.25


def growth_of(rungs: Iterable[Rung], tokens: int, before: Start | None) -> float:
    """Return the growth per request since the frontier last moved, else by the turns in sight."""
    if before is not None and before.requests:
        return max(1.0, (tokens - before.base) / (before.requests + 1))
    sizes = [0]
    for rung in rungs:
        if rung.opens_turn:
            sizes.append(0)
        sizes[-1] += rung.tokens
    turns = [size for size in sizes if size] or [1]
    return sum(turns) / len(turns)


def least_kept(rules: Stepped, high: int) -> float:
    """Return how many tokens a step must leave to keep, on average, `retain` of the high level."""
    # Between two steps the history grows evenly, from the size left up to the high level.
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
    """What a step costs: `stable` tokens stand before the histories; `caching` has the prices."""

    stable: int
    caching: Caching | None

    def under(self, stable: int) -> Ground:
        """Return the ground with `stable` more tokens before the histories."""
        return Ground(self.stable + stable, self.caching)

    def cost(self, kept: int, high: int, growth: float) -> float:
        """Return what a request costs on average after a step that leaves `kept`."""
        if self.caching is None:
            return kept
        return cost(kept, high, growth, self.stable, self.caching)


class Told(NamedTuple):
    """A summary in front of a past, and its tokens."""

    recap: Recap
    tokens: int

    def fits(self, high: int) -> bool:
        """Say whether there is room for it in a past of at most `high` tokens."""
        return self.tokens <= most_told(high)


def most_told(high: int) -> int:
    """Return how many tokens a summary may have in front of a past of at most `high` tokens."""
    return ratio_of(high, _RECAP_RATIO)


@dataclass(frozen=True, slots=True)
class SteppedSlot:
    """One history in one plan: where it begins, how far its levels reach, how this was found.

    A past may stand in several slots: a history, the current input, and the run of the turn. All
    have the same `levels`, as indices of all messages of the past; the messages of this slot begin
    at `offset`. `members` are the slots of the past. `moved` says that its frontier moved in this
    plan, `lost` that the message at the frontier was not found again, `way` how it moved. `told`
    is the summary in front of the past, `newer` a summary that waits for the next step. `asked` are
    the messages that asked for the run in which the past begins: they stay in front of it.
    """

    rules: Stepped
    number: int
    levels: Levels = NO_LEVELS
    before: Start | None = None
    high: int = 0
    moved: bool = False
    lost: bool = False
    offset: int = 0
    members: tuple[int, ...] = ()
    way: str = ""
    told: Told | None = None
    newer: Told | None = None
    asked: range = NOBODY

    @property
    def told_tokens(self) -> int:
        """The tokens of the summary in front."""
        return 0 if self.told is None else self.told.tokens

    def below(self, high: int) -> SteppedSlot:
        """Return the history with its high level."""
        return self if high == self.high else replace(self, high=high)

    def like(self, head: SteppedSlot) -> SteppedSlot:
        """Return the history with the levels of the head of its past."""
        return head if head.offset == self.offset else replace(head, offset=self.offset)

    def start(self, members: Sequence[Slot], tokens: int) -> Start:
        """Return where the past begins now, with `tokens` tokens in the window."""
        before, levels = self.before, self.levels
        surplus = 0
        recap = None if self.told is None else self.told.recap
        if levels.gone:
            asked = self.high - ratio_of(self.high, 1 - self.rules.retain)
            # Bounded: many steps must not make up for one long lack or surplus.
            bound = _MEMORY * self.high
            surplus = (before.surplus if before is not None else 0) + tokens - asked
            surplus = max(-bound, min(bound, surplus))
        if before is not None and not self.moved:
            return replace(
                before,
                first=levels.gone,
                requests=before.requests + 1,
                surplus=surplus,
                stubs=levels.stubs,
                shorts=levels.shorts,
                recap=recap,
                asked=self.asked.start,
                asks=len(self.asked),
            )
        at = name = item = None
        past = Past([slot.messages for slot in members])
        question = digest(as_message(past[self.asked[-1]])) if self.asked else None
        # An input may be recorded in other words, or not at all: then the messages behind it are
        # new. Shortened messages must be found again too, even if nothing has left yet.
        begins = bool(levels.gone or levels.shorts) and levels.gone < len(past)
        if begins and not members[past.place(levels.gone)].is_input:
            at, item = at_of(past[levels.gone]), item_of(past[levels.gone])
            name = digest(as_message(past[levels.gone]))
        return Start(
            members[0].name,
            self.number,
            levels.gone,
            at,
            name,
            tokens,
            surplus=surplus,
            stubs=levels.stubs,
            shorts=levels.shorts,
            item=item,
            recap=recap,
            asked=self.asked.start,
            asks=len(self.asked),
            question=question,
        )


def find_again(
    slots: Sequence[Slot], previous: Iterable[Start], count: Callable[[Message], int]
) -> dict[int, SteppedSlot]:
    """Find where the histories began in the turn before, by the index of their slots.

    `count` returns the tokens of a summary.
    """
    known = {(start.slot, start.number): start for start in previous}
    numbers: dict[str, int] = {}
    steps: dict[int, SteppedSlot] = {}
    for members in _pasts(slots):
        head = members[0]
        number = numbers.get(head.name, 0)
        numbers[head.name] = number + 1
        past = Past([slot.messages for slot in members])
        step = _begin(past, head, number, known.get((head.name, number)))
        told, newer = [
            None if recap is None else Told(recap, count(recap.message))
            for recap in (step.before.recap if step.before else None, head.recap)
        ]
        members_of = tuple([slot.index for slot in members])
        step = replace(step, members=members_of, told=told, newer=newer)
        for slot, offset in zip(members, past.offsets, strict=False):
            if isinstance(slot.trimming, Stepped):
                steps[slot.index] = replace(step, offset=offset) if offset else step
    return steps


def _pasts(slots: Sequence[Slot]) -> list[list[Slot]]:
    """Return the slots of each past: a history; behind the last one the input and the run too."""
    pasts: list[list[Slot]] = []
    for slot in slots:
        stepped = isinstance(slot.trimming, Stepped)
        if pasts and (slot.run or slot.is_input) and _is_open(pasts[-1][0]):
            if stepped or slot.is_input:
                pasts[-1].append(slot)
        elif stepped:
            pasts.append([slot])
    return pasts


def _is_open(head: Slot) -> bool:
    """Say whether a history has no limits of its own."""
    return head.group is None and head.max_tokens is None and head.max_ratio == 1


def _begin(past: Past, head: Slot, number: int, before: Start | None) -> SteppedSlot:
    rules = head.trimming
    assert isinstance(rules, Stepped)
    if before is None:
        return SteppedSlot(rules, number)
    levels = Levels(before.first, before.stubs, before.shorts)
    if not before.first and before.digest is None:
        levels = levels if before.shorts <= len(past) else NO_LEVELS
        return SteppedSlot(rules, number, levels, before)
    found = locate(past, before)
    if found is None:  # the run of an earlier turn is over
        return SteppedSlot(rules, number, lost=not head.run)
    levels = levels.moved(found - before.first)
    return SteppedSlot(rules, number, levels, before, asked=ask_again(past, before, found))


def advance(
    step: SteppedSlot,
    ladder: Ladder | None,
    rungs: Sequence[Rung],
    tokens: int,
    high: int,
    ground: Ground,
) -> SteppedSlot:
    """Move the frontier of a past that is to have at most `high` tokens.

    `rungs` are its units with the tokens they have now, `tokens` is the size of the past. A newer
    summary is put in front when anything leaves; a summary that no longer has room is left out.
    """
    told, newer = step.told, step.newer
    tokens -= step.told_tokens
    if newer is not None and newer.fits(high) and _is_newer(newer, told):
        retold = _advance(replace(step, told=newer), ladder, rungs, tokens, high, ground)
        if retold.levels.gone > step.levels.gone:
            return retold
    if told is not None and not told.fits(high):
        step = replace(step, told=None, newer=None)
    return _advance(step, ladder, rungs, tokens, high, ground)


def _is_newer(newer: Told, told: Told | None) -> bool:
    return told is None or newer.recap.until > told.recap.until


def _advance(
    step: SteppedSlot,
    ladder: Ladder | None,
    rungs: Sequence[Rung],
    tokens: int,
    high: int,
    ground: Ground,
) -> SteppedSlot:
    """Move the frontier, with the summary of the step in front."""
    if step.told is not None:
        rungs = [Rung(-1, 0, step.told.tokens, fixed=True), *rungs]
        tokens += step.told.tokens
    gone = max(step.levels.gone, _cut(step, rungs, tokens, high, ground))
    dropped = replace(step.levels, gone=gone)
    levels, way = dropped, ""
    if ladder is not None:
        levels, way = _way_down(step, ladder, rungs, tokens, high, ground, dropped)
    asked = question_of(rungs, levels.gone)
    return replace(step, levels=levels, moved=True, way=way, asked=asked)


class Price(NamedTuple):
    """The average cost of a request until the next step, and how many units stay in view."""

    cost: float
    seen: int

    @property
    def each(self) -> float:
        """What a request costs for each unit in view."""
        return self.cost / max(1, self.seen)

    def __str__(self) -> str:
        return f"{self.seen:,} groups at about {self.cost:,.0f} tokens a request"


def _way_down(
    step: SteppedSlot,
    ladder: Ladder,
    rungs: Sequence[Rung],
    tokens: int,
    high: int,
    ground: Ground,
    dropped: Levels,
) -> tuple[Levels, str]:
    """Choose the way that costs least for each unit that stays in view: down the ladder to one of
    a few low levels, or dropping. Return it, and the two prices in words."""
    growth = growth_of(rungs, tokens, None if step.moved else step.before)
    least = _least(step, high, growth)
    if step.rules.low is not None:
        lows = [ratio_of(high, step.rules.low)]
    else:
        lows = [int(least + (high - least) * share) for share in _LOWS]
    must = int(high - growth)  # room for the next messages

    def price(levels: Levels) -> Price:
        return _price(step.levels, levels, rungs, tokens, high, growth, ground)

    drops = price(dropped)
    found = [descend(rungs, step.levels, ladder, tokens, low, must) for low in lows]
    ways = {way: price(way) for way in found}  # several low levels may have the same way
    cheap = [way for way in ways if ways[way].cost <= _DEARER * drops.cost]
    down = min(cheap or ways, key=lambda way: ways[way].each)
    ladders = ways[down]
    if drops.each < ladders.each:
        return dropped, f"dropping keeps {drops}; shortening would keep {ladders}"
    return down, f"shortening keeps {ladders}; dropping would keep {drops}"


def _price(
    before: Levels,
    after: Levels,
    rungs: Sequence[Rung],
    tokens: int,
    high: int,
    growth: float,
    ground: Ground,
) -> Price:
    """Return what a way down costs. Messages before the first change stay cached."""
    kept, same, seen, changed = tokens, 0, 0, False
    asked = question_of(rungs, after.gone)
    for rung in rungs:
        if rung.first < before.gone and not rung.asks:
            continue
        was, now = before.of(rung.first), after.of(rung.first)
        if rung.first < after.gone and not rung.fixed and rung.first not in asked:
            kept -= rung.size(was)
            changed = True
            continue
        seen += 1
        if was != now and rung.is_group:
            kept -= rung.size(was) - rung.size(now)
            changed = changed or rung.size(was) != rung.size(now)
        same += 0 if changed else rung.size(now)
    if kept > high:
        return Price(inf, seen)  # not low enough
    under = ground.under(same)
    return Price(under.cost(max(0, kept - same), max(1, high - same), growth), seen)


def _cut(step: SteppedSlot, rungs: Sequence[Rung], tokens: int, high: int, ground: Ground) -> int:
    """Return where the past is to begin: at a turn, or between groups if turns are long."""
    ends = _ends(step.levels, rungs, high)
    end = newest_of(rungs)
    if step.rules.low is not None:
        return _within(ends, ratio_of(high, step.rules.low), high, end)
    growth = growth_of(rungs, tokens, None if step.moved else step.before)
    least = _least(step, high, growth)
    for places in ends:
        # Beyond the middle the next step would come too soon.
        near = [place for place in places if least <= place[0] <= (least + high) / 2]
        if near:
            return min(near, key=lambda place: ground.cost(place[0], high, growth))[1]
    beyond = [place for place in ends[0] if place[0] > least]
    if beyond:  # the next step comes soon, but no turn is torn
        return beyond[0][1]
    return _within(ends, int(least), high, end)


def _least(step: SteppedSlot, high: int, growth: float) -> float:
    """Return how many tokens a step must leave: more than usual while the average is behind, fewer
    while it is ahead."""
    least = least_kept(step.rules, high)
    if step.before is None or not step.before.first:
        return least
    requests = max(1.0, (high - least) / growth)
    # One full history is kept as a reserve, so that turns of uneven size do not leave too little.
    owed = 2 * (high - step.before.surplus) / requests
    bound = _MAKE_UP * high
    return min(max(least + max(-bound, min(bound, owed)), 0.0), high)


# How many tokens are left, and the index of the first message left.
Place: TypeAlias = tuple[int, int]


def _ends(levels: Levels, rungs: Sequence[Rung], high: int) -> tuple[list[Place], list[Place]]:
    """Return where the past could begin with at most `high` tokens left, the shortest first: at
    turns, and between any groups."""
    turns: list[Place] = []
    groups: list[Place] = []
    left = sum([rung.tokens for rung in rungs if rung.fixed])
    newest = newest_of(rungs)
    for rung in reversed(rungs):
        if rung.fixed:
            continue
        left += freed(rung, rung.tokens)
        if left > high:
            break
        if rung.first > newest:
            continue
        groups.append((left, rung.first))
        if rung.opens_turn:
            turns.append(groups[-1])
    return turns, groups


def _within(ends: tuple[list[Place], list[Place]], low: int, high: int, end: int) -> int:
    """Return the place that leaves most within the low level: at a turn, if that leaves at least
    half of the level. If no place does, try the high level; otherwise nothing stays."""
    turns, groups = ends
    for level in (low, high):
        for places, least in ((turns, level / 2), (groups, 0)):
            within = [place for place in places if least <= place[0] <= level]
            if within:
                return within[-1][1]
    return end
