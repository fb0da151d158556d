"""Reports kept beside the timeline, with what is needed to plan the same window again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from muntin.composer import Composed
from muntin.core.checks import digest
from muntin.core.counting.counter import TokenizerLike, as_tokenizer
from muntin.core.message import Message, as_message
from muntin.core.parts import compact_json
from muntin.core.planning.frontier import Frontier
from muntin.core.planning.markers import read_marker, write_marker
from muntin.core.planning.slot import Group, Slot, Stepped
from muntin.core.planning.slots import Slots
from muntin.core.planning.window import Window
from muntin.core.profile import as_profile
from muntin.errors import InvalidInput
from muntin.runtime.in_store import in_store
from muntin.timeline.items import Record

if TYPE_CHECKING:
    from muntin.timeline.session import Session

# For each token of the budget: about twice what a window can hold, for looking at larger ones.
_CHARACTERS = 8

_RULES = (
    "priority",
    "max_ratio",
    "min_ratio",
    "min_tokens",
    "position",
    "role",
    "trim_behavior",
    "max_tokens",
    "tier",
    "keep",
    "required",
    "made",
    "is_input",
    "excluded",
    "detail",
    "lasting",
    "breakpoint",
)
# Keys that were written before their field got another name.
_KEYS = {"breakpoint": "mark"}


class Receipts:
    """The windows of a turn: the newest of each line, and the reports that are kept."""

    def __init__(self, session: Session, turn: int, keep: int) -> None:
        self.step = 0
        self._session = session
        self._turn = turn
        self._keep = keep
        self._newest: dict[str, Window | Frontier | None] = {}

    def load(self, line: str) -> Window | Frontier | None:
        """Return the newest window of a line, or what the store knows of it."""
        if line not in self._newest:
            self._newest[line] = None
            text = self._session.store.frontier(self._session.id, line)
            with suppress(InvalidInput, ValueError):  # of another version: begin anew
                if text is not None:
                    self._newest[line] = Frontier.from_dict(json.loads(text))
        return self._newest[line]

    async def previous(self, line: str) -> Window | Frontier | None:
        """Do what `load` does, without holding up the event loop."""
        if line in self._newest:
            return self._newest[line]
        return await in_store(self._session, partial(self.load, line))

    async def keep(self, composed: Composed, line: str) -> None:
        """Keep the report of a window, and what the window leaves to the next."""
        self.step += 1
        frontiers = {}
        if composed.remembered:
            self._newest[line] = composed.window
            frontiers[line] = compact_json(composed.window.frontier.to_dict())
        if self._keep or frontiers:
            await in_store(self._session, partial(self._write, composed, frontiers))

    def _write(self, composed: Composed, frontiers: Mapping[str, str]) -> None:
        session = self._session
        if self._keep:
            slots, window = composed.slots, composed.window
            keep_report(session, self._turn, self.step, slots, window, self._keep, frontiers)
        else:
            session.store.put_frontiers(session.id, frontiers)


def keep_report(
    session: Session,
    turn: int,
    step: int,
    slots: Slots,
    window: Window,
    keep: int,
    frontiers: Mapping[str, str] | None = None,
) -> None:
    """Write the report of a window, the plan to compose it again, and frontiers."""
    contents: dict[str, str] = {}
    planned = compact_json(write_plan(slots, contents))
    record = Record(turn, step, datetime.now(UTC), compact_json(window.report.to_dict()), planned)
    session.store.put_report(
        session.id, record, contents, names=contents.keys(), keep=keep, frontiers=frontiers
    )


def write_plan(slots: Slots, contents: dict[str, str]) -> dict[str, Any]:
    """Return slots as JSON that names contents by hash, and put the contents into `contents`."""
    defaults = Slot("", 0)
    most = slots.budget.remaining_input_tokens * _CHARACTERS
    written = []
    for slot in slots.declared:
        rules = {
            _KEYS.get(name, name): getattr(slot, name)
            for name in _RULES
            if getattr(slot, name) != getattr(defaults, name)
        }
        if slot.group is not None:
            group = slot.group
            rules["group"] = [group.name, group.join, group.interleave, group.share]
        if isinstance(slot.trimming, Stepped):
            rules["stepped"] = [slot.trimming.low, slot.trimming.retain]
        marker = write_marker(slot.marker)
        if marker is not None:
            rules["marker"] = marker
        messages = []
        for message in _shown(slot, most):
            key, text = _content(message)
            contents[key] = text
            messages.append(key)
        written.append({"name": slot.name, "messages": messages, **rules})
    before = slots.previous.frontier if isinstance(slots.previous, Window) else slots.previous
    return {
        "previous": None if before is None else before.to_dict(),
        "budget": slots.budget.remaining_input_tokens,
        "tokenizer": slots.counter.name,
        "profile": slots.profile.name if slots.profile else None,
        "caching": slots.profile is not None and slots.profile.caching is not None,
        "tools": [_put(dict(tool), contents) for tool in slots.tools],
        "slots": written,
    }


def _shown(slot: Slot, characters: int) -> list[Message]:
    """Return the messages of a slot that a window could show; of a long list the newest."""
    newest: list[Message] = []
    for each in reversed(slot.messages):
        if characters < 0:
            break
        newest.append(as_message(each))
        characters -= len(newest[-1].text) + 1
    return newest[::-1]


@lru_cache(maxsize=2_048)  # most messages of a window were in the one before
def _content(message: Message) -> tuple[str, str]:
    return _named(message.to_dict())


def _named(data: Mapping[str, Any]) -> tuple[str, str]:
    """Return a content as JSON, and the name under which it is kept."""
    text = compact_json(data)
    return digest(text, size=12), text


def _put(data: Mapping[str, Any], contents: dict[str, str]) -> str:
    key, text = _named(data)
    contents[key] = text
    return key


def read_plan(
    written: Mapping[str, Any],
    content: Callable[[str], str | None],
    budget: int | None = None,
    *,
    tokenizer: TokenizerLike | None = None,
) -> Slots:
    """Return the slots of a kept plan, to be rendered at its own budget or at another.

    Without `tokenizer` the one that counted then is used, or the estimate if it has no name by
    which it could be found again.
    """

    def get(key: str) -> Any:
        text = content(key)
        if text is None:
            raise InvalidInput(f"the content {key!r} of this plan is no longer kept")
        return json.loads(text)

    profile = as_profile(written["profile"])
    if profile is not None and not written.get("caching", True):  # a prompt file may say so
        profile = replace(profile, caching=None)
    slots = Slots(
        written["budget"] if budget is None else budget,
        tokenizer=_tokenizer(written["tokenizer"]) if tokenizer is None else tokenizer,
        profile=profile,
        previous=Frontier.from_dict(written["previous"]) if written.get("previous") else None,
        tools=[get(key) for key in written["tools"]],
    )
    for index, each in enumerate(written["slots"]):
        rules = {name: each[key] for name in _RULES if (key := _KEYS.get(name, name)) in each}
        group = None
        if "group" in each:
            name, join, interleave, share = each["group"]
            group = Group(name, join=join, interleave=interleave, share=share)
        if "stepped" in each:
            low, retain = each["stepped"]
            rules["trimming"] = Stepped(low=low, retain=retain)
        marker = read_marker(each["marker"]) if "marker" in each else None
        messages = [Message.from_dict(get(key)) for key in each["messages"]]
        slots.take(Slot(each["name"], index, tuple(messages), group=group, marker=marker, **rules))
    return slots


def _tokenizer(name: str) -> str:
    try:
        as_tokenizer(name)
    except InvalidInput:
        return "estimate"
    return name
