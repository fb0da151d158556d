"""One session in memory: plain lists, slow and readable where SQL is fast."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import TypeVar

from muntin.errors import TurnLost
from muntin.timeline.items import UNSETTLED, ContentKind, Item, Record, Status, Turn

T = TypeVar("T")


@dataclass(slots=True)
class KeptSession:
    """All that is kept of a session."""

    created: datetime
    updated: datetime
    items: list[Item] = field(default_factory=list)
    # The running sum of weights up to and with each item.
    totals: list[int] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    # The numbers of those that wait or are worked on, so that nobody looks through all.
    unsettled: set[int] = field(default_factory=set)
    # Positions of the live entries, and of all versions, by entry.
    live: dict[str, int] = field(default_factory=dict)
    versions: dict[str, list[int]] = field(default_factory=dict)
    reports: dict[tuple[int, int], Record] = field(default_factory=dict)
    # The contents that each report needs.
    names: dict[tuple[int, int], frozenset[str]] = field(default_factory=dict)
    contents: dict[tuple[ContentKind, str], str] = field(default_factory=dict)
    # In which turn the originals of sources were first kept.
    sources: dict[str, int] = field(default_factory=dict)
    frontiers: dict[str, str] = field(default_factory=dict)

    def turn(self, number: int) -> Turn | None:
        """Return one turn, or None."""
        return self.turns[number - 1] if 1 <= number <= len(self.turns) else None

    def put(self, turn: Turn) -> None:
        """Keep a turn, a new one or a changed one."""
        self.turns[turn.number - 1 : turn.number] = [turn]
        if turn.status in UNSETTLED:
            self.unsettled.add(turn.number)
        else:
            self.unsettled.discard(turn.number)

    def hold(self, session: str, numbers: set[int], owner: str, until: datetime | None) -> None:
        """Renew the lease of the turns written into; refuse if another has taken one over."""
        held = [turn for number in numbers if (turn := self.turn(number)) is not None]
        for turn in held:
            if turn.owner not in (None, owner):
                raise TurnLost(session, turn.number)
        for turn in held:
            self.put(replace(turn, status="open", owner=owner, until=until))

    def add(self, item: Item, weight: int, entry: str | None) -> None:
        """Keep an item, and what it does to an entry."""
        self.items.append(item)
        self.totals.append((self.totals or [0])[-1] + weight)
        if entry is not None:
            self.live.pop(entry, None)
            if item.kind == "context_inserted":
                self.live[entry] = item.position
                self.versions.setdefault(entry, []).append(item.position)

    def end(self, changes: Mapping[int, Status], owner: str | None) -> None:
        """Set the status of turns that an append changed."""
        for number, status in changes.items():
            turn = self.turns[number - 1]
            if owner is None and turn.owner is not None and turn.status == "open":
                continue  # someone works on it: it is not for others to end
            self.put(replace(turn, status=status))

    def put_report(self, record: Record, names: Collection[str], keep: int) -> None:
        """Keep a report; forget the oldest beyond `keep`, and contents that none names."""
        self.reports[record.turn, record.step] = record
        self.names[record.turn, record.step] = frozenset(names)
        old = sorted(self.reports)[: max(0, len(self.reports) - keep)]
        for key in old:
            del self.reports[key], self.names[key]
        # Now and then, as in SQL: finding out what is no longer named reads all names.
        if old and old[-1][0] % max(1, keep // 10) == 0:
            named = frozenset[str]().union(*self.names.values())
            for kind, name in list(self.contents):
                if kind == "report" and name not in named:
                    del self.contents[kind, name]


def first(found: Iterable[T], count: int | None) -> list[T]:
    """Return the first of what was found, all of it without a count."""
    return list(islice(found, None if count is None else min(count, sys.maxsize)))


def own(item: Item) -> Item:
    """Return an item whose values are the reader's to change."""
    if item.payload is None and not (item.message and item.message.extra):
        return replace(item, tokens=dict(item.tokens))
    return deepcopy(item)
