"""Defaults for prompts: of the process, or of the current task and its children."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from muntin.core.checks import check_text
from muntin.core.counting.counter import TokenizerLike, as_tokenizer
from muntin.errors import InvalidType
from muntin.resolver_cache import ResolverCache


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds where a call says nothing."""

    tokenizer: TokenizerLike | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    cache: ResolverCache = field(default_factory=ResolverCache)


def check_settings(settings: Any, what: str) -> None:
    """Refuse anything but a mapping of names, or None."""
    if settings is None:
        return
    if not isinstance(settings, Mapping):
        raise InvalidType(f"{what}: settings must be a mapping, not {settings!r}")
    for name in settings:
        check_text(name, f"{what}: a name in settings")


class _Process:
    defaults = Defaults()


# The `with` blocks of this task, the innermost last.
_blocks: ContextVar[tuple[Defaults, ...]] = ContextVar("muntin_defaults", default=())


def defaults() -> Defaults:
    """Return the defaults in force here."""
    blocks = _blocks.get()
    return blocks[-1] if blocks else _Process.defaults


class config:  # noqa: N801 - it reads as a function, and is a `with` block besides
    """Set defaults for the whole process, or, as a `with` block, for this task and its children.

    What is not given stays as it is. A per-call argument wins over both.
    """

    def __init__(
        self,
        *,
        tokenizer: TokenizerLike | None = None,
        settings: Mapping[str, Any] | None = None,
        cache: ResolverCache | None = None,
    ) -> None:
        if tokenizer is not None:
            as_tokenizer(tokenizer)
        check_settings(settings, "config")
        if cache is not None and not isinstance(cache, ResolverCache):
            raise InvalidType(f"config: cache must be a ResolverCache, not {cache!r}")
        given = {"tokenizer": tokenizer, "settings": settings, "cache": cache}
        self._given: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
        self._before = _Process.defaults
        _Process.defaults = replace(_Process.defaults, **self._given)

    def __enter__(self) -> None:
        # It was not meant for the process: undo what is still ours there.
        now, before = _Process.defaults, self._before
        ours = [name for name, value in self._given.items() if getattr(now, name) is value]
        _Process.defaults = replace(now, **{name: getattr(before, name) for name in ours})
        _blocks.set((*_blocks.get(), replace(defaults(), **self._given)))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _blocks.set(_blocks.get()[:-1])


def set_tokenizer(tokenizer: TokenizerLike | None) -> None:
    """Set the tokenizer of the process; None brings the estimate back."""
    if tokenizer is not None:
        as_tokenizer(tokenizer)
    _Process.defaults = replace(_Process.defaults, tokenizer=tokenizer)
