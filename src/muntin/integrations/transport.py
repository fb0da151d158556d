"""A transport for httpx, and for its forks, whose requests fit: for clients without another hook.

Knows no client and imports none: a request has `method`, `url`, `headers` and a body, and a new
request of its class can be made from these. Checked with httpx 0.28 and httpx2 2.16.
"""

from __future__ import annotations

import json
from typing import Any

from muntin.core.budget import Budget
from muntin.fitting import Fitter
from muntin.fitting.client import FittedBody, afit_body, fit_body, fitter_of
from muntin.fitting.replies import watch_body

__all__ = ["FitTransport"]

# Headers that describe the body, and are wrong for a new body.
_OF_THE_BODY = ("content-length", "transfer-encoding", "content-encoding")


class FitTransport:
    """Wraps a transport, sync or async: the requests to models that pass it fit.

    Give it to a client as `transport=FitTransport(httpx.HTTPTransport(), 8_000)`.
    """

    def __init__(
        self, transport: Any, budget: Budget | int | None = None, *, fitter: Fitter | None = None
    ) -> None:
        self._transport = transport
        self._fitter = fitter_of(budget, fitter)

    def handle_request(self, request: Any) -> Any:
        """Send a request that fits."""
        body = _json(request.read()) if request.method == "POST" else None
        if body is not None:
            fitted = fit_body(self._fitter, str(request.url), body)
            response = self._transport.handle_request(_with(request, body, fitted.body))
            return _watch(response, fitted)
        return self._transport.handle_request(request)

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request that fits."""
        body = _json(await request.aread()) if request.method == "POST" else None
        if body is not None:
            fitted = await afit_body(self._fitter, str(request.url), body)
            smaller = _with(request, body, fitted.body)
            return _watch(await self._transport.handle_async_request(smaller), fitted)
        return await self._transport.handle_async_request(request)

    def close(self) -> None:
        """Close the transport."""
        self._transport.close()

    async def aclose(self) -> None:
        """Close the transport."""
        await self._transport.aclose()

    def __enter__(self) -> FitTransport:
        self._transport.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._transport.__exit__(*raised)

    async def __aenter__(self) -> FitTransport:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._transport.__aexit__(*raised)


def _watch(response: Any, fitted: FittedBody) -> Any:
    """Return a response whose usage is read as it passes."""
    if fitted.enter is not None and response.status_code < _REFUSED:
        watch_body(fitted.form, response, fitted.enter)
    return response


# Responses from this status on hold no answer.
_REFUSED = 400


def _json(content: bytes) -> Any:
    """Return the body of a request; None if it is no JSON, and so not a request to a model."""
    try:
        return json.loads(content)
    except ValueError:
        return None


def _with(request: Any, body: Any, fitted: Any) -> Any:
    """Return a request with another body; the same request if the body is unchanged."""
    if fitted is body:
        return request
    headers = [(k, v) for k, v in request.headers.raw if k.decode().lower() not in _OF_THE_BODY]
    return type(request)(
        request.method,
        request.url,
        headers=headers,
        content=json.dumps(fitted).encode(),
        extensions=request.extensions,
    )
