"""Recalling from a session: by its index, and as its history is shown.

The index only proposes positions. Their messages are read from the store and projected as a history
is: a message that a projection, a visibility or a failed turn hides there is hidden here too.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from muntin.core.counting.counter import Counter
from muntin.core.message import Input
from muntin.timeline.history import Turns
from muntin.timeline.items import Item
from muntin.timeline.project import Projection, lasting
from muntin.timeline.recall.choose import check_query, choose
from muntin.timeline.recall.excerpts import Excerpt, Recalled, Spoken, group_of
from muntin.timeline.recall.ranking import rank, understand
from muntin.timeline.recall.related import table
from muntin.timeline.recall.shelf import (
    extend,
    keep_segments,
    shelf_of,
    vectors_of,
    wish_positions,
)
from muntin.timeline.recall.standing import (
    MOST,
    Wish,
    changes_of,
    current,
    entries_of,
    wish_in,
)
from muntin.timeline.recall.vectors import blend

if TYPE_CHECKING:
    from muntin.timeline.session import Session

# How many of the best hits are read.
_BEST = 400
# The call of a result is searched this many items before it, its results behind it: first in a
# small range, which has most groups, then in a larger one.
_NEARBY = (2, 16)
# How many tokens an excerpt of a search may have; the result of a search is not trimmed.
_SEARCH_TOKENS = 2_000


@dataclass(frozen=True, slots=True)
class QueryVector:
    """A question with its vector, by the name of the embedder."""

    embedder: str
    vector: Sequence[float]


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of a session that may be recalled: positions behind `after` and before `before`,
    except the positions `shown`; as the projection shows them. `completed` leaves out failed turns,
    as the history of a generator does. Without `results` the results of tools are left out.
    """

    after: int = 0
    before: int | None = None
    shown: Collection[int] = field(default=frozenset(), kw_only=True)
    projection: Projection | None = None
    completed: bool = False
    results: bool = True

    def __contains__(self, position: int) -> bool:
        if position in self.shown:
            return False
        return position > self.after and (self.before is None or position < self.before)

    def shows(self, spoken: Spoken) -> bool:
        """Say whether a message may be recalled."""
        return spoken.position in self and (self.results or spoken.message.role != "tool")


def in_window(session: Session) -> int:
    """Return the position behind which the session's window begins."""
    window = session.items.window
    if window is None:
        return 0
    store = session.opened()
    if isinstance(window, Turns) and window.count > 0:
        done = store.turns(session.id, status="completed", newest=window.count)
        return done[-1].first - 1 if len(done) == window.count else 0
    visible = session.items.history()
    if visible:
        return visible[0].position - 1
    return sum(info.items for info in store.sessions(id=session.id))


def before_turn(
    session: Session, turn: int, projection: Projection | None = None, *, completed: bool = False
) -> Scope:
    """Return the part of a session that may be recalled in a turn: its window, before the turn."""
    turns = session.opened().turns(session.id, number=turn)
    before = turns[0].first if turns else None
    return Scope(in_window(session), before, projection=projection, completed=completed)


def recall(
    session: Session,
    query: str | Input,
    tokens: int,
    *,
    limit: int | None = None,
    scope: Scope | None = None,
    counter: Counter | None = None,
    seconds: float | None = None,
    keep: bool = True,
    query_vector: QueryVector | None = None,
) -> Recalled:
    """Return the parts of a session that bear on a question, as one text of at most `tokens`.

    If the index cannot be made within `seconds`, nothing is recalled; the next question continues
    making it. If the question is also `asked` of an embedder, texts near its vector count too.
    """
    query = check_query(query, tokens, limit)
    scope = scope or Scope()
    store = session.opened()
    infos = store.sessions(id=session.id)
    if not infos or not query.strip():
        return Recalled()
    (info,) = infos
    shelf = shelf_of(store)
    entry = shelf.get(session.id, info.created, info.items)
    until = None if seconds is None else time.monotonic() + seconds
    if not entry.lock.acquire(timeout=-1 if seconds is None else seconds):
        return Recalled(trouble="the index is being made")
    try:
        is_whole = extend(session, entry, until)
        if keep:
            keep_segments(session, entry)
        if not is_whole:
            so_far = f"{entry.until:,} of {info.items:,} items so far"
            return Recalled(trouble=f"the index is being made: {so_far}")
        index = entry.index
        end = info.items + 1 if scope.before is None else scope.before
        within = index.between(max(1, scope.after + 1), max(1, end))
        question = understand(index, query, table(), within.stop)
        hits = list(islice(rank(index, question, within), _BEST))
        if query_vector is not None:
            near = vectors_of(session, entry, query_vector.embedder).near(
                query_vector.vector, within
            )
            hits = blend(hits, question, near)[:_BEST]
        positions = {hit.number: index.positions[hit.number] for hit in hits}
        sizes = {hit.number: index.sizes[hit.number] for hit in hits}
    finally:
        entry.lock.release()
    shelf.tidy()
    load = _loader(session, scope, positions)
    recalled = choose(hits, sizes, load, question, counter or session.counter, tokens, limit)
    recalled.session = session.id
    return recalled


def search(session: Session, query: str, limit: int, *, keep: bool = True) -> list[Excerpt]:
    """Return the best excerpts of a session on a question, best first.

    Without `keep` nothing is written to the store.
    """
    recalled = recall(session, query, limit * _SEARCH_TOKENS, limit=limit, keep=keep)
    return list(recalled.excerpts)


def _loader(
    session: Session, scope: Scope, positions: Mapping[int, int]
) -> Callable[[Sequence[int]], Mapping[int, Sequence[Spoken]]]:
    """Return the function that reads messages as they are shown, each with its tool group."""
    last = session.last()

    def load(numbers: Sequence[int]) -> Mapping[int, Sequence[Spoken]]:
        groups: dict[int, Sequence[Spoken]] = {}
        wanted = sorted(positions[number] for number in numbers)
        for near in _NEARBY[-1:] if scope.projection else _NEARBY:
            cut = []
            ranges = _ranges(wanted, near)
            read = _read_all(session, scope, ranges, last)
            for (first, end), items in zip(ranges, read, strict=True):
                visible = _read_shown(session, scope, items)
                for position in wanted:
                    if first <= position < end:
                        groups[position] = group = _group(visible, items, position)
                        if not _is_whole(group, visible):
                            cut.append(position)
            wanted = cut
        allowed = {
            n: [spoken for spoken in groups[positions[n]] if scope.shows(spoken)] for n in numbers
        }
        return {n: group for n, group in allowed.items() if group}

    return load


def read_spoken(session: Session, scope: Scope, positions: Sequence[int]) -> list[Spoken]:
    """Return the messages at these positions as a history shows them, oldest first."""
    last = session.last()
    read = _read_all(session, scope, _ranges(positions, 0), last)
    return [
        spoken
        for items in read
        for spoken in _read_shown(session, scope, items)
        if spoken.position in scope
    ]


def wishes_in(session: Session, scope: Scope, seconds: float | None = None) -> list[Wish] | None:
    """Return the wishes that hold, of those stated within a part of a session; None if the index
    cannot be made within `seconds`."""
    changes = changes_of(session)
    removed = set(changes["removed"])
    found = wish_positions(session, seconds)
    if found is None:
        return None
    positions = [at for at in found if at in scope and at not in removed]
    wishes = entries_of(changes)
    wishes += [
        Wish(str(spoken.position), text, spoken.position)
        for spoken in read_spoken(session, scope, positions[-MOST:])
        if spoken.message.role == "user" and (text := wish_in(spoken.message.text))
    ]
    return current(wishes)


def _is_whole(group: Sequence[Spoken], visible: Sequence[Spoken]) -> bool:
    """Say whether a tool group lies wholly inside of the messages read."""
    if not group:
        return True
    calls = {call.id for call in group[0].message.tool_calls}
    if not calls:
        return group[0].message.tool_call_id is None
    if calls <= {spoken.message.tool_call_id for spoken in group}:
        return True
    return any(
        spoken.message.role != "tool" for spoken in visible if spoken.position > group[-1].position
    )


def _ranges(positions: Sequence[int], near: int) -> list[tuple[int, int]]:
    """Return the ranges to read around positions, from and to before; near ranges become one."""
    ranges: list[tuple[int, int]] = []
    for position in positions:
        first, end = max(1, position - near), position + near + 1
        if ranges and first <= ranges[-1][1]:
            first = ranges.pop()[0]
        ranges.append((first, end))
    return ranges


def _read_all(
    session: Session, scope: Scope, ranges: Sequence[tuple[int, int]], last: int
) -> list[list[Item]]:
    """Read ranges, in one read if only Muntin sees the items."""
    if scope.projection:
        return [_read(session, scope, first, end, last) for first, end in ranges]
    settled = last + 1 if scope.completed else None
    places = [place for first, end in ranges for place in range(first, end)]
    read = session.store.read
    items_read = read(session.id, view="history", settled=settled, places=places, shared=True)
    items = lasting(items_read, last)
    at = [item.position for item in items]
    return [items[bisect_left(at, first) : bisect_left(at, end)] for first, end in ranges]


def _read(session: Session, scope: Scope, first: int, end: int, last: int) -> list[Item]:
    """Read a range; for a projection, all turns that the range touches."""
    settled = last + 1 if scope.completed else None
    read = session.store.read
    items = read(session.id, view="history", after=first - 1, before=end, settled=settled)
    if scope.projection and items:
        turns = [item.turn for item in items]
        low, high = min(turns), max(turns)
        items = read(session.id, view="history", first_turn=low, last_turn=high, settled=settled)
    return lasting(items, last)


def _read_shown(session: Session, scope: Scope, items: Sequence[Item]) -> list[Spoken]:
    """Return items as the messages that a history shows, by position."""
    if not scope.projection:
        items = [item for item in items if item.kind != "reasoning"]
    times = {item.position: item.time for item in items}
    visible = [
        Spoken(message.item[1], message, times.get(message.item[1]))
        for message in session.project(items, scope.projection)
        if message.item is not None and message.role != "system"
    ]
    return sorted(visible, key=lambda spoken: spoken.position)


def _group(visible: Sequence[Spoken], items: Sequence[Item], position: int) -> list[Spoken]:
    """Return the shown messages of the item at a position; none if it is hidden."""
    at = {spoken.position: place for place, spoken in enumerate(visible)}
    if position in at:
        return group_of(visible, at[position])
    item = next((candidate for candidate in items if candidate.position == position), None)
    if item is None:
        return []
    # Reasoning stands in front of its answer; a projection may show a run as one message.
    before = {candidate.position for candidate in items if candidate.kind == "reasoning"}
    place = position - 1
    while place in before:
        if place in at:
            return group_of(visible, at[place])
        place -= 1
    return [spoken for spoken in visible if item.run is not None and spoken.position == item.run]
