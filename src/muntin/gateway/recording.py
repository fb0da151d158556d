"""Keeping what passes: messages as timelines, receipts, frontiers.

A request is kept when it is sent, with what it leaves to the next one; its answer and its receipt
when the answer has passed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from threading import Lock

from muntin.core.message import Message
from muntin.core.planning.window import Window
from muntin.fitting import Fitted
from muntin.fitting.requests import Request
from muntin.fitting.talk import Talk
from muntin.gateway.conversations import LINE, Conversation
from muntin.providers.model import Reply
from muntin.runtime.reports import Bounds
from muntin.settings import counter_for
from muntin.timeline.items import Beside
from muntin.timeline.receipts import report_of
from muntin.timeline.session import Session
from muntin.timeline.store import Store

_KEEP = 1_000
_BYTES, _AGE = 1_000_000_000, timedelta(days=30)
_HELD = 4_096


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that was sent: its session, the turn it belongs to, its window."""

    session: Session
    turn: int
    window: Window


class Recorder:
    """Writes into a store what passes the gateway; its methods may block."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._bounds = Bounds(_BYTES, _AGE)
        self._steps: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._lock = Lock()

    def sent(self, found: Conversation, request: Request, fitted: Fitted, frontier: str) -> Sent:
        """Keep the messages that are new in a request, and its frontier."""
        session = Session(found.session, store=self._store, mend=False)
        return Sent(session, self._append(session, found, request, frontier), fitted.window)

    def _append(self, session: Session, found: Conversation, request: Request, text: str) -> int:
        newest = self._store.read(session.id, newest=1)
        answered = bool(newest) and newest[-1].role == "assistant"
        beside = Beside(frontiers={LINE: text})
        new = _new(request, found.seen, answered)
        if new:
            return session.append(*new, beside=beside)[-1].turn
        if newest:
            self._store.put(session.id, beside)
        return newest[-1].turn if newest else 0

    def answered(self, sent: Sent, reply: Reply | None) -> None:
        """Keep the answer to a request, and its receipt."""
        session, turn = sent.session, sent.turn
        if not turn:
            return
        if reply is not None:
            meta = {"usage": asdict(reply.usage), "finish_reason": reply.finish_reason}
            draft = session.draft(reply.message, turn=turn, meta=meta, ends="completed")
            self._store.append(session.id, [draft])
        step = self._step(session.id, turn)
        kept = report_of(sent.window, turn, step, _KEEP)
        self._store.put(session.id, replace(kept, turn=turn))
        size = sum(map(len, kept.contents.values())) + len(kept.record.plan if kept.record else "")
        self._bounds.keep_to(session, turn, step, size)

    def _step(self, session: str, turn: int) -> int:
        """Return the number of the next receipt of a turn."""
        with self._lock:
            known = self._steps.get(session)
        if known is None or known[0] != turn:
            records = self._store.reports(session, first=turn, last=turn)
            known = turn, max((record.step for record in records), default=0)
        with self._lock:
            self._steps[session] = turn, known[1] + 1
            self._steps.move_to_end(session)
            while len(self._steps) > _HELD:
                self._steps.popitem(last=False)
        return known[1] + 1


def _new(request: Request, seen: int, answered: bool) -> Sequence[Message]:
    """Return the messages of a request that are not kept yet: the answer before them is."""
    new = list(Talk(request.pieces, counter_for(None, None)).past[seen:])
    if answered and seen:
        while new and new[0].role == "assistant":
            new.pop(0)
    return new
