"""What a window costs: prices by the name of its model, from `genai-prices`, where it is there."""

from __future__ import annotations

from functools import lru_cache

# Asked for few tokens: some models charge more for a large window.
_ASKED = 1_000


@lru_cache(maxsize=256)
def price_of(model: str | None) -> dict[str, float] | None:
    """Return what a million tokens of input cost, plain and read from the cache, in US dollars.

    None if the model is unknown, or the `prices` extra is not installed.
    """
    if model is None:
        return None
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return None
    provider, _, name = model.partition("/")
    try:
        plain = calc_price(Usage(input_tokens=_ASKED), name, provider_id=provider)
        read = calc_price(
            Usage(input_tokens=_ASKED, cache_read_tokens=_ASKED), name, provider_id=provider
        )
    except LookupError:
        return None
    scale = 1_000_000 // _ASKED
    return {"input": float(plain.input_price) * scale, "read": float(read.input_price) * scale}
