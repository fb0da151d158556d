"""`fit_client`: a client of a vendor's SDK whose requests fit.

Knows of the SDKs only what they share: `copy()`, and `post`, through which every call goes,
streamed or not, raw or parsed. OpenAI's and Anthropic's are made by the same generator and have
both. Checked with openai 3.49 and anthropic 2.8, which has a hook of its own (`with_middleware`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from muntin.core.budget import Budget
from muntin.core.checks import shown
from muntin.errors import InvalidInput, InvalidType
from muntin.fitting.fitter import Fitter
from muntin.fitting.requests import fit_request, form_of, model_of

Client = TypeVar("Client")


def fit_client(
    client: Client, budget: Budget | int | None = None, *, fitter: Fitter | None = None
) -> Client:
    """Return a client like this one whose requests fit the budget.

    `client` is a client of the `openai` or the `anthropic` SDK, sync or async; it is not changed,
    and the two share their connections. Requests of Chat Completions, Responses and Messages are
    fitted, streamed or not; all others pass. `with_options` and `with_raw_response` fit too. For
    other settings than the budget, give a `Fitter`.
    """
    client_fitter = fitter_of(budget, fitter)
    if hasattr(client, "with_middleware"):
        with_it: Client = client.with_middleware(_middleware(client, client_fitter))
        return with_it
    if not (hasattr(client, "copy") and hasattr(client, "post")):
        raise InvalidType(
            f"fit_client takes a client of the openai or the anthropic SDK, not {shown(client)}; "
            "for others there is muntin.integrations.transport.FitTransport"
        )
    copied: Client = client.copy()
    copied.__class__ = _fitting(type(client), client_fitter)
    return copied


def _middleware(client: Any, fitter: Fitter) -> Callable[..., Any]:
    """Return a middleware of Anthropic's SDK for a client, sync or async."""

    def fitted(request: Any, body: Any) -> Any:
        return request if body is request.json else request.copy(body=body)

    async def muntin_async(request: Any, call_next: Callable[[Any], Any]) -> Any:
        body = await afit_body(fitter, request.url, request.json)
        return await call_next(fitted(request, body))

    def muntin(request: Any, call_next: Callable[[Any], Any]) -> Any:
        return call_next(fitted(request, fit_body(fitter, request.url, request.json)))

    return muntin_async if iscoroutinefunction(client.post) else muntin


def _fitting(kind: type, fitter: Fitter) -> type:
    """Return a class of clients whose posts fit; copies of a client have its class."""

    sends: Any = kind

    def post(self: Any, path: str, **options: Any) -> Any:
        body = fit_body(fitter, path, options.get("body"))
        return sends.post(self, path, **{**options, "body": body})

    async def apost(self: Any, path: str, **options: Any) -> Any:
        body = await afit_body(fitter, path, options.get("body"))
        return await sends.post(self, path, **{**options, "body": body})

    chosen = apost if iscoroutinefunction(sends.post) else post
    return type(kind.__name__, (kind,), {"post": chosen, "__module__": kind.__module__})


def fitter_of(budget: Budget | int | None, fitter: Fitter | None) -> Fitter:
    """Return the Fitter that was given, or a new one with this budget."""
    if fitter is None:
        return Fitter(budget)
    if budget is not None:
        raise InvalidInput("give a budget or a fitter, not both: a Fitter has its own budget")
    if not isinstance(fitter, Fitter):
        raise InvalidType(f"fitter must be a Fitter, not {shown(fitter)}")
    return fitter


def fit_body(fitter: Fitter, path: str, body: Any) -> Any:
    """Return the fitted body of a request to a path; a request not to a model stays unchanged."""
    form = form_of(path)
    if form is None or not isinstance(body, Mapping):
        return body
    try:
        return fit_request(fitter, form, body, model=model_of(path)).body
    except InvalidInput:
        if fitter.strict:
            raise
        return body  # the provider will say what is wrong


async def afit_body(fitter: Fitter, path: str, body: Any) -> Any:
    """Do the same as `fit_body`; recording does not block the event loop."""
    return await fitter.beside_loop(lambda: fit_body(fitter, path, body))
