"""A request that was valid is valid when it fits: by the vendors' rules, for every form."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from muntin import BudgetExceeded, Slots, Window
from muntin.fitting import Fitter
from muntin.fitting.requests import FORMS, FittedRequest, fit_request
from tests.paths import TRACES
from tests.wire.rules import CHECKS, check_json
from tests.wire.windows import PROVIDERS, encode, windows

MODELS = {
    "chat": "gpt-5.6",
    "responses": "gpt-5.6",
    "anthropic": "claude-sonnet-4-5",
    "google": "gemini-2.5-pro",
}
KEYS = {"chat": "messages", "responses": "input", "anthropic": "messages", "google": "contents"}


def fitted(fitter: Fitter, provider: str, body: dict[str, Any], **options: Any) -> FittedRequest:
    """Fit a request, and check it with the rules that know nothing of how it was made."""
    form = FORMS[provider]
    before = deepcopy(body)
    model = f"{made_by(provider)}/{MODELS[provider]}"
    outcome = fit_request(fitter, form, body, model=model, **options)
    assert body == before, "the request that came is left alone"
    CHECKS[provider](outcome.body)
    check_json(outcome.body)
    return outcome


def made_by(provider: str) -> str:
    return {"anthropic": "anthropic", "google": "google"}.get(provider, "openai")


def checked(window: Window, provider: str) -> dict[str, Any]:
    body = encode(window, provider, strict=False)
    CHECKS[provider](body)
    assume(body[KEYS[provider]])
    return body


@given(window=windows(), budget=st.integers(20, 400))
@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_valid_request_is_valid_when_it_fits(provider, window, budget):
    body = checked(window, provider)
    try:
        outcome = fitted(Fitter(budget, tokenizer="chars/4"), provider, body)
    except BudgetExceeded:
        assume(False)
    assert counted(outcome.body, provider) <= budget


def counted(body: Any, provider: str) -> int:
    """Count a request as it is sent, by itself."""
    again = fitted(Fitter(10_000_000, tokenizer="chars/4", results=None), provider, {**body})
    assert again.fitted is not None
    return again.fitted.window.tokens


@given(window=windows())
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_request_that_fits_is_the_very_one_that_came(provider, window):
    body = checked(window, provider)
    outcome = fitted(Fitter(1_000_000, tokenizer="chars/4"), provider, body)
    assert outcome.body is body
    assert not outcome.changed


def traces() -> list[list[dict[str, Any]]]:
    lines = TRACES.read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["messages"] for line in lines]


def request_of(messages: list[dict[str, Any]], provider: str) -> dict[str, Any]:
    slots = Slots(1_000_000, tokenizer="chars/4")
    slots.add("history", messages)
    return encode(slots.render(), provider)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("budget", [2_200, 3_000])
def test_recorded_conversations_are_valid_and_fit_at_every_request(provider, budget):
    left_out = 0
    for messages in traces()[::24]:
        fitter = Fitter(budget, tokenizer="chars/4")
        for cut in range(2, len(messages) + 1):
            if messages[cut - 1]["role"] not in ("user", "tool"):
                continue
            outcome = fitted(fitter, provider, request_of(messages[:cut], provider))
            assert outcome.fitted is not None
            assert outcome.fitted.window.tokens <= budget
            left_out += outcome.changed
    assert left_out > 2
