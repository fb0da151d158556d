"""The offline optimum, beside every sequence there is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muntin import Profile, assistant, system, user
from muntin.core.profile import Caching
from muntin.simulator.optimum import Point, optimum
from muntin.simulator.replay import Moment, Policy, SentMessages, trace_of
from muntin.simulator.run import Replay
from tests.simulator.cases import chat, replayed

SIZES = st.lists(st.integers(1, 9), min_size=2, max_size=7)


RULES = st.sampled_from(
    [
        Caching(1, 1.25, 0.1, breakpoints=4, lookback=20),
        Caching(4, 1.0, 0.1),
        Caching(8, 1.25, 0.1, breakpoints=4),
        Caching(4, 2.0, 0.5, granularity=3),
    ]
)


def frontier_policy(frontiers: Sequence[int]) -> Policy:
    """Return the policy whose history begins at these messages, one a request."""
    starts = iter(frontiers)

    def cut(moment: Moment) -> SentMessages:
        messages = moment.messages(next(starts))
        sources = [
            "retrieval" if m is moment.volatile else "system" if m.role == "system" else "history"
            for m in messages
        ]
        return SentMessages(messages, sources)

    return cut


def everything(replay: Replay):
    """Yield every sequence of frontiers that never moves back and fits, with cost and tokens."""
    points, starts = replay.points(), replay.starts()
    choices = []
    first = 0
    for point in points:
        while first < point.turn and point.sent - starts[first] > point.limit:
            first += 1
        choices.append(range(first, point.turn + 1))
    for frontiers in product(*choices):
        if all(a <= b for a, b in pairwise(frontiers)):
            places = [replay.trace.turns[turn] if turn else 0 for turn in frontiers]
            run = replay.run("any", frontier_policy(places))
            yield frontiers, run.cost, run.retained


@settings(max_examples=40)
@given(
    SIZES,
    RULES,
    st.integers(0, 6),
    st.integers(12, 44),
    st.lists(st.integers(0, 3), max_size=3),
    st.floats(0, 1),
)
def test_the_optimum_is_the_best_of_all_sequences(sizes, rules, head, budget, extra, wanted):
    messages = [system("s" * head)] if head else []
    for turn, size in enumerate(sizes):
        messages += [user(chr(97 + turn) * size), assistant(chr(65 + turn) * (10 - size))]
    replay = Replay(
        trace_of(messages, ["v" * size for size in extra]),
        budget,
        profile=Profile.for_model("anthropic/claude-sonnet-4-5"),
        rules=rules,
        tokenizer=len,
    )
    found = list(everything(replay))
    most = max(kept for _, _, kept in found)
    least = min(kept for _, _, kept in found)
    target = least + wanted * (most - least)
    best = replay.optimum(target)
    true = min(cost for _, cost, kept in found if kept >= target - 1e-9)
    assert best.retained >= target - 1e-9
    costs = {way: (cost, kept) for way, cost, kept in found}
    assert (best.cost, best.retained) == pytest.approx(costs[best.frontiers])
    assert true <= best.cost + 1e-6
    free = replay.optimum(0)
    assert free.cost == pytest.approx(min(cost for _, cost, _ in found))


def test_the_optimum_cuts_far_and_rarely():
    points = [Point(n, 10 * n + 10, 10 * n, 10 * n + 10, 10 * n + 10, 100) for n in range(40)]
    starts = [10 * n for n in range(40)]
    rules = Caching(1, 1.25, 0.1)
    best = optimum(points, starts, 0, rules, 60)
    moves = sum(a != b for a, b in pairwise(best.frontiers))
    every_turn = optimum(points, starts, 0, rules, 87)
    assert moves <= 5
    assert best.cost < every_turn.cost
    assert best.retained >= 60


def test_a_run_is_held_against_the_optimum():
    result = replayed(chat(60))
    exact, full = result["exact"], result["full"]
    assert exact.best is not None
    assert exact.best <= exact.cost * 1.001
    assert full.best is None


def test_a_policy_that_keeps_more_than_its_budget_has_no_optimum():
    assert replayed(chat(60), policies={"all": lambda messages, _: messages})["all"].best is None
