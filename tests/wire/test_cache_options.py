"""OpenAI is asked to set no breakpoint of its own where the planner sets them."""

from __future__ import annotations

from typing import Any

import pytest

from muntin import Slots


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize(
    ("model", "expected"),
    [("openai/gpt-5.6", {"mode": "explicit"}), ("openai/gpt-5", None), (None, None)],
)
def test_only_models_that_know_it_are_told_to_set_no_breakpoint(
    api: Any, model: str | None, expected: object
) -> None:
    slots = Slots(1_000, profile=model)
    slots.add("input", "hello")
    assert slots.render().openai(api=api).get("prompt_cache_options") == expected
