"""Summaries: short texts of the messages that have left a history; made in the background.

Owns when a summary is made, of which messages, by which model, what is stored of it, and what
happens when it fails. The core places it: in front of the history, from its next move on.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
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
from muntin.core.message import Message, place_of
from muntin.core.planning.compact import Compactor
from muntin.core.planning.plan import Plan
from muntin.core.planning.slot import SYSTEM, Recap
from muntin.core.tags.xml import element
from muntin.core.usage import SessionUsage, Usage
from muntin.core.window import Window
from muntin.errors import InvalidInput, MuntinError, TimedOut, error_text
from muntin.providers.model import Model
from muntin.runtime.next_move import NextMove, TimelinePlace, next_move
from muntin.runtime.run_rules import Summary
from muntin.runtime.store_thread import run_in_store
from muntin.timeline.items import FAILED_SUMMARY_USAGE, Draft, NoteKey, SideWrites, Visibility
from muntin.timeline.owner import done, new_owner
from muntin.timeline.project import Projection, lasting
from muntin.timeline.session import Session
from muntin.timeline.turn import LEASE

if TYPE_CHECKING:
    from muntin.runtime.turn import ActiveTurn

# A summariser that failed so many times is asked again after 1, 2, 4 and so on turns, up to the
# last; and so many times an hour at most.
_WAITS = (1, 2, 4, 8, 16, 32, 64)
HOURLY = 5
_HOUR = 3600.0
# All requests for one summary have so many tokens together, as a multiple of the window.
_WINDOWS = 2
# A summary that waits for the move may leave out this share of what will leave.
_UNTOLD = 0.25
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

    `text` is the newest summary, `until` and `item` say how far it tells. Since then `tries` tries
    have failed, the last in the step `step` of the turn `turn`, for the reason `failed`. `times`
    are the times of the tries of the last hour.
    """

    text: str = ""
    until: float = 0.0
    item: int = 0
    tries: int = 0
    turn: int = 0
    step: int = 0
    failed: str = ""
    times: tuple[float, ...] = ()

    @classmethod
    def load(cls, session: Session, line: str) -> State:
        """Read the state; a state that cannot be read counts as none."""
        text = session.store.content(session.id, "summary", line)
        try:
            stored = {} if text is None else json.loads(text)
            known = {name: stored[name] for name in cls.__slots__ if name in stored}
            return cls(**known | {"times": tuple(known.get("times", ()))})
        except (TypeError, ValueError):
            return cls()

    @property
    def recap(self) -> Recap | None:
        """The newest summary as a window shows it."""
        if not self.text:
            return None
        until = f"{max(self.until, self.item):g}"
        return Recap(element("summary", {"until": until}, self.text), self.until, self.item)

    @property
    def trouble(self) -> str | None:
        """The text of the report about a summary that failed."""
        return f"failed {self.tries}x: {self.failed}" if self.failed else None

    def is_due(self, coming: NextMove, turn: int, step: int) -> bool:
        """Say whether a summary is wanted: not if one that waits for the move tells most of what
        will leave, nor too soon after a failure. In one long turn its steps count as turns."""
        place = self.until, self.item
        untold = sum([each.tokens for each in coming.leaving if each.place > place])
        whole = sum([each.tokens for each in coming.leaving])
        if not untold or (place > coming.summarized and untold <= _UNTOLD * whole):
            return False
        if not self.tries:
            return True
        waited = turn - self.turn or step - self.step
        enough = _WAITS[min(self.tries, len(_WAITS)) - 1]
        return waited >= enough and len(self._recent()) < HOURLY

    def _recent(self) -> tuple[float, ...]:
        now = time.time()
        return tuple([moment for moment in self.times if now - _HOUR < moment <= now])

    def after_failure(self, turn: int, step: int, error: str) -> State:
        """Return the state after one more failed try."""
        times = (*self._recent(), time.time())
        return replace(self, tries=self.tries + 1, turn=turn, step=step, failed=error, times=times)


class Summaries:
    """The summaries that an app is making."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}

    def consider(
        self,
        turn: ActiveTurn,
        line: str,
        run: int,
        step: int,
        window: Window,
        composer: Composer,
        answer: Message,
        projection: Projection | None,
        completed: bool,
    ) -> None:
        """Begin to make a summary after an answer, if the conversation comes near its next move."""
        summary, plan = composer.summary, window.explained
        if summary is None or not isinstance(plan, Plan):
            return
        coming = next_move(plan, composer.counter.message(answer), summary.max_tokens)
        if coming is None or coming.until <= coming.summarized:
            return
        key = turn.session.id, line
        if key in self._tasks and not self._tasks[key].done():
            return
        model = turn.app.answering(summary.model, "summary")
        job = _Job(
            turn.session,
            line,
            (turn.number, step),
            run,
            coming,
            summary,
            model,
            projection or None,
            completed,
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
        _, unfinished = await asyncio.wait(tasks, timeout=min(timeout, CLOSE_SECONDS))
        for task in unfinished:
            task.cancel()
        if unfinished:
            await asyncio.wait(unfinished, timeout=_STOP_SECONDS)


@dataclass(slots=True)
class _Job:
    """A summary to be made, of the past of a session up to the coming move of one line."""

    session: Session
    line: str
    # The turn and its step in which the summary is made, and the position of the run.
    at: tuple[int, int]
    run: int
    coming: NextMove
    summary: Summary
    model: Model
    projection: Projection | None
    # Whether the history shows completed turns only.
    completed: bool
    owner: str = field(default_factory=new_owner)
    composer: Composer = field(init=False)
    # Where the summary ends.
    end: TimelinePlace = field(init=False)
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
                if state.is_due(self.coming, *self.at):
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
            _log.warning("the summary of %r failed: %s", self.session.id, text, exc_info=error)
            after = state.after_failure(*self.at, text)
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
            state = compact_json(asdict(State(payload["text"], *self.end)))
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
        after = max((state.until, state.item), self.coming.begins)
        lines = await run_in_store(self.session, partial(self._record, after, room))
        # A summary of the provider's tells what a summary from before it told.
        is_newest = after == (state.until, state.item)
        text, used_lines, spent = state.text if is_newest else "", 0, 0
        while used_lines < len(lines):
            end, size = used_lines, self._beside()
            while end < len(lines):
                tokens = self.composer.counter.message(lines[end][1])
                if end > used_lines and size + tokens > self._beside() + room:
                    break
                end, size = end + 1, size + tokens
            spent += size
            if used_lines and spent > _WINDOWS * self.coming.budget:
                break  # the rest is in the next summary
            text, used_lines = (
                await self._ask(text, [line.text for _, line in lines[used_lines:end]]),
                end,
            )
            if not await run_in_store(self.session, self._hold):
                return None
        if not used_lines:
            return None
        self.end = lines[used_lines - 1][0] if used_lines < len(lines) else self.coming.until
        return {
            "line": self.line,
            "text": text,
            "until": max(self.end),
            "items": sorted({item or int(at) for (at, item), _ in lines[:used_lines]}),
            "model": self.model.name,
            "usage": asdict(self.usage),
        }

    def _beside(self) -> int:
        """Return the tokens of one request beside the record."""
        counter, summary = self.composer.counter, self.summary
        fixed = counter.message(Message("system", summary.instruction)) + counter.beside(())
        return fixed + 2 * summary.max_tokens

    def _room(self) -> int:
        """Return the tokens that one request has for the record."""
        summary = self.summary
        whole = self.composer.budget.remaining_input_tokens
        room = min(whole, max(_WINDOWS * self.coming.budget, 0)) - self._beside()
        if room < _LEAST_MESSAGE:
            raise InvalidInput(
                f"the window of {self.model.name!r}, {whole:,} tokens, has no room for a summary "
                f"of {summary.max_tokens:,} tokens; give another model, or less max_tokens"
            )
        return int(room * _FULL)

    def _record(self, after: TimelinePlace, room: int) -> list[tuple[TimelinePlace, Message]]:
        """Return the messages to summarise, each with its place: as the window shows them; what has
        left it before, with its results as stubs."""
        names: dict[str, str] = {}  # by the nearest call before: ids may repeat
        compactor, most = Compactor(self.composer.counter), int(room * _MESSAGE_RATIO)
        lines: list[tuple[TimelinePlace, Message]] = []
        left = [(at, message) for at, message in self._left(after) if message.role != "system"]
        shown = [(each.place, each.message) for each in self.coming.leaving]
        for number, (place, message) in enumerate((*left, *shown)):
            names.update((call.id, call.name) for call in message.tool_calls)
            if message.tool_call_id is not None and number < len(left):
                message = compactor.stub(message, names.get(message.tool_call_id, "result"))
            if place > after and (text := _record_line(message, names)):
                line = compactor.result(Message("user", text), max(_LEAST_MESSAGE, most))
                lines.append((place, line))
        return lines

    def _left(self, after: TimelinePlace) -> list[tuple[TimelinePlace, Message]]:
        """Return the messages behind a place that have left the window."""
        session, before = self.session, self.coming.leaving[0].place
        # A question that waited stands between two positions, and a run where it began.
        since = max(0, math.ceil(after[0]) - 1)
        last, read = session.last(), partial(session.store.read, session.id, after=since)
        settled = last + 1 if self.completed else None
        items = read(view="history", last_turn=self.at[0], settled=settled)
        if self.completed:  # the run of this turn is not
            items = [each for each in items if each.turn < self.at[0]]
            turn = read(first_turn=self.at[0], last_turn=self.at[0])
            items += [each for each in turn if self.run in (each.position, each.run)]
        messages = session.project(lasting(items, last), self.projection, since=since)
        placed = [(place_of(message), message) for message in messages]
        return [each for each in placed if after < each[0] < before]

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
                with telemetry.calling(name, window, streaming=False) as report:
                    settings = {"max_tokens": summary.max_tokens}
                    reply = await self.model.complete(window, settings=settings)
                    report(reply)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TimedOut(f"the summary by {name!r}", summary.timeout) from error
        self.usage += reply.usage
        answer = reply.text.strip()
        if not answer:
            raise MuntinError(f"the summary by {name!r} was empty")
        return (
            Compactor(self.composer.counter)
            .result(Message("user", answer), summary.max_tokens)
            .text
        )


def _record_line(message: Message, names: dict[str, str]) -> str:
    """Return a message as a line of the record."""
    if message.tool_call_id is not None:
        return element("result", {"tool": names.get(message.tool_call_id, "")}, message.text)
    lines = [element(message.role, {}, message.text)] if message.text else []
    lines += [element("file", {}, file.name) for file in message.attachments]
    lines += [element("call", {"tool": c.name}, c.arguments) for c in message.tool_calls]
    return "\n".join(lines)
