"""The result of a simulation: frozen values, as JSON, as a table, as a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from itertools import accumulate
from pathlib import Path
from typing import Any

from muntin.core.checks import shown
from muntin.core.profile import Caching
from muntin.core.report import text_table
from muntin.errors import InvalidInput
from muntin.simulator.cache import Usage


@dataclass(frozen=True, slots=True)
class RequestCost(Usage):
    """One request: where its tokens went, how much history it had, what moved its prefix.

    `retained` are tokens of history, `share` is their part of the history's budget (or of the whole
    history, if that is less; None without a budget). `diverged` is the first message that differs
    from the request before (-1: a tool), None if none does.
    """

    turn: int
    retained: int
    share: float | None = None
    diverged: int | None = None
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """All requests of one policy.

    `best` is the cost of the offline optimum for as much history, on average; None if it was not
    asked for, or if the policy has no budget.
    """

    policy: str
    steps: tuple[RequestCost, ...]
    best: float | None = field(default=None, kw_only=True)

    @property
    def tokens(self) -> int:
        """All tokens sent; also the cost without caching."""
        return sum(step.tokens for step in self.steps)

    @property
    def read(self) -> int:
        """The tokens read from the cache."""
        return sum(step.read for step in self.steps)

    @property
    def written(self) -> int:
        """The tokens written to the cache."""
        return sum(step.written for step in self.steps)

    @property
    def uncached(self) -> int:
        """The tokens neither read nor written."""
        return sum(step.uncached for step in self.steps)

    @property
    def cost(self) -> float:
        """The price of the input, in tokens of plain input."""
        return sum(step.cost for step in self.steps)

    @property
    def read_share(self) -> float:
        """How much of the input was read from the cache, from 0 to 1."""
        return self.read / (self.tokens or 1)

    @property
    def cost_share(self) -> float:
        """The cost, as a share of the cost without caching."""
        return self.cost / (self.tokens or 1)

    @property
    def retained(self) -> float:
        """The tokens of history in a request, on average."""
        return sum(step.retained for step in self.steps) / (len(self.steps) or 1)

    @property
    def retention(self) -> float | None:
        """The average share of the history's budget that was used, from 0 to 1."""
        shares = [step.share for step in self.steps if step.share is not None]
        return sum(shares) / len(shares) if shares else None

    @property
    def breaks(self) -> int:
        """How often a request did not begin with the one before it."""
        return sum(step.diverged is not None for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """Return totals and steps as plain JSON values; the keys are stable."""
        totals = {name: getattr(self, name) for name in _TOTALS}
        return {
            "policy": self.policy,
            "requests": len(self.steps),
            **totals,
            "steps": [{"tokens": step.tokens, **asdict(step)} for step in self.steps],
        }


_TOTALS = (
    *("tokens", "read", "written", "uncached", "cost"),
    *("read_share", "cost_share", "retained", "retention", "breaks", "best"),
)


@dataclass(frozen=True, slots=True)
class Simulation:
    """The requests and the costs of each policy.

    `dollars` is the price of a million tokens of plain input, None if it is not known.
    """

    runs: tuple[PolicyRun, ...]
    rules: Caching
    model: str | None = field(default=None, kw_only=True)
    budget: int | None = field(default=None, kw_only=True)
    dollars: float | None = field(default=None, kw_only=True)

    def __getitem__(self, policy: str) -> PolicyRun:
        """Return the run of a policy."""
        for run in self.runs:
            if run.policy == policy:
                return run
        names = ", ".join(repr(run.policy) for run in self.runs)
        raise KeyError(f"no policy {policy!r} was simulated, only {names}")

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values; the keys are stable."""
        runs = [{**run.to_dict(), "dollars": self.price(run)} for run in self.runs]
        return {
            "model": self.model,
            "budget": self.budget,
            "rules": asdict(self.rules),
            "dollars_per_million": self.dollars,
            "policies": runs,
        }

    def __str__(self) -> str:
        about = [
            f"{len(self.runs[0].steps):,} requests" if self.runs else "no policies",
            *([self.model] if self.model else []),
            *([f"budget {self.budget:,}"] if self.budget is not None else []),
        ]
        rows = [list(_COLUMNS)]
        rows += [[cell(self, run) for cell in _COLUMNS.values()] for run in self.runs]
        table = text_table(rows, range(1, len(_COLUMNS)))
        lines = [", ".join(about), "", *table]
        for run in self.runs:
            over = [step.tokens for step in run.steps if step.tokens > (self.budget or step.tokens)]
            if over and run.policy != "full":
                lines.append(
                    f"{run.policy}: {len(over):,} of {len(run.steps):,} requests are over the "
                    f"budget; the largest has {max(over):,} tokens"
                )
        return "\n".join(lines)

    def save(self, path: str | Path) -> None:
        """Draw the simulation as a self-contained HTML file."""
        path = Path(path)
        if path.suffix.lower() not in (".html", ".htm"):
            raise InvalidInput(f"{path}: a picture is saved as .html, not {shown(path.suffix)}")
        path.write_text(_page(self), encoding="utf-8")

    def price(self, run: PolicyRun) -> float | None:
        """Return what a run costs in dollars, if that is known."""
        return None if self.dollars is None else run.cost * self.dollars / 1_000_000


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


_COLUMNS: dict[str, Callable[[Simulation, PolicyRun], str]] = {
    "policy": lambda _, run: run.policy,
    "sent": lambda _, run: f"{run.tokens:,}",
    "read": lambda _, run: _share(run.read_share),
    "written": lambda _, run: f"{run.written:,}",
    "cost": lambda _, run: f"{run.cost:,.0f}",
    "of plain": lambda _, run: _share(run.cost_share),
    "dollars": lambda all_, run: "-" if (p := all_.price(run)) is None else f"{p:,.2f}",
    "of optimum": lambda _, run: "-" if not run.best else f"{run.cost / run.best:.2f}x",
    "retained": lambda _, run: _share(run.retention),
    "breaks": lambda _, run: f"{run.breaks:,}",
}


# The picture: for each policy what was read, written and sent uncached, request by request; and
# below, what all of them cost together as the conversation grew. One page, nothing to load.
_WIDTH, _HEIGHT = 720, 120
_GROUPS = 360
# Told apart without red and green: https://jfly.uni-koeln.de/color/
_PARTS = {"read": "#56b4e9", "written": "#e69f00", "uncached": "#999999"}
_LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#f0e442", "#888888")

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 56rem;
  padding: 0 1.2rem; }}
h1 {{ font-size: 1.5rem; overflow-wrap: anywhere; }}
h2 {{ font-size: 1rem; margin: 1.5rem 0 .2rem; }}
pre {{ overflow-x: auto; }}
svg {{ background: #8881; display: block; width: 100%; }}
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


def _page(simulation: Simulation) -> str:
    """Return the whole page."""
    runs = simulation.runs
    highest = max((step.tokens for run in runs for step in run.steps), default=0)
    colours = {run.policy: _LINES[n % len(_LINES)] for n, run in enumerate(runs)}
    return _PAGE.format(
        title=escape(f"Prompt cache: {simulation.model or 'simulation'}"),
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
    """Stack the read, written and uncached tokens, as areas over the requests."""
    columns = list(_group_requests(run.steps))
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
        costs = [sum(step.cost for step in steps) for steps in _group_requests(run.steps)]
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


def _group_requests(steps: Sequence[RequestCost]) -> Iterator[Sequence[RequestCost]]:
    """Yield the requests in as many groups as the chart can show."""
    size = -(-len(steps) // _GROUPS) or 1
    for start in range(0, len(steps), size):
        yield steps[start : start + size]


def _points(values: Sequence[float], highest: float) -> list[str]:
    step = _WIDTH / max(1, len(values) - 1)
    scale = _HEIGHT / (highest or 1)
    return [f"{n * step:.1f},{_HEIGHT - value * scale:.1f}" for n, value in enumerate(values)]
