"""A store in SQLite or PostgreSQL, written once: the same statements serve both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from muntin.core.checks import check_size
from muntin.errors import StoreError
from muntin.timeline.items import (
    Claim,
    Draft,
    Item,
    SessionInfo,
    SideWrites,
    Status,
    Turn,
    View,
)
from muntin.timeline.store.rows import (
    no_session,
    taken,
    to_ascii_json,
    to_info,
    to_items,
    to_turn,
)
from muntin.timeline.store.sql import statements as sql
from muntin.timeline.store.sql.appending import Appending, Begun
from muntin.timeline.store.sql.archive import MOST, check
from muntin.timeline.store.sql.database import UNIQUE_VIOLATION, Database
from muntin.timeline.store.sql.leases import Leases
from muntin.timeline.store.sql.schema import MIGRATIONS
from muntin.timeline.store.sql.timers import Timers
from muntin.timeline.store.sql.transaction import Transaction


class Store(Leases, Timers):
    """Keeps sessions: append-only timelines, for many writers at once, with what belongs to them.

    It is in an SQLite file, in memory, or in a PostgreSQL database. The items that `append`
    returned are durable, and all of them are stored or none. Positions of a session are 1, 2, 3 and
    so on. Reading an unknown session gives nothing.
    """

    version = len(MIGRATIONS)  # of its tables

    def __init__(
        self, url: str, *, create: bool = True, lazy: bool = False, timeout: float | None = None
    ) -> None:
        super().__init__(Database(url, create=create, lazy=lazy, timeout=timeout))

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
        check(session)
        if not drafts:
            return []
        appending = Appending(session, drafts, claim)

        def write(tx: Transaction) -> list[Item]:
            sid, items = appending.write(tx, begun)
            if beside is not None:
                self._put_within(tx, session, sid, beside)
            return items

        return self.database.transact(write)

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
        places: Sequence[int] | None = None,
        weight: int | None = None,
        entry: str | None = None,
        live: bool = False,
        newest: int | None = None,
        oldest: int | None = None,
        shared: bool = False,
    ) -> list[Item]:
        """Return items by position, the oldest first.

        `after` and `before` exclude their own position; `places` are the only positions. Turns
        before `settled` are left out if they failed. `weight` leaves the newest items that have
        this weight together; the oldest of them may lie partly beyond it. `entry` leaves all
        versions of a context entry, `live` the entries that are live. `newest` or `oldest` limits
        how many items are read. `shared` is for readers that change nothing: several may get the
        same items, if these are `is_plain`.
        """
        if weight is not None:
            check_size(weight, "weight")
        bounds = {
            "after": after or None,
            "before": before,
            "first_turn": first_turn or None,
            "last_turn": last_turn,
            "settled": settled,
            "weight": weight,
            "newest": newest,
            "oldest": oldest,
        }
        values: dict[str, Any] = {
            name: min(value, MOST) for name, value in bounds.items() if value is not None
        }
        if places is not None:
            values["places"] = to_ascii_json(list(places))
        if entry is not None:
            values["entry"] = entry
        if live:
            values["live"] = True
        rows = self._ask(sql.read(view, frozenset(values)), session, **values)
        items = to_items(rows, self.name, shared=shared)
        return items[::-1] if newest is not None else sorted(items, key=attrgetter("position"))

    def hide(self, session: str, position: int) -> bool:
        """Hide an item from the client and from the history; it stays in the timeline.

        False if there is no such item, or it is hidden already.
        """
        check(session)
        at = min(check_size(position, "position"), MOST)

        def write(tx: Transaction) -> bool:
            sid = tx.scalar(sql.SESSION_ID, session=session)
            seen = tx.scalar(sql.IS_SEEN, sid=sid, at=at) is not None
            if seen:
                tx.run(sql.HIDE, sid=sid, at=at)
            return seen

        return self.database.transact(write)

    def turns(
        self,
        session: str,
        *,
        number: int | None = None,
        status: Status | None = None,
        newest: int | None = None,
    ) -> list[Turn]:
        """Return the turns, the newest first; only those of this number, or of this status."""
        values: dict[str, Any] = {} if status is None else {"status": status}
        for name, value in (("number", number), ("newest", newest)):
            if value is not None:
                values[name] = min(value, MOST)
        return [to_turn(row) for row in self._ask(sql.turns(frozenset(values)), session, **values)]

    def sessions(
        self,
        *,
        id: str | None = None,
        waiting: bool = False,
        gave_up: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> list[SessionInfo]:
        """Return sessions in the order of their ids, from the first behind `after`.

        Only the one with this `id`, those with a turn that waits or is worked on, or those with a
        turn that was taken too often.
        """
        check_size(limit, "limit")
        values: dict[str, Any] = {} if id is None else {"id": check(id)}
        parameters = {
            name for name, is_given in (("waiting", waiting), ("gave_up", gave_up)) if is_given
        }
        statement = sql.sessions(frozenset(parameters.union(values)))
        page = {"last": after or "", "newest": min(limit, MOST)}
        return [to_info(row) for row in self.database.query(statement, **page, **values)]

    def rename(self, names: Mapping[str, str]) -> None:
        """Give sessions other ids, all of them or none.

        An id that is taken is refused (`InvalidInput`), even if it is taken at the same moment.
        """
        current = ""

        def write(tx: Transaction) -> None:
            nonlocal current
            for session, current in names.items():
                values = {"session": check(session), "new": check(current)}
                if tx.scalar(sql.SESSION_ID, session=session) is None:
                    raise no_session(self.name, session)
                if not tx.all(sql.RENAME, **values):
                    raise taken(self.name, current)

        try:
            self.database.transact(write)
        except StoreError as error:
            if getattr(error.__cause__, "sqlstate", None) != UNIQUE_VIOLATION:
                raise
            raise taken(self.name, current) from error  # by another process, at the same time

    def delete(self, session: str) -> None:
        """Remove a session with all its data; an unknown session is no error."""
        check(session)

        def write(tx: Transaction) -> None:
            for statement in sql.DELETES:
                tx.run(statement, session=session)

        self.database.transact(write)
        self.database.checkpoint()

    def close(self) -> None:
        """Close all connections; the store can be used again and opens new ones."""
        self.database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({self.name!r})"
