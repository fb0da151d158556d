"""Frontiers: what a request leaves to the next one of its conversation, as small as it may be.

Owns the JSON of it, whether it belongs to a list of messages, and the table that finds it again
where a hook has no state.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from threading import Lock
from typing import Any

from muntin.core.checks import shown
from muntin.core.message import Message
from muntin.core.planning.frontier import Frontier, Start, digest
from muntin.core.planning.past import locate
from muntin.errors import InvalidInput, InvalidType

_VERSION = 1
# How many openings the table knows, and conversations of each.
_OPENINGS, _EACH = 1_024, 16


@dataclass(frozen=True, slots=True)
class Left:
    """What a request left: where its past began, and by what its conversation is known.

    `opening` is the digest of the first message that is not the system's; the list had `count`
    messages, the last with the digest `last`.
    """

    start: Start | None = None
    opening: str = ""
    count: int = 0
    last: str = ""

    @classmethod
    def of(cls, frontier: Frontier | None, talk: Sequence[Message], opening: int) -> Left:
        """Return what is known of a list of messages; `opening` of them are the system's."""
        start = frontier.starts[0] if frontier is not None and frontier.starts else None
        if len(talk) <= opening:
            return cls(start)
        first, last = digest(talk[opening]), digest(talk[len(talk) - 1])
        return cls(start, first, len(talk) - opening, last)

    @property
    def frontier(self) -> Frontier | None:
        """What the planner goes by."""
        return None if self.start is None else Frontier((self.start,))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        start = {} if self.start is None else asdict(self.start)
        return {
            "version": _VERSION,
            "start": {key: each for key, each in start.items() if each is not None},
            "opening": self.opening,
            "count": self.count,
            "last": self.last,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Left:
        """Read what `to_dict` wrote; anything else is an error."""
        if data.get("version") != _VERSION:
            raise InvalidInput(
                f"previous: a frontier of version {shown(data.get('version'))} cannot be read, "
                f"only {_VERSION}; leave it out: the next request begins anew"
            )
        try:
            told = data["start"]
            whole = {"version": 1, "starts": [told] if told else [], **_EMPTY}
            starts = Frontier.from_dict(whole).starts
            start = starts[0] if starts else None
            return cls(start, str(data["opening"]), int(data["count"]), str(data["last"]))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(
                f"previous: this is no frontier that was written here: {shown(error)}"
            ) from error

    def why_not(self, talk: Sequence[Message], opening: int) -> str | None:
        """Say why this is not of the conversation that a list shows; None if it is."""
        past = talk[opening:] if isinstance(talk, list) else _Behind(talk, opening)
        start = self.start
        if start is not None and start.digest is not None and locate(past, start) is None:
            return "the message at the frontier is not in the list"
        if not past or digest(past[0]) == self.opening:
            return None
        if start is not None and start.digest is not None:
            return None  # the list lost its beginning
        return "it is of another conversation: the first message is not the same"

    def goes_on(self, talk: Sequence[Message], opening: int) -> bool:
        """Say whether a list begins with all that was there."""
        place = opening + self.count - 1
        return self.count > 0 and place < len(talk) and digest(talk[place]) == self.last


_EMPTY: dict[str, Any] = {
    "marks": (),
    "tools": "",
    "digests": (),
    "runs": (),
    "lasting": 0,
    "lasting_tokens": 0,
}


class _Behind(Sequence[Message]):
    """A list of messages without the first so many."""

    def __init__(self, talk: Sequence[Message], first: int) -> None:
        self._talk, self._first = talk, first

    def __len__(self) -> int:
        return max(0, len(self._talk) - self._first)

    def __getitem__(self, index: Any) -> Any:
        return self._talk[self._first + index]


def read_previous(given: Mapping[str, Any] | Frontier) -> Left:
    """Return what was given as `previous`."""
    if isinstance(given, Frontier):
        return Left(given.starts[0] if given.starts else None)
    if not isinstance(given, Mapping):
        raise InvalidType(f"previous must be the frontier of a request, not {shown(given)}")
    return Left.from_dict(given)


@dataclass(slots=True)
class Table:
    """Finds a conversation again by its name, or by its opening and what was in it."""

    _lock: Lock = field(default_factory=Lock)
    _rows: OrderedDict[str, list[Left]] = field(default_factory=OrderedDict)

    def find(self, key: str, talk: Sequence[Message], opening: int) -> Left | None:
        """Return what the newest request of a conversation left."""
        with self._lock:
            rows = list(self._rows.get(key, ()))
        on = [each for each in rows if each.goes_on(talk, opening)]
        if on:
            return max(on, key=lambda each: each.count)
        moved = [each for each in rows if each.start is not None and each.start.digest]
        return next((each for each in moved if each.why_not(talk, opening) is None), None)

    def put(self, key: str, left: Left, before: Left | None) -> None:
        """Note what a request left, in the place of what the one before it had left."""
        with self._lock:
            rows = self._rows.setdefault(key, [])
            self._rows.move_to_end(key)
            rows[:] = [left, *(each for each in rows if each not in (before, left))][:_EACH]
            while len(self._rows) > _OPENINGS:
                self._rows.popitem(last=False)
