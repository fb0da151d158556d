"""Prefix tracking: what a window shares with the one before, and what may spoil the next.

It compares and tells; it decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby, takewhile

from muntin.core.message import Message
from muntin.core.planning.frontier import Frontier, LazyFrontier
from muntin.core.planning.slot import TIERS, VOLATILE
from muntin.core.planning.verdict import SlotPlan
from muntin.core.profile import Caching
from muntin.core.report import Moved, Prefix

_STABLE = TIERS[:2]  # pinned, stable
TOOLS = "(tools)"

# What changes from turn to turn when it is written into a text. A bare "9:00" may well be the
# opening hours, so a clock time needs seconds, a date, or a word that says it is now.
_RESTLESS = (
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
) -> Prefix:
    """Compare a window with the one before it."""
    stepped = {each.slot.name for each in plans if each.step and each.step.moved}
    lost = {each.slot.name for each in plans if each.step and each.step.lost}
    frontier = now.frontier
    kept = now.trunk_tokens
    if caching is not None and kept < caching.min_prefix:
        kept = 0
    warnings = [
        f"slot {name!r}: the message at which the history began was not found; it begins anew"
        for name in sorted(lost)
    ]
    warnings += _restless(now, plans)
    moved: Moved | None = None
    unstable: tuple[str, ...] = ()
    if previous is not None:
        before = previous if isinstance(previous, Frontier) else previous.frontier
        moved = _moved(now, before, plans, stepped, lost)
        unstable = _unstable(frontier, before, plans)
    return Prefix(
        hash=frontier.hash,
        tokens=kept,
        share=kept / tokens if tokens else 0.0,
        moved=moved,
        unstable=unstable,
        warnings=tuple(warnings),
    )


def common(now: Frontier, before: Frontier) -> int:
    """Return how many messages two windows begin with alike."""
    if now.tools != before.tools:
        return 0
    pairs = zip(now.digests, before.digests, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _moved(
    now: LazyFrontier,
    before: Frontier,
    plans: Sequence[SlotPlan],
    stepped: set[str],
    lost: set[str],
) -> Moved | None:
    """Say what moved the beginning that was expected to stay, if anything did."""
    frontier = now.frontier
    if frontier.tools != before.tools:
        if not before.tools and not before.lasting:
            return None
        return Moved(0, TOOLS, "tools", before.lasting_tokens)
    same = common(frontier, before)
    if same >= before.lasting:
        return None
    found = now.tools_tokens + sum(now.sizes[:same])
    was = before.labels[same]
    label = now.labels[same] if same < len(now.labels) else was
    order = {each.slot.name: place for place, each in reversed(list(enumerate(plans)))}
    slot = was if order.get(was, -1) <= order.get(label, -1) else label
    cut = {each.slot.name for each in plans if each.is_cut()}
    reasons = (
        ("lost", slot in lost),
        ("stepped", slot in stepped),
        ("trimmed", slot in cut),
        ("absent", slot not in now.labels),
        ("added", slot not in before.labels),
    )
    reason = next((word for word, holds in reasons if holds), "changed")
    return Moved(same, slot, reason, max(0, before.lasting_tokens - found))


def _unstable(now: Frontier, before: Frontier, plans: Sequence[SlotPlan]) -> tuple[str, ...]:
    """Name the slots whose tier promises what their bytes did not keep."""
    new, old = _by_slot(now), _by_slot(before)
    names = dict.fromkeys(each.slot.name for each in plans if each.slot.tier in _STABLE)
    return tuple(name for name in names if name in old and new.get(name) != old[name])


def _by_slot(frontier: Frontier) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for label, each in zip(frontier.labels, frontier.digests, strict=True):
        found.setdefault(label, []).append(each)
    return found


def _restless(now: LazyFrontier, plans: Sequence[SlotPlan]) -> list[str]:
    """Warn of what changes by itself in texts that are expected to stay as they are."""
    tiers = {each.slot.name: each.slot.tier for each in plans}
    warnings = []
    for label, run in groupby(zip(now.labels, now.messages, strict=True), key=lambda p: p[0]):
        texts = [m.text for _, m in run if _is_fixed(m, tiers.get(label))]
        for what, pattern in _RESTLESS:
            match = next(filter(None, map(pattern.search, texts)), None)
            if match is not None:
                warnings.append(
                    f"slot {label!r} holds {what} ({match.group()!r}); if that changes every turn, "
                    "nothing behind it is found in the cache: move it to a volatile slot"
                )
    return warnings


def _is_fixed(message: Message, tier: str | None) -> bool:
    """A tier says that a text stays; so does being system text, unless its tier denies it."""
    return tier != VOLATILE and (tier is not None or message.role == "system")
