"""Models by name: a name as something that answers, and what is known about it.

What is known comes from the data that ships inside `genai-prices`. Nothing is downloaded: the
package's own snapshot is read, never its updater.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from muntin.errors import InvalidInput, InvalidType, MissingExtra, UnknownModel

if TYPE_CHECKING:
    from muntin.providers.reply import Model


def as_model(
    model: str | Model,
    *,
    api: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    timeout: float | None = None,
    max_retries: int | None = None,
) -> Model:
    """Return the model that `provider/model` names; an object that answers is returned as it is.

    `base_url` leads to a compatible server, `api="responses"` to OpenAI's Responses API. What is
    not given is the SDK's own default, environment variables included. The same name and options
    give the same object, so that its connections are used again.
    """
    options = (api, base_url, api_key, timeout, max_retries)
    if isinstance(model, str):
        return _named(model, *options)
    if not callable(getattr(model, "complete", None)):
        raise InvalidType(
            "a model must be a str like 'anthropic/claude-sonnet-4-5' or an object with "
            f"`complete` and `stream`, not {model!r}"
        )
    if any(option is not None for option in options):
        raise InvalidInput("api, base_url, api_key, timeout and max_retries are for models by name")
    return model


@lru_cache(maxsize=32)
def _named(
    model: str,
    api: str | None,
    base_url: str | None,
    api_key: str | None,
    timeout: float | None,
    max_retries: int | None,
) -> Model:
    from muntin.providers.clients import Client

    return Client(
        model,
        api=api,
        base_url=base_url,
        api_key=api_key,
        timeout=timeout,
        max_retries=max_retries,
    )


def context_window(model: str) -> int:
    """Return the context window of `model`, written `provider/model` or just `model`."""
    if not isinstance(model, str):
        raise InvalidType(
            f"a model must be a str like 'anthropic/claude-sonnet-4-5', not {model!r}"
        )
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError as error:
        raise MissingExtra(
            "model limits need the 'prices' extra: pip install 'muntin[prices]'; "
            "or pass a Budget with the tokens you want"
        ) from error
    # "openrouter/anthropic/claude" is provider openrouter: the first slash splits.
    provider, _, name = model.partition("/") if "/" in model else (None, "", model)
    try:
        _, info = get_snapshot().find_provider_model(name, None, provider, None)
    except LookupError:
        raise UnknownModel(
            f"no model {model!r} is known; check the name, "
            "or pass a Budget, for example Budget(128_000)"
        ) from None
    if info.context_window is None:
        raise UnknownModel(
            f"the context window of {model!r} is not known; "
            "pass a Budget, for example Budget(128_000)"
        )
    return int(info.context_window)
