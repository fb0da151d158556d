"""The offline optimum: where the history would have begun, had the whole trace been known.

Chooses one frontier (the turn with which the history begins) for each request, never moving it
back, so that the cost is least at a given average of retained history. Marks are assumed to stand
where they pay.

The average gets a price: for a price of retention, dynamic programming over requests and frontiers
finds the best sequence; bisection finds the price. A price finds only the corners of the cost
curve; between two corners, the beginning of one sequence is joined to the end of the other. Weak
duality gives a bound that no sequence can undercut.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from muntin.core.profile import Caching
from muntin.simulator.cache import charge

_BISECTIONS = 30
_CLOSE = 1e-5
_HIGHEST = 1e6


@dataclass(frozen=True, slots=True)
class Point:
    """One request for the optimum, in tokens; `turn` is the newest turn a history can begin with.

    `sent`, `shared` and `cached` are counted from the beginning of the conversation, as if nothing
    were cut: all tokens sent, the tokens shared with the request before, and the tokens worth
    caching. `limit` is the most that may be sent. `expired` says that the cache has forgotten the
    request before.
    """

    turn: int
    sent: int
    shared: int
    cached: int
    history: int
    limit: int
    expired: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Optimum:
    """The best frontiers, one turn a request; no sequence can cost less than `bound`."""

    frontiers: tuple[int, ...]
    cost: float
    retained: float
    bound: float


def optimum(
    points: Sequence[Point], starts: Sequence[int], head: int, rules: Caching, retained: float
) -> Optimum:
    """Return the cheapest sequence that retains at least `retained` tokens on average.

    `starts` is how many tokens of the conversation stand before each turn, `head` the tokens of
    tools and system text, which are in front of every request.
    """
    table = _Table(points, starts, head, rules)
    below = table.solve(0.0)
    if below.retained >= retained:
        return below
    low, high = 0.0, 1.0
    above = table.solve(high)
    while above.retained < retained and high < _HIGHEST:
        low, high, below = high, 4 * high, above
        above = table.solve(high)
    bound = 0.0
    for _ in range(_BISECTIONS):
        price = (low + high) / 2
        trial = table.solve(price)
        # Each price gives a bound for all sequences; the best bound counts.
        bound = max(bound, trial.cost - price * (trial.retained - retained) * len(points))
        if trial.retained >= retained:
            high, above = price, trial
        else:
            low, below = price, trial
        if high - low < _CLOSE * high:
            break
    best = table.splice(below, above, retained)
    return Optimum(best.frontiers, best.cost, best.retained, min(bound, best.cost))


class _Table:
    """The cost of each request from each frontier, and the best way through for a price."""

    def __init__(
        self, points: Sequence[Point], starts: Sequence[int], head: int, rules: Caching
    ) -> None:
        self._points = points
        self._starts = starts
        self._head = rules.readable(head)
        self._rules = rules
        self._ranges = list(_feasible(points, starts))
        self._costs = [
            [self._cost(number, turn) for turn in turns]
            for number, turns in enumerate(self._ranges)
        ]

    def _cost(self, number: int, turn: int) -> tuple[float, float]:
        """Return the cost of a request if the frontier stayed here, and if it moved here."""
        point, cut = self._points[number], self._starts[turn]
        tokens, cached = point.sent - cut, self._rules.readable(point.cached - cut)
        warm = 0 if point.expired else self._rules.readable(max(0, point.shared - cut))
        cold = 0 if point.expired or not number else self._head
        return (
            charge(self._rules, tokens, warm, cached).cost,
            charge(self._rules, tokens, cold, cached).cost,
        )

    def solve(self, price: float) -> Optimum:
        """Return the sequence that is best when a retained token is worth `price`."""
        values: dict[int, float] = {}
        came_from: list[dict[int, int]] = []
        for number, point in enumerate(self._points):
            reached: dict[int, float] = {}
            source: dict[int, int] = {}
            earlier, earlier_turn = (math.inf, -1) if number else (0.0, -1)
            waiting = iter(sorted(values.items()))
            following = next(waiting, None)
            for turn, (stay, move) in zip(self._ranges[number], self._costs[number], strict=True):
                while following is not None and following[0] < turn:
                    if following[1] < earlier:
                        earlier_turn, earlier = following
                    following = next(waiting, None)
                gain = price * (point.history - self._starts[turn])
                moved, stayed = earlier + move, values.get(turn, math.inf) + stay
                reached[turn] = min(moved, stayed) - gain
                source[turn] = turn if stayed <= moved else earlier_turn
            values = reached
            came_from.append(source)
        return self._trace_back(values, came_from)

    def _trace_back(self, values: dict[int, float], came_from: list[dict[int, int]]) -> Optimum:
        turn = min(values, key=lambda each: (values[each], each))
        frontiers: list[int] = []
        for source in reversed(came_from):
            frontiers.append(turn)
            turn = source[turn]
        frontiers.reverse()
        return self._told(frontiers)

    def splice(self, below: Optimum, above: Optimum, retained: float) -> Optimum:
        """Return the cheapest join of a beginning and an end of the two that retains enough."""
        wanted = retained * len(self._points)
        best = above
        for one, other in ((below.frontiers, above.frontiers), (above.frontiers, below.frontiers)):
            spent, kept = list(self._running(one)), list(self._running(other))
            for cut in range(1, len(one)):
                if one[cut - 1] > other[cut]:
                    continue
                cost = spent[cut][0] + kept[-1][0] - kept[cut + 1][0]
                cost += self._step(cut, other[cut], one[cut - 1])
                history = spent[cut][1] + kept[-1][1] - kept[cut][1]
                if history >= wanted and cost < best.cost:
                    best = Optimum((*one[:cut], *other[cut:]), cost, history / len(one), cost)
        return best

    def _told(self, frontiers: Sequence[int]) -> Optimum:
        *_, (cost, retained) = self._running(frontiers)
        return Optimum(tuple(frontiers), cost, retained / len(frontiers), cost)

    def _running(self, frontiers: Sequence[int]) -> Iterator[tuple[float, int]]:
        """Yield cost and retained tokens before each request, and at the end."""
        cost, retained = 0.0, 0
        yield cost, retained
        for number, turn in enumerate(frontiers):
            cost += self._step(number, turn, frontiers[number - 1] if number else -1)
            retained += self._points[number].history - self._starts[turn]
            yield cost, retained

    def _step(self, number: int, turn: int, before: int) -> float:
        stay, move = self._costs[number][turn - self._ranges[number].start]
        return stay if turn == before else move


def _feasible(points: Sequence[Point], starts: Sequence[int]) -> list[range]:
    """Return the turns with which each request may begin: turns that were cut stay out."""
    first = 0
    ranges = []
    for point in points:
        while first < point.turn and point.sent - starts[first] > point.limit:
            first += 1
        ranges.append(range(first, point.turn + 1))
    return ranges
