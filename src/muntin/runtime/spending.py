"""Spending: how many dollars a conversation and each of its turns may cost, checked before a
request is sent.

Prices are those of `genai-prices`. What was spent is stored with the answers, so that it survives a
restart and is the same in every process.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple, TypeAlias

from muntin.core.checks import shown
from muntin.core.usage import Usage
from muntin.core.window import Window
from muntin.errors import CostLimit, InvalidInput, InvalidType
from muntin.providers.names import cost_of


@dataclass(frozen=True, slots=True)
class MaxCost:
    """How many US dollars a conversation or entity may cost, and each of its turns; None is no
    limit.

    A model whose price is not known is refused, unless `unpriced_is_free`.
    """

    conversation: float | None = None
    turn: float | None = None
    unpriced_is_free: bool = False

    def __post_init__(self) -> None:
        for name in ("conversation", "turn"):
            value = getattr(self, name)
            if value is not None:
                _check_dollars(value, f"MaxCost.{name}")

    def check(self, model: str, window: Window, spent: Spent, session: str) -> None:
        """Refuse a request that would cost too much."""
        coming = cost_of(model, Usage(window.tokens))
        if coming is None:
            if not self.unpriced_is_free:
                raise CostLimit(
                    f"the price of {model!r} is not known, so max_cost cannot hold for it; use a "
                    "model with a price, or MaxCost(..., unpriced_is_free=True)"
                )
            coming = Decimal(0)
        for what, limit, used in (
            ("turn", self.turn, spent.turn),
            ("conversation", self.conversation, spent.total),
        ):
            if limit is not None and used + coming > Decimal(str(limit)):
                raise CostLimit(
                    f"this {what} of {session!r} may cost ${limit:g}: ${used:.4f} are spent, and "
                    f"the input of the next request costs ${coming:.4f}. Raise max_cost, "
                    + ("lower the budget," if what == "turn" else "begin a new conversation,")
                    + " or take a cheaper model."
                )


MaxCostLike: TypeAlias = MaxCost | float | None


class Spent(NamedTuple):
    """The dollars spent in a conversation, and in its present turn."""

    total: Decimal = Decimal(0)
    turn: Decimal = Decimal(0)

    def and_for(self, cost: Decimal | None) -> Spent:
        """Return this with the cost of one more answer; None if it has no price."""
        return self if cost is None else Spent(self.total + cost, self.turn + cost)


def as_max_cost(value: MaxCostLike, what: str) -> MaxCost | None:
    """Return a limit that was given; a number is for a conversation."""
    if value is None or isinstance(value, MaxCost):
        return value
    return MaxCost(_check_dollars(value, f"{what}: max_cost"))


def _check_dollars(value: object, what: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidType(f"{what} must be a number of US dollars, or MaxCost, not {shown(value)}")
    if not 0 <= value < float("inf"):
        raise InvalidInput(f"{what} must be finite and not negative, got {shown(value)}")
    return float(value)
