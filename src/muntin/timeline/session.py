"""Sessions: one conversation or entity, its timeline, its entries, and the turn worked on.

Counts, windows and projection for every store; the store keeps the items.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from datetime import timedelta
from itertools import groupby
from threading import Lock
from typing import Any, TypeAlias, cast

from muntin.core.checks import check_count
from muntin.core.counting.counter import Counter, TokenizerLike
from muntin.core.forms import messages_from
from muntin.core.message import Message, as_message
from muntin.core.planning.slot import MessageLike
from muntin.core.usage import SessionUsage
from muntin.errors import InvalidInput, MuntinError, StoreError, TurnEnded
from muntin.settings import counter_for
from muntin.timeline.entries import ContextEntry, entry_of, inserted, removed
from muntin.timeline.history import Tokens, Turns
from muntin.timeline.items import (
    FAILED_SUMMARY_USAGE,
    Claim,
    Draft,
    Item,
    Kind,
    Opens,
    SideWrites,
    Status,
    check_session_id,
    draft_of,
    usage_of,
)
from muntin.timeline.owner import done, new_owner
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
from muntin.timeline.views import Items, Limit

# The types that can be appended.
ItemLike: TypeAlias = MessageLike | Draft


def _spoken_and_drafts(items: Iterable[ItemLike]) -> Iterator[Message | Draft]:
    """Yield drafts as they are and all else as Messages; another maker's may be several."""
    for drafted, group in groupby(items, lambda item: isinstance(item, Draft)):
        found = list(group)
        yield from cast("list[Draft]", found) if drafted else messages_from(found)


# The kinds of items that wake an entity.
WAKES: tuple[Kind, ...] = ("message", "signal", "wake")
# How long a turn of another machine is taken for alive without a renewal.
LEASE = timedelta(seconds=60)

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
        asked = False
        for message in _spoken_and_drafts(items):
            if isinstance(message, Draft):
                drafts.append(self.draft(message))
                asked = False
                continue
            asks = message.role == "user"
            opens: Opens | None = "turn" if asks and not asked else None
            drafts.append(self._spoken(message, opens=opens, ends="completed"))
            asked = asks
        return self.opened().append(self.id, drafts, beside=beside)

    def try_again(self, turn: int) -> list[Item]:
        """Begin a new turn with the items that woke a failed turn, to have them handled again.

        The new items copy the items that began the old turn; `again` in their `meta` is its number.
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
        begins = [
            self.draft(each, opens="queue" if n == 0 else None) for n, each in enumerate(drafts)
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

    def draft(self, item: ItemLike, **given: Any) -> Draft:
        """Return the draft of an item, with its tokens counted once and for all.

        `given` are fields of the draft.
        """
        if not isinstance(item, Draft):
            return self._spoken(as_message(item), **given)
        if not given.get("visibility", item.visibility).history:
            return replace(item, **given) if given else item
        if item.message is not None:
            tokens = self.counter.message(item.message)
        else:  # an entry counts as if it were live
            alone = Item(0, item.kind, 0, None, item.payload, meta=item.meta)
            tokens = sum(map(self.counter.message, default_messages(alone, (0,))))
        key = self.counter.key(item.message)
        kept = item.tokens if key is None else {key: tokens, **item.tokens}
        return replace(item, tokens=kept, weight=0 if item.transient else tokens, **given)

    def _spoken(self, message: Message, **given: Any) -> Draft:
        visibility = given.get("visibility")
        if visibility is not None and not visibility.history:
            return draft_of(message, **given)
        tokens, key = self.counter.message(message), self.counter.key(message)
        kept = {} if key is None else {key: tokens}
        return draft_of(message, tokens=kept, weight=tokens, **given)

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


class OpenTurn:
    """A turn that is worked on: the one way to write into one, for `Session.turn` and the runtime.

    Without a `number` the turn begins with the first append, as `opens` says.
    """

    def __init__(
        self,
        session: Session,
        number: int | None = None,
        *,
        owner: str | None = None,
        attempt: int | None = None,
        opens: Opens = "turn",
    ) -> None:
        self.session = session
        # 0 until the turn has begun.
        self.number = number or 0
        self.owner = owner or new_owner()
        self._opens = opens
        self.over = False
        # Which attempt at the turn this is, known when the turn is worked on.
        self.attempt = attempt
        # The positions of the item that began the turn, if it was begun here, and of the newest
        # item that was written here.
        self.first = self._last = 0
        # Drafts that may be stored although the store reported an error, by the id of their list.
        self._in_doubt: dict[int, Sequence[Draft]] = {}
        # A write that has begun ends before the turn does.
        self._writing = Lock()

    def append(self, *items: ItemLike) -> list[Item]:
        """Append to the turn in one transaction, and return the items when they are durable."""
        turn = self.number or None
        drafts = [self.session.draft(each, turn=turn) for each in _spoken_and_drafts(items)]
        if drafts and not turn:
            drafts[0] = replace(drafts[0], opens=self._opens)
        return self.write(drafts)

    def begin(self, item: ItemLike) -> Item:
        """Append the item that begins the turn; after a try in doubt, look for it first."""
        if self._in_doubt and not self.number:
            store = self.session.store
            turns = [*store.turns(self.session.id, status="open")]
            turns += store.turns(self.session.id, status="pending")
            self._in_doubt.clear()
            self.number = next((turn.number for turn in turns if turn.owner == self.owner), 0)
        items = self.items() if self.number else self.append(item)
        self.first, self._last = items[0].position, items[-1].position
        return items[0]

    def write(self, drafts: Sequence[Draft], beside: SideWrites | None = None) -> list[Item]:
        """Append drafts that are counted and belong to the turn; the last may end it.

        Called again with the same list after a commit in doubt, it looks for the items first.
        """
        if not drafts:
            return []
        with self._writing:
            added = self._find(drafts) if id(drafts) in self._in_doubt else None
            self._in_doubt.pop(id(drafts), None)  # it stays in doubt if it could not be looked for
            if added is None:
                if self.over:
                    raise TurnEnded(self.session.id, self.number)
                store = self.session.opened()
                try:
                    added = store.append(self.session.id, drafts, claim=self.claim, beside=beside)
                except StoreError as error:
                    if error.in_doubt:
                        self._in_doubt[id(drafts)] = drafts
                    raise
            self.number = added[0].turn
            self._last = added[-1].position
            if drafts[-1].ends is not None:
                self.release()
        return added

    def _find(self, drafts: Sequence[Draft]) -> list[Item] | None:
        """Return the items of drafts whose commit was in doubt, None if they were not stored."""
        read = self.session.store.read
        items = read(
            self.session.id, first_turn=self.number, last_turn=self.number, after=self._last
        )
        for start in range(len(items) - len(drafts) + 1):
            run = items[start : start + len(drafts)]
            if all(map(is_of, run, drafts)):
                return run
        return None

    def hand_back(self, after: timedelta = timedelta(0)) -> bool:
        """Leave a resumable turn to other processes; False if it is not resumable, or not ours."""
        self.over = True
        handed = self.session.store.hand_back
        done = handed(self.session.id, self._begun(), self.claim, after=after)
        self.release()
        return done

    def check(self) -> None:
        """Refuse to write into a turn that is over."""
        if self.over:
            raise TurnEnded(self.session.id, self.number)

    def take(self) -> bool:
        """Begin to work on a turn that waited; False while other turns come first."""
        store = self.session.store
        taken = store.take(self.session.id, self.owner, LEASE, number=self._begun())
        if taken is not None:
            self.attempt = taken.attempt
        return taken is not None

    def items(self) -> list[Item]:
        """Return all items of the turn."""
        number = self._begun()
        return self.session.store.read(self.session.id, first_turn=number, last_turn=number)

    def renew(self) -> bool:
        """Renew the lease of the turn; False if another owner has taken the turn.

        `with session.turn()` does that by itself, as long as the process lives and is not stopped.
        """
        return self.session.store.renew(self.session.id, self._begun(), self.claim)

    def settle(
        self, status: Status, *, reason: str | None = None, beside: Sequence[SideWrites] = ()
    ) -> None:
        """End the turn; nothing is written if it has not begun or another owner has it.

        `reason` says why it failed. `beside` is written with it. A settled turn is released; if the
        store refuses, the caller releases it after the last try.
        """
        with self._writing:
            self.over = True
        if self.number:
            self.session.store.settle(
                self.session.id,
                self.number,
                status,
                claim=self.claim,
                reason=reason,
                beside=beside,
            )
        self.release()

    @property
    def claim(self) -> Claim:
        """The claim that every write of the turn carries."""
        return Claim(self.owner, self.attempt, LEASE)

    def release(self) -> None:
        """Stop working on the turn, and leave it as it is."""
        self.over = True
        done(self.owner)

    def _begun(self) -> int:
        if not self.number:
            raise MuntinError("the turn has not begun: append to it first")
        return self.number


def is_of(item: Item, draft: Draft) -> bool:
    """Say whether an item was made from a draft."""
    kept = (item.kind, item.run, item.message, item.payload)
    return kept == (draft.kind, draft.run, draft.message, draft.payload)
