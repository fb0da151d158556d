"""Recording requests and answers while they pass: the store never delays an answer for long.

Owns that what is recorded is recorded in the order of passing, by one thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache, partial
from typing import Any

from muntin.fitting import Fitted, Recorder, Sent
from muntin.fitting.recorder import ListDiverged
from muntin.fitting.replies import Reading
from muntin.fitting.talk import LazyMessages
from muntin.gateway.conversations import (
    REFUSED,
    UNREAD,
    Conversation,
    Conversations,
    answer_digest,
)
from muntin.providers.model import Reply

# A request is recorded when its answer has passed, or when the answer has not come for this many
# seconds: recording takes time from passing the request on.
_SILENT = 0.01
# How many seconds the end of a stream waits until its request is stored: the next request may go
# to another gateway.
_PATIENCE = 0.1


class Recorded:
    """A request that is recorded when `begin` is called, at the latest when it was silent."""

    def __init__(self, begin: Callable[[], Future[Any] | None]) -> None:
        self._begin = begin
        self.has_begun = False
        self.future: Future[Any] | None = None
        asyncio.get_running_loop().call_later(_SILENT, self.begin)

    def begin(self) -> None:
        """Have the request recorded."""
        if not self.has_begun:
            self.has_begun = True
            self.future = self._begin()


class Recording:
    """Records requests and answers; a record that cannot be stored is lost, the request is not."""

    def __init__(self, recorder: Recorder, conversations: Conversations) -> None:
        self._recorder = recorder
        self._conversations = conversations
        self._newest: Future[Any] | None = None

    @property
    def is_slow(self) -> bool:
        """Whether the store is away, or has been writing for long."""
        return self._conversations.away or self._recorder.writes.is_stuck(_PATIENCE)

    def sent(
        self, conversation: Conversation, talk: LazyMessages, fitted: Fitted
    ) -> Recorded | None:
        """Have a request recorded that is on its way; None while the store is away."""
        if self._conversations.away:
            return None
        past, owner = conversation.past, self._conversations.owner

        def record() -> Sent | None:
            before = self._conversations.requests_before(conversation, talk)
            send = partial(
                self._recorder.sent_of,
                talk=talk,
                window=fitted.window,
                frontier=fitted.frontier,
                past=past,
                owner=owner,
                alone=bool(past),
                before=before,
            )
            if conversation.is_unsure:
                self._conversations.look_again(conversation, talk)
            try:
                check = partial(self._conversations.check, conversation, before) if past else None
                return send(conversation.session, check=check)
            except ListDiverged:
                self._conversations.follow(conversation, talk)
                return send(conversation.session)

        return Recorded(lambda: self._put(record))

    def answered(
        self,
        conversation: Conversation,
        recorded: Recorded | None,
        reading: Reading | None,
        *,
        refused: bool,
    ) -> None:
        """Have the answer to a request recorded, if it came and can be read, and the request's
        report; of a request that was refused only that it was."""
        read = _no_reply if reading is None else cache(reading.reply)

        def answer() -> str:
            if reading is None:
                return REFUSED
            reply = read()
            return UNREAD if reply is None else answer_digest([reply.message])

        conversation.answer = answer
        if recorded is not None:
            recorded.begin()
        request = None if recorded is None else recorded.future
        if request is None:
            return

        def record() -> None:
            sent = request.result()
            if sent is None:
                return
            reply = read()
            if refused:
                self._recorder.refused(sent)
            elif reply is None:
                self._recorder.answered(sent, answer=answer())
            else:
                meta = {"usage": reply.usage.to_dict(), "finish_reason": reply.finish_reason}
                self._recorder.answered(sent, reply.message, meta=meta, answer=answer())
            self._conversations.let_go(conversation)

        self._put(record)

    async def stored(self, recorded: Recorded | None) -> None:
        """Wait until a request is stored, but not for long."""
        if recorded is not None:
            recorded.begin()
            if recorded.future is not None and not self.is_slow:
                await asyncio.wait({asyncio.wrap_future(recorded.future)}, timeout=_PATIENCE)

    async def close(self) -> None:
        """Wait until everything is stored."""
        while self._newest is not None and not self._newest.done():
            await asyncio.wait({asyncio.wrap_future(self._newest)})

    def _put(self, record: Callable[[], Any]) -> Future[Any] | None:
        """Have something stored after all that came before it; None if too much waits."""

        def work() -> Any:
            try:
                return record()
            except Exception as error:  # a store that fails costs the record, never the request
                self._conversations.stay_away(error)
                return None

        try:
            self._newest = self._recorder.writes.put(work)
        except Exception as error:
            self._conversations.stay_away(error)
            return None
        return self._newest


def _no_reply() -> Reply | None:
    """Return None: there is no answer that is whole."""
    return None
