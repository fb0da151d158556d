"""A connection to PostgreSQL that does not wait for ever for a server that does not answer.

The server ends statements that take too long, but a server that is stopped, or behind a broken
network, ends nothing: here the client stops waiting.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")


class NoAnswer(psycopg.OperationalError):
    """The server was silent for too long."""


class PatientConnection(psycopg.Connection[Any]):
    """Waits for each answer for so many seconds, and then closes itself."""

    seconds = math.inf

    def wait(self, gen: Generator[Any, Any, T], *options: Any, **named: Any) -> T:
        """Wait for the driver's work, as long as the server is not silent for too long."""
        try:
            return super().wait(self._while_answered(gen), *options, **named)
        except NoAnswer:
            self.close()  # what it was asked is under way, and nobody will read the answer
            raise

    def _while_answered(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        """Do the driver's work; it is told often that the connection is not ready."""
        began = time.monotonic()
        try:
            waits = next(gen)
            while True:
                ready = yield waits
                if ready:
                    began = time.monotonic()
                elif time.monotonic() - began > self.seconds:
                    raise NoAnswer(f"the server did not answer for {self.seconds:g} seconds")
                waits = gen.send(ready)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
