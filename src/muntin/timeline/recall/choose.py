"""Choosing: the excerpts for so many tokens, best first until the room is full."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from muntin.core.checks import check_count, check_size, check_text
from muntin.core.counting.counter import Counter
from muntin.core.message import Message
from muntin.timeline.recall.excerpts import Excerpt, Recalled, Spoken, tell, write
from muntin.timeline.recall.passages import Finder
from muntin.timeline.recall.ranking import Hit, Question

# Returns, for numbers of messages, each with its tool group as it is shown; what is hidden is not.
Load: TypeAlias = Callable[[Sequence[int]], Mapping[int, Sequence[Spoken]]]

# So many messages are loaded at once.
_BATCH = 24
# Looking ends when this is left of the room, or when so many in vain were looked at.
_LEAST, _VAIN = 8, 60
# What the line end, and a line for what lies between, may add to an excerpt.
_BESIDE = 3


def check_query(query: object, tokens: object, limit: object) -> None:
    """Refuse a question that is no text, or sizes that are none."""
    check_text(query, "query")
    check_size(tokens, "tokens")
    if limit is not None:
        check_count(limit, "limit")


def choose(
    hits: Iterable[Hit],
    load: Load,
    question: Question,
    counter: Counter,
    tokens: int,
    limit: int | None = None,
) -> Recalled:
    """Return the best of what was found, within `tokens` as one message."""
    finder = Finder(question.weights)
    left = tokens - counter.message(Message("user", write([Excerpt((0,), 0.0, (), "")])))
    chosen: list[Excerpt] = []
    taken: set[int] = set()
    following: Excerpt | None = None
    vain = 0
    for hit, group in _groups(hits, load):
        full = left < _LEAST or vain > _VAIN or (limit is not None and len(chosen) >= limit)
        known = not taken.isdisjoint(each.position for each in group)
        if known and not full:
            vain += 1
            continue
        each = tell(group, hit.score, finder)
        if each is None:
            continue
        if not full and (cost := counter.text_once(each.text) + _BESIDE) <= left:
            chosen.append(each)
            taken.update(each.positions)
            left -= cost
            continue
        following = following or each
        if full:
            break
        vain += 1
    return _within(chosen, following, counter, tokens)


def _groups(hits: Iterable[Hit], load: Load) -> Iterator[tuple[Hit, Sequence[Spoken]]]:
    found = iter(hits)
    while batch := list(islice(found, _BATCH)):
        groups = load([hit.number for hit in batch])
        yield from ((hit, groups[hit.number]) for hit in batch if groups.get(hit.number))


def _within(
    chosen: list[Excerpt], following: Excerpt | None, counter: Counter, tokens: int
) -> Recalled:
    """Write what was chosen; should the whole have more tokens than its parts, the worst goes."""
    while chosen:
        text = write(chosen)
        size = counter.message(Message("user", text))
        if size <= tokens:
            positions = sorted(position for each in chosen for position in each.positions)
            return Recalled(
                text, positions=positions, tokens=size, excerpts=chosen, following=following
            )
        following = chosen.pop()
    return Recalled(following=following)
