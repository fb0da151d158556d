"""Sessions: one conversation or entity, its timeline and its entries.

Counts, windows and projection for every store; what is kept is the store's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from muntin.core.checks import check_size
from muntin.core.counting.counter import Counter, TokenizerLike
from muntin.core.message import Message, as_message
from muntin.core.planning.slot import MessageLike
from muntin.errors import InvalidType, MuntinError, StoreError
from muntin.timeline.entries import ContextEntry, entry_of, inserted, removed
from muntin.timeline.history import Tokens, Turns
from muntin.timeline.items import (
    UNSETTLED,
    Draft,
    Item,
    Opens,
    Status,
    check_session_id,
    draft_of,
)
from muntin.timeline.owner import abandoned, done, new_owner
from muntin.timeline.project import Projection, default_messages, project
from muntin.timeline.store import DEFAULT_URL, Store, View, open_store

Limit: TypeAlias = Turns | Tokens | int
# What can be appended.
ItemLike: TypeAlias = MessageLike | Draft

DEFAULT_WINDOW = Turns(50)
# How long a turn is taken for alive that another machine began and no longer speaks of.
LEASE = timedelta(seconds=60)


class Session:
    """A durable timeline by its id.

    `window` bounds what `items.history()` reads, whatever a call asks for.
    Turns that a dead process left open are marked failed when the session is opened, unless
    `mend` is False.
    """

    def __init__(
        self,
        id: str,
        *,
        store: Store | str = DEFAULT_URL,
        tokenizer: TokenizerLike | None = None,
        window: Turns | Tokens = DEFAULT_WINDOW,
        mend: bool = True,
    ) -> None:
        self.id = check_session_id(id)
        self.store = open_store(store) if isinstance(store, str) else store
        self.counter = Counter(tokenizer)
        self.items = Items(self, _check_limit(window, "window"))
        now = datetime.now(UTC)
        for turn in self.store.turns(id, status="open") if mend else ():
            if abandoned(turn, now) and not turn.resumable:
                self.store.settle(id, turn.number, "failed")

    def __repr__(self) -> str:
        return f"<Session {self.id!r} in {self.store.name}>"

    # Writing.

    def append(self, *items: ItemLike) -> list[Item]:
        """Append messages in one transaction, and return their items when they are durable.

        A user's message begins a turn, unless one stands right before it; everything else joins
        the newest turn. For a turn that may fail, use `with session.turn()`.
        """
        drafts: list[Draft] = []
        asked = False
        for item in items:
            if isinstance(item, Draft):
                drafts.append(self._draft(item))
                asked = False
                continue
            message = as_message(item)
            asks = message.role == "user"
            opens: Opens | None = "turn" if asks and not asked else None
            drafts.append(self._spoken(message, opens, "completed"))
            asked = asks
        return self.store.append(self.id, drafts)

    @contextmanager
    def turn(self) -> Iterator[TurnLog]:
        """Begin a turn with the first append inside; it is completed at the end of the block.

        An exception marks it failed and passes on; what was appended stays.
        """
        log = TurnLog(self)
        try:
            yield log
        except BaseException as error:
            try:
                log._settle("failed")
            except StoreError as lost:
                error.add_note(f"and the turn could not be marked failed: {lost}")
            raise
        log._settle("completed")

    def _draft(self, item: ItemLike) -> Draft:
        """Return what is to be appended, with its tokens counted once and for all."""
        if not isinstance(item, Draft):
            return self._spoken(as_message(item))
        if not item.visibility.history:
            return item
        # An entry counts as if it were live.
        tokens = self._count(Item(0, item.kind, 0, item.message, item.payload), (0,))
        kept = {**self._kept(tokens, item.message), **item.tokens}
        return replace(item, tokens=kept, weight=0 if item.transient else tokens)

    def _spoken(
        self, message: Message, opens: Opens | None = None, ends: Status | None = None
    ) -> Draft:
        tokens = self.counter.message(message)
        kept = self._kept(tokens, message)
        return draft_of(message, opens=opens, ends=ends, tokens=kept, weight=tokens)

    def _opening(self, draft: Draft, opens: Opens) -> Draft:
        """Return a draft, counted, that begins a turn."""
        return replace(self._draft(draft), opens=opens)

    def _kept(self, tokens: int, message: Message | None) -> dict[str, int]:
        """Return a count as it is stored: under the key it holds for, or not at all."""
        key = self.counter.key(message)
        return {} if key is None else {key: tokens}

    def _count(self, item: Item, live: Collection[int]) -> int:
        if item.kind == "context_inserted" and item.position not in live:
            return 0
        key = self.counter.key(item.message)
        if key is not None and key in item.tokens:
            return item.tokens[key]
        return sum(self.counter.message(message) for message in default_messages(item, live))

    # Reading.

    def messages(self, limit: Limit | None = None) -> list[Message]:
        """Return the messages of `items.history(limit)`, each with its position."""
        return self._project(self.items.history(limit), None, entries=True)

    def timeline_messages(
        self,
        *,
        since: int | None = None,
        projection: Projection | None = None,
        entries: bool = True,
    ) -> list[Message]:
        """Return the whole timeline as messages, or what came after the position `since`."""
        after = 0 if since is None else check_size(since, "since")
        items = self.store.read(self.id, view="history", after=after)
        return self._shown(items, projection, entries=entries, since=after)

    def _shown(
        self,
        items: Sequence[Item],
        projection: Projection | None,
        *,
        entries: bool,
        since: int,
    ) -> list[Message]:
        """Return the messages of items, without what was only meant for a turn that is over."""
        if any(item.transient for item in items):
            items = _lasting(items, self._last())
        return self._project(items, projection, entries=entries, since=since)

    def _project(
        self,
        items: Sequence[Item],
        projection: Projection | None,
        *,
        entries: bool,
        since: int = 0,
    ) -> list[Message]:
        live = self._live(items) if entries else set()
        return project(items, since=since, projection=projection, live=live, counter=self.counter)

    def _live(self, items: Sequence[Item]) -> set[int]:
        """Return where the live entries stand, if any of these items could be one."""
        if not any(item.kind == "context_inserted" for item in items):
            return set()
        return {item.position for item in self.store.entries(self.id)}

    def _last(self) -> int:
        """Return the newest completed turn, 0 if there is none."""
        done = self.store.turns(self.id, status="completed", newest=1)
        return done[0].number if done else 0

    # Context entries.

    def insert_context(
        self, id: str, *, name: str, content: str, attrs: Mapping[str, Any] | None = None
    ) -> ContextEntry:
        """Insert a context entry, or replace the one with this id.

        `attrs` are shown as attributes of its tag: numbers and booleans become texts.
        """
        draft = self._draft(inserted(id, name, content, attrs))
        return entry_of(self.store.append(self.id, [draft])[0])

    def remove_context(self, id: str) -> None:
        """Remove a context entry; an unknown id does nothing."""
        if self.get_context(id) is not None:
            self.store.append(self.id, [removed(id)])

    def get_context(self, id: str) -> ContextEntry | None:
        """Return the live context entry with this id, or None."""
        return next((entry for entry in self.list_context() if entry.id == id), None)

    def list_context(self) -> list[ContextEntry]:
        """Return the live context entries in the order in which they were inserted."""
        return [entry_of(item) for item in self.store.entries(self.id)]

    def context_history(self, id: str) -> list[ContextEntry]:
        """Return all versions of a context entry, the oldest first, also when it was removed."""
        return [entry_of(item) for item in self.store.entries(self.id, id)]


class TurnLog:
    """Appends to one turn; made by `Session.turn`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._owner = new_owner()
        self.number: int | None = None
        self._over = False

    def append(self, *items: ItemLike) -> list[Item]:
        """Append to the turn in one transaction, and return the items when they are durable."""
        if self._over:
            raise MuntinError("the turn is over; begin another: with session.turn()")
        drafts = [self._session._draft(item) for item in items]
        if not drafts:
            return []
        if self.number is None:
            drafts[0] = replace(drafts[0], opens="turn")
        else:
            drafts = [replace(draft, turn=self.number) for draft in drafts]
        added = self._session.store.append(
            self._session.id, drafts, owner=self._owner, until=datetime.now(UTC) + LEASE
        )
        self.number = added[0].turn
        return added

    def renew(self) -> None:
        """Say that the turn is still worked on; for turns that take longer than a minute."""
        if self.number is None:
            raise MuntinError("the turn has not begun: append to it first")
        until = datetime.now(UTC) + LEASE
        self._session.store.renew(self._session.id, self.number, self._owner, until)

    def _settle(self, status: Status) -> None:
        self._over = True
        done(self._owner)
        if self.number is not None:
            self._session.store.settle(self._session.id, self.number, status)


class Items:
    """Three views of a session's items: the model's, everything, the client's."""

    def __init__(self, session: Session, window: Turns | Tokens) -> None:
        self._session = session
        self._window = window

    def history(self, limit: Limit | None = None) -> list[Item]:
        """Return what the model may see: whole completed turns, and the turn in flight.

        A number counts turns. The limit narrows the session's window and never widens it.
        Failed turns are shown until a later one was completed.
        """
        limits = [self._window]
        if limit is not None:
            limits.append(_check_limit(limit, "limit", counts=Turns))
        turns = min((each.count for each in limits if isinstance(each, Turns)), default=None)
        tokens = min((each.count for each in limits if isinstance(each, Tokens)), default=None)
        return self._turns("history", turns, tokens)

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
            found = self._turns(view, turns, tokens)
            return [
                item
                for item in found
                if item.position > after and (before is None or item.position < before)
            ]
        if limit is not None:
            check_size(limit, "limit")
        store, id = self._session.store, self._session.id
        return store.read(id, view=view, after=after, before=before, newest=limit)

    def _turns(self, view: View, turns: int | None, tokens: int | None) -> list[Item]:
        """Return the newest whole turns within both limits, and all that is in flight."""
        store, id = self._session.store, self._session.id
        done = store.turns(id, status="completed", newest=max(1, turns or 1))
        last = done[0].number if done else 0
        first = done[-1].number if done and turns is not None else 1
        if turns is not None and turns <= 0:
            first = last + 1
        # In flight is what came after the last completed turn, and what is still worked on.
        early = [
            turn.number
            for status in UNSETTLED
            for turn in store.turns(id, status=status)
            if turn.number <= last
        ]
        flight = store.read(id, view=view, first_turn=last + 1)
        for number in early:
            flight += store.read(id, view=view, first_turn=number, last_turn=number)
        if first > last:
            past = []
        elif tokens is None:
            past = self._past(view, first, last, early)
        else:
            past = self._by_tokens(view, tokens, first, last, early, flight)
        return sorted(past + flight, key=lambda item: item.position)

    def _past(self, view: View, first: int, last: int, early: Collection[int]) -> list[Item]:
        """Return the items of completed turns."""
        store, id = self._session.store, self._session.id
        found = store.read(id, view=view, first_turn=first, last_turn=last, settled=last + 1)
        return [item for item in _lasting(found, last) if item.turn not in early]

    def _by_tokens(
        self,
        view: View,
        tokens: int,
        first: int,
        last: int,
        early: Collection[int],
        flight: list[Item],
    ) -> list[Item]:
        """Return the newest completed turns of `tokens` together, and always the newest one."""
        store, id = self._session.store, self._session.id
        reach = max(1, tokens + sum(self._weigh(flight).values()))
        while True:
            oldest = store.reach(id, reach)
            start = max(first, oldest.turn) if oldest else first
            found = self._past(view, start, last, early)
            kept = self._fit(found, tokens)
            if kept is not None:
                return kept
            if start <= first:
                return found
            reach *= 2  # hidden items and failed turns weighed in: look further back

    def _fit(self, items: list[Item], tokens: int) -> list[Item] | None:
        """Return the newest whole turns that fit; None if all of them do."""
        weights, live = self._weigh(items), self._session._live(items)
        speaking = {item.turn for item in items if default_messages(item, live)}
        total, start, spoken = 0, 0, False
        for turn in sorted(weights, reverse=True):
            total += weights[turn]
            if total > tokens and spoken:
                return [item for item in items if item.turn >= start]
            # The newest that has any messages stays, however large.
            start, spoken = turn, spoken or turn in speaking
        return None

    def _weigh(self, items: list[Item]) -> dict[int, int]:
        """Return the tokens of each turn; what was not counted yet is, once and for all."""
        weights: dict[int, int] = {}
        fresh: dict[int, dict[str, int]] = {}
        live = self._session._live(items)
        for item in items:
            tokens = self._session._count(item, live)
            weights[item.turn] = weights.get(item.turn, 0) + tokens
            key = self._session.counter.key(item.message)
            if key is not None and key not in item.tokens and item.kind != "context_inserted":
                fresh[item.position] = {key: tokens}
        if fresh:
            self._session.store.count(self._session.id, fresh)
        return weights


def _lasting(items: Sequence[Item], last: int) -> list[Item]:
    """Leave out what was only meant for a turn that is over."""
    return [item for item in items if not item.transient or item.turn > last]


def _check_limit(limit: object, what: str, *, counts: type[Turns] | None = None) -> Turns | Tokens:
    if isinstance(limit, Turns | Tokens):
        return limit
    if counts is not None and isinstance(limit, int) and not isinstance(limit, bool):
        return counts(limit)
    raise InvalidType(f"{what} must be Turns(n) or Tokens(n), not {limit!r}")
