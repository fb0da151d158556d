"""Appending: drafts as items and their rows, written in a given transaction.

Owns which turn an appended item belongs to, and that an append is refused if its writer has lost
the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from muntin.errors import InvalidInput, TurnLost
from muntin.timeline.items import UNSETTLED, Claim, Draft, Item, Status
from muntin.timeline.store.rows import to_microseconds, to_tokens, written
from muntin.timeline.store.sql import statements as sql
from muntin.timeline.store.sql.transaction import Transaction

# Called inside of a transaction with the transaction, a session, and the inbox turn that has begun
# to wait there. If the transaction is begun again, it is called again.
Begun: TypeAlias = Callable[[Any, str, int], None]
_MICROSECOND = timedelta(microseconds=1)


class Appending:
    """The drafts to append; all checks that need no database are made when this is made."""

    def __init__(self, session: str, drafts: Sequence[Draft], claim: Claim | None = None) -> None:
        self._session = session
        self._drafts = drafts
        self._claim = claim
        self._now = datetime.now(UTC)
        self._data, self._entries = written(drafts)
        self._created = to_microseconds(drafts[0].time or self._now)
        self._updated = to_microseconds(drafts[-1].time or self._now)

    def write(self, tx: Transaction, begun: Begun | None = None) -> tuple[int, list[Item]]:
        """Write everything, and return the number of the session and the items."""
        drafts, opens = self._drafts, [draft.opens for draft in self._drafts]
        opened = opens.count("turn") + opens.count("queue")
        weight = sum([draft.weight for draft in drafts])
        ((sid, head, counted, total),) = tx.all(
            sql.EXTEND,
            name=self._session,
            n=len(drafts),
            opened=opened,
            weight=weight,
            created=self._created,
            updated=self._updated,
        )
        newest = counted - opened
        status: Status | None = None
        if "inbox" in opens:
            status = tx.scalar(sql.TURN_STATUS, sid=sid, turn=newest)
        asks = self._claim is not None and "queue" in opens
        free = asks and not tx.all(sql.ANY_UNSETTLED, sid=sid)
        first = head - len(drafts) + 1
        items, changes = self._place(newest, status, first, free)
        rows = _to_rows(sid, drafts, items, self._data, total - weight)
        self._write_turns(tx, sid, items, changes, newest)
        # EXTEND counted a turn for each draft that opens one; some joined a turn, others began one.
        if (last := max((newest, *changes))) != counted:
            tx.run(sql.SET_TURN, sid=sid, turn=last)
        tx.many(sql.INSERT_ITEMS, rows)
        for item, entry in zip(items, self._entries, strict=True):
            if entry is not None:
                tx.run(sql.END_ENTRY, sid=sid, name=entry, at=item.position)
                if item.kind == "context_inserted":
                    tx.many(sql.INSERT_ENTRY, [(sid, entry, item.position, None)])
        if begun is not None:
            for number in _waking(drafts, items, newest):
                begun(tx, self._session, number)
        return sid, items

    def _place(
        self, newest: int, status: Status | None, first: int, free: bool
    ) -> tuple[list[Item], dict[int, Status]]:
        """Return the drafts as items from the position `first`, and the status of each turn that
        gets one.

        `newest` is the session's newest turn (0: none yet) and `status` its status. `free` says
        that a new turn need not wait for others.
        """
        turns, changes = _turns(self._session, self._drafts, newest, status, free)
        items = []
        for position, (draft, turn) in enumerate(zip(self._drafts, turns, strict=True), first):
            check_run(draft, position)
            items.append(
                Item(
                    position,
                    draft.kind,
                    turn,
                    draft.message,
                    draft.payload,
                    run=draft.run,
                    time=draft.time or self._now,
                    visibility=draft.visibility,
                    transient=draft.transient,
                    meta=draft.meta,
                    tokens=draft.tokens,
                )
            )
        return items, changes

    def _write_turns(
        self, tx: Transaction, sid: int, items: list[Item], changes: dict[int, Status], newest: int
    ) -> None:
        """Write the turns that begin or end; renew the lease of turns that get items."""
        begun: dict[int, int] = {}
        for item in items:
            if item.turn > newest:
                begun.setdefault(item.turn, item.position)
        if self._claim is not None:
            for number in {item.turn for item in items if item.turn <= newest}:
                self._hold(tx, sid, number, changes.get(number), self._claim)
        else:
            for number in [number for number in changes if number <= newest]:
                status = changes[number]
                ending = sql.OPEN_FREE_TURN if status in UNSETTLED else sql.END_FREE_TURN
                tx.run(ending, sid=sid, turn=number, state=status)
        if begun:
            rows = [self._begun(sid, number, changes[number], at) for number, at in begun.items()]
            tx.many(sql.INSERT_TURNS, rows)

    def _hold(
        self, tx: Transaction, sid: int, number: int, status: Status | None, claim: Claim
    ) -> None:
        """Renew the lease of a turn, or end the turn; `TurnLost` if another owner has it."""
        statement, claimed = sql.HOLD, claim_values(claim)
        if status is not None:
            statement = sql.END_OWN
            claimed["state"] = status
        else:
            claimed["is_new"] = self._is_new(tx, sid, number, claim.attempt in (None, 1))
        if not tx.all(statement, sid=sid, turn=number, **claimed):
            raise TurnLost(self._session, number)

    def _is_new(self, tx: Transaction, sid: int, number: int, is_first: bool) -> bool:
        """Say whether a turn gets further by this. A run goes on where it stopped, but a handler
        begins anew, and writes what it has written before. That a run begins is not far enough."""
        return any(
            draft.kind != "run"
            and (
                is_first
                or draft.run is not None
                or not tx.all(sql.IS_WRITTEN, sid=sid, turn=number, kind=draft.kind, written=data)
            )
            for draft, data in zip(self._drafts, self._data, strict=True)
        )

    def _begun(self, sid: int, number: int, status: Status, at: int) -> tuple[Any, ...]:
        """Return the row of a turn that begins."""
        claim = self._claim
        if claim is None or status not in UNSETTLED:
            return (sid, number, status, at, None, 0, None)
        lease = claim_values(claim)["lease"]
        return (sid, number, status, at, claim.owner, int(status == "open"), lease)


def claim_values(claim: Claim) -> dict[str, Any]:
    """Return a claim as the values of statements."""
    lease = None if claim.lease is None else claim.lease // _MICROSECOND
    return {"holder": claim.owner, "attempt": claim.attempt, "lease": lease}


def check_run(draft: Draft, position: int) -> None:
    """Refuse an item of a run that does not begin before the item."""
    if draft.run is not None and not 0 < draft.run < position:
        raise InvalidInput(
            f"the {draft.kind} item at position {position} cannot be part of a run at "
            f"{draft.run}: a run begins before its items"
        )


def _turns(
    session: str, drafts: Sequence[Draft], newest: int, status: Status | None, free: bool
) -> tuple[list[int], dict[int, Status]]:
    """Return the turn of each draft; drafts before a session's first request join its turn."""
    numbers: list[int] = []
    changes: dict[int, Status] = {}
    waiting = newest == 0  # for the first request
    for draft in drafts:
        if draft.turn is not None:
            if not 1 <= draft.turn <= newest + 1:
                raise InvalidInput(
                    f"session {session!r} has turns 1 to {newest}; there is no {draft.turn}"
                )
            number = draft.turn
        else:
            joins = newest > 0 and (
                draft.opens is None or waiting or (draft.opens == "inbox" and status == "pending")
            )
            number = newest if joins else newest + 1
        if number > newest or (waiting and draft.opens is not None):
            newest = number
            if draft.opens is None and draft.turn is None:
                status = "completed"  # an item before the first request
            else:
                at_once = draft.opens in (None, "turn") or (draft.opens == "queue" and free)
                status = "open" if at_once else "pending"
            free = free and status == "completed"
            changes[number] = status
        waiting = waiting and draft.opens is None and draft.turn is None
        if draft.ends is not None:
            changes[number] = draft.ends
            if number == newest:
                status = draft.ends
        numbers.append(number)
    return numbers, changes


def _waking(drafts: Sequence[Draft], items: Sequence[Item], newest: int) -> list[int]:
    """Return the inbox turns that drafts begin, behind the newest existing turn."""
    begun = (
        item.turn
        for draft, item in zip(drafts, items, strict=True)
        if draft.opens == "inbox" and item.turn > newest
    )
    return list(dict.fromkeys(begun))


def _to_rows(
    sid: int, drafts: Sequence[Draft], items: Iterable[Item], data: Iterable[str], total: int
) -> list[tuple[Any, ...]]:
    """Return the rows of items; `total` is the weight of all items before."""
    rows: list[tuple[Any, ...]] = []
    for draft, item, text in zip(drafts, items, data, strict=True):
        total += draft.weight
        seen, tokens = draft.visibility, to_tokens(tuple(draft.tokens.items()))
        place = (sid, item.position, item.turn, draft.kind, draft.run)
        flags = (seen.client, seen.history, draft.transient)
        rows.append((*place, *flags, to_microseconds(item.time), total, tokens, text))
    return rows
