"""LiteLLM: a hook that makes every request fit, in the SDK and in the proxy.

    hook = MuntinHook(8_000)
    litellm.callbacks = [hook]                                      # acompletion, Router, proxy
    litellm.completion(**hook.fitted({"model": …, "messages": …}))  # completion

Hook (litellm 1.106): `CustomLogger.async_pre_call_deployment_hook(kwargs: dict, call_type) ->
dict | None`, called with the deployment that was chosen. `completion` calls no hook that may change
a request, so give it a fitted request. LiteLLM keeps no state: conversations are found again as
long as the process lives, and by `metadata={"muntin_frontier": …}` after a restart. They are
recorded under `litellm_session_id`, or `session_id` in the metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muntin.errors import needing
from muntin.integrations.shared import FRONTIER, Hook, conversation_in, model_name
from muntin.wire.lists import pieces_of, write_items

with needing("muntin.integrations.litellm needs: pip install 'muntin[litellm]'"):
    from litellm import get_llm_provider
    from litellm.integrations.custom_logger import CustomLogger

__all__ = ["FRONTIER", "MuntinHook"]

# The calls whose requests hold a conversation.
_CALLS = ("completion", "acompletion")


class MuntinHook(Hook, CustomLogger):
    """Fits the messages of every chat completion.

    `budget` is the tokens of a request, tools included, or a `Fitter` with more settings. `model`
    names the model for counting; without it the request's model is used. `on_fit` is called with
    every fitted request: keep its `frontier` for after a restart.
    """

    @staticmethod
    def name_of(model: Any) -> str | None:
        """Return the name of a request's model."""
        try:
            name, provider, *_ = get_llm_provider(
                model.get("model"), model.get("custom_llm_provider")
            )
        except Exception:  # any error of LiteLLM's about an unknown name
            return None
        return model_name(str(provider), name)

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any] | None:
        """Send the messages that fit."""
        called = getattr(call_type, "value", call_type)
        if called not in (None, *_CALLS):
            return None
        return await self.recorded(lambda: self.fitted(kwargs))

    def fitted(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return a request with the messages that fit; without messages it stays unchanged."""
        messages = request.get("messages")
        if not isinstance(messages, list) or not messages:
            return dict(request)
        metadata = request.get("metadata")
        fitted = self.fit(
            pieces_of(messages),
            request.get("tools") or (),
            request,
            settings=request,
            previous=metadata.get(FRONTIER) if isinstance(metadata, Mapping) else None,
            conversation=request.get("litellm_session_id") or conversation_in(metadata),
        )
        return {**request, "messages": write_items(messages, fitted.placed)}
