"""The plan: the only place where decisions are taken.

A pure function of slots, budget, tokenizer, profile and the turn before. The rules, in the order
they apply: order the slots; read what could fit, histories from their frontiers; ceilings, to every
slot; floors, unless they do not all fit (then fall back); trim by priority; flag what cannot be
trimmed; render; mark what providers may cache.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from muntin.core.budget import Budget
from muntin.core.counting.counter import Counter
from muntin.core.message import Message, role_of
from muntin.core.planning.breakpoints import mark_window
from muntin.core.planning.frontier import Frontier
from muntin.core.planning.limits import Limits, allocate, limits
from muntin.core.planning.prefix import track
from muntin.core.planning.read import (
    LOOK_BACK,
    Load,
    find,
    link,
    load,
    load_head,
    may_follow,
)
from muntin.core.planning.render import Join, Rendered, make_report, render, tell_fates
from muntin.core.planning.slot import TIERS, Group, Slot
from muntin.core.planning.step import Steps, high_levels
from muntin.core.planning.trim import Trimmer
from muntin.core.planning.window import Window
from muntin.core.profile import OMITTED, Profile
from muntin.errors import InvalidInput


def plan(
    slots: Sequence[Slot],
    *,
    budget: Budget,
    counter: Counter,
    tools: tuple[Mapping[str, Any], ...] = (),
    profile: Profile | None = None,
    previous: Window | Frontier | None = None,
) -> Window:
    """Decide what goes into the window, and compose it."""
    available = budget.remaining_input_tokens
    tools_tokens = counter.tools(tools)
    room = max(0, available - tools_tokens)
    ordered = _ordered(slots)
    caching = profile.caching if profile is not None else None
    before = previous._frontier if isinstance(previous, Window) else previous
    steps = Steps(ordered, before.starts if before else (), caching, tools_tokens)
    planner, rendered = _run(ordered, room, counter, steps)
    lead = 0
    if profile is not None and profile.user_first and _wants_lead(rendered.messages):
        lead = counter.message(OMITTED)
        while lead and planner.goal >= planner.total > room - lead:
            # Give a little more, until the lead fits or is not needed any more.
            planner, rendered = _run(ordered, room, counter, steps, goal=planner.total - 1)
            lead = lead if _wants_lead(rendered.messages) else 0
    tokens = planner.total + lead + tools_tokens
    asked = any(each.units or each.beyond for each in planner.loads)
    over_budget = tokens > available or (asked and not available)
    past, breakpoints = mark_window(
        rendered,
        profile,
        before,
        starts=steps.starts(planner.loads),
        tools=tools,
        tokens=tokens - lead,
        counter=counter,
    )
    return Window(
        messages=tuple(rendered.messages),
        tools=tools,
        tokens=tokens,
        over_budget=over_budget,
        origins=tuple(rendered.origins),
        breakpoints=breakpoints,
        _frontier=past,
        _fates=lambda: tell_fates(planner.loads),
        _report=lambda: make_report(
            planner.loads,
            planner.joins,
            tokens=tokens,
            budget=available,
            fallback=planner.fallback,
            over_budget=over_budget,
            tools_tokens=tools_tokens,
            lead_tokens=lead,
            tokenizer=counter.name,
            prefix=None
            if caching is None and before is None and not steps
            else track(past, before, planner.loads, steps, tokens=tokens, caching=caching),
        ),
    )


def _run(
    slots: Sequence[Slot], room: int, counter: Counter, steps: Steps, goal: int | None = None
) -> tuple[_Planner, Rendered]:
    """Plan; and again, from the new frontier, when a history had to give beyond its high level."""
    while True:
        planner = _Planner(slots, room, counter, steps, goal)
        rendered = planner.run()
        if not steps.forced():
            return planner, rendered


def _limits(slot: Slot, room: int) -> Limits:
    return limits(
        room,
        max_ratio=slot.max_ratio,
        min_ratio=slot.min_ratio,
        min_tokens=slot.min_tokens,
        max_tokens=slot.max_tokens,
    )


def _ordered(slots: Sequence[Slot]) -> list[Slot]:
    tiered = any(slot.tier for slot in slots)

    def key(slot: Slot) -> tuple[int, bool, int, int]:
        tier = TIERS.index(slot.tier or "volatile") if tiered else 0
        return tier, slot.position is None, slot.position or 0, slot.index

    return sorted(slots, key=key)


def _wants_lead(messages: Sequence[Message]) -> bool:
    """Say whether the first message after the leading system text is not the user's."""
    first = next((message.role for message in messages if message.role != "system"), "user")
    return first != "user"


class _Planner:
    """One run over the slots, in window order: ceilings are shares of `room`, and the window is
    trimmed to `goal`."""

    def __init__(
        self,
        slots: Sequence[Slot],
        room: int,
        counter: Counter,
        steps: Steps,
        goal: int | None = None,
    ) -> None:
        self.room = room
        self.steps = steps
        self.goal = room if goal is None else goal
        self.counter = counter
        self.fallback = False
        # While every priority is 0, system messages are protected; slots that turn out to be
        # empty have no say.
        self._protect = all(slot.priority == 0 for slot in slots if slot.messages)
        self.loads = self._load_all(slots)
        filled = [each for each in self.loads if each.units or each.beyond]
        self._protect = all(each.slot.priority == 0 for each in filled)
        link(self.loads, counter)
        self.joins = self._join()
        self._set_priorities()
        self.trimmer = Trimmer(self.loads, self.goal, counter)
        for join in self.joins.values():
            self._recount(join)

    @property
    def total(self) -> int:
        """The tokens of the window's messages as they stand."""
        return self.trimmer.total

    def run(self) -> Rendered:
        """Trim until it fits, as far as the rules allow, and put the messages together."""
        self._cap()
        self._hold()
        for each in self.loads:
            if each.start and each.slot.marker is not None:
                self.trimmer.shrink(each, sys.maxsize)  # only to say what is missing
        if sum(self._need(load) for load in self.loads) > self.goal:
            self._fall_back()
        self.trimmer.capping = False
        ignored = self.fallback and any(load.floor for load in self.loads)
        self.trimmer.reason = "fallback" if ignored else "over_budget"
        whole_inputs = self.trimmer.save([load for load in self.loads if load.slot.is_input])
        self._fit(floors=True)
        self._fit(floors=False)  # the budget wins over a floor
        if self.total > self.goal:
            self.trimmer.restore(whole_inputs)
        return render(self.loads, self.joins)

    def _load_all(self, slots: Sequence[Slot]) -> list[Load]:
        """Read the slots that are trimmed last first: whoever is trimmed before them can have
        at most what they leave (or his floor), so no more of it need be read."""
        loads: dict[int, Load] = {}
        left = self.goal
        places = sorted(range(len(slots)), key=lambda n: (*self._safety(slots[n]), n), reverse=True)
        for place in places:
            if slots[place] in self.steps:
                continue  # what a history may have depends on all others
            loads[place] = each = self._load(slots[place], left)
            # Count only what is sure to stay as it is until everybody before it is gone.
            whole = each.fallback_cap is None or each.tokens <= each.fallback_cap
            if whole and each.slot.group is None and not each.pending:
                left -= each.tokens
        if self.steps:
            loads |= self._load_histories(slots, list(loads.values()))
        return self._read_on([loads[place] for place in range(len(slots))])

    def _load_histories(self, slots: Sequence[Slot], others: list[Load]) -> dict[int, Load]:
        """Read the histories from their frontiers on; one that passes its high level steps."""
        places = [place for place, slot in enumerate(slots) if slot in self.steps]
        room = self.steps.room(others, self.room)
        caps = [_limits(slots[place], self.room).cap for place in places]
        loads = {}
        for place, high in zip(places, high_levels(caps, room.high), strict=True):
            slot = slots[place]
            step = self.steps[slot]
            step.high = high
            each = self._load(slot, 0, high, start=step.first)
            if each.tokens > high or each.unread.stop > step.first:
                self.steps.advance(each, high)
                each = self._load(slot, 0, sys.maxsize, start=step.first)
            loads[place] = each
        return loads

    def _read_on(self, loads: list[Load]) -> list[Load]:
        """Read further where tool groups across slots may be torn, or leave room when they go."""
        order = {id(each): place for place, each in enumerate(loads)}
        while any(each.beyond for each in loads):
            loose = [each for each in loads if each.open or each.pending]
            waiting = [result for each in loose for found in each.open.values() for result in found]
            calling = [unit for each in loose for unit in each.pending.values()]
            freed = sum(result[2] for result in waiting) + sum(unit.tokens for unit in calling)
            unread = [each.unread for each in loads]
            for place, each in enumerate(loads):
                others = [other for other in loose if other is not each]
                if each.beyond and others and each.start is None:
                    loads[place] = self._read_further(each, others, order, freed)
                    order[id(loads[place])] = place
            if unread == [each.unread for each in loads]:
                break
        return loads

    def _read_further(
        self, each: Load, others: list[Load], order: dict[int, int], freed: int
    ) -> Load:
        """Read a slot on to the calls and results that others miss, where they may be."""
        until = each.until
        met = False
        for other in others:
            called = set(other.open) if may_follow(each, other, order) else set()
            answered = set(other.pending) if may_follow(other, each, order) else set()
            met = met or bool(called & each.seen or answered & set(each.open))
            called -= each.seen
            answered -= set(each.open)
            if called or answered:
                most = len(each.unread) if other.slot.required else LOOK_BACK
                found = find(each, called, answered, most)
                if found is not None:
                    farther = max if each.slot.keep == "head" else min
                    until = found if until is None else farther(until, found)
        if until == each.until and not met:
            return each
        again = self._load(each.slot, 0, each.limit + (freed if met else 0), until)
        again.limit, again.until = each.limit, until
        return again

    def _safety(self, slot: Slot) -> tuple[bool, int, bool]:
        """How late a slot is trimmed, as far as that is known before it is read."""
        protected = (
            self._protect and len(slot.messages) == 1 and role_of(slot.messages[0]) == "system"
        )
        certain = slot.required or protected or (slot.is_input and slot.priority == 0)
        return certain, slot.priority, slot.is_input

    def _load(
        self,
        slot: Slot,
        left: int,
        most: int | None = None,
        until: int | None = None,
        start: int | None = None,
    ) -> Load:
        allowed = _limits(slot, self.room)
        keeps_oldest = slot.trim_behavior == "char" and slot.keep == "head"
        if most is None:
            most = self._most(slot, max(0, left, allowed.floor), allowed.cap)
        try:
            if keeps_oldest:
                result = load_head(slot, most, self.counter, until=until)
            else:
                result = load(slot, most, self.counter, until=until, start=start or 0)
        except Exception as error:
            error.add_note(f"while reading slot {slot.name!r}")
            raise
        result.limit, result.start = most, start
        result.cap, result.floor = allowed.cap, allowed.floor
        result.fallback_cap = allowed.fallback_cap
        return result

    @staticmethod
    def _most(slot: Slot, most: int, cap: int | None) -> int:
        """How much of a slot need be read: more than that cannot stay."""
        if slot.is_input or (slot.required and cap is None):
            return sys.maxsize
        if cap is None:
            return most
        # A slot that is dropped whole is read up to its ceiling, to know whether it is over.
        return cap if slot.required or slot.trim_behavior == "slot" else min(most, cap)

    def _join(self) -> dict[Group, Join]:
        """Gather the slots whose texts become one message; their parts carry no overhead."""
        joins: dict[Group, Join] = {}
        for each in self.loads:
            group = each.slot.group
            if group is None or group.join is None:
                continue
            join = joins.setdefault(group, Join(group.join, self.counter))
            for unit in each.units:
                role = unit.messages[0].role
                if join.role not in (None, role):
                    raise InvalidInput(
                        f"slot {each.slot.name!r} has role {role!r}, but the texts of group "
                        f"{group.name!r} have role {join.role!r}; joined texts share one role"
                    )
                join.role = role
                unit.costs[0] -= self.counter.overhead
                unit.tokens = unit.asked = unit.costs[0]
                each.tokens = unit.tokens
            join.loads.append(each)
            join.units += each.units
        return joins

    def _set_priorities(self) -> None:
        """The current input is never the first victim: from 0 it rises to the highest given."""
        others = [
            each.slot.priority
            for each in self.loads
            if each.beyond or any(not unit.system for unit in each.units)
        ]
        for each in self.loads:
            if each.slot.is_input and each.slot.priority == 0:
                each.priority = max([0, *others])

    def _cap(self) -> None:
        for each in self.loads:
            if each.cap is not None and each.tokens > each.cap:
                if each.start is not None:
                    self._step(each, each.cap)
                    continue
                self.trimmer.shrink(each, each.cap, cut_at=each.floor)
                if each.slot.group in self.joins:
                    self._recount(self.joins[each.slot.group])

    def _hold(self) -> None:
        """Mark what no pressure may drop: required slots, the input, system messages by default
        (joined texts go by their declared priorities alone)."""
        for each in self.loads:
            slot = each.slot
            joined = slot.group is not None and slot.group.join is not None
            if slot.required or slot.is_input or (self._protect and not joined):
                everything = slot.required or slot.is_input
                for unit in each.units:
                    if everything or unit.system:
                        unit.held = True

    def _need(self, each: Load) -> int:
        held = 0
        if each.slot.required or not each.slot.is_input:
            held = sum([unit.tokens for unit in each.units if unit.held])
        return max(min(each.floor, each.tokens), held)

    def _fall_back(self) -> None:
        self.fallback = True
        for each in self.loads:
            each.cap = each.fallback_cap
            if each.cap is not None:
                each.floor = min(each.floor, each.cap)
        self._cap()

    def _fit(self, *, floors: bool) -> None:
        """Trim by priority until the window fits; with `floors`, nobody below his floor."""
        for batch in self._batches() if self.total > self.goal else ():
            over = self.total - self.goal
            if over <= 0:
                return
            group = batch[0].slot.group
            if group is not None and group.join is not None:
                self._fit_joined(batch, self.joins[group])
            elif group is not None and group.share:
                self._fit_shared(batch, over, floors)
            else:
                self._fit_slot(batch[0], batch[0].tokens - over, floors)

    def _fit_slot(self, each: Load, target: int, floors: bool) -> None:
        if each.slot.required:
            self.trimmer.unmark(each)  # all else stays
            return
        if each.start is not None:
            self._step(each, max(target, each.floor if floors else 0))
            return
        if floors:
            self.trimmer.shrink(each, target, floor=each.floor, cut_at=each.floor)
        else:  # a slot that had a floor does not fall off a cliff
            self.trimmer.shrink(each, target, cut_at=max(target, 0) if each.floor else 0)

    def _step(self, each: Load, most: int) -> None:
        """Make a history give beyond its high level; the plan is then made again from there."""
        if each.tokens > most:
            self.steps.advance(each, most, force=True)
            for unit in each.units:
                if not unit.system and unit.indices[0] < self.steps[each.slot].first:
                    self.trimmer.drop(unit)

    def _fit_shared(self, batch: list[Load], over: int, floors: bool) -> None:
        """Divide what is left for these slots fairly among them."""
        asks = [each.tokens for each in batch]
        pot = max(0, sum(asks) - over)
        weights = [pot if (most := each.slot.max_tokens) is None else most for each in batch]
        for each, share in zip(batch, allocate(pot, asks, weights), strict=True):
            self._fit_slot(each, share, floors)

    def _fit_joined(self, batch: list[Load], join: Join) -> None:
        """Drop the fewest of these texts, in order, that make the joined text fit.

        The order is fixed, so the number is found by bisection: a few counts, not one per drop.
        """
        batch = [each for each in batch if not any(unit.held for unit in each.units)]
        space = self.goal - (self.total - join.tokens)
        few, enough = 0, len(batch)
        if batch and join.measure(batch) <= space:
            while enough - few > 1:
                middle = (few + enough) // 2
                if join.measure(batch[:middle]) <= space:
                    enough = middle
                else:
                    few = middle
        for each in batch[:enough]:
            for unit in each.units:
                self.trimmer.drop(unit)
        self._recount(join)

    def _recount(self, join: Join) -> None:
        """Bring the total up to date after a change of joined texts."""
        self.trimmer.joined -= join.counted
        self.trimmer.joined += join.recount()

    def _stays(self, each: Load) -> bool:
        """Beside a history that steps, whatever is gone next turn gives first."""
        return not self.steps or each.slot.lasting or each.slot.is_input

    def _batches(self) -> Iterator[list[Load]]:
        """Yield the slots in the order they are trimmed, those that act together as one."""
        order = sorted(
            (each for each in self.loads if each.units),
            key=lambda each: (self._stays(each), each.priority, each.slot.is_input),
        )
        batches: list[list[Load]] = []
        shared: dict[Group, list[Load]] = {}
        for each in order:
            group = each.slot.group
            if group is not None and group.share and group in shared:
                shared[group].append(each)
            elif (
                group is not None
                and group.join is not None
                and batches
                and batches[-1][0].slot.group == group
            ):
                batches[-1].append(each)
            else:
                batches.append([each])
                if group is not None and group.share:
                    shared[group] = batches[-1]
        return iter(batches)
