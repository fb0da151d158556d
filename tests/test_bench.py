"""The benchmark stays alive: its work is what it says, and Muntin tokenises no more than it must.

Nothing is timed here, and no peer is needed.
"""

from __future__ import annotations

import pytest

from bench import compose
from muntin.core.exact import openai_tokenizer


@pytest.mark.parametrize("size", [100, 1_000, 3_000])
def test_a_history_is_realistic_and_unique(size: int) -> None:
    messages = compose.history(size)
    calls = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    results = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    texts = [message["content"] for message in messages if message["content"]]
    assert len(messages) == size
    assert messages[0]["role"] == "system"
    assert [message["role"] for message in messages].count("system") == 1
    assert len(set(calls)) == len(calls)
    assert sorted(calls) == sorted(results)
    assert len(set(texts)) == len(texts)
    assert 17 <= 100 * len(results) / size <= 23


def test_histories_of_all_sizes_end_alike() -> None:
    assert compose.history(100)[2:] == compose.history(1_000)[-98:]


@pytest.mark.parametrize("budget", [compose.SMALL, 32_000])
def test_only_what_can_fit_and_then_only_what_is_new_is_tokenised(budget: int) -> None:
    cold, turn = compose.asked(2_000, budget)
    assert cold.needless <= 3  # the one group that no longer fits
    assert turn.needless == 0
    assert turn.tokenised < cold.tokenised / 10


def test_the_benchmark_runs_without_peers() -> None:
    exact = openai_tokenizer("o200k_base")
    given = compose.history(100)
    own = compose.first_call(compose.muntin(exact, remembers=False), given, compose.SMALL, 1)
    turn = compose.next_turn(compose.muntin(exact, remembers=True), given, compose.SMALL, 2)
    rows = compose.compare("cold", 100, compose.SMALL, own, [turn])
    assert rows[0].ratio > 0
    assert rows[0].peer_kept > 0
    lines = compose.acceptance(rows, compose.asked(100, compose.SMALL))
    assert [line.holds for line in lines].count(None) == 7
    assert "not measured" in compose.show(rows, [], lines)
