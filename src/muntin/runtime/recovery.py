"""Reading what a window does not show: the three tools, and the originals they read.

Bounded in size; from the durable record, so that what a marker names can be read later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from muntin.agent.tools import ToolLike
from muntin.core.parts import compact_json
from muntin.runtime.in_store import in_store

if TYPE_CHECKING:
    from muntin.runtime.active_turn import ActiveTurn
    from muntin.runtime.sources import Loaded
    from muntin.timeline.session import Session

MOST_CHARACTERS = 20_000
MOST_ITEMS = 200
# Originals are kept for so many turns; larger ones are not.
KEPT_TURNS = 100
MOST_KEPT = 5_000_000


def recovery_tools(session: Session) -> tuple[ToolLike, ...]:
    """Return the tools that read what was cut."""
    reader = _Reader(session)
    return (
        reader.load_timeline_range,
        reader.load_source_range,
        reader.load_context_history,
    )


class _Reader:
    """Reads the durable originals of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def load_timeline_range(self, start: int, end: int) -> str:
        """Read the items of the timeline from position `start` to position `end`."""
        if not 1 <= start <= end:
            return "Error: positions begin at 1, and start must not be after end."
        last = min(end, start + MOST_ITEMS - 1)
        read = self._session.store.read
        items = await in_store(
            self._session,
            lambda: read(self._session.id, view="history", after=start - 1, before=last + 1),
        )
        runs = {item.position for item in items if item.kind == "run"}
        if runs:  # what a run did stands behind it, and is shown at its position
            behind = await in_store(
                self._session,
                lambda: read(self._session.id, view="history", after=last, oldest=MOST_ITEMS),
            )
            items += [item for item in behind if item.run in runs]
        messages = self._session.project(items)
        lines = [compact_json(m.to_dict()) for m in messages]
        text = "\n".join(lines) or "(nothing is there)"
        return _bounded(text, f"load_timeline_range from {last + 1} on" if last < end else None)

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
        return _bounded(whole[start:end], None)

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
        return _bounded(found[-1].content, None)


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
    if contents:
        turn.receipts.originals = (contents, turn.number - KEPT_TURNS)


def _may_be_cut(each: Loaded) -> bool:
    # A volatile text may be cut by sharing; of the others no character has more than four tokens.
    most = each.source.max
    if each.size > MOST_KEPT:
        return False
    return most is None or each.source.cache == "volatile" or each.size * 4 > most
