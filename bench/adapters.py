"""Muntin at the hook of each framework, beside the framework's own means of keeping requests small.

    python bench/adapters.py [--short] [--out FILE]

Each framework is played with the same script against a model on this machine: 60 turns, 178
requests, fourteen tools, a budget of 8,000 tokens. Frameworks that are not installed are left out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.frameworks.stage import REQUESTS, Means, Stage, played
from bench.measure import Figure, run
from bench.runs.score import Row
from tools.integrations import has

# By the names of the adapters: what must be installed.
FRAMEWORKS = {
    "openai": "openai",
    "langchain": "langchain_openai",
    "pydantic_ai": "pydantic_ai",
    "openai_agents": "agents",
    "agent_framework": "agent_framework_openai",
    "litellm": "litellm",
    "google_adk": "google.adk",
    "strands": "strands",
    "haystack": "haystack",
    "llama_index": "llama_index.llms.openai",
}
CLIENT, SHORT_REQUESTS = "openai", 30
ADAPTERS = Path(__file__).parent.parent / "src" / "muntin" / "integrations"


def rows(framework: str, requests: int) -> Iterator[Row]:
    """Play every means of a framework, Muntin first."""
    means: dict[str, Means] = import_module(f"bench.frameworks.{framework}").MEANS
    for name, play in means.items():
        stage = Stage(played(requests))
        with stage.open() as url:
            play(stage, url)
        row = stage.score.row(name)
        text = ", ".join(f"{key} {value:.4g}" for key, value in row.values())
        print(f"{framework}, {name}: {text} {stage.score.faults or ''}", file=sys.stderr)
        yield row


def figures(framework: str, found: Sequence[Row]) -> Iterator[Figure]:
    """Hold Muntin against the framework's own means, and name all that was measured."""
    own, *other_rows = found
    yield Figure(
        work=f"{framework}: requests that are valid and fit",
        peer="all requests",
        ours=good(own),
        theirs=own.requests + own.refused,
        unit="requests",
        at_least=1.0,
    )
    yield Figure(
        work=f"{framework}: input cost",
        peer="the same requests, not cached",
        ours=own.cost,
        theirs=own.uncached,
        unit="tokens",
        note=own.policy,
        values=(*own.values(), ("lines", lines(framework))),
    )
    for row in other_rows:
        yield Figure(
            work=f"{framework}: input cost",
            peer=row.policy,
            ours=own.cost,
            theirs=row.cost,
            unit="tokens",
            # Only who sends what can be sent, and shows as much, sets a price.
            at_most=1.0 if good(row) == good(own) and row.turns_seen >= own.turns_seen else None,
            values=row.values(),
        )
        yield Figure(
            work=f"{framework}: requests that are valid and fit",
            peer=row.policy,
            ours=good(own),
            theirs=max(1, good(row)),
            unit="requests",
            at_least=1.0,
        )


def good(row: Row) -> int:
    """Return how many requests can be sent; one that is both invalid and too large counts twice."""
    return max(0, row.requests - row.invalid - row.over)


def lines(framework: str) -> float:
    """Return how many lines of code an adapter has."""
    file = ADAPTERS / f"{framework}.py"
    if not file.exists():
        return 0.0
    code = file.read_text("utf-8").partition('"""')[2].partition('"""')[2]
    return float(sum(bool(line.strip()) for line in code.splitlines()))


def measure(short: bool) -> Iterator[Figure]:
    """Play what is installed; in the short form only the client."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # nothing is fetched
    here = [name for name, module in FRAMEWORKS.items() if has(module)]
    if short:
        here = [CLIENT]
    elif len(here) > 1 and "langchain" not in here:
        here.remove(CLIENT)  # it is beside most frameworks: played once is enough
    if {"google_adk", "litellm"} <= {*here}:
        here.remove("litellm")  # the kit speaks through it
    for framework in here:
        found = list(rows(framework, SHORT_REQUESTS if short else REQUESTS))
        yield from figures(framework, [replace(row, window=0) for row in found])


if __name__ == "__main__":
    run(__doc__, measure)
