"""The one way from async code to a store: in a thread, so that the event loop never waits.

Also the one place that waits for a store that is away, and that finds the causes of an error.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import count
from typing import TypeAlias, TypeVar

from muntin import telemetry
from muntin.agent.loop import hurried
from muntin.errors import ProviderError, StoreError
from muntin.timeline.session import Session
from muntin.timeline.turn import LEASE

T = TypeVar("T")
# Until when to try again, by the monotonic clock.
Until: TypeAlias = Callable[[StoreError], float]

# How many seconds storing a message is tried again while a server refuses it.
BEGIN_SECONDS = 10.0


def run_in_store(
    session: Session, work: Callable[[], T], until: Until | None = None
) -> Awaitable[T]:
    """Do something with a session's store without holding up the event loop.

    While the store is away, try again as long as `until` says. With a store in memory it is done
    when this returns: nothing else runs meanwhile.
    """
    if not session.store.database.in_memory:
        return retry(partial(_visit, session.id, work), until)
    try:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with telemetry.visiting_store(session.id):
            done.set_result(work())
    except StoreError as error:
        if until is None or not error.passing:
            raise
        return retry(lambda: run_in_store(session, work), until)
    return done


async def _visit(session: str, work: Callable[[], T]) -> T:
    with telemetry.visiting_store(session):
        return await asyncio.to_thread(work)


async def retry(work: Callable[[], Awaitable[T]], until: Until | None) -> T:
    """Do something; while a store is away, try again as long as `until` says.

    A cancelled caller does not wait for another try.
    """
    for attempt in count():
        try:
            return await work()
        except StoreError as error:
            if until is None or not error.passing:
                raise
            seconds_left = until(error) - time.monotonic()
            pause = random.uniform(0.5, 1) * min(2.0, 0.05 * 2 ** min(attempt, 6))
            if seconds_left <= 0 or await hurried(min(pause, seconds_left)):
                raise
    raise AssertionError("count() does not end")


def while_dropped() -> Until:
    """Say until when to try again a write that begins a turn: not long, because its caller waits.

    A commit in doubt is looked for as long as its turn would be held. An error that does not
    pass, such as a full disk, is not tried again.
    """
    began = time.monotonic()

    def until(error: StoreError) -> float:
        if error.in_doubt:
            return began + LEASE.total_seconds()
        return began + BEGIN_SECONDS if error.away else began

    return until


def store_away(error: BaseException) -> bool:
    """Say whether an error, or one of its causes, is that a store is away."""
    return any(isinstance(cause, StoreError) and cause.passing for cause in _causes(error))


def provider_busy(error: BaseException) -> ProviderError | None:
    """Return the error, or its cause, that says that a provider has too much to do; else None."""
    causes = (
        cause for cause in _causes(error) if isinstance(cause, ProviderError) and cause.passing
    )
    return next(causes, None)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all its causes."""
    seen: set[int] = set()
    errors = [error]
    while errors:
        current = errors.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        cause = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
        errors += [] if cause is None else [cause]
        errors += getattr(current, "exceptions", ())
