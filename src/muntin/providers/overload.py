"""Which side tries again when a provider has too much to do: its SDK, or the caller, later.

The SDKs try again by themselves, within seconds. If the caller tries again later anyway, as a wake
does, the tries would multiply: then the SDK is told not to try again.
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
    """In the block, pass errors of an overloaded provider to the caller; the SDK does not retry."""
    token = _later.set(True)
    try:
        yield
    finally:
        with suppress(ValueError):  # the event loop has ended without its tasks
            _later.reset(token)


async def leave_to_caller(response: Any) -> None:
    """Keep OpenAI's or Anthropic's SDK from trying again: both obey this header of a response."""
    if _later.get() and response.status_code in OVERLOADED:
        response.headers["x-should-retry"] = "false"


async def refuse_to_caller(response: Any) -> None:
    """Keep Google's SDK from trying again: it does so only after errors of its own types."""
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
