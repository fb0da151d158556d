"""The result of a simulation: frozen values, as JSON, as a table, as a picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from muntin.core.profile import Caching
from muntin.core.report import text_table
from muntin.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class RequestCost:
    """One request: where its tokens went, what of the history was in it, what moved its prefix.

    `cost` is in tokens of plain input. `retained` are tokens of history, `share` is what that is of
    the history's budget (or of all there was, if less; None if no budget was given). `diverged` is
    the first message that differs from the request before (-1: a tool), None if none does.
    """

    turn: int
    tokens: int
    read: int
    written: int
    uncached: int
    cost: float
    retained: int
    share: float | None = None
    diverged: int | None = None
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """All requests of one policy.

    `best` is what the offline optimum would have paid for as much history, on average; None if it
    was not asked for, or if the policy has no budget.
    """

    policy: str
    steps: tuple[RequestCost, ...]
    best: float | None = field(default=None, kw_only=True)

    @property
    def tokens(self) -> int:
        """All that was sent: also what it would have cost without caching."""
        return sum(step.tokens for step in self.steps)

    @property
    def read(self) -> int:
        """What was read from the cache."""
        return sum(step.read for step in self.steps)

    @property
    def written(self) -> int:
        """What was written to the cache."""
        return sum(step.written for step in self.steps)

    @property
    def uncached(self) -> int:
        """What was neither read nor written."""
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
            "steps": [asdict(step) for step in self.steps],
        }


_TOTALS = (
    *("tokens", "read", "written", "uncached", "cost"),
    *("read_share", "cost_share", "retained", "retention", "breaks", "best"),
)


@dataclass(frozen=True, slots=True)
class Simulation:
    """What each policy would have sent and paid.

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
        return "\n".join([", ".join(about), "", *text_table(rows, range(1, len(_COLUMNS)))])

    def save(self, path: str | Path) -> None:
        """Draw the simulation as a self-contained HTML file."""
        from muntin.simulator.picture import page

        path = Path(path)
        if path.suffix.lower() not in (".html", ".htm"):
            raise InvalidInput(f"{path}: a picture is saved as .html, not {path.suffix!r}")
        path.write_text(page(self), encoding="utf-8")

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
