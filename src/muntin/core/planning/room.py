"""The room of histories: the tokens that other slots leave to them, and how they divide these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from muntin.core.planning.limits import ratio_of
from muntin.core.planning.read import Reading

# The share of the budget that a volatile slot without a ceiling may take.
VOLATILE_RATIO = 0.25


@dataclass(frozen=True, slots=True)
class Room:
    """The room that other slots leave to the histories: `stable` tokens stand before them, and
    `volatile` tokens are kept free behind them."""

    budget: int
    stable: int
    volatile: int

    @property
    def high(self) -> int:
        """The high level of all histories together."""
        return max(0, self.budget - self.stable - self.volatile)


def room_for(others: Iterable[Reading], budget: int) -> Room:
    """Divide the budget: lasting content by its size, volatile slots by their ceilings, so that
    the histories' share does not depend on the size of volatile slots."""
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
