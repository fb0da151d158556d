"""Where boxes in layers stand, and the ways of the arrows between them: geometry, no drawing.

An arrow over several layers passes each of them in a gap of its own, so that it crosses no box.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from random import Random
from statistics import fmean
from typing import NamedTuple, TypeAlias

GAP = 30
SWEEPS = 60
TRIES = 60
STRAIGHT = 4

Arrow: TypeAlias = tuple[str, str]
# A box by its name, or the gap in a row that an arrow passes.
Item: TypeAlias = str | tuple[Arrow, int]


class Layout(NamedTuple):
    """The middle of each box; for each arrow the rows it touches, and where, from tail to head."""

    boxes: dict[str, float]
    ways: dict[Arrow, list[tuple[int, float]]]


def arrange(
    rows: Sequence[Sequence[str]],
    arrows: Sequence[Arrow],
    widths: Mapping[str, float],
    *,
    middle: float,
) -> Layout:
    """Place boxes in their rows near to what they are linked with; few arrows cross each other."""
    row_of: dict[Item, int] = {name: number for number, row in enumerate(rows) for name in row}
    chains: dict[Arrow, list[Item]] = {}
    for arrow in arrows:
        tail, head = row_of[arrow[0]], row_of[arrow[1]]
        between = range(tail + 1, head) if tail < head else range(tail - 1, head, -1)
        chains[arrow] = [arrow[0], *((arrow, row) for row in between), arrow[1]]
        row_of.update({(arrow, row): row for row in between})
    size = {item: widths[item] if isinstance(item, str) else 0.0 for item in row_of}
    tried = [_settle(row_of, list(chains.values()), size, seed) for seed in range(TRIES)]
    x = min(tried, key=lambda x: _cost(x, row_of, list(chains.values())))
    shift = middle - (min(x[i] - size[i] / 2 for i in x) + max(x[i] + size[i] / 2 for i in x)) / 2
    ways = {a: [(row_of[i], x[i] + shift) for i in chain] for a, chain in chains.items()}
    boxes = {name: x[name] + shift for row in rows for name in row}
    return Layout(boxes, _with_ports(ways, widths))


def _settle(
    row_of: Mapping[Item, int],
    chains: Sequence[Sequence[Item]],
    size: Mapping[Item, float],
    seed: int,
) -> dict[Item, float]:
    """Begin in some order, and let everything move towards what it is linked with."""
    near: dict[Item, list[Item]] = {item: [] for item in row_of}
    for one, other in (pair for chain in chains for pair in pairwise(chain)):
        # An arrow that passes rows is to pass them straight.
        times = STRAIGHT if isinstance(one, tuple) and isinstance(other, tuple) else 1
        near[one] += [other] * times
        near[other] += [one] * times
    order = list(row_of)
    Random(seed).shuffle(order)
    rows = [[i for i in order if row_of[i] == row] for row in sorted(set(row_of.values()))]
    x: dict[Item, float] = {item: 40.0 * n for row in rows for n, item in enumerate(row)}
    for _ in range(SWEEPS):
        for row in (*rows, *reversed(rows)):
            wanted = {item: fmean(x[i] for i in near[item] or [item]) for item in row}
            row.sort(key=lambda item: (wanted[item], str(item)))
            x.update(_spread(row, wanted, size))
    return x


def _cost(
    x: Mapping[Item, float], row_of: Mapping[Item, int], chains: Sequence[Sequence[Item]]
) -> tuple[int, float]:
    """Return how many arrows cross each other, and how far they go to the side."""
    pairs = [sorted(pair, key=lambda i: row_of[i]) for chain in chains for pair in pairwise(chain)]
    crossings = sum(
        row_of[a] == row_of[c] and (x[a] - x[c]) * (x[b] - x[d]) < 0
        for (a, b), (c, d) in combinations(pairs, 2)
    )
    return crossings, sum(abs(x[a] - x[b]) for a, b in pairs)


def _with_ports(
    ways: dict[Arrow, list[tuple[int, float]]], widths: Mapping[str, float]
) -> dict[Arrow, list[tuple[int, float]]]:
    """Let the arrows at one side of a box end beside each other, in the order they come from."""
    sides: dict[tuple[str, bool], list[tuple[float, Arrow, int]]] = {}
    for arrow, way in ways.items():
        for end, (here, there) in ((0, way[:2]), (-1, way[:-3:-1])):
            sides.setdefault((arrow[end], there[0] > here[0]), []).append((there[1], arrow, end))
    for (name, _), ends in sides.items():
        step = min(18.0, widths[name] / (len(ends) + 1))
        for number, (_, arrow, end) in enumerate(sorted(ends)):
            row, x = ways[arrow][end]
            ways[arrow][end] = row, x + (number - (len(ends) - 1) / 2) * step
    return ways


def _spread(
    row: Sequence[Item], wanted: Mapping[Item, float], size: Mapping[Item, float]
) -> dict[Item, float]:
    """Place the items of a row in their order, as near as possible to where they want to be."""
    offsets: list[float] = []
    edge = 0.0
    for item in row:
        offsets.append(edge + size[item] / 2)
        edge += size[item] + GAP
    # Items that push each other away share one shift: the mean of what they want.
    blocks: list[list[float]] = []
    for item, offset in zip(row, offsets, strict=True):
        blocks.append([wanted[item] - offset])
        while len(blocks) > 1 and fmean(blocks[-2]) > fmean(blocks[-1]):
            last = blocks.pop()
            blocks[-1].extend(last)
    shifts = [fmean(block) for block in blocks for _ in block]
    return {item: o + shift for item, o, shift in zip(row, offsets, shifts, strict=True)}
