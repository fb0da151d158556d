"""Requests whose past the provider holds: nothing leaves, new results are cut, and it is said."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from muntin.fitting import Fitter
from muntin.fitting.requests import FORMS, fit_request
from tests.gateway.running import receipt, running
from tests.providers.servers import Answer, serving

LONG = "line of a log\n" * 4_000
WORDS = "word " * 3_000


def anthropic_body(**more: Any) -> dict[str, Any]:
    result = {"type": "tool_result", "tool_use_id": "t1", "content": LONG}
    asked = {"type": "text", "text": WORDS}
    return {
        "model": "claude-opus-5-5",
        "messages": [{"role": "user", "content": [result, asked]}],
        **more,
    }


def responses_body(**more: Any) -> dict[str, Any]:
    result = {"type": "function_call_output", "call_id": "c1", "output": LONG}
    return {"model": "gpt-6", "input": [result, {"role": "user", "content": WORDS}], **more}


def google_body(**more: Any) -> dict[str, Any]:
    response = {"name": "read", "id": "c1", "response": {"output": LONG}}
    parts = [{"functionResponse": response}, {"text": WORDS}]
    return {"contents": [{"role": "user", "parts": parts}], **more}


HELD = [
    ("anthropic", anthropic_body(thread={"type": "continue", "id": "th_1"}), "thread"),
    ("responses", responses_body(previous_response_id="resp_1"), "previous_response_id"),
    ("responses", responses_body(conversation={"id": "conv_1"}), "conversation"),
    ("google", google_body(cachedContent="cachedContents/1"), "cachedContent"),
]
PATHS = {
    "anthropic": "/v1/messages",
    "responses": "/v1/responses",
    "google": "/v1beta/models/gemini-3-pro:generateContent",
}


def items_of(form: str, body: Any) -> Any:
    return body["messages"][0]["content"] if form == "anthropic" else (
        body["input"] if form == "responses" else body["contents"][0]["parts"]
    )  # fmt: skip


@pytest.mark.parametrize(("form", "body", "named"), HELD, ids=[case[2] for case in HELD])
def test_nothing_leaves_and_a_new_result_is_cut(form, body, named):
    outcome = fit_request(Fitter(2_000), FORMS[form], body)
    result, asked = items_of(form, outcome.body)
    assert asked == items_of(form, body)[1]
    text = json.dumps(result)
    assert "tokens left out" in text
    assert len(text) < 3_000
    again = json.dumps(items_of(form, body)[0])
    assert {**result, "content": 0, "output": 0, "functionResponse": 0}.keys() >= json.loads(
        again
    ).keys()
    rest = {
        key: value
        for key, value in outcome.body.items()
        if key not in ("messages", "input", "contents")
    }
    assert rest == {key: value for key, value in body.items() if key in rest}
    assert outcome.fitted is not None
    assert outcome.fitted.held == named
    assert "the past is held by the provider" in str(outcome.fitted.window.report)
    with serving(Answer(body={})) as server, running(server.url, 2_000) as gate:
        answer = httpx2.post(f"{gate.url}{PATHS[form]}", json=body)
        assert server.received[0].body == outcome.body
    assert named in receipt(answer.headers)["passed"]


@pytest.mark.parametrize(("form", "body", "named"), HELD, ids=[case[2] for case in HELD])
def test_without_a_large_result_the_request_is_the_same_object(form, body, named):
    small = json.loads(json.dumps(body).replace(json.dumps(LONG), '"done"'))
    outcome = fit_request(Fitter(2_000), FORMS[form], small)
    assert outcome.body is small
    assert outcome.fitted is not None
    assert outcome.fitted.held == named


def test_a_thread_that_is_created_is_fitted():
    body = anthropic_body(thread={"type": "create"})
    outcome = fit_request(Fitter(20_000), FORMS["anthropic"], body)
    assert outcome.fitted is not None
    assert outcome.fitted.held is None
    assert outcome.fitted.window.tokens <= 20_000


def test_more_cache_marks_than_the_api_takes_are_named():
    mark = {"type": "ephemeral"}
    blocks = [{"type": "text", "text": f"part {n}", "cache_control": mark} for n in range(4)]
    body = {"model": "claude-opus-5-5", "messages": [{"role": "user", "content": blocks}]}
    wrong = fit_request(Fitter(20_000), FORMS["anthropic"], {**body, "cache_control": mark})
    assert wrong.fitted is not None
    assert "4 cache marks and an automatic one" in str(wrong.fitted.window.report)
    right = fit_request(Fitter(20_000), FORMS["anthropic"], body)
    assert right.fitted is not None
    assert "automatic" not in str(right.fitted.window.report)
