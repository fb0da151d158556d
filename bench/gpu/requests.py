"""Writes down what each policy sends: how long each request is, and how much of it is known.

    python -m bench.gpu.requests

Plays the run of `bench/long_runs.py` with every policy, and writes `requests.json` beside this
file. The time to a first token depends on these lengths alone, so the machine with the GPU needs
torch and this file, and neither Muntin nor a peer.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.runs.ours import OWN, POLICIES, STEPPED, play
from bench.runs.peers import PEERS, Stage
from bench.runs.score import MODELS, Score
from bench.runs.script import Turn, script
from bench.runs.wire import Line, lines

FILE = Path(__file__).parent / "requests.json"
REQUESTS, WINDOW, RULES = 400, 32_000, "openai"
OURS = (OWN, STEPPED, "Muntin Exact()", "Muntin Stepped(), plain slots")
# LangChain's two ways to trim, its summaries, and Agent Framework; the rest is over its window.
THEIRS = tuple(name for name in PEERS if "ClearToolUses" not in name)


class Lengths(Score):
    """Notes of each request how many tokens it has, and how many the one before began with."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.last: list[Line] = []
        self.found: list[tuple[int, int]] = []

    def take(self, turn: Turn, step: int, request: Mapping[str, Any], seconds: float) -> None:
        """Note a request."""
        sent = lines(self.rules, request)
        self.found.append((known(self.last, sent), sum(line.tokens for line in sent)))
        self.last = sent


def known(before: Sequence[Line], after: Sequence[Line]) -> int:
    """Return how many tokens at the start of a request the one before had at its own."""
    tokens = 0
    for one, other in zip(before, after, strict=False):
        if one.text != other.text:
            break
        tokens += one.tokens
    return tokens


def played() -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Play every policy."""
    given = script(REQUESTS)
    for name in OURS:
        score = Lengths(given, RULES, WINDOW)
        asyncio.run(play(POLICIES[name], given, score))
        yield name, score.found
    for name in THEIRS:
        scores = {rules: Lengths(given, rules, WINDOW) for rules in MODELS}
        PEERS[name](Stage(given, scores))
        yield name, scores[RULES].found


def main() -> None:
    """Play, and write the file."""
    results = {}
    for name, lengths in played():
        print(f"{name}: {len(lengths)} requests", file=sys.stderr)
        results[name] = lengths
    about = {"window": WINDOW, "rules": RULES, "own": OWN}
    FILE.write_text(json.dumps({**about, "policies": results}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
