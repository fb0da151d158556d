"""Choosing: the excerpts for a number of tokens, best first until the room is full."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import TypeAlias

from muntin.core.checks import check_count, check_size, check_text
from muntin.core.counting.counter import Counter
from muntin.core.message import Input, Message
from muntin.timeline.recall.excerpts import Excerpt, Finder, Recalled, Spoken, tell, write
from muntin.timeline.recall.ranking import Hit, Question

# Returns messages by number, each with its tool group, as shown; hidden ones are left out.
Load: TypeAlias = Callable[[Sequence[int]], Mapping[int, Sequence[Spoken]]]

# This many messages are loaded at once.
_BATCH = 24
# The search ends when this many tokens are left, or after this many messages in vain.
_LEAST, _VAIN = 8, 60
# So many characters a token has usually, and at most.
_USUAL, _MOST = 4, 8


def check_query(query: object, tokens: object, limit: object) -> str:
    """Return the text of a question; refuse what is no text, or invalid sizes."""
    text = check_text(query.text if isinstance(query, Input) else query, "query")
    check_size(tokens, "tokens")
    if limit is not None:
        check_count(limit, "limit")
    return text


def choose(
    hits: Iterable[Hit],
    sizes: Mapping[int, int] | Sequence[int],
    load: Load,
    question: Question,
    counter: Counter,
    tokens: int,
    limit: int | None = None,
) -> Recalled:
    """Return the best of the hits, within `tokens` as one message.

    By their `sizes`, in characters by number, only hits are read that may fit.
    """
    finder = Finder(question.worths, question.weights)
    room = tokens - counter.message(Message("user", write([Excerpt((0,), 0.0, (), "")])))
    chosen: list[Excerpt] = []
    chosen_positions: set[int] = set()
    days: set[date] = set()
    following: Excerpt | None = None
    vain = 0
    too_large: list[Hit] = []
    remaining, full = iter(hits), False
    while not full and (batch := _fitting(remaining, sizes, room, too_large)):
        groups = load([hit.number for hit in batch])
        for hit in batch:
            group = groups.get(hit.number)
            full = room < _LEAST or vain > _VAIN or (limit is not None and len(chosen) >= limit)
            if not group:
                continue
            if not full and any(spoken.position in chosen_positions for spoken in group):
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
    if too_large and (following is None or following.score < too_large[0].score):
        group = load([too_large[0].number]).get(too_large[0].number, ())
        following = tell(group, too_large[0].score, finder) or following
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


def _fitting(
    hits: Iterator[Hit], sizes: Mapping[int, int] | Sequence[int], room: int, too_large: list[Hit]
) -> list[Hit]:
    """Return the next hits to be read: those that may fit, until they fill the room twice."""
    batch: list[Hit] = []
    total = 0
    for hit in hits:
        if sizes[hit.number] // _MOST > room:
            too_large.append(hit)
            if len(too_large) > _VAIN:
                break
            continue
        batch.append(hit)
        total += sizes[hit.number] // _USUAL
        if len(batch) == _BATCH or total > 2 * room:
            break
    return batch
