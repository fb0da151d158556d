"""Frontiers: what a request leaves to the next request of its conversation, as small as possible.

Owns its JSON, whether it belongs to a list of messages, and the table that finds it again where a
hook has no state.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol

from muntin.core.caching.frontier import Frontier, LazyFrontier
from muntin.core.checks import check_size, shown
from muntin.core.checks import digest as hashed
from muntin.core.digests import digest
from muntin.core.message import Message
from muntin.core.planning.memory import Start, locate
from muntin.errors import InvalidInput, InvalidType

_VERSION = 1
# A conversation is known by this many of its last messages.
_FEW = 4
# At most this many messages of a new list are recorded.
_NEWEST = 1_000
# How many openings the table knows, how many conversations of each, and how many windows.
_OPENINGS, _EACH, _WINDOWS = 1_024, 16, 32


class Talking(Protocol):
    """The known parts of a list: its messages behind the opening, and the first of them."""

    @property
    def past(self) -> Sequence[Message]:
        """The messages behind the opening."""

    @property
    def first_digest(self) -> str:
        """The digest of the first message behind the opening."""


@dataclass(frozen=True, slots=True)
class Left:
    """What a request leaves: where its past begins, and how its conversation is recognised.

    `opening` is the digest of the first message behind the opening, `behind` that of the message
    behind the frontier. There were `count` messages; `last` is a digest of the last few. `session`
    is where the conversation is recorded.
    """

    start: Start | None = None
    opening: str = ""
    behind: str = ""
    count: int = 0
    last: str = ""
    session: str = ""

    @classmethod
    def of(cls, start: Start | None, past: Sequence[Message], opening: str) -> Left:
        """Return what a request with this past leaves."""
        if not past:
            return cls(start)
        next_one = start.first + 1 if start is not None and start.digest is not None else len(past)
        behind = digest(past[next_one]) if next_one < len(past) else ""
        return cls(start, opening, behind, len(past), _ending(past, len(past)))

    @property
    def frontier(self) -> Frontier | None:
        """The frontier for the planner."""
        return None if self.start is None else Frontier((self.start,))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        start = {} if self.start is None else self.start.to_dict()
        told = {
            "version": _VERSION,
            "start": start,
            "opening": self.opening,
            "behind": self.behind,
            "count": self.count,
            "last": self.last,
        }
        return {**told, "session": self.session} if self.session else told

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Left:
        """Read what `to_dict` wrote; anything else is an error."""
        if data.get("version") != _VERSION:
            raise InvalidInput(
                f"previous: a frontier of version {shown(data.get('version'))} cannot be read, "
                f"only {_VERSION}; leave it out: the next request begins anew"
            )
        try:
            start = data["start"]
            starts = Frontier.from_dict({"starts": [start] if start else [], **_EMPTY}).starts
            opening, behind, last = (str(data[key]) for key in ("opening", "behind", "last"))
            count, session = check_size(data["count"], "count"), str(data.get("session", ""))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidInput(
                f"previous: this is no frontier that was written here: {shown(error)}"
            ) from error
        return cls(starts[0] if starts else None, opening, behind, count, last, session)

    def why_not(self, talk: Talking) -> str | None:
        """Say why this does not belong to the conversation of a list; None if it does."""
        past, start = talk.past, self.start
        same = not self.opening or talk.first_digest == self.opening
        if start is None or not (start.first or start.digest):
            return None if same else _ANOTHER
        found = locate(past, start)
        if found is None:
            return "the message at the frontier is not in the list any more" if same else _ANOTHER
        if same:
            return None
        # The list lost its beginning, or another conversation has the same message.
        known = start.digest is not None and found + 1 < len(past) and self.behind
        return None if known and digest(past[found + 1]) == self.behind else _ANOTHER

    def goes_on(self, talk: Talking) -> bool:
        """Say whether a list begins with all messages of that request."""
        past = talk.past
        return 0 < self.count <= len(past) and _ending(past, self.count) == self.last


def _ending(past: Sequence[Message], end: int) -> str:
    """Return one digest of the last few messages before a place: one alone may be in many lists."""
    last = [digest(past[place]) for place in range(max(0, end - _FEW), end)]
    return hashed(" ".join(last), 8)


_ANOTHER = "it is of another conversation: the first message is not the same"
_EMPTY: dict[str, Any] = {
    "version": 1,
    "marks": (),
    "tools": "",
    "digests": (),
    "runs": (),
    "lasting": 0,
    "lasting_tokens": 0,
}


def read_previous(given: Mapping[str, Any] | Frontier) -> Left:
    """Return the argument `previous` as a `Left`."""
    if isinstance(given, Frontier):
        return Left(given.starts[0] if given.starts else None)
    if not isinstance(given, Mapping):
        raise InvalidType(f"previous must be the frontier of a request, not {shown(given)}")
    return Left.from_dict(given)


def first_new(told: Mapping[str, Any] | None, talk: Talking) -> int:
    """Return the first new message of a list, by the frontier `told` of an earlier request.

    In a list without a frontier the newest turns are new; in a list that does not go on from the
    earlier request, the last turn is new.
    """
    past = talk.past
    try:
        left = Left.from_dict(told) if told else None
    except InvalidInput:  # written by another version
        left = None
    if left is not None and left.goes_on(talk):
        return left.count
    if left is None and len(past) <= _NEWEST:
        return 0
    places = range(len(past) - _NEWEST, len(past)) if left is None else reversed(range(len(past)))
    return next((place for place in places if past[place].role == "user"), len(past))


class Table:
    """Finds a conversation again by its name, or by its opening and its messages.

    It also holds the newest windows, so that reports can tell what a request shares with the one
    before. The table is bounded, and lost with the process.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._rows: OrderedDict[str, list[Left]] = OrderedDict()
        self._windows: OrderedDict[Left, LazyFrontier] = OrderedDict()

    def find(self, key: str, talk: Talking) -> Left | None:
        """Return what the newest request of a conversation left."""
        with self._lock:
            rows = list(self._rows.get(key, ()))
        on = [each for each in rows if each.goes_on(talk)]
        if on:
            return max(on, key=lambda each: each.count)
        moved = [each for each in rows if each.start is not None and each.start.digest]
        return next((each for each in moved if each.why_not(talk) is None), None)

    def known(self, left: Left | None) -> LazyFrontier | Frontier | None:
        """Return the window of a request, or its frontier if the window is no longer held."""
        if left is None:
            return None
        with self._lock:
            return self._windows.get(left) or left.frontier

    def put(
        self, key: str, left: Left, before: Left | None, window: LazyFrontier | Frontier
    ) -> None:
        """Store what a request left, in the place of what the request before it left."""
        with self._lock:
            rows = self._rows.setdefault(key, [])
            self._rows.move_to_end(key)
            rows[:] = [left, *(each for each in rows if each not in (before, left))][:_EACH]
            while len(self._rows) > _OPENINGS:
                self._rows.popitem(last=False)
            if isinstance(window, LazyFrontier):
                self._windows[left] = window
            while len(self._windows) > _WINDOWS:
                self._windows.popitem(last=False)
