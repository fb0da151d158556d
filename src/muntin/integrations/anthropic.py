"""Anthropic's SDK: a middleware whose requests fit.

The hook is the SDK's own, checked with anthropic 2.8: `Anthropic(middleware=[...])`, with
`handle(request, call_next)` and `handle_async`, called once for every attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muntin.core.budget import Budget
from muntin.errors import needing
from muntin.fitting import Fitter
from muntin.fitting.client import acall_fitted, call_fitted, fitter_of

with needing("muntin.integrations.anthropic needs: pip install 'muntin[anthropic]'"):
    from anthropic import Middleware

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anthropic import APIRequest

__all__ = ["MuntinMiddleware"]


class MuntinMiddleware(Middleware):
    """Fits the requests of an `Anthropic` or `AsyncAnthropic` client."""

    def __init__(self, budget: Budget | int | None = None, *, fitter: Fitter | None = None) -> None:
        self._fitter = fitter_of(budget, fitter)

    def handle(self, request: APIRequest, call_next: Callable[[APIRequest], Any]) -> Any:
        """Send a request that fits."""
        return call_fitted(self._fitter, request, call_next)

    async def handle_async(
        self, request: APIRequest, call_next: Callable[[APIRequest], Awaitable[Any]]
    ) -> Any:
        """Send a request that fits."""
        return await acall_fitted(self._fitter, request, call_next)
