"""Recall in the interfaces: the excerpts of one turn.

Owns when something is recalled (as soon as messages have left the window), that excerpts are chosen
once a turn, and that a failure costs only the excerpts. `timeline.recall` chooses them; the
Composer places them in the window.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from muntin.composer import Composer
from muntin.core.compaction import newest_compaction
from muntin.core.message import Message, MessageLike, as_message
from muntin.core.planning.slots import Slots
from muntin.core.window import Window
from muntin.errors import InvalidInput
from muntin.runtime.standing import begin_of
from muntin.runtime.store_thread import run_in_store
from muntin.timeline.project import Projection
from muntin.timeline.recall.excerpts import Recalled
from muntin.timeline.recall.settings import Recall
from muntin.timeline.recall.stored import QueryVector, Scope, before_turn, recall

if TYPE_CHECKING:
    from muntin.runtime.turn import ActiveTurn

# How often excerpts are chosen, if the history is found to begin elsewhere.
_ROUNDS = 3
# A history that begins here is whole: the first item of a session may be a hidden one.
_START = 2
_log = logging.getLogger(__name__)


class Recalling:
    """The excerpts of one turn: chosen with its first window, and then fixed."""

    def __init__(
        self,
        turn: ActiveTurn,
        settings: Recall,
        projection: Projection | None,
        completed: bool,
    ) -> None:
        self._turn = turn
        self._session = turn.session
        self._settings = settings
        self._projection = projection or None
        self._completed = completed
        # None before the first window, and if nothing has left it.
        self._recalled: Recalled | None = None
        self._decided = False

    async def compose(self, slots: Slots, composer: Composer) -> Window:
        """Return the window of slots, with the excerpts of this turn."""
        if self._decided and self._recalled is None:
            return slots.render()
        if self._recalled is not None:
            return composer.with_recalled(slots, self._recalled, self._most(composer)).render()
        self._decided = True
        whole: Window | None = None
        first: float = begin_of(composer.previous)
        began = first
        if began <= _START:  # it is not known where the past begins
            first = self._first_read(slots)
        if first <= _START or self._turn.number == 1:  # perhaps all of it is shown
            whole = slots.render()
            first = self._first_shown(whole)
            if first <= _START or self._turn.number == 1:
                return whole
        inputs = [slot.messages for slot in slots.declared if slot.kind == "input"]
        query = "\n".join(as_message(item).text for messages in inputs for item in messages)
        most = self._most(composer)
        if not most or not query.strip():
            return whole or slots.render()
        try:
            begin = _summary_of(slots, composer)
            scope = await run_in_store(self._session, partial(self._scope, first, begin))
            if scope is None:
                return whole or slots.render()
            if began > _START:  # it begins where it began, unless it steps now
                return await self._once(slots, composer, query, most, scope, began)
            held = composer.with_recalled(slots, composer.filler(most), most).render()
            scope = replace(scope, shown=self._asked_before(held))
            return await self._once(slots, composer, query, most, scope, self._first_shown(held))
        except Exception as error:  # a failure costs only the excerpts
            id = self._session.id
            _log.warning("nothing was recalled in %r: %s", id, error, exc_info=error)
            self._recalled = Recalled(trouble=f"{type(error).__name__}: {error}"[:300])
            return composer.with_recalled(slots, self._recalled, most).render()

    def _most(self, composer: Composer) -> int:
        """Return how many tokens the excerpts may have."""
        room = composer.budget.remaining_input_tokens - composer.counter.beside(composer.tools)
        return self._settings.most(room)

    async def _once(
        self, slots: Slots, composer: Composer, query: str, most: int, scope: Scope, first: float
    ) -> Window:
        """Compose the window with excerpts from before `first`, the expected begin of the past;
        compose it again if the past begins later, or shows one of the excerpts."""
        query_vector = await self._turn.app.embeddings.ask(query, self._settings)
        composed: tuple[Recalled, Window] | None = None
        for _ in range(_ROUNDS):
            within = _before(scope, first)
            self._recalled = await self._find(query, most, within, composer, query_vector)
            window = composer.with_recalled(slots, self._recalled, most).render()
            before, first = first, self._first_shown(window)
            scope = replace(scope, shown=self._asked_before(window))
            stays = first <= before or begin_of(window) == before
            positions = self._recalled.positions
            if all(at < first and at not in scope.shown for at in positions):
                if stays:
                    return window
                composed = self._recalled, window
            elif composed is not None:
                break  # with other excerpts the past has more room, and shows them
        if composed is not None:
            self._recalled, window = composed
            return window
        self._recalled = Recalled(trouble="the history shows what would have been recalled")
        return composer.with_recalled(slots, self._recalled, most).render()

    def _scope(self, first: float, begin: int) -> Scope | None:
        """Return the range that may be recalled, which begins at the provider's summary; None if it
        has nothing before a position."""
        session, completed = self._session, self._completed
        scope = before_turn(session, self._turn.number, self._projection, completed=completed)
        scope = replace(scope, after=max(scope.after, begin))
        end, read = _before(scope, first).before, session.store.read
        older = read(session.id, view="history", after=scope.after, before=end, newest=1)
        return replace(scope, results=self._settings.results) if older else None

    def _first_shown(self, window: Window) -> float:
        """Return the first position of the past that the window shows."""
        begins = begin_of(window)
        return min(
            (at for at in self._positions(window.messages) if at >= begins), default=math.inf
        )

    def _first_read(self, slots: Slots) -> int:
        """Return the first position that was read for the slots; 0 if it is not known."""
        lists = [slot.messages for slot in slots.declared if slot.kind not in ("input", "run")]
        if any(not isinstance(messages, list | tuple) for messages in lists):
            return 0
        return min((at for messages in lists for at in self._positions(messages)), default=0)

    def _asked_before(self, window: Window) -> frozenset[int]:
        """Return the positions of the messages that asked for the run in which the past begins:
        they are shown, though messages between have left."""
        begins = begin_of(window)
        return frozenset(at for at in self._positions(window.messages) if at < begins)

    def _positions(self, messages: Iterable[MessageLike]) -> list[int]:
        """Return the positions of the items that messages show."""
        id = self._session.id
        return [
            message.item[1]
            for message in messages
            if isinstance(message, Message)
            and message.item is not None
            and message.item[0] == id
            and message.role != "system"
        ]

    async def _find(
        self,
        query: str,
        most: int,
        scope: Scope,
        composer: Composer,
        query_vector: QueryVector | str | None,
    ) -> Recalled:
        """Find excerpts; `asked` is the embedder's answer, or its trouble."""
        settings = self._settings
        find = partial(
            recall,
            self._session,
            query,
            most,
            limit=settings.limit,
            scope=scope,
            counter=composer.counter,
            seconds=settings.timeout,
        )
        trouble = query_vector if isinstance(query_vector, str) else None
        if isinstance(query_vector, QueryVector):
            try:
                recalled = await run_in_store(
                    self._session, partial(find, query_vector=query_vector)
                )
                self._turn.app.embeddings.follow(self._session, settings)
                return recalled
            except InvalidInput as error:  # of another dimension: the words alone
                trouble = str(error)
        recalled = await run_in_store(self._session, find)
        recalled.trouble = recalled.trouble or trouble
        return recalled


def _before(scope: Scope, first: float) -> Scope:
    """Return the scope that ends before a position."""
    ends = [int(end) for end in (scope.before, first) if end is not None and end != math.inf]
    return replace(scope, before=min(ends, default=None))


def _summary_of(slots: Slots, composer: Composer) -> int:
    """Return the item of the provider's summary with which the past begins; 0 without one."""
    for slot in reversed(slots.declared):
        place = newest_compaction(slot.messages, composer.profile)
        message = None if place is None else slot.messages[place]
        if isinstance(message, Message) and message.item is not None:
            return message.item[1]
    return 0
