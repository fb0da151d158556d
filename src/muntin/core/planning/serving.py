"""Serving: how much room every slot gets, from the best protected to the least.

Each slot is asked what it could use of its floor; that much is set aside for it. Then each takes as
much as it can use of what the needs of the others leave. What it cannot use flows on.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from muntin.core.planning.draft import FALLBACK, Draft, SlotPlan
from muntin.core.planning.levels import NO_LEVELS, SlotView, show_whole, tokens_at
from muntin.core.planning.limits import Limits, fair_shares, limits
from muntin.core.planning.moving import levels_before, run_need, show_history, show_run
from muntin.core.planning.shrink import least_input, marker_tokens, shrink, shrink_input
from muntin.core.planning.slot import Group, Pool
from muntin.core.planning.units import least_size

# About so many tokens may merge where two texts are joined.
_SEAM = 8


@dataclass(slots=True)
class _FreeRoom:
    """The room that is left in the window, and in its pools."""

    window: int
    pools: dict[Pool, int] = field(default_factory=dict)

    def take(self, pool: Pool | None, tokens: int) -> None:
        self.window -= tokens
        if pool is not None:
            self.pools[pool] = self.pools.get(pool, pool.tokens) - tokens

    @property
    def least(self) -> int:
        return min([self.window, *self.pools.values()])

    def of(self, pool: Pool | None) -> int:
        return self.window if pool is None else min(self.window, self.pools[pool])


def serve(draft: Draft) -> None:
    """Give every slot its room. If room was set aside for a slot that did not use it, serve again
    without: needs only become smaller, so this ends."""
    parties = _parties(draft)
    _set_needs(draft)
    while True:
        _serve_once(draft, parties)
        unused = [part for part in draft.ranked if part.used < part.need]
        if not unused:
            return
        for part in unused:
            part.need = part.used


# Needs.


def _set_needs(draft: Draft) -> None:
    """Set aside what every slot needs. If the needs do not fit together, floors are ignored; if the
    rest does not fit either, a run needs only its newest calls."""
    draft.fits_whole = _fits_whole(draft)
    for draft.fallback, draft.has_least_run in ((False, False), (True, False), (True, True)):
        if draft.fallback and not draft.has_least_run:
            _ignore_floors(draft)
        draft.begun.clear()
        free = _FreeRoom(draft.room)
        for part in draft.ranked:
            part.need = _need(draft, part)
            free.take(part.slot.pool, part.need)
            group = part.slot.place.group
            if part.need and group is not None:
                draft.begun.add(group)
        if free.least >= 0:
            return


def _fits_whole(draft: Draft) -> bool:
    """Say whether everything fits as it was shown before, with what is new."""
    free = _FreeRoom(draft.room)
    for part in draft.ranked:
        ask, group = _ask(draft, part), part.slot.place.group
        if ask > part.limits.ceiling:
            return False
        free.take(part.slot.pool, ask + _joining(draft, part))
        if group is not None:
            draft.begun.add(group)
    if -_SEAM * len(draft.ranked) <= free.window < 0:
        merged = _merged_tokens(draft)
        free.window += merged
        draft.room += merged if free.least >= 0 else 0
    return free.least >= 0


def _merged_tokens(draft: Draft) -> int:
    """Return how many tokens fewer whole joined texts have than their parts and separators."""
    count, joined = draft.counter, dict[Group, list[SlotPlan]]()
    for part in draft.parts:
        group = part.slot.place.group
        if group is not None and group.join is not None and part.reading.units:
            joined.setdefault(group, []).append(part)
    merged = 0
    for group, parts in joined.items():
        separator = group.join or ""
        texts = [part.reading.units[0].messages[0].text for part in parts]
        merged += sum([part.reading.tokens for part in parts])
        merged += (len(parts) - 1) * count.text(separator) - count.text(separator.join(texts))
    return merged


def _ignore_floors(draft: Draft) -> None:
    """Go on without floors: then no floor raises a ceiling either."""
    has_floors = any(part.limits.floor for part in draft.parts)
    for part in draft.parts:
        size, floor = part.slot.size, part.limits.floor
        bare = limits(draft.budget, size.max_ratio, max_tokens=size.max_tokens)
        part.limits = Limits(bare.cap, min(floor, bare.ceiling))
        if has_floors:
            part.reason = FALLBACK


def _need(draft: Draft, part: SlotPlan) -> int:
    """Return what is set aside for a slot: no more than it can use of it."""
    if part.stands:
        return fit(draft, part, sys.maxsize).tokens + _joining(draft, part)
    if part.slot.kind == "input":
        return least_input(part.reading, draft.counter)
    if part is draft.run and part.conversation is not None:
        return 0 if draft.fits_whole else run_need(draft, part, part.conversation)
    units = part.reading.units
    protected = sum([unit.tokens for unit in units if unit.is_protected])
    protected += sum(
        [least_size(unit) for unit in units if unit.never_leaves and not unit.is_protected]
    )
    floor = 0 if draft.fallback else part.limits.floor
    return max(protected, fit(draft, part, floor).tokens if floor else 0)


def _joining(draft: Draft, part: SlotPlan) -> int:
    """Return what a text adds to its joined message beside its own tokens."""
    group = part.slot.place.group
    if group is None or group.join is None:
        return 0
    return draft.counter.text(group.join) if group in draft.begun else draft.counter.overhead


# Rooms.


def _parties(draft: Draft) -> list[list[SlotPlan]]:
    """Return the slots in the order they are served; slots that share one pool are one party."""
    parties: list[list[SlotPlan]] = []
    sharing: dict[tuple[Group, Pool | None], list[SlotPlan]] = {}
    for part in draft.ranked:
        group, pool = part.slot.place.group, part.slot.pool
        if group is not None and group.share:
            if (group, pool) in sharing:
                sharing[group, pool].append(part)
                continue
            sharing[group, pool] = party = [part]
            parties.append(party)
        else:
            parties.append([part])
    return parties


def _serve_once(draft: Draft, parties: Sequence[Sequence[SlotPlan]]) -> None:
    draft.begun.clear()
    broken: set[Group] = set()
    free = _FreeRoom(draft.room)  # after what was given, and the needs of those not served yet
    for part in draft.ranked:
        part.view, part.beside = SlotView(), 0
        free.take(part.slot.pool, part.need)
    spare = free.window
    for party in parties:
        for part in party:
            free.take(part.slot.pool, -part.need)
        room = free.of(party[0].slot.pool)
        for part, (share, could) in zip(party, _divide_room(draft, party, room), strict=True):
            group = part.slot.place.group
            beside = _joining(draft, part)
            share = -1 if group in broken else share - beside
            part.open_room = max(share, could)
            part.room = min(share, part.limits.ceiling)
            part.view = fit(draft, part, part.room)
            if part.view.forms:
                part.beside = beside
                if group is not None:
                    draft.begun.add(group)
            # One that would not fit even beside nothing but needs breaks nothing.
            elif group and group.chain and part.reading.tokens + beside <= spare + part.need:
                broken.add(group)
            free.take(part.slot.pool, part.used)
        if len(party) > 1:
            _give_rest(draft, party, free)


def _give_rest(draft: Draft, party: Sequence[SlotPlan], free: _FreeRoom) -> None:
    """Let slots that can use nothing of their share have what the others did not use."""
    for part in party:
        if part.view.forms or part.slot.is_stepped:
            continue
        pool = part.slot.pool
        free.take(pool, -part.used)
        part.room = min(free.of(pool), part.limits.ceiling)
        part.view = fit(draft, part, part.room)
        free.take(pool, part.used)


def _divide_room(draft: Draft, party: Sequence[SlotPlan], room: int) -> list[tuple[int, int]]:
    """Divide a room among slots that share it, none below its need. Return what each gets, and
    what it could have: a conversation that has moved does not ask for all of it."""
    if len(party) == 1:
        return [(room, room)]
    room = max(0, room)
    asks = [min(_ask(draft, part), part.limits.ceiling) for part in party]
    weights = [part.slot.size.max_tokens for part in party]
    heavy = [max(1, room) if most is None else most for most in weights]
    needs = [min(ask, part.need) for ask, part in zip(asks, party, strict=True)]
    shares = fair_shares(room, asks, heavy, needs)
    rooms = []
    for place, part in enumerate(party):
        most = weights[place]
        wide = [*asks[:place], room if most is None else most, *asks[place + 1 :]]
        could = fair_shares(room, wide, heavy, needs) if part.slot.is_stepped else shares
        rooms.append((shares[place], could[place]))
    return rooms


def _ask(draft: Draft, part: SlotPlan) -> int:
    """Return what a slot would show if nothing had to give."""
    levels, conversation = NO_LEVELS, part.conversation
    if conversation is not None and part.slot.kind != "input":
        levels = conversation.lasting.joined(conversation.in_turn)
    ask = tokens_at(part.reading.units, levels)
    if part.slot.trim.marker is not None and part.slot.is_stepped and levels.gone:
        ask += marker_tokens(part.slot, draft.counter)
    return ask


# How a slot uses its room.


def fit(draft: Draft, part: SlotPlan, room: int) -> SlotView:
    """Return what a slot shows in a room; a negative room shows only what nothing may drop."""
    slot, conversation = part.slot, part.conversation
    if slot.required or (part.stands and slot.kind != "input"):
        return _fit_standing(draft, part)
    room = max(0, room)
    if slot.kind == "input":
        return _fit_input(draft, part, room)
    if conversation is not None and part is draft.run:
        return show_run(draft, part, conversation, room)
    if conversation is None or not part.is_head:
        levels = NO_LEVELS
    elif slot.is_stepped:
        return show_history(draft, part, conversation, room)
    else:
        levels, _ = levels_before(draft, conversation)
    floor = part.limits.floor
    floor = sys.maxsize if draft.fallback and floor else floor
    return shrink(part.reading, room, floor, draft.counter, levels)


def _fit_standing(draft: Draft, part: SlotPlan) -> SlotView:
    """Show what must stay; over a ceiling, characters of it are cut."""
    reading, cap = part.reading, part.limits.cap
    whole = show_whole(reading.units)
    if cap is None or whole.tokens <= cap or part.slot.trim.behavior != "char":
        return whole
    if part.slot.kind == "input":
        return shrink_input(reading, cap, draft.counter)
    for unit in reading.units:
        unit.is_protected = False
    view = shrink(reading, cap, 0, draft.counter, NO_LEVELS)
    for unit in reading.units:
        unit.is_protected = True
    return view if view.forms else whole


def _fit_input(draft: Draft, part: SlotPlan, room: int) -> SlotView:
    """Cut the middle of a long input; where a run is possible, to half of the window at most.
    During a turn the cut stays the same, so that the run behind it stays cached."""
    conversation = draft.conversation if part is draft.input else None
    remembered = None if conversation is None else conversation.input_tokens
    limit = room if remembered is None else min(room, remembered)
    if remembered is None and draft.may_run and part.reading.tokens > room:
        limit = min(limit, draft.budget // 2)
    return shrink_input(part.reading, limit, draft.counter)
