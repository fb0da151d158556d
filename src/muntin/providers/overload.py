"""Who tries again when a provider has too much to do: its SDK, or the caller, later.

The SDKs try again by themselves, within seconds. Where the caller comes back later anyway, as a
wake does, both together would multiply: then the SDK is told to leave it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from muntin.errors import OVERLOADED

_later: ContextVar[bool] = ContextVar("muntin_tried_later", default=False)


@contextmanager
def tried_later() -> Iterator[None]:
    """Leave to the caller, in the block, what a provider refuses because it has too much to do."""
    token = _later.set(True)
    try:
        yield
    finally:
        with suppress(ValueError):  # the event loop has ended, and its tasks are thrown away
            _later.reset(token)


async def leave_to_caller(response: Any) -> None:
    """Have OpenAI's or Anthropic's SDK not try again: both obey this header of a response."""
    if _later.get() and response.status_code in OVERLOADED:
        response.headers["x-should-retry"] = "false"


async def refuse_to_caller(response: Any) -> None:
    """Have Google's SDK not try again: it does so for errors of its own, and not for this one."""
    if _later.get() and response.status_code in OVERLOADED:
        await response.aread()
        raise Refused(response)


class Refused(Exception):
    """A response that says that the provider has too much to do."""

    def __init__(self, response: Any) -> None:
        super().__init__(f"status {response.status_code}")
        self.response = response
        self.status_code = response.status_code
        self.body: Any = None
        with suppress(ValueError):
            self.body = response.json()
