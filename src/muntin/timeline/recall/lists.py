"""Recalling from a list of messages, which is indexed for one question or for several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from muntin.core.checks import shown
from muntin.core.counting.counter import Counter
from muntin.core.message import Message
from muntin.errors import InvalidInput, InvalidType
from muntin.timeline.recall.choose import check_query, choose
from muntin.timeline.recall.excerpts import Recalled, Spoken, group_of
from muntin.timeline.recall.index import Index
from muntin.timeline.recall.ranking import rank, understand
from muntin.timeline.recall.related import table

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


class MessageList:
    """A list of messages with its index; positions are the indices of the list."""

    def __init__(
        self, messages: Sequence[Message], times: Sequence[datetime | None] | None = None
    ) -> None:
        self._messages = messages
        self._times = _check_times(times, len(messages))
        self._index = Index()
        for number, message in enumerate(messages):
            time = self._times[number] if self._times else None
            day = None if time is None else time.date()
            text, role = indexed_text(message), indexed_role(message)
            self._index.add(text, name=message.name or "", role=role, day=day)

    def relevant(self, query: str, tokens: int, limit: int | None, counter: Counter) -> Recalled:
        """Return the messages that bear on a question, as one text of at most `tokens`."""
        check_query(query, tokens, limit)
        question = understand(self._index, query, table())
        hits = rank(self._index, question)
        return choose(hits, self._load, question, counter, tokens, limit)

    def _load(self, numbers: Sequence[int]) -> Mapping[int, Sequence[Spoken]]:
        groups = {}
        for number in numbers:
            first = max(0, number - NEAR)
            near = [self._spoken(place) for place in range(first, number + NEAR + 1)]
            here = [spoken for spoken in near if spoken is not None]
            groups[number] = group_of(here, number - first)
        return groups

    def _spoken(self, number: int) -> Spoken | None:
        if number >= len(self._messages):
            return None
        time = self._times[number] if self._times else None
        return Spoken(number, self._messages[number], time)


def _check_times(
    times: Sequence[datetime | None] | None, count: int
) -> Sequence[datetime | None] | None:
    if times is None:
        return None
    if not isinstance(times, Sequence) or isinstance(times, str):
        raise InvalidType(f"times must be a list of datetimes, not {shown(times)}")
    if len(times) != count:
        raise InvalidInput(f"times has {len(times)} entries for {count} messages")
    for time in times:
        if time is not None and not isinstance(time, datetime):
            raise InvalidType(f"times holds {shown(time)}, which is no datetime")
    return tuple(times)
