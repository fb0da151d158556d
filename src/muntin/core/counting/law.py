"""The law of counts: how the input that a provider reports follows from the tokens counted here.

The next input is the last reported input, the last output, and what is new, as it is counted.
Where no request was reported yet: a fixed part, which the provider adds, and a factor. Pure values.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import floor
from typing import Any, NamedTuple

from muntin.core.checks import check_size

# No more than this is taken for a fixed part that a provider adds to each request.
_MOST_ADDED = 8_192


class Size(NamedTuple):
    """The size of a request: the tokens counted here, and those of answers, which were reported."""

    counted: int
    answers: int = 0
    has_tools: bool = False


class Anchor(NamedTuple):
    """A request whose input the provider has reported."""

    size: Size
    reported: int

    @property
    def counted_by_provider(self) -> int:
        """What the provider counted of what was counted here."""
        return self.reported - self.size.answers

    def fixed(self, factor: float) -> float:
        """Return what the provider counted beside what was counted here."""
        return self.counted_by_provider - factor * self.size.counted

    def to_json(self) -> list[Any]:
        """Return the anchor as JSON values."""
        return [list(self.size), self.reported]

    @classmethod
    def from_json(cls, data: Any) -> Anchor:
        """Read what JSON makes of an anchor."""
        (counted, answers, has_tools), reported = data
        sizes = check_size(counted, "counted"), check_size(answers, "answers")
        return cls(Size(*sizes, bool(has_tools)), check_size(reported, "reported"))


@dataclass(frozen=True, slots=True)
class Law:
    """How the tokens of a request by a provider follow from those counted here.

    `first` is what the provider adds before anything was reported, `fixed` what it was seen to add:
    each without and with tools. `excess` is the most by which an estimate was exceeded lately.
    `keeps_thoughts` says that the reasoning of earlier turns is read again. The `anchor` is the
    newest reported request of the conversation.
    """

    first: tuple[int, int] = (0, 0)
    fixed: tuple[int, int] | None = None
    factor: float = 1.0
    excess: int = 0
    keeps_thoughts: bool = field(default=False, kw_only=True)
    anchor: Anchor | None = field(default=None, kw_only=True)

    def after(self, anchor: Anchor | None) -> Law:
        """Return the law of the request that follows a reported one."""
        return self if anchor is self.anchor else replace(self, anchor=anchor)

    def ours(self, tokens: int) -> int:
        """Return how many tokens counted here are as many as the provider's."""
        return tokens if self.factor == 1 else round(tokens / self.factor)

    def estimate(self, counted: int, has_tools: bool) -> int:
        """Return the expected input of a request: at least half of what was counted and is always
        added, and at most twice as much."""
        if not counted:
            return 0
        plain = counted + min(_MOST_ADDED, max(0, self._fixed(has_tools)))
        expected = round(self._added(has_tools) + self.factor * counted)
        return min(2 * plain, max(plain // 2, expected))

    def room(self, budget: int, has_tools: bool) -> int:
        """Return how many tokens counted here fit into a budget: never more than the budget, and at
        least half of what fits before anything was reported."""
        known = (budget - self.excess - self._added(has_tools)) / self.factor
        return min(budget, max(floor(known), (budget - self.first[has_tools]) // 2, 0))

    def budget(self, counted: int, has_tools: bool) -> int:
        """Return the smallest budget into which so many tokens counted here fit."""
        needed = counted * self.factor + self._added(has_tools) + self.excess
        needed = min(-floor(-needed), 2 * counted + self.first[has_tools])
        return max(counted, needed)

    def _fixed(self, has_tools: bool) -> int:
        return (self.fixed or self.first)[has_tools]

    def _added(self, has_tools: bool) -> float:
        """Return what the provider adds: in this conversation, else as it usually does."""
        anchor = self.anchor
        if anchor is None:
            return self._fixed(has_tools)
        added = anchor.fixed(self.factor)
        if anchor.size.has_tools != has_tools:
            added += self._fixed(has_tools) - self._fixed(anchor.size.has_tools)
        return added


PLAIN = Law()
