"""The past as messages, read when it is looked at.

A timeline may be long, and a window short: whoever only needs the newest asks for `newest`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

from muntin.core.message import Message
from muntin.timeline.items import Item
from muntin.timeline.project import Projection
from muntin.timeline.session import Session

# A run of more items is not read whole for the sake of its beginning.
_LONG_RUN = 2_000


class TimelineMessages(Sequence[Message]):
    """The messages of a session up to a turn, like a list."""

    def __init__(
        self,
        session: Session,
        turn: int,
        since: int | None = None,
        projection: Projection | None = None,
        *,
        entries: bool = True,
    ) -> None:
        self._session = session
        self._turn = turn
        self._since = since or 0
        self._projection = projection
        self._entries = entries
        self._read: list[Message] | None = None

    def __repr__(self) -> str:
        return f"<messages of {self._session.id!r} up to turn {self._turn}>"

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        return self._all()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Iterable[Message]) -> list[Message]:
        return [*self._all(), *other]

    def __radd__(self, other: Iterable[Message]) -> list[Message]:
        return [*other, *self._all()]

    def _all(self) -> list[Message]:
        if self._read is None:
            self._read = self._messages(self._since)
        return self._read

    def newest(self, tokens: int) -> Sequence[Message]:
        """Return at least the newest messages of so many tokens, if there are as many."""
        if self._read is not None:
            return self._read
        session = self._session
        # What this turn and later ones weigh is not the past's.
        items = session.store.read(session.id, view="history", first_turn=self._turn)
        present = sum(session._count(item, ()) for item in items)
        weight = tokens + present + 1
        while True:
            oldest = session.store.reach(session.id, weight)
            start = oldest.position if oldest else 1
            if oldest and oldest.run is not None and start - oldest.run < _LONG_RUN:
                start = oldest.run
            after = max(self._since, start - 1)
            messages = self._messages(after, partial=True)
            if after <= self._since or self._weigh(messages) > tokens:
                return messages
            weight *= 2  # what cannot be shown weighed in, or another tokenizer counted

    def _weigh(self, messages: Sequence[Message]) -> int:
        """Count what of the messages can be shown: not a result whose call lies further back."""
        called: set[str] = set()
        total = 0
        for message in messages:
            called.update(call.id for call in message.tool_calls)
            if message.tool_call_id is None or message.tool_call_id in called:
                total += self._session.counter.message(message)
        return total

    @property
    def first(self) -> int:
        """The first position that may be shown."""
        return self._since + 1

    def _messages(self, after: int, *, partial: bool = False) -> list[Message]:
        session = self._session
        items: Sequence[Item] = session.store.read(
            session.id, view="history", after=after, last_turn=self._turn
        )
        since = self._since
        if partial and self._projection is not None and items:
            # A projection is shown whole runs: read the beginning of one that was cut.
            runs = [item.run for item in items if item.run is not None and item.run <= after]
            if runs:
                start = max(since, min(runs) - 1)
                items = session.store.read(
                    session.id, view="history", after=start, last_turn=self._turn
                )
        return session._shown(items, self._projection, entries=self._entries, since=since)
