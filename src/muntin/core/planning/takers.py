"""Takers: the ways in which slots take the room that is left for them.

One slot alone, texts that are joined, slots that share, and histories that step, behind one small
protocol. Other modules decide in which order they take, and how much room is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from muntin.core.planning.books import Books
from muntin.core.planning.limits import allocate
from muntin.core.planning.question import cut_question
from muntin.core.planning.read import Reading
from muntin.core.planning.run import cut_newest, go_down
from muntin.core.planning.slot import Group
from muntin.core.planning.trim import least_of, shrink

# A joined text may have this many tokens more or less than its parts; near the limit it is counted.
_SEAM = 16
# A cut of a part frees a little more or less in the joined text: this many rounds are tried.
_CUT_ROUNDS = 8


class Taker(Protocol):
    """A slot, or several that act together."""

    def need(self, books: Books) -> int:
        """Return the tokens that must be kept for it, whatever other slots take."""

    def take(self, books: Books, room: int) -> None:
        """Keep as much as its rules allow of `room` tokens."""


@dataclass(frozen=True, slots=True)
class OneSlot:
    """A slot that is trimmed as its rules ask for."""

    reading: Reading

    def need(self, books: Books) -> int:
        """Return the floor of the slot, or the tokens that nothing may drop, if these are more."""
        slot = self.reading.slot
        size, floor = books.sizes[slot.index], books.limits[slot.index].floor
        floor = 0 if books.fallback else min(floor, size)
        return max(floor, least_of(books, self.reading))

    def take(self, books: Books, room: int, over: int | None = None) -> None:
        """Come down to the room there is; `over` is the room that would keep all."""
        size = books.sizes[self.reading.slot.index]
        if self.reading.slot.group in books.broken:
            over, room = max(1, size - room), 0
        if size > room:
            self.fit(books, room, over)
        books.seat(self.reading)

    def fit(self, books: Books, room: int, over: int | None) -> None:
        """Trim the slot; a slot that has, or had, a floor is cut rather than dropped below it."""
        slot = self.reading.slot
        if slot.required:
            books.unmark(slot.index)  # all its messages stay
            return
        if slot.ladder is not None:
            go_down(books, self.reading, room, over)
        floor = books.limits[slot.index].floor
        cut_at = (room if books.fallback else min(floor, room)) if floor else 0
        shrink(books, self.reading, room, cut_at=max(0, cut_at), over=over)


class Stepping(OneSlot):
    """A history that is larger than its room: it steps, and all is read again."""

    def fit(self, books: Books, room: int, over: int | None) -> None:
        """Begin later, or go down; the newest calls of a run are cut."""
        books.step(self.reading, max(0, room))
        if not books.stepped:
            cut_newest(books, self.reading, room, over)
            cut_question(books, self.reading, room, over)


@dataclass(frozen=True, slots=True)
class Shared:
    """Slots that divide their common room fairly."""

    members: list[OneSlot]

    def need(self, books: Books) -> int:
        """Return what the slots need together."""
        return sum([each.need(books) for each in self.members])

    def take(self, books: Books, room: int) -> None:
        """Give each slot its share, none less than it needs."""
        asks = [books.sizes[each.reading.slot.index] for each in self.members]
        needs = [each.need(books) for each in self.members]
        pot = max(0, room)
        ceilings = [each.reading.slot.max_tokens for each in self.members]
        weights = [pot if most is None else most for most in ceilings]
        over = sum(asks) - room
        for each, share in zip(self.members, _shares(pot, asks, weights, needs), strict=True):
            each.take(books, share, over)


def _shares(
    pot: int, asks: Sequence[int], weights: Sequence[int], needs: Sequence[int]
) -> list[int]:
    """Divide a pot fairly, where no slot gets less than it needs."""
    shares = list(needs)
    free = list(range(len(asks)))
    while free:
        left = pot - sum(needs[n] for n in range(len(asks)) if n not in free)
        parts = allocate(max(0, left), [asks[n] for n in free], [weights[n] for n in free])
        enough = [n for n, part in zip(free, parts, strict=True) if part >= needs[n]]
        if len(enough) == len(free):
            for n, part in zip(free, parts, strict=True):
                shares[n] = part
            break
        free = enough
    return shares


@dataclass(frozen=True, slots=True)
class Joined:
    """Texts of one message that are dropped whole, in order.

    The last text that goes is cut instead, where its slot is cut by characters.
    """

    group: Group
    readings: list[Reading]

    def need(self, books: Books) -> int:
        """Return 0: the parts of a joined text that nothing may drop have room from the start."""
        return 0

    def take(self, books: Books, room: int) -> None:
        """Drop the fewest texts that make the joined text fit; texts too large even alone go first.

        The order is fixed, so the number is found by bisection: a few counts, not one per drop.
        """
        group = self.group
        waiting = {each.slot.index: each for each in books.waiting(group)}
        mine = [each.slot.index for each in self.readings]
        free = [waiting.pop(index) for index in mine if index in waiting]
        later = list(waiting.values())
        space = room + books.joined_room[group]
        whole = books.measure(group, later)
        if whole > space:
            large: list[Reading] = []
            others: list[Reading] = []
            for each in free:
                (large if self._is_too_large(books, each) else others).append(each)
            few = self._fewest(books, others, [*later, *large], space)
            cut = few.pop() if few and few[-1].slot.trim_behavior == "char" else None
            over = self._missing(free, whole - space)
            for each in (*large, *few):
                for unit in each.units:
                    books.drop(unit, over[each.slot.index])
            if cut is not None:
                self._cut(books, cut, later, space)
            whole = books.measure(group, later)
        books.seat_joined(group, free, whole)

    def _missing(self, free: Sequence[Reading], over: int) -> dict[int, int]:
        """Return how many more tokens would keep each text, if the texts before it were dropped."""
        found = {}
        for each in free:
            found[each.slot.index] = over
            over -= each.tokens
        return found

    def _is_too_large(self, books: Books, part: Reading) -> bool:
        """Say whether a text would not fit even beside only the parts that nothing may drop."""
        group = self.group
        if part.slot.trim_behavior == "char":
            return False
        space = books.spare + books.pinned[group]
        tokens = part.tokens + books.pinned[group]
        if tokens + _SEAM <= space or tokens > space + _SEAM:
            return tokens > space
        others = [each for each in books.parts(group) if each is not part and not books.held(each)]
        return books.measure(group, others) > space

    def _cut(self, books: Books, part: Reading, later: Sequence[Reading], space: int) -> None:
        """Cut one text, counted by itself, until the joined text fits; otherwise drop it."""
        for _ in range(_CUT_ROUNDS):
            over = books.measure(self.group, later) - space
            if over <= 0:
                return
            shrink(books, part, books.sizes[part.slot.index] - over, over=over)
        for unit in part.units:
            books.drop(unit, books.measure(self.group, later) - space)

    def _fewest(
        self, books: Books, free: list[Reading], without: list[Reading], space: int
    ) -> list[Reading]:
        few, enough = -1, len(free)
        while enough - few > 1:
            middle = (few + enough) // 2
            if books.measure(self.group, [*without, *free[:middle]]) <= space:
                enough = middle
            else:
                few = middle
        return free[:enough]


def in_order(books: Books) -> list[Taker]:
    """Return the takers in the order they go, slots that act together as one.

    The lowest priority first, of equals the earliest, the current input last unless it has a
    priority. Beside a history that steps, slots that will be gone next turn go first.
    """

    def rank(each: Reading) -> tuple[bool, bool, int]:
        slot = each.slot
        stays = not books.steps or slot.lasting or slot.is_input
        return stays, slot.is_input and slot.priority == 0, slot.priority

    takers: list[Taker] = []
    shared: dict[Group, tuple[int, Shared]] = {}
    present = [each for each in books.readings if each.units]
    for turn, each in enumerate(sorted(present, key=rank)):
        books.order[each.slot.index] = turn
        if books.is_empty(each):
            continue
        steps = each.start is not None and not each.slot.is_input
        alone = Stepping(each) if steps else OneSlot(each)
        group = each.slot.group
        last = takers[-1] if takers else None
        if group is not None and group.join is not None:
            if isinstance(last, Joined) and last.group == group:
                books.order[each.slot.index] = books.order[last.readings[0].slot.index]
                last.readings.append(each)
            else:
                takers.append(Joined(group, [each]))
        elif group is not None and group.share:
            if group not in shared:
                shared[group] = turn, Shared([])
                takers.append(shared[group][1])
            books.order[each.slot.index], together = shared[group]
            together.members.append(alone)
        else:
            takers.append(alone)
    return takers
