"""The Fitter: a framework's list of messages, made to fit a budget by the Composer.

Holds the settings and the known conversations. One list goes in, one plan is made, and references
to the kept items come back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, TypeVar
from uuid import uuid4

from muntin import telemetry
from muntin.agent.tools import ToolLike
from muntin.composer import Composer
from muntin.core.budget import Budget, as_budget
from muntin.core.caching.frontier import Frontier, LazyFrontier
from muntin.core.checks import check_optional_text, check_size
from muntin.core.counting.book import CountBook
from muntin.core.counting.counter import AttachmentTokens, TokenizerLike
from muntin.core.counting.law import Anchor
from muntin.core.message import Message
from muntin.core.planning.compact import LADDER, RESULTS, Ladder, Results, as_shapes
from muntin.core.planning.slot import Stepped, Trimming
from muntin.core.planning.slots import Slots
from muntin.core.schemas import Schemas
from muntin.core.usage import Usage
from muntin.core.window import Window
from muntin.errors import InvalidInput, StoreError
from muntin.fitting.frontiers import ConversationTable, RequestTrace, quick_past, read_previous
from muntin.fitting.layout import (
    cut_results,
    folded_system,
    lay_out,
    lay_out_whole,
    place,
    place_whole,
    refuse_too_large,
    shown_places,
)
from muntin.fitting.recalling import compose, recall_of
from muntin.fitting.recorder import Recorder
from muntin.fitting.schemas import schemas
from muntin.fitting.talk import LazyMessages, may_be_bound
from muntin.threads import in_thread
from muntin.timeline.recall.settings import RecallLike
from muntin.timeline.store import Store
from muntin.wire.blocks import place_of
from muntin.wire.pieces import Fitted, Piece
from muntin.wire.reply import Reply
from muntin.wire.requests import asks_for_compaction, held_by_provider, holder_of
from muntin.wire.usage import UsageLike, as_usage

T = TypeVar("T")


class Fitter:
    """Makes lists of messages fit; one for an app or a hook, safe to use from many threads.

    `budget` is the tokens of a request, tools and system text included; without one it is the
    model's context window. `margin` tokens of it are kept free, for what a framework adds after
    the hook. With `strict` an item that cannot be read is an error. `trimming`, `results` and
    `ladder` are as for `Slots`. With a `store`, conversations are recorded there, each as a
    session: under its name, or under a new one. With `recall` messages of the list that have left
    the window and bear on the user's last message stand before it, as excerpts.
    """

    def __init__(
        self,
        budget: Budget | int | None = None,
        *,
        model: str | None = None,
        tokenizer: TokenizerLike | None = None,
        attachment_tokens: AttachmentTokens | None = None,
        trimming: Trimming | None = None,
        results: Results | bool | None = RESULTS,
        ladder: Ladder | bool | None = LADDER,
        margin: int = 0,
        strict: bool = False,
        store: Store | str | Recorder | None = None,
        recall: RecallLike = False,
    ) -> None:
        check_optional_text(model, "model")
        results, ladder = as_shapes("fit", results, ladder)
        self.budget = None if budget is None else as_budget(budget)
        self.model = model
        self.strict = strict
        self._margin = check_size(margin, "margin")
        self._recall = recall_of(recall)
        self._options: dict[str, Any] = {
            "tokenizer": tokenizer,
            "attachment_tokens": attachment_tokens,
            "trimming": Stepped() if trimming is None else trimming,
            "results": results,
            "ladder": ladder,
        }
        self.recorder = store if store is None or isinstance(store, Recorder) else Recorder(store)
        self._table = ConversationTable()
        # What providers reported of requests.
        self.counts = CountBook()
        self._composers: dict[str | None, Composer] = {}
        self._lock = Lock()

    def fit(
        self,
        pieces: Sequence[Piece],
        *,
        tools: Sequence[ToolLike] = (),
        system: Sequence[Message] = (),
        previous: Mapping[str, Any] | Frontier | None = None,
        conversation: str | None = None,
        model: str | None = None,
        output: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        remark: str | None = None,
        usage: UsageLike | None = None,
        folds: bool = False,
    ) -> Fitted:
        """Return the part of a list that is sent.

        `system` are messages that stand before all others and are sent elsewhere: they are
        counted and not placed. `output` is the schema of the answer, which is sent too. `usage` is
        what the provider reported of the newest answer in the list. `settings`
        are the other parameters of the request: one of them may ask the provider to compact the
        list, or say that it holds the past; then the list stays whole. `remark` goes into the
        report. With `folds`, later system messages leave with their turns, and are returned apart.
        `previous` is the frontier of the request before this one. Without it the conversation is
        found by its name, or by its opening and its messages, as long as the process lives; an
        empty mapping begins anew.
        """
        check_optional_text(conversation, "conversation")
        check_optional_text(model, "model")
        with telemetry.composing(model or self.model, conversation) as report:
            composer = self._composer(model or self.model)
            composer = composer.asking_for(output)
            passes = asks_for_compaction(settings or {})
            held = holder_of(settings or {})
            offered, odd = schemas(tools)
            composer = replace(composer, tools=Schemas.of(offered))
            talk = LazyMessages(pieces, composer.counter)
            passes = passes or talk.passes
            if passes is not None or held is not None:
                fitted = self._fit_whole(
                    composer, talk, system, previous, conversation, passes, held
                )
            else:
                fitted = self._fit(
                    composer,
                    talk,
                    odd,
                    system,
                    previous,
                    conversation,
                    remark,
                    folds,
                    as_usage(usage),
                )
            report(fitted.window)
        return fitted

    def _fit(
        self,
        composer: Composer,
        talk: LazyMessages,
        odd: Sequence[str],
        system: Sequence[Message],
        previous: Mapping[str, Any] | Frontier | None,
        conversation: str | None,
        remark: str | None,
        folds: bool,
        usage: Usage | None,
    ) -> Fitted:
        before, fresh = self._before(previous, conversation, talk)
        try:
            if composer.profile is None and may_be_bound(talk):
                composer = replace(composer, binds=True)
            composer = self._follow(composer, talk, before, usage)
            start = None if before is None else before.start
            first = talk.opening + (start.first if folds and start is not None else 0)
            folded = folded_system(talk, range(first, len(talk))) if folds else []
            for _ in range(_ROUNDS):
                slots = lay_out(composer, talk, [*system, *folded], system_leaves=folds)
                if fresh is not None:
                    slots.exclude("previous", reason="fresh", detail=fresh)
                if remark is not None:
                    slots.exclude("request", reason="refused", detail=remark)
                slots, window = self._composed(slots, composer, talk, before)
                refuse_too_large(window)
                places = shown_places(window, talk)
                newest = folded_system(talk, places) if folds else []
                if newest == folded:
                    break
                folded = newest
            opaque = talk.opaque.keys() & set(places) if talk.opaque else ()
            whys = (
                f"message {place_of(talk.pieces[number].ref, number)}: {talk.opaque[number]}"
                for number in sorted(opaque)
            )
            unread = (*odd, *whys)
            if unread:
                self._refuse(unread)
                slots.exclude("unread", reason="unread", detail="; ".join(unread))
                window = slots.render()
                places = shown_places(window, talk)
        except BaseException:
            if previous is None and before is not None:  # the next request finds it again
                self._put(conversation, talk, before, None)
            raise
        placed, mark = place(window, composer, talk, places, len(system) + len(folded))
        frontier = window.lazy_frontier
        trace = replace(talk.trace(window, places), sent=frontier.sent)
        if self.recorder is not None:
            session = conversation or (before.session if before is not None else "")
            trace = replace(trace, session=session or f"fit-{uuid4().hex}")
            self._record(self.recorder, trace, talk, window)
        self._put(conversation, talk, trace, frontier)
        return Fitted(placed, window, trace.to_dict(), unread, fresh, mark, folded=tuple(folded))

    def _fit_whole(
        self,
        composer: Composer,
        talk: LazyMessages,
        system: Sequence[Message],
        previous: Mapping[str, Any] | Frontier | None,
        conversation: str | None,
        passes: str | None,
        held: str | None,
    ) -> Fitted:
        """Leave a list whole, whatever its size; the report says why. If the provider holds the
        past, results are new: what is beyond their ceiling is cut before they are sent."""
        before, _ = self._before(previous, conversation, talk)
        if previous is None and before is not None:  # the next request finds it again
            self._put(conversation, talk, before, None)
        messages = talk if passes is not None else cut_results(composer, talk)
        slots = lay_out_whole(composer, messages, system)
        why = passes or held_by_provider(str(held))
        slots.exclude(
            "passed" if passes else "past", reason="passed" if passes else "held", detail=why
        )
        placed = place_whole(talk, messages)
        frontier = (before or RequestTrace()).to_dict()
        return Fitted(placed, slots.render(), frontier, passes=passes, held=held)

    def _follow(
        self,
        composer: Composer,
        talk: LazyMessages,
        before: RequestTrace | None,
        usage: Usage | None,
    ) -> Composer:
        """Return the Composer of the window that follows a request, with what the provider reported
        of the request and its answer."""
        entered: Usage | Reply | None = usage
        if before is not None and usage is None:
            entered = self._table.take_usage(before)
        if entered is not None and before is not None and not before.believes(entered):
            entered = None
        usage = talk.enter_answers(before or RequestTrace(), entered)
        previous = self._table.last_window(before)
        if before is None or before.counted is None:
            return composer.after(previous)
        anchor = before.counted.before
        if usage is not None and usage.request:
            anchor = Anchor(before.counted.size, usage.request)
            self.counts.enter(composer.model or "", before.counted, usage.request)
        if isinstance(previous, LazyFrontier):
            previous.anchor = anchor
        elif anchor is not None:
            previous = replace(previous or Frontier(), anchor=anchor)
        return composer.after(previous)

    def enter_usage(self, fitted: Fitted, usage: UsageLike | Callable[[], Reply | None]) -> None:
        """Enter what the provider reported of a request and its answer: the next request of the
        conversation is counted by it. A function that returns the answer is called then."""
        read = usage if callable(usage) else partial(as_usage, as_usage(usage))
        self._table.enter_usage(RequestTrace.from_dict(fitted.frontier), read)

    def _composed(
        self, slots: Slots, composer: Composer, talk: LazyMessages, before: RequestTrace | None
    ) -> tuple[Slots, Window]:
        """Return the slots and their window, with what is recalled."""
        if self._recall is None:
            return slots, slots.render()
        start = None if before is None else before.start
        begin = talk.opening + (0 if start is None else start.first)
        return compose(slots, composer, talk, self._recall, min(begin, talk.asked))

    async def afit(self, pieces: Sequence[Piece], **options: Any) -> Fitted:
        """Do the same as `fit`; recording does not block the event loop."""
        return await self.beside_loop(lambda: self.fit(pieces, **options))

    async def beside_loop(self, work: Callable[[], T]) -> T:
        """Do work that fits; in a thread if it writes into a store.

        A cancelled call ends only when its work has ended: the same list may come again at once,
        and must find its conversation.
        """
        if self.recorder is None:
            return work()
        done = asyncio.ensure_future(in_thread(work))
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            await asyncio.wait({done})
            raise

    def _record(
        self, recorder: Recorder, trace: RequestTrace, talk: LazyMessages, window: Window
    ) -> None:
        """Record the new messages; if the store is away, the request is sent all the same."""

        def record() -> None:
            sent = recorder.sent_of(trace.session, talk, window, trace.to_dict())
            if sent is not None:
                recorder.answered(sent)

        try:
            recorder.writes.put(record).result(_RECORD_SECONDS)
        except StoreError as error:
            _log.warning("a window of session %r was not recorded: %s", trace.session, error)
        except TimeoutError:
            _log.warning(
                "a window of session %r was not recorded within %s seconds: the store is slow, or "
                "does not answer",
                trace.session,
                _RECORD_SECONDS,
            )

    def _put(
        self,
        conversation: str | None,
        talk: LazyMessages,
        trace: RequestTrace,
        window: LazyFrontier | Frontier | None,
    ) -> None:
        self._table.put(conversation, self._past(talk)(trace.count), trace, window)

    def _past(self, talk: LazyMessages) -> Callable[[int], str]:
        """Return how the conversation of a talk is found; where it is recorded, by all of it."""
        return partial(quick_past, talk) if self.recorder is None else talk.pasts.__getitem__

    def _composer(self, model: str | None) -> Composer:
        """Return how windows for a model are made, without tools."""
        with self._lock:
            composer = self._composers.get(model)
            if composer is None:
                composer = Composer.of(model, budget=self.budget, book=self.counts, **self._options)
                composer = replace(composer, budget=composer.budget.keeping(self._margin))
                if len(self._composers) >= _MODELS:
                    self._composers.clear()
                self._composers[model] = composer
            return composer

    def _before(
        self,
        previous: Mapping[str, Any] | Frontier | None,
        conversation: str | None,
        talk: LazyMessages,
    ) -> tuple[RequestTrace | None, str | None]:
        """Return the frontier of the request before this one, or why it is not used."""
        if previous is None:
            return self._table.take(conversation, self._past(talk), talk), None
        if isinstance(previous, Mapping) and not previous:
            return None, None
        trace = read_previous(previous)
        why = None if isinstance(previous, Frontier) else trace.why_not(talk)
        return (trace, None) if why is None else (None, why)

    def _refuse(self, unread: Sequence[str]) -> None:
        if self.strict:
            raise InvalidInput(
                f"{unread[0]}; without strict=True it is carried as it is, and counted by its size"
            )


_log = logging.getLogger(__name__)
# How often a request is planned until its system text holds all that has left.
_ROUNDS = 4
# A Fitter remembers this many models.
_MODELS = 64
# How long a request waits for its record.
_RECORD_SECONDS = 0.1
