"""Agents that run for hours: what Muntin and its peers send, and what their models still see.

    python bench/long_runs.py [--short] [--out FILE]

One run of 400 requests, made of recorded tool conversations (bench/runs/script.py says how), is
played by every policy with windows of 16, 32 and 128 thousand tokens. Requests are scored as they
are encoded for OpenAI and for Anthropic: whether they are valid and fit, how much of each the next
one begins with, what they cost by the rules of the cache, and what they show of the past. Peers
that are not installed are left out. One run of 10,000 steps on SQLite shows how a step grows, and
one of 400 groups what the ladder adds to planning.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.measure import Figure, amount, exponents, run
from bench.runs.grow import grow
from bench.runs.ours import OWN, POLICIES, STEPPED, play
from bench.runs.peers import PEERS, Stage
from bench.runs.plan import planning
from bench.runs.score import MODELS, Row, Score
from bench.runs.script import Script, script

REQUESTS, WINDOWS = 400, (16_000, 32_000, 128_000)
STEPS = (316, 1_000, 3_162, 10_000)  # from a full window on
GROUPS, PLANNED = 400, 40
SHORT_REQUESTS, SHORT_WINDOWS, SHORT_STEPS, SHORT_GROUPS = 24, (16_000,), (20, 40, 80), 20
# What a step may grow with the steps before it: nothing, but for noise. Memory grows until what is
# remembered of texts has reached its bound.
FLAT, BOUNDED = 0.1, 0.75
UNCACHED = "the same requests, not cached"


def rows(window: int, given: Script, *, peers: bool) -> Iterator[Row]:
    """Play the script with every policy; Muntin's own first."""
    for name in sorted(POLICIES, key=lambda each: each != OWN):
        for rules in MODELS:
            score = Score(given, rules, window)
            asyncio.run(play(POLICIES[name], given, score))
            yield told(score, name)
    for name, play_peer in PEERS.items() if peers else ():
        scores = {rules: Score(given, rules, window) for rules in MODELS}
        play_peer(Stage(given, scores))
        for score in scores.values():
            yield told(score, name)


def told(score: Score, name: str) -> Row:
    """Return the row of a score, and tell it."""
    row = score.row(name)
    what = ", ".join(f"{key} {value:.4g}" for key, value in row.values())
    why = f" ({score.faults})" if score.faults else ""
    print(f"{row.window:,} {row.rules} {name}: {what}{why}", file=sys.stderr)
    return row


# The figures.


def figures(found: Sequence[Row]) -> Iterator[Figure]:
    """Hold the rows of one window and one provider against each other."""
    own = next(row for row in found if row.policy == OWN)
    place = f"{own.window:,} tokens, {own.rules}"
    yield from asked(place, own)
    cheapest = min((r.cost for r in found if r.policy in PEERS and sound(r)), default=None)
    stepped = next(row for row in found if row.policy == STEPPED)
    yield Figure(
        work=f"{place}: input cost",
        peer=UNCACHED,
        ours=own.cost,
        theirs=own.uncached,
        unit="tokens",
        note=own.policy,
        values=own.values(),
    )
    for row in found:
        if row is own:
            continue
        against = 1.0 if row.cost == cheapest else 1.05 if row is stepped else None
        yield Figure(
            work=f"{place}: input cost",
            peer=row.policy,
            ours=own.cost,
            theirs=row.cost,
            unit="tokens",
            at_most=against,
            values=row.values(),
        )
        if row.policy in PEERS and row.rules == "openai":  # planned once for both
            yield Figure(
                work=f"{place}: time between two requests",
                peer=row.policy,
                ours=own.seconds,
                theirs=row.seconds,
            )
    if own is not stepped:
        yield Figure(
            work=f"{place}: turns in view, at least as a stub",
            peer=STEPPED,
            ours=own.turns_seen,
            theirs=stepped.turns_seen,
            unit="turns",
            at_least=2.5,
        )


def asked(place: str, own: Row) -> Iterator[Figure]:
    """Yield what is asked of Muntin's own requests."""
    whole = own.requests + own.refused
    most = "all requests"
    for what, ours, theirs, least in (
        ("valid requests", own.requests - own.invalid, whole, 1.0),
        ("requests within the window", own.requests - own.over, whole, 1.0),
    ):
        yield Figure(
            work=f"{place}: {what}",
            peer=most,
            ours=ours,
            theirs=theirs,
            unit="requests",
            at_least=least,
        )
    for what, share, least in (
        ("kept of a request by the next, inside runs", own.prefix, 0.95),
        ("calls just made that the model sees", own.newest_seen, 1.0),
        ("just-returned results shown", own.newest_shown, 0.99),
        ("needles of the last 20 turns, in view or named", own.named_recent, 1.0),
    ):
        yield Figure(
            work=f"{place}: {what}",
            peer="all of them",
            ours=share,
            theirs=1,
            unit="share",
            at_least=least,
        )


def sound(row: Row) -> bool:
    """Say whether all that a policy sent could be sent, and showed the model what it had just done.

    Who sends too much, or forgets the work at hand, sets no price.
    """
    return not (row.invalid or row.over or row.refused) and row.newest_seen == 1


# Growth.


def growth(steps: Sequence[int]) -> Iterator[Figure]:
    """Measure one run with ever more steps: the time a step takes, and the memory of all."""
    for name in dict.fromkeys((STEPPED, OWN)):
        print(f"one run of {steps[-1]:,} steps, {name} ...", file=sys.stderr)
        times, held = grow(name, steps)
        full = steps == STEPS  # while a window fills, a step grows with it
        yield grown(f"a step of one run, {name}", times, FLAT if full else None, "s")
        yield grown(f"memory of one run, {name}", held, BOUNDED if full else None, "bytes")


def grown(work: str, points: Sequence[tuple[int, float]], most: float | None, unit: str) -> Figure:
    """State how a cost grows, beside a linear one."""
    return Figure(
        work=work,
        by="steps",
        peer="linear growth",
        ours=max(*exponents(points), 0.0),
        theirs=1,
        unit="exponent",
        at_most=most,
        note=f"from {amount(points[0][1], unit)} to {amount(points[-1][1], unit)}",
        points=tuple(points),
    )


def planned(groups: int) -> Figure:
    """Measure a step with the ladder beside one without, all groups in view."""
    ours, theirs = planning(groups, PLANNED)
    return plan_figure(groups, ours, theirs)


def plan_figure(groups: int, ours: float, theirs: float) -> Figure:
    """State what the ladder adds to planning a step; small windows have no aim."""
    return Figure(
        work=f"planning a step, {groups} groups in view, with the ladder",
        peer="without the ladder",
        ours=ours,
        theirs=theirs,
        at_most=2.0 if groups >= GROUPS else None,
    )


def measure(short: bool) -> Iterator[Figure]:
    """Measure everything; the peers where they are installed, and never in the short form."""
    peers = not short and find_spec("langchain") is not None
    given = script(SHORT_REQUESTS if short else REQUESTS)
    for window in SHORT_WINDOWS if short else WINDOWS:
        found = list(rows(window, given, peers=peers))
        for rules in MODELS:
            yield from figures([row for row in found if row.rules == rules])
    yield planned(SHORT_GROUPS if short else GROUPS)
    yield from growth(SHORT_STEPS if short else STEPS)


if __name__ == "__main__":
    run(__doc__, measure)
