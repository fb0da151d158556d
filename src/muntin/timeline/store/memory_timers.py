"""The timers of a store in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import RLock
from typing import Any

from muntin.timeline.store.protocols import Begun
from muntin.timeline.timers import Release, Timer


class MemoryTimers:
    """Timers that live as long as the store; `Timers` says what its methods promise."""

    def __init__(self, lock: RLock, append: Callable[..., Any]) -> None:
        self._lock = lock
        self._append = append
        self._kept: dict[tuple[str, str], Timer] = {}

    def put(self, timer: Timer, *, after: timedelta | None = None, new: bool = False) -> Timer:
        due = timer.due if after is None else datetime.now(UTC) + after
        kept = replace(deepcopy(timer), due=due)
        with self._lock:
            if not (new and (timer.entity, timer.id) in self._kept):
                self._kept[timer.entity, timer.id] = kept
        return kept

    def put_in(
        self, tx: Any, timer: Timer, *, after: timedelta | None = None, new: bool = False
    ) -> Timer:
        return self.put(timer, after=after, new=new)

    def drop(self, entity: str, id: str) -> bool:
        with self._lock:
            return self._kept.pop((entity, id), None) is not None

    def drop_all(self, entity: str) -> None:
        """Remove the timers of an entity."""
        with self._lock:
            for key in [key for key in self._kept if key[0] == entity]:
                del self._kept[key]

    def of(self, entity: str) -> list[Timer]:
        with self._lock:
            found = [timer for timer in self._kept.values() if timer.entity == entity]
        return sorted(found, key=lambda timer: (timer.due, timer.id))

    def next(self, kinds: Collection[str]) -> float | None:
        with self._lock:
            due = min(
                (each.due for each in self._kept.values() if each.kind in kinds), default=None
            )
        return None if due is None else (due - datetime.now(UTC)).total_seconds()

    def release(
        self, kinds: Collection[str], release: Release, *, most: int, begun: Begun | None = None
    ) -> list[Timer]:
        now = datetime.now(UTC)
        with self._lock:
            due = [each for each in self._kept.values() if each.due <= now and each.kind in kinds]
            due = sorted(due, key=lambda timer: timer.due)[:most]
            for timer in due:
                found = release(timer, now)
                if found.again is None:
                    del self._kept[timer.entity, timer.id]
                else:
                    self._kept[timer.entity, timer.id] = replace(timer, due=found.again)
                if found.draft is not None:
                    self._append(timer.entity, [found.draft], begun=begun)
        return due
