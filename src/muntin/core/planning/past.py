"""A past: the messages of several slots as one list, and finding a place in it again.

Knows messages and where a history began. Knows nothing of trimming.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import inf
from typing import Any

from muntin.core.message import Message, MessageLike, as_message, at_of, role_of
from muntin.core.planning.frontier import Start, digest

# How many messages are searched for a frontier that is not at its old place.
SEARCH = 1_000
# No message.
NOBODY = range(0)


class Past(Sequence[MessageLike]):
    """The messages of several slots, one behind the other."""

    def __init__(self, lists: Iterable[Sequence[MessageLike]]) -> None:
        self._lists = list(lists)
        self.offsets = [0, *accumulate(len(each) for each in self._lists)]

    def __len__(self) -> int:
        return self.offsets[-1]

    def place(self, index: int) -> int:
        """Return which of the lists a message stands in."""
        return bisect_right(self.offsets, index) - 1

    def __getitem__(self, index: Any) -> Any:
        place = self.place(index)
        return self._lists[place][index - self.offsets[place]]


def locate(items: Sequence[MessageLike], start: Start) -> int | None:
    """Find the message at which a history began; None if it is not there any more.

    A message is known by its item of a timeline, by its `at`, or by its bytes where it has none. In
    a list that only grew it is at its old place; in a list that lost its beginning, or got more in
    front, it is near its old place.
    """
    first = start.first
    if start.digest is None:  # everything was cut: all later messages are new
        return first if first <= len(items) else None
    if first < len(items) and _is_at(items[first], start):
        return first
    if start.at is not None:
        found = bisect_left(items, start.at, key=_sort_at)
        end = found
        while end < len(items) and at_of(items[end]) == start.at:
            end += 1
        # All messages of a run have the same position.
        same = [n for n in range(found, end) if item_of(items[n]) in (None, start.item)]
        exact = [n for n in same if digest(as_message(items[n])) == start.digest]
        places = exact or same or range(found, min(found + 1, len(items)))
        return next(iter(places), None)
    near = min(first, len(items))
    below = range(near - 1, max(-1, near - 1 - SEARCH), -1)
    above = range(near, min(len(items), near + SEARCH))
    return next((n for span in (below, above) for n in span if _is_at(items[n], start)), None)


def _is_at(item: MessageLike, start: Start) -> bool:
    if start.at is not None and (at_of(item), item_of(item)) != (start.at, start.item):
        return False
    return digest(as_message(item)) == start.digest


def ask_again(items: Sequence[MessageLike], start: Start, first: int) -> range:
    """Find the messages that asked for the run in which a history begins, now at message `first`.

    They stand at their old distance from `first`, or nearer if messages between were not read.
    """
    if not start.asks:
        return NOBODY
    place = start.asked + first - start.first
    stop = place + start.asks
    if place >= 0 and stop <= first and _asks(items[stop - 1], start):
        return range(place, stop)
    found = question_before(items, first)[-start.asks :]
    between = [items[n] for n in range(found.stop, first) if role_of(items[n]) == "assistant"]
    # An answer without calls in between ended the run that these messages asked for.
    return found if all(as_message(each).tool_calls for each in between) else NOBODY


def _asks(item: MessageLike, start: Start) -> bool:
    return role_of(item) == "user" and digest(as_message(item)) == start.question


def question_before(items: Sequence[MessageLike], place: int, least: int = 0) -> range:
    """Return the messages of the user that asked for the message at a place: the nearest before it,
    and none before the message `least`."""
    stop = place
    while stop > least and role_of(items[stop - 1]) != "user":
        stop -= 1
    first = stop
    while first > least and role_of(items[first - 1]) == "user":
        first -= 1
    return range(first, stop)


def item_of(message: MessageLike) -> int | None:
    """Return where a message stands on its timeline, if it is one of a timeline."""
    item = message.item if isinstance(message, Message) else None
    return None if item is None else item[1]


def _sort_at(item: MessageLike) -> float:
    at = at_of(item)
    return -inf if at is None else at
