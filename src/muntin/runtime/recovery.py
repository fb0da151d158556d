"""Reading what a window does not show: the three tools, and the originals they read.

Bounded in size; from the durable record, so that what a marker names can be read later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from muntin.agent.tools import ToolLike
from muntin.composer import Asked
from muntin.core.checks import digest
from muntin.core.counting.counter import Counter
from muntin.core.message import as_message
from muntin.core.parts import compact_json
from muntin.core.planning.markers import InputRest
from muntin.core.tags.xml import block
from muntin.runtime.in_store import in_store
from muntin.runtime.sources import MOST_KEPT
from muntin.threads import in_thread
from muntin.timeline.items import Item
from muntin.timeline.project import Projection

if TYPE_CHECKING:
    from muntin.runtime.active_turn import ActiveTurn
    from muntin.runtime.sources import Loaded, Sources
    from muntin.timeline.entries import ContextEntry
    from muntin.timeline.session import Session

MOST_CHARACTERS = 20_000
MOST_ITEMS = 200
# Originals are kept for so many turns.
KEPT_TURNS = 100


def recovery_tools(
    session: Session,
    projection: Projection | None = None,
    sources: Callable[[], Sources | None] = lambda: None,
) -> tuple[ToolLike, ...]:
    """Return the tools that read what was cut, as the projection in force shows it.

    `sources` returns those of the window.
    """
    reader = _Reader(session, projection, sources)
    return (
        reader.load_timeline_range,
        reader.load_source_range,
        reader.load_context_history,
    )


class _Reader:
    """Reads the durable originals of one session."""

    def __init__(
        self,
        session: Session,
        projection: Projection | None,
        sources: Callable[[], Sources | None],
    ) -> None:
        self._session = session
        self._projection = projection
        self._sources = sources

    async def load_timeline_range(self, start: int, end: int) -> str:
        """Read the items of the timeline from position `start` to position `end`."""
        if not 1 <= start <= end:
            return "Error: positions begin at 1, and start must not be after end."
        last = min(end, start + MOST_ITEMS - 1)
        items = await in_store(self._session, lambda: self._items(start, last))
        messages = await in_thread(lambda: self._session.project(items, self._projection))
        lines = [compact_json(m.to_dict()) for m in messages]
        text = "\n".join(lines) or "(nothing is there)"
        return _bounded(text, f"load_timeline_range from {last + 1} on" if last < end else None)

    def _items(self, start: int, last: int) -> list[Item]:
        """Read a range, with the runs of which it has a part: a projection is shown whole ones."""
        read, id = self._session.store.read, self._session.id
        items = read(id, view="history", after=start - 1, before=last + 1)
        begun = [item.run for item in items if item.run is not None and item.run < start]
        if begun and start - min(begun) <= MOST_ITEMS:
            before = read(id, view="history", after=min(begun) - 1, before=start)
            runs = set(begun)
            items = [each for each in before if {each.position, each.run} & runs] + items
        runs = {item.position for item in items if item.kind == "run"}
        if runs:  # what a run did stands behind it, and is shown at its position
            behind = read(id, view="history", after=last, oldest=MOST_ITEMS)
            items += [item for item in behind if item.run in runs]
        return items

    async def load_source_range(self, name: str, start: int, end: int, snapshot: str) -> str:
        """Read the characters from `start` to `end` of a source, as a marker named them."""
        if not 0 <= start <= end:
            return "Error: start must be at least 0 and not after end."
        content = self._session.store.content
        whole = await in_store(
            self._session, lambda: content(self._session.id, snapshot, kind="source")
        )
        if whole is None:
            return f"Error: no snapshot {snapshot!r} of source {name!r} is kept."
        sources = self._sources()
        source = sources.by_name.get(name) if sources is not None else None
        opening, closing = block(source.tag) if source is not None and source.tag else ("", "")
        return f"{opening}{_bounded(whole[start:end], None)}{closing}"

    async def load_context_history(self, id: str, position: int) -> str:
        """Read the context entry `id` as it was at a position of the timeline."""
        entries = await in_store(self._session, lambda: self._session.context_history(id))
        found = [entry for entry in entries if entry.inserted_at <= position]
        if not found:
            return f"Error: there was no entry {id!r} at position {position}."
        read = self._session.store.read
        later = await in_store(
            self._session,
            lambda: read(self._session.id, after=found[-1].inserted_at, before=position + 1),
        )
        for item in later:
            if item.kind == "context_removed" and item.payload["id"] == id:
                return f"The entry {id!r} was removed at position {item.position}."
        return _bounded(await self._shown(found[-1]), None)

    async def _shown(self, entry: ContextEntry) -> str:
        """Return the content of an entry, as the projection shows it."""
        read, place, projection = self._session.store.read, entry.inserted_at, self._projection
        if projection is None:
            return entry.content
        (item,) = await in_store(
            self._session,
            lambda: read(self._session.id, after=place - 1, before=place + 1),
        )
        shown = await in_thread(lambda: projection(item))
        if shown is None:
            return entry.content
        return "\n".join(as_message(each).text for each in shown) or "(this entry is not shown)"


def _bounded(text: str, more: str | None) -> str:
    if len(text) > MOST_CHARACTERS:
        return f"{text[:MOST_CHARACTERS]}\n[cut after {MOST_CHARACTERS} of {len(text)} characters]"
    return f"{text}\n[more: {more}]" if more else text


def keep_originals(turn: ActiveTurn, loaded: Sequence[Loaded]) -> None:
    """Have the originals kept of the sources whose text may be cut, once for each content.

    They are durable with the answer to the window that names them.
    """
    contents = {
        each.snapshot: each.original
        for each in loaded
        if each.original is not None and _may_be_cut(each)
    }
    _keep(turn, contents)


def keep_input(
    turn: ActiveTurn, asked: Asked, sources: Sources, counter: Counter
) -> InputRest | None:
    """Keep what woke the entity if it may be cut; return the marker that says how to read it."""
    messages = asked.messages
    if sum(counter.message(message) for message in messages) <= sources.budget:
        return None
    contents = {digest(m.text, 8): m.text for m in messages if len(m.text) <= MOST_KEPT}
    _keep(turn, contents)
    kept = [(m.at, len(m.text), digest(m.text, 8)) for m in messages if len(m.text) <= MOST_KEPT]
    return InputRest(kept)


def _keep(turn: ActiveTurn, contents: Mapping[str, str]) -> None:
    if contents:
        known, _ = turn.receipts.originals
        turn.receipts.originals = ({**known, **contents}, turn.number - KEPT_TURNS)


def _may_be_cut(each: Loaded) -> bool:
    # A volatile text may be cut by sharing; of the others no character has more than four tokens.
    most = each.source.max
    return most is None or each.source.cache == "volatile" or each.size * 4 > most
