"""Reading what a window does not show: the five tools, and the originals they read.

Bounded in size; read from the durable record, so that what a marker names can be read later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from muntin.agent.tools import ToolLike, Tools, as_tools, tool_name
from muntin.composer import Composer
from muntin.core.checks import compact_json, digest
from muntin.core.counting.counter import Counter
from muntin.core.cutting import longest
from muntin.core.message import Message, as_message
from muntin.core.parts import Text
from muntin.core.tags.xml import block
from muntin.runtime.sources import MOST_KEPT
from muntin.runtime.store_thread import run_in_store
from muntin.threads import in_thread
from muntin.timeline.items import Item
from muntin.timeline.markers import InputRest
from muntin.timeline.project import Projection
from muntin.timeline.recall.excerpts import Recalled
from muntin.timeline.recall.stored import before_turn, recall

if TYPE_CHECKING:
    from muntin.runtime.sources import Loaded, Sources
    from muntin.runtime.turn import ActiveTurn
    from muntin.timeline.entries import ContextEntry
    from muntin.timeline.session import Session

MOST_CHARACTERS = 20_000
MOST_ITEMS = 200
SEARCH_TOKENS = 1_500
# Originals are kept for this many turns.
KEPT_TURNS = 100


async def offering(
    composer: Composer, tools: Sequence[ToolLike], recovery: Sequence[ToolLike], what: str
) -> tuple[Composer, Tools]:
    """Return the Composer of windows that offer an interface's tools and recovery tools, and all
    these tools. Of two tools with one name the interface's is offered."""
    offered = as_tools(tools, what)
    added = [tool for tool in recovery if tool_name(tool) not in offered.by_name]
    if added:
        offered = as_tools((*tools, *added), what)
    tool = offered.by_name.get("load_result")
    reader = getattr(getattr(tool, "fn", tool), "__self__", None)
    is_reader = isinstance(reader, Reader)
    composer, offered = await composer.offering(offered, what)
    composer = replace(composer, recovery=is_reader)
    if isinstance(reader, Reader):
        reader.most = composer.largest_result
    return composer, offered


class Reader:
    """Reads the durable originals of one session, as the projection in force shows them; a result
    in pieces of at most `most` tokens.

    `sources` returns the sources of the window. `turn` is the current turn: its items can be read
    even if they stay out of the history.
    """

    def __init__(
        self,
        session: Session,
        projection: Projection | None = None,
        sources: Callable[[], Sources | None] = lambda: None,
        turn: int | None = None,
    ) -> None:
        self.most: int | None = None
        self.reads_on = "load_timeline_range"  # the name of the tool that reads a range
        self._session = session
        self._projection = projection
        self._sources = sources
        self._turn = turn

    @property
    def tools(self) -> tuple[ToolLike, ...]:
        """The tools that read the parts that a window cut."""
        return (
            self.load_timeline_range,
            self.load_source_range,
            self.load_context_history,
            self.load_result,
        )

    async def load_timeline_range(self, start: int, end: int) -> str:
        """Read the items of the timeline from position `start` to position `end`."""
        if not 1 <= start <= end:
            return "Error: positions begin at 1, and start must not be after end."
        last = min(end, start + MOST_ITEMS - 1)
        store, id = self._session.store, self._session.id
        items = await run_in_store(self._session, lambda: self._items(start, last))
        newest = await run_in_store(self._session, lambda: store.read(id, newest=1))
        end = min(end, newest[-1].position) if newest else 0
        messages = await in_thread(lambda: self._session.project(items, self._projection))
        positions = range(start, last + 1)
        run_of = {item.position: item.run for item in items}
        # A run that a projection shows as a whole stands at its own position.
        touched = {run for position, run in run_of.items() if position in positions}
        placed = [(message.item[1], message) for message in messages if message.item is not None]
        lines = [
            compact_json({**message.to_dict(), "at": position})
            for position, message in placed
            if position in positions or run_of.get(position) in positions or position in touched
        ]
        text = "\n".join(lines) or "(nothing is there)"
        return _bounded(text, f"{self.reads_on} from {last + 1} on" if last < end else None)

    def _items(self, start: int, last: int) -> list[Item]:
        """Read a range, with all items of runs that it touches: a projection gets whole runs."""
        read, id = self._session.store.read, self._session.id
        items = read(id, view="history", after=start - 1, before=last + 1)
        begun = [item.run for item in items if item.run is not None and item.run < start]
        if begun and start - min(begun) <= MOST_ITEMS:
            before = read(id, view="history", after=min(begun) - 1, before=start)
            runs = set(begun)
            items = [
                candidate for candidate in before if {candidate.position, candidate.run} & runs
            ] + items
        runs = {item.position for item in items if item.kind == "run"}
        if runs:  # items of a run stand behind it, and are shown at its position
            behind = read(id, view="history", after=last, oldest=MOST_ITEMS)
            items += [item for item in behind if item.run in runs]
        return items

    async def load_result(self, call_id: str, start: int = 0, end: int | None = None) -> str:
        """Read the result of the tool call `call_id`, its characters from `start` to `end`."""
        if start < 0 or (end is not None and end < start):
            return "Error: start must be at least 0 and not after end."
        item = await run_in_store(self._session, lambda: self._result(call_id))
        if item is None:
            return f"Error: there is no result of a call {call_id!r}."
        projected = await in_thread(lambda: self._projected(item, call_id))
        if projected is None:
            return "Error: this result is not shown."
        text = _text_of(projected)
        if start >= len(text):
            return f"Error: the result of {call_id!r} has {len(text)} characters."
        return await in_thread(lambda: self._page(call_id, text, start, end))

    def _result(self, call_id: str) -> Item | None:
        """Find the newest result of a call; a page at a time, from the end."""
        read, id = self._session.store.read, self._session.id
        before: int | None = None
        while page := read(id, before=before, newest=MOST_ITEMS):
            for item in reversed(page):
                seen = item.visibility.history or item.turn == self._turn
                if seen and item.message is not None and item.message.tool_call_id == call_id:
                    return item
            before = page[0].position
        return None

    def _projected(self, item: Item, call_id: str) -> Message | None:
        """Return a result as the projection shows it, applied to the whole run of the result."""
        if not self._projection or item.run is None:
            messages = self._session.project([replace(item, run=None)], self._projection)
        else:
            read, turn = self._session.store.read, item.turn
            items = read(self._session.id, view="history", first_turn=turn, last_turn=turn)
            messages = self._session.project(items, self._projection)
        return next(
            (message for message in reversed(messages) if message.tool_call_id == call_id), None
        )

    def _page(self, call_id: str, text: str, start: int, end: int | None) -> str:
        """Return as much of a result as can be shown at once, and how to read the rest."""
        stop = len(text) if end is None else min(end, len(text))
        count = self._session.counter.text_once

        def with_heading(piece: str) -> str:
            last = start + len(piece)
            if not start and last == len(text):
                return piece
            more = f"; load_result({call_id!r}, {last}) reads on" if last < len(text) else ""
            return f"{piece}\n[characters {start} to {last} of {len(text)}{more}]"

        piece = text[start : min(stop, start + MOST_CHARACTERS)]
        most, size = self.most, count(with_heading(piece))
        if most is not None and size > most:
            cut = longest(
                piece, size, most, lambda inner_text: count(with_heading(inner_text)), "head"
            )
            piece = cut[0] if cut is not None else piece[:1]
        return with_heading(piece)

    async def search_history(self, query: str) -> str:
        """Search what was said before. Each line begins with its position, from which
        load_timeline_range reads more."""
        most = min(SEARCH_TOKENS, self.most or SEARCH_TOKENS)

        def search() -> Recalled:
            scope = before_turn(self._session, self._turn or 0, self._projection or None)
            return recall(self._session, query, most, scope=scope)

        answer = await run_in_store(self._session, search)
        if answer.trouble is not None:
            return f"Error: {answer.trouble}"
        return answer.text or "(nothing was found)"

    async def load_source_range(self, name: str, start: int, end: int, snapshot: str) -> str:
        """Read the characters from `start` to `end` of a source, as a marker named them."""
        if not 0 <= start <= end:
            return "Error: start must be at least 0 and not after end."
        content = self._session.store.content
        whole = await run_in_store(
            self._session, lambda: content(self._session.id, "source", snapshot)
        )
        if whole is None:
            return f"Error: no snapshot {snapshot!r} of source {name!r} is kept."
        sources = self._sources()
        source = sources.by_name.get(name) if sources is not None else None
        opening, closing = block(source.tag) if source is not None and source.tag else ("", "")
        return f"{opening}{_bounded(whole[start:end], None)}{closing}"

    async def load_context_history(self, id: str, position: int) -> str:
        """Read the context entry `id` as it was at a position of the timeline."""
        entries = await run_in_store(self._session, lambda: self._session.context_history(id))
        visible_entries = [entry for entry in entries if entry.inserted_at <= position]
        if not visible_entries:
            return f"Error: there was no entry {id!r} at position {position}."
        read = self._session.store.read
        later = await run_in_store(
            self._session,
            lambda: read(
                self._session.id, after=visible_entries[-1].inserted_at, before=position + 1
            ),
        )
        for item in later:
            if item.kind == "context_removed" and item.payload["id"] == id:
                return f"The entry {id!r} was removed at position {item.position}."
        return _bounded(await self._projected_content(visible_entries[-1]), None)

    async def _projected_content(self, entry: ContextEntry) -> str:
        """Return the content of an entry, as the projection shows it."""
        read, place, projection = self._session.store.read, entry.inserted_at, self._projection
        if projection is None:
            return entry.content
        (item,) = await run_in_store(
            self._session,
            lambda: read(self._session.id, after=place - 1, before=place + 1),
        )
        messages = await in_thread(lambda: projection(item))
        if messages is None:
            return entry.content
        return (
            "\n".join(as_message(message).text for message in messages)
            or "(this entry is not shown)"
        )


def _text_of(message: Message) -> str:
    """Return the part of a result that can be read as text."""
    parts = message.content if isinstance(message.content, tuple) else ()
    files = len(message.attachments) + sum(not isinstance(part, Text) for part in parts)
    files_note = f"[and {files} files, which cannot be read as text]" if files else ""
    return "\n".join(part for part in (message.text, files_note) if part) or "(it is empty)"


def _bounded(text: str, more: str | None) -> str:
    if len(text) > MOST_CHARACTERS:
        return f"{text[:MOST_CHARACTERS]}\n[cut after {MOST_CHARACTERS} of {len(text)} characters]"
    return f"{text}\n[more: {more}]" if more else text


def keep_originals(turn: ActiveTurn, loaded: Sequence[Loaded]) -> None:
    """Keep the originals of the sources whose text may be cut, once for each content.

    They are durable with the answer to the window that names them.
    """
    contents: dict[str, str] = {}
    for source in loaded:
        # A volatile text may be cut by sharing; of other texts no character has more than four
        # tokens.
        most = source.source.max
        may_be_cut = most is None or source.source.cache == "volatile" or source.size * 4 > most
        if source.original is not None and may_be_cut:
            contents[source.snapshot] = source.original
    _keep(turn, contents)


def keep_input(
    turn: ActiveTurn, messages: Sequence[Message], sources: Sources, counter: Counter
) -> InputRest | None:
    """Keep the message that woke the entity, if it may be cut; return its marker."""
    if sum([counter.message(message) for message in messages]) <= sources.budget:
        return None
    contents = {digest(m.text, 8): m.text for m in messages if len(m.text) <= MOST_KEPT}
    _keep(turn, contents)
    short_inputs = [
        (m.at, len(m.text), digest(m.text, 8)) for m in messages if len(m.text) <= MOST_KEPT
    ]
    return InputRest(short_inputs)


def _keep(turn: ActiveTurn, contents: Mapping[str, str]) -> None:
    if contents:
        originals, _ = turn.receipts.originals
        turn.receipts.originals = ({**originals, **contents}, turn.number - KEPT_TURNS)
