"""The errors of SDKs as Muntin's errors: split by what must be done, with the SDK's as the cause.

Knows the vendors' statuses and words, and no SDK: errors are told apart by their attributes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from muntin.errors import (
    AuthenticationFailed,
    BadResponse,
    ContextTooLong,
    ProviderError,
    ProviderUnavailable,
    RateLimited,
    RequestRefused,
)
from muntin.providers.secrets import clean, scrub

# https://platform.openai.com/docs/guides/error-codes
# https://platform.claude.com/docs/en/api/errors
# https://ai.google.dev/gemini-api/docs/troubleshooting
_STATUSES: dict[int, type[ProviderError]] = {
    401: AuthenticationFailed,
    402: AuthenticationFailed,
    403: AuthenticationFailed,
    408: ProviderUnavailable,
    429: RateLimited,
}
# Words that say more than the status: Google answers a wrong key with 400, llama.cpp a long
# window with 400 or 500.
_SPECIAL: dict[str, type[ProviderError]] = {
    "API_KEY_INVALID": AuthenticationFailed,
    "context_length_exceeded": ContextTooLong,
    "exceed_context_size_error": ContextTooLong,
}
# Words for errors without a status, within a stream.
_WORDS: dict[str, type[ProviderError]] = {
    "authentication_error": AuthenticationFailed,
    "billing_error": AuthenticationFailed,
    "permission_error": AuthenticationFailed,
    "insufficient_quota": RateLimited,
    "rate_limit_error": RateLimited,
    "rate_limit_exceeded": RateLimited,
    "invalid_request_error": RequestRefused,
    "not_found_error": RequestRefused,
    "request_too_large": RequestRefused,
    "api_error": ProviderUnavailable,
    "overloaded_error": ProviderUnavailable,
    "server_error": ProviderUnavailable,
    "timeout_error": ProviderUnavailable,
}
# Words for too much to do, whatever the status; and words that look like it, but do not pass.
_BUSY = frozenset(
    {"overloaded_error", "rate_limit_error", "rate_limit_exceeded", "slow_down"}
    | {"RESOURCE_EXHAUSTED", "UNAVAILABLE"}
)
_NO_CREDIT = frozenset({"insufficient_quota", "billing_error", "billing_hard_limit_reached"})
# Only OpenAI and llama.cpp have a code for a window that is too long; the others have a sentence.
_TOO_LONG = re.compile(
    r"maximum context length"  # OpenAI, vLLM
    r"|exceeds the context window"  # OpenAI Responses
    r"|prompt is too long|exceed context limit"  # Anthropic
    r"|input token count .*exceeds the maximum"  # Google
    r"|exceeds the available context size",  # llama.cpp
    re.IGNORECASE,
)
# The transports of the SDKs; Google's SDK lets their errors through.
_TRANSPORTS = frozenset({"httpx", "httpx2", "httpcore", "httpcore2", "aiohttp", "anyio"})
_MESSAGE_LIMIT = 1_000


def failure(
    error: Exception, provider: str, model: str, secrets: Sequence[str] = ()
) -> ProviderError:
    """Return Muntin's error for an SDK's error; no secret is left in either text."""
    secrets = list(secrets)
    scrub(error, secrets)
    status = getattr(error, "status_code", None) or getattr(error, "code", None)
    if not isinstance(status, int) or status == 200:  # within a stream: the status of the stream
        status = None
    body = getattr(error, "body", None) or getattr(error, "details", None)
    message = _brief(_message(body) or _text(error), secrets)
    kind = _kind(error, status, body, message)
    wait, passing = _retry_after(error, body), _passing(kind, body)
    return kind(provider, model, status, message, wait, passing)


def failure_within(
    answer: object, provider: str, model: str, secrets: Callable[[], Iterable[str]] = tuple
) -> ProviderError | None:
    """Return the error inside an answer, or a piece of it, with status 200; None if there is none.

    Responses has `error` and `response.failed`; gateways put an `error` into a completion.
    """
    kind = getattr(answer, "type", None)
    if kind == "error":
        answer_error = answer
    else:
        holder = getattr(answer, "response", None) if kind == "response.failed" else answer
        answer_error = getattr(holder, "error", None)
    if not answer_error:
        return None
    body = (
        answer_error if isinstance(answer_error, Mapping) else getattr(answer_error, "__dict__", {})
    )
    code = body.get("code")
    status = code if isinstance(code, int) else None
    message = _brief(_message(body) or "the model failed without saying why", secrets())
    what = _kind(None, status, body, message)
    return what(provider, model, status, message, passing=_passing(what, body))


def _kind(
    error: Exception | None, status: int | None, body: object, message: str
) -> type[ProviderError]:
    words = list(_words(body))
    error_class = _first(_SPECIAL, words) or _STATUSES.get(status or 0)
    if error_class is None and status is not None and 400 <= status < 600:
        error_class = RequestRefused if status < 500 else ProviderUnavailable
    error_class = error_class or _first(_WORDS, words)
    if error_class is RequestRefused and _TOO_LONG.search(message):
        return ContextTooLong
    if error_class is not None:
        return error_class
    if error is None or isinstance(error, OSError):
        return ProviderUnavailable
    name, module = type(error).__name__, type(error).__module__.partition(".")[0]
    if module in _TRANSPORTS or name in ("APIConnectionError", "APITimeoutError"):
        return ProviderUnavailable
    readable = not isinstance(error, ValueError | TypeError | LookupError | AttributeError)
    return ProviderError if readable and status is None else BadResponse


def _passing(kind: type[ProviderError], body: object) -> bool | None:
    """Say whether the provider has too much to do; None if only the status can tell."""
    words = set(_words(body))
    if kind not in (RateLimited, ProviderUnavailable) or words & _NO_CREDIT:
        return False
    return True if words & _BUSY else None


def _first(
    table: Mapping[str, type[ProviderError]], words: Iterable[str]
) -> type[ProviderError] | None:
    return next((table[word] for word in words if word in table), None)


def _words(body: object) -> Iterable[str]:
    """Yield the codes and types of an error's body, the most specific first."""
    error = _error_of(body)
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, Mapping) and isinstance(detail.get("reason"), str):
            yield detail["reason"]
    for field in ("code", "type", "status"):
        if isinstance(error.get(field), str):
            yield error[field]


def _error_of(body: object) -> Mapping[str, Any]:
    """Return the error object of a body; OpenAI's SDK has unwrapped it already."""
    if not isinstance(body, Mapping):
        return {}
    inner = body.get("error")
    return inner if isinstance(inner, Mapping) else body


def _message(body: object) -> str:
    text = _error_of(body).get("message")
    return text if isinstance(text, str) else ""


def _text(error: Exception) -> str:
    text = str(error) or type(error).__name__
    reason = str(error.__cause__ or "")
    return f"{text.rstrip('.')}: {reason}" if reason and reason not in text else text


def _brief(text: str, secrets: Iterable[str]) -> str:
    text = clean(text, secrets)
    return text if len(text) <= _MESSAGE_LIMIT else f"{text[:_MESSAGE_LIMIT]}…"


def _retry_after(error: Exception, body: object) -> float | None:
    """Return how many seconds the provider asks to wait, None if it does not tell."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    details = _error_of(body).get("details")
    for detail in details if isinstance(details, list) else ():  # Google's
        if isinstance(detail, Mapping) and isinstance(detail.get("retryDelay"), str):
            headers = {"retry-after": detail["retryDelay"].removesuffix("s"), **headers}
    try:
        if "retry-after-ms" in headers:
            return _seconds(float(headers["retry-after-ms"]) / 1_000)
        return _seconds(float(headers["retry-after"]))
    except KeyError:
        return None
    except ValueError:  # a date, or not readable
        with suppress(TypeError, ValueError):
            date = parsedate_to_datetime(str(headers.get("retry-after")))
            return _seconds(max(0.0, (date - datetime.now(UTC)).total_seconds()))
        return None


def _seconds(value: float) -> float | None:
    return value if 0 <= value < math.inf else None
