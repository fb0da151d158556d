"""The one way from async code to a store: in a thread, so that the event loop never waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from muntin.timeline.session import Session
from muntin.timeline.store.memory import MemoryStore

T = TypeVar("T")


def in_store(session: Session, work: Callable[[], T]) -> Awaitable[T]:
    """Do something with a session's store without holding up the event loop."""
    if not isinstance(session.store, MemoryStore):
        return asyncio.to_thread(work)
    done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    done.set_result(work())
    return done
