"""Integer arithmetic of the budget: ceilings, floors and fair shares.

Pure functions of numbers; they know neither slots nor messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Limits:
    """What a slot may take at most and should keep at least, in tokens.

    `cap` is None where no ceiling was asked for. `fallback_cap` is the ceiling once floors are
    ignored: then `min_tokens` no longer raises it.
    """

    cap: int | None
    floor: int
    fallback_cap: int | None


NO_LIMITS = Limits(None, 0, None)


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
    fallback_caps = list(caps)
    if max_ratio < 1:
        share = ratio_of(amount, max_ratio)
        caps.append(max(share, min_tokens))
        fallback_caps.append(share)
    cap = min(caps, default=None)
    floor = max(min_tokens, ratio_of(amount, min(min_ratio, max_ratio)) if min_ratio else 0)
    floor = floor if cap is None else min(floor, cap)
    return Limits(cap, floor, min(fallback_caps, default=None))


def allocate(amount: int, asks: Sequence[int], weights: Sequence[int]) -> list[int]:
    """Divide `amount` among `asks` max-min fairly, in proportion to `weights`.

    No share is larger than its ask; what one ask does not need goes to the others. If the asks
    exceed the amount, the shares add up to it exactly.
    """
    shares = [0] * len(asks)
    hungry = [i for i, ask in enumerate(asks) if ask > 0]
    while hungry:
        total = sum(weights[i] for i in hungry)
        if not total:  # nothing but zero weights left: all the same weight
            weights = [1] * len(asks)
            total = len(hungry)
        sated = [i for i in hungry if asks[i] * total <= amount * weights[i]]
        if not sated:
            break
        for i in sated:
            shares[i] = asks[i]
        amount -= sum(asks[i] for i in sated)
        hungry = [i for i in hungry if i not in sated]
    if hungry:
        total = sum(weights[i] for i in hungry)
        for i in hungry:
            shares[i] = amount * weights[i] // total
        spare = amount - sum(shares[i] for i in hungry)
        by_remainder = sorted(hungry, key=lambda i: (-(amount * weights[i] % total), i))
        for i in by_remainder[:spare]:
            shares[i] += 1
    return shares


def fair_shares(
    pot: int, asks: Sequence[int], weights: Sequence[int], needs: Sequence[int]
) -> list[int]:
    """Divide a pot fairly by weight; none gets less than it needs."""
    shares = list(needs)
    free = list(range(len(asks)))
    while free:
        remaining = pot - sum([needs[n] for n in range(len(asks)) if n not in free])
        parts = allocate(max(0, remaining), [asks[n] for n in free], [weights[n] for n in free])
        enough = [n for n, part in zip(free, parts, strict=True) if part >= needs[n]]
        if len(enough) == len(free):
            for n, part in zip(free, parts, strict=True):
                shares[n] = part
            break
        free = enough
    return shares
