"""Memos: counts and forms of texts, and results by object, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, TypeVar

T = TypeVar("T")
Result = TypeVar("Result")

MEMO_CHARACTERS = 32_000_000
# Results by object are remembered for at most this many characters in all.
_OBJECT_CHARACTERS = 8_000_000


class FormMemo:
    """What was made of texts, bounded: when the young half is full, the old one is forgotten."""

    __slots__ = ("_limit", "_old", "_size", "_young")

    def __init__(self, limit: int = MEMO_CHARACTERS) -> None:
        self._young: dict[Hashable, tuple[Any, int]] = {}
        self._old: dict[Hashable, tuple[Any, int]] = {}
        self._limit = limit // 2
        self._size = 0

    def get(self, key: Hashable) -> Any:
        """Return the value made before, or None."""
        entry = self._young.get(key)
        if entry is None:
            entry = self._old.get(key)
            if entry is None:
                return None
            self.put(key, *entry)
        return entry[0]

    def put(self, key: Hashable, value: Any, characters: int) -> None:
        """Remember a value made from this many characters."""
        self._size += characters + 64  # 64: roughly what an entry costs beside them
        if self._size > self._limit:
            self._old, self._young = self._young, {}
            self._size = characters + 64
        self._young[key] = value, characters


def memoize_by_identity(
    size: Callable[[T], int | None],
) -> Callable[[Callable[[T], Result]], Callable[[T], Result]]:
    """Remember the result of a function of an object that never changes.

    The result is found by the identity of the object, much faster than by comparing two objects.
    `size` returns how many characters an object has; None if its result is not to be remembered.
    """

    def decorated(make: Callable[[T], Result]) -> Callable[[T], Result]:
        memo = FormMemo(_OBJECT_CHARACTERS)

        @wraps(make)
        def remembered(value: T) -> Result:
            entry: tuple[T, Result] | None = memo.get(id(value))
            if entry is None or entry[0] is not value:
                entry = value, make(value)
                characters = size(value)
                if characters is not None:
                    memo.put(id(value), entry, characters)
            return entry[1]

        return remembered

    return decorated
