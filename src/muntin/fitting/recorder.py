"""The Recorder: windows that were made elsewhere, in a session of a store.

What is recorded is what the inspector shows: the messages, in turns, and the report of each window
with what it was made of. A request is recorded when it is sent, with what it leaves to the next
one; its answer and its report when the answer has come.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from threading import RLock
from typing import Any

from muntin.core.checks import check_count, compact_json, shown
from muntin.core.message import Message
from muntin.core.planning.window import Window
from muntin.errors import InvalidType
from muntin.fitting.frontiers import Talking, first_new
from muntin.timeline.items import Beside, Item
from muntin.timeline.receipts import AGE, BYTES, Bounds, plan_of, report_of, size_of
from muntin.timeline.session import Session
from muntin.timeline.store import Store, open_store

# Under these names a session keeps what the newest request left to the next, and the number of the
# newest report: [turn, step].
LINE, STEPS = "fit", "fit-steps"
# In the meta of an answer: the step of the turn that it is the answer of.
STEP = "step"


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that is recorded: its window, and the newest item of its session."""

    session: Session
    window: Window
    newest: Item


class Recorder:
    """Records windows into the sessions of a store, from any thread; its methods may block.

    `store` is a store or its address. `keep` is how many reports of a session are kept; those
    of all sessions have at most about `report_bytes` together and are no older than `report_age`.
    """

    def __init__(
        self,
        store: Store | str,
        *,
        keep: int = 1_000,
        report_bytes: int | None = BYTES,
        report_age: timedelta | None = AGE,
    ) -> None:
        if isinstance(store, str):
            store = open_store(store, lazy=True)
        if not hasattr(store, "append"):
            raise InvalidType(f"store must be a store or its address, not {shown(store)}")
        self.store: Store = store
        self._keep = check_count(keep, "keep")
        self._bounds = Bounds(report_bytes, report_age)
        self._locks = [RLock() for _ in range(64)]

    def frontier(self, session: str) -> dict[str, Any] | None:
        """Return the frontier that the newest window of a session left, or None."""
        found = self._line(session, LINE)
        return found if isinstance(found, dict) else None

    def new_in(self, session: str, talk: Talking) -> list[Message]:
        """Return the messages of a list that a session does not have yet.

        An answer that was recorded when it came is not new when it comes back.
        """
        told = self.frontier(session)
        new = list(talk.past[first_new(told, talk) :])
        newest = self._newest(session) if told else None
        if newest is not None and STEP in newest.meta:
            while new and new[0].role == "assistant":
                new.pop(0)
        return new

    def alone(self, session: str) -> RLock:
        """Return what to hold from `new_in` to `sent`: two at once would append the same."""
        return self._locks[hash(session) % len(self._locks)]

    def sent(
        self,
        session: str,
        messages: Sequence[Message],
        window: Window,
        frontier: Mapping[str, Any] | None = None,
    ) -> Sent | None:
        """Append what is new in a request, with what its window leaves; None if nothing was said.

        It is one transaction: or the same messages would be appended once more.
        """
        counter = plan_of(window).declared.counter
        held = Session(session, store=self.store, counter=counter, mend=False)
        beside = Beside(frontiers={LINE: compact_json(dict(frontier or {}))})
        with self.alone(session):
            if messages:
                return Sent(held, window, held.append(*messages, beside=beside)[-1])
            newest = self._newest(session)
            if newest is None:
                return None
            self.store.put(session, beside)
        return Sent(held, window, newest)

    def answered(
        self,
        sent: Sent,
        reply: Message | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep the report of a window, and the answer if it has come.

        `meta` is what is known of the answer. An answer behind which the session has gone on
        already is not appended: the list that went on holds it, or its reader never saw it.
        """
        session, turn = sent.session, sent.newest.turn
        with self.alone(session.id):
            told = self._line(session.id, STEPS)
            step = told[1] + 1 if isinstance(told, list) and told[:1] == [turn] else 1
            kept = report_of(sent.window, turn, step, self._keep)
            beside = replace(kept, turn=turn, frontiers={STEPS: compact_json([turn, step])})
            newest = None if reply is None else self._newest(session.id)
            if reply is not None and newest is not None and newest.position == sent.newest.position:
                known = {**(meta or {}), STEP: step}
                draft = session.draft(reply, turn=turn, meta=known, ends="completed")
                self.store.append(session.id, [draft], beside=beside)
            else:
                self.store.put(session.id, beside)
        self._bounds.keep_to(session, turn, step, size_of(kept))

    def record(
        self,
        session: str,
        messages: Sequence[Message],
        window: Window,
        frontier: Mapping[str, Any] | None = None,
        *,
        reply: Message | None = None,
    ) -> None:
        """Do what `sent` and `answered` do, for a window whose answer is there or never comes.

        `messages` are those that the session does not have yet; `reply` is the answer, if it is
        known. `frontier` is what `frontier()` returns from now on.
        """
        if not messages and reply is not None:
            messages, reply = [reply], None
        sent = self.sent(session, messages, window, frontier)
        if sent is not None:
            self.answered(sent, reply)

    def _newest(self, session: str) -> Item | None:
        found = self.store.read(session, newest=1)
        return found[-1] if found else None

    def _line(self, session: str, line: str) -> Any:
        text = self.store.frontier(session, line)
        try:
            return None if text is None else json.loads(text)
        except ValueError:
            return None
