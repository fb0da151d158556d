"""One append, in SQL: what it does to its session, turns, items and entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from muntin.errors import TurnLost
from muntin.timeline.items import Draft, Item, Status, to_microseconds
from muntin.timeline.store.rows import entry_id, placed, to_data, to_tokens
from muntin.timeline.store.sql import statements as sql
from muntin.timeline.store.sql.transaction import Transaction
from muntin.timeline.turns import place


class Appending:
    """What is to be appended; all that can be refused is refused when this is made."""

    def __init__(
        self, session: str, drafts: Sequence[Draft], owner: str | None, until: datetime | None
    ) -> None:
        self._session = session
        self._drafts = drafts
        self._owner = owner
        self._until = None if until is None else to_microseconds(until)
        self._data = [to_data(draft) for draft in drafts]
        self._entries = [entry_id(draft) for draft in drafts]
        self._now = datetime.now(UTC)

    def write(self, tx: Transaction) -> list[Item]:
        """Write all of it, and return the items."""
        drafts = self._drafts
        opened = sum(draft.opens == "turn" for draft in drafts)
        weight = sum(draft.weight for draft in drafts)
        ((sid, head, counted, total),) = tx.all(
            sql.EXTEND,
            name=self._session,
            n=len(drafts),
            opened=opened,
            weight=weight,
            created=to_microseconds(drafts[0].time or self._now),
            updated=to_microseconds(drafts[-1].time or self._now),
        )
        newest = counted - opened
        status: Status | None = None
        if any(draft.opens == "inbox" for draft in drafts):
            status = tx.scalar(sql.TURN_STATUS, sid=sid, turn=newest)
        numbers, changes = place(self._session, drafts, newest, status)
        first = head - len(drafts) + 1
        items = [
            placed(draft, first + index, numbers[index], draft.time or self._now)
            for index, draft in enumerate(drafts)
        ]
        self._hold(tx, sid, {number for number in numbers if number <= newest})
        self._write_turns(tx, sid, items, changes, newest, counted)
        self._write_items(tx, sid, items, total - weight)
        self._write_entries(tx, sid, items)
        return items

    def _hold(self, tx: Transaction, sid: int, numbers: set[int]) -> None:
        """Renew the lease of the turns written into; refuse if another has taken one over."""
        if self._owner is None:
            return
        held = {"sid": sid, "holder": self._owner, "lease": self._until}
        for number in numbers:
            if not tx.all(sql.HOLD, turn=number, **held):
                raise TurnLost(self._session, number)

    def _write_turns(
        self,
        tx: Transaction,
        sid: int,
        items: Sequence[Item],
        changes: Mapping[int, Status],
        newest: int,
        counted: int,
    ) -> None:
        """Write the turns it begins and those it settles; `counted` is what the session says."""
        begun: dict[int, int] = {}
        for item in items:
            if item.turn > newest:
                begun.setdefault(item.turn, item.position)
        ending = sql.END_FREE_TURN if self._owner is None else sql.END_TURN
        for number, status in changes.items():
            if number <= newest:
                tx.run(ending, sid=sid, turn=number, state=status)
        if begun:
            held = (self._owner, self._until)
            rows = [(sid, number, changes[number], at, *held) for number, at in begun.items()]
            tx.many(sql.INSERT_TURNS, rows)
            newest = max(begun)
        if newest != counted:
            tx.run(sql.SET_TURN, sid=sid, turn=newest)

    def _write_items(self, tx: Transaction, sid: int, items: Sequence[Item], total: int) -> None:
        rows = []
        for draft, item, data in zip(self._drafts, items, self._data, strict=True):
            total += draft.weight
            rows.append(
                (
                    *(sid, item.position, item.turn, draft.kind, draft.run),
                    *(draft.visibility.client, draft.visibility.history, draft.transient),
                    *(to_microseconds(item.time), total, to_tokens(draft.tokens), data),
                )
            )
        tx.many(sql.INSERT_ITEMS, rows)

    def _write_entries(self, tx: Transaction, sid: int, items: Sequence[Item]) -> None:
        for item, entry in zip(items, self._entries, strict=True):
            if entry is not None:
                tx.run(sql.END_ENTRY, sid=sid, name=entry, at=item.position)
                if item.kind == "context_inserted":
                    tx.many(sql.INSERT_ENTRY, [(sid, entry, item.position, None)])
