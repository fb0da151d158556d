"""What a store is: three protocols, and the store that is all of them.

Windows, projection and counting stand above and are written once for all stores.
`muntin.testing.check_store` checks every promise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol, TypeAlias

from muntin.timeline.items import (
    Beside,
    Claim,
    ContentKind,
    Draft,
    Item,
    Pruned,
    Record,
    SessionInfo,
    Status,
    Turn,
)
from muntin.timeline.timers import Release, Timer

# Called inside of a transaction with it (None in memory), a session, and the inbox turn that has
# begun to wait there. The transaction may be begun again, and the call made once more.
Begun: TypeAlias = Callable[[Any, str, int], None]

View: TypeAlias = Literal["all", "client", "history"]


class Timelines(Protocol):
    """Append-only timelines by session id, for many writers at once.

    What `append` returned is durable; all its items are there or none. Positions of a session
    are 1, 2, 3 and so on. Reading an unknown session gives nothing.
    """

    def append(
        self,
        session: str,
        drafts: Sequence[Draft],
        *,
        claim: Claim | None = None,
        beside: Beside | None = None,
        begun: Begun | None = None,
    ) -> list[Item]:
        """Append all drafts in one transaction and return them as items.

        `opens="turn"` begins a new turn; `opens="inbox"` joins the pending turn, or begins one;
        `opens="queue"` begins one that waits behind those before it; where none of them is
        unsettled, the turn is its owner's at once.
        Without either the item joins the turn `turn` names (the one after the newest begins it),
        else the newest turn; in a session without turns it begins one that counts as completed.
        A `claim` is on the turns it begins: one that is worked on at once has its first attempt,
        one that waits has none. In a turn that is there already the lease is renewed; who carries
        an old attempt, or comes after the turn was settled, is refused (`TurnLost`). Without a
        claim, `ends` leaves alone a turn that someone works on; what it settles has no owner.
        A settled turn is never opened again.
        A live context entry is replaced by a `context_inserted` item with the same id, and ended
        by a `context_removed` one. In the same transaction `beside` is put, or all is refused
        (`Overtaken`), and `begun` is called for each turn that an `opens="inbox"` has begun; what
        it raises undoes all.
        """

    def read(
        self,
        session: str,
        *,
        view: View = "all",
        after: int = 0,
        before: int | None = None,
        first_turn: int = 0,
        last_turn: int | None = None,
        settled: int | None = None,
        newest: int | None = None,
        oldest: int | None = None,
    ) -> list[Item]:
        """Return items by position, the oldest first.

        `after` and `before` exclude their own position. Turns before `settled` are left out
        if they failed. `newest` or `oldest` limits how many items are read.
        """

    def reach(self, session: str, weight: int) -> Item | None:
        """Return the oldest item that the newest items of this weight reach back to.

        It may itself lie partly beyond; None if the session is empty.
        """

    def count(self, session: str, counts: Mapping[int, Mapping[str, int]]) -> None:
        """Add token counts, by position and tokenizer, to items already appended."""

    def hide(self, session: str, position: int) -> bool:
        """Hide an item from the client and from the history; it stays in the timeline.

        False if there is no such item, or nobody sees it.
        """

    def entries(self, session: str, id: str | None = None) -> list[Item]:
        """Return the items of the live entries by position; with an id, all its versions."""

    def turns(
        self, session: str, *, status: Status | None = None, newest: int | None = None
    ) -> list[Turn]:
        """Return the turns, the newest first."""

    def turn(self, session: str, number: int) -> Turn | None:
        """Return one turn, or None."""

    def sessions(self, *, after: str | None = None, limit: int = 100) -> list[SessionInfo]:
        """Return sessions in the order of their ids, from the first behind `after`."""

    def session(self, session: str) -> SessionInfo | None:
        """Return what is known of one session, or None."""

    def rename(self, names: Mapping[str, str]) -> None:
        """Give sessions other ids, all of them or none.

        One that is taken is refused (`InvalidInput`), whoever takes it at the same time.
        """

    def delete(self, session: str) -> None:
        """Remove a session with all that belongs to it; an unknown one is no error."""


class ReadShared(Protocol):
    """Does what `read` does, for readers who change nothing: others may be given the same items,
    those that are `is_plain`. With `places` only the items at these positions are read."""

    def __call__(
        self, session: str, *, places: Sequence[int] | None = None, **limits: Any
    ) -> list[Item]:
        """Return items by position, the oldest first."""


def read_shared(store: Timelines) -> ReadShared | None:
    """Return how a store reads that remembers what it read; None of one that does not."""
    return getattr(store, "read_shared", None)


class Leases(Protocol):
    """Who works on which turn: one owner at a time, for as long as its lease is renewed.

    Leases are written and compared by one clock: the server's, or that of the machine.
    """

    def settle(
        self,
        session: str,
        turn: int,
        status: Status,
        *,
        claim: Claim | None = None,
        reason: str | None = None,
        beside: Sequence[Beside] = (),
    ) -> bool:
        """Settle a turn and release it; with a `claim`, only if that still holds.

        In the same transaction `beside` is put. False, and nothing is written, if there is no such
        turn, it is another's, or it is settled already.
        """

    def take(
        self,
        session: str,
        owner: str,
        lease: timedelta,
        *,
        number: int | None = None,
        resumable: bool = False,
        max_attempts: int | None = None,
        sure: bool = False,
    ) -> Turn | None:
        """Take the next turn that may be worked on, and become its owner; its attempt rises.

        One turn of a session is worked on at a time; see `muntin.timeline.owner.choose`. A
        `resumable` turn may be taken again when its owner died, `max_attempts` times in all: then
        it is failed, with an error item that says so. A turn that is the owner's is returned as it
        is. Where nothing can be taken, nothing is written. An engine that is `sure` to run alone
        takes a resumable turn at once, whatever its lease says.
        """

    def renew(self, session: str, turn: int, claim: Claim) -> bool:
        """Renew the lease of a turn; False if it is no longer the owner's."""

    def hand_back(
        self, session: str, turn: int, claim: Claim, *, after: timedelta = timedelta(0)
    ) -> bool:
        """Let others take a resumable turn, after some time; that does not count as a try.

        False if it is no longer the owner's.
        """

    def mend(self, session: str) -> list[int]:
        """Fail the open turns whose owner is gone and that nobody resumes; return their numbers."""

    def gave_up(self, *, after: str | None = None, limit: int = 100) -> list[tuple[str, int]]:
        """Return the turns that were taken too often, by session, from the first behind `after`."""

    def hold(self, session: str, name: str, owner: str, lease: timedelta) -> bool:
        """Hold something of a session by name, or hold it longer; False while another holds it.

        What is held by an owner that is gone (`muntin.timeline.owner.is_gone`) is free, and nobody
        can hold anything of a session that is not there.
        """

    def let_go(self, session: str, name: str, owner: str) -> None:
        """Hold something no longer; nothing happens if another holds it."""

    def waiting(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        """Return sessions with a turn that waits or is worked on, from the first behind `after`."""

    def backlog(self) -> Backlog:
        """Return how much waits and how much is worked on, in all sessions."""

    def pending(self, session: str, limit: int) -> int:
        """Return how many items wait in the inbox of a session; counting ends at `limit`."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many turns wait and how many are worked on; since when the oldest waits."""

    waiting: int = 0
    running: int = 0
    since: datetime | None = None


class Timers(Protocol):
    """What is to happen at a time. Times are the store's: those of its server, if it has one."""

    def put(self, timer: Timer, *, after: timedelta | None = None, new: bool = False) -> Timer:
        """Keep a timer, and return it; one with the same id is replaced, or stays if `new`.

        With `after` it is due so long from now.
        """

    def put_in(
        self, tx: Any, timer: Timer, *, after: timedelta | None = None, new: bool = False
    ) -> Timer:
        """Keep a timer in the transaction of an append: for what `begun` calls."""

    def drop(self, entity: str, id: str) -> bool:
        """Remove a timer; False if it is not there, or was due already."""

    def of(self, entity: str) -> list[Timer]:
        """Return the timers of an entity, the next first."""

    def next(self, kinds: Collection[str]) -> float | None:
        """Return in how many seconds the next timer of these types is due; None if none is."""

    def release(
        self, kinds: Collection[str], release: Release, *, most: int, begun: Begun | None = None
    ) -> list[Timer]:
        """Append what the timers that are due become, in one transaction, and return them.

        Each due time is released once, however many processes release.
        """


class Archive(Protocol):
    """What is kept beside a timeline: reports, what they need, and frontiers.

    To put something beside a session that is not there is a `StoreError`.
    """

    def put(self, session: str, beside: Beside) -> None:
        """Keep what belongs beside a session, in one transaction; forget the oldest reports.

        What was made by frontiers that are others by now is refused (`Overtaken`).
        """

    def reports(self, session: str, *, first: int = 0, last: int | None = None) -> list[Record]:
        """Return the kept reports of these turns, the oldest first."""

    def content(self, session: str, key: str, *, kind: ContentKind = "report") -> str | None:
        """Return a content by its name, or None."""

    def prune(self, *, before: datetime | None = None, most: int | None = None) -> Pruned:
        """Forget reports of all sessions: those made `before`, then the oldest until they have at
        most so many bytes, with the contents that they need."""

    def vacuum(self) -> None:
        """Give back the room of what was deleted, so that nothing of it can be found."""

    def frontier(self, session: str, line: str) -> str | None:
        """Return the frontier of a line of windows, or None."""


class Store(Timelines, Leases, Archive, Protocol):
    """Keeps timelines, leases and an archive."""

    @property
    def name(self) -> str:
        """The address of the store as errors show it, without a password."""

    @property
    def timers(self) -> Timers:
        """The timers of its entities."""

    def close(self) -> None:
        """Close what the store opened."""

    def __enter__(self) -> Store:
        """Return the store, to be closed at the end of a `with` block."""

    def __exit__(self, *_: object) -> None:
        """Close the store."""
