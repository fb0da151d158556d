"""Timers: when an entity is woken, once or again and again. Values only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from muntin.timeline.items import Draft


@dataclass(frozen=True, slots=True)
class Timer:
    """An entity is woken at `due`, with a payload. The `id` is one of the entity's own.

    `kind` is the entity's type. A timer with `every` is moved on each time it was due.
    """

    entity: str
    id: str
    due: datetime
    payload: Any = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    every: str | None = None

    @property
    def kind(self) -> str:
        """The type of the entity."""
        return self.entity.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Released:
    """The result of a timer that was due: the items to append, and when it is due again."""

    draft: Draft | None
    again: datetime | None = None


# Called with a timer that is due and the store's time.
Release: TypeAlias = Callable[[Timer, datetime], Released]
