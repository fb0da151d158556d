"""Which conversation a request belongs to, and the frontier of the request before it.

Owns the names of sessions, into which the caller's key goes so that two callers never meet, and
that a conversation has one request at a time. What is not stored yet is held here; what is stored
is looked up, because gateways of other processes go on with it.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from typing import Any
from urllib.parse import parse_qsl
from uuid import uuid4

from muntin.core.checks import digest, replace_surrogates
from muntin.core.message import Message
from muntin.errors import InvalidInput, StoreError
from muntin.fitting import Recorder
from muntin.fitting.frontiers import RequestTrace
from muntin.fitting.recorder import BEFORE, WAITING, ListDiverged
from muntin.fitting.talk import LazyMessages
from muntin.timeline.owner import done, is_gone, new_owner

# The header in which clients name the conversation of a request.
HEADER = "x-muntin-session"
_METADATA = ("session_id", "conversation_id", "thread_id")
# Headers and arguments of an address that hold a caller's key.
_KEYS = frozenset(
    {"authorization", "x-api-key", "api-key", "apikey", "key", "x-goog-api-key", "token"}
    | {"ocp-apim-subscription-key", "subscription-key", "x-auth-token", "auth-token"}
    | {"x-access-token", "access-token"}
)
# How many conversations are held in memory.
_HELD = 4_096
# A request ended where an answer begins; so many of the newest answers are tried.
_ANSWERS = 8
# For how many seconds the store is waited for, and is not asked after it failed.
_WAIT, _PAUSE = 0.08, 5.0
# The answer to a request that was refused, and one that was not read: unlike all digests.
REFUSED, UNREAD = "", "?"
_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Conversation:
    """A conversation while one of its requests is on its way, and until that is stored.

    `past` is the name by which the next request finds it, empty if the client names it; `caller` is
    a digest of whom it is with. `frontier` is what the newest request left. `answer` returns the
    digest of the answer; None while it is awaited. `before` is what was held before the request.
    `is_unsure` says that the store did not answer, and may have the conversation.
    """

    session: str
    past: str = ""
    caller: str = ""
    frontier: Mapping[str, Any] = field(default_factory=dict)
    answer: Callable[[], str] | None = None
    before: Conversation | None = None
    is_unsure: bool = False


class Conversations:
    """Finds conversations in a store, and holds those that are not stored yet."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._held: OrderedDict[str, Conversation] = OrderedDict()
        self._pasts: dict[str, set[str]] = {}
        self._lock = Lock()
        self._until = 0.0
        self.owner = new_owner()

    @property
    def away(self) -> bool:
        """Whether the store failed a moment ago: requests do not wait for it then."""
        return time.monotonic() < self._until

    def stay_away(self, error: Exception) -> None:
        """Do not ask the store for some time, unless the error is not the store's."""
        if isinstance(error, StoreError):
            self._until = time.monotonic() + _PAUSE
        _log.warning("something could not be recorded: %s", error)

    def claim(
        self, talk: LazyMessages, user: str | None, caller: str, name: str | None
    ) -> Conversation:
        """Return the conversation of a request, which no other request finds until it is answered.

        `user` is the user that the request names, `name` the client's name of the conversation.
        """
        if name is not None:
            return self._named(f"gateway/{name[:80]}/{_digest(caller, name)[:8]}")
        who = _digest(caller, user or "")
        newest, is_unsure = _digest(who, talk.pasts[-1]), False
        for place in _ends(talk.past):
            past, answer = _at(who, talk, place)
            stored = self._ask(partial(self._stored, past, answer))
            is_unsure |= stored is None
            with self._lock:
                match = self._choose(past, answer, stored or {}, place == len(talk.past))
                if match is not None:
                    return self._take(match, newest)
        new = f"gateway/{_digest(who, talk.first_digest)}-{uuid4().hex[:8]}"
        with self._lock:
            return self._take(Conversation(new, caller=who, is_unsure=is_unsure), newest)

    def requests_before(self, conversation: Conversation, talk: LazyMessages) -> dict[str, str]:
        """Return by which pasts the requests of a list before its last were found, and with which
        answers."""
        if not conversation.past:
            return {}
        ends = [place for place in _ends(talk.past) if place < len(talk.past)]
        return dict(_at(conversation.caller, talk, place) for place in ends)

    def check(
        self,
        conversation: Conversation,
        before: Mapping[str, str],
        at: Callable[[str], Iterable[tuple[str, str]]],
    ) -> None:
        """Refuse to begin a session (`ListDiverged`) for a conversation of which another gateway
        has recorded the requests before, or this one with the requests behind it."""
        wanted: list[tuple[str, tuple[str, ...]]] = [
            (past, (answer, WAITING)) for past, answer in before.items()
        ]
        answer = self._known_answer(conversation)
        if answer is not None:
            wanted.append((conversation.past, (f"{BEFORE}{answer}",)))
        for past, texts in wanted:
            for session, text in at(past):
                is_there = text in texts or (WAITING in texts and text.startswith(WAITING))
                if is_there and session != conversation.session:
                    raise ListDiverged(session)

    def follow(self, conversation: Conversation, talk: LazyMessages) -> None:
        """Move a conversation to the session in which another gateway recorded it; else to a
        session of its own. May block."""
        before, answer = conversation.session, self._known_answer(conversation)
        if answer is not None:
            rows = self._recorder.store.sessions_at(conversation.past, f"{BEFORE}{answer}")
            if len(rows) == 1:
                with self._lock:
                    self._rename(conversation, rows[0][0])
        if conversation.session == before:
            self.look_again(conversation, talk)
        if conversation.session == before:
            self._move(conversation)

    @staticmethod
    def _known_answer(conversation: Conversation) -> str | None:
        answer = None if conversation.answer is None else conversation.answer()
        return None if answer in (REFUSED, UNREAD) else answer

    def look_again(self, conversation: Conversation, talk: LazyMessages) -> None:
        """Find the session of a conversation that was not found in the store; may block."""
        for place in _ends(talk.past):
            past, answer = _at(conversation.caller, talk, place)
            stored = self._stored(past, answer)
            with self._lock:
                unheld = {name: digest for name, digest in stored.items() if name not in self._held}
                at_end = place == len(talk.past)
                match = self._choose(past, answer, unheld, at_end, is_held=False)
                if match is not None:
                    self._rename(conversation, match.session)
                    break
        conversation.is_unsure = False

    def _named(self, session: str) -> Conversation:
        stored = self._ask(lambda: self._recorder.frontier(session))
        with self._lock:
            held = self._held.get(session)
            there, here = _read(stored), _read(held.frontier if held else None)
            if held is None or here is None or (there is not None and there.count > here.count):
                held = Conversation(session, frontier=(stored or {}) if there else {})
            return self._take(held, "")

    def _stored(self, past: str, answer: str) -> dict[str, tuple[str, Mapping[str, Any]]]:
        """Return the stored conversations at a past: their answers and frontiers."""
        store = self._recorder.store
        rows = store.sessions_at(past)
        if len(rows) > 1:
            rows = store.sessions_at(past, answer) or rows
        return {
            name: (text, self._recorder.frontier(name) or {})
            for name, text in rows
            if not text.startswith(BEFORE)
        }

    def _choose(
        self,
        past: str,
        answer: str,
        stored: Mapping[str, tuple[str, Mapping[str, Any]]],
        is_again: bool,
        *,
        is_held: bool = True,
    ) -> Conversation | None:
        """Return the conversation at a past that goes on; None if there are several, or none.

        A list that comes again belongs to a request that was refused, or whose gateway is gone.
        """
        at = {}
        for session in self._pasts.get(past, ()) if is_held else ():
            held = self._held[session]
            at[session] = held, None if held.answer is None else held.answer()
        for session, (text, frontier) in stored.items():
            if session not in self._held:
                is_waiting = text.startswith(WAITING)
                if is_waiting and is_again and self._is_gone(text[len(WAITING) :]):
                    text = REFUSED
                candidate = Conversation(session, past, frontier=frontier)
                at[session] = candidate, None if text.startswith(WAITING) else text
        if is_again:
            at = {session: entry for session, entry in at.items() if entry[1] == REFUSED}
        same = [candidate for candidate, text in at.values() if text == answer]
        every = [candidate for candidate, _ in at.values()]
        return next((candidates[0] for candidates in (every, same) if len(candidates) == 1), None)

    def _is_gone(self, owner: str) -> bool:
        return owner != self.owner and is_gone(owner, None, datetime.now(UTC))

    def _take(self, before: Conversation, past: str) -> Conversation:
        successor = Conversation(before.session, past, before.caller, before.frontier)
        successor.is_unsure = before.is_unsure
        successor.before = self._held.get(before.session)
        if successor.before is not None:
            successor.before.before = None
        self._hold(successor)
        return successor

    def _hold(self, conversation: Conversation) -> None:
        self._drop(self._held.pop(conversation.session, None))
        self._held[conversation.session] = conversation
        if conversation.past:
            self._pasts.setdefault(conversation.past, set()).add(conversation.session)
        while len(self._held) > _HELD:
            self._drop(self._held.popitem(last=False)[1])

    def _drop(self, conversation: Conversation | None) -> None:
        if conversation is not None and conversation.past:
            sessions = self._pasts[conversation.past]
            sessions.discard(conversation.session)
            if not sessions:
                del self._pasts[conversation.past]

    def give_back(self, conversation: Conversation) -> None:
        """Let the next request find a conversation whose request was not sent."""
        self.let_go(conversation)
        with self._lock:
            if conversation.before is not None and conversation.session not in self._held:
                self._hold(conversation.before)

    def let_go(self, conversation: Conversation) -> None:
        """Hold a conversation no longer: it is stored."""
        with self._lock:
            if self._held.get(conversation.session) is conversation:
                self._drop(self._held.pop(conversation.session))

    def _move(self, conversation: Conversation) -> None:
        with self._lock:
            begin = conversation.session.rpartition("-")[0]
            self._rename(conversation, f"{begin}-{uuid4().hex[:8]}")

    def _rename(self, conversation: Conversation, session: str) -> None:
        is_held = self._held.get(conversation.session) is conversation
        if is_held:
            self._drop(self._held.pop(conversation.session))
        conversation.session = session
        if is_held:
            self._hold(conversation)

    def close(self) -> None:
        """Wait for no answers any more: another gateway may go on with their requests."""
        done(self.owner)

    def _ask(self, read: Callable[[], Any]) -> Any:
        """Read from the store, which is not waited for long; None if it does not answer."""
        if self.away:
            return None
        try:
            return self._recorder.reads.ask(read, _WAIT)
        except TimeoutError:
            return None
        except Exception as error:  # this process holds what it needs
            self.stay_away(error)
            return None


def caller_of(headers: Iterable[tuple[str, str]], query: str) -> str:
    """Return what tells callers apart: their keys in headers and address, or else their cookies."""
    headers = list(headers)
    pairs = [*headers, *parse_qsl(query, keep_blank_values=True, errors="replace")]
    keys = [value for name, value in pairs if name.lower().replace("_", "-") in _KEYS]
    return "\n".join(keys or [value for name, value in headers if name == "cookie"])


def name_of(headers: Mapping[str, str], body: Mapping[str, Any]) -> str | None:
    """Return the client's name of the conversation, if there is one."""
    metadata = body.get("metadata")
    names = [metadata.get(key) for key in _METADATA] if isinstance(metadata, Mapping) else []
    for name in (headers.get(HEADER), *names):
        if isinstance(name, str) and name.strip():
            return replace_surrogates(name.strip().replace("\x00", ""))
    return None


def answer_digest(messages: Sequence[Message]) -> str:
    """Return a digest of an answer, as it came or as a client sends it back."""
    texts = [message.text.strip() for message in messages]
    calls = [f"{call.id} {call.name}" for message in messages for call in message.tool_calls]
    return _digest("\n".join(filter(None, texts)), *calls)


def _at(caller: str, talk: LazyMessages, place: int) -> tuple[str, str]:
    """Return by which past a list is found that goes on at a place, and with which answer."""
    return _digest(caller, talk.pasts[place]), answer_digest(_answer(talk.past, place))


def _ends(past: Sequence[Message]) -> list[int]:
    """Return where requests may have ended: at the end, and where the newest answers begin."""
    ends = [len(past)] if past else []
    for place in range(len(past) - 1, 0, -1):
        if past[place].role == "assistant" and past[place - 1].role != "assistant":
            ends.append(place)
            if len(ends) > _ANSWERS:
                break
    return ends


def _answer(past: Sequence[Message], place: int) -> list[Message]:
    """Return the messages of the answer that begins at a place."""
    end = place
    while end < len(past) and past[end].role == "assistant":
        end += 1
    return [past[at] for at in range(place, end)]


def _read(frontier: Mapping[str, Any] | None) -> RequestTrace | None:
    with suppress(InvalidInput):  # written by another version: begin anew
        return RequestTrace.from_dict(frontier) if frontier else None
    return None


def _digest(*texts: str) -> str:
    """Return a digest that tells texts apart without revealing them."""
    return digest("".join(f"{len(text)}:{text}" for text in texts), 8)
