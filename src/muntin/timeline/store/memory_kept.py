"""The data of one session in a store in memory, and how it changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from muntin.errors import Overtaken, TurnLost
from muntin.timeline.clock import machine_now
from muntin.timeline.items import (
    UNSETTLED,
    Claim,
    ContentKind,
    Item,
    NoteKey,
    Record,
    SideWrites,
    Status,
    Turn,
)
from muntin.timeline.store.rows import byte_size


@dataclass(slots=True)
class Kept:
    """All data of a session: plain lists, slow and readable where SQL is fast."""

    created: datetime
    updated: datetime
    items: list[Item] = field(default_factory=list)
    # The running sum of weights up to and with each item.
    totals: list[int] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    # The numbers of turns that wait or are worked on, so that no read goes through all turns.
    unsettled: set[int] = field(default_factory=set)
    # Positions of the live entries, and of all versions, by entry.
    live: dict[str, int] = field(default_factory=dict)
    versions: dict[str, list[int]] = field(default_factory=dict)
    reports: dict[tuple[int, int], Record] = field(default_factory=dict)
    # The contents that each report needs.
    names: dict[tuple[int, int], frozenset[str]] = field(default_factory=dict)
    contents: dict[tuple[ContentKind, str], str] = field(default_factory=dict)
    # The turn in which each original of a source was first kept.
    sources: dict[str, int] = field(default_factory=dict)
    notes: dict[NoteKey, str] = field(default_factory=dict)
    # The owners of held names, and until when they hold them.
    held: dict[str, tuple[str, datetime]] = field(default_factory=dict)

    def turn(self, number: int) -> Turn | None:
        """Return one turn, or None."""
        return self.turns[number - 1] if 1 <= number <= len(self.turns) else None

    def put(self, turn: Turn) -> None:
        """Store a turn, new or changed."""
        self.turns[turn.number - 1 : turn.number] = [turn]
        if turn.status in UNSETTLED:
            self.unsettled.add(turn.number)
        else:
            self.unsettled.discard(turn.number)

    def hold(self, session: str, numbers: set[int], claim: Claim) -> None:
        """Renew the lease of the turns written into; refuse if the claim is not valid."""
        held = [turn for number in numbers if (turn := self.turn(number)) is not None]
        for turn in held:
            if not holds(turn, claim):
                raise TurnLost(session, turn.number)
        for turn in held:
            self.put(replace(turn, until=ends(claim.lease)))

    def add(self, item: Item, weight: int, entry: str | None) -> None:
        """Store an item, and its effect on an entry."""
        self.items.append(item)
        self.totals.append((self.totals or [0])[-1] + weight)
        if entry is not None:
            self.live.pop(entry, None)
            if item.kind == "context_inserted":
                self.live[entry] = item.position
                self.versions.setdefault(entry, []).append(item.position)

    def begin(self, item: Item, status: Status, claim: Claim | None) -> None:
        """Store the turn that an item begins."""
        turn = Turn(item.turn, status, item.position)
        if claim is not None and status in UNSETTLED:
            attempt, until = int(status == "open"), ends(claim.lease)
            turn = replace(turn, owner=claim.owner, until=until, attempt=attempt)
        self.put(turn)

    def end(self, changes: Mapping[int, Status], claim: Claim | None) -> None:
        """Set the status of turns that an append changed."""
        for number, status in changes.items():
            turn = self.turns[number - 1]
            if claim is None and turn.owner is not None and turn.status == "open":
                continue  # its owner works on it: only the owner ends it
            if status not in UNSETTLED:
                self.put(replace(turn, status=status, owner=None, until=None, after=None))
            elif turn.status in UNSETTLED:
                self.put(replace(turn, status=status))

    def check_seen(self, session: str, beside: SideWrites) -> None:
        """Refuse data that was made from notes which have changed since."""
        for key, data in beside.seen.items():
            if self.notes.get(key) != data:
                raise Overtaken(session)

    def put_beside(self, beside: SideWrites) -> None:
        """Store the data beside the timeline."""
        for name, data in beside.originals.items():
            self.contents.setdefault(("source", name), data)
            self.sources.setdefault(name, beside.turn)
        for name in [name for name, first in self.sources.items() if first < beside.forget]:
            del self.contents["source", name], self.sources[name]
        for name, data in beside.contents.items():
            self.contents.setdefault(("report", name), data)
        if beside.record is not None:
            self._put_report(beside.record, beside.names, beside.keep)
        self.notes.update(beside.notes)

    def _put_report(self, record: Record, names: Collection[str], keep: int) -> None:
        """Store a report; delete the oldest beyond `keep`, and contents that no report names."""
        self.reports[record.turn, record.step] = record
        self.names[record.turn, record.step] = frozenset(names)
        old = sorted(self.reports)[: max(0, len(self.reports) - keep)]
        for key in old:
            del self.reports[key], self.names[key]
        # Now and then, as in SQL: finding contents that no report names reads all names.
        if old and sum(old[-1]) % max(1, keep // 10) == 0:
            self._drop_unnamed()

    def _drop_unnamed(self) -> None:
        named = frozenset[str]().union(*self.names.values())
        for kind, name in list(self.contents):
            if kind == "report" and name not in named:
                del self.contents[kind, name]

    def forget(self, last: tuple[int, int]) -> int:
        """Delete the reports up to one, and contents that only they needed; return how many."""
        old = [key for key in self.reports if key <= last]
        for key in old:
            del self.reports[key], self.names[key]
        self._drop_unnamed()
        return len(old)

    def report_size(self) -> int:
        """Return how many bytes the reports have, with their contents."""
        kept = [byte_size(data) for (kind, _), data in self.contents.items() if kind == "report"]
        kept += [byte_size(each.report + each.plan) for each in self.reports.values()]
        return sum(kept)


def holds(turn: Turn, claim: Claim) -> bool:
    """Say whether a claim is of the last owner and attempt of a turn that is not settled."""
    mine = turn.owner == claim.owner and claim.attempt in (None, turn.attempt)
    return mine and turn.status in UNSETTLED


def ends(lease: timedelta | None) -> datetime | None:
    return None if lease is None else machine_now() + lease
