"""The turn that is worked on: what is written into it, by whom, and for how long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import groupby
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias, cast

from muntin.core.forms import messages_from
from muntin.core.message import Message
from muntin.core.planning.slot import MessageLike
from muntin.errors import MuntinError, StoreError, TurnEnded
from muntin.timeline.items import Claim, Draft, Item, Opens, SideWrites, Status
from muntin.timeline.owner import done, new_owner

if TYPE_CHECKING:
    from muntin.timeline.session import Session

# How long a turn of another machine is taken for alive without a renewal.
LEASE = timedelta(seconds=60)

# The types that can be appended.
ItemLike: TypeAlias = MessageLike | Draft


def spoken_and_drafts(items: Iterable[ItemLike]) -> Iterator[Message | Draft]:
    """Yield drafts as they are and all else as Messages; another maker's may be several."""
    for is_drafted, group in groupby(items, lambda item: isinstance(item, Draft)):
        batch = list(group)
        yield from cast("list[Draft]", batch) if is_drafted else messages_from(batch)


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
        # Which attempt at the turn this is; None until the turn is taken.
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
        drafts = [self.session.draft(item, turn=turn) for item in spoken_and_drafts(items)]
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
    stored = (item.kind, item.run, item.message, item.payload)
    return stored == (draft.kind, draft.run, draft.message, draft.payload)
