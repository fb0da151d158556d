"""The one way from async code to a store: in a thread, so that the event loop never waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from muntin.timeline.session import Session
from muntin.timeline.store.memory import MemoryStore

T = TypeVar("T")


async def in_store(session: Session, work: Callable[[], T]) -> T:
    """Do something with a session's store without holding up the event loop."""
    if isinstance(session.store, MemoryStore):
        return work()
    return await asyncio.to_thread(work)
