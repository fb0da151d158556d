"""Recalling from a list of messages, whose index is kept and grows with the list."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from threading import Lock
from typing import TypeAlias

from muntin.core.checks import shown
from muntin.core.counting.counter import Counter
from muntin.core.message import Input, Message
from muntin.errors import InvalidInput, InvalidType
from muntin.timeline.recall.choose import check_query, choose
from muntin.timeline.recall.excerpts import Recalled, Spoken, group_of
from muntin.timeline.recall.index import Index
from muntin.timeline.recall.ranking import rank, understand
from muntin.timeline.recall.related import table

# How many lists are kept with their indexes.
MOST_LISTS = 16
# How many of the best hits are looked at.
_BEST = 400
# The call of a result is searched among this many messages before it, its results behind it.
NEAR = 32


def indexed_text(message: Message) -> str:
    """Return the text by which a message is found: its text, calls, and names."""
    if message.role == "system":
        return ""
    if not message.tool_calls and not message.attachments:
        return message.text
    calls = [f"{call.name} {call.arguments}" for call in message.tool_calls]
    return "\n".join((message.text, *calls, *(file.name for file in message.attachments)))


def indexed_role(message: Message) -> str:
    """Return the role with which a message is indexed: a call is no prose of the assistant."""
    return "tool" if message.tool_calls else message.role


# The times of messages; empty if none is known.
Times: TypeAlias = tuple[datetime | None, ...]


class MessageList:
    """A list of messages with its index, which grows with the list; positions are the indices."""

    def __init__(self) -> None:
        self.messages: tuple[Message, ...] = ()
        self.times: Times = ()
        self._index = Index()
        self._lock = Lock()

    def relevant(
        self,
        messages: tuple[Message, ...],
        times: Times,
        query: str,
        tokens: int,
        limit: int | None,
        counter: Counter,
        shown: Collection[int],
        results: bool,
    ) -> Recalled | None:
        """Return the messages that bear on a question; None if the list does not begin with the
        messages that are here."""
        with self._lock:
            size = len(self.messages)
            if messages[:size] != self.messages or times[:size] != self.times:
                return None
            self._extend(messages, times)
            question = understand(self._index, query, table())
            ranked = (hit for hit in rank(self._index, question) if hit.number not in shown)
            hits = list(islice(ranked, _BEST))
            sizes = {hit.number: self._index.sizes[hit.number] for hit in hits}
        load = partial(_load, messages, times, shown, results)
        return choose(hits, sizes, load, question, counter, tokens, limit)

    def _extend(self, messages: tuple[Message, ...], times: Times) -> None:
        for number in range(len(self.messages), len(messages)):
            message, time = messages[number], times[number] if times else None
            text, role = indexed_text(message), indexed_role(message)
            day = None if time is None else time.date()
            self._index.add(text, name=message.name or "", role=role, day=day)
        self.messages, self.times = messages, times


# The lists used last; each is found by the messages that it begins with.
_lists: list[MessageList] = []
_lists_lock = Lock()


def relevant(
    messages: tuple[Message, ...],
    query: str | Input,
    tokens: int,
    counter: Counter,
    *,
    limit: int | None = None,
    times: Sequence[datetime | None] | None = None,
    shown: Collection[int] = (),
    results: bool = True,
) -> Recalled:
    """Return the messages that bear on a question, as one text of at most `tokens`.

    The messages at the indices `shown` are not recalled; without `results` the results of tools are
    left out.
    """
    query = check_query(query, tokens, limit)
    checked = _check_times(times, len(messages))
    with _lists_lock:
        longest_first = sorted(_lists, key=lambda known: -len(known.messages))
    for known in longest_first:
        found = known.relevant(messages, checked, query, tokens, limit, counter, shown, results)
        if found is not None:
            _use(known)
            return found
    made = MessageList()
    recalled = made.relevant(messages, checked, query, tokens, limit, counter, shown, results)
    _use(made)
    return recalled or Recalled()


def _use(known: MessageList) -> None:
    """Remember a list as the one used last."""
    with _lists_lock:
        _lists[:] = [other for other in _lists if other is not known][1 - MOST_LISTS :]
        _lists.append(known)


def _load(
    messages: Sequence[Message],
    times: Times,
    shown: Collection[int],
    results: bool,
    numbers: Sequence[int],
) -> Mapping[int, Sequence[Spoken]]:
    """Return messages by number, each with its tool group."""

    def spoken(place: int) -> Spoken:
        return Spoken(place, messages[place], times[place] if times else None)

    groups: dict[int, Sequence[Spoken]] = {}
    for number in numbers:
        message = messages[number]
        if not message.tool_calls and message.tool_call_id is None and message.role != "tool":
            groups[number] = [spoken(number)]
            continue
        first, end = max(0, number - NEAR), min(len(messages), number + NEAR + 1)
        group = group_of(list(map(spoken, range(first, end))), number - first)
        groups[number] = [
            part
            for part in group
            if part.position not in shown and (results or part.message.role != "tool")
        ]
    return groups


def _check_times(times: Sequence[datetime | None] | None, count: int) -> Times:
    if times is None:
        return ()
    if not isinstance(times, Sequence) or isinstance(times, str):
        raise InvalidType(f"times must be a list of datetimes, not {shown(times)}")
    if len(times) != count:
        raise InvalidInput(f"times has {len(times)} entries for {count} messages")
    for time in times:
        if time is not None and not isinstance(time, datetime):
            raise InvalidType(f"times holds {shown(time)}, which is no datetime")
    return tuple(times)
