"""What holds for every list that is fitted, whatever is in it."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from muntin import BudgetExceeded, messages_from
from muntin.fitting import fit
from tests.fitting.talks import (
    as_anthropic,
    check_anthropic_list,
    check_chat_list,
    requests,
    run,
    talks,
)
from tests.products import EXAMPLES

# A conversation is many requests, and each of them is fitted.
some = settings(max_examples=EXAMPLES // 8)
budgets = st.integers(1_600, 4_000)
MODELS = st.sampled_from(["openai/gpt-4o", "anthropic/claude-sonnet-4-5", None])


@some
@given(talks(), budgets, MODELS)
def test_every_request_is_valid_within_budget_and_has_the_question(
    talk: list[dict[str, Any]], budget: int, model: str | None
) -> None:
    for asked, fitted in zip(requests(talk), run(talk, budget, model=model), strict=True):
        check_chat_list(fitted.kept)
        assert fitted.tokens <= budget
        question = [each for each in asked if each["role"] == "user"][-1]
        assert any(each is question for each in fitted.kept) or fitted.window.input_cut
        opening = asked[:1] if asked[0]["role"] == "system" else []
        assert fitted.kept[: len(opening)] == opening


@some
@given(talks(), budgets)
def test_the_same_in_the_form_of_anthropic(talk: list[dict[str, Any]], budget: int) -> None:
    plain = [each for each in talk if each["role"] != "system"]
    for each in requests(plain):
        try:
            fitted = fit(as_anthropic(each), budget, model="anthropic/claude-sonnet-4-5")
        except BudgetExceeded:
            continue
        check_anthropic_list(fitted.kept)
        assert fitted.tokens <= budget


@some
@given(talks(), budgets)
def test_what_is_kept_is_what_was_counted(talk: list[dict[str, Any]], budget: int) -> None:
    for fitted in run(talk, budget, model="openai/gpt-4o"):
        again = messages_from(fitted.kept)
        shown = [each.message for each in fitted.placed]
        assert [each.text for each in again] == [each.text for each in shown]
        assert [each.tool_calls for each in again] == [each.tool_calls for each in shown]


@some
@given(talks(), budgets)
def test_what_nothing_was_done_to_is_the_object_it_was(
    talk: list[dict[str, Any]], budget: int
) -> None:
    before = json.dumps(talk)
    for fitted in run(talk, budget):
        for item, placed in zip(fitted.kept, fitted.placed, strict=True):
            assert (item is (placed.ref and talk[placed.ref.first])) == placed.is_whole
    assert json.dumps(talk) == before


@some
@given(talks(), budgets, MODELS)
def test_the_small_frontier_chooses_as_the_whole_one_does(
    talk: list[dict[str, Any]], budget: int, model: str | None
) -> None:
    small: Any = {}
    whole: Any = {}
    for each in requests(talk):
        by_small = fit(each, budget, model=model, previous=small)
        by_whole = fit(each, budget, model=model, previous=whole)
        assert by_small.kept == by_whole.kept
        assert by_small.frontier == by_whole.frontier
        assert len(json.dumps(by_small.frontier)) <= 1_000
        small = json.loads(json.dumps(by_small.frontier))
        whole = by_whole.window.frontier
