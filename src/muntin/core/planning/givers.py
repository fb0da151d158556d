"""Givers: the ways in which slots give when the window is too large.

One slot alone, texts that are joined, slots that share, and histories that step, behind one small
protocol. In which order they are asked is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from muntin.core.planning.books import Books
from muntin.core.planning.limits import allocate
from muntin.core.planning.read import Reading
from muntin.core.planning.slot import Group
from muntin.core.planning.trim import shrink

# What is cut off a joined text is counted apart from it: so many rounds are tried.
_CUT_ROUNDS = 8


class Giver(Protocol):
    """A slot, or several that act together."""

    def give(self, books: Books, over: int, *, floors: bool) -> None:
        """Give up to `over` tokens; with `floors`, not below a floor."""


@dataclass(frozen=True, slots=True)
class OneSlot:
    """A slot that is trimmed as its rules ask for."""

    reading: Reading

    def give(self, books: Books, over: int, *, floors: bool) -> None:
        """Give just enough."""
        self.fit(books, books.sizes[self.reading.slot.index] - over, floors=floors)

    def fit(self, books: Books, target: int, *, floors: bool) -> None:
        """Trim the slot; one that had a floor does not fall off a cliff below it."""
        slot = self.reading.slot
        floor = books.limits[slot.index].floor
        if slot.required:
            books.unmark(slot.index)  # all else stays
        elif floors:
            shrink(books, self.reading, target, floor=floor, cut_at=floor)
        else:
            shrink(books, self.reading, target, cut_at=max(target, 0) if floor else 0)


class Stepping(OneSlot):
    """A history that gives beyond its high level: it steps, and all is read again from there."""

    def fit(self, books: Books, target: int, *, floors: bool) -> None:
        """Begin later, if the history is larger than that."""
        index = self.reading.slot.index
        most = max(target, books.limits[index].floor if floors else 0)
        if books.sizes[index] > most:
            books.step(self.reading, most)


@dataclass(frozen=True, slots=True)
class Shared:
    """Slots that divide fairly among them what is left for them."""

    members: list[OneSlot]

    def give(self, books: Books, over: int, *, floors: bool) -> None:
        """Give each slot its share of what is left."""
        asks = [books.sizes[each.reading.slot.index] for each in self.members]
        pot = max(0, sum(asks) - over)
        ceilings = [each.reading.slot.max_tokens for each in self.members]
        weights = [pot if most is None else most for most in ceilings]
        for each, share in zip(self.members, allocate(pot, asks, weights), strict=True):
            each.fit(books, share, floors=floors)


@dataclass(frozen=True, slots=True)
class Joined:
    """Texts of one message that are dropped whole, in order.

    The last that goes is cut instead, where its slot may be cut.
    """

    group: Group
    readings: list[Reading]

    def give(self, books: Books, over: int, *, floors: bool) -> None:
        """Drop the fewest texts that make the joined text fit.

        The order is fixed, so the number is found by bisection: a few counts, not one per drop.
        """
        free = [each for each in self.readings if not books.held(each)]
        space = books.goal - (books.total - books.joined[self.group])
        few, enough = 0, len(free)
        if free and books.measure(self.group, free) <= space:
            while enough - few > 1:
                middle = (few + enough) // 2
                if books.measure(self.group, free[:middle]) <= space:
                    enough = middle
                else:
                    few = middle
        last = free[enough - 1] if enough else None
        if last is not None and last.slot.trim_behavior == "char":
            enough -= 1
        for each in free[:enough]:
            for unit in each.units:
                books.drop(unit)
        books.recount(self.group)
        if last is not None and enough < len(free) and free[enough] is last:
            self._cut(books, last)

    def _cut(self, books: Books, reading: Reading) -> None:
        """Cut one text until the joined one fits, else drop it."""
        for attempt in range(_CUT_ROUNDS):
            over = books.total - books.goal
            if over <= 0:
                return
            if attempt < _CUT_ROUNDS - 1:
                shrink(books, reading, books.sizes[reading.slot.index] - over)
            else:
                for unit in reading.units:
                    books.drop(unit)
            books.recount(self.group)


def in_order(books: Books) -> Iterator[Giver]:
    """Return the givers in the order they are asked, slots that act together as one.

    The lowest priority first, of equals the earliest, the current input last. Beside a history
    that steps, what will be gone next turn gives first.
    """

    def rank(each: Reading) -> tuple[bool, int, bool]:
        slot = each.slot
        stays = not books.steps or slot.lasting or slot.is_input
        return stays, books.priority(slot), slot.is_input

    givers: list[Giver] = []
    shared: dict[Group, Shared] = {}
    for each in sorted((each for each in books.readings if each.units), key=rank):
        alone = OneSlot(each) if each.start is None else Stepping(each)
        group = each.slot.group
        last = givers[-1] if givers else None
        if group is not None and group.join is not None:
            if isinstance(last, Joined) and last.group == group:
                last.readings.append(each)
            else:
                givers.append(Joined(group, [each]))
        elif group is not None and group.share:
            if group not in shared:
                shared[group] = Shared([])
                givers.append(shared[group])
            shared[group].members.append(alone)
        else:
            givers.append(alone)
    return iter(givers)
