"""The loop that releases timers that are due, in every process that handles wakes."""

from __future__ import annotations

import asyncio
import logging

from muntin.errors import MuntinError
from muntin.runtime.engine.protocol import POLL_SECONDS, Host

_log = logging.getLogger(__name__)


async def release_timers(host: Host) -> None:
    """Release timers that are due, again and again, until cancelled."""
    while True:
        pause = POLL_SECONDS
        try:
            pause = await host.release()
        except MuntinError as error:  # the store may come back
            _log.warning("timers could not be looked at: %s", error)
        await asyncio.sleep(min(max(pause, 0.0), POLL_SECONDS))
