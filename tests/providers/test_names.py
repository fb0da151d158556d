"""Models by name: what is known of them, from the data that ships with `genai-prices`."""

from __future__ import annotations

import sys
from decimal import Decimal

import pytest

from muntin import MissingExtra, UnknownModel
from muntin.providers.names import Facts, context_window, facts, prices_of


def test_a_model_has_a_window_and_prices():
    known = Facts(200_000, Decimal(3), Decimal("0.3"), Decimal("3.75"), Decimal(15))
    assert facts("anthropic/claude-3-7-sonnet-latest") == known
    assert facts("claude-3-7-sonnet-latest") == known
    assert prices_of("anthropic/claude-3-7-sonnet-latest") == (3.0, 0.3)


def test_of_prices_that_grow_with_the_prompt_the_first_is_meant():
    assert facts("google/gemini-2.5-pro").input == Decimal("1.25")


def test_what_is_read_costs_as_much_as_plain_input_where_no_price_is_known():
    assert prices_of("openai/gpt-4") == (30.0, 30.0)


def test_a_price_that_is_not_known_is_not_nothing():
    assert facts("google/gemma-3").input is None
    assert prices_of("google/gemma-3") is None


def test_a_model_that_is_not_known_is_an_error_that_names_it():
    with pytest.raises(UnknownModel, match="no model 'nobody/nothing' is known"):
        facts("nobody/nothing")
    assert prices_of("nobody/nothing") is None


def test_without_genai_prices_nothing_is_known(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "genai_prices.data_snapshot", None)
    assert prices_of("openai/gpt-4o") is None
    with pytest.raises(MissingExtra, match=r"muntin\[prices\]"):
        context_window("openai/gpt-4o")
