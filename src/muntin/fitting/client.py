"""`fit_client`: a client of a vendor's SDK whose requests fit.

Knows of the SDKs only what they share: `copy()`, and `post`, through which every call goes,
streamed or not, raw or parsed. OpenAI's and Anthropic's are made by the same generator and have
both. Checked with openai 3.49 and anthropic 2.8, which has a hook of its own (`with_middleware`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, NamedTuple, TypeVar

from muntin.core.budget import Budget
from muntin.core.checks import shown
from muntin.errors import InvalidInput, InvalidType
from muntin.fitting.fitter import Fitter
from muntin.fitting.replies import watch
from muntin.fitting.requests import fit_request, form_of, model_of
from muntin.timeline.recall.settings import RecallLike

Client = TypeVar("Client")


def fit_client(
    client: Client,
    budget: Budget | int | None = None,
    *,
    fitter: Fitter | None = None,
    recall: RecallLike = False,
) -> Client:
    """Return a client like this one whose requests fit the budget.

    `client` is a client of the `openai` or the `anthropic` SDK, sync or async; it is not changed,
    and the two share their connections. Requests of Chat Completions, Responses and Messages are
    fitted, streamed or not; all others pass. `with_options` and `with_raw_response` fit too. With
    `recall` messages that have left the window and bear on the user's last one stand before it.
    For other settings, give a `Fitter`.
    """
    client_fitter = fitter_of(budget, fitter, recall)
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

    async def muntin_async(request: Any, call_next: Callable[[Any], Any]) -> Any:
        return await acall_fitted(fitter, request, call_next)

    def muntin(request: Any, call_next: Callable[[Any], Any]) -> Any:
        return call_fitted(fitter, request, call_next)

    return muntin_async if iscoroutinefunction(client.post) else muntin


def call_fitted(fitter: Fitter, request: Any, call_next: Callable[[Any], Any]) -> Any:
    """Send a request of Anthropic's SDK that fits, and enter what its answer used."""
    fitted = fit_body(fitter, request.url, request.json)
    response = call_next(_smaller(request, fitted))
    if fitted.enter is not None and response.status_code < _REFUSED:
        watch(fitted.form, response.parse(), fitted.enter)
    return response


async def acall_fitted(fitter: Fitter, request: Any, call_next: Callable[[Any], Any]) -> Any:
    """Do the same as `call_fitted`; recording does not block the event loop."""
    fitted = await afit_body(fitter, request.url, request.json)
    response = await call_next(_smaller(request, fitted))
    if fitted.enter is not None and response.status_code < _REFUSED:
        watch(fitted.form, await response.parse(), fitted.enter)
    return response


def _smaller(request: Any, fitted: FittedBody) -> Any:
    return request if fitted.body is request.json else request.copy(body=fitted.body)


def _fitting(kind: type, fitter: Fitter) -> type:
    """Return a class of clients whose posts fit; copies of a client have its class."""

    sends: Any = kind

    def post(self: Any, path: str, **options: Any) -> Any:
        fitted = fit_body(fitter, path, options.get("body"))
        answer = sends.post(self, path, **{**options, "body": fitted.body})
        if fitted.enter is not None:
            watch(fitted.form, _parsed(answer, options), fitted.enter)
        return answer

    async def apost(self: Any, path: str, **options: Any) -> Any:
        fitted = await afit_body(fitter, path, options.get("body"))
        answer = await sends.post(self, path, **{**options, "body": fitted.body})
        if fitted.enter is not None:
            watch(fitted.form, _parsed(answer, options), fitted.enter)
        return answer

    chosen = apost if iscoroutinefunction(sends.post) else post
    return type(kind.__name__, (kind,), {"post": chosen, "__module__": kind.__module__})


def fitter_of(
    budget: Budget | int | None, fitter: Fitter | None, recall: RecallLike = False
) -> Fitter:
    """Return the Fitter that was given, or a new one with this budget."""
    if fitter is None:
        return Fitter(budget, recall=recall)
    if recall:
        raise InvalidInput("give recall or a fitter, not both: write Fitter(..., recall=True)")
    if budget is not None:
        raise InvalidInput("give a budget or a fitter, not both: a Fitter has its own budget")
    if not isinstance(fitter, Fitter):
        raise InvalidType(f"fitter must be a Fitter, not {shown(fitter)}")
    return fitter


class FittedBody(NamedTuple):
    """The body of a request that fits, the name of its form, and where its usage is entered: None
    for a request that is not to a model, or was not fitted."""

    body: Any
    form: str = ""
    enter: Callable[[Any], None] | None = None


def fit_body(fitter: Fitter, path: str, body: Any) -> FittedBody:
    """Return the fitted body of a request to a path; a request not to a model stays unchanged."""
    form = form_of(path)
    if form is None or not isinstance(body, Mapping):
        return FittedBody(body)
    try:
        request = fit_request(fitter, form, body, model=model_of(path))
    except InvalidInput:
        if fitter.strict:
            raise
        return FittedBody(body)  # the provider will say what is wrong
    if request.fitted is None or request.fitted.passes is not None:
        return FittedBody(request.body)
    return FittedBody(request.body, form.name, partial(fitter.enter_usage, request.fitted))


async def afit_body(fitter: Fitter, path: str, body: Any) -> FittedBody:
    """Do the same as `fit_body`; recording does not block the event loop."""
    return await fitter.beside_loop(lambda: fit_body(fitter, path, body))


def _parsed(answer: Any, options: Mapping[str, Any]) -> Any:
    """Return the answer itself where the caller asked for the whole response."""
    parse = getattr(answer, "parse", None) if hasattr(answer, "http_response") else None
    if parse is None:
        return answer
    return None if options.get("stream") or iscoroutinefunction(parse) else parse()


# Responses from this status on hold no answer.
_REFUSED = 400
