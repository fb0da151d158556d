"""Models by name: the client of a name, and the known facts about a model.

The facts come from the data inside `genai-prices`. Nothing is downloaded: the package's own
snapshot is read, never its updater.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from muntin.core.checks import shown
from muntin.core.model_name import ModelName
from muntin.core.profile import Caching, Profile
from muntin.core.usage import Usage
from muntin.errors import InvalidInput, InvalidType, MissingExtra, UnknownModel, needing

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
    """Return the model that `provider/model` names; an object that answers is returned unchanged.

    `base_url` leads to a compatible server, `api="responses"` to OpenAI's Responses API. An option
    that is not given is the SDK's own default, environment variables included. The same name and
    options give the same object, so that its connections are used again.
    """
    options = (api, base_url, api_key, timeout, max_retries)
    if isinstance(model, str):
        return _named(model, *options)
    if not callable(getattr(model, "complete", None)):
        raise InvalidType(
            "a model must be a str like 'anthropic/claude-sonnet-4-6' or an object with "
            f"`complete` and `stream`, not {shown(model)}"
        )
    if any(option is not None for option in options):
        raise InvalidInput("api, base_url, api_key, timeout and max_retries are for models by name")
    return model


@lru_cache(maxsize=32)
def _named(model: str, *options: Any) -> Model:
    from muntin.providers.client import Client

    names = ("api", "base_url", "api_key", "timeout", "max_retries")
    return Client(model, **dict(zip(names, options, strict=True)))


@dataclass(frozen=True, slots=True)
class Facts:
    """The known facts about a model: its window in tokens, its prices in dollars a million tokens.

    The prices are for plain input, for input read from the cache, for input written to the cache,
    and for output. If a price grows with the prompt, it is the price of the shortest prompts.
    """

    window: int | None
    input: Decimal | None = None
    read: Decimal | None = None
    write: Decimal | None = None
    output: Decimal | None = None


def facts(model: str) -> Facts:
    """Return the known facts about `model`, written `provider/model` or just `model`.

    An unknown model raises `UnknownModel`; without `genai-prices` no model is known.
    """
    with needing(
        "model limits need the 'prices' extra: pip install 'muntin[prices]'; "
        "or pass a Budget with the tokens you want"
    ):
        from genai_prices.data_snapshot import get_snapshot
    info, named = None, ModelName.parse(model)
    # Its own name, then the name behind a route.
    spellings = [named]
    if named.inner is not None:
        spellings.append(named.inner)
        if named.suggestion is not None:
            spellings.append(ModelName.parse(named.suggestion))
    for named in spellings:
        with suppress(LookupError):
            info = get_snapshot().find_provider_model(named.model, None, named.provider, None)[1]
            break
    if info is None:
        raise UnknownModel(
            f"no model {model!r} is known; check the name, "
            "or pass a Budget, for example Budget(128_000)"
        )
    prices = info.get_prices(datetime.now(UTC))
    decimals: list[Decimal | None] = []
    for kind in ("input_mtok", "cache_read_mtok", "cache_write_mtok", "output_mtok"):
        price = getattr(prices, kind, None)
        price = getattr(price, "base", price)  # of a tiered price, that of the shortest prompts
        decimals.append(None if price is None else Decimal(price))
    return Facts(info.context_window, *decimals)


def context_window(model: str) -> int:
    """Return the context window of `model`, written `provider/model` or just `model`."""
    if not isinstance(model, str):
        raise InvalidType(
            f"a model must be a str like 'anthropic/claude-sonnet-4-6', not {shown(model)}"
        )
    window = facts(model).window
    if window is None:
        raise UnknownModel(
            f"the context window of {model!r} is not known; "
            "pass a Budget, for example Budget(128_000)"
        )
    return window


def prices_of(model: str) -> tuple[float, float] | None:
    """Return the price of a million tokens, plain and read from the cache; None if unknown."""
    try:
        listing = facts(model)
    except (MissingExtra, UnknownModel):
        return None
    if listing.input is None:
        return None
    return float(listing.input), float(listing.input if listing.read is None else listing.read)


def cost_of(model: str, usage: Usage) -> Decimal | None:
    """Return the cost of a call in US dollars; None if a needed price is not known."""
    try:
        listing = facts(model)
    except (MissingExtra, UnknownModel):
        return None
    if listing.input is None or (listing.output is None and usage.output):
        return None
    plain = usage.input - usage.cache_read - usage.cache_write
    priced = (
        (plain, listing.input),
        (usage.cache_read, listing.input if listing.read is None else listing.read),
        (usage.cache_write, listing.input if listing.write is None else listing.write),
        (usage.output, listing.output or Decimal(0)),
    )
    return sum((tokens * price for tokens, price in priced), Decimal(0)) / 1_000_000


def caching_for(model: str) -> Caching | None:
    """Return the caching rules of `model`, with the prices of `genai-prices` if it is installed and
    knows them, else with the prices of Muntin's own table."""
    profile = Profile.for_model(model)
    rules = profile.caching
    if rules is None:
        return None
    try:
        listing = facts(profile.name)
    except (MissingExtra, UnknownModel):
        return rules
    if not listing.input:
        return rules
    return replace(
        rules,
        read=rules.read if listing.read is None else float(listing.read / listing.input),
        write=rules.write if listing.write is None else float(listing.write / listing.input),
    )
