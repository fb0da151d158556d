"""The result: totals, JSON and a table."""

from __future__ import annotations

import json

import pytest

from tests.simulator.cases import chat, replayed


def test_the_result_adds_up_and_is_plain_json():
    result = replayed(chat(20), policies=("exact", "full"))
    data = json.loads(json.dumps(result.to_dict()))
    for policy in data["policies"]:
        steps = policy["steps"]
        for key in ("tokens", "read", "written", "uncached"):
            assert policy[key] == sum(step[key] for step in steps)
        assert policy["tokens"] == policy["read"] + policy["written"] + policy["uncached"]
        assert policy["dollars"] == pytest.approx(3 * policy["cost"] / 1_000_000)
    assert data["budget"] == 2_500
    assert data["rules"]["lookback"] == 20


def test_a_policy_that_sent_more_than_the_budget_is_named_under_the_table():
    assert "over the budget" not in str(replayed(chat(20)))
    result = replayed(chat(20), budget=100)
    largest = max(step.tokens for step in result["exact"].steps)
    assert str(result).splitlines()[6:] == [
        f"exact: 20 of 20 requests are over the budget; the largest has {largest:,} tokens"
    ]


def test_the_table_has_a_line_for_each_policy():
    lines = str(replayed(chat(20))).splitlines()
    assert lines[0] == "20 requests, anthropic/claude-sonnet-4-5, budget 2,500"
    assert [line.split()[0] for line in lines[4:]] == ["exact", "full"]
    with pytest.raises(KeyError, match="no policy 'best'"):
        replayed(chat(2))["best"]
