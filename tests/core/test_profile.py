"""Caching rules: what the table says of models, and prices from `genai-prices`."""

from __future__ import annotations

import sys

import pytest

from muntin import InvalidInput, Profile
from muntin.core.profile import Caching, caching_of
from muntin.providers.names import caching_for


@pytest.mark.parametrize(
    ("model", "least"),
    [
        ("anthropic/claude-opus-5", 512),
        ("anthropic/claude-fable-5-1", 512),
        ("anthropic/claude-opus-4-8", 1024),
        ("anthropic/claude-opus-4-7", 2048),
        ("anthropic/claude-opus-4.6", 4096),
        ("anthropic/claude-opus-4-5-20251101", 4096),
        ("anthropic/claude-opus-4-1", 1024),
        ("anthropic/claude-sonnet-4-5", 1024),
        ("anthropic/claude-sonnet-5", 1024),
        ("anthropic/claude-haiku-4-5", 4096),
        ("anthropic/claude-3-5-haiku-latest", 2048),
        ("anthropic/claude-3-7-sonnet-latest", 1024),
    ],
)
def test_claude_takes_four_marks_and_looks_back_twenty_blocks(model: str, least: int) -> None:
    assert caching_of(model) == Caching(least, 1.25, 0.1, breakpoints=4, lookback=20, ttl=300)


@pytest.mark.parametrize(
    ("model", "read"),
    [
        ("openai/gpt-4o", 0.5),
        ("openai/gpt-4o-mini", 0.5),
        ("openai/gpt-4.5-preview", 0.5),
        ("openai/gpt-4.1-mini", 0.25),
        ("openai/o1", 0.5),
        ("openai/o3", 0.25),
        ("openai/o3-mini", 0.5),
        ("openai/o4-mini", 0.25),
        ("openai/gpt-5", 0.1),
        ("openai/gpt-5-nano", 0.1),
        ("openai/gpt-5.5", 0.1),
    ],
)
def test_openai_up_to_5_5_caches_by_itself_in_steps_of_128(model: str, read: float) -> None:
    assert caching_of(model) == Caching(1024, 1.0, read, granularity=128, ttl=300)


@pytest.mark.parametrize("model", ["gpt-5.6-sol", "gpt-5.7", "gpt-6-luna", "gpt-6.1-sol"])
def test_openai_from_5_6_on_matches_exactly_at_a_mark(model: str) -> None:
    rules = caching_of(f"openai/{model}")
    assert rules == Caching(1024, 1.25, 0.1, breakpoints=4, ttl=1800, assistant_breakpoints=False)


@pytest.mark.parametrize(
    ("model", "least"),
    [("gemini-2.5-pro", 2048), ("gemini-2.5-flash", 2048), ("gemini-3.5-flash", 4096)],
)
def test_gemini_caches_by_itself(model: str, least: int) -> None:
    assert caching_of(f"google/{model}") == Caching(least, 1.0, 0.1, ttl=300)


@pytest.mark.parametrize(
    "model",
    [
        "openai/gpt-4",
        "openai/gpt-4-turbo",
        "openai/gpt-3.5-turbo",
        "openai/gpt-5-pro",
        "openai/gpt-5.2-pro",
        "anthropic/claude-2",
        "google/gemini-1.5-pro",
        "google/gemini-2.0-flash",
        "openrouter/anthropic/claude-sonnet-4-5",
        "my/model",
    ],
)
def test_models_that_cache_nothing_or_are_unknown_have_no_rules(model: str) -> None:
    assert caching_of(model) is None


def test_a_profile_has_its_models_rules() -> None:
    profile = Profile.for_model("claude-sonnet-4-5")
    assert profile.caching == caching_of("anthropic/claude-sonnet-4-5")
    assert profile.system_first
    assert not Profile.for_model("openai/gpt-4o").system_first
    assert Profile("mine").caching is None


def test_prices_come_from_genai_prices_where_it_knows_better() -> None:
    assert caching_of("anthropic/claude-opus-5-5").read == 0.1  # type: ignore[union-attr]
    refined = caching_for("anthropic/claude-opus-5-5")
    assert refined is not None
    assert (refined.read, refined.write, refined.min_prefix) == (0.05, 1.25, 512)
    assert caching_for("openai/gpt-4o") == caching_of("openai/gpt-4o")
    assert caching_for("openai/gpt-4") is None
    unheard = caching_for("anthropic/claude-unheard-of")
    assert unheard == caching_of("anthropic/claude-unheard-of")


def test_without_genai_prices_the_table_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices.data_snapshot", None)
    assert caching_for("anthropic/claude-opus-5-5") == caching_of("anthropic/claude-opus-5-5")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"min_prefix": -1}, "min_prefix"),
        ({"read": float("nan")}, "read"),
        ({"write": "1"}, "write"),
        ({"breakpoints": True}, "breakpoints"),
        ({"lookback": -3}, "lookback"),
        ({"granularity": 0}, "granularity"),
        ({"ttl": -1}, "ttl"),
    ],
)
def test_impossible_rules_are_refused_by_name(options: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidInput, match=f"Caching.{named}"):
        Caching(**{"min_prefix": 1, "write": 1.0, "read": 0.1, **options})  # type: ignore[arg-type]
