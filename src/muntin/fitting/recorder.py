"""The Recorder: windows that were made elsewhere, recorded in a session of a store.

It records what the inspector shows: the messages, in turns, and the report of each window with its
plan. A request is recorded when it is sent, with its frontier; its answer and its report when the
answer has come.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from threading import Lock
from typing import Any, TypeVar

from muntin.core.checks import check_count, compact_json
from muntin.core.message import Message
from muntin.core.window import Window
from muntin.errors import Overtaken
from muntin.fitting.frontiers import Talking, first_new
from muntin.timeline.items import Item, NoteKey, SideWrites
from muntin.timeline.receipts import AGE, BYTES, Bounds, plan_of, report_of, size_of
from muntin.timeline.session import Session
from muntin.timeline.store import Store, as_store

T = TypeVar("T")
# The notes of a session: the frontier of its newest request, and the number of its writes with the
# newest step of each of the newest turns: [7, {"3": 1}].
FRONTIER: NoteKey = ("recorder_frontier", "")
STEPS: NoteKey = ("recorder_steps", "")
# At most this many turns may wait for their answers at once.
_TURNS = 16
# How often other processes may come first before a record is given up; the seconds between tries,
# at first and at most.
_TRIES, _PAUSES = 100, (0.001, 0.1)
# In the meta of an answer: the step of the turn that it answers.
STEP = "step"


@dataclass(frozen=True, slots=True)
class Sent:
    """A recorded request: its window, and the newest item of its session."""

    session: Session
    window: Window
    newest: Item


class Recorder:
    """Records windows into the sessions of a store, from any thread; its methods may block.

    `store` is a store or its address. `keep` is how many reports of a session are kept. The reports
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
        self.store = as_store(store)
        self._bounds = Bounds(check_count(keep, "keep"), report_bytes, report_age)
        # The store decides between processes; locks keep threads of this process apart.
        self._locks = [Lock() for _ in range(64)]

    def frontier(self, session: str) -> dict[str, Any] | None:
        """Return the frontier of the newest window of a session, or None."""
        found = _json(self.store.content(session, *FRONTIER))
        return found if isinstance(found, dict) else None

    def new_in(self, session: str, talk: Talking) -> list[Message]:
        """Return the messages of a list that a session does not have yet.

        An answer that is recorded already is not new when a list repeats it.
        """
        told = self.frontier(session)
        new = list(talk.past[first_new(told, talk) :])
        newest = self._newest(session) if told else None
        if newest is not None and STEP in newest.meta:
            while new and new[0].role == "assistant":
                new.pop(0)
        return new

    def sent(
        self,
        session: str,
        messages: Sequence[Message],
        window: Window,
        frontier: Mapping[str, Any] | None = None,
    ) -> Sent | None:
        """Append the new messages of a request, with the frontier of its window; None if there is
        no message at all.

        It is one transaction; otherwise the same messages could be appended twice.
        """
        return self._sent(session, lambda: messages, window, frontier)

    def sent_of(
        self,
        session: str,
        talk: Talking,
        window: Window,
        frontier: Mapping[str, Any] | None = None,
    ) -> Sent | None:
        """Do the same as `sent` with the messages of a list that the session does not have yet.

        Processes that record the same list at once append each message once.
        """
        return self._sent(session, lambda: self.new_in(session, talk), window, frontier)

    def _sent(
        self,
        session: str,
        new: Callable[[], Sequence[Message]],
        window: Window,
        frontier: Mapping[str, Any] | None,
    ) -> Sent | None:
        counter = plan_of(window).declared.counter
        held = Session(session, store=self.store, counter=counter, mend=False)
        left = compact_json(dict(frontier or {}))

        def write(steps: _Steps) -> Sent | None:
            beside = steps.beside(SideWrites(notes={FRONTIER: left}))
            messages = new()
            if messages:
                return Sent(held, window, held.append(*messages, beside=beside)[-1])
            newest = self._newest(session)
            if newest is not None:
                self.store.put(session, beside)
            return None if newest is None else Sent(held, window, newest)

        return self._agreed(session, write)

    def answered(
        self,
        sent: Sent,
        reply: Message | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Store the report of a window, and the answer if it has come.

        `meta` are facts about the answer. If the session has gone on already, the answer is not
        appended: the list that went on has it, or its reader never saw it.
        """
        session, turn = sent.session, sent.newest.turn

        def write(steps: _Steps) -> SideWrites:
            step = steps.of.get(turn, 0) + 1
            kept = report_of(sent.window, turn, step, self._bounds.keep)
            beside = steps.beside(replace(kept, turn=turn), {turn: step})
            newest = None if reply is None else self._newest(session.id)
            if reply is not None and newest is not None and newest.position == sent.newest.position:
                known = {**(meta or {}), STEP: step}
                draft = session.draft(reply, turn=turn, meta=known, ends="completed")
                self.store.append(session.id, [draft], beside=beside)
            else:
                self.store.put(session.id, beside)
            return beside

        kept = self._agreed(session.id, write)
        step = 0 if kept.record is None else kept.record.step
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
        """Do the same as `sent` and `answered`, for a window whose answer is there or never comes.

        `messages` are the messages that the session does not have yet; `reply` is the answer, if it
        is known. `frontier` is what `frontier()` returns from now on.
        """
        if not messages and reply is not None:
            messages, reply = [reply], None
        sent = self.sent(session, messages, window, frontier)
        if sent is not None:
            self.answered(sent, reply)

    def _agreed(self, session: str, write: Callable[[_Steps], T]) -> T:
        """Read the state and write; try again if another process has written in between."""
        with self._locks[hash(session) % len(self._locks)]:
            for attempt in range(_TRIES):
                # Read first, so that a later write of another process is noticed.
                steps = _Steps.read(self.store.content(session, *STEPS))
                try:
                    return write(steps)
                except Overtaken as error:
                    overtaken = error
                    time.sleep(random.uniform(0.5, 1) * min(_PAUSES[1], _PAUSES[0] * 2**attempt))
        raise overtaken

    def _newest(self, session: str) -> Item | None:
        found = self.store.read(session, newest=1)
        return found[-1] if found else None


@dataclass(frozen=True, slots=True)
class _Steps:
    """How often a session was written to, and the newest step of its newest turns."""

    text: str | None
    count: int
    of: Mapping[int, int]

    @classmethod
    def read(cls, text: str | None) -> _Steps:
        told = _json(text)
        if not isinstance(told, list) or len(told) != 2:
            return cls(text, 0, {})
        count, steps = told
        if not isinstance(steps, dict):  # written by an older version: a turn, and its step
            return cls(text, 0, {count: steps})
        return cls(text, count, {int(turn): step for turn, step in steps.items()})

    def beside(self, beside: SideWrites, new: Mapping[int, int] | None = None) -> SideWrites:
        """Return the data to store with one more write; refused if another write came between."""
        steps = sorted({**self.of, **(new or {})}.items())[-_TURNS:]
        text = compact_json([self.count + 1, {str(turn): step for turn, step in steps}])
        return replace(beside, notes={**beside.notes, STEPS: text}, seen={STEPS: self.text})


def _json(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return None
