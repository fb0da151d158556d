"""Integer arithmetic of the budget: ceilings, floors and fair shares.

Pure functions of numbers; they know neither slots nor messages.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Limits:
    """What a slot may take at most and should keep at least, in tokens; `cap` is None where no
    ceiling was asked for."""

    cap: int | None
    floor: int

    @property
    def ceiling(self) -> int:
        """The most tokens that the slot may have."""
        return sys.maxsize if self.cap is None else self.cap


NO_LIMITS = Limits(None, 0)


@lru_cache(maxsize=1_024)  # each slot of a window is asked with one of a few
def ratio_of(amount: int, ratio: float) -> int:
    """Return `ratio` of `amount`, rounded down, exactly: 0.29 of 100 is 29."""
    # The decimal a person wrote, not the binary fraction it became.
    return int(amount * Fraction(str(ratio)))


def limits(
    amount: int,
    max_ratio: float = 1.0,
    min_ratio: float = 0.0,
    min_tokens: int = 0,
    max_tokens: int | None = None,
) -> Limits:
    """Work out ceiling and floor of one slot in a budget of `amount` tokens."""
    if max_ratio == 1 and max_tokens is None and not min_ratio and not min_tokens:
        return NO_LIMITS
    caps = [] if max_tokens is None else [max_tokens]
    if max_ratio < 1:
        caps.append(max(ratio_of(amount, max_ratio), min_tokens))
    cap = min(caps, default=None)
    floor = max(min_tokens, ratio_of(amount, min(min_ratio, max_ratio)) if min_ratio else 0)
    return Limits(cap, floor if cap is None else min(floor, cap))


def allocate(amount: int, asks: Sequence[int], weights: Sequence[int]) -> list[int]:
    """Divide `amount` among `asks` max-min fairly, in proportion to `weights`.

    No share is larger than its ask; what one ask does not need goes to the others. If the asks
    exceed the amount, the shares add up to it exactly.
    """
    shares = [0] * len(asks)
    hungry = [place for place, ask in enumerate(asks) if ask > 0]
    while hungry:
        total = sum([weights[place] for place in hungry])
        if not total:  # nothing but zero weights left: all the same weight
            weights, total = [1] * len(asks), len(hungry)
        sated = [place for place in hungry if asks[place] * total <= amount * weights[place]]
        for place in sated:
            shares[place] = asks[place]
        if not sated:
            for place in hungry:
                shares[place] = amount * weights[place] // total
            spare = amount - sum([shares[place] for place in hungry])
            hungry.sort(key=lambda place: -(amount * weights[place] % total))
            for place in hungry[:spare]:
                shares[place] += 1
            break
        amount -= sum([asks[place] for place in sated])
        hungry = [place for place in hungry if place not in sated]
    return shares


def fair_shares(
    pot: int, asks: Sequence[int], weights: Sequence[int], needs: Sequence[int]
) -> list[int]:
    """Divide a pot fairly by weight; none gets less than it needs."""
    free = [*range(len(asks))]
    while True:
        shares = [*needs]
        rest = max(0, pot - sum([need for n, need in enumerate(needs) if n not in free]))
        parts = allocate(rest, [asks[n] for n in free], [weights[n] for n in free])
        for n, part in zip(free, parts, strict=True):
            shares[n] = part
        enough = [n for n in free if shares[n] >= needs[n]]
        if len(enough) == len(free):
            return shares
        free = enough
