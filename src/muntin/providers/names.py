"""Models by name: a name as something that answers, and what is known about it.

What is known comes from the data that ships inside `genai-prices`. Nothing is downloaded: the
package's own snapshot is read, never its updater.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from muntin.core.profile import Caching, Profile
from muntin.errors import InvalidInput, InvalidType, MissingExtra, UnknownModel

if TYPE_CHECKING:
    from muntin.providers.model import Model


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
    from muntin.providers.client import Client

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
        info = _find(model)
    except ImportError as error:
        raise MissingExtra(
            "model limits need the 'prices' extra: pip install 'muntin[prices]'; "
            "or pass a Budget with the tokens you want"
        ) from error
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


def caching_for(model: str) -> Caching | None:
    """Return the caching rules of `model`, with the prices of `genai-prices` where it is installed
    and knows them, else with those of Muntin's own table."""
    profile = Profile.for_model(model)
    name, rules = profile.name, profile.caching
    if rules is None:
        return None
    try:
        prices = _find(name).prices
    except (ImportError, LookupError):
        return rules
    if isinstance(prices, list):  # prices that changed with time, the present one last
        prices = prices[-1].prices
    plain = _price(prices, "input_mtok")
    read = _price(prices, "cache_read_mtok")
    write = _price(prices, "cache_write_mtok")
    if not plain:
        return rules
    return replace(
        rules,
        read=rules.read if read is None else float(read / plain),
        write=rules.write if write is None else float(write / plain),
    )


def _find(model: str) -> Any:
    """Return what the snapshot knows of a model."""
    from genai_prices.data_snapshot import get_snapshot

    # "openrouter/anthropic/claude" is provider openrouter: the first slash splits.
    provider, _, name = model.partition("/") if "/" in model else (None, "", model)
    return get_snapshot().find_provider_model(name, None, provider, None)[1]


def _price(prices: object, name: str) -> Decimal | None:
    """Return a price; of a tiered one that of the shortest prompts."""
    price = getattr(prices, name, None)
    price = getattr(price, "base", price)
    return None if price is None else Decimal(price)
