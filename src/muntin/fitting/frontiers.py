"""Frontiers: what a request leaves to the next request of its conversation, as small as possible.

Owns its JSON, whether it belongs to a list of messages, by which digest of its past a conversation
is found again, and the table that finds it where a hook has no state.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from threading import Lock
from typing import Any, NamedTuple, Protocol, TypeAlias

from muntin.core.caching.frontier import Frontier, LazyFrontier, SentText, read_sent
from muntin.core.checks import check_size, shown
from muntin.core.checks import digest as hashed
from muntin.core.counting.book import CountedRequest
from muntin.core.counting.law import Size
from muntin.core.digests import digest
from muntin.core.message import Message
from muntin.core.planning.memory import ConversationState, locate
from muntin.core.usage import AnswerTokens, Usage
from muntin.errors import InvalidInput, InvalidType
from muntin.wire.reply import Reply

_VERSION = 1
# A conversation is known by this many of its last messages.
_FEW = 4
# At most this many messages of a new list are recorded.
_NEWEST = 1_000
# How many conversations and how many windows the table knows.
_CONVERSATIONS, _WINDOWS = 4_096, 32
# A conversation is looked for at so many of the newest places of a list, at which the request
# before may have ended.
_PLACES = 100
# What was reported is remembered of so many of the newest answers, and written of so many.
ANSWERS, _WRITTEN = 256, 24
# An answer is known by so many characters of its digest.
_SHORT = 6


# Returns the digest by which the beginning of a list is known that ends at a place.
Pasts: TypeAlias = Callable[[int], str]


# Returns what was reported of a request and its answer, or the answer, which holds it.
LaterUsage: TypeAlias = Callable[[], Usage | Reply | None]


class ConversationLike(Protocol):
    """The known parts of a list: its messages behind the opening, and the first of them."""

    @property
    def past(self) -> Sequence[Message]:
        """The messages behind the opening."""

    @property
    def first_digest(self) -> str:
        """The digest of the first message behind the opening."""

    @property
    def pasts(self) -> Sequence[str]:
        """The digests of the beginnings of the past, from none of its messages to all."""


class KnownAnswer(NamedTuple):
    """What was reported of an answer, which is known by the beginning of its digest.

    It had `reported` tokens of the newest request, which count as `counted` once it is forgotten.
    """

    digest: str
    output: int
    reasoning: int
    reported: int = 0
    counted: int = 0

    @classmethod
    def of(cls, message: Message, tokens: AnswerTokens) -> KnownAnswer:
        """Return what was reported of an answer."""
        return cls(digest(message)[:_SHORT], tokens.output, tokens.reasoning)


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """What a request leaves: where its past begins, and how its conversation is recognised.

    `opening` is the digest of the first message behind the opening, `behind` that of the message
    behind the frontier. There were `count` messages; `last` is a digest of the last few. `session`
    is where the conversation is recorded. `sent` proves the text of the request, where thoughts are
    bound to it. `counted` is the size of the request, `answers` what was reported of the newest
    answers before it.
    """

    start: ConversationState | None = None
    opening: str = ""
    behind: str = ""
    count: int = 0
    last: str = ""
    session: str = ""
    sent: SentText | None = None
    counted: CountedRequest | None = None
    answers: tuple[KnownAnswer, ...] = ()

    @classmethod
    def of(
        cls, start: ConversationState | None, past: Sequence[Message], opening: str
    ) -> RequestTrace:
        """Return what a request with this past leaves."""
        if not past:
            return cls(start)
        next_one = start.first + 1 if start is not None and start.digest is not None else len(past)
        behind = digest(past[next_one]) if next_one < len(past) else ""
        return cls(start, opening, behind, len(past), _ending(past, len(past)))

    def believes(self, reported: Usage | Reply) -> bool:
        """Say whether a report may be of this request."""
        usage = reported.usage if isinstance(reported, Reply) else reported
        return self.counted is None or self.counted.is_plausible(usage.request)

    @property
    def frontier(self) -> Frontier | None:
        """The frontier for the planner."""
        return None if self.start is None else Frontier((self.start,), sent=self.sent)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        start = {} if self.start is None else self.start.to_dict()
        data: dict[str, Any] = {
            "version": _VERSION,
            "start": start,
            "opening": self.opening,
            "behind": self.behind,
            "count": self.count,
            "last": self.last,
        }
        if self.sent is not None:
            data["sent"] = list(self.sent)
        if self.session:
            data["session"] = self.session
        if self.counted is not None:
            forgotten, (counted, answers, has_tools) = self.answers[:-_WRITTEN], self.counted.size
            counted += sum([answer.counted for answer in forgotten])
            answers = max(0, answers - sum([answer.reported for answer in forgotten]))
            size = Size(counted, answers, has_tools)
            data["counted"] = self.counted._replace(size=size).to_json()
        if self.answers:
            data["answers"] = [answer[:3] for answer in self.answers[-_WRITTEN:]]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RequestTrace:
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
            sent = read_sent(data.get("sent"))
            counted = data.get("counted")
            counted = None if counted is None else CountedRequest.from_json(counted)
            answers = tuple(
                KnownAnswer(str(name), check_size(output, "output"), check_size(thought, "output"))
                for name, output, thought in data.get("answers", ())
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidInput(
                f"previous: this is no frontier that was written here: {shown(error)}"
            ) from error
        start = starts[0] if starts else None
        return cls(start, opening, behind, count, last, session, sent, counted, answers)

    def why_not(self, talk: ConversationLike) -> str | None:
        """Say why this does not belong to the conversation of a list; None if it does."""
        past, start = talk.past, self.start
        same = not self.opening or talk.first_digest == self.opening
        if start is None or not (start.first or start.digest):
            return None if same else _ANOTHER
        match = locate(past, start)
        if match is None:
            return "the message at the frontier is not in the list any more" if same else _ANOTHER
        if same:
            return None
        # The list lost its beginning, or another conversation has the same message.
        has_next = start.digest is not None and match + 1 < len(past) and self.behind
        return None if has_next and digest(past[match + 1]) == self.behind else _ANOTHER

    def goes_on(self, talk: ConversationLike) -> bool:
        """Say whether a list begins with all messages of that request."""
        past = talk.past
        return 0 < self.count <= len(past) and _ending(past, self.count) == self.last


def digests_of_beginnings(past: Sequence[Message]) -> list[str]:
    """Return a digest of each beginning of a list, from none of its messages to all of them."""
    hashing = blake2b(digest_size=8)
    digests = [""]
    for message in past:
        hashing.update(digest(message).encode())
        digests.append(hashing.hexdigest())
    return digests


def quick_past(talk: ConversationLike, place: int) -> str:
    """Return a digest of what stands before a place that reads few messages: the first and the last
    few. It is enough where nothing is recorded."""
    return f"{talk.first_digest}/{place}/{_ending(talk.past, place)}"


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


def read_previous(previous: Mapping[str, Any] | Frontier) -> RequestTrace:
    """Return the argument `previous` as a `RequestTrace`."""
    if isinstance(previous, Frontier):
        return RequestTrace(previous.starts[0] if previous.starts else None, sent=previous.sent)
    if not isinstance(previous, Mapping):
        raise InvalidType(f"previous must be the frontier of a request, not {shown(previous)}")
    return RequestTrace.from_dict(previous)


def first_new(
    trace: RequestTrace | None, recorded: Sequence[str], talk: ConversationLike
) -> tuple[int, bool]:
    """Return the first message of a list that is not recorded yet, and whether the list goes on
    from the recorded one, or is a part of it.

    `left` is the frontier of the recorded request; `recorded` are the digests of beginnings that
    are recorded, the newest request's last. In a list without a frontier the newest turns are new;
    in a list that does not go on from the recorded one, the last turn is new.
    """
    past, pasts = talk.past, talk.pasts
    digests = {*recorded}
    place = next((at for at in range(len(past), 0, -1) if pasts[at] in digests), 0)
    if place:
        return place, place == len(past) or pasts[place] == recorded[-1]
    if trace is not None and trace.goes_on(talk):  # written by 0.2, or its past was edited
        return trace.count, True
    if trace is None and len(past) <= _NEWEST:
        return 0, True
    places = range(len(past) - _NEWEST, len(past)) if trace is None else reversed(range(len(past)))
    first = next((at for at in places if past[at].role == "user"), len(past))
    return first, trace is None


class ConversationTable:
    """Finds a conversation again by its name, or by the messages of its last request.

    Each conversation is found once, until it is put back: two lists with the same beginning never
    go on with one frontier, and a past that two conversations have is neither's. The table also
    holds the newest windows, so that reports can tell what a request shares with the one before.
    It is bounded, and lost with the process.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._rows: OrderedDict[tuple[str, str], RequestTrace | None] = OrderedDict()
        self._windows: OrderedDict[RequestTrace, LazyFrontier] = OrderedDict()
        self._usages: OrderedDict[tuple[str, int, str], Callable[[], Usage | Reply | None]] = (
            OrderedDict()
        )

    def enter_usage(self, trace: RequestTrace, usage: LaterUsage) -> None:
        """Note how to learn what the provider reported of a request and its answer."""
        with self._lock:
            self._usages[trace.opening, trace.count, trace.last] = usage
            while len(self._usages) > _CONVERSATIONS:
                self._usages.popitem(last=False)

    def take_usage(self, trace: RequestTrace) -> Usage | Reply | None:
        """Return what was reported of a request, and forget it."""
        with self._lock:
            usage = self._usages.pop((trace.opening, trace.count, trace.last), None)
        return None if usage is None else usage()

    def take(self, name: str | None, pasts: Pasts, talk: ConversationLike) -> RequestTrace | None:
        """Return what the newest request of a conversation left, and forget it.

        A conversation with a name is found by it even if its list was changed.
        """
        end = len(talk.past)
        with self._lock:
            for place in range(end, max(0, end - _PLACES), -1):
                key = (name or "", pasts(place))
                if key in self._rows:
                    trace = self._rows[key]
                    if trace is not None:
                        del self._rows[key]
                    return trace
            trace = None if name is None else self._rows.get((name, ""))
        if trace is None or not (trace.goes_on(talk) or trace.why_not(talk) is None):
            return None
        return trace

    def last_window(self, trace: RequestTrace | None) -> LazyFrontier | Frontier | None:
        """Return the window of a request, or its frontier if the window is no longer held."""
        if trace is None:
            return None
        with self._lock:
            return self._windows.get(trace) or trace.frontier

    def put(
        self,
        name: str | None,
        past: str,
        trace: RequestTrace,
        window: LazyFrontier | Frontier | None,
    ) -> None:
        """Store what a request with this past left."""
        with self._lock:
            key = (name or "", past)
            row = self._rows.get(key, trace)
            self._rows[key] = trace if row is not None and row.session == trace.session else None
            if name is not None:
                self._rows[name, ""] = trace
                self._rows.move_to_end((name, ""))
            while len(self._rows) > _CONVERSATIONS:
                self._rows.popitem(last=False)
            if isinstance(window, LazyFrontier):
                self._windows[trace] = window
            while len(self._windows) > _WINDOWS:
                self._windows.popitem(last=False)
