"""Muntin at the hook of each framework, beside the framework's own means of keeping a context small.

    python bench/adapters.py [--short] [--out FILE]

Each framework is played with the same script against a model on this machine: 60 turns, 178
requests, fourteen tools, a budget of 8,000 tokens. Frameworks that are not installed are left out;
`python -m bench --only adapters` runs each in an environment of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.frameworks.stage import Means, Stage, played
from bench.runs.score import Row

FRAMEWORKS = {
    "langchain": "langchain",
}


def rows(framework: str, requests: int) -> Iterator[Row]:
    """Play every means of a framework."""
    means: dict[str, Means] = import_module(f"bench.frameworks.{framework}").MEANS
    for name, play in means.items():
        if name == "Muntin" and not find_spec("muntin.integrations"): continue
        stage = Stage(played(requests))
        with stage.open() as url:
            play(stage, url)
        row = stage.score.row(name)
        told = ", ".join(f"{key} {value:.4g}" for key, value in row.values())
        print(f"{framework} {name}: {told} {stage.score.faults or ''}", file=sys.stderr)
        yield row


if __name__ == "__main__":
    for name in sys.argv[1:]:
        list(rows(name, 178))
