"""Views of a session's items: the model's, everything, the client's.

Owns which turns a view shows and how far back it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

from muntin.core.checks import check_size, shown
from muntin.core.message import Input
from muntin.errors import InvalidType, StoreError
from muntin.timeline.history import Tokens, Turns
from muntin.timeline.items import UNSETTLED, Item, SideWrites, View
from muntin.timeline.project import default_messages, lasting
from muntin.timeline.recall.excerpts import Recalled

if TYPE_CHECKING:
    from muntin.timeline.session import Session

Limit: TypeAlias = Turns | Tokens | int
Reads: TypeAlias = Callable[..., list[Item]]

DEFAULT_WINDOW = Turns(50)


class Items:
    """Views of a session's items: the model's, everything, the client's."""

    def __init__(self, session: Session, window: Turns | Tokens | None) -> None:
        self._session = session
        self.window = None if window is None else check_limit(window, "window")

    def history(self, limit: Limit | None = None) -> list[Item]:
        """Return what the model may see: whole completed turns, and the turn in flight.

        A number counts turns. The limit narrows the session's window and never widens it.
        Failed turns are shown until a later turn is completed.
        """
        return self._history(limit, self._session.opened().read)

    def shared(self, limit: Limit | None = None) -> list[Item]:
        """Return the same as `history`, for a reader that changes nothing."""
        return self._history(limit, partial(self._session.opened().read, shared=True))

    def _history(self, limit: Limit | None, read: Reads) -> list[Item]:
        limits = [] if self.window is None else [self.window]
        if limit is not None:
            limits.append(check_limit(limit, "limit", counts=Turns))
        turns = min((limit.count for limit in limits if isinstance(limit, Turns)), default=None)
        tokens = min((limit.count for limit in limits if isinstance(limit, Tokens)), default=None)
        return self._turns("history", turns, tokens, read)[0]

    def newest(self, turns: int) -> tuple[list[Item], bool]:
        """Return the same as `history(turns)`, and whether `history()` has no more items."""
        if isinstance(self.window, Tokens):
            return self.history(), True
        most = turns if self.window is None else min(turns, self.window.count)
        items, is_whole = self._turns("history", most, None, self._session.opened().read)
        return items, is_whole or (self.window is not None and self.window.count <= turns)

    def relevant(self, query: str | Input, *, tokens: int, limit: int | None = None) -> Recalled:
        """Return the parts of the history that bear on a question, as one text for a slot.

        It has at most `tokens` as a message, and at most `limit` excerpts. Items that `history()`
        does not show are not recalled; the window bounds both.
        """
        from muntin.timeline.recall.stored import Scope, in_window, recall

        scope = Scope(in_window(self._session), completed=True)
        return recall(self._session, query, tokens, limit=limit, scope=scope)

    def all(
        self, limit: Limit | None = None, *, after: int = 0, before: int | None = None
    ) -> list[Item]:
        """Return every item, or the newest; a number counts items, `before` turns the page."""
        return self._view("all", limit, after, before)

    def client(
        self, limit: Limit | None = None, *, after: int = 0, before: int | None = None
    ) -> list[Item]:
        """Return what the client may see; a number counts items, `before` turns the page."""
        return self._view("client", limit, after, before)

    def _view(self, view: View, limit: Limit | None, after: int, before: int | None) -> list[Item]:
        if isinstance(limit, Turns | Tokens):
            turns = limit.count if isinstance(limit, Turns) else None
            tokens = limit.count if isinstance(limit, Tokens) else None
            items, _ = self._turns(view, turns, tokens, self._session.opened().read)
            return [
                item
                for item in items
                if item.position > after and (before is None or item.position < before)
            ]
        if limit is not None:
            check_size(limit, "limit")
        store, id = self._session.opened(), self._session.id
        return store.read(id, view=view, after=after, before=before, newest=limit)

    def _turns(
        self, view: View, turns: int | None, tokens: int | None, read: Reads
    ) -> tuple[list[Item], bool]:
        """Return the newest whole turns within both limits, and all items in flight; and whether no
        turn was left out because of `turns`."""
        store, id = self._session.opened(), self._session.id
        done = store.turns(id, status="completed", newest=max(1, turns or 1))
        last = done[0].number if done else 0
        first = done[-1].number if done and turns is not None else 1
        if turns is not None and turns <= 0:
            first = last + 1
        # In flight: items after the last completed turn, and earlier unsettled turns.
        early = [
            turn.number
            for status in UNSETTLED
            for turn in store.turns(id, status=status)
            if turn.number <= last
        ]
        flight = read(id, view=view, first_turn=last + 1)
        for number in early:
            flight += read(id, view=view, first_turn=number, last_turn=number)
        if first > last:
            past = []
        elif tokens is None:
            past = self._past(view, first, last, early, read)
        else:
            weight = sum(self._weigh(flight).values())
            past = self._by_tokens(view, tokens, first, last, early, weight, read)
        is_whole = turns is None or len(done) < turns
        return sorted(past + flight, key=attrgetter("position")), is_whole

    def _past(
        self, view: View, first: int, last: int, early: Collection[int], read: Reads
    ) -> list[Item]:
        """Return the items of completed turns."""
        id = self._session.id
        items = read(id, view=view, first_turn=first, last_turn=last, settled=last + 1)
        return [item for item in lasting(items, last) if item.turn not in early]

    def _by_tokens(
        self,
        view: View,
        tokens: int,
        first: int,
        last: int,
        early: list[int],
        flight: int,
        read: Reads,
    ) -> list[Item]:
        """Return the newest completed turns of `tokens` together, and always the newest one.

        `flight` is the weight of the items in flight.
        """
        reach = max(1, tokens + flight)
        while True:
            oldest = self._session.store.read(self._session.id, weight=reach, oldest=1)
            start = max(first, oldest[0].turn) if oldest else first
            items = self._past(view, start, last, early, read)
            fitting = self._fit(items, tokens)
            if fitting is not None:
                return fitting
            if start <= first:
                return items
            reach *= 2  # hidden items and failed turns weighed in: look further back

    def _fit(self, items: list[Item], tokens: int) -> list[Item] | None:
        """Return the newest whole turns that fit; None if all of them do."""
        weights, live = self._weigh(items), self._session.live(items)
        speaking = {item.turn for item in items if default_messages(item, live)}
        total, start, spoken = 0, 0, False
        for turn in sorted(weights, reverse=True):
            total += weights[turn]
            if total > tokens and spoken:
                return [item for item in items if item.turn >= start]
            # The newest turn that has any messages stays, however large.
            start, spoken = turn, spoken or turn in speaking
        return None

    def _weigh(self, items: list[Item]) -> dict[int, int]:
        """Return the tokens of each turn; items not counted yet are counted and the counts kept."""
        weights: dict[int, int] = {}
        fresh: dict[int, dict[str, int]] = {}
        live = self._session.live(items)
        for item in items:
            tokens = self._session.count(item, live)
            weights[item.turn] = weights.get(item.turn, 0) + tokens
            key = self._session.counter.key(item.message)
            if key is not None and key not in item.tokens and item.kind != "context_inserted":
                fresh[item.position] = {key: tokens}
        if fresh:
            with suppress(StoreError):  # such as a read-only file: they are counted again
                self._session.opened().put(self._session.id, SideWrites(counts=fresh))
        return weights


def check_limit(limit: object, what: str, *, counts: type[Turns] | None = None) -> Turns | Tokens:
    if isinstance(limit, Turns | Tokens):
        return limit
    if counts is not None and isinstance(limit, int) and not isinstance(limit, bool):
        return counts(limit)
    raise InvalidType(f"{what} must be Turns(n) or Tokens(n), not {shown(limit)}")
