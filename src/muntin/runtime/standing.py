"""Standing wishes in the interfaces: the block at the head of a history that has moved.

Owns that the block is written only when a history moves, with the wishes that have left the window
then; between moves the one of the window before stays. `timeline.recall.standing` finds the wishes.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from muntin.composer import Composer
from muntin.core.caching.frontier import Frontier, LazyFrontier
from muntin.core.planning.slot import Recap
from muntin.core.planning.slots import Slots
from muntin.core.window import Window
from muntin.runtime.store_thread import run_in_store
from muntin.timeline.project import Projection
from muntin.timeline.recall.settings import Standing
from muntin.timeline.recall.standing import Block, block_of
from muntin.timeline.recall.stored import before_turn, wishes_in

if TYPE_CHECKING:
    from muntin.runtime.turn import ActiveTurn

# The name of the block in the report.
STANDING = "standing"
# How often a window is composed again because more wishes left it with the block.
_ROUNDS = 2
# The index must be made within so many seconds; else the block waits for the next move.
_SECONDS = 2.0
_log = logging.getLogger(__name__)

Compose = Callable[[Slots, Composer], Awaitable[Window]]


class KeptWishes:
    """The block of standing wishes in the windows of one turn."""

    def __init__(
        self,
        turn: ActiveTurn,
        settings: Standing,
        projection: Projection | None,
        completed: bool,
    ) -> None:
        self._turn = turn
        self._settings = settings
        self._projection = projection or None
        self._completed = completed

    async def compose(self, slots: Slots, composer: Composer, compose: Compose) -> Window:
        """Return the window of slots; once more, with other wishes, if its history has moved."""
        before = _recap_of(composer.previous)
        recap = _newest(composer.recap, before)
        standing = "" if before is None else before.standing
        window = await _composed(slots, composer, recap, standing, compose)
        for _ in range(_ROUNDS):
            begin = begin_of(window)
            if begin <= begin_of(composer.previous):
                break
            block = await self._block(composer, begin)
            if block is None or block.text == standing:
                break
            standing = block.text
            if block.left_out:
                gone = ", ".join(wish.id for wish in block.left_out)
                slots.exclude(STANDING, reason="full", detail=f"no room for the wishes {gone}")
            window = await _composed(slots, composer, recap, standing, compose)
        return window

    async def _block(self, composer: Composer, begin: int) -> Block | None:
        """Return the wishes that stand before a position; None if they cannot be found."""
        session, room = self._turn.session, composer.budget.remaining_input_tokens

        def read() -> Block | None:
            number, completed = self._turn.number, self._completed
            scope = before_turn(session, number, self._projection, completed=completed)
            end = begin if scope.before is None else min(begin, scope.before)
            wishes = wishes_in(session, replace(scope, before=end), _SECONDS)
            if wishes is None:
                return None
            most = self._settings.most(room - composer.counter.beside(composer.tools))
            return block_of(wishes, most, composer.counter)

        try:
            return await run_in_store(session, partial(read))
        except Exception as error:  # a failure costs only the block
            _log.warning("the standing wishes of %r: %s", session.id, error, exc_info=error)
            return None


async def _composed(
    slots: Slots, composer: Composer, recap: Recap | None, standing: str, compose: Compose
) -> Window:
    if recap is not None or standing:
        recap = replace(recap or Recap("", 0.0), standing=standing)
    slots.recap = recap
    return await compose(slots, replace(composer, recap=recap))


def begin_of(previous: Window | Frontier | LazyFrontier | None) -> int:
    """Return where the histories of a window begin, as far as known."""
    frontier = previous.lazy_frontier if isinstance(previous, Window) else previous
    starts = () if frontier is None else frontier.starts
    return min((start.item for start in starts if start.item is not None), default=0)


def _recap_of(previous: Window | Frontier | LazyFrontier | None) -> Recap | None:
    frontier = previous.lazy_frontier if isinstance(previous, Window) else previous
    starts = () if frontier is None else frontier.starts
    return next((start.recap for start in starts if start.recap is not None), None)


def _newest(one: Recap | None, other: Recap | None) -> Recap | None:
    """Return the summary that tells further; without the wishes."""
    known = [replace(recap, standing="") for recap in (one, other) if recap and recap.text]
    return max(known, key=lambda recap: recap.place, default=None)
