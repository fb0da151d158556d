"""The benchmark of caching: equal retention, floors, and the tables of the docs."""

from __future__ import annotations

import json

import pytest

from bench import caching
from bench.cache.contest import (
    BEST_POET,
    FLOOR,
    LENT,
    OPTIMUM,
    OURS,
    README_POET,
    measure,
)
from bench.cache.sessions import MODELS, Session, agent, retrieved, schemas
from bench.cache.table import tables
from bench.measure import Figure
from tests.paths import TRACES


def test_the_benchmark_holds_all_policies_to_the_same_retention(capsys):
    session = Session("agent", agent(60), tools=schemas())
    rows = list(measure(session))
    capsys.readouterr()
    for model in MODELS:
        own, *others = [row for row in rows if row.model == model]
        assert own.policy == OURS
        assert all(abs(row.retained / own.retained - 1) <= 0.01 for row in others)
        costs = {row.policy: row.cost / own.cost for row in others}
        assert costs[OPTIMUM] <= 1.01 < costs[BEST_POET] + 0.05 < costs["muntin Exact()"]
    figures = list(caching.costs(session, rows))
    assert any(figure.peer == BEST_POET for figure in figures)
    assert OURS in caching.show(rows, figures)


def test_the_floor_of_the_benchmark_is_below_every_policy(capsys):
    texts = retrieved(40, 16_000)
    session = Session("agent", agent(40), volatile=texts, budget=16_000, peers=False)
    rows = list(measure(session))
    capsys.readouterr()
    for model in MODELS:
        costs = {row.policy: row.cost for row in rows if row.model == model}
        assert costs[FLOOR] < costs[LENT] <= costs[OPTIMUM]
        assert costs[LENT] < costs[OURS]  # which takes the room that retrieval leaves, too
        assert costs[FLOOR] < costs[BEST_POET] < costs[README_POET]


@pytest.mark.parametrize(("held", "bounds"), [(True, (2.0, None)), (False, (None, 2.0))])
def test_a_figure_says_whether_its_aim_is_reached(held, bounds):
    at_most, at_least = bounds
    figure = Figure(work="a", peer="b", ours=3, theirs=2, at_most=at_most, at_least=at_least)
    told = figure.to_dict()
    assert told["ratio"] == 1.5
    assert told["held"] is held
    assert ("at_most" in told) is (at_most is not None)


def test_the_tables_of_the_docs_are_those_of_the_recorded_run():
    page = (TRACES.parents[2] / "docs" / "design" / "cache-policies.md").read_text("utf-8")
    results = json.loads((TRACES.parents[2] / "bench" / "results.json").read_text("utf-8"))
    for table in tables(results["figures"]["caching"]):
        assert table in page
