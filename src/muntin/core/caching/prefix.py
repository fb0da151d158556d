"""Prefix tracking: what a request shares with the one before, where the two part, and why.

Owns the one rule, and the words, for where two requests part. It compares the messages as they are
sent (`wire`), not the window's order. Compares and tells; decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from muntin.core.caching.frontier import TOOLS, Frontier, LazyFrontier, shared_chunks, text_chunks
from muntin.core.planning.draft import SlotPlan
from muntin.core.planning.slot import TIERS, VOLATILE
from muntin.core.profile import Caching
from muntin.core.report import Moved, Prefix
from muntin.core.thoughts import count_thoughts

_STABLE = TIERS[:2]  # pinned, stable

# The pieces that are sent, in order: a key that stands for the bytes of a piece, and its slot.
Pieces: TypeAlias = Sequence[tuple[Hashable, str]]

# Why two windows part, in the words of a report and in whole words.
REASONS = {
    "tools": "the tools changed",
    "lost": "the message with which it began is gone",
    "moved": "its oldest messages were left out or shortened",
    # As 0.2 wrote it.
    "stepped": "its oldest messages were left out in one step",
    "trimmed": "what stood here was left out, and what stood behind it moved up",
    "absent": "what stood here is gone",
    "added": "something was put in before what stood here",
    "changed": "its text changed",
}

# Patterns of text that changes from turn to turn. A bare "9:00" may well be the opening hours, so
# a clock time needs seconds, a date, or a word that says it is now.
_CHANGING_WORDS = (
    ("a UUID", re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)),
    (
        "a date with a time",
        re.compile(r"\b\d{4}-\d{2}-\d{2}[T ,]{1,2}\d{1,2}:\d{2}|\b\d{4},? (?:at )?\d{1,2}:\d{2}\b"),
    ),
    (
        "a clock time",
        re.compile(
            r"\b\d{1,2}:\d{2}:\d{2}\b|\b(?:now|time)\b(?: is)?\W{1,3}\d{1,2}:\d{2}\b",
            re.IGNORECASE,
        ),
    ),
)


def track(
    now: LazyFrontier,
    previous: LazyFrontier | Frontier | None,
    plans: Sequence[SlotPlan],
    *,
    tokens: int,
    caching: Caching | None,
    moved_from: LazyFrontier | None = None,
) -> Prefix:
    """Compare a window with the one before it. `moved_from` is the window that would have gone on
    with the thoughts that this one leaves out."""
    lost = {
        plan.conversation.name
        for plan in plans
        if plan.conversation is not None and plan.conversation.is_lost
    }
    frontier = now.frontier
    shared, expected = 0, now.settled_tokens
    warnings = [
        f"slot {name!r}: the message at which the history began was not found; it begins anew"
        for name in sorted(lost)
    ]
    warnings += _warn_of_changing_words(now, plans)
    moved: Moved | None = None
    unstable: tuple[str, ...] = ()
    if previous is not None:
        before = previous if isinstance(previous, Frontier) else previous.frontier
        moved = _find_move(now, before, plans, lost, moved_from is not None)
        unstable = _find_unstable(frontier, before, plans)
        shared = shared_tokens(now, before, moved_from)
    elif moved_from is not None:  # only its text was known
        has_stepped = moved_from.moved & now.moved
        name = min(has_stepped or now.moved, default="")
        moved = Moved(0, name, "moved" if has_stepped else "changed", 0)
    if caching is not None:
        shared, expected = caching.readable(shared), caching.readable(expected)
    return Prefix(
        hash=frontier.hash,
        tokens=shared,
        share=shared / tokens if tokens else 0.0,
        expected=expected,
        moved=moved,
        unstable=unstable,
        warnings=tuple(warnings),
    )


def shared_tokens(
    now: LazyFrontier, before: Frontier, moved_from: LazyFrontier | None = None
) -> int:
    """Return the tokens of the beginning that two requests share: the tokens of whole tools and
    messages, and of the text at which the requests part, where texts are compared in pieces."""
    if now.tools != before.tools:
        return now.tools_before(_common(now.schemas, before.schemas))
    place = _common(now.digests, before.digests)
    if moved_from is not None:  # its first thought left
        bare = (
            n for n, message in enumerate(moved_from.messages[:place]) if count_thoughts(message)
        )
        place = next(bare, place)
    tokens = now.tools_tokens + sum(now.sizes[:place])
    if place < min(len(now.messages), len(before.chunks)):
        chunks = shared_chunks(text_chunks(now.messages[place]), before.chunks[place])
        tokens += now.beginning_tokens(place, chunks)
    return tokens


def _common(now: Sequence[str], before: Sequence[str]) -> int:
    """Return how many of the first are equal."""
    both = zip(now, before, strict=False)
    return next((n for n, (new, old) in enumerate(both) if new != old), min(len(now), len(before)))


def find_changed_slots(now: LazyFrontier, before: LazyFrontier | Frontier) -> tuple[str, ...]:
    """Return the slots whose content was expected in this window unchanged, and is not there.

    A conversation that moved is not returned: it stays until it moves again.
    """
    trunk = before.trunk
    if now.tools == before.tools and now.digests[:trunk] == before.digests[:trunk]:
        return ()  # this request only adds messages, as most do
    frontier = before if isinstance(before, Frontier) else before.frontier
    new = [(now.tools, TOOLS), *zip(now.digests, now.labels, strict=True)]
    difference = find_difference(new, pieces(frontier)[: 1 + frontier.trunk])
    if difference is None:
        return ()
    old = pieces(frontier)
    names = [old[difference.place][1]]
    if difference.place < len(new) and all(new[difference.place][1] != label for _, label in old):
        names.append(new[difference.place][1])  # put in before the old content
    return tuple(name for name in names if name not in now.moved)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a request stops being like the one before: at which piece, by which slot, and why."""

    place: int
    slot: str
    reason: str

    @property
    def message(self) -> int:
        """The number of the message, in requests whose first piece is their tools."""
        return max(0, self.place - 1)


def pieces(frontier: Frontier) -> Pieces:
    """Return what a window sends: its tools as one piece, then its messages."""
    return [(frontier.tools, TOOLS), *zip(frontier.digests, frontier.labels, strict=True)]


def find_difference(
    now: Pieces, before: Pieces, reasons: Mapping[str, str] | None = None
) -> Difference | None:
    """Say where a request stops being like the one before; None if it only adds to it.

    Of the two slots that meet there, the one that stands first in the request is named. `reasons`
    are those by slot, as the decisions gave them.
    """
    both = enumerate(zip(now, before, strict=False))
    place = next((n for n, (new, old) in both if new[0] != old[0]), min(len(now), len(before)))
    if place == len(before):
        return None
    slot, order = before[place][1], [label for _, label in now]
    if place < len(now) and slot in order and order.index(slot) > order.index(order[place]):
        slot = order[place]
    return Difference(place, slot, (reasons or {}).get(slot) or _reason(now, before, place, slot))


def _reason(now: Pieces, before: Pieces, place: int, slot: str) -> str:
    """Say why two requests part, by the pieces that stand in them."""
    if place == 0 and slot == TOOLS:
        return "tools"
    if all(label != slot for _, label in now):
        return "absent"
    if all(label != slot for _, label in before):
        return "added"
    if place == len(now):
        return "trimmed"
    old, new = ({key: n for n, (key, _) in enumerate(pieces)} for pieces in (before, now))
    moves = [new[key] - old[key] for key, label in before[place:] if label == slot and key in new]
    nearest = min(moves, default=0)
    return "trimmed" if nearest < 0 else "added" if nearest > 0 else "changed"


def _find_move(
    now: LazyFrontier,
    before: Frontier,
    plans: Sequence[SlotPlan],
    lost: set[str],
    is_move: bool,
) -> Moved | None:
    """Say what moved the beginning that was expected to stay, if anything did; with `is_move`,
    anything that was sent."""
    frontier = now.frontier
    stay = len(before.digests) if is_move else before.lasting
    same_tools = frontier.tools == before.tools
    if same_tools and frontier.digests[:stay] == before.digests[:stay]:
        return None
    reasons = {plan.slot.name: "trimmed" for plan in plans if plan.is_cut}
    reasons |= dict.fromkeys(now.moved, "moved") | dict.fromkeys(lost, "lost")
    difference = find_difference(pieces(frontier), pieces(before), reasons)
    if difference is None or not (stay or before.tools):
        return None
    shared = now.tools_tokens + sum(now.sizes[: difference.message]) if same_tools else 0
    return Moved(
        difference.message,
        difference.slot,
        difference.reason,
        max(0, before.lasting_tokens - shared),
    )


def _find_unstable(now: Frontier, before: Frontier, plans: Sequence[SlotPlan]) -> tuple[str, ...]:
    """Name the slots whose tier promises unchanged bytes and whose bytes changed."""
    names = dict.fromkeys([plan.slot.name for plan in plans if plan.slot.place.tier in _STABLE])
    if not names:
        return ()
    new, old = dict[str, list[str]](), dict[str, list[str]]()
    for frontier, digests in ((now, new), (before, old)):
        for label, digest in zip(frontier.labels, frontier.digests, strict=True):
            if label in names:
                digests.setdefault(label, []).append(digest)
    return tuple(name for name in names if name in old and new.get(name) != old[name])


def _warn_of_changing_words(now: LazyFrontier, plans: Sequence[SlotPlan]) -> list[str]:
    """Warn of words that change by themselves in texts that are expected to stay."""
    tiers = {plan.slot.name: plan.slot.place.tier for plan in plans}
    warnings = []
    for label, run in groupby(zip(now.labels, now.messages, strict=True), key=lambda p: p[0]):
        # A text is expected to stay by its tier, else if it is system text.
        tier = tiers.get(label)
        fixed = (m for _, m in run if (m.role == "system" if tier is None else tier != VOLATILE))
        texts = [message.text for message in fixed]
        for what, pattern in _CHANGING_WORDS:
            match = next(filter(None, map(pattern.search, texts)), None)
            if match is not None:
                warnings.append(
                    f"slot {label!r} holds {what} ({match.group()!r}); if that changes every turn, "
                    "nothing behind it is found in the cache: move it to a volatile slot"
                )
    return warnings
