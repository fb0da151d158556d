"""Choosing: the excerpts for a number of tokens, best first until the room is full."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from itertools import islice
from typing import TypeAlias

from muntin.core.checks import check_count, check_size, check_text
from muntin.core.counting.counter import Counter
from muntin.core.message import Message
from muntin.timeline.recall.excerpts import Excerpt, Finder, Recalled, Spoken, tell, write
from muntin.timeline.recall.ranking import Hit, Question

# Returns messages by number, each with its tool group, as shown; hidden ones are left out.
Load: TypeAlias = Callable[[Sequence[int]], Mapping[int, Sequence[Spoken]]]

# This many messages are loaded at once.
_BATCH = 24
# The search ends when this many tokens are left, or after this many messages in vain.
_LEAST, _VAIN = 8, 60


def check_query(query: object, tokens: object, limit: object) -> None:
    """Refuse a question that is no text, or invalid sizes."""
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
    """Return the best of the hits, within `tokens` as one message."""
    finder = Finder(question.worths, question.weights)
    room = tokens - counter.message(Message("user", write([Excerpt((0,), 0.0, (), "")])))
    chosen: list[Excerpt] = []
    chosen_positions: set[int] = set()
    days: set[date] = set()
    following: Excerpt | None = None
    vain = 0
    for hit, group in _groups(hits, load):
        full = room < _LEAST or vain > _VAIN or (limit is not None and len(chosen) >= limit)
        is_chosen = not chosen_positions.isdisjoint(spoken.position for spoken in group)
        if is_chosen and not full:
            vain += 1
            continue
        excerpt = tell(group, hit.score, finder)
        if excerpt is None:
            continue
        cost = counter.text_once(f"{excerpt.text}\n")
        if excerpt.day is not None and excerpt.day not in days:
            cost += counter.text(f"{excerpt.day}\n")
        if not full and cost <= room:
            chosen.append(excerpt)
            days.update(filter(None, [excerpt.day]))
            chosen_positions.update(excerpt.positions)
            room -= cost
            continue
        following = following or excerpt
        if full:
            break
        vain += 1
    # If the whole has too many tokens, the worst excerpts go.
    while chosen:
        text = write(chosen)
        size = counter.message(Message("user", text))
        if size <= tokens:
            positions = sorted(position for excerpt in chosen for position in excerpt.positions)
            return Recalled(
                text, positions=positions, tokens=size, excerpts=chosen, following=following
            )
        following = chosen.pop()
    return Recalled(following=following)


def _groups(hits: Iterable[Hit], load: Load) -> Iterator[tuple[Hit, Sequence[Spoken]]]:
    remaining = iter(hits)
    while batch := list(islice(remaining, _BATCH)):
        groups = load([hit.number for hit in batch])
        yield from ((hit, groups[hit.number]) for hit in batch if groups.get(hit.number))
