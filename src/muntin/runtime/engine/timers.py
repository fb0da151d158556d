"""Timers: how they are asked for, and the loop that releases timers that are due.

The loop runs in every process that handles wakes. The store decides which timers are due.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from muntin.core.checks import check_seconds, copy_json, shown
from muntin.errors import InvalidInput, InvalidType, MuntinError
from muntin.runtime.engine.protocol import POLL_SECONDS, Host
from muntin.timeline.items import EPOCH, check_id, check_session_id
from muntin.timeline.timers import Timer

# The timer of an entity that is woken again and again.
EVERY = "every"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NewTimer:
    """A timer to be stored; with `after` it is due that long after the store's time."""

    timer: Timer
    after: timedelta | None = None


def new_timer(
    entity: str,
    payload: Any,
    meta: Mapping[str, Any],
    at: datetime | None,
    after: float | timedelta | None,
    id: str | None,
) -> NewTimer:
    """Return the timer that was asked for; refuse an invalid time, or two times."""
    check_session_id(entity)
    if at is not None and after is not None:
        raise InvalidInput("a wake comes `at` a time or `after` some: give one of them")
    if id == EVERY:
        raise InvalidInput(f"the id {EVERY!r} is that of the wakes which entity(every=…) asks for")
    name = uuid.uuid4().hex if id is None else check_id(id, "the id of a timer")
    if at is not None and (not isinstance(at, datetime) or at.tzinfo is None):
        raise InvalidType(f"at must be a datetime with a time zone, not {shown(at)}")
    span = None
    if after is not None:
        seconds = after.total_seconds() if isinstance(after, timedelta) else after
        span = timedelta(seconds=check_seconds(seconds, "after"))
    kept = copy_json(payload, "payload of a wake")
    return NewTimer(Timer(entity, name, at or EPOCH, kept, meta), span)


async def release_timers(host: Host) -> None:
    """Release timers that are due, again and again, until cancelled."""
    while True:
        pause = POLL_SECONDS
        try:
            pause = await host.release()
        except MuntinError as error:  # the store may come back
            _log.warning("timers could not be looked at: %s", error)
        await asyncio.sleep(min(max(pause, 0.0), POLL_SECONDS))
