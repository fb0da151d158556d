"""Sessions: one conversation or entity, its timeline and its entries.

Counts, windows and projection for every store; the store keeps the items.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from muntin.core.checks import check_count
from muntin.core.counting.counter import Counter, TokenizerLike
from muntin.core.message import Message, as_message
from muntin.core.usage import SessionUsage
from muntin.errors import InvalidInput, StoreError
from muntin.settings import counter_for
from muntin.timeline.entries import ContextEntry, entry_of, inserted, removed
from muntin.timeline.history import Tokens, Turns
from muntin.timeline.items import (
    FAILED_SUMMARY_USAGE,
    Draft,
    Item,
    Kind,
    Opens,
    SideWrites,
    check_session_id,
    draft_of,
    usage_of,
)
from muntin.timeline.project import (
    Projection,
    check_since,
    default_messages,
    lasting,
    project,
)
from muntin.timeline.recall.excerpts import Excerpt
from muntin.timeline.renewing import Renewer
from muntin.timeline.store import DEFAULT_URL, Store, as_store
from muntin.timeline.turn import LEASE, ItemLike, OpenTurn, spoken_and_drafts
from muntin.timeline.views import Items, Limit

if TYPE_CHECKING:
    from muntin.timeline.recall.standing import StandingWishes

# The kinds of items that wake an entity.
WAKES: tuple[Kind, ...] = ("message", "signal", "wake")

_renewer = Renewer(LEASE.total_seconds() / 3)

_log = logging.getLogger(__name__)


class Session:
    """A durable timeline by its id.

    A `window` bounds what `items.history()` reads, whatever a call asks for. Tokens are counted by
    `tokenizer`, or by a `counter`. Nothing is read before the first use; then the turns that a
    dead process left open are marked failed, unless `mend` is False.
    """

    def __init__(
        self,
        id: str,
        *,
        store: Store | str = DEFAULT_URL,
        tokenizer: TokenizerLike | None = None,
        window: Turns | Tokens | None = None,
        counter: Counter | None = None,
        mend: bool = True,
    ) -> None:
        self.id = check_session_id(id)
        self.store = as_store(store)
        self.counter = counter or counter_for(None, tokenizer)
        self.items = Items(self, window)
        self._mends = mend

    def __repr__(self) -> str:
        return f"<Session {self.id!r} in {self.store.name}>"

    def opened(self) -> Store:
        """Return the store; at the first use dead turns are marked failed."""
        if self._mends:
            self.mend()
        return self.store

    def mend(self) -> None:
        """Mark the turns failed that a dead process left open and that will not be resumed."""
        self._mends = False
        for number in self.store.mend(self.id):
            _log.warning(
                "turn %d of session %r was left unfinished by a process that ended; it is "
                "marked failed, and the model will see what was done",
                number,
                self.id,
            )

    def counted_by(self, counter: Counter) -> Session:
        """Return the same session with another counter."""
        if counter is self.counter:
            return self
        other = copy(self)
        other.counter = counter
        other.items = Items(other, self.items.window)
        return other

    # Writing.

    def append(self, *items: ItemLike, beside: SideWrites | None = None) -> list[Item]:
        """Append messages in one transaction, and return their items when they are durable.

        A user's message begins a turn, unless one comes right before it; everything else joins
        the newest turn. For a turn that may fail, use `with session.turn()`. `beside` is written
        with the items.
        """
        drafts: list[Draft] = []
        was_question = False
        for message in spoken_and_drafts(items):
            if isinstance(message, Draft):
                drafts.append(self.draft(message))
                was_question = False
                continue
            asks = message.role == "user"
            opens: Opens | None = "turn" if asks and not was_question else None
            drafts.append(self._spoken(message, opens=opens, ends="completed"))
            was_question = asks
        return self.opened().append(self.id, drafts, beside=beside)

    def try_again(self, turn: int) -> list[Item]:
        """Have a failed turn handled again, and return the items that wake for it.

        The newest turn of the session goes on where it stopped: nothing that ran is run again. For
        an older turn a new one begins: its items copy those that began the old turn, and `again` in
        their `meta` is its number.
        """
        turns = self.store.turns(self.id, number=turn)
        if not turns or turns[0].status != "failed":
            state = f"is {turns[0].status}" if turns else "is not there"
            raise InvalidInput(f"turn {turn} of session {self.id!r} {state}; only failed ones can")
        items = self.store.read(self.id, first_turn=turn, last_turn=turn)
        woke = [item for item in items if item.run is None and item.kind in WAKES]
        drafts = [
            Draft(item.kind, item.message, item.payload, meta={**item.meta, "again": turn})
            for item in woke
            if item.role in (None, "user")
        ]
        if not drafts:
            raise InvalidInput(f"turn {turn} of session {self.id!r} was begun by no message")
        if self.store.reopen(self.id, turn):
            return woke
        begins = [
            self.draft(draft, opens="queue" if n == 0 else None) for n, draft in enumerate(drafts)
        ]
        return self.store.append(self.id, begins)

    def hide(self, position: int) -> bool:
        """Hide an item from the client and from the history; it stays in the timeline.

        False if there is no such item, or it is hidden already.
        """
        return self.opened().hide(self.id, position)

    @contextmanager
    def turn(self) -> Iterator[OpenTurn]:
        """Begin a turn with the first append inside; it is completed at the end of the block.

        An exception marks it failed and passes on; appended items stay.
        """
        turn = OpenTurn(self)
        _renewer.add(turn)
        try:
            yield turn
            turn.settle("completed")
        except BaseException as error:
            try:
                turn.settle("failed")
            except StoreError as lost:
                error.add_note(f"and the turn could not be marked failed: {lost}")
            raise
        finally:
            _renewer.remove(turn)
            turn.release()

    def draft(self, item: ItemLike, **fields: Any) -> Draft:
        """Return the draft of an item, with its tokens counted once and for all.

        `fields` are fields of the draft.
        """
        if not isinstance(item, Draft):
            return self._spoken(as_message(item), **fields)
        if not fields.get("visibility", item.visibility).history:
            return replace(item, **fields) if fields else item
        if item.message is not None:
            tokens = self.counter.message(item.message)
        else:  # an entry counts as if it were live
            alone = Item(0, item.kind, 0, None, item.payload, meta=item.meta)
            tokens = sum(map(self.counter.message, default_messages(alone, (0,))))
        key = self.counter.key(item.message)
        counts = item.tokens if key is None else {key: tokens, **item.tokens}
        return replace(item, tokens=counts, weight=0 if item.transient else tokens, **fields)

    def _spoken(self, message: Message, **fields: Any) -> Draft:
        visibility = fields.get("visibility")
        if visibility is not None and not visibility.history:
            return draft_of(message, **fields)
        tokens, key = self.counter.message(message), self.counter.key(message)
        counts = {} if key is None else {key: tokens}
        return draft_of(message, tokens=counts, weight=tokens, **fields)

    def count(self, item: Item, live: Collection[int] = ()) -> int:
        """Return the tokens of an item; `live` is where the live entries stand."""
        if item.kind == "context_inserted" and item.position not in live:
            return 0
        text_key = self.counter.text_key
        key = text_key if text_key in item.tokens else self.counter.key(item.message)
        if key is not None and key in item.tokens:
            return item.tokens[key]
        return sum(map(self.counter.message, default_messages(item, live)))

    # Reading.

    def messages(self, limit: Limit | None = None) -> list[Message]:
        """Return the messages of `items.history(limit)`, each with its position."""
        items = self.items.shared(limit)
        return self.project(items, live=self.live(items))

    def timeline_messages(
        self,
        *,
        since: int | None = None,
        projection: Projection | None = None,
        entries: bool = True,
    ) -> list[Message]:
        """Return the whole timeline as messages, or the messages behind the position `since`."""
        after = check_since(since)
        items = self.opened().read(self.id, view="history", after=after)
        if any(item.transient for item in items):
            items = lasting(items, self.last())
        live = self.live(items) if entries else ()
        return self.project(items, projection, since=after, live=live)

    def search(self, query: str, *, limit: int = 10) -> list[Excerpt]:
        """Return the excerpts of the history that bear on a question, the best first."""
        from muntin.timeline.recall.stored import search

        return search(self, query, check_count(limit, "limit"))

    @property
    def standing(self) -> StandingWishes:
        """What the user wants for good: `list()`, `add(text)` and `remove(id)`."""
        from muntin.timeline.recall.standing import StandingWishes

        return StandingWishes(self)

    def project(
        self,
        items: Sequence[Item],
        projection: Projection | None = None,
        *,
        since: int = 0,
        live: Collection[int] = (),
    ) -> list[Message]:
        """Return the messages of items; only entries at the positions `live` are shown."""
        return project(
            items,
            since=since,
            projection=projection,
            live=live,
            counter=self.counter,
            session=self.id,
        )

    def live(self, items: Sequence[Item]) -> Collection[int]:
        """Return where the live entries stand, if any of these items could be one."""
        if "context_inserted" not in [item.kind for item in items]:
            return ()
        return {item.position for item in self.opened().read(self.id, live=True)}

    def last(self) -> int:
        """Return the newest completed turn, 0 if there is none."""
        done = self.opened().turns(self.id, status="completed", newest=1)
        return done[0].number if done else 0

    def summaries(self) -> list[Item]:
        """Return the items of all summaries of its histories, the oldest first.

        The payload of each has its `text`, the position `until` which it tells, the positions of
        the `items` it was made of, and the `usage` of the `model` that made it.
        """
        return [item for item in self.opened().read(self.id) if item.kind == "summary"]

    def usage(self) -> SessionUsage:
        """Return what the providers billed for all answers kept here, and for its summaries.

        Answers of an older version, or that were imported from elsewhere, have none.
        """
        store = self.opened()
        vain = store.content(self.id, *FAILED_SUMMARY_USAGE)
        return usage_of(store.read(self.id)).and_in_vain(vain)

    # Context entries.

    def insert_context(
        self, id: str, *, name: str, content: str, attrs: Mapping[str, Any] | None = None
    ) -> ContextEntry:
        """Insert a context entry, or replace the one with this id.

        `attrs` are shown as attributes of its tag: numbers and booleans become texts.
        """
        draft = self.draft(inserted(id, name, content, attrs))
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
        return [entry_of(item) for item in self.store.read(self.id, live=True)]

    def context_history(self, id: str) -> list[ContextEntry]:
        """Return all versions of a context entry, the oldest first, also when it was removed."""
        return [entry_of(item) for item in self.store.read(self.id, entry=id)]
