"""The resolver cache: texts of expensive contexts, kept for a while.

Only a context's identity and its own declared input are in a key, and the resolver that makes a
text sees none of the caller's context variables, so that one tenant's text cannot be served to
another. The cache knows which text waits for which, so that no text waits for itself. Tests can
replace the clock.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass
from threading import Lock
from typing import Any, Literal, TypeAlias

from muntin.core.checks import check_count, check_seconds, shown
from muntin.errors import Deadlock, InvalidInput, InvalidType, TimedOut
from muntin.threads import apart, register_variable

DEFAULT_TTL = 300_000
MOST_TTL = sys.maxsize
# Seconds to wait for a text that another task makes. The cache sees a circle where a resolver
# calls on, but not where a resolver hands the call to a thread without its context variables.
MOST_WAIT = 300.0

Outcome: TypeAlias = Literal["hit", "miss"]


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """How long a context's text is kept, in milliseconds, and whether providers may cache it."""

    ttl: int = field(default=DEFAULT_TTL, kw_only=True)
    provider: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        if check_count(self.ttl, "CacheOptions.ttl") > MOST_TTL:
            raise InvalidInput(f"CacheOptions.ttl must be at most {MOST_TTL} milliseconds")
        if not isinstance(self.provider, bool):
            raise InvalidType(f"CacheOptions.provider must be a bool, not {shown(self.provider)}")


def as_options(value: object, what: str) -> CacheOptions | None:
    """Return the options that `cache=` stands for: milliseconds, True, options, or none."""
    if value is None or value is False:
        return None
    if value is True:
        return CacheOptions()
    if isinstance(value, CacheOptions):
        return value
    if isinstance(value, int):
        if check_count(value, f"{what}: cache") > MOST_TTL:
            raise InvalidInput(f"{what}: cache must be at most {MOST_TTL} milliseconds")
        return CacheOptions(ttl=value)
    raise InvalidType(
        f"{what}: cache must be milliseconds, True or CacheOptions, not {shown(value)}"
    )


@dataclass(frozen=True, slots=True)
class Entry:
    """One text in the cache: its source, when it was made, when it ends."""

    source: str
    text: str
    since: float
    until: float


@dataclass(frozen=True, slots=True)
class Answer:
    """A text, and where it is from: from the cache, with its age in seconds, or made now."""

    text: str
    outcome: Outcome
    age: float


@dataclass(slots=True, eq=False)
class _Flight:
    """A text being made, and the texts that its maker waits for meanwhile: each as the last of a
    chain, in which one text needs the next."""

    source: str
    cache: ResolverCache
    text: Future[str] = field(default_factory=Future)
    waits_for: list[tuple[_Flight, ...]] = field(default_factory=list)


# The texts being made around this code, outermost first: tasks and threads inherit it.
_around: ContextVar[tuple[_Flight, ...]] = register_variable(
    ContextVar("muntin_in_the_making", default=())
)


def cache_around() -> ResolverCache | None:
    """Return the cache for which a text is being made around this code: the texts that its maker
    needs are stored there too, whatever the caller's own cache is."""
    around = _around.get()
    return around[-1].cache if around else None


# One lock for all caches: a chain of waiting texts may lead through several caches.
_waits = Lock()


class _Abandoned(Exception):
    """The task that made the text was cancelled; another task must make the text."""


class ResolverCache:
    """A bounded cache with one maker per text, even if many tasks wait for the text."""

    def __init__(
        self,
        max_entries: int = 1_000,
        clock: Callable[[], float] = time.monotonic,
        *,
        max_wait: float = MOST_WAIT,
    ) -> None:
        self.hits = 0
        self.misses = 0
        self._most = check_count(max_entries, "max_entries")
        self._clock = clock
        self._entries: OrderedDict[Hashable, Entry] = OrderedDict()
        self._max_wait = check_seconds(max_wait, "max_wait")
        self._making: dict[Hashable, _Flight] = {}
        self._lock = Lock()

    def entries(self) -> list[Entry]:
        """Return the entries that are still fresh, the longest unused first."""
        now = self._clock()
        with self._lock:
            return [entry for entry in self._entries.values() if entry.until > now]

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            self._entries.clear()

    async def get(
        self, key: Hashable, source: str, ttl: int, make: Callable[[], str | Awaitable[str]]
    ) -> Answer:
        """Return the text of `key`, making it if it is not there or too old (`ttl` in ms).

        Raises `Deadlock` if the text is needed to make itself.
        """
        while True:
            with self._lock:
                entry = self._fresh(key)
                if entry is not None:
                    self.hits += 1
                    return Answer(entry.text, "hit", self._clock() - entry.since)
                waiting = self._making.get(key)
                if waiting is None:
                    self.misses += 1
                    mine = self._making[key] = _Flight(source, self)
                    mine.text.set_running_or_notify_cancel()  # a waiting task cannot cancel it
            if waiting is None:
                return await self._make(key, ttl, make, mine)
            try:
                text = await _wait(waiting, self._max_wait)
            except _Abandoned:
                continue
            with self._lock:
                self.hits += 1
            return Answer(text, "hit", 0.0)

    async def _make(
        self,
        key: Hashable,
        ttl: int,
        make: Callable[[], str | Awaitable[str]],
        mine: _Flight,
    ) -> Answer:
        before = _around.set((*_around.get(), mine))
        try:
            text = await apart(make)
        except BaseException as error:
            with self._lock:
                del self._making[key]
            # All waiting tasks share a failure; a cancellation is only the maker's.
            mine.text.set_exception(error if isinstance(error, Exception) else _Abandoned())
            mine.text.exception()  # mark as seen: perhaps no task waits
            raise
        finally:
            _around.reset(before)
        now = self._clock()
        with self._lock:
            del self._making[key]
            self._entries[key] = Entry(mine.source, text, now, now + ttl / 1_000)
            self._entries.move_to_end(key)
            while len(self._entries) > self._most:
                self._entries.popitem(last=False)
        mine.text.set_result(text)
        return Answer(text, "miss", 0.0)

    def _fresh(self, key: Hashable) -> Entry | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.until <= self._clock():
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return entry


async def _wait(wanted: _Flight, seconds: float) -> str:
    """Wait for a text that is being made; refuse if that text waits for this task."""
    around = _around.get()
    chains = {
        flight: (*around[place:], wanted)
        for place, flight in enumerate(around, 1)
        if not flight.text.done()
    }
    with _waits:
        cycle = _cycle(wanted, chains)
        if cycle:
            raise Deadlock(
                [flight.source for flight in cycle],
                "A cached resolver must not need its own text, nor that of one that needs it: "
                "let it read what both need, or put the shared text into a context of its own",
            )
        for flight, chain in chains.items():
            flight.waits_for.append(chain)
    try:
        async with asyncio.timeout(seconds) as limit:
            return await asyncio.wrap_future(wanted.text)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TimedOut(
            f"the resolver of {wanted.source}, which others wait for,", seconds
        ) from error
    finally:
        with _waits:
            for flight, chain in chains.items():
                flight.waits_for.remove(chain)


def _cycle(wanted: _Flight, makers: Mapping[_Flight, tuple[_Flight, ...]]) -> list[_Flight]:
    """Return the chain of waiting texts from a maker back to it; empty if waiting will end."""
    paths, seen = [[wanted]], {wanted}
    while paths:
        path = paths.pop()
        last = path[-1]
        if last in makers:
            return [last, *makers[last][:-1], *path]
        further = [chain for chain in last.waits_for if chain[-1] not in seen]
        seen.update(chain[-1] for chain in further)
        paths.extend([*path, *chain] for chain in further)
    return []


def identity(function: object) -> Hashable:
    """Return a function as a part of a key: itself, or a wrapper if it cannot be hashed."""
    try:
        hash(function)
    except TypeError:
        return _Same(function)
    return function


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """A key part that is equal only to another one around the very same object."""

    value: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def freeze(value: Any, what: str) -> Hashable:
    """Return a hashable form of an input value that is equal only for equal values."""
    try:
        return _freeze(value, what)
    except RecursionError:
        raise InvalidInput(
            f"{what} cannot be cached: its input contains itself or is nested too deeply"
        ) from None


def _freeze(value: Any, what: str) -> Hashable:
    if isinstance(value, Mapping):
        return ("map", tuple((_freeze(k, what), _freeze(v, what)) for k, v in value.items()))
    if isinstance(value, list | tuple):
        return (type(value), tuple(_freeze(item, what) for item in value))
    if isinstance(value, set | frozenset):
        return ("set", frozenset(_freeze(item, what) for item in value))
    if hasattr(type(value), "model_fields"):
        return (type(value), _freeze(dict(value), what))
    if is_dataclass(value) and not isinstance(value, type):
        members = {spec.name: getattr(value, spec.name) for spec in fields(value)}
        return (type(value), _freeze(members, what))
    try:
        hash(value)
    except TypeError:
        raise InvalidType(
            f"{what} cannot be cached: its input holds a {type(value).__name__}, "
            "which cannot be part of a key"
        ) from None
    # Equal values may have different texts: one moment in two time zones, 1.0 and 1.00.
    return (type(value), value, repr(value))
