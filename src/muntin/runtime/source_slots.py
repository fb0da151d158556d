"""The slots of an entity's window: its sources and entries, declared for the engine.

The engine trims, shares and orders. This module owns which slot gives first.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from muntin.core.message import Message
from muntin.core.parts import Text
from muntin.core.planning.slot import EXACT, Group, Pool, Tier, Trimming
from muntin.core.planning.slots import Slots
from muntin.core.tags.xml import block, escape_text
from muntin.runtime.sources import Loaded
from muntin.timeline.entries import ContextEntry
from muntin.timeline.markers import Earlier, EntryRest, Rest
from muntin.timeline.past import NewestMessages

# The slot with the lowest priority gives first when room is short.
PRIORITIES: dict[Tier, int] = {"volatile": 10, "slow-changing": 30, "stable": 40, "pinned": 50}
ENTRIES = 20

_VOLATILE = Group("volatile", interleave=True, share=True)
_ENTRIES = Group("entries", join="\n")
# Before and behind every date.
_FIRST, _LAST = -sys.float_info.max, sys.float_info.max


def declare_sources(
    slots: Slots,
    loaded: Sequence[Loaded],
    entries: Sequence[ContextEntry],
    *,
    pool: Pool,
    trimming: Trimming,
    recovers: bool = True,
) -> None:
    """Declare the slots of the sources and of the entries, all in one pool; `trimming` applies to
    timelines.

    With `recovers` the agent has the tools that read cut parts, and markers name the tools.
    """
    for loaded_source in loaded:
        if loaded_source.source.cache != "volatile":
            _declare(slots, loaded_source, pool, trimming, recovers)
    for entry in entries:
        _declare_entry(slots, entry, pool, recovers)
    for loaded_source in loaded:
        if loaded_source.source.cache == "volatile":
            _declare(slots, loaded_source, pool, trimming, recovers)


def _declare_entry(slots: Slots, entry: ContextEntry, pool: Pool, recovers: bool) -> None:
    """Declare one entry, a part of the message of all entries: the oldest is cut first."""
    opening, closing = entry.frame()
    slots.add(
        f"entries/{entry.id}",
        entry.render(),
        role="system",
        tier="slow-changing",
        priority=ENTRIES,
        group=_ENTRIES,
        pool=pool,
        trim_behavior="char",
        keep="head",
        frame=(opening, closing),
        marker=EntryRest(entry.id, len(escape_text(entry.content)), entry.inserted_at, recovers),
    )


def _declare(slots: Slots, loaded: Loaded, pool: Pool, trimming: Trimming, recovers: bool) -> None:
    source = loaded.source
    snapshot = loaded.snapshot if recovers else ""
    volatile = source.cache == "volatile"
    options: dict[str, Any] = {
        "tier": source.cache,
        "priority": PRIORITIES[source.cache],
        "max_tokens": source.max,
        "pool": pool,
        "group": _VOLATILE if volatile else None,
    }
    before = volatile and source.place == "before"
    if before and not any(message.at is not None for message in loaded.messages):
        options["detail"] = "comes before the conversation: when it changes, the cache is lost"
    at = None if not volatile else _FIRST if before else _LAST
    if loaded.error is not None:
        slots.exclude(loaded.name, reason="source_failed", detail=loaded.error)
        text = f"[source {loaded.name!r} could not be read]"
        slots.add(
            loaded.name, text, role="system", trim_behavior="slot", at=at, changes=True, **options
        )
    elif loaded.messages:
        _declare_list(slots, loaded, at, trimming, options, recovers)
    elif loaded.text:
        rest = Rest(loaded.name, loaded.size, len(loaded.text), source.keep, snapshot)
        options.update(trim_behavior="char", keep=source.keep, marker=rest)
        text = loaded.text
        if source.tag is not None:
            options["frame"] = opening, closing = block(source.tag)
            text = f"{opening}{text}{closing}"
        slots.add(loaded.name, text, role="system", at=at, **options)
    else:
        slots.add(loaded.name, None, **options)


def _declare_list(
    slots: Slots,
    loaded: Loaded,
    at: float | None,
    trimming: Trimming,
    options: dict[str, Any],
    recovers: bool,
) -> None:
    """Declare a list of messages; a list without dates stands where texts stand."""
    messages, first = list(loaded.messages), loaded.first
    if first is None and not loaded.size and not loaded.beyond and messages[0].item is not None:
        first = messages[0].item[1]
    if at is not None and not any(message.at is not None for message in messages):
        messages = [replace(message, at=at) for message in messages]
        options["changes"] = True  # not a conversation: made for this turn
    if loaded.source.tag is not None:
        messages = [_tagged(message, loaded.source.tag) for message in messages]
    options["trimming"] = trimming if loaded.first is not None and at is not None else EXACT
    snapshot = loaded.snapshot if recovers else ""
    marker = Earlier(loaded.name, loaded.size, snapshot, first if recovers else None, loaded.beyond)
    slots.add(loaded.name, NewestMessages(messages, loaded.earlier), marker=marker, **options)


def _tagged(message: Message, tag: str) -> Message:
    """Return a message with its texts between tags."""
    opening, closing = block(tag)
    content = message.content
    if isinstance(content, str):
        return replace(
            message, content=f"{opening}{escape_text(content)}{closing}" if content else ""
        )
    parts = [
        replace(part, text=f"{opening}{escape_text(part.text)}{closing}")
        if isinstance(part, Text) and part.text
        else part
        for part in content or ()
    ]
    return replace(message, content=tuple(parts)) if parts else message
