"""What is known about models: context windows, from the data that ships inside `genai-prices`.

Nothing is downloaded: the package's own snapshot is read, never its updater.
"""

from __future__ import annotations

from muntin.errors import InvalidType, MissingExtra, UnknownModel


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
