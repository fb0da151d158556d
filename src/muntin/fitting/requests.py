"""The forms of requests, by their paths, and the fitting of one request.

Owns when a request is sent unchanged: when all of it fits, and when it is not to be fitted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from muntin.fitting.fitter import Fitter
from muntin.wire import anthropic, chat, google, responses
from muntin.wire.lists import pieces_of
from muntin.wire.pieces import Fitted, Piece
from muntin.wire.requests import ASKS, Body, Request, held_by_provider, is_whole

# A list of up to this many messages is read at once: reading each when needed is slower.
_FEW = 500


@dataclass(frozen=True, slots=True)
class Form:
    """How requests of an API are read and written; `passes` says why they are sent unchanged."""

    name: str
    codec: Any
    passes: str | None = None

    def read(self, body: Body) -> Request:
        """Read the body of a request."""
        if self.passes is not None:
            return Request((), passes=self.passes)
        request: Request = self.codec.read_request(body)
        pieces: Sequence[Piece] = pieces_of(request.items, mends=False)
        return replace(request, pieces=list(pieces) if len(request.items) <= _FEW else pieces)

    def write(self, body: Body, fitted: Fitted) -> dict[str, Any]:
        """Return the body with the messages that stay."""
        new_body: dict[str, Any] = self.codec.write_request(body, fitted)
        return new_body


FORMS = {
    "chat": Form("chat", chat),
    "responses": Form("responses", responses),
    "compact": Form("responses", responses, ASKS.format("/responses/compact")),
    "anthropic": Form("anthropic", anthropic),
    "google": Form("google", google),
}
_PATHS = (
    (re.compile(r"/chat/completions/?$"), "chat"),
    (re.compile(r"/responses/?$"), "responses"),
    (re.compile(r"/responses/compact/?$"), "compact"),
    (re.compile(r"/messages/?$"), "anthropic"),
    (re.compile(r":(stream)?generateContent$", re.IGNORECASE), "google"),
)


def form_of(path: str) -> Form | None:
    """Return the form of the requests to a path; None if the path is not a model's."""
    plain = path.partition("?")[0]
    return next((FORMS[name] for pattern, name in _PATHS if pattern.search(plain)), None)


@dataclass(frozen=True, slots=True)
class FittedRequest:
    """A request that is ready to be sent.

    `body` is the same object if everything stays. `passes` says why nothing is left out of it: it
    is not fitted, or its past is held by the provider, and then `fitted` has cut its results.
    """

    body: Mapping[str, Any]
    request: Request
    fitted: Fitted | None = None
    passes: str | None = None

    @property
    def changed(self) -> bool:
        """Whether something was left out, shortened or added."""
        return self.fitted is not None and not is_whole(self.request.pieces, self.fitted)


def model_of(path: str) -> str | None:
    """Return the model that a path names, as Gemini's paths do."""
    match = re.search(r"/models/([^/:]+):", path)
    return None if match is None else f"google/{match[1]}"


def fit_request(
    fitter: Fitter,
    form: Form,
    body: Body,
    *,
    request: Request | None = None,
    model: str | None = None,
    previous: Mapping[str, Any] | None = None,
    conversation: str | None = None,
) -> FittedRequest:
    """Return a request that fits; `request` is the body as it was read before, if it was.

    Raises `InvalidInput` for a body that is no request of this form, and `BudgetExceeded` if system
    text, tools and question alone are more than the budget.
    """
    if request is None:
        request = form.read(body)
    if request.passes is not None:
        return FittedRequest(body, request, passes=request.passes)
    fitted = fitter.fit(
        request.pieces,
        tools=request.tools,
        system=request.system,
        previous=previous,
        conversation=conversation,
        model=model or request.model,
        output=request.output,
        settings=body,
        remark=request.remark,
        folds=request.folds,
    )
    whole = is_whole(request.pieces, fitted)
    passes = None if fitted.held is None else held_by_provider(fitted.held)
    return FittedRequest(body if whole else form.write(body, fitted), request, fitted, passes)
