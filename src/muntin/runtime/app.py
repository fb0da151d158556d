"""App: holds store, models and entities, and gives a turn its ctx. Nothing is global."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, TypeVar, cast, overload

from muntin import telemetry
from muntin.agent.loop import MAX_STEPS
from muntin.agent.toolbox import ToolSearchLike
from muntin.agent.tools import ToolLike, as_tools
from muntin.calls import TIMEOUT
from muntin.composer import Composer
from muntin.core.budget import Budget, as_budget
from muntin.core.checks import (
    check_count,
    check_optional_text,
    check_seconds,
    check_text,
    refuse_blank,
    shown,
)
from muntin.core.counting.book import CountBook
from muntin.core.counting.counter import (
    AttachmentTokens,
    Counter,
    TokenizerLike,
    check_attachment_tokens,
)
from muntin.core.message import user
from muntin.core.parts import MODALITIES
from muntin.core.planning.slot import Exact, Trimming
from muntin.errors import InvalidInput
from muntin.providers.assets import Assets, DirectoryAssets, FileModel, WithAssets
from muntin.providers.model import Model, Reply
from muntin.providers.names import as_model
from muntin.runtime.conversation import Conversation, SyncConversation
from muntin.runtime.embedding import Embeddings
from muntin.runtime.engine import Engine, EngineState, Resumed, as_engine
from muntin.runtime.engine.protocol import AT_ONCE
from muntin.runtime.engine.schedule import read_schedule
from muntin.runtime.entity_runner import EntityRunner
from muntin.runtime.inbox import Handler, Registered
from muntin.runtime.run_rules import (
    INHERIT,
    CallOptions,
    LadderLike,
    RecoveryLike,
    ResultsLike,
    RunRules,
    Summary,
    SummaryLike,
)
from muntin.runtime.spending import MaxCostLike, as_max_cost
from muntin.runtime.summaries import Summaries
from muntin.runtime.sync import Facade, LoopThread, blocking, facing
from muntin.runtime.turn_queue import TurnQueue
from muntin.settings import defaults
from muntin.timeline.history import Tokens, Turns
from muntin.timeline.items import Draft, Item, draft_of
from muntin.timeline.recall.settings import RecallLike, StandingLike
from muntin.timeline.receipts import AGE, BYTES, Bounds
from muntin.timeline.session import Session
from muntin.timeline.store import DEFAULT_URL, Store, as_store
from muntin.timeline.timers import Timer

T = TypeVar("T")

# How long `close` waits for wakes that run.
CLOSE_SECONDS = 30.0


# Attachments of which only the names are sent.
_NAMES_ALONE: dict[str, int] = dict.fromkeys(MODALITIES, 0)


class App:
    """A store, a model, and the entities that live in it.

    `async with App(...)` closes what it opened, and runs unfinished wakes of other processes.
    `keep_reports` is how many reports are kept for a session; 0 keeps none. The reports of all
    sessions have at most about `report_bytes` together and are no older than `report_age`; None is
    no limit.

    Seven switches hold for everything in the app: True is Muntin's own setting, False or None is
    off. `results` is the ceiling of each tool result, `ladder` how calls and results leave a
    window. With `recovery` agents get tools that read the parts that were cut. `recall` brings back
    messages that have left the window and bear on the input; with `standing` wishes of the user
    that last ("always", "from now on") stay in view. A `Summary` as `summary` summarises the
    messages that leave a history, in the background. `tool_search` says when the tools of a
    `Toolbox` are found instead of declared: True is `ToolSearch()`, False is never.

    The `engine` runs the wakes of entities: in this process (`Embedded()`), or "procrastinate" in
    workers. No more than `max_pending` wakes may wait.

    No request is sent whose conversation or entity would cost more than `max_cost` US dollars; a
    `MaxCost` limits each turn too.
    """

    def __init__(
        self,
        store: Store | str = DEFAULT_URL,
        *,
        model: str | Model | None = None,
        budget: Budget | int | None = None,
        assets: Assets | str | None = None,
        trimming: Trimming | None = None,
        tokenizer: TokenizerLike | None = None,
        attachment_tokens: AttachmentTokens | None = None,
        keep_reports: int = 1_000,
        report_bytes: int | None = BYTES,
        report_age: timedelta | None = AGE,
        results: ResultsLike = True,
        ladder: LadderLike = True,
        recovery: RecoveryLike = True,
        recall: RecallLike = True,
        standing: StandingLike = True,
        summary: SummaryLike = None,
        tool_search: ToolSearchLike = True,
        engine: Engine | str | None = None,
        max_pending: int | None = None,
        max_cost: MaxCostLike = None,
    ) -> None:
        self.rules = RunRules.of(
            "App", results, ladder, recovery, recall, summary, tool_search, standing
        )
        self.model = None if model is None else as_model(model)
        self.budget = None if budget is None else as_budget(budget)
        self.assets = DirectoryAssets(assets) if isinstance(assets, str) else assets
        self.trimming = trimming
        self.tokenizer = tokenizer
        check_attachment_tokens(attachment_tokens)
        self.attachment_tokens = attachment_tokens
        self.report_bounds = Bounds(keep_reports, report_bytes, report_age)
        self.store = as_store(store)
        # A store in memory lives as long as the app, even when that is closed.
        self._owned = isinstance(store, str) and not self.store.database.in_memory
        self.queue = TurnQueue()
        self.summaries = Summaries()
        self.embeddings = Embeddings()
        self.max_cost = as_max_cost(max_cost, "App")
        # The Composer of the app's own model, and the settings it was made for.
        self._composer: tuple[tuple[Any, ...], Composer] | None = None
        most = None if max_pending is None else check_count(max_pending, "max_pending")
        self._wakes = EntityRunner(self, as_engine(engine), most)
        telemetry.watch(self)

    def sync(self) -> SyncApp:
        """Return this app for code without an event loop: Flask, Django, scripts, notebooks."""
        return SyncApp(self)

    async def __aenter__(self) -> App:
        self._wakes.engine.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self, timeout: float = CLOSE_SECONDS) -> tuple[str, ...]:
        """Let running wakes and summaries come to an end, and close what the app opened.

        Wakes that take longer than `timeout` seconds are stopped. Their entities are returned
        and logged; their turns stay open, and the next process resumes them.
        """
        stopped = await self._wakes.engine.close(check_seconds(timeout, "timeout"))
        await self.summaries.close(timeout)
        await self.embeddings.close()
        if self._owned:
            await asyncio.to_thread(self.store.close)
        return stopped

    async def resume(self) -> Resumed:
        """Handle what waits, and what other processes left unfinished; return when nothing is left
        that can be handled now.

        Says which entities were `handled`, and why others are `left`: another process is at work,
        a turn waits for its next try, or was given up. Where wakes run in workers, `resume` only
        gives wakes to the workers.
        """
        return await self._wakes.engine.resume()

    async def work(
        self,
        *,
        concurrency: int = AT_ONCE,
        stop: asyncio.Event | None = None,
        timeout: float = CLOSE_SECONDS,
    ) -> tuple[str, ...]:
        """Be a worker: run waiting wakes, `concurrency` entities at once, until told to stop.

        Then no wake is begun, and running wakes have `timeout` seconds; the entities whose wakes
        had to be stopped are returned. Their turns stay open, and another worker resumes them.
        """
        check_count(concurrency, "concurrency")
        return await self._wakes.engine.work(
            at_once=concurrency,
            stop=stop or asyncio.Event(),
            timeout=check_seconds(timeout, "timeout"),
        )

    async def state(self) -> EngineState:
        """Return what waits, runs and failed, and which workers are there."""
        await self._wakes.engine.ready()
        return await asyncio.to_thread(self._wakes.engine.state)

    def wakes_now(self) -> EngineState:
        """Return the same as `state`, for a thread that may wait for the store."""
        return self._wakes.engine.state()

    def session(
        self,
        id: str,
        *,
        window: Turns | Tokens | None = None,
        counter: Counter | None = None,
        mend: bool = True,
    ) -> Session:
        """Return the session with this id, of a conversation or an entity alike.

        Tokens are counted for the app's model, or by `counter`.
        """
        chosen = counter or self.own_composer().counter
        return Session(id, store=self.store, counter=chosen, window=window, mend=mend)

    def own_composer(self) -> Composer:
        """Return how windows for the app's own model are made, by the tokenizer now in force."""
        here = defaults()
        settings = (here.tokenizer, here.attachment_tokens, self.tokenizer, self.attachment_tokens)
        key = (*settings, self.model, self.budget)
        if self._composer is None or self._composer[0] != key:
            # What providers reported of requests is kept for all models, as long as the app lives.
            book = CountBook() if self._composer is None else self._composer[1].book
            self._composer = (key, self._composer_of(self.model, book))
        return self._composer[1]

    def _composer_of(
        self, model: Model | None, book: CountBook | None, caching: bool = True
    ) -> Composer:
        files = self.attachment_tokens or defaults().attachment_tokens
        if files is None and self.assets is None:  # only the names of attachments are sent
            files = _NAMES_ALONE
        return Composer.of(
            model,
            budget=self.budget,
            tokenizer=self.tokenizer,
            attachment_tokens=files,
            caching=caching,
            book=book,
        )

    def answering(self, model: str | Model | None, what: str) -> Model:
        """Return the model meant; the app's own for None."""
        chosen = self.model if model is None else model
        if chosen is None:
            raise InvalidInput(f"{what} needs a model: give model=, or App(..., model=)")
        named_model = as_model(chosen)
        if self.assets is None:
            return named_model
        return WithAssets(cast("FileModel", named_model), self.assets)

    def composer(
        self,
        model: Model,
        options: CallOptions,
        what: str,
        *,
        tools: Sequence[ToolLike] = (),
        caching: bool = True,
    ) -> Composer:
        """Return how windows for a model are made; a setting that is not given is the app's."""
        trimming = self.trimming if options.trimming is None else options.trimming
        is_exact = isinstance(trimming, Exact)
        if is_exact and isinstance(options.rules.summary, Summary):
            raise InvalidInput(
                f"{what}: a summary is put in when the history steps, which it never does with "
                "trimming=Exact(); give trimming=Stepped(), or no summary"
            )
        is_own = model is self.model and caching  # the app's own Composer is made once
        composer = self.own_composer()
        if not is_own:
            composer = self._composer_of(model, composer.book, caching)
        rules = options.rules.over(self.rules)
        results, ladder = rules.shapes
        return replace(
            composer,
            budget=options.budget or composer.budget,
            trimming=trimming,
            tools=as_tools(tools, "tools").schemas,
            results=results,
            ladder=ladder,
            recall=rules.recalls,
            summary=None if is_exact else rules.summarizes,
            tool_search=rules.searches_tools,
            standing=rules.keeps_wishes,
        )

    def conversation(
        self,
        id: str,
        *,
        system_prompt: str | None = None,
        strategy: Any = None,
        model: str | Model | None = None,
        tools: Sequence[ToolLike] = (),
        settings: Mapping[str, Any] | None = None,
        budget: Budget | int | None = None,
        trimming: Trimming | None = None,
        timeout: float = TIMEOUT,
        max_steps: int = MAX_STEPS,
        results: ResultsLike = INHERIT,
        ladder: LadderLike = INHERIT,
        recovery: RecoveryLike = INHERIT,
        recall: RecallLike = INHERIT,
        standing: StandingLike = INHERIT,
        summary: SummaryLike = INHERIT,
        tool_search: ToolSearchLike = INHERIT,
    ) -> Conversation:
        """Return the conversation with this id.

        Without a strategy the window is `system_prompt` and the timeline, of which the newest part
        stays. `timeout` is how many seconds a hook of the strategy may take. `results`, `ladder`,
        `recovery`, `recall`, `standing`, `summary` and `tool_search` are the app's if they are not
        given; False
        or None is off. A strategy composes the window itself: it adds its own system text, and
        nothing is recalled except by `ctx.history.relevant`.
        """
        what = "conversation"
        options = CallOptions.of(
            what,
            RunRules.of(what, results, ladder, recovery, recall, summary, tool_search, standing),
            settings=settings,
            budget=budget,
            max_steps=max_steps,
            trimming=trimming,
            timeout=timeout,
        )
        return Conversation(self, id, system_prompt, strategy, model, tools, options)

    # Entities.

    def entity(
        self,
        kind: str,
        *,
        timeout: float | None = None,
        at_once: int | None = None,
        priority: int = 0,
        max_pending: int | None = None,
        every: str | None = None,
    ) -> Callable[[Handler], Handler]:
        """Register the handler of a type of entities: `async def handler(ctx, wake)`.

        A wake that takes longer than `timeout` seconds is cancelled, and its turn fails. A process
        handles `at_once` entities of the type side by side; types with a higher `priority` come
        first. At most `max_pending` messages may wait for one entity (`Overloaded`). From its first
        message on, each entity is woken `every` so often: "5m", or the five fields of cron.
        """
        if not isinstance(kind, str) or not kind or "/" in kind:
            raise InvalidInput(f"a type of entities is a word like 'order', not {shown(kind)}")
        if kind in self._wakes.handlers:
            raise InvalidInput(f"entities of type {kind!r} have a handler already")
        if timeout is not None:
            check_seconds(timeout, f"entity {kind!r}: timeout")
        for name, value in (("at_once", at_once), ("max_pending", max_pending)):
            if value is not None:
                check_count(value, f"entity {kind!r}: {name}")
        if type(priority) is not int or abs(priority) > 1_000:
            raise InvalidInput(
                f"entity {kind!r}: priority is from -1000 to 1000, not {shown(priority)}"
            )
        schedule = None if every is None else read_schedule(every)

        def register(handler: Handler) -> Handler:
            registered = Registered(handler, timeout, at_once, priority, max_pending, schedule)
            self._wakes.register(kind, registered)
            return handler

        return register

    async def send(
        self, entity: str, payload: Any, *, type: str | None = None, sender: str | None = None
    ) -> Item:
        """Send an entity something, and return when it is durable; it is handled soon."""
        self._wakes.inbox.handler(entity)
        refuse_blank(payload, "payload")
        meta = _meta(type=type, sender=sender)
        if payload is None:
            raise InvalidInput("payload is None; without contents send app.signal(entity, type)")
        draft = Draft("message", payload=payload, meta=meta)
        if isinstance(payload, str):
            draft = draft_of(user(payload), meta=meta)
        return await self._wakes.inbox.deliver(entity, draft)

    async def signal(
        self, entity: str, type: str, payload: Any = None, *, sender: str | None = None
    ) -> Item:
        """Signal something to an entity; it wakes as for a message."""
        self._wakes.inbox.handler(entity)
        refuse_blank(check_text(type, "type"), "type")
        body = {"type": type} if payload is None else {"type": type, "payload": payload}
        meta = _meta(sender=sender)
        return await self._wakes.inbox.deliver(entity, Draft("signal", payload=body, meta=meta))

    @overload
    async def wake(self, entity: str, payload: Any, *, sender: str | None = None) -> Item: ...

    @overload
    async def wake(
        self,
        entity: str,
        payload: Any,
        *,
        at: datetime,
        id: str | None = None,
        sender: str | None = None,
    ) -> Timer: ...

    @overload
    async def wake(
        self,
        entity: str,
        payload: Any,
        *,
        after: float | timedelta,
        id: str | None = None,
        sender: str | None = None,
    ) -> Timer: ...

    async def wake(
        self,
        entity: str,
        payload: Any,
        *,
        at: datetime | None = None,
        after: float | timedelta | None = None,
        id: str | None = None,
        sender: str | None = None,
    ) -> Item | Timer:
        """Wake an entity by time: now, `at` a time, or `after` so many seconds.

        The model sees `payload`. A wake at a time is durable, and comes once. It has an id, which
        you may choose: another wake with the same id and entity replaces it.
        """
        self._wakes.inbox.handler(entity)
        refuse_blank(payload, "payload")
        meta = _meta(sender=sender)
        if at is None and after is None:
            if id is not None:
                raise InvalidInput("id= is that of a wake at a time: give at= or after= too")
            return await self._wakes.inbox.deliver(
                entity, Draft("wake", payload=payload, meta=meta)
            )
        return await self._wakes.inbox.set_timer(entity, payload, meta, at, after, id)

    async def timers(self, entity: str) -> list[Timer]:
        """Return the wakes of an entity that are still to come, the next first."""
        return await asyncio.to_thread(self.store.timers, entity)

    async def drop_timer(self, entity: str, id: str) -> bool:
        """Cancel a wake at a time; False if there is none, or it has come."""
        return await asyncio.to_thread(self.store.drop_timer, entity, id)

    async def cancel(self, entity: str, turn: int) -> bool:
        """Cancel a wake that waits or runs, in any process; False if it is over.

        `turn` is the turn of the item that `send` returned. The turn fails, and its recorded items
        stay; messages that came while it ran are handled next.
        """
        return await self._wakes.inbox.cancel(entity, turn)

    async def ask(
        self, entity: str, payload: Any, *, type: str | None = None, sender: str | None = None
    ) -> Reply | None:
        """Send an entity something, and return the answer of the wake that handled it.

        A handler cannot ask its own entity, nor an entity that waits for it: that is a `Deadlock`.
        """
        self.queue.check(entity)
        item = await self.send(entity, payload, type=type, sender=sender)
        return await self._wakes.answer(entity, item.turn)


class SyncApp(Facade[App]):
    """An app for code without an event loop: its methods wait for their results.

    Made by `App.sync()`. The app runs on one event loop in a thread of its own, so any number of
    threads may use it at once. `with` starts the engine and closes the app; without `with`, the
    first call starts the thread, and `close` ends it. A process that forks its workers first uses
    the app after the fork.
    """

    def __init__(self, app: App) -> None:
        super().__init__(app, LoopThread())

    def __enter__(self) -> SyncApp:
        self.run(self.target.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def app(self) -> App:
        """The app itself, to register entities and read sessions."""
        return self.target

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run any coroutine on the app's loop, and return its result: `app.run(generate(…))`."""
        return self.loop.run(coroutine)

    def close(self, timeout: float = CLOSE_SECONDS) -> tuple[str, ...]:
        """Do the same as `App.close`, and end the thread."""
        try:
            return self.run(self.target.close(timeout))
        finally:
            self.loop.stop()

    conversation = facing(App.conversation, SyncConversation)
    send = blocking(App.send)
    signal = blocking(App.signal)
    wake = blocking(App.wake)
    ask = blocking(App.ask)
    cancel = blocking(App.cancel)
    timers = blocking(App.timers)
    drop_timer = blocking(App.drop_timer)
    resume = blocking(App.resume)
    state = blocking(App.state)


def _meta(**facts: str | None) -> dict[str, Any]:
    """Return the facts about a sent item, each a text or None, and the mark of its trace."""
    for name, value in facts.items():
        check_optional_text(value, name)
    meta: dict[str, Any] = {name: value for name, value in facts.items() if value is not None}
    trace = telemetry.mark()
    return {**meta, "trace": trace} if trace else meta
