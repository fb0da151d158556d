"""Recording requests and answers while they pass: the store never delays an answer.

Owns the order: for each session, one record is written after the other, in the order of passing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from typing import Any

from muntin.fitting import Fitted, Recorder, Sent
from muntin.fitting.talk import Talk
from muntin.gateway.conversations import Conversations
from muntin.providers.model import Reply
from muntin.threads import in_thread

# A request is recorded when its answer has passed, or when the answer has not come for this many
# seconds: recording takes time from passing the request on.
_SILENT = 0.01
# How many seconds the end of a stream waits until its request is stored: the next request may go
# to another gateway.
_PATIENCE = 0.1


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request that is being recorded; setting `now` begins the recording."""

    task: asyncio.Task[Sent | None]
    now: asyncio.Event


class Recording:
    """Records requests and answers; a record that cannot be stored is lost, the request is not."""

    def __init__(self, recorder: Recorder, conversations: Conversations) -> None:
        self._recorder = recorder
        self._conversations = conversations
        # All tasks, and the newest of each session.
        self._tasks: set[asyncio.Task[Any]] = set()
        self._newest: dict[str, asyncio.Task[Any]] = {}

    def sent(self, session: str, talk: Talk, fitted: Fitted) -> Recorded | None:
        """Have a request recorded that is on its way; None while the store is away."""
        self._conversations.hold(session, fitted.frontier)
        if self._conversations.away:
            return None

        def record() -> Sent | None:
            sent = self._recorder.sent_of(session, talk, fitted.window, fitted.frontier)
            self._conversations.let_go(session, fitted.frontier)
            return sent

        now = asyncio.Event()
        asyncio.get_running_loop().call_later(_SILENT, now.set)

        async def work() -> Sent | None:
            await now.wait()
            sent: Sent | None = await self._stored(record)
            return sent

        return Recorded(self._behind(session, work), now)

    def answered(self, session: str, recorded: Recorded, read: Callable[[], Reply | None]) -> None:
        """Have the answer to a request recorded, if it can be read, and the request's report."""
        recorded.now.set()

        async def work() -> None:
            sent = await recorded.task
            if sent is None:
                return

            def record() -> None:
                reply = read()
                if reply is None:
                    self._recorder.answered(sent)
                else:
                    meta = {"usage": asdict(reply.usage), "finish_reason": reply.finish_reason}
                    self._recorder.answered(sent, reply.message, meta=meta)

            await self._stored(record)

        self._behind(session, work)

    async def stored(self, recorded: Recorded | None) -> None:
        """Wait until a request is stored, but not for long."""
        if recorded is not None:
            recorded.now.set()
            await asyncio.wait({recorded.task}, timeout=_PATIENCE)

    async def close(self) -> None:
        """Wait until everything is stored."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _stored(self, record: Callable[[], Any]) -> Any:
        try:
            return await in_thread(record)
        except Exception as error:  # a store that fails costs the record, never the request
            self._conversations.stay_away(error)
            return None

    def _behind(
        self, session: str, work: Callable[[], Coroutine[Any, Any, Any]]
    ) -> asyncio.Task[Any]:
        """Do `work` after the earlier work for a session, even if no task waits for it."""
        before = self._newest.get(session)

        async def next_one() -> Any:
            if before is not None:
                await asyncio.wait({before})
            return await work()

        task = asyncio.create_task(next_one())
        self._newest[session] = task
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._done(session, done))
        return task

    def _done(self, session: str, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if self._newest.get(session) is task:
            del self._newest[session]
