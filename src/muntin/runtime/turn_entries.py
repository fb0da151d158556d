"""The context entries of a session as a turn sees them: the store's, with the turn's own writes.

One object for each turn, for all code that writes or reads entries.
"""

from __future__ import annotations

from muntin.timeline.entries import ContextEntry
from muntin.timeline.past import look
from muntin.timeline.session import Session


class TurnEntries:
    """The live entries by id, read when they are needed."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._read: dict[str, ContextEntry] | None = None
        # The entries that this turn wrote, perhaps not durable yet; None: removed.
        self._written: dict[str, ContextEntry | None] = {}

    def load(self) -> None:
        """Read the entries ahead, for code on the event loop; runs in a thread."""
        self._read = {entry.id: entry for entry in self._session.list_context()}

    def put(self, id: str, entry: ContextEntry | None) -> None:
        """Note that this turn inserted an entry, or with None, that it removed one."""
        self._written.pop(id, None)  # the newest stands last
        self._written[id] = entry

    def note(self, entry: ContextEntry) -> None:
        """Note the real position of an entry that was inserted before."""
        if self._written.get(entry.id) is not None:
            self._written[entry.id] = entry

    def all(self) -> list[ContextEntry]:
        """Return the live entries in the order in which they were inserted."""
        if self._read is None:
            look(self._session, self.load)
        found = dict(self._read or {})
        for id, entry in self._written.items():
            found.pop(id, None)
            if entry is not None:
                found[id] = entry
        return [*found.values()]
