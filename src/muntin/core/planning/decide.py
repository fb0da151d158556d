"""Deciding: the only place where decisions are taken.

What a plan is
--------------
`decide` is a pure function of what was declared: slots, budget, tokenizer, tools, profile, and the
frontier that the turn before left. The same declaration gives the same plan, byte for byte.

A slot is read (`intake`, `read`) as far back as anything of it could fit, in units: messages that
live and die together (a call with its results, reasoning with its message). Units are never
changed. What becomes of them is entered in the books (`books`), the one thing that changes: a
verdict for each unit that gives something, the size of each slot, and the total. When the rules
have been applied, the books are closed, and what stands in them is the plan.

The rules, in the order of RULES
--------------------------------
    apply_ceilings      every slot over its ceiling gives, even if everything would fit
    tell_of_starts      a history that begins late says so, if it has a marker
    fall_back           if what must stay does not fit together, floors are ignored, and ceilings
                        that floors had raised are applied again
    give_to_floors      givers give in turn until the window fits, none below its floor
    give_below_floors   the budget wins: they give once more, below their floors
    spare_input         if it still does not fit, the input gets back what it gave in vain

Which giver is asked first is `givers.in_order`: the lowest priority, of equals the earliest slot,
the current input last. How much it gives is its own affair (`givers`): one slot drops or cuts just
enough (`trim`), joined texts go whole, slots that share divide what is left, histories step.

Why giving is monotone
----------------------
While the books are open, a unit only ever becomes smaller: kept, trimmed, dropped. A giver is asked
for what is over *now*, so what one has given, the next need not give; and a giver that has given
all it may is left alone. Hence two passes over the givers are enough, and they end. The exceptions
are trials: an attempt that fails (a text that cannot be cut far enough, a marker for which there is
no room) is rewound from the journal as if it had not been made, and `spare_input` is the last of
them. Ranks are not rewound: they tell the report in which order things were tried.

A unit with parts in other slots takes them with it. What they free there need not be given here, so
the size that a slot is to come down to rises by as much.

What stepping does
------------------
A history under `Stepped` begins at its frontier and is read from there. If it has grown beyond its
high level, the reading itself moves the frontier, far enough not to move again soon. If the window
then does not fit although all that is gone next turn has given, the history steps beyond: its
frontier moves in the books, the rules run to their end, and everything is read again from the new
frontier. A frontier only ever moves forward, so this ends too. What the turn before knew of the
frontier decides where it is looked for; where it was found or moved to, the next turn is told.

A lead
------
Some providers want a user's message first; where the window has none, one is put in front when it
is sent, and counted here. If there is no room for it, the window gives a little more, until the
lead fits or is not needed any more.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from muntin.core.planning.books import Books
from muntin.core.planning.givers import in_order
from muntin.core.planning.intake import read_all
from muntin.core.planning.plan import Declaration, Plan
from muntin.core.planning.read import Reading
from muntin.core.planning.render import opens_with_user
from muntin.core.planning.slot import TIERS, Slot, in_full
from muntin.core.planning.step import Ground, SteppedSlot, find_again
from muntin.core.planning.trim import shrink
from muntin.core.profile import OMITTED
from muntin.errors import NeedsConversation


def decide(declared: Declaration) -> Plan:
    """Decide what goes into the window."""
    try:
        return _decide(declared)
    except NeedsConversation:  # a message of another maker's means several: read such lists whole
        slots = tuple(in_full(slot) for slot in declared.slots)
        return _decide(replace(declared, slots=slots))


def _decide(declared: Declaration) -> Plan:
    counter, profile, before = declared.counter, declared.profile, declared.before
    tools = counter.tools(declared.tools)
    ground = Ground(tools, profile.caching if profile is not None else None)
    room = max(0, declared.budget.remaining_input_tokens - tools)
    slots = _in_window_order(declared.slots)
    steps: Mapping[int, SteppedSlot] = find_again(slots, before.starts if before else ())

    def balance(steps: Mapping[int, SteppedSlot], goal: int) -> Books:
        while True:
            books = Books(read_all(slots, steps, ground, counter, room, goal))
            for rule in RULES:
                rule(books)
            if not books.stepped:
                return books
            steps = books.steps

    books = balance(steps, room)
    lead = 0
    if profile is not None and profile.user_first and not opens_with_user(books.close()):
        lead = counter.message(OMITTED)
        while lead and books.goal >= books.total > room - lead:
            books = balance(books.steps, books.total - 1)
            lead = 0 if opens_with_user(books.close()) else lead
    tokens = books.total + lead + tools
    return Plan(declared, books.close(), tokens, lead, tools, books.added, books.fallback)


def _in_window_order(slots: Sequence[Slot]) -> list[Slot]:
    tiered = any(slot.tier for slot in slots)

    def key(slot: Slot) -> tuple[int, bool, int, int]:
        tier = TIERS.index(slot.tier or "volatile") if tiered else 0
        return tier, slot.position is None, slot.position or 0, slot.index

    return sorted(slots, key=key)


def apply_ceilings(books: Books) -> None:
    """Trim every slot that is over its ceiling."""
    for each in books.readings:
        slot = each.slot
        limits = books.limits[slot.index]
        if limits.cap is None or books.sizes[slot.index] <= limits.cap:
            continue
        if each.start is not None:
            books.step(each, limits.cap)
            continue
        shrink(books, each, limits.cap, cut_at=limits.floor)
        if slot.group is not None and slot.group.join is not None:
            books.recount(slot.group)


def tell_of_starts(books: Books) -> None:
    """Put a marker before every history that begins late."""
    for each in books.readings:
        if each.start and each.slot.marker is not None:
            shrink(books, each, sys.maxsize)  # only to say what is missing


def fall_back(books: Books) -> None:
    """Ignore floors if what must stay does not fit together; then begin giving."""
    if sum([_need(books, each) for each in books.readings]) > books.goal:
        books.ignore_floors()
        apply_ceilings(books)
    books.begin_giving()


def _need(books: Books, each: Reading) -> int:
    """Return what a slot must keep: its floor, and all that no pressure may drop."""
    slot = each.slot
    held = 0
    if slot.required or not slot.is_input:
        held = sum([books.tokens(unit) for unit in books.held(each)])
    return max(min(books.limits[slot.index].floor, books.sizes[slot.index]), held)


def give_to_floors(books: Books) -> None:
    """Let the givers give in turn, none below its floor."""
    _give(books, floors=True)


def give_below_floors(books: Books) -> None:
    """Let the givers give in turn, all they may."""
    _give(books, floors=False)


def _give(books: Books, *, floors: bool) -> None:
    for giver in in_order(books) if books.total > books.goal else ():
        over = books.total - books.goal
        if over <= 0:
            return
        giver.give(books, over, floors=floors)


def spare_input(books: Books) -> None:
    """Give the input back what it gave, if that was in vain."""
    if books.total > books.goal:
        books.give_back([each for each in books.readings if each.slot.is_input])


RULES: tuple[Callable[[Books], None], ...] = (
    apply_ceilings,
    tell_of_starts,
    fall_back,
    give_to_floors,
    give_below_floors,
    spare_input,
)
