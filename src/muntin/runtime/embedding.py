"""Embedding: the vectors of a session's messages, made in the background.

Owns that an embedder has a time limit, that its vectors are checked, and that an embedder that
failed is not asked for a while. The next report tells what is wrong.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextvars import Context
from functools import partial

from muntin.calls import off_loop
from muntin.runtime.store_thread import run_in_store
from muntin.timeline.recall.settings import Recall
from muntin.timeline.recall.shelf import add_vectors, without_vector
from muntin.timeline.recall.stored import QueryVector
from muntin.timeline.recall.vectors import checked
from muntin.timeline.session import Session

# An embedder gets this many texts at once.
_BATCH = 64
# Seconds before a failed embedder is asked again; seconds that `close` waits for one.
_REST, _CLOSE = 60.0, 1.0
_log = logging.getLogger(__name__)


class Embeddings:
    """The embedders of an app at work, one task a session."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        # When an embedder last failed, by its name, and why.
        self._failed: dict[str, tuple[float, str]] = {}

    async def ask(self, query: str, settings: Recall) -> QueryVector | str | None:
        """Return a question with its vector; None without an embedder; a text if it failed."""
        if settings.embed is None:
            return None
        at, why = self._failed.get(settings.embedder, (0.0, ""))
        if why and time.monotonic() - at < _REST:
            return why
        try:
            (vector,) = await _embedded(settings, [query])
        except Exception as error:
            return self._fail(settings, error)
        return QueryVector(settings.embedder, vector)

    def follow(self, session: Session, settings: Recall) -> None:
        """Begin to make the vectors that a session lacks, unless a task is making them."""
        running = self._tasks.get(session.id)
        at, why = self._failed.get(settings.embedder, (0.0, ""))
        resting = bool(why) and time.monotonic() - at < _REST
        if settings.embed is None or resting or (running is not None and not running.done()):
            return
        # Outside of any turn: no turn waits for it.
        task = asyncio.create_task(self._make(session, settings), context=Context())
        self._tasks[session.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(session.id, None))

    async def _make(self, session: Session, settings: Recall) -> None:
        name = settings.embedder
        try:
            while True:
                look = partial(without_vector, session, name, _BATCH)
                first, texts = await run_in_store(session, look)
                if not texts:
                    return
                rows = await _embedded(settings, texts)
                await run_in_store(session, partial(add_vectors, session, name, first, rows))
        except Exception as error:
            self._fail(settings, error)

    def _fail(self, settings: Recall, error: Exception) -> str:
        why = f"the embedder failed: {type(error).__name__}: {error}".partition("\n")[0][:300]
        if settings.embedder not in self._failed:
            _log.warning("%s", why)
        self._failed[settings.embedder] = (time.monotonic(), why)
        return why

    async def close(self) -> None:
        """Stop the tasks; vectors that are not ready are made again later."""
        loop = asyncio.get_running_loop()
        tasks = [task for task in self._tasks.values() if task.get_loop() is loop]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE)


async def _embedded(settings: Recall, texts: list[str]) -> list[list[float]]:
    assert settings.embed is not None
    rows = await off_loop(
        settings.embed, texts, timeout=settings.timeout, what=f"the embedder {settings.embedder!r}"
    )
    return checked(rows, len(texts))
