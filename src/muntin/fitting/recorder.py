"""The Recorder: windows that were made elsewhere, in a session of a store.

What is recorded is what the inspector shows: the messages, in turns, and the report of each window
with what it was made of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from muntin.core.checks import check_count, compact_json, shown
from muntin.core.message import Message
from muntin.core.planning.window import Window
from muntin.errors import InvalidType
from muntin.timeline.items import Beside
from muntin.timeline.receipts import report_of
from muntin.timeline.session import Session
from muntin.timeline.store import Store, open_store

# Under this name a session keeps what the newest request left to the next.
LINE = "fit"


class Recorder:
    """Records windows into the sessions of a store, from any thread.

    `store` is a store or its address. `keep` is how many reports of a session are kept.
    """

    def __init__(self, store: Store | str, *, keep: int = 1_000) -> None:
        if isinstance(store, str):
            store = open_store(store, lazy=True)
        if not hasattr(store, "append"):
            raise InvalidType(f"store must be a store or its address, not {shown(store)}")
        self.store: Store = store
        self._keep = check_count(keep, "keep")

    def frontier(self, session: str) -> dict[str, Any] | None:
        """Return the frontier that the newest window of a session left, or None."""
        return self._line(session).get("frontier")

    def record(
        self,
        session: str,
        messages: Sequence[Message],
        window: Window,
        frontier: Mapping[str, Any] | None = None,
        *,
        reply: Message | None = None,
    ) -> None:
        """Append what is new in a conversation, and keep the report of the window that was made.

        `messages` are those that the session does not have yet; `reply` is the answer, if it is
        known. `frontier` is what `frontier()` returns from now on.
        """
        line = self._line(session)
        new = [*messages, *([] if reply is None else [reply])]
        turn = line.get("turn", 0)
        left = {**line, "frontier": dict(frontier or {})}
        if new:
            # One transaction: or the same messages would be appended once more.
            beside = Beside(frontiers={LINE: compact_json(left)})
            items = Session(session, store=self.store).append(*new, beside=beside)
            turn = items[len(messages) - 1].turn if messages else items[0].turn
        elif not line:
            return  # nothing was ever said
        step = line.get("step", 0) + 1 if turn == line.get("turn") else 1
        kept = report_of(window, turn, step, self._keep)
        told = compact_json({**left, "turn": turn, "step": step})
        self.store.put(session, replace(kept, turn=turn, frontiers={LINE: told}))

    def _line(self, session: str) -> dict[str, Any]:
        text = self.store.frontier(session, LINE)
        try:
            found = json.loads(text) if text is not None else {}
        except ValueError:
            found = {}
        return found if isinstance(found, dict) else {}
