"""Summaries: short texts of the messages that have left a history; made in the background.

Owns when a summary is made, of which messages, by which model, what is stored of it, and what
happens when it fails. The core places it: in front of the history, from its next move on.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from contextvars import Context
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from muntin import telemetry
from muntin.agent.loop import to_the_end
from muntin.composer import Composer
from muntin.core.checks import compact_json
from muntin.core.message import Message
from muntin.core.planning.compact import Forms
from muntin.core.planning.plan import Plan
from muntin.core.planning.slot import SYSTEM, Recap
from muntin.core.tags.xml import element
from muntin.core.usage import SessionUsage, Usage
from muntin.core.window import Window
from muntin.errors import InvalidInput, MuntinError, TimedOut, error_text
from muntin.providers.model import Model
from muntin.runtime.next_move import NextMove, next_move
from muntin.runtime.run_rules import Summary
from muntin.runtime.store_thread import run_in_store
from muntin.timeline.items import FAILED_SUMMARY_USAGE, Draft, NoteKey, SideWrites, Visibility
from muntin.timeline.owner import done, new_owner
from muntin.timeline.project import Projection, lasting
from muntin.timeline.session import LEASE, Session

if TYPE_CHECKING:
    from muntin.runtime.turn import ActiveTurn

# A summary is made when a history has gone this share of the way to its next step.
NEAR = 0.7
# A summary is tried this many times, each time in another turn.
TRIES = 3
# One summary asks the model at most this many times, as long as it can end between two items.
_REQUESTS = 8
# Seconds that `close` waits for summaries being made: one that is not ready is made again.
CLOSE_SECONDS = 5.0
_STOP_SECONDS = 1.0
# The largest share of a request for one message, and of the room that is filled.
_MESSAGE_RATIO, _FULL = 0.125, 0.9
_LEAST_MESSAGE = 64
_HIDDEN = Visibility(client=False, history=False)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class State:
    """The stored state of the summaries of one line of windows.

    `text` is the newest summary, `until` the position up to which it tells. `tries` tries have
    failed, the last in `turn` for the reason `failed`, on the way to the step of a history that
    begins at `since`.
    """

    text: str = ""
    until: float = 0.0
    since: float = 0.0
    tries: int = 0
    turn: int = 0
    failed: str = ""

    @classmethod
    def load(cls, session: Session, line: str) -> State:
        """Read the state; a state written by another version counts as none."""
        text = session.store.content(session.id, "summary", line)
        try:
            return cls() if text is None else cls(**json.loads(text))
        except (TypeError, ValueError):
            return cls()

    @property
    def recap(self) -> Recap | None:
        """The newest summary as a window shows it."""
        if not self.text:
            return None
        shown = element("summary", {"until": f"{self.until:g}"}, self.text)
        return Recap(shown, self.until)

    @property
    def trouble(self) -> str | None:
        """The text of the report about a summary that failed."""
        return f"try {self.tries} of {TRIES}: {self.failed}" if self.failed else None

    def is_due(self, coming: NextMove, turn: int) -> bool:
        """Say whether a summary is wanted: not if a summary that waits for the step tells at least
        half of what will leave, nor after too many tries."""
        told = self.until - coming.summarized
        if told > 0 and (coming.until or 0) - self.until <= told:
            return False
        if not self.failed or self.since != coming.since:
            return True
        return self.turn < turn and self.tries < TRIES

    def after_failure(self, coming: NextMove, turn: int, error: str) -> State:
        """Return the state after one more failed try."""
        tries = self.tries if self.since == coming.since else 0
        return replace(self, since=coming.since, tries=tries + 1, turn=turn, failed=error)


class Summaries:
    """The summaries that an app is making."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}

    def consider(
        self,
        turn: ActiveTurn,
        line: str,
        window: Window,
        composer: Composer,
        answer: Message,
        projection: Projection | None,
        completed: bool,
    ) -> None:
        """Begin to make a summary after an answer, if the history comes near its next step."""
        summary, plan = composer.summary, window.explained
        if summary is None or not isinstance(plan, Plan):
            return
        coming = next_move(plan, composer.counter.message(answer), summary.max_tokens)
        if coming is None or coming.reached < NEAR or (coming.until or 0) <= coming.summarized:
            return
        key = turn.session.id, line
        if key in self._tasks and not self._tasks[key].done():
            return
        model = turn.app.answering(summary.model, "summary")
        job = _Job(
            turn.session, line, turn.number, coming, summary, model, projection or None, completed
        )
        # Outside of any turn: no turn waits for it.
        self._tasks[key] = asyncio.create_task(job.make(), context=Context())

    async def close(self, timeout: float) -> None:
        """Wait a short time for unfinished summaries; then cancel them."""
        loop = asyncio.get_running_loop()
        tasks = [
            task for task in self._tasks.values() if task.get_loop() is loop and not task.done()
        ]
        if not tasks:
            return
        _, left = await asyncio.wait(tasks, timeout=min(timeout, CLOSE_SECONDS))
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_STOP_SECONDS)


@dataclass(slots=True)
class _Job:
    """A summary to be made, of the past of a session up to the coming move of one line."""

    session: Session
    line: str
    turn: int
    coming: NextMove
    summary: Summary
    model: Model
    projection: Projection | None
    # Whether the history shows completed turns only.
    completed: bool
    owner: str = field(default_factory=new_owner)
    composer: Composer = field(init=False)
    # What the requests have cost so far.
    usage: Usage = field(default_factory=Usage)

    async def make(self) -> None:
        """Make one summary, unless another process makes it, or has made it."""
        try:
            if not await run_in_store(self.session, self._hold):
                return
            try:
                load = partial(State.load, self.session, self.line)
                state = await run_in_store(self.session, load)
                if state.is_due(self.coming, self.turn):
                    await self._try(state)
            finally:
                release = partial(self._hold, timedelta(0))
                await to_the_end(run_in_store(self.session, release))
        except MuntinError as error:  # the store is away: only the log can tell
            _log.warning("no summary of %r was made: %s", self.session.id, error)
        finally:
            done(self.owner)

    def _hold(self, lease: timedelta | None = None) -> bool:
        """Take, or keep, the right to make this summary for as long as one request may take."""
        if lease is None:
            lease = LEASE + timedelta(seconds=self.summary.timeout)
        return self.session.store.hold(self.session.id, f"summary:{self.line}", self.owner, lease)

    async def _try(self, state: State) -> None:
        try:
            payload = await self._summarise(state)
        except Exception as error:
            text = error_text(error)
            _log.warning("the summary of %r failed: %s", self.session.id, text)
            after = state.after_failure(self.coming, self.turn, text)
            await run_in_store(self.session, partial(self._store_failure, after))
        else:
            if payload is not None:
                await to_the_end(run_in_store(self.session, partial(self._store, payload)))

    def _store_failure(self, state: State) -> None:
        """Store a failed try and its cost beside the timeline."""
        store, id = self.session.store, self.session.id
        notes: dict[NoteKey, str] = {("summary", self.line): compact_json(asdict(state))}
        if self.usage != Usage():
            before = store.content(id, *FAILED_SUMMARY_USAGE)
            spent = SessionUsage(summaries=self.usage).and_in_vain(before)
            notes[FAILED_SUMMARY_USAGE] = compact_json(asdict(spent.summaries))
        store.put(id, SideWrites(notes=notes))

    def _store(self, payload: dict[str, Any]) -> None:
        """Store a summary on the timeline, where no history shows it, and as the newest of its
        line."""
        if self._hold():  # no other process took it over
            state = compact_json(asdict(State(payload["text"], payload["until"])))
            self.session.store.append(
                self.session.id,
                [Draft("summary", payload=payload, visibility=_HIDDEN)],
                beside=SideWrites(notes={("summary", self.line): state}),
            )

    async def _summarise(self, state: State) -> dict[str, Any] | None:
        """Ask the model, more than once if the past does not fit its window; None if another
        process took over, or there is nothing to tell."""
        self.composer = Composer.of(self.model, caching=False)
        room = self._room()
        lines = await run_in_store(self.session, partial(self._record, state.until, room))
        text, taken, ends, size = state.text, 0, list[int](), 0
        for place, (_, line) in enumerate(lines):
            tokens = self.composer.counter.message(line)
            if size and size + tokens > room:
                ends.append(place)
                size = 0
            size += tokens
        for number, end in enumerate([*ends, len(lines)] if lines else ()):
            if number >= _REQUESTS and lines[taken - 1][0] != lines[taken][0]:
                break  # between two items
            text, taken = await self._ask(text, [line.text for _, line in lines[taken:end]]), end
            if not await run_in_store(self.session, self._hold):
                return None
        if not taken:
            return None
        return {
            "line": self.line,
            "text": text,
            # Messages left out of a run that was not read to its end are read again.
            "until": lines[taken - 1][0] if taken < len(lines) else self.coming.until or 0.0,
            "items": sorted({at for at, _ in lines[:taken]}),
            "model": self.model.name,
            "usage": asdict(self.usage),
        }

    def _room(self) -> int:
        """Return the tokens that one request has for the record."""
        counter, summary = self.composer.counter, self.summary
        whole = self.composer.budget.remaining_input_tokens
        fixed = counter.message(Message("system", summary.instruction)) + counter.beside(())
        room = whole - fixed - 2 * summary.max_tokens
        if room < _LEAST_MESSAGE:
            raise InvalidInput(
                f"the window of {self.model.name!r}, {whole:,} tokens, has no room for a summary "
                f"of {summary.max_tokens:,} tokens; give another model, or less max_tokens"
            )
        return int(room * _FULL)

    def _record(self, after: float, room: int) -> list[tuple[float, Message]]:
        """Return the messages to summarise, as they are shown, each with its position."""
        session = self.session
        last = session.last()
        items = session.store.read(
            session.id,
            view="history",
            after=int(after),
            last_turn=self.turn,
            settled=last + 1 if self.completed else None,
        )
        names: dict[str, str] = {}  # by the nearest call before: ids may repeat
        forms, most = Forms(self.composer.counter), int(room * _MESSAGE_RATIO)
        lines: list[tuple[float, Message]] = []
        for message in session.project(lasting(items, last), self.projection, since=int(after)):
            names.update((call.id, call.name) for call in message.tool_calls)
            # A question that waited stands between two positions: a summary up to it ends there.
            at = after if message.at is None else message.at
            if message.role != "system" and after < at <= (self.coming.until or 0):
                text = _record_line(message, names)
                if text:
                    line = forms.result(Message("user", text), max(_LEAST_MESSAGE, most))
                    lines.append((at, line))
        return lines

    async def _ask(self, text: str, lines: Sequence[str]) -> str:
        """Return the model's summary of the summary so far and more lines, cut to its most
        tokens."""
        slots, summary, name = self.composer.slots(), self.summary, self.model.name
        slots.add("system", summary.instruction, priority=SYSTEM, required=True)
        if text:
            slots.add("summary", element("summary-so-far", {}, text), role="user", required=True)
        slots.add("input", "\n".join(lines))
        window = slots.render()
        try:
            async with asyncio.timeout(summary.timeout) as limit:
                with telemetry.calling(name, window, streaming=False) as call:
                    settings = {"max_tokens": summary.max_tokens}
                    reply = await self.model.complete(window, settings=settings)
                    call.answered(reply)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TimedOut(f"the summary by {name!r}", summary.timeout) from error
        self.usage += reply.usage
        answer = reply.text.strip()
        if not answer:
            raise MuntinError(f"the summary by {name!r} was empty")
        return Forms(self.composer.counter).result(Message("user", answer), summary.max_tokens).text


def _record_line(message: Message, names: dict[str, str]) -> str:
    """Return a message as a line of the record."""
    if message.tool_call_id is not None:
        return element("result", {"tool": names.get(message.tool_call_id, "")}, message.text)
    lines = [element(message.role, {}, message.text)] if message.text else []
    lines += [element("file", {}, file.name) for file in message.attachments]
    lines += [element("call", {"tool": c.name}, c.arguments) for c in message.tool_calls]
    return "\n".join(lines)
