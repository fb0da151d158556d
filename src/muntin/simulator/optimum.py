"""The offline optimum: where the history would have begun, had the whole trace been known.

Chooses one frontier (the turn with which the history begins) for each request, never moving it
back, so that the cost is least at a given average of retained history. Marks are assumed to stand
where they pay.

The average gets a price: for a price of retention, dynamic programming over requests and frontiers
finds the best sequence; bisection finds the price. A price finds only the corners of the cost
curve; between two corners, the beginning of one sequence is joined to the end of the other.
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
    """The best frontiers, one turn a request, their cost, and what they retain on average."""

    frontiers: tuple[int, ...]
    cost: float
    retained: float


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
    for _ in range(_BISECTIONS):
        price = (low + high) / 2
        trial = table.solve(price)
        if trial.retained >= retained:
            high, above = price, trial
        else:
            low, below = price, trial
        if high - low < _CLOSE * high:
            break
    return table.splice(below, above, retained)


class _Table:
    """The cost of each request from each frontier, and the best way through for a price."""

    def __init__(
        self, points: Sequence[Point], starts: Sequence[int], head: int, rules: Caching
    ) -> None:
        self._points = points
        self._starts = starts
        # The turns with which each request may begin: turns that were cut stay out.
        self._ranges: list[range] = []
        # The cost of each if the frontier stayed there, and if it moved there.
        self._costs: list[list[tuple[float, float]]] = []
        first = 0
        for number, point in enumerate(points):
            while first < point.turn and point.sent - starts[first] > point.limit:
                first += 1
            self._ranges.append(range(first, point.turn + 1))
            cold = 0 if point.expired or not number else rules.readable(head)
            costs = []
            for cut in starts[first : point.turn + 1]:
                warm = 0 if point.expired else rules.readable(max(0, point.shared - cut))
                tokens, cached = point.sent - cut, rules.readable(point.cached - cut)
                stay, move = (charge(rules, tokens, read, cached).cost for read in (warm, cold))
                costs.append((stay, move))
            self._costs.append(costs)

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
        turn = min(values, key=lambda turn: (values[turn], turn))
        frontiers: list[int] = []
        for source in reversed(came_from):
            frontiers.append(turn)
            turn = source[turn]
        frontiers.reverse()
        *_, (cost, retained) = self._running(frontiers)
        return Optimum(tuple(frontiers), cost, retained / len(frontiers))

    def splice(self, below: Optimum, above: Optimum, retained: float) -> Optimum:
        """Return the cheapest join of a beginning and an end of the two that retains enough."""
        wanted = retained * len(self._points)
        best = above
        for one, two in ((below.frontiers, above.frontiers), (above.frontiers, below.frontiers)):
            begins, ends = list(self._running(one)), list(self._running(two))
            for cut in range(1, len(one)):
                if one[cut - 1] > two[cut]:
                    continue
                cost = begins[cut][0] + ends[-1][0] - ends[cut + 1][0]
                cost += self._step(cut, two[cut], one[cut - 1])
                history = begins[cut][1] + ends[-1][1] - ends[cut][1]
                if history >= wanted and cost < best.cost:
                    best = Optimum((*one[:cut], *two[cut:]), cost, history / len(one))
        return best

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
