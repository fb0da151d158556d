"""What SDKs raise, as our errors: the vendors' statuses and words, without a network."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import pytest

from muntin.errors import (
    AuthenticationFailed,
    BadResponse,
    ContextTooLong,
    ProviderError,
    ProviderUnavailable,
    RateLimited,
    RequestRefused,
)
from muntin.providers.failures import failure, failure_within
from muntin.providers.secrets import find_secrets


class SdkError(Exception):
    """Carries what the SDKs' errors carry."""

    def __init__(self, status: int | None = None, body: Any = None, **headers: str) -> None:
        super().__init__("the SDK's text")
        self.status_code = status
        self.body = body
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.response = SimpleNamespace(headers=named)


STATUSES = [
    (400, RequestRefused),
    (401, AuthenticationFailed),
    (402, AuthenticationFailed),
    (403, AuthenticationFailed),
    (404, RequestRefused),
    (408, ProviderUnavailable),
    (413, RequestRefused),
    (422, RequestRefused),
    (429, RateLimited),
    (500, ProviderUnavailable),
    (503, ProviderUnavailable),
    (529, ProviderUnavailable),
    (302, BadResponse),
]


@pytest.mark.parametrize(("status", "kind"), STATUSES)
def test_a_status_says_who_must_act(status, kind):
    error = failure(SdkError(status), "openai", "m", [])
    assert type(error) is kind
    assert error.status == status
    assert error.passing == (status in (429, 503, 529))
    later = "; try again later" if error.passing else ""
    assert str(error) == f"openai/m ({status}): the SDK's text{later}"


BODIES = [
    # OpenAI
    (400, {"code": "context_length_exceeded", "message": "x"}, ContextTooLong),
    (429, {"code": "insufficient_quota", "message": "x"}, RateLimited),
    (401, {"type": "invalid_request_error", "code": "invalid_api_key"}, AuthenticationFailed),
    # vLLM
    (400, {"message": "This model's maximum context length is 4096 tokens.", "code": 400}, "long"),
    # llama.cpp
    (400, {"type": "exceed_context_size_error", "message": "x", "code": 400}, ContextTooLong),
    (500, {"type": "exceed_context_size_error", "message": "x", "code": 500}, ContextTooLong),
    # Anthropic
    (400, {"error": {"type": "invalid_request_error", "message": "prompt is too long: 2"}}, "long"),
    (
        400,
        {"error": {"message": "input length and `max_tokens` exceed context limit: 1 + 2 > 2"}},
        "long",
    ),
    (None, {"error": {"type": "overloaded_error", "message": "x"}}, ProviderUnavailable),
    (200, {"error": {"type": "rate_limit_error", "message": "x"}}, RateLimited),
    (200, {"error": {"type": "billing_error", "message": "x"}}, AuthenticationFailed),
    # Google
    (
        400,
        {"error": {"message": "x", "details": [{"reason": "API_KEY_INVALID"}]}},
        AuthenticationFailed,
    ),
    (
        400,
        {"error": {"message": "The input token count (2) exceeds the maximum number of tokens"}},
        "long",
    ),
    # Somebody's
    (400, {"error": {"details": 5, "code": None, "message": None}}, RequestRefused),
    (400, {"error": "just a text"}, RequestRefused),
    (400, "<html>", RequestRefused),
    (500, {"error": {"message": "maximum context length of our disk"}}, ProviderUnavailable),
]


@pytest.mark.parametrize(("status", "body", "kind"), BODIES, ids=str)
def test_a_body_says_more_than_a_status(status, body, kind):
    found = type(failure(SdkError(status, body), "p", "m"))
    assert found is (ContextTooLong if kind == "long" else kind)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError(), ProviderUnavailable),
        (ConnectionResetError("reset"), ProviderUnavailable),
        (ValueError("not JSON"), BadResponse),
        (KeyError("choices"), BadResponse),
        (AttributeError("'str' has no 'choices'"), BadResponse),
        (RuntimeError("who knows"), ProviderError),
    ],
    ids=repr,
)
def test_an_error_without_a_status_is_told_by_its_kind(error, kind):
    assert type(failure(error, "p", "m")) is kind


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "0.5"}, 0.5),
        ({"retry_after": "7", "retry_after_ms": "250"}, 0.25),
        ({"retry_after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),  # it is over
        ({"retry_after": "soon"}, None),
        ({"retry_after": "inf"}, None),
        ({"retry_after": "-1"}, None),
        ({}, None),
    ],
    ids=str,
)
@pytest.mark.parametrize("status", [429, 503])
def test_how_long_to_wait_is_told_where_the_provider_says_so(status, headers, seconds):
    error = failure(SdkError(status, None, **headers), "p", "m")
    assert error.retry_after == seconds


def test_a_date_to_wait_for_is_as_many_seconds_as_it_is_away():
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    error = failure(SdkError(429, None, retry_after=date), "p", "m")
    assert error.retry_after is not None
    assert 60 < error.retry_after <= 90


def test_google_says_in_the_body_how_long_to_wait():
    kind = "type.googleapis.com/google.rpc.RetryInfo"
    details = [{"@type": kind, "retryDelay": "34.5s"}]
    error = failure(SdkError(429, {"error": {"details": details}}), "p", "m")
    assert error.retry_after == 34.5


PASSING = [
    (None, {"error": {"type": "overloaded_error"}}, True),
    (200, {"error": {"type": "rate_limit_error"}}, True),
    (429, {"code": "insufficient_quota"}, False),
    (429, {"error": {"status": "RESOURCE_EXHAUSTED"}}, True),
    (None, {"code": "insufficient_quota"}, False),
    (None, {"error": {"type": "api_error"}}, False),
    (503, {"type": "exceed_context_size_error"}, False),
    (429, {"error": {"details": [{"reason": "API_KEY_INVALID"}]}}, False),
]


@pytest.mark.parametrize(("status", "body", "passing"), PASSING, ids=str)
def test_too_much_to_do_passes_and_no_credit_does_not(status, body, passing):
    error = failure(SdkError(status, body), "p", "m")
    assert error.passing is passing
    assert ("try again" in str(error)) is passing


WITHIN = [
    (SimpleNamespace(type="error", code="server_error", message="m"), ProviderUnavailable),
    (SimpleNamespace(type="error", code="rate_limit_exceeded", message="m"), RateLimited),
    (
        SimpleNamespace(
            type="response.failed",
            response=SimpleNamespace(error=SimpleNamespace(code="server_error", message="m")),
        ),
        ProviderUnavailable,
    ),
    (
        SimpleNamespace(
            type="response.failed",
            response=SimpleNamespace(
                error=SimpleNamespace(code="context_length_exceeded", message="m")
            ),
        ),
        ContextTooLong,
    ),
    (SimpleNamespace(error={"code": 401, "message": "m"}), AuthenticationFailed),
    (SimpleNamespace(error={"code": 400, "message": "m"}), RequestRefused),
]


@pytest.mark.parametrize(("answer", "kind"), WITHIN, ids=str)
def test_an_error_within_an_answer_is_found(answer, kind):
    error = failure_within(answer, "p", "m")
    assert error is not None
    assert (type(error), error.message) == (kind, "m")


@pytest.mark.parametrize(
    "answer",
    [SimpleNamespace(type="message", error=None), SimpleNamespace(), "text", None, [1]],
    ids=str,
)
def test_an_answer_without_an_error_has_none(answer):
    assert failure_within(answer, "p", "m") is None


def test_a_long_message_is_cut():
    error = failure(SdkError(500, {"message": "x" * 5_000}), "p", "m")
    assert len(error.message) == 1_001


def test_a_secret_is_taken_out_of_the_whole_chain():
    inner = ValueError("echo: sk-0123456789")
    outer = SdkError(400, {"message": f"{'x' * 995}sk-0123456789"})
    outer.args = ("text with sk-0123456789", b"sk-0123456789")
    outer.__cause__ = inner
    error = failure(outer, "p", "m", find_secrets(["sk-0123456789", "x"], [], {}))
    assert "sk-0" not in error.message + str(outer) + str(inner)
    assert error.message.startswith("xxx")  # a key of one letter is no secret


@pytest.mark.parametrize(
    "error",
    [
        ContextTooLong("openai", "m", 400, "too long"),
        RateLimited("openai", "m", 429, "wait", 7.0),
        RateLimited("openai", "m", 429, "no credit", None, passing=False),
        ProviderUnavailable("openai", "m", None, "gone"),
    ],
    ids=repr,
)
def test_errors_can_be_pickled(error):
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is type(error)
    assert (str(twin), vars(twin)) == (str(error), vars(error))
