"""One append of a turn, with the staged drafts; written once, even if it is tried again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from muntin.errors import StoreError
from muntin.timeline.items import Draft, Item, SideWrites, Status
from muntin.timeline.session import OpenTurn


class Written(Protocol):
    """The turn that is written to."""

    open: OpenTurn

    def unstage(self, *, ends: bool) -> list[Draft]:
        """Return the staged drafts, to be written now."""

    def stage_again(self, staged: Sequence[Draft]) -> None:
        """Stage drafts again that could not be written."""

    def beside(self, step: int) -> SideWrites | None:
        """Return what is to be stored for a step."""

    def wrote(self, step: int, *, ends: bool) -> None:
        """Note what is durable now."""


class TurnWrite:
    """One append of a turn, with the staged drafts; called again when the store was away."""

    def __init__(
        self,
        turn: Written,
        drafts: Sequence[Draft],
        step: int = 0,
        *,
        first: bool = False,
        ends: Status | None = None,
    ) -> None:
        self._turn = turn
        self._drafts = drafts
        self._step = step
        # Whether the drafts stand before the staged drafts.
        self._first = first
        self._ends = ends
        self._doubted: tuple[list[Draft], int] | None = None

    @property
    def in_doubt(self) -> bool:
        """Whether the connection broke during the commit."""
        return self._doubted is not None

    def __call__(self) -> list[Item]:
        """Append, and return the items of the drafts; for code in a thread.

        The report of a step is stored too; if it cannot be written, the items still are.
        """
        turn = self._turn
        added = None
        if self._doubted is not None:
            whole, count = self._doubted
            added = turn.open.find(whole)
        else:
            staged = turn.unstage(ends=self._ends is not None)
            whole, count = self._whole(staged), len(staged)
        if added is None:
            added = self._append(whole, count)
        turn.wrote(self._step, ends=self._ends is not None)
        most = len(self._drafts)
        return added[:most] if self._first else added[count:]

    def _whole(self, staged: list[Draft]) -> list[Draft]:
        whole = [*self._drafts, *staged] if self._first else [*staged, *self._drafts]
        if self._ends is not None and whole and whole[-1].ends != self._ends:
            whole[-1] = replace(whole[-1], ends=self._ends)
        return whole

    def _append(self, whole: list[Draft], count: int) -> list[Item]:
        turn = self._turn
        beside = None
        if self._step:
            with suppress(TypeError, ValueError, RecursionError):
                beside = turn.beside(self._step)
        self._doubted = None
        try:
            return turn.open.write(whole, beside)
        except BaseException as error:
            if isinstance(error, StoreError) and error.in_doubt:
                self._doubted = whole, count
            else:  # not written: the next append writes them
                staged = whole[-count:] if self._first else whole[:count]
                turn.stage_again([replace(each, ends=None) for each in staged] if count else [])
            raise
