"""What the benchmarks share: timing in turns, figures, and how they are told.

A figure is what Muntin costs beside something else that was measured in the same run, in turns:
only their ratio means anything, because machines differ and are noisy.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import tracemalloc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from typing import Any, NamedTuple

# What takes longer than this is run once.
SLOW_SECONDS = 4.0


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Muntin beside a peer, a bare driver, or itself at another size; less is better.

    Only where `at_least` bounds the ratio is more better.
    """

    work: str
    peer: str
    ours: float
    theirs: float
    unit: str = "s"
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""
    by: str = ""
    """What grows, where the figure is a growth."""
    points: tuple[tuple[int, float], ...] = ()
    """What was measured at each size."""
    values: tuple[tuple[str, float], ...] = ()
    """What else was measured of the peer, by name."""

    @property
    def ratio(self) -> float:
        """Muntin's cost over the other's."""
        return self.ours / self.theirs

    @property
    def held(self) -> bool | None:
        """Whether the aim is met; None where there is none."""
        if self.at_most is not None:
            return self.ratio <= self.at_most
        return None if self.at_least is None else self.ratio >= self.at_least

    def to_dict(self) -> dict[str, Any]:
        """Return the figure as JSON has it; what is empty is left out."""
        given = {**asdict(self), "ratio": self.ratio, "held": self.held}
        return {key: value for key, value in given.items() if value not in (None, "", ())}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Figure:
        """Read a figure; what follows from the rest is not read."""
        known = {key: value for key, value in given.items() if key not in ("ratio", "held")}
        points = tuple((int(size), float(cost)) for size, cost in known.pop("points", ()))
        values = tuple((str(name), float(value)) for name, value in known.pop("values", ()))
        return cls(**known, points=points, values=values)


# Timing.


class Taken(NamedTuple):
    """The median of the seconds a work took, and what it returned last."""

    seconds: float
    result: Any


def in_turns(
    works: Mapping[str, Callable[[], Any]],
    rounds: int | Mapping[str, int],
    *,
    clock: Callable[[], float] = perf_counter,
    collecting: bool = True,
) -> dict[str, Taken]:
    """Run all works in turns, those with more rounds several times a turn, and time each.

    `process_time` as the clock holds on a busy machine, where nobody waits for a disk. Unless
    `collecting`, Python's collector of cycles runs between the works and not in them.
    """
    asked = dict.fromkeys(works, rounds) if isinstance(rounds, int) else dict(rounds)
    fewest = min(asked.values())
    seconds: dict[str, list[float]] = {name: [] for name in works}
    results: dict[str, Any] = {}

    def done(name: str) -> bool:
        taken = seconds[name]
        return len(taken) >= asked[name] or bool(taken and taken[0] > SLOW_SECONDS)

    gc.collect()
    gc.freeze()  # what was built before is nobody's burden
    while not all(map(done, works)):
        for name, work in works.items():
            for _ in range(asked[name] // fewest):
                if not done(name):
                    if not collecting:
                        gc.collect()
                        gc.disable()
                    start = clock()
                    results[name] = work()
                    seconds[name].append(clock() - start)
                    gc.enable()
    gc.unfreeze()
    return {name: Taken(median(seconds[name]), results[name]) for name in works}


def beside(
    work: str,
    peer: str,
    ours: Callable[[], Any],
    theirs: Callable[[], Any],
    rounds: int,
    at_most: float | None = None,
    *,
    clock: Callable[[], float] = perf_counter,
) -> Figure:
    """Time two works in turns, and state the one beside the other."""
    taken = in_turns({"ours": ours, "theirs": theirs}, rounds, clock=clock)
    return Figure(
        work=work,
        peer=peer,
        ours=taken["ours"].seconds,
        theirs=taken["theirs"].seconds,
        at_most=at_most,
    )


def memory(work: Callable[[], Any]) -> float:
    """Return the most memory a work takes, in bytes."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return float(peak)


def exponents(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Return how cost grows with size, over all sizes and over the larger half of them.

    That is the slope of the logarithms, by least squares: 0 is a cost that does not depend on the
    size, 1 is linear. Over the larger half a constant cost hides nothing any more.
    """
    return _slope(points), _slope(points[len(points) // 2 :])


def _slope(points: Sequence[tuple[int, float]]) -> float:
    xs, ys = ([math.log(value) for value in values] for values in zip(*points, strict=True))
    x, y = fmean(xs), fmean(ys)
    above = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True))
    return above / sum((a - x) ** 2 for a in xs)


# Telling.


_SECONDS = ((1, "s"), (1e-3, "ms"), (1e-6, "µs"))


def amount(value: float, unit: str) -> str:
    """Write one side of a figure."""
    if unit == "s":
        scale, name = next((step for step in _SECONDS if value >= step[0]), _SECONDS[-1])
        return f"{value / scale:.3g} {name}" if value < 1_000 else f"{value:,.0f} s"
    if unit == "exponent":
        return f"n^{value:.2f}"
    if unit == "share":
        return f"{value:.1%}"
    if unit == "bytes":
        return f"{value / 1e6:,.3g} MB"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def times(ratio: float) -> str:
    """Write a ratio: what is far below 1 as a fraction."""
    if 0 < ratio < 0.1:
        return f"1/{1 / ratio:,.0f}"
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"


def aim(figure: Figure) -> str:
    """Write what is asked of a figure."""
    if figure.at_most is not None:
        return f"≤ {times(figure.at_most)}"
    return "" if figure.at_least is None else f"≥ {times(figure.at_least)}"


# Muntin in another way, and what nobody can do better: to be behind these says nothing.
_NOT_RIVALS = ("muntin", "the same", "optimum")


def verdict(figure: Figure) -> str:
    """Say whether the aim is met, and whether Muntin is behind somebody else."""
    words = {True: "held", False: "not held", None: ""}[figure.held]
    rival = not figure.by and not figure.peer.lower().startswith(_NOT_RIVALS)
    behind = rival and figure.ratio > 1 and figure.at_least is None
    return ", ".join(filter(None, (words, "behind" if behind else "")))


HEAD = ("work", "beside", "theirs", "Muntin", "ratio", "aim", "")


def cells(figure: Figure) -> tuple[str, ...]:
    """Return the row of a figure, under `HEAD`."""
    return (
        f"{figure.work}, by {figure.by}" if figure.by else figure.work,
        figure.peer,
        amount(figure.theirs, figure.unit),
        amount(figure.ours, figure.unit),
        f"{figure.ratio:.2f}" if figure.by else times(figure.ratio),
        aim(figure),
        verdict(figure),
    )


def table(figures: Iterable[Figure]) -> str:
    """Write figures for a terminal."""
    rows = [HEAD, *map(cells, figures)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        left, right = row[:2], row[2:6]
        padded = [*map(str.ljust, left, widths), *map(str.rjust, right, widths[2:])]
        return "  ".join([*padded, row[6]]).rstrip()

    return "\n".join(map(line, rows))


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> str:
    """Write a table; its first columns, and those without a title, are aligned to the left."""
    marks = ["---" if place < left or not title else "--:" for place, title in enumerate(head)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, marks, *rows))


# The programs.


def options(description: str | None) -> argparse.ArgumentParser:
    """Return the options that every benchmark takes."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="smaller sizes, fewer rounds")
    parser.add_argument("--out", type=Path, help="write the figures to this file, as JSON")
    return parser


def publish(figures: Iterable[Figure], out: Path | None) -> None:
    """Print a table, and write the figures where they are wanted."""
    found = list(figures)
    print(table(found))
    if out is not None:
        out.write_text(as_json([figure.to_dict() for figure in found]), encoding="utf-8")


def as_json(value: object) -> str:
    """Write a value as the files have it."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def run(description: str | None, measure: Callable[[bool], Iterable[Figure]]) -> None:
    """Be the program of a benchmark: `measure` is told whether to be short."""
    arguments = options(description).parse_args()
    publish(measure(arguments.short), arguments.out)
