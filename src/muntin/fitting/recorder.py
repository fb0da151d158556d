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
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any, TypeVar

from muntin.core.checks import check_count, compact_json
from muntin.core.message import Message
from muntin.core.window import Window
from muntin.errors import InvalidInput, Overtaken
from muntin.fitting.frontiers import ConversationLike, RequestTrace, first_new
from muntin.fitting.work_queue import WorkQueue
from muntin.timeline.items import Item, NoteKey, SideWrites
from muntin.timeline.receipts import AGE, BYTES, Bounds, plan_of, report_of, size_of
from muntin.timeline.session import Session
from muntin.timeline.store import Store, as_store

T = TypeVar("T")
# The notes of a session: the frontier of its newest request, and the state of its recorder.
FRONTIER: NoteKey = ("recorder_frontier", "")
STEPS: NoteKey = ("recorder_steps", "")
# At most this many turns may wait for their answers at once.
_TURNS = 16
# So many digests of beginnings are kept: a list that comes late is known by them.
_RECORDED = 64
# How often other processes may come first before a record is given up; the seconds between tries,
# at first and at most.
_TRIES, _PAUSES = 100, (0.001, 0.1)
# In the meta of an answer: the step of the turn that it answers.
STEP = "step"
# How many seconds a write of a recorder waits for other writers, or for a server.
RECORD_SECONDS = 5.0
# How many writes and how many reads may wait for the store.
_WRITES, _READS = 256, 64
# The text of a note `recorder_past` whose request has no answer yet is this and its owner.
WAITING = "@"
# And the text of a request that came before a session began, this and the digest of its answer.
BEFORE = "="
_NO_PASTS: Mapping[str, str] = MappingProxyType({})


class ListDiverged(Exception):
    """A list does not go on from what a session has."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A recorded request: its window, the newest item of its session, and its past; `is_late` if
    the session had gone on before it was recorded."""

    session: Session
    window: Window
    newest: Item
    past: str = ""
    is_late: bool = False


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
        self.store = as_store(store, RECORD_SECONDS)
        self._bounds = Bounds(check_count(keep, "keep"), report_bytes, report_age)
        # Callers that must not wait for the store have it written to and read from here.
        self.writes, self.reads = WorkQueue(_WRITES), WorkQueue(_READS)

    def frontier(self, session: str) -> dict[str, Any] | None:
        """Return the frontier of the newest window of a session, or None."""
        data = _json(self.store.content(session, *FRONTIER))
        return data if isinstance(data, dict) else None

    def new_in(self, session: str, talk: ConversationLike) -> list[Message]:
        """Return the messages of a list that a session does not have yet.

        An answer that is recorded already is not new when a list repeats it.
        """
        state = _SessionState.read(self.store.content(session, *STEPS))
        return self._new_in(session, state, talk)[0]

    def _new_in(
        self, session: str, state: _SessionState, talk: ConversationLike
    ) -> tuple[list[Message], bool]:
        """Return the new messages of a list, and whether it goes on from what the session has."""
        trace = _read_trace(self.frontier(session))
        first, goes_on = first_new(trace, state.recorded, talk)
        new = list(talk.past[first:])
        newest = self._newest(session) if new and (trace or state.recorded) else None
        if newest is not None and STEP in newest.meta:
            while new and new[0].role == "assistant":
                new.pop(0)
        return new, goes_on

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
        writes = SideWrites(notes={FRONTIER: compact_json(dict(frontier or {}))})
        return self._agreed(
            session, lambda state: self._append(session, messages, window, state.beside(writes))
        )

    def sent_of(
        self,
        session: str,
        talk: ConversationLike,
        window: Window,
        frontier: Mapping[str, Any] | None = None,
        *,
        past: str = "",
        owner: str = "",
        alone: bool = False,
        before: Mapping[str, str] = _NO_PASTS,
        check: Callable[[Callable[[str], list[Any]]], None] | None = None,
    ) -> Sent | None:
        """Do the same as `sent` with the messages of a list that the session does not have yet.

        Processes that record the same list at once append each message once, and a list that comes
        late adds nothing. `past` is the name by which the session is found from now on; `owner`
        waits for the answer. With `alone`, a list that does not go on from what the session has is
        refused (`ListDiverged`).

        A session that begins with this list is found by the requests `before` too, of which one may
        still be recorded: by their names, with their answers. `SideWrites` says what `check` does.
        """
        frontier_text = compact_json(dict(frontier or {}))

        def write(state: _SessionState) -> Sent | None:
            messages, goes_on = self._new_in(session, state, talk)
            if alone and not goes_on:
                raise ListDiverged(session)
            if not messages and state.is_behind(talk.pasts):
                late = self._append(session, (), window, None)
                return None if late is None else replace(late, is_late=True)
            notes: dict[NoteKey, str | None] = {FRONTIER: frontier_text}
            if state.past:
                notes["recorder_past", state.past] = None
            if past:
                notes["recorder_past", past] = f"{WAITING}{owner}"
            if state.text is None:
                notes |= {("recorder_past", at): f"{BEFORE}{text}" for at, text in before.items()}
            newer = state.after(talk.pasts, past)
            writes = SideWrites(notes=notes, check=check if state.text is None else None)
            sent = self._append(session, messages, window, newer.beside(writes))
            return None if sent is None else replace(sent, past=past)

        return self._agreed(session, write)

    def _append(
        self,
        session: str,
        messages: Sequence[Message],
        window: Window,
        beside: SideWrites | None,
    ) -> Sent | None:
        """Append messages, and write what belongs to them, in one transaction."""
        counter = plan_of(window).declared.counter
        held = Session(session, store=self.store, counter=counter, mend=False)
        if messages:
            return Sent(held, window, held.append(*messages, beside=beside)[-1])
        newest = self._newest(session)
        if newest is None:
            return None
        if beside is not None:
            self.store.put(session, beside)
        return Sent(held, window, newest)

    def answered(
        self,
        sent: Sent,
        reply: Message | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        answer: str = "",
    ) -> None:
        """Store the report of a window, and the answer if it has come.

        `meta` are facts about the answer, `answer` is its digest. If the session has gone on
        already, the answer is not appended: the list that went on has it, or its reader never saw
        it.
        """
        session, turn = sent.session, sent.newest.turn

        def write(state: _SessionState) -> SideWrites:
            step = state.of.get(turn, 0) + 1
            report = report_of(sent.window, turn, step, self._bounds.keep)
            is_newest = not sent.is_late and self._is_newest(sent)
            if is_newest and sent.past and sent.past == state.past:
                report = replace(report, notes={("recorder_past", sent.past): answer})
            beside = state.beside(replace(report, turn=turn), {turn: step})
            if reply is not None and is_newest:
                meta_with_step = {**(meta or {}), STEP: step}
                draft = session.draft(reply, turn=turn, meta=meta_with_step, ends="completed")
                self.store.append(session.id, [draft], beside=beside)
            else:
                self.store.put(session.id, beside)
            return beside

        writes = self._agreed(session.id, write)
        step = 0 if writes.record is None else writes.record.step
        self._bounds.keep_to(session, turn, step, size_of(writes))

    def refused(self, sent: Sent) -> None:
        """Note that a request gets no answer: the same list may come again."""

        def write(state: _SessionState) -> None:
            if sent.past and sent.past == state.past and self._is_newest(sent):
                free = SideWrites(notes={("recorder_past", sent.past): ""})
                self.store.put(sent.session.id, state.beside(free))

        self._agreed(sent.session.id, write)

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

    def _agreed(self, session: str, write: Callable[[_SessionState], T]) -> T:
        """Read the state and write; try again if another writer came in between."""
        for attempt in range(_TRIES):
            # Read first, so that a later write is noticed.
            state = _SessionState.read(self.store.content(session, *STEPS))
            try:
                return write(state)
            except Overtaken as error:
                overtaken = error
                time.sleep(random.uniform(0.5, 1) * min(_PAUSES[1], _PAUSES[0] * 2**attempt))
        raise overtaken

    def _newest(self, session: str) -> Item | None:
        items = self.store.read(session, newest=1)
        return items[-1] if items else None

    def _is_newest(self, sent: Sent) -> bool:
        newest = self._newest(sent.session.id)
        return newest is not None and newest.position == sent.newest.position


@dataclass(frozen=True, slots=True)
class _SessionState:
    """What a recorder knows of a session: how often it was written to, the newest step of its
    newest turns, the digests of recorded beginnings (the newest request's last), and the name by
    which it is found. `text` is the note as it was read: `[7, {"3": 1}, ["…"], "…"]`."""

    text: str | None
    count: int = 0
    of: Mapping[int, int] = field(default_factory=dict)
    recorded: Sequence[str] = ()
    past: str = ""

    @classmethod
    def read(cls, text: str | None) -> _SessionState:
        match _json(text):
            case [int(count), dict(steps), list(recorded), str(past)]:
                return cls(text, count, _steps(steps), recorded, past)
            case [int(count), dict(steps)]:  # written by 0.2
                return cls(text, count, _steps(steps))
            case [int(turn), int(step)]:  # and before
                return cls(text, 0, {turn: step})
        return cls(text)

    def is_behind(self, pasts: Sequence[str]) -> bool:
        """Say whether the newest request has all of a list, and more."""
        return pasts[-1] in self.recorded[:-1]

    def after(self, pasts: Sequence[str], past: str) -> _SessionState:
        """Return the state after a request with these beginnings."""
        newest = pasts[1:][-_RECORDED:]
        older = [digest for digest in self.recorded if digest not in newest]
        return replace(self, recorded=[*older, *newest][-_RECORDED:], past=past)

    def beside(self, beside: SideWrites, new: Mapping[int, int] | None = None) -> SideWrites:
        """Return the data to store with one more write; refused if another write came between."""
        steps = sorted({**self.of, **(new or {})}.items())[-_TURNS:]
        values = (self.count + 1, {str(turn): step for turn, step in steps})
        text = compact_json([*values, list(self.recorded), self.past])
        return replace(beside, notes={**beside.notes, STEPS: text}, seen={STEPS: self.text})


def _steps(steps: Mapping[str, int]) -> dict[int, int]:
    return {int(turn): step for turn, step in steps.items()}


def _read_trace(frontier: Mapping[str, Any] | None) -> RequestTrace | None:
    with suppress(InvalidInput):  # of another version, or not made here
        return RequestTrace.from_dict(frontier) if frontier else None
    return None


def _json(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return None
