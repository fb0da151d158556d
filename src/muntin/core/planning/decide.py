"""Deciding: the only place where decisions are taken.

The plan
--------
`decide` is a pure function of what was declared: slots, budget, tokenizer, tools, profile, and the
frontier that the turn before left. The same declaration gives the same plan, byte for byte.

A slot is read (`intake`, `read`) as far back as anything of it could fit, in units: messages that
live and die together (a call with its results, reasoning with its message). Units are never
changed. What is decided about a unit is entered in the books (`books`), the only part that changes:
a verdict for each unit that gives something, the size of each slot, and the total. When all rules
have been applied, the books are closed. The closed books are the plan.

The rules, in the order of RULES
--------------------------------
    apply_ceilings      every slot over its ceiling gives, even if everything would fit
    tell_of_starts      a history that begins late says so, if it has a marker
    fall_back           if what must stay does not fit together, floors are ignored, and ceilings
                        that floors had raised are applied again
    take_room           slots take room, from the one that goes last to the one that goes first
    spare_input         if it still does not fit, the input is whole again: cutting it was in vain

Slots go in the order of `takers.in_order`: the lowest priority first, of equals the earliest slot,
the current input last. A slot may take the room that later slots have left, less the room that
earlier slots need: their floors, and all that nothing may drop. How it uses that room is its own
affair (`takers`): one slot drops or cuts just enough (`trim`), joined texts go whole, slots that
share divide it, histories step. So all needs are met, and a slot that does not fit takes nothing.

A slot that is dropped whole costs no other slot anything
---------------------------------------------------------
A slot may be dropped although room was kept for it: for a floor that its content cannot meet, for a
share too small for its message, for room under a history. Or its priority took the protection of
the system messages away. Then all is decided again without the slot: the window is the one that the
other slots alone would give. The same holds for a tool group that one slot has kept and another
slot could not keep later. Each time one more slot or group is left out, so this ends.

A lesson may come from a slot that stood in the window then and is dropped in the end. Such a slot
is left out first, and all is decided again. Each time one more slot is left out, so this ends too.

Three slots can form a circle, where the floor belongs to a text that only goes whole: each slot
would stay if one of the others were not there. Then no window equals the window without the slots
that it dropped. In that case the slot that goes last stays.

While the books are open, a unit only becomes smaller: kept, trimmed, dropped. Trials are the
exception: a trial that fails (a text that cannot be cut far enough, a marker for which there is no
room) is taken back by the journal. `spare_input` is the last trial.

A unit with parts in other slots takes these parts with it. The room that they free in slots that
have taken their room goes to the slot that is taking its own.

What stepping does
------------------
A history under `Stepped` begins at its frontier and is read from there. If it has grown beyond its
high level, reading moves the frontier, far enough not to move again soon. If the window then does
not fit although everything that is gone next turn has gone, the history steps beyond: its frontier
moves in the books, the rules run to their end, and everything is read again from the new frontier.
A frontier only moves forward, so this ends too. The frontier is searched where the turn before left
it; the place where it was found, or to which it moved, is passed to the next turn.

A lead
------
Some providers want a user's message first. If the window has none, one is put in front when the
window is sent, and counted here. If there is no room for this lead, the window gives a little more,
until the lead fits or is no longer needed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from muntin.core.message import role_of
from muntin.core.planning.books import OVER_CAP, Books, Lessons
from muntin.core.planning.intake import read_all
from muntin.core.planning.plan import Declaration, Plan
from muntin.core.planning.read import Reading
from muntin.core.planning.render import opens_with_user
from muntin.core.planning.run import go_down
from muntin.core.planning.slot import TIERS, Slot, Stepped, changed, in_full
from muntin.core.planning.step import Ground, SteppedSlot, find_again
from muntin.core.planning.takers import in_order
from muntin.core.planning.trim import least_of, shrink
from muntin.core.planning.verdict import Verdict
from muntin.core.profile import OMITTED
from muntin.errors import NeedsConversation

_NOTHING = Lessons()


def decide(declared: Declaration) -> Plan:
    """Decide what goes into the window."""
    try:
        return _decide(declared)
    except NeedsConversation:  # one message means several: read such lists whole
        slots = tuple(in_full(slot) for slot in declared.slots)
        return _decide(replace(declared, slots=slots))


def _decide(declared: Declaration) -> Plan:
    counter, profile, before = declared.counter, declared.profile, declared.before
    tools = counter.tools(declared.tools)
    ground = Ground(tools, profile.caching if profile is not None else None)
    room = max(0, declared.budget.remaining_input_tokens - tools - counter.answer)
    slots = _asking(_in_window_order(declared.slots))
    steps: Mapping[int, SteppedSlot] = find_again(
        slots, before.starts if before else (), counter.message
    )

    def attempt(
        steps: Mapping[int, SteppedSlot], goal: int, start: Lessons
    ) -> tuple[Books, Lessons]:
        known = start
        while True:
            intake = read_all(slots, steps, ground, counter, room, goal, known.slots)
            books = Books(intake, None if known is _NOTHING else known)
            for rule in RULES:
                rule(books)
            if books.stepped:
                steps = books.steps
                continue
            learnt = learn(books, known, start)
            if learnt is None:
                return books, known
            known = learnt

    def balance(steps: Mapping[int, SteppedSlot], goal: int) -> Books:
        start = _NOTHING
        books, known = attempt(steps, goal, start)
        while vain := _taught_in_vain(books, known):
            start = _without(books, vain, start)
            others, known = attempt(steps, goal, start)
            if not _standing(books) <= _standing(others):
                break  # a circle
            books = others
        if known is not _NOTHING:
            in_order(books)  # the slots left out went in some order too
        return books

    books = balance(steps, room)
    lead = 0
    if profile is not None and profile.user_first and not opens_with_user(books.close()):
        lead = counter.message(OMITTED)
        while lead and books.goal >= books.total > room - lead:
            books = balance(books.steps, books.total - 1)
            lead = 0 if opens_with_user(books.close()) else lead
    answer = counter.answer if books.total + lead else 0  # an empty request has no answer
    tokens = books.total + lead + tools + answer
    closed = books.close()
    return Plan(declared, closed, tokens, lead, tools, answer, books.added, books.fallback)


def _in_window_order(slots: Sequence[Slot]) -> list[Slot]:
    tiered = any(slot.tier for slot in slots)

    def key(slot: Slot) -> tuple[int, bool, int, int]:
        tier = TIERS.index(slot.tier or "volatile") if tiered else 0
        return tier, slot.position is None, slot.position or 0, slot.index

    return sorted(slots, key=key)


def _asking(slots: list[Slot]) -> list[Slot]:
    """Mark the last history as holding the question, if no slot is the current input."""
    if any(slot.is_input and slot.messages for slot in slots):
        return slots
    for place in reversed(range(len(slots))):
        slot = slots[place]
        if isinstance(slot.trimming, Stepped) and slot.messages:
            if not slot.run and role_of(slot.messages[-1]) in ("user", "tool"):
                slots[place] = changed(slot, asks=True)
            break
    return slots


def apply_ceilings(books: Books) -> None:
    """Trim every slot that is over its ceiling."""
    for each in books.readings:
        slot = each.slot
        limits = books.limits[slot.index]
        if limits.cap is None or books.sizes[slot.index] <= limits.cap:
            continue
        if each.start is not None and not slot.is_input:
            books.step(each, limits.cap)
            continue
        cut_at = limits.cap if books.fallback and limits.floor else limits.floor
        go_down(books, each, limits.cap, None)
        shrink(books, each, limits.cap, cut_at=cut_at)
        if slot.group is not None and slot.group.join is not None:
            books.recount(slot.group)


def tell_of_starts(books: Books) -> None:
    """Put a marker before every history that begins late."""
    for each in books.readings:
        if each.start and each.slot.marker is not None:
            shrink(books, each, sys.maxsize)  # only to say what is missing


def fall_back(books: Books) -> None:
    """Ignore floors if the parts that must stay do not fit together; then begin to take room."""
    if books.total <= books.goal:
        return
    books.asked, books.asks = books.total, {**books.sizes, **books.asks}
    books.begin_taking()
    if books.taken + sum([taker.need(books) for taker in in_order(books)]) > books.goal:
        books.ignore_floors()
        apply_ceilings(books)
        books.begin_taking()


def take_room(books: Books) -> None:
    """Let slots take room, from the slot that goes last on, each what others do not need."""
    if books.total <= books.goal:
        return
    takers = in_order(books)
    needs = [taker.need(books) for taker in takers]
    needed = sum(needs)
    books.spare = books.goal - books.taken - needed
    for taker, need in zip(reversed(takers), reversed(needs), strict=True):
        needed -= need
        taker.take(books, books.goal - books.taken - needed)


def spare_input(books: Books) -> None:
    """Make the input whole again, if cutting it was in vain."""
    if books.total > books.goal:
        books.give_back([each for each in books.readings if each.slot.is_input])


RULES: tuple[Callable[[Books], None], ...] = (
    apply_ceilings,
    tell_of_starts,
    fall_back,
    take_room,
    spare_input,
)


def learn(books: Books, known: Lessons, start: Lessons) -> Lessons | None:
    """Return the lessons of this attempt, if the window is to be decided again with them; None if
    not. `start` are the lessons known before the first attempt."""
    torn = [each for unit in books.torn if books.is_dropped(unit) for each in books.family(unit)]
    if torn:
        found = {each.key: books.verdict(each) for each in torn}
        units = {key: verdict for key, verdict in found.items() if verdict is not None}
        return replace(known, units={**known.units, **units})
    if books.total > books.goal:
        stuck = {each.slot.index for each in books.readings if _is_stuck(books, each)}
        if stuck:
            return replace(known, stuck=known.stuck | stuck)
    gone = [each for each in books.readings if books.is_empty(each)]
    costly = _kept_room(books, [each for each in gone if each.slot.index not in known.slots])
    if costly:
        return replace(_without(books, costly, known), stood=known.stood | _standing(books))
    eager = () if known.calm else _priorities_in_vain(books, gone)
    # The system messages are protected again: a slot that had no place before may have one now.
    return _without(books, eager, replace(start, calm=True)) if eager else None


def _without(books: Books, costly: Sequence[Reading], known: Lessons) -> Lessons:
    """Return lessons that leave these slots out too."""
    slots = {each.slot.index: _last_word(books, each) for each in costly}
    all_of_it = sum(books.asks.values()) - books.goal
    short = {
        index: all_of_it - books.asks.get(index, 0)  # the slot may have been read in part
        for index, last in slots.items()
        if last.reason != OVER_CAP
    }
    return replace(known, slots={**known.slots, **slots}, short={**known.short, **short})


def _standing(books: Books) -> frozenset[int]:
    """Return the slots of which something stands in the window."""
    return frozenset(
        each.slot.index for each in books.readings if each.units and not books.is_empty(each)
    )


def _taught_in_vain(books: Books, known: Lessons) -> Sequence[Reading]:
    """Return the slots that stood when a lesson was learnt, and were then dropped themselves."""
    vain = known.stood and known.stood - _standing(books) - set(known.slots)
    return [each for each in books.readings if each.slot.index in vain]


def _is_stuck(books: Books, reading: Reading) -> bool:
    """Say whether the input is whole again although it could be smaller."""
    slot = reading.slot
    if not slot.is_input or slot.required:
        return False
    return least_of(books, reading) < books.sizes[slot.index]


def _kept_room(books: Books, gone: Sequence[Reading]) -> Sequence[Reading]:
    """Return the first dropped slot, in order, because of which other slots had less room."""

    def turn(each: Reading) -> tuple[int, int]:
        return books.order.get(each.slot.index, 0), each.slot.priority

    return [each for each in sorted(gone, key=turn) if _was_kept_room(books, each)][:1]


def _priorities_in_vain(books: Books, gone: Sequence[Reading]) -> Sequence[Reading]:
    """Return the slots whose priority took away the protection of system messages, if all of them
    were dropped."""
    if not any(unit.system for each in books.readings for unit in each.units):
        return []
    left = {each.slot.index for each in gone}
    rest = [each for each in books.readings if each.units and each.slot.index not in left]
    if any(each.slot.priority for each in rest):
        return []
    return [each for each in gone if each.units and each.slot.priority]


def _was_kept_room(books: Books, reading: Reading) -> bool:
    """Say whether other slots had less room because of a slot that was dropped."""
    slot = reading.slot
    if books.steps and slot.lasting and slot.index not in books.steps:
        return True  # the histories made room for this slot
    if _last_word(books, reading).reason == OVER_CAP:
        return False
    floor = books.limits[slot.index].floor and not books.fallback
    return bool(floor) or (slot.group is not None and slot.group.share)


def _last_word(books: Books, reading: Reading) -> Verdict:
    """Return the last verdict about a dropped slot, which stands for the whole slot."""
    verdicts = [books.verdict(unit) for unit in reading.units]
    return max((each for each in verdicts if each is not None), key=lambda each: each.rank)
