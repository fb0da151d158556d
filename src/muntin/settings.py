"""Defaults of all interfaces: of the process, or of the current task and its children."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from muntin.core.checks import check_text, shown
from muntin.core.counting.counter import (
    AttachmentTokens,
    Counter,
    TokenizerLike,
    as_tokenizer,
    check_attachment_tokens,
)
from muntin.core.profile import Profile
from muntin.errors import InvalidType, MuntinError
from muntin.resolver_cache import ResolverCache


@dataclass(frozen=True, slots=True)
class Defaults:
    """The values for calls that give none of their own."""

    tokenizer: TokenizerLike | None = None
    attachment_tokens: AttachmentTokens | None = None
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    cache: ResolverCache = field(default_factory=ResolverCache)


def check_settings(settings: Any, what: str) -> None:
    """Refuse anything but a mapping of names, or None."""
    if settings is None:
        return
    if not isinstance(settings, Mapping):
        raise InvalidType(f"{what}: settings must be a mapping, not {shown(settings)}")
    for name in settings:
        check_text(name, f"{what}: a name in settings")


def merge_settings(*layers: Mapping[str, Any] | None) -> dict[str, Any]:
    """Lay settings over each other, later layers win; None never erases."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged.update({key: value for key, value in (layer or {}).items() if value is not None})
    return merged


class _Process:
    defaults = Defaults()


# The defaults of `config.local` for this task, None outside of its blocks.
_local: ContextVar[Defaults | None] = ContextVar("muntin_defaults", default=None)


def defaults() -> Defaults:
    """Return the defaults in force here."""
    return _local.get() or _Process.defaults


def counter_for(
    profile: Profile | None,
    tokenizer: TokenizerLike | None,
    attachment_tokens: AttachmentTokens | None = None,
) -> Counter:
    """Return the counter: by `tokenizer`, else by that of `config(...)`, else exact where the
    model's vocabulary is known; attachments likewise, at last by kind and size."""
    set_here = defaults()
    return Counter.of(
        profile,
        tokenizer=set_here.tokenizer if tokenizer is None else tokenizer,
        attachment_tokens=attachment_tokens or set_here.attachment_tokens,
    )


def _checked_defaults(
    tokenizer: TokenizerLike | None,
    settings: Mapping[str, Any] | None,
    cache: ResolverCache | None,
    attachment_tokens: AttachmentTokens | None,
) -> dict[str, Any]:
    """Check defaults, and return the ones that were given."""
    if tokenizer is not None:
        as_tokenizer(tokenizer)
    check_attachment_tokens(attachment_tokens)
    check_settings(settings, "config")
    if cache is not None and not isinstance(cache, ResolverCache):
        raise InvalidType(f"config: cache must be a ResolverCache, not {shown(cache)}")
    options = {
        "tokenizer": tokenizer,
        "settings": settings,
        "cache": cache,
        "attachment_tokens": attachment_tokens,
    }
    return {name: value for name, value in options.items() if value is not None}


class config:  # noqa: N801 - it reads as a function, and has a `with` block beside it
    """Set defaults for the whole process; `with config.local(...)` sets them for one task.

    A default that is not given stays unchanged. A per-call argument wins over both.
    """

    def __init__(
        self,
        *,
        tokenizer: TokenizerLike | None = None,
        settings: Mapping[str, Any] | None = None,
        cache: ResolverCache | None = None,
        attachment_tokens: AttachmentTokens | None = None,
    ) -> None:
        _Process.defaults = replace(
            _Process.defaults, **_checked_defaults(tokenizer, settings, cache, attachment_tokens)
        )

    @staticmethod
    @contextmanager
    def local(
        *,
        tokenizer: TokenizerLike | None = None,
        settings: Mapping[str, Any] | None = None,
        cache: ResolverCache | None = None,
        attachment_tokens: AttachmentTokens | None = None,
    ) -> Iterator[None]:
        """Set defaults for the current task and its children until the block ends."""
        before = _local.get()
        _local.set(
            replace(defaults(), **_checked_defaults(tokenizer, settings, cache, attachment_tokens))
        )
        try:
            yield
        finally:
            _local.set(before)

    def __enter__(self) -> NoReturn:
        raise MuntinError(
            "config(...) sets the defaults of the whole process, and has done so; for a block, "
            "write `with config.local(...):`"
        )

    def __exit__(self, *_: object) -> None:
        """Do nothing: the block was never entered."""


def set_tokenizer(tokenizer: TokenizerLike | None) -> None:
    """Set the tokenizer of the process; None brings the default back."""
    if tokenizer is not None:
        as_tokenizer(tokenizer)
    _Process.defaults = replace(_Process.defaults, tokenizer=tokenizer)
