"""Connections of the inspector: a request that is not whole in time is cut off.

Knows when a request is whole, and nothing of its content. Needs the extra `inspector`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class Connection(H11Protocol):
    """A connection that gives a request, its body included, `seconds` to arrive.

    The time runs from the first byte, and from the beginning of a connection: slow bytes do not
    prolong it.
    """

    seconds = 10.0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a request; a whole request may take as long as it needs."""
        super().data_received(data)
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._wait()
        else:
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._limit is None:
            # Not closed but cut off: a client that does not read would keep the connection open.
            self._limit = self.loop.call_later(self.seconds, self.transport.abort)

    def _stop(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
