"""App: holds store, models and entities, and gives a turn its ctx. Nothing is global."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any

from muntin.agent.loop import MAX_STEPS
from muntin.agent.tools import ToolLike
from muntin.core.budget import Budget, as_budget
from muntin.core.checks import check_size
from muntin.core.counting.counter import TokenizerLike
from muntin.core.message import user
from muntin.core.planning.slot import Trimming
from muntin.errors import InvalidInput, MuntinError
from muntin.providers.assets import Assets, DirectoryAssets
from muntin.providers.model import Model, Reply
from muntin.providers.names import as_model
from muntin.runtime.conversation import TIMEOUT, Conversation
from muntin.runtime.recorded_run import in_store
from muntin.runtime.wakes import Handler, entity_type, stored_reply, wake_all
from muntin.timeline.history import Tokens, Turns
from muntin.timeline.items import Draft, Item, check_session_id, draft_of
from muntin.timeline.session import DEFAULT_WINDOW, Session
from muntin.timeline.store import DEFAULT_URL, Store, open_store

# How often to look for entities that wait: those whose process died, or were woken elsewhere.
SWEEP_SECONDS = 1.0


class App:
    """A store, a model, and the entities that live in it.

    `async with App(...)` closes what it opened, and looks after entities that other processes
    left behind. `keep_reports` is how many reports are kept for a session; 0 keeps none.
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
        keep_reports: int = 1_000,
    ) -> None:
        self.model = None if model is None else as_model(model)
        self.budget = None if budget is None else as_budget(budget)
        self.assets = DirectoryAssets(assets) if isinstance(assets, str) else assets
        self.trimming = trimming
        self.tokenizer = tokenizer
        self.keep_reports = check_size(keep_reports, "keep_reports")
        self._owned = isinstance(store, str)
        self.store = open_store(store) if isinstance(store, str) else store
        self._handlers: dict[str, Handler] = {}
        self._wakes: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._asked: dict[tuple[str, int], list[asyncio.Future[Reply | None]]] = {}
        # Turns that wait for those before them, by event loop and session.
        self._queues: dict[tuple[asyncio.AbstractEventLoop, str], dict[int, asyncio.Event]] = {}
        self._sweeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> App:
        self._sweep()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let running wakes come to an end, and close what the app opened."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweeper
        while self._wakes:
            await asyncio.gather(*self._wakes.values(), return_exceptions=True)
        self._sweeper = None  # not before: a wake that ends may send, and would begin another
        if self._owned:
            self.store.close()

    def session(self, id: str, *, window: Turns | Tokens = DEFAULT_WINDOW) -> Session:
        """Return the session with this id, whichever door it is used through."""
        return Session(id, store=self.store, tokenizer=self.tokenizer, window=window)

    def _entity(self, id: str) -> Session:
        """Return the session of an entity; taking its turns mends what must be mended."""
        return Session(id, store=self.store, tokenizer=self.tokenizer, mend=False)

    def conversation(
        self,
        id: str,
        *,
        strategy: Any = None,
        model: str | Model | None = None,
        tools: Sequence[ToolLike] = (),
        settings: Mapping[str, Any] | None = None,
        budget: Budget | int | None = None,
        trimming: Trimming | None = None,
        timeout: float = TIMEOUT,
        max_steps: int = MAX_STEPS,
    ) -> Conversation:
        """Return the conversation with this id.

        Without a strategy the window is the whole timeline, the newest kept. `timeout` is how
        many seconds a hook of the strategy may take.
        """
        return Conversation(
            self,
            self.session(id),
            strategy=strategy,
            model=model,
            tools=tools,
            settings=settings,
            budget=budget,
            trimming=trimming,
            timeout=timeout,
            max_steps=max_steps,
        )

    # Entities.

    def entity(self, kind: str) -> Callable[[Handler], Handler]:
        """Register the handler of a type of entities: `async def handler(ctx, wake)`."""
        if not isinstance(kind, str) or not kind or "/" in kind:
            raise InvalidInput(f"a type of entities is a word like 'horton', not {kind!r}")
        if kind in self._handlers:
            raise InvalidInput(f"entities of type {kind!r} have a handler already")

        def register(handler: Handler) -> Handler:
            if not inspect.iscoroutinefunction(handler):
                raise InvalidInput(f"the handler of {kind!r} must be an async function")
            self._handlers[kind] = handler
            with suppress(RuntimeError):  # registered before the app runs
                self._sweep()
            return handler

        return register

    def handler(self, kind: str) -> Handler:
        """Return the handler of a type of entities."""
        if kind not in self._handlers:
            known = ", ".join(sorted(self._handlers)) or "none"
            raise InvalidInput(f"no entities of type {kind!r} are registered; known: {known}")
        return self._handlers[kind]

    async def send(
        self, entity: str, payload: Any, *, type: str | None = None, sender: str | None = None
    ) -> Item:
        """Send an entity something, and return when it is durable; it is handled soon."""
        self.handler(entity_type(entity))
        given = {"type": type, "sender": sender}
        meta = {key: value for key, value in given.items() if value is not None}
        draft = Draft("message", payload=payload, meta=meta)
        if isinstance(payload, str):
            draft = draft_of(user(payload), meta=meta)
        return await self._deliver(entity, draft)

    async def signal(
        self, entity: str, type: str, payload: Any = None, *, sender: str | None = None
    ) -> Item:
        """Signal something to an entity; it wakes as for a message."""
        self.handler(entity_type(entity))
        body = {"type": type} if payload is None else {"type": type, "payload": payload}
        meta = {} if sender is None else {"sender": sender}
        return await self._deliver(entity, Draft("signal", payload=body, meta=meta))

    async def wake(self, entity: str, payload: Any, *, sender: str | None = None) -> Item:
        """Wake an entity because it is time to: for a scheduler of yours. `payload` is shown."""
        self.handler(entity_type(entity))
        meta = {} if sender is None else {"sender": sender}
        return await self._deliver(entity, Draft("wake", payload=payload, meta=meta))

    async def ask(
        self, entity: str, payload: Any, *, type: str | None = None, sender: str | None = None
    ) -> Reply | None:
        """Send an entity something, and return the answer of the wake that handled it."""
        item = await self.send(entity, payload, type=type, sender=sender)
        key = (entity, item.turn)
        future: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        self._asked.setdefault(key, []).append(future)
        self._wake(entity)
        session = self._entity(entity)
        while True:
            done, _ = await asyncio.wait([future], timeout=0.2)
            if done:
                return future.result()
            turn = await in_store(session, partial(self.store.turn, entity, item.turn))
            status = turn.status if turn is not None else "failed"
            if future.done():
                return future.result()
            if status == "completed":
                return await stored_reply(session, item.turn)
            if status == "failed":
                raise MuntinError(f"turn {item.turn} of {entity!r} failed in another process")

    async def _deliver(self, entity: str, draft: Draft) -> Item:
        check_session_id(entity)
        session = self._entity(entity)
        opening = session._opening(draft, "inbox")
        (item,) = await in_store(session, lambda: self.store.append(entity, [opening]))
        self._wake(entity)
        return item

    def _wake(self, entity: str) -> None:
        """Have an entity handled by this process, unless it is at it."""
        self._sweep()
        running = self._wakes.get(entity)
        if running is not None:
            self._again.add(entity)
            return
        self._wakes[entity] = asyncio.create_task(self._handle(entity))

    async def _handle(self, entity: str) -> None:
        try:
            while True:
                self._again.discard(entity)
                await wake_all(self, self._entity(entity))
                if entity not in self._again:
                    return
        finally:
            self._wakes.pop(entity, None)

    def settled(self, entity: str, turn: int, result: Reply | BaseException | None) -> None:
        """Tell whoever asked how a turn ended."""
        for future in self._asked.pop((entity, turn), ()):
            if future.done():
                continue
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)

    def _sweep(self) -> None:
        # One that belongs to another event loop has ended with it.
        loop = asyncio.get_running_loop()
        if self._handlers and (self._sweeper is None or self._sweeper.get_loop() is not loop):
            self._sweeper = loop.create_task(self._sweep_on())

    async def _sweep_on(self) -> None:
        """Look now and then for entities that wait, whoever was to handle them."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            with suppress(MuntinError):  # the store may come back
                page = await asyncio.to_thread(self.store.waiting)
                while page:
                    for entity in page:
                        kind, slash, _ = entity.partition("/")
                        if slash and kind in self._handlers and entity not in self._wakes:
                            self._wake(entity)
                    page = await asyncio.to_thread(partial(self.store.waiting, after=page[-1]))
