"""Which conversation a request belongs to, and the frontier of the request before it.

Owns the names of sessions, salted with the API key so that two clients never meet, and the lookup
of frontiers in the store, which gateways of many processes share.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any

from muntin.core.checks import digest, replace_surrogates
from muntin.core.digests import digest as message_digest
from muntin.errors import InvalidInput
from muntin.fitting import Recorder
from muntin.fitting.frontiers import Left
from muntin.fitting.talk import Talk

# The header in which clients name the conversation of a request.
HEADER = "x-muntin-session"
_METADATA = ("session_id", "conversation_id", "thread_id")
_KEYS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
# How many conversations with the same opening are told apart; how many are held in memory.
_EACH, _HELD = 8, 4_096
# For how many seconds a store that failed is not asked.
_PAUSE = 5.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Conversation:
    """The session of a request, and the frontier of the request before."""

    session: str
    previous: Mapping[str, Any]


class Conversations:
    """Finds conversations in a store, and holds frontiers that are not stored yet."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._held: OrderedDict[str, Mapping[str, Any]] = OrderedDict()
        self._lock = Lock()
        self._until = 0.0

    @property
    def away(self) -> bool:
        """Whether the store failed a moment ago: requests do not wait for it then."""
        return time.monotonic() < self._until

    def stay_away(self, error: Exception) -> None:
        """Do not ask the store for some time; an error of the value alone does not count."""
        if not isinstance(error, InvalidInput):
            self._until = time.monotonic() + _PAUSE
        _log.warning("something could not be recorded: %s", type(error).__name__)

    def find(
        self, talk: Talk, user: str | None, headers: Mapping[str, str], body: Mapping[str, Any]
    ) -> Conversation:
        """Return the conversation of a request; a new one if it is not known.

        `user` is the user that the request names.
        """
        salt = next((headers[key] for key in _KEYS if key in headers), "")
        name = _name(headers, body)
        if name is not None:
            session = f"gateway/{name[:80]}/{_digest(salt, name)[:8]}"
            frontier, left = self._left(session)
            return Conversation(session, frontier if left is not None else {})
        opening = _digest(salt, user or "", talk.first_digest)
        moved: Conversation | None = None
        for number in range(1, _EACH + 1):
            session = f"gateway/{opening}" + (f"-{number}" if number > 1 else "")
            frontier, left = self._left(session)
            if left is None:
                return moved or Conversation(session, {})
            if left.goes_on(talk):
                return Conversation(session, frontier)
            if moved is None and left.start is not None and left.start.digest is not None:
                moved = Conversation(session, frontier) if left.why_not(talk) is None else None
        past = talk.past
        last = message_digest(past[len(past) - 1]) if past else ""
        return moved or Conversation(f"gateway/{opening}-{last}", {})

    def hold(self, session: str, frontier: Mapping[str, Any]) -> None:
        """Hold the frontier of a request until it is stored."""
        with self._lock:
            self._held[session] = frontier
            self._held.move_to_end(session)
            while len(self._held) > _HELD:
                self._held.popitem(last=False)

    def let_go(self, session: str, frontier: Mapping[str, Any]) -> None:
        """Drop a held frontier that is stored now."""
        with self._lock:
            if self._held.get(session) is frontier:
                del self._held[session]

    def _left(self, session: str) -> tuple[Mapping[str, Any], Left | None]:
        """Return the frontier of the newest request of a session, of this or another process: as it
        is stored, and as it was read; None if it cannot be read."""
        with self._lock:
            held = self._held.get(session)
        stored: Mapping[str, Any] | None = None
        if not self.away:
            try:
                stored = self._recorder.frontier(session)
            except Exception as error:  # use what this process holds
                self.stay_away(error)
        there, here = _read(stored), _read(held)
        if here is None or (there is not None and there.count > here.count):
            return stored or {}, there
        return held or {}, here


def _read(frontier: Mapping[str, Any] | None) -> Left | None:
    with suppress(InvalidInput):  # written by another version: begin anew
        return Left.from_dict(frontier) if frontier else None
    return None


def _name(headers: Mapping[str, str], body: Mapping[str, Any]) -> str | None:
    """Return the client's name of the conversation, if there is one."""
    metadata = body.get("metadata")
    names = [metadata.get(key) for key in _METADATA] if isinstance(metadata, Mapping) else []
    for name in (headers.get(HEADER), *names):
        if isinstance(name, str) and name.strip():
            return replace_surrogates(name.strip().replace("\x00", ""))
    return None


def _digest(*texts: str) -> str:
    """Return a digest that tells texts apart without revealing them."""
    return digest("".join(f"{len(text)}:{text}" for text in texts), 8)
