"""What a store is: three protocols, and the store that has all of them.

Windows, projection and counting are written once for all stores, in other modules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol, TypeAlias

from muntin.timeline.items import (
    Claim,
    ContentKind,
    Draft,
    Item,
    NoteKind,
    Pruned,
    Record,
    SessionInfo,
    SideWrites,
    Status,
    Turn,
)
from muntin.timeline.timers import Release, Timer

# Called inside of a transaction with the transaction (None in memory), a session, and the inbox
# turn that has begun to wait there. If the transaction is begun again, it is called again.
Begun: TypeAlias = Callable[[Any, str, int], None]

View: TypeAlias = Literal["all", "client", "history"]


class Timelines(Protocol):
    """Append-only timelines by session id, for many writers at once.

    The items that `append` returned are durable, and all of them are stored or none. Positions of a
    session are 1, 2, 3 and so on. Reading an unknown session gives nothing.
    """

    def append(
        self,
        session: str,
        drafts: Sequence[Draft],
        *,
        claim: Claim | None = None,
        beside: SideWrites | None = None,
        begun: Begun | None = None,
    ) -> list[Item]:
        """Append all drafts in one transaction and return them as items.

        `opens="turn"` begins a new turn; `opens="inbox"` joins the pending turn, or begins one;
        `opens="queue"` begins a turn that waits behind earlier turns; if all of these are settled,
        the turn is its owner's at once. Without either the item joins the turn that `turn` names
        (the number after the newest begins a turn), else the newest turn; in a session without
        turns it begins one that counts as completed. A `claim` is on the turns that the append
        begins: a turn that is worked on at once has its first attempt, a turn that waits has none.
        In an existing turn the lease is renewed; a claim with an old attempt, or on a settled turn,
        is refused (`TurnLost`). Without a claim, `ends` does not change a turn that has an owner at
        work; a turn that it settles has no owner. A settled turn is never opened again. A live
        context entry is replaced by a `context_inserted` item with the same id, and ended by a
        `context_removed` item. In the same transaction `beside` is put, or all is refused
        (`Overtaken`), and `begun` is called for each turn that an `opens="inbox"` has begun; an
        exception in it undoes everything.
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

        That item may itself lie partly beyond the weight; None if the session is empty.
        """

    def count(self, session: str, counts: Mapping[int, Mapping[str, int]]) -> None:
        """Add token counts, by position and tokenizer, to items already appended."""

    def hide(self, session: str, position: int) -> bool:
        """Hide an item from the client and from the history; it stays in the timeline.

        False if there is no such item, or it is hidden already.
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
        """Return the facts about one session, or None."""

    def rename(self, names: Mapping[str, str]) -> None:
        """Give sessions other ids, all of them or none.

        An id that is taken is refused (`InvalidInput`), even if it is taken at the same moment.
        """

    def delete(self, session: str) -> None:
        """Remove a session with all its data; an unknown session is no error."""


class ReadShared(Protocol):
    """Does the same as `read`, for readers that change nothing: several readers may get the same
    items, if these are `is_plain`. With `places` only the items at these positions are read."""

    def __call__(
        self, session: str, *, places: Sequence[int] | None = None, **limits: Any
    ) -> list[Item]:
        """Return items by position, the oldest first."""


def read_shared(store: Timelines) -> ReadShared | None:
    """Return the shared read of a store that remembers items; None if the store has none."""
    return getattr(store, "read_shared", None)


class Leases(Protocol):
    """Which owner works on which turn: one owner at a time, as long as its lease is renewed.

    Leases are written and compared by one clock: the server's, or the machine's.
    """

    def settle(
        self,
        session: str,
        turn: int,
        status: Status,
        *,
        claim: Claim | None = None,
        reason: str | None = None,
        beside: Sequence[SideWrites] = (),
    ) -> bool:
        """Settle a turn and release it; with a `claim`, only if the claim is still valid.

        In the same transaction `beside` is put. False, and nothing is written, if there is no such
        turn, it has another owner, or it is settled already.
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
        it is failed, with an error item that says so. A turn that is the owner's already is
        returned unchanged. If nothing can be taken, nothing is written. An engine that is `sure` to
        run alone takes a resumable turn at once, whatever its lease says.
        """

    def renew(self, session: str, turn: int, claim: Claim) -> bool:
        """Renew the lease of a turn; False if the claim is no longer valid."""

    def hand_back(
        self, session: str, turn: int, claim: Claim, *, after: timedelta = timedelta(0)
    ) -> bool:
        """Let other owners take a resumable turn, after some time; this does not count as a try.

        False if the claim is no longer valid.
        """

    def mend(self, session: str) -> list[int]:
        """Fail the open turns that lost their owner and are not resumable; return their numbers."""

    def gave_up(self, *, after: str | None = None, limit: int = 100) -> list[tuple[str, int]]:
        """Return the turns that were taken too often, by session, from the first behind `after`."""

    def hold(self, session: str, name: str, owner: str, lease: timedelta) -> bool:
        """Hold a name of a session for an owner, or hold it longer; False while another holds it.

        A name held by an owner that is gone (`muntin.timeline.owner.is_gone`) is free. No name of a
        session that does not exist can be held.
        """

    def let_go(self, session: str, name: str, owner: str) -> None:
        """Stop holding a name; nothing happens if another owner holds it."""

    def waiting(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        """Return sessions with a turn that waits or is worked on, from the first behind `after`."""

    def backlog(self) -> Backlog:
        """Return how many turns wait and how many are worked on, in all sessions."""

    def pending(self, session: str, limit: int) -> int:
        """Return how many items wait in the inbox of a session; counting ends at `limit`."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many turns wait and how many are worked on; since when the oldest waits."""

    waiting: int = 0
    running: int = 0
    since: datetime | None = None


class Timers(Protocol):
    """Wakes at a time. Times are by the store's clock: its server's, if it has one."""

    def put(self, timer: Timer, *, after: timedelta | None = None, new: bool = False) -> Timer:
        """Store a timer, and return it; a timer with the same id is replaced, or stays if `new`.

        With `after` it is due that long from now.
        """

    def put_in(
        self, tx: Any, timer: Timer, *, after: timedelta | None = None, new: bool = False
    ) -> Timer:
        """Store a timer in the transaction of an append, for the function `begun`."""

    def drop(self, entity: str, id: str) -> bool:
        """Remove a timer; False if there is none, or it was due already."""

    def of(self, entity: str) -> list[Timer]:
        """Return the timers of an entity, the next first."""

    def next(self, kinds: Collection[str]) -> float | None:
        """Return in how many seconds the next timer of these types is due; None if none is."""

    def release(
        self, kinds: Collection[str], release: Release, *, most: int, begun: Begun | None = None
    ) -> list[Timer]:
        """Append the items of timers that are due, in one transaction, and return the timers.

        Each due time is released once, even if several processes release.
        """


class Archive(Protocol):
    """The data beside a timeline: reports, their contents, and notes.

    Putting data beside a session that does not exist is a `StoreError`.
    """

    def put(self, session: str, beside: SideWrites) -> None:
        """Store the data beside a session, in one transaction; delete the oldest reports.

        Data made from notes that have changed since is refused (`Overtaken`).
        """

    def reports(self, session: str, *, first: int = 0, last: int | None = None) -> list[Record]:
        """Return the stored reports of these turns, the oldest first."""

    def content(self, session: str, key: str, *, kind: ContentKind = "report") -> str | None:
        """Return a content by its name, or None."""

    def prune(self, *, before: datetime | None = None, most: int | None = None) -> Pruned:
        """Delete reports of all sessions: reports made `before`, then the oldest until the rest has
        at most `most` bytes, with the contents that they need."""

    def vacuum(self) -> None:
        """Free the room of deleted data, so that nothing of it can be found."""

    def note(self, session: str, kind: NoteKind, name: str = "") -> str | None:
        """Return a note of a session, or None."""

    def sessions_at(self, past: str, answer: str | None = None) -> list[tuple[str, str]]:
        """Return up to two sessions whose note `recorder_past` has this name, and its text.

        With an `answer` only notes of this text count.
        """


class Store(Timelines, Leases, Archive, Protocol):
    """Keeps timelines, leases and an archive."""

    @property
    def name(self) -> str:
        """The address of the store as errors show it, without a password."""

    @property
    def in_memory(self) -> bool:
        """Whether it never waits for a disk or a server, so that an event loop may use it."""

    @property
    def timers(self) -> Timers:
        """The timers of its entities."""

    def close(self) -> None:
        """Close what the store opened."""

    def __enter__(self) -> Store:
        """Return the store, to be closed at the end of a `with` block."""

    def __exit__(self, *_: object) -> None:
        """Close the store."""
