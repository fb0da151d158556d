"""Renewing the leases of turns that plain code works on, in one thread for all of them.

Async code renews by itself. A stopped process renews nothing, and is taken for dead.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Condition, Thread
from typing import Protocol

from muntin.errors import MuntinError


class Renewed(Protocol):
    """A turn whose lease is renewed."""

    number: int

    def renew(self) -> bool:
        """Renew the lease; False if another owner has taken the turn."""


class Renewer:
    """Renews the leases of all turns added to it, until each is removed."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._turns: dict[int, Renewed] = {}
        self._changed = Condition()
        self._thread: Thread | None = None

    def add(self, turn: Renewed) -> None:
        """Renew a turn from now on."""
        with self._changed:
            self._turns[id(turn)] = turn
            if self._thread is None or not self._thread.is_alive():  # also after a fork
                self._thread = Thread(target=self._run, name="muntin-leases", daemon=True)
                self._thread.start()

    def remove(self, turn: Renewed) -> None:
        """Renew a turn no longer."""
        with self._changed:
            self._turns.pop(id(turn), None)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait(self._seconds)
                turns = list(self._turns.values())
                if not turns:
                    self._thread = None
                    return
            for turn in turns:
                if turn.number:
                    with suppress(MuntinError):  # the store may come back before the lease ends
                        turn.renew()
