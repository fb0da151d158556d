"""The picture of a simulation: one HTML page with drawings in it, nothing to load.

For each policy what was read, written and sent uncached, request by request; and below, what all of
them cost together as the conversation grew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muntin.simulator.result import PolicyRun, RequestCost, Simulation

_WIDTH, _HEIGHT = 720, 120
_COLUMNS = 360
# Told apart without red and green: https://jfly.uni-koeln.de/color/
_PARTS = {"read": "#56b4e9", "written": "#e69f00", "uncached": "#999999"}
_LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#f0e442", "#000000")

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: {width}px; }}
h2 {{ font-size: 1rem; margin: 1.5rem 0 .2rem; }}
pre {{ overflow-x: auto; }}
svg {{ background: #fafafa; display: block; width: 100%; }}
.key {{ margin-right: 1rem; white-space: nowrap; }}
.key i {{ display: inline-block; height: .7em; margin-right: .3em; width: .7em; }}
</style>
<h1>{title}</h1>
<pre>{table}</pre>
<p>{parts}</p>
{charts}
<h2>Cost so far, in tokens of plain input</h2>
<p>{lines}</p>
{costs}
</html>
"""


def page(simulation: Simulation) -> str:
    """Return the whole page."""
    runs = simulation.runs
    highest = max((step.tokens for run in runs for step in run.steps), default=0)
    colours = {run.policy: _LINES[n % len(_LINES)] for n, run in enumerate(runs)}
    return _PAGE.format(
        title=escape(f"Prompt cache: {simulation.model or 'simulation'}"),
        width=_WIDTH,
        table=escape(str(simulation)),
        parts=_key(_PARTS),
        charts="\n".join(_chart(run, highest) for run in runs),
        lines=_key(colours),
        costs=_costs(runs, colours),
    )


def _key(colours: dict[str, str]) -> str:
    return "".join(
        f'<span class="key"><i style="background:{colour}"></i>{escape(name)}</span>'
        for name, colour in colours.items()
    )


def _chart(run: PolicyRun, highest: int) -> str:
    """Stack what was read, written and uncached, as areas over the requests."""
    columns = list(_columns(run.steps))
    floor = [0.0] * len(columns)
    areas = []
    for part, colour in _PARTS.items():
        top = [
            low + sum(getattr(step, part) for step in steps) / len(steps)
            for low, steps in zip(floor, columns, strict=True)
        ]
        points = [*_points(top, highest), *reversed(_points(floor, highest))]
        areas.append(f'<polygon fill="{colour}" points="{" ".join(points)}"/>')
        floor = top
    most = f"0 to {highest:,} tokens a request"
    return f"<h2>{escape(run.policy)}</h2>\n{_drawing(areas, f'{run.policy}: {most}')}"


def _costs(runs: Sequence[PolicyRun], colours: dict[str, str]) -> str:
    highest = max((run.cost for run in runs), default=0.0)
    lines = []
    for run in runs:
        costs = [sum(step.cost for step in steps) for steps in _columns(run.steps)]
        points = _points(list(accumulate(costs)), highest)
        lines.append(
            f'<polyline fill="none" stroke-width="2" stroke="{colours[run.policy]}" '
            f'points="{" ".join(points)}"/>'
        )
    return _drawing(lines, f"0 to {highest:,.0f}")


def _drawing(shapes: Sequence[str], label: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"><title>{escape(label)}</title>'
        f"{''.join(shapes)}</svg>"
    )


def _columns(steps: Sequence[RequestCost]) -> Iterator[Sequence[RequestCost]]:
    """Yield the requests in as many groups as can be seen."""
    size = -(-len(steps) // _COLUMNS) or 1
    for start in range(0, len(steps), size):
        yield steps[start : start + size]


def _points(values: Sequence[float], highest: float) -> list[str]:
    step = _WIDTH / max(1, len(values) - 1)
    scale = _HEIGHT / (highest or 1)
    return [f"{n * step:.1f},{_HEIGHT - value * scale:.1f}" for n, value in enumerate(values)]
