"""LiteLLM: a hook that makes every request fit, in the SDK and in the proxy.

    hook = MuntinHook(8_000)
    litellm.callbacks = [hook]                                      # acompletion, Router, proxy
    litellm.completion(**hook.fitted({"model": …, "messages": …}))  # completion

Hook (litellm 1.106): `CustomLogger.async_pre_call_deployment_hook(kwargs: dict, call_type) ->
dict | None`, called with the deployment that was chosen. `completion` calls no hook that may change
a request, so it is given a fitted one. LiteLLM keeps no state: conversations are found again as
long as the process lives, and by `metadata={"muntin_frontier": …}` after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muntin.errors import MissingExtra
from muntin.fitting import Fitted
from muntin.fitting.reading import pieces_of
from muntin.fitting.writing import written
from muntin.integrations.shared import Fits, Watcher, fitter_of, model_name, recorded

try:
    from litellm import get_llm_provider
    from litellm.integrations.custom_logger import CustomLogger
except ImportError as error:
    raise MissingExtra(
        "muntin.integrations.litellm needs: pip install 'muntin[litellm]'"
    ) from error

__all__ = ["FRONTIER", "MuntinHook"]

FRONTIER = "muntin_frontier"
# The calls whose requests hold a conversation.
_CALLS = ("completion", "acompletion")


class MuntinHook(CustomLogger):
    """Fits the messages of every chat completion.

    `budget` is what a request may have, tools included, or a `Fitter` with more settings. `model`
    names the model for counting; without it that of the request is taken. `on_fit` is told of
    every fitted request: its `frontier` is what to keep for after a restart.
    """

    def __init__(
        self, budget: Fits = None, *, model: str | None = None, on_fit: Watcher | None = None
    ) -> None:
        super().__init__()
        self._fitter = fitter_of(budget)
        self._model = model
        self._on_fit = on_fit

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any] | None:
        """Send what fits."""
        called = getattr(call_type, "value", call_type)
        if called not in (None, *_CALLS):
            return None
        return await recorded(self._fitter, lambda: self.fitted(kwargs))

    def fitted(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return a request with the messages that fit; one without messages as it is."""
        messages = request.get("messages")
        if not isinstance(messages, list) or not messages:
            return dict(request)
        fitted = self._fit(messages, request)
        if self._on_fit is not None:
            self._on_fit(fitted)
        return {**request, "messages": written(messages, fitted.placed)}

    def _fit(self, messages: list[Any], request: Mapping[str, Any]) -> Fitted:
        metadata = request.get("metadata")
        return self._fitter.fit(
            pieces_of(messages),
            tools=request.get("tools") or (),
            previous=metadata.get(FRONTIER) if isinstance(metadata, Mapping) else None,
            model=self._model or self._fitter.model or _name_of(request),
        )


def _name_of(request: Mapping[str, Any]) -> str | None:
    """Return the name of a request's model as Muntin writes it, where its maker is known."""
    try:
        name, provider, *_ = get_llm_provider(
            request.get("model"), request.get("custom_llm_provider")
        )
    except Exception:  # whatever LiteLLM says of a name that it does not know
        return None
    return model_name(str(provider), name)
