"""Muntin's own policies on the long run, without the peers: a wide table for each window.

    python -m bench.runs [--windows N ...] [--policies NAME ...] [--requests N] [--json]
                         [--beside PATH]

Results are of 0.4 to 60 KB. `--json` prints what was measured instead of the tables. `--beside`
plays the same with the Muntin of another source tree, and shows both with their differences: first
the other, then this one. The benchmark uses modules that 0.2 names otherwise: measure 0.2 with the
benchmark of its own tree.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.beside import Other, told
from bench.long_runs import REQUESTS, WINDOWS
from bench.runs.ours import POLICIES, play
from bench.runs.score import MODELS, Row, Score
from bench.runs.script import script
from bench.runs.table import COLUMNS

Rows = dict[tuple[str, ...], dict[str, float | None]]
# Times mean something only where all that is told ran in one process.
SHOWN = {name: column for name, column in COLUMNS.items() if name != "time"}


def rows(windows: Sequence[int], policies: Sequence[str], requests: int) -> Iterator[Row]:
    """Play the script with each policy in each window, by the rules of each provider."""
    given = script(requests)
    for window in windows:
        for rules in MODELS:
            for name in policies:
                score = Score(given, rules, window)
                asyncio.run(play(POLICIES[name], given, score))
                print(f"{window:,} {rules} {name}", file=sys.stderr)
                yield score.row(name)


def measured(found: Iterator[Row]) -> Rows:
    """Return all values by window, provider and policy."""
    rows: Rows = {}
    for row in found:
        values: dict[str, float | None] = dict(row.values())
        values["each"] = row.cost / max(1, row.requests)
        values["invalid"] = float(row.invalid + row.refused)
        rows[f"{row.window:,}", row.rules, row.policy] = values
    return rows


def options() -> argparse.ArgumentParser:
    """Return what can be asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.runs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--windows", type=int, nargs="+", default=list(WINDOWS), metavar="N")
    parser.add_argument(
        "--policies", nargs="+", choices=list(POLICIES), default=list(POLICIES), metavar="NAME"
    )
    parser.add_argument("--requests", type=int, default=REQUESTS, metavar="N")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--beside", type=Path, metavar="PATH", help="another source tree")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Play the run and tell what was measured."""
    given = options().parse_args(arguments)
    asked = ["--requests", str(given.requests), "--windows", *map(str, given.windows)]
    asked += ["--policies", *given.policies]
    other = Other("bench.runs", asked, given.beside) if given.beside else None
    found = measured(rows(given.windows, given.policies, given.requests))
    print(told(SHOWN, ("window", "provider", "policy"), found, other, as_json=given.json))


if __name__ == "__main__":
    main()
