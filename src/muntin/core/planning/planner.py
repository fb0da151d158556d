"""The planner: decides what goes into a window, in one pass.

Priority decides what is in the window. The frontier decides only when a conversation moves inside
the room that priority gives it.

1. Read. Slots become units: messages that live and die together (`units`).
2. Need. Each slot is asked what it could use of its floor; that much is set aside for it.
3. Serve. Slots take room, from the best protected to the least protected: each as much as it can
   use of what the needs of the others leave. What it cannot use flows on.
4. Move. A conversation that has outgrown its room moves far enough not to move again soon: large
   texts are cut, old results become short, then stubs, then the oldest turns leave. It remembers
   how far (`memory`). Under `Exact()` it goes only as far as it must, and remembers nothing.
5. Lay out, in the author's order.

Every step asks a pure function what a slot would show in a room (`shrink`, `levels`); nothing is
tried and taken back. docs/design/planner.md has the rules and the reasons.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from operator import attrgetter

from muntin.core.counting.counter import Counter
from muntin.core.message import Message, role_of
from muntin.core.planning.compact import CUT, GONE, LADDER, LEAST, STUB
from muntin.core.planning.levels import (
    NO_LEVELS,
    Form,
    Levels,
    Shown,
    by_turn,
    lower,
    number_turns,
    show_at,
    show_whole,
    tokens_at,
)
from muntin.core.planning.limits import Limits, allocate, limits
from muntin.core.planning.memory import Past, Start, find_pasts
from muntin.core.planning.plan import Declaration, Plan
from muntin.core.planning.render import FALLBACK, OVER_BUDGET, SlotPlan, opens_with_user
from muntin.core.planning.shrink import (
    compact,
    least_input,
    marker_tokens,
    shrink,
    shrink_input,
    with_marker,
    without_oldest,
)
from muntin.core.planning.slot import EXACT, TIERS, Group, Pool, Recap, Slot, in_full
from muntin.core.planning.units import Reading, Unit, check_joined, is_blank, link, read_slot
from muntin.core.profile import OMITTED
from muntin.errors import NeedsConversation

_size_of = attrgetter("max_ratio", "min_ratio", "min_tokens", "max_tokens")


def plan_window(declared: Declaration) -> Plan:
    """Decide what goes into the window."""
    try:
        return _plan(declared)
    except NeedsConversation:  # one message means several: read such lists whole
        slots = tuple(in_full(slot) for slot in declared.slots)
        return _plan(replace(declared, slots=slots))


def _plan(declared: Declaration) -> Plan:
    counter, profile = declared.counter, declared.profile
    tools = counter.tools(declared.tools)
    budget = max(0, declared.budget.remaining_input_tokens - tools - counter.answer)
    slots = _split_question(_in_window_order(declared.slots))
    pasts = find_pasts(slots, declared.before.starts if declared.before else ())
    room = budget
    for _ in range(_ROUNDS):
        planner = Planner(slots, pasts, declared, budget, room)
        planner.serve()
        plans = planner.close()
        total = planner.total
        lead = 0
        if profile is not None and profile.user_first and not opens_with_user(plans):
            lead = counter.message(OMITTED)
        over, used = total + lead - budget, sum(map(planner.used, planner.shown))
        if over <= 0 or used > room or room == 0:
            break
        # A joined text may have a token more than its parts, and a lead needs room.
        room = max(0, used - over)
    answer = counter.answer if total + lead else 0  # an empty request has no answer
    tokens = total + lead + tools + answer
    starts = planner.remember()
    return Plan(
        declared, plans, starts, tokens, lead, tools, answer, planner.joined, planner.fallback
    )


_ROUNDS = 4


def _in_window_order(slots: Sequence[Slot]) -> list[Slot]:
    """Order slots by tier, then position (none: after all that have one), then as they were added.
    System text that was added before all else keeps the head, whatever the others ask for."""
    is_tiered = any(slot.place.tier for slot in slots)
    head = 0
    while head < len(slots) and _keeps_head(slots[head]):
        head += 1

    def key(slot: Slot) -> tuple[bool, int, bool, int, int]:
        place = slot.place
        tier = TIERS.index(place.tier or "volatile") if is_tiered else 0
        is_head = slot.index < head
        return not is_head, tier, place.position is None, place.position or 0, slot.index

    return sorted(slots, key=key)


def _keeps_head(slot: Slot) -> bool:
    place = slot.place
    if place.tier is not None or place.position is not None or slot.kind not in ("text", "list"):
        return False
    return all(role_of(message) == "system" for message in slot.messages)


def _split_question(slots: list[Slot]) -> list[Slot]:
    """Where no slot is the current input, and a conversation ends with the question of this turn
    and the work done since: take it apart, so that both are protected."""
    if any(slot.is_input and slot.messages for slot in slots):
        return slots
    place = next(
        (n for n in reversed(range(len(slots))) if slots[n].is_stepped and slots[n].messages), None
    )
    if place is None or slots[place].kind == "run":
        return slots
    slot = slots[place]
    messages = slot.messages
    run = len(messages)
    while run and role_of(messages[run - 1]) in ("assistant", "tool"):
        run -= 1
    asked = run
    while asked and role_of(messages[asked - 1]) == "user":
        asked -= 1
    if asked == run or role_of(messages[-1]) not in ("user", "tool"):
        return slots
    if run < len(messages) and role_of(messages[run]) == "tool":  # of a call before the question
        return slots
    plain = replace(slot.trim, trimming=EXACT, marker=None)
    parts = [replace(slot, messages=messages[:asked])]
    parts.append(replace(slot, messages=messages[asked:run], kind="input", trim=plain))
    if run < len(messages):
        parts.append(replace(slot, messages=messages[run:], kind="run"))
    return [*slots[:place], *parts, *slots[place + 1 :]]


@dataclass
class Planner:
    """One pass over the slots of a window; slots are numbered in window order.

    `budget` is what ratios are shares of, `room` what the window is to fit.
    """

    slots: Sequence[Slot]
    pasts: Sequence[Past]
    declared: Declaration
    budget: int
    room: int
    fallback: bool = False  # floors are ignored
    has_least_run: bool = False  # a run needs only its newest calls
    shown: dict[int, Shown] = field(default_factory=dict)
    # The room that each slot was given, before and after its ceiling.
    open_rooms: dict[int, int] = field(default_factory=dict)
    rooms: dict[int, int] = field(default_factory=dict)
    needs: dict[int, int] = field(default_factory=dict)
    # Tokens of a joined message beside its parts: its overhead and its separators.
    beside: dict[int, int] = field(default_factory=dict)
    begun: set[Group] = field(default_factory=set)  # joined messages that have a part already
    joined: int = 0

    def __post_init__(self) -> None:
        self.read()

    @property
    def counter(self) -> Counter:
        """How tokens are counted."""
        return self.declared.counter

    # 1. Reading.

    def read(self) -> None:
        counter = self.counter
        starts = {
            id(slot): max(0, past.lasting.gone - past.offset(slot))
            for past in self.pasts
            for slot in past.slots
        }
        self.readings = []
        for n, slot in enumerate(self.slots):
            limit = sys.maxsize
            # A run is read whole: a line says which of its calls are not shown.
            if slot.kind not in ("input", "run") and not slot.required:
                pooled = None if slot.pool is None else slot.pool.tokens
                mosts = self.budget, pooled, slot.size.max_tokens
                limit = max(min(m for m in mosts if m is not None), self.limits[n].floor)
            start = starts.get(id(slot), 0) if slot.is_stepped else 0
            self.readings.append(read_slot(slot, limit, counter, self.budget, start))
        link(self.readings, counter)
        check_joined(self.readings, counter)
        by_slot = {id(reading.slot): reading for reading in self.readings}
        for past in self.pasts:
            offset = turn = 0
            for slot in past.slots:
                turn = number_turns(by_slot[id(slot)].units, offset, turn)
                offset += len(slot.messages)
        is_calm = all(each.slot.priority == 0 or is_blank(each) for each in self.readings)
        required = {slot.index for slot in self.slots if slot.required}
        for reading in self.readings:
            is_required = reading.slot.required
            protects_system = is_calm and not reading.slot.is_joined
            if not (is_required or protects_system or (required and reading.is_scattered)):
                continue
            for unit in reading.units:
                unit.is_protected = (
                    is_required
                    or (protects_system and unit.is_system)
                    or (bool(unit.elsewhere) and any(n in required for n, _ in unit.elsewhere))
                )

    @cached_property
    def limits(self) -> list[Limits]:
        """The ceilings and floors of the slots."""
        return [limits(self.budget, *_size_of(slot.size)) for slot in self.slots]

    @cached_property
    def main(self) -> Past | None:
        """The conversation that holds the input and the run."""
        return self.pasts[-1] if self.pasts else None

    def _main_slot(self, kind: str) -> int | None:
        """Return which slot is the history, the input or the run of the main conversation."""
        found = [slot for slot in self.main.slots if slot.kind == kind] if self.main else []
        return self._number(found[0]) if found else None

    def _number(self, slot: Slot) -> int:
        """Return the place of a slot in the window's order."""
        return next(n for n, each in enumerate(self.slots) if each is slot)

    @cached_property
    def history(self) -> int | None:
        """The history that the run shares its room with."""
        return self._main_slot("list")

    @cached_property
    def input(self) -> int | None:
        """The current input."""
        inputs = [n for n, slot in enumerate(self.slots) if slot.is_input]
        return inputs[-1] if inputs else None

    @cached_property
    def run(self) -> int | None:
        """The run of the current turn."""
        return self._main_slot("run")

    # 2. What each slot may have and needs.

    def ceiling(self, n: int) -> int | None:
        """Return the most that a slot may have; floors that are ignored do not raise it."""
        return self.limits[n].fallback_cap if self.fallback else self.limits[n].cap

    def floor(self, n: int) -> int:
        """Return what a slot should have at least."""
        ceiling, floor = self.ceiling(n), self.limits[n].floor
        return floor if ceiling is None else min(floor, ceiling)

    def need(self, n: int) -> int:
        """Return what is set aside for a slot: no more than it can use of it."""
        slot, reading = self.slots[n], self.readings[n]
        if self._stands(n):
            return self.fit(n, sys.maxsize).tokens + self._joining(n)
        if slot.is_input:
            return least_input(reading, self.counter)
        if n == self.run:
            return self._run_need(n)
        protected = sum([unit.tokens for unit in reading.units if unit.is_protected])
        floor = 0 if self.fallback else self.floor(n)
        return max(protected, self.fit(n, floor).tokens if floor else 0)

    def _stands(self, n: int) -> bool:
        """Say whether nothing of a slot may be dropped."""
        units = self.readings[n].units
        return self.slots[n].required or all(unit.is_protected for unit in units)

    def _joining(self, n: int) -> int:
        """Return what a text adds to its joined message beside its own tokens."""
        slot = self.slots[n]
        group = slot.place.group
        if group is None or group.join is None:
            return 0
        return self.counter.text(group.join) if group in self.begun else self.counter.overhead

    def protection(self, n: int) -> tuple[int, int, int, int]:
        """Return how well a slot is protected: slots are served from the highest to the lowest."""
        slot = self.slots[n]
        if slot.required:
            return 2, 0, 0, n
        if slot.is_input and slot.priority == 0:
            return 1, 0, 0, n
        priority, rank = slot.priority, 0
        if n == self.run:  # one conversation with its history, and newer
            priority = priority if self.history is None else self.slots[self.history].priority
            rank = 1
        elif all(unit.is_system for unit in self.readings[n].units):
            rank = 2
        return 0, priority, rank, n

    # 3. Serving.

    def serve(self) -> None:
        """Give every slot its room. If room was set aside for a slot that did not use it, serve
        again without: needs only become smaller, so this ends."""
        if self._fits_whole():
            return
        parties = self.parties()
        self.needs = self._needs(parties)
        while True:
            self._serve_once(parties)
            unused = {n: self.used(n) for n in self.needs if self.used(n) < self.needs[n]}
            if not unused:
                return
            self.needs |= unused

    def _fits_whole(self) -> bool:
        """Show everything, if everything fits and no conversation has moved."""
        if any(past.lasting != NO_LEVELS or past.in_turn != NO_LEVELS for past in self.pasts):
            return False
        if any(past.input_tokens for past in self.pasts) or any(
            reading.beyond for reading in self.readings
        ):
            return False
        sizes = [reading.tokens for reading in self.readings]
        left = _Left(self.room)
        for n, slot in enumerate(self.slots):
            cap = self.limits[n].cap
            if cap is not None and sizes[n] > cap:
                return False
            left.take(slot.pool, sizes[n])
        self._take_joining(left)
        if self.room <= 0 or not left.is_enough:
            return False
        for n, reading in enumerate(self.readings):
            if not reading.units:
                continue
            self.shown[n] = show_whole(reading.units)
            self.rooms[n] = self.room - sum(sizes) + sizes[n]
            if reading.slot.is_stepped:  # what is less protected would give
                mine = self.protection(n)
                better = [size for m, size in enumerate(sizes) if self.protection(m) > mine]
                self.open_rooms[n] = self.room - sum(better)
        return True

    def _take_joining(self, left: _Left) -> None:
        """Take what joined messages add to the tokens of their parts: frames and separators. If
        they just do not fit so, count them as they are: tokens may merge where parts meet."""
        count, joined = self.counter, dict[Group, list[Reading]]()
        for reading in self.readings:
            if reading.slot.is_joined and reading.units:
                assert reading.slot.place.group is not None
                joined.setdefault(reading.slot.place.group, []).append(reading)
        added = {}
        for group, parts in joined.items():
            added[group] = count.overhead + (len(parts) - 1) * count.text(group.join or "")
            left.take(parts[0].slot.pool, added[group])
        if -_SEAM * sum(map(len, joined.values())) <= left.least < 0:
            for group, parts in joined.items():
                texts = [part.units[0].messages[0].text for part in parts]
                whole = count.overhead + count.text((group.join or "").join(texts))
                apart = added[group] + sum([part.tokens for part in parts])
                left.take(parts[0].slot.pool, whole - apart)

    def used(self, n: int) -> int:
        """Return what a slot takes of the window."""
        return self.shown[n].tokens + self.beside.get(n, 0)

    def _serve_once(self, parties: list[list[int]]) -> None:
        self.shown.clear()
        self.beside.clear()
        self.begun.clear()
        broken: set[Group] = set()
        needed = sum(self.needs.values())
        left = _Left(self.room)  # after what was given, and the needs of those not served yet
        for n, need in self.needs.items():
            left.take(self.slots[n].pool, need)
        for party in parties:
            for n in party:
                left.take(self.slots[n].pool, -self.needs[n])
            room = left.of(self.slots[party[0]].pool)
            for n, (part, could) in zip(party, self._divided(party, room), strict=True):
                group, ceiling = self.slots[n].place.group, self.ceiling(n)
                beside = self._joining(n)
                part = -1 if group in broken else part - beside
                self.open_rooms[n] = max(part, could)
                self.rooms[n] = part if ceiling is None else min(part, ceiling)
                self.shown[n] = self.fit(n, self.rooms[n])
                if self.shown[n].forms:
                    self.beside[n] = beside
                    if group is not None:
                        self.begun.add(group)
                elif group is not None and group.chain:
                    # One that would not fit even beside nothing but needs breaks nothing.
                    alone = self.room - needed + self.needs[n]
                    if self.readings[n].tokens + beside <= alone:
                        broken.add(group)
                left.take(self.slots[n].pool, self.used(n))
            self._give_rest(party, left)

    def _give_rest(self, party: list[int], left: _Left) -> None:
        """Let slots that can use nothing of their share have what the others did not use."""
        for n in party if len(party) > 1 else ():
            pool, ceiling = self.slots[n].pool, self.ceiling(n)
            if self.shown[n].forms or self.slots[n].is_stepped:
                continue
            left.take(pool, -self.used(n))
            room = left.of(pool)
            self.rooms[n] = room if ceiling is None else min(room, ceiling)
            self.shown[n] = self.fit(n, self.rooms[n])
            left.take(pool, self.used(n))

    def _needs(self, parties: list[list[int]]) -> dict[int, int]:
        """Return all needs. If they do not fit together, floors are ignored; if the rest does not
        fit either, a run needs only its newest calls."""
        needs: dict[int, int] = {}
        for self.fallback, self.has_least_run in ((False, False), (True, False), (True, True)):
            self.shown.clear()
            self.begun.clear()
            needs = {}
            for n in (n for party in parties for n in party):
                needs[n] = self.need(n)
                group = self.slots[n].place.group
                if needs[n] and group is not None:
                    self.begun.add(group)
            left = _Left(self.room)
            for n, need in needs.items():
                left.take(self.slots[n].pool, need)
            if left.is_enough:
                break
        return needs

    def parties(self) -> list[list[int]]:
        """Return the slots in the order they are served; slots that share are one party."""
        parties: list[list[int]] = []
        sharing: dict[Group, list[int]] = {}
        filled = [n for n, reading in enumerate(self.readings) if reading.units]
        for n in sorted(filled, key=self.protection, reverse=True):
            group = self.slots[n].place.group
            if group is not None and group.share and group in sharing:
                sharing[group].append(n)
                continue
            parties.append([n])
            if group is not None and group.share:
                sharing[group] = parties[-1]
        return parties

    def _divided(self, party: list[int], room: int) -> list[tuple[int, int]]:
        """Divide a room among slots that share it, none below its need. Return what each gets, and
        what it could have: a conversation that has moved does not ask for all of it."""
        if len(party) == 1:
            return [(room, room)]
        room = max(0, room)
        asks = [self._ask(n) for n in party]
        weights = [self.slots[n].size.max_tokens for n in party]
        heavy = [max(1, room) if most is None else most for most in weights]
        needs = [min(ask, self.needs[n]) for ask, n in zip(asks, party, strict=True)]
        shares = _fair_shares(room, asks, heavy, needs)
        rooms = []
        for place, n in enumerate(party):
            most = weights[place]
            wide = [*asks[:place], room if most is None else most, *asks[place + 1 :]]
            could = _fair_shares(room, wide, heavy, needs) if self.slots[n].is_stepped else shares
            rooms.append((shares[place], could[place]))
        return rooms

    def _ask(self, n: int) -> int:
        """Return what a slot would show if nothing had to give."""
        past = next((past for past in self.pasts if past.slots[0] is self.slots[n]), None)
        units, cap = self.readings[n].units, self.ceiling(n)
        levels = NO_LEVELS if past is None else past.lasting.joined(past.in_turn)
        ask = tokens_at(units, levels)
        if self.slots[n].trim.marker is not None and self.slots[n].is_stepped and levels.gone:
            ask += marker_tokens(self.slots[n], self.counter)
        return ask if cap is None else min(ask, cap)

    # 4. How a slot uses its room.

    def fit(self, n: int, room: int) -> Shown:
        """Return what a slot shows in a room; a negative room shows only what nothing may drop."""
        slot, reading = self.slots[n], self.readings[n]
        if not reading.units:
            return Shown([], 0)
        if slot.required or (self._stands(n) and not slot.is_input):
            return self._fit_standing(n)
        room = max(0, room)
        if slot.is_input:
            return self._fit_input(n, room)
        if n == self.run:
            return self._fit_run(n, room)
        past = next((past for past in self.pasts if past.slots[0] is slot), None)
        if past is not None and slot.is_stepped:
            return self._fit_history(n, past, room)
        floor = self.floor(n)
        floor = sys.maxsize if self.fallback and floor else floor
        levels = self._levels(past)[0] if past is not None else NO_LEVELS
        return shrink(reading, room, floor, self.counter, levels)

    def _fit_standing(self, n: int) -> Shown:
        """Show what must stay; over a ceiling, characters of it are cut."""
        reading, cap = self.readings[n], self.ceiling(n)
        whole = show_whole(reading.units)
        if cap is None or whole.tokens <= cap or self.slots[n].trim.behavior != "char":
            return whole
        if self.slots[n].is_input:
            return shrink_input(reading, cap, self.counter)
        for unit in reading.units:
            unit.is_protected = False
        shown = shrink(reading, cap, 0, self.counter, NO_LEVELS)
        for unit in reading.units:
            unit.is_protected = True
        return shown if shown.forms else whole

    def _fit_input(self, n: int, room: int) -> Shown:
        """Cut the middle of a long input; where a run is possible, to half of the window at most.
        During a turn the cut stays the same, so that the run behind it stays cached."""
        reading, past = self.readings[n], self.main if n == self.input else None
        known = past.input_tokens if past is not None else None
        limit = room if known is None else min(room, known)
        has_run = bool(self.declared.tools) or self.run is not None
        if known is None and has_run and reading.tokens > room:
            limit = min(limit, self.budget // 2)
        return shrink_input(reading, limit, self.counter)

    def _levels(self, past: Past) -> tuple[Levels, Levels]:
        """Return how far a conversation has moved for good, and in this turn. What a run does its
        history does too: both are one conversation, the oldest first."""
        lasting = past.lasting
        run = self.shown.get(self.run) if past is self.main and self.run is not None else None
        if run is not None and run.lasting is not None:
            lasting = lasting.joined(run.lasting)
        return lasting, past.in_turn

    def _fit_history(self, n: int, past: Past, room: int) -> Shown:
        """Stay where the conversation began, if that fits; else move.

        It moves for good if it has outgrown the room it usually has, to the low mark of that room.
        If it has not, other slots are unusually large: then it moves for this turn only.
        """
        units, recap = self.readings[n].units, past.recap
        lasting, in_turn = self._levels(past)
        front = self._tokens_of(recap)
        shown = show_at(units, lasting.joined(in_turn))
        if shown.tokens + front > room:
            usual = self._usual_room(n, past, room)
            if tokens_at(units, lasting) + front > max(usual, room):
                recap, lasting = self._move_for_good(n, past, lasting, usual)
                front = self._tokens_of(recap)
            shown = show_at(units, lasting.joined(in_turn))
        if shown.tokens + front > room:
            in_turn = self._moved(n, past, lasting.joined(in_turn), room - front)
            shown = show_at(units, in_turn)
        if shown.tokens + front > room and past is self.main and self.run is not None:
            # The newest turn alone does not fit, and requests of this turn will follow.
            older = [[each] for each in units[:-1] if each.role != "user"]
            most = max(0, room - front)
            in_turn = lower(units, in_turn, GONE, older, int(past.low * most), most)
            shown = show_at(units, in_turn)
        if shown.tokens + front > room:
            shown = self._without_oldest(n, shown, max(0, room - front))
        if recap is not None and shown.tokens + front <= room:
            shown.front, shown.tokens = (recap.message,), shown.tokens + front
        self._add_note(past, units, lasting, shown, room)
        shown = with_marker(self.readings[n], shown, room, self.counter)
        shown.lasting, shown.in_turn, shown.recap = lasting, in_turn, recap
        return shown

    def _tokens_of(self, recap: Recap | None) -> int:
        return 0 if recap is None else self.counter.message(recap.message)

    def _move_for_good(
        self, n: int, past: Past, levels: Levels, room: int
    ) -> tuple[Recap | None, Levels]:
        """Move, and put the newest summary in front if anything leaves with it."""
        newest, most = self.declared.recap if past is self.main else None, room // 4
        recap = past.recap
        if recap is not None and self._tokens_of(recap) > most:
            recap = None  # no longer worth its room
        if newest is not None and (past.recap is None or newest.until > past.recap.until):
            front = self._tokens_of(newest)
            moved = self._moved(n, past, levels, room - front)
            if front <= most and moved.gone > levels.gone:
                return newest, moved
        return recap, self._moved(n, past, levels, room - self._tokens_of(recap))

    def _moved(self, n: int, past: Past, levels: Levels, room: int) -> Levels:
        """Return the levels that leave a history at or below the low mark of its room, if the
        newest turn and the floor allow it."""
        units = self.readings[n].units
        floor = 0 if self.fallback else min(self.floor(n), room)
        room = max(0, room - marker_tokens(self.slots[n], self.counter))
        low = max(int(past.low * room), floor)
        levels, fits = compact(units, levels, room, low, floor=floor)
        return levels if fits else lower(units, levels, GONE, by_turn(units), low, room, floor)

    def _without_oldest(self, n: int, shown: Shown, room: int) -> Shown:
        """Leave out the oldest units of the newest turn; its question goes with its last unit."""
        units = [form.unit for form in shown.forms if not form.unit.is_protected]
        order = [*sorted(units[:-1], key=lambda unit: unit.role == "user"), *units[-1:]]
        floor = sys.maxsize if self.fallback and self.floor(n) else self.floor(n)
        return without_oldest(self.readings[n], shown, room, floor, self.counter, order)

    def _usual_room(self, n: int, past: Past, room: int) -> int:
        """Return the room that a history usually has: the smallest of the last turns but one, so
        that one odd turn does not count."""
        beside, ceiling = self._tokens_beside(n), self.ceiling(n)
        rooms = sorted(past.usual_rooms(self.open_rooms.get(n, room) + beside))
        usual = rooms[min(1, len(rooms) - 1)] - beside
        usual = usual if ceiling is None else min(usual, ceiling)
        return max(usual, min(self.floor(n), room), 0)

    def _tokens_beside(self, n: int) -> int:
        """Return the tokens of the input and the run, which are part of the conversation too."""
        if n != self.history:
            return 0
        beside = [m for m in (self.input, self.run) if m in self.shown]
        pool = self.slots[n].pool
        return sum(self.shown[m].tokens for m in beside if self.slots[m].pool == pool)

    def _add_note(
        self, past: Past, units: Sequence[Unit], levels: Levels, shown: Shown, room: int
    ) -> None:
        """Say in front of the first unit that is left of a turn which calls are gone."""
        calls = past.calls_gone(units, levels)
        if not calls:
            return
        names = ", ".join(f"{name} {count}" for name, count in calls.most_common(_NAMES))
        total = calls.total()
        line = f"[{total} earlier calls are not shown: {names}]"
        note = Message("user", line if total > 1 else f"[1 earlier call is not shown: {names}]")
        tokens = self.counter.message(note)
        if shown.tokens + tokens <= room:
            shown.note, shown.tokens = note, shown.tokens + tokens

    def _fit_run(self, n: int, room: int) -> Shown:
        """Old results become short, then stubs: first the history's, then the run's. Only if the
        run alone is still too large, its newest results are cut and its oldest calls leave."""
        past, units = self.main, self.readings[n].units
        assert past is not None
        lasting, in_turn = self._levels(past)
        before = levels = lasting.joined(in_turn)
        shown = show_at(units, levels)
        self._add_note(past, units, lasting, shown, room)
        history, ceiling = [], None
        if self.history is not None and self.slots[self.history].pool == self.slots[n].pool:
            history, ceiling = self.readings[self.history].units, self.ceiling(self.history)
        both = room
        if ceiling is not None:  # what is above it will not be shown anyway
            both += max(0, tokens_at(history, levels) - ceiling)
        if tokens_at(history, levels) + shown.tokens <= both:
            return shown
        low = int(past.low * both)
        levels, _ = compact(history, levels, both - shown.tokens, max(0, low - shown.tokens))
        levels, _ = compact([*history, *units], levels, both, low, self._newest_groups(n))
        shown = self._with_newest_cut(n, levels, room)
        if shown.tokens > room:
            newest = [unit for unit in units if unit.is_group][-1:] or units[-1:]
            earlier = [[unit] for unit in units if unit.position < newest[0].position]
            few = min(room, int(past.low * self.budget) // 2)
            levels = lower(units, levels, GONE, earlier, few - _NOTE, room)
            shown = self._with_newest_cut(n, levels, room)
        # Levels of this turn alone stay so, unless the run went beyond them.
        raised = zip(astuple(levels), astuple(before), astuple(lasting), strict=True)
        shown.lasting = Levels(*[new if new > old else kept for new, old, kept in raised])
        self._add_note(past, units, levels, shown, room)
        return shown

    def _newest_groups(self, n: int) -> int:
        return (self.slots[n].trim.ladder or LADDER).keep_groups

    def _run_need(self, n: int) -> int:
        """Return the tokens of a run whose old results are stubs; half of the window at most."""
        if self.has_least_run:
            return self._fit_run(n, 0).tokens
        past, units = self.main, self.readings[n].units
        assert past is not None
        levels = past.lasting.joined(past.in_turn).raised(CUT, units[-1].position + 1)
        groups = [unit for unit in units if unit.is_group]
        older = groups[: max(0, len(groups) - self._newest_groups(n))]
        if older:
            levels = levels.raised(STUB, older[-1].position + 1)
        tokens = tokens_at(units, levels)
        half = self.budget // 2
        return tokens if tokens <= half else self._fit_run(n, half).tokens

    def _with_newest_cut(self, n: int, levels: Levels, room: int) -> Shown:
        """Cut the results of the newest calls to equal shares of the room, 64 tokens at least."""
        shown = show_at(self.readings[n].units, levels)
        over = shown.tokens - room
        groups = [place for place, form in enumerate(shown.forms) if form.unit.is_group]
        newest = groups[max(0, len(groups) - max(1, self._newest_groups(n))) :]
        cuttable = [
            (place, number)
            for place in newest
            for number, message in enumerate(shown.forms[place].messages)
            if message.tool_call_id is not None
        ]
        if over <= 0 or not cuttable:
            return shown
        forms = shown.forms[newest[0]].unit.compactor.forms
        sizes = [forms.content_tokens(shown.forms[p].messages[i]) for p, i in cuttable]
        least = [min(size, LEAST) for size in sizes]
        shares = _fair_shares(sum(sizes) - over, sizes, [1] * len(sizes), least)
        for (place, number), size, share in zip(cuttable, sizes, shares, strict=True):
            if share >= size:
                continue
            form = shown.forms[place]
            messages = list(form.messages)
            whole = form.unit.messages[number]
            messages[number] = forms.result(whole, share)
            change = forms.content_tokens(messages[number]) - size
            if change < 0:
                shown.forms[place] = Form(form.unit, tuple(messages), form.tokens + change, "short")
                shown.tokens += change
        return shown

    # 5. The window, and what is remembered.

    @property
    def total(self) -> int:
        """The tokens of the window's messages."""
        return sum([shown.tokens for shown in self.shown.values()]) + self.joined

    def close(self) -> tuple[SlotPlan, ...]:
        """Return what was decided about every slot, in window order."""
        asked = self.input
        if asked in self.shown and sum(map(self.used, self.shown)) > self.room:
            assert asked is not None
            self.shown[asked] = show_whole(self.readings[asked].units)  # cutting it was in vain
        self.joined = self._joined_tokens()
        elsewhere = self._results_elsewhere()
        ignores_floors = self.fallback and any(each.floor for each in self.limits)
        served = sorted(self.needs, key=self.protection)  # nothing, if everything fits
        order = {n: place for place, n in enumerate(served)}
        offsets: dict[int, int] = {}  # parts of one declared slot stand one behind the other
        pasts = {id(slot): past for past in self.pasts for slot in past.slots}
        plans = []
        for n, reading in enumerate(self.readings):
            slot = reading.slot
            past = pasts.get(id(slot))
            plans.append(
                SlotPlan(
                    reading,
                    Limits(self.ceiling(n), self.floor(n), None),
                    self.shown.get(n) or Shown([], 0),
                    self.rooms.get(n, 0),
                    FALLBACK if ignores_floors else OVER_BUDGET,
                    order.get(n, 0),
                    tuple(elsewhere.get(slot.index, ())),
                    past,
                    None if past is None else self._levels_after(past),
                    offsets.get(slot.index, 0),
                )
            )
            offsets[slot.index] = offsets.get(slot.index, 0) + len(slot.messages)
        return tuple(plans)

    def _results_elsewhere(self) -> dict[int, list[tuple[int, Message | None]]]:
        """Return the results that stand in other slots than their calls: by slot, with their
        places; None for a result that was dropped with its call."""
        found: dict[int, list[tuple[int, Message | None]]] = {}
        for n, reading in enumerate(self.readings):
            if not reading.is_scattered:
                continue
            forms = {id(form.unit): form for form in self.shown[n].forms} if n in self.shown else {}
            for unit in reading.units:
                form = forms.get(id(unit)) if unit.elsewhere else None
                for number, (slot, index) in enumerate(unit.elsewhere, len(unit.indices)):
                    message = None if form is None else form.messages[number]
                    found.setdefault(slot, []).append((index, message))
        return found

    def _joined_tokens(self) -> int:
        """Return what joining adds to the sum of the parts: frames, separators, merged tokens."""
        added = 0
        groups = {slot.place.group for slot in self.slots if slot.is_joined}
        for group in groups:
            assert group is not None
            assert group.join is not None
            parts = [
                self.shown[n] for n in sorted(self.shown) if self.slots[n].place.group == group
            ]
            texts = [form.messages[0].text for shown in parts for form in shown.forms]
            if texts:
                whole = self.counter.overhead + self.counter.text(group.join.join(texts))
                added += whole - sum([shown.tokens for shown in parts])
        return added

    def _levels_after(self, past: Past) -> tuple[Levels, Levels]:
        """Return how far a conversation has moved after this window: for good, and in this turn."""
        lasting, in_turn = past.lasting, past.in_turn
        for slot in past.slots:
            shown = self.shown.get(self._number(slot))
            if shown is not None and shown.lasting is not None:
                lasting = lasting.joined(shown.lasting)
            if shown is not None and shown.in_turn is not None:
                in_turn = in_turn.joined(shown.in_turn)
        return lasting, in_turn

    def remember(self) -> tuple[Start, ...]:
        """Return what the next window must know of the conversations of this one."""
        starts = []
        for past in self.pasts:
            if not past.is_stepped:
                continue
            lasting, in_turn = self._levels_after(past)
            numbers = [self._number(slot) for slot in past.slots]
            units = [unit for n in numbers for unit in self.readings[n].units]
            head, room, recap = numbers[0], None, past.recap
            if self.slots[head].kind == "list" and head in self.open_rooms:
                room = self.open_rooms[head] + self._tokens_beside(head)
                shown = self.shown[head]
                recap = recap if shown.lasting is None else shown.recap
            after = replace(
                past,
                lasting=lasting,
                in_turn=in_turn,
                recap=recap,
                missing=tuple(sorted(past.calls_gone(units, lasting).items())),
                input_tokens=past.input_tokens if past.is_same_turn else None,
            )
            asked = self.shown.get(self.input) if self.input is not None else None
            if past is self.main and asked and any(f.status == "trimmed" for f in asked.forms):
                after.input_tokens = asked.tokens
            starts.append(after.start(room))
        return tuple(starts)


@dataclass
class _Left:
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

    @property
    def is_enough(self) -> bool:
        return self.least >= 0

    def of(self, pool: Pool | None) -> int:
        return self.window if pool is None else min(self.window, self.pools[pool])


# About so many tokens may merge where two texts are joined.
_SEAM = 8
# A note about missing calls names so many tools, and has about so many tokens.
_NAMES, _NOTE = 8, 32


def _fair_shares(
    pot: int, asks: Sequence[int], weights: Sequence[int], needs: Sequence[int]
) -> list[int]:
    """Divide a pot fairly by weight; none gets less than it needs."""
    shares = list(needs)
    free = list(range(len(asks)))
    while free:
        left = pot - sum([needs[n] for n in range(len(asks)) if n not in free])
        parts = allocate(max(0, left), [asks[n] for n in free], [weights[n] for n in free])
        enough = [n for n, part in zip(free, parts, strict=True) if part >= needs[n]]
        if len(enough) == len(free):
            for n, part in zip(free, parts, strict=True):
                shares[n] = part
            break
        free = enough
    return shares
