"""The plots of the benchmarks' page, as SVG written by hand: nothing to install, nothing to load.

They carry their own colours for light and dark, chosen to be told apart without red and green.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby

from bench.measure import Figure

WIDTH = 860
# On white, and on black: https://jfly.uni-koeln.de/color/
COLOURS = (
    ("#0072b2", "#56b4e9"),
    ("#d55e00", "#e69f00"),
    ("#009e73", "#2bc69a"),
    ("#cc79a7", "#e29bc4"),
    ("#8a6d00", "#f0e442"),
    ("#555555", "#bbbbbb"),
    ("#7b3fb3", "#b894f0"),
)
PEERS = ("LangChain", "LiteLLM", "prompt-poet", "Agent Framework")

_PLAIN = """
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.small { font-size: 11px; fill: #57606a; }
.title { font-weight: 600; }
.back { fill: #ffffff; }
.grid { stroke: #d8dee4; stroke-width: 1; }
.one { stroke: #24292f; stroke-width: 1.5; }
.linear { stroke: #57606a; stroke-width: 1.5; stroke-dasharray: 5 4; fill: none; }
.ahead { fill: #0072b2; }
.behind { fill: #d55e00; }
polyline { fill: none; stroke-width: 2; }
LIGHT
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .small { fill: #9da7b3; }
  .back { fill: #0d1117; }
  .grid { stroke: #30363d; }
  .one { stroke: #e6edf3; }
  .linear { stroke: #9da7b3; }
  .ahead { fill: #56b4e9; }
  .behind { fill: #e69f00; }
  DARK
}
"""


def style() -> str:
    """Return the colours, for light and dark."""
    light, dark = (
        "\n".join(
            f".c{n} {{ stroke: {pair[place]}; }} .f{n} {{ fill: {pair[place]}; }}"
            for n, pair in enumerate(COLOURS)
        )
        for place in (0, 1)
    )
    return _PLAIN.replace("LIGHT", light).replace("DARK", dark)


def drawing(height: float, title: str, shapes: Sequence[str]) -> str:
    """Put shapes on one sheet."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img">'
        f"<title>{escape(title)}</title><style>{style()}</style>\n"
        f'<rect class="back" width="{WIDTH}" height="{height:.0f}" rx="6"/>\n'
        + "\n".join(shapes)
        + "\n</svg>\n"
    )


def text(x: float, y: float, said: str, *, at: str = "start", kind: str = "") -> str:
    """Write a text; `at` says which end of it stands at x."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{at}" class="{kind}">{escape(said)}</text>'


def line(x: float, y: float, to_x: float, to_y: float, kind: str) -> str:
    """Draw a straight line."""
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" class="{kind}"/>'


# Muntin beside the peers.


def rivals(figures: Sequence[Figure]) -> list[Figure]:
    """Return the times beside the peers; of a peer with several forms, that of its quickest."""
    best: dict[tuple[str, str], Figure] = {}
    for figure in figures:
        who = peer_of(figure)
        if who and figure.unit == "s" and "cached by the user" not in figure.peer:
            key = who, figure.work
            best[key] = max(best.get(key, figure), figure, key=lambda each: each.ratio)
    return [best[key] for key in sorted(best, key=lambda key: PEERS.index(key[0]))]


def peer_of(figure: Figure) -> str:
    """Return which of the peers a figure is beside, or nothing."""
    said = figure.peer.removeprefix("import ").lower()
    return next((name for name in PEERS if said.startswith(name.lower())), "")


def peers(figures: Sequence[Figure]) -> str:
    """Draw how many times the time of each peer is Muntin's."""
    left, top, step = 400, 46, 19
    found = rivals(figures)
    faster = [1 / figure.ratio for figure in found]
    least = min([0.1, *faster])
    low, high = math.floor(math.log10(least)), math.ceil(math.log10(max([10.0, *faster])))

    def across(value: float) -> float:
        return left + (math.log10(value) - low) / (high - low) * (WIDTH - left - 70)

    shapes: list[str] = []
    y: float = top
    for name, group in groupby(found, key=peer_of):
        y += 10
        shapes.append(text(16, y + 12, name, kind="title"))
        y += step
        for figure in group:
            times = 1 / figure.ratio
            start, end = sorted((across(1), across(times)))
            kind = "ahead" if times >= 1 else "behind"
            shapes += [
                text(left - 10, y + 13, figure.work, at="end", kind="small"),
                f'<rect x="{start:.1f}" y="{y + 3:.1f}" width="{max(1, end - start):.1f}" '
                f'height="{step - 6}" class="{kind}"/>',
                text(max(end, across(1)) + 5, y + 13, short(times), kind="small"),
            ]
            y += step
    grid = [
        shape
        for power in range(low, high + 1)
        for shape in (
            line(across(10.0**power), top, across(10.0**power), y + 6, "grid" if power else "one"),
            text(across(10.0**power), top - 6, short(10.0**power), at="middle", kind="small"),
        )
    ]
    head = text(left, 20, "the peer's time over Muntin's; left of 1 Muntin takes longer")
    return drawing(y + 20, "The peers' time over Muntin's", [*grid, head, *shapes])


def short(value: float) -> str:
    """Write a number as an axis has it."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


# Growth.


def growth(figures: Sequence[Figure]) -> str:
    """Draw cost over size, both logarithmic, one panel for each thing that grows."""
    found = sorted(
        (figure for figure in figures if figure.points), key=lambda each: each.by != "messages"
    )
    panels = [(by, list(group)) for by, group in groupby(found, key=lambda each: each.by)]
    wide, high, left, key = 330, 210, 75, 17
    shapes = [
        line(left, 22, left + 36, 22, "linear"),
        text(left + 44, 26, "linear growth; costs are multiples of the cost at the smallest size"),
    ]
    y = 66.0
    for start in range(0, len(panels), 2):
        pair = panels[start : start + 2]
        for column, (by, group) in enumerate(pair):
            shapes += panel(by, group, left + column * (wide + 90), y, wide, high)
        y += high + 66 + key * max(len(group) for _, group in pair)
    return drawing(y - 30, "How cost grows", shapes)


def panel(
    by: str, figures: Sequence[Figure], x: float, y: float, wide: float, high: float
) -> Iterator[str]:
    """Draw one panel: costs as multiples of the cost at the smallest size, and a linear one."""
    sizes = [size for figure in figures for size, _ in figure.points]
    smallest, largest = min(sizes), max(sizes)
    top = math.ceil(math.log10(largest / smallest))
    ratios = [cost / figure.points[0][1] for figure in figures for _, cost in figure.points]
    floor = min(0, math.floor(math.log10(min(ratios))))

    def place(size: float, ratio: float) -> tuple[float, float]:
        share = math.log10(size / smallest) / math.log10(largest / smallest)
        return x + share * wide, y + high - (math.log10(ratio) - floor) / (top - floor) * high

    yield text(x, y - 10, f"by {by}", kind="title")
    for power in range(floor, top + 1):
        _, at = place(smallest, 10.0**power)
        yield line(x, at, x + wide, at, "grid")
        yield text(x - 6, at + 4, f"{short(10.0**power)}×", at="end", kind="small")
    powers = range(math.ceil(math.log10(smallest)), math.floor(math.log10(largest)) + 1)
    for power in powers:
        at, _ = place(10.0**power, 1)
        yield line(at, y, at, y + high, "grid")
        yield text(at, y + high + 16, f"{10**power:,}", at="middle", kind="small")
    (ax, ay), (bx, by_) = place(smallest, 1), place(largest, largest / smallest)
    yield line(ax, ay, bx, by_, "linear")
    for number, figure in enumerate(figures):
        hue = number % len(COLOURS)
        first = figure.points[0][1]
        points = [place(size, cost / first) for size, cost in figure.points]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        yield f'<polyline points="{path}" class="c{hue}"/>'
        for px, py in points:
            yield f'<circle cx="{px:.1f}" cy="{py:.1f}" r="2.5" class="f{hue}"/>'
        below = y + high + 38 + 17 * number
        yield f'<rect x="{x:.1f}" y="{below - 9:.1f}" width="10" height="10" class="f{hue}"/>'
        yield text(x + 16, below, f"{figure.work}: n^{figure.ours:.2f}", kind="small")


# Policies side by side.


def bars(title: str, groups: Mapping[str, Sequence[tuple[str, float, bool]]]) -> str:
    """Draw values as bars, linear, in groups; what is not sound is drawn in another colour."""
    left, step = 280, 19
    most = max(value for group in groups.values() for _, value, _ in group)
    shapes = [text(left, 20, title)]
    y = 30.0
    for name, group in groups.items():
        if name:
            shapes.append(text(16, y + 22, name, kind="title"))
            y += step + 10
        for said, value, sound in group:
            wide = value / most * (WIDTH - left - 80)
            shapes += [
                text(left - 10, y + 13, said, at="end", kind="small"),
                f'<rect x="{left}" y="{y + 3:.1f}" width="{max(1, wide):.1f}" '
                f'height="{step - 6}" class="{"ahead" if sound else "behind"}"/>',
                text(left + wide + 5, y + 13, short(value), kind="small"),
            ]
            y += step
    if not all(sound for group in groups.values() for *_, sound in group):
        said = "orange: requests that are refused or too large, or that hide the newest call"
        shapes.append(text(left, y + 18, said, kind="small"))
        y += step
    return drawing(y + 16, title, shapes)
