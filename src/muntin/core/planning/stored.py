"""Stored plans: what a plan was made of, as JSON that names its contents by hash.

Reading decides again: a plan is a pure function of its declaration. Pure functions; the caller
keeps the JSON and the contents.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from functools import lru_cache
from typing import Any

from muntin.core.budget import Budget
from muntin.core.checks import compact_json, digest
from muntin.core.counting.counter import Counter, TokenizerLike, as_tokenizer
from muntin.core.counting.memo import once_for_each
from muntin.core.message import Message, as_message, characters_of, counted
from muntin.core.planning import decide as deciding
from muntin.core.planning.frontier import Frontier
from muntin.core.planning.markers import read_marker, write_marker
from muntin.core.planning.plan import Declaration, Plan
from muntin.core.planning.shapes import Ladder, Results
from muntin.core.planning.slot import Group, Recap, Slot, Stepped, in_full
from muntin.core.profile import as_profile
from muntin.core.schemas import Schemas
from muntin.errors import InvalidInput, NeedsConversation

# Characters per token of the budget: about twice what a window can hold, for larger windows.
_CHARACTERS = 8
# The line in the place of a result has at least this many characters.
_LINE = 20
# Fields of a slot, with their keys: written if the value is not the default.
_RULES = {
    **{
        name: name
        for name in (
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
            "changes",
            "recovery",
            "run",
        )
    },
    "mark": "breakpoint",
}


_DEFAULTS = Slot("", 0)


def write_plan(plan: Plan, contents: dict[str, str]) -> dict[str, Any]:
    """Return a plan as JSON that names contents by hash, and put the contents into `contents`."""
    declared = plan.declared
    budget = declared.budget.remaining_input_tokens
    before, profile = declared.before, declared.profile
    tools = [(digest(text, 12), text) for text in declared.tools.texts]
    if before is not None and not isinstance(before, Frontier):
        before = before.frontier
    return {
        "previous": None if before is None else _write_previous(before, contents),
        "budget": budget,
        "tokenizer": declared.counter.name,
        "profile": profile.name if profile else None,
        "caching": profile is not None and profile.caching is not None,
        "tools": [_put(each, contents) for each in tools],
        "slots": [
            _write_slot(slot, budget * _CHARACTERS, contents, _questions(plan, slot))
            for slot in declared.slots
        ],
    }


def _questions(plan: Plan, slot: Slot) -> list[int]:
    """Return which messages of a slot asked for the run in which its past begins."""
    steps = [each.step for each in plan.slots if each.slot.index == slot.index]
    return [place - step.offset for step in steps if step is not None for place in step.asked]


def _write_slot(
    slot: Slot, most: int, contents: dict[str, str], asked: Sequence[int] = ()
) -> dict[str, Any]:
    rules = {
        key: getattr(slot, name)
        for key, name in _RULES.items()
        if getattr(slot, name) != getattr(_DEFAULTS, name)
    }
    if slot.group is not None:
        group = slot.group
        rules["group"] = [group.name, group.join, group.interleave, group.share, group.chain]
    if isinstance(slot.trimming, Stepped):
        rules["stepped"] = [slot.trimming.low, slot.trimming.retain]
    if slot.frame is not None:
        rules["frame"] = list(slot.frame)
    if slot.results is not None:
        rules["results"] = [slot.results.max_ratio, *slot.results.keep]
    if slot.ladder is not None:
        rules["ladder"] = list(astuple(slot.ladder))
    if slot.recap is not None:
        rules["recap"] = list(astuple(slot.recap))
    marker = None if slot.marker is None else write_marker(slot.marker)
    if marker is not None:
        rules["marker"] = marker
    try:
        shown = _shown(slot, most, asked)
    except NeedsConversation:
        shown = _shown(in_full(slot), most, asked)
    messages = _put_messages([_content(message) for message in shown], contents)
    return {"name": slot.name, "messages": messages, **rules}


def _shown(slot: Slot, characters: int, asked: Sequence[int]) -> list[Message]:
    """Return the messages of a slot that a window could show; of a long list the newest, and the
    messages `asked` that asked for their run."""
    newest: list[Message] = []
    for each in reversed(slot.messages):
        if characters < 0:
            break
        newest.append(each if isinstance(each, Message) else as_message(each))
        characters -= _least(slot, newest[-1]) + 1
    left = len(slot.messages) - len(newest)
    return [*(as_message(slot.messages[n]) for n in asked if 0 <= n < left), *newest[::-1]]


def _least(slot: Slot, message: Message) -> int:
    """Return the least number of characters that a window shows of a message, if it shows it: a
    result may be one line."""
    size = len(message.text)
    shortened = message.role == "tool" and (slot.ladder is not None or slot.results is not None)
    return min(size, _LINE) if shortened else size


@once_for_each(characters_of)
def _content(message: Message) -> tuple[str, str]:
    """Return a message as JSON, and the name under which it is kept."""
    return _written(message)


@lru_cache(maxsize=2_048)  # most messages of a window were in the one before
def _written(message: Message) -> tuple[str, str]:
    text = compact_json(message.to_dict())
    return digest(text, 12), text


# A long list is kept in blocks. The name of a message decides whether a block ends there: about
# one in 64 does, by the last two hexadecimal digits. So the blocks of a growing history stay.
_LONG, _ENDS, _LEAST = 200, ("00", "40", "80", "c0"), 16


def _put_messages(named: Sequence[tuple[str, str]], contents: dict[str, str]) -> list[Any]:
    """Put messages into `contents`, and return their names; a block has its name and its length."""
    blocks, rest = _put_blocks(named, contents)
    return [*blocks, *[_put(each, contents) for each in rest]]


def _put_blocks(
    named: Sequence[tuple[str, str]], contents: dict[str, str]
) -> tuple[list[Any], Sequence[tuple[str, str]]]:
    """Put a long list into `contents` in blocks; return the blocks, and the rest behind them."""
    blocks: list[Any] = []
    start = 0
    for end, (name, _) in enumerate(named if len(named) > _LONG else (), 1):
        if end - start >= _LEAST and name.endswith(_ENDS):
            block = named[start:end]
            key = digest("".join([each for each, _ in block]), 12)
            contents[key] = f"[{','.join([text for _, text in block])}]"
            blocks.append([key, len(block)])
            start = end
    return blocks, named[start:]


def _write_previous(frontier: Frontier, contents: dict[str, str]) -> dict[str, Any]:
    """Return the frontier of the window before, its long lists in blocks."""
    digests = [(each, f'"{each}"') for each in frontier.digests]
    blocks, rest = _put_blocks(digests, contents)
    chunks = {str(place): chunk for place, chunk in enumerate(frontier.chunks) if chunk}
    written = {**frontier.to_dict(), "digests": [*blocks, *[each for each, _ in rest]]}
    return {**written, "chunks": [len(frontier.chunks), chunks]} if blocks else written


def _read_previous(written: Mapping[str, Any], get: Callable[[str], Any]) -> Frontier:
    data = dict(written)
    if any(not isinstance(each, str) for each in data["digests"]):
        size, chunks = data["chunks"]
        data["chunks"] = [chunks.get(str(place), "") for place in range(size)]
        data["digests"] = list(_read_list(data["digests"], get, lambda name: name))
    return Frontier.from_dict(data)


def _read_list(
    written: Iterable[Any], get: Callable[[str], Any], one: Callable[[str], Any]
) -> Iterator[Any]:
    for name in written:
        yield from [one(name)] if isinstance(name, str) else get(name[0])


def count_messages(written: Iterable[Any]) -> int:
    """Return how many messages a slot of a plan has."""
    return sum(1 if isinstance(name, str) else name[1] for name in written)


def _put(content: tuple[str, str], contents: dict[str, str]) -> str:
    key, contents[content[0]] = content
    return key


def read_plan(
    written: Mapping[str, Any],
    content: Callable[[str], str | None],
    *,
    tokenizer: TokenizerLike | None = None,
    report: Mapping[str, Any] | None = None,
) -> Plan:
    """Return the plan that was written, decided again; `at` gives it at another budget.

    Without `tokenizer` the tokenizer of that time is used, or the estimate if it has no name by
    which it could be found again. Sizes of messages that the `report` of the window has are not
    counted again.
    """

    def get(key: str) -> Any:
        text = content(key)
        if text is None:
            raise InvalidInput(f"the content {key!r} of this plan is no longer kept")
        return json.loads(text)

    profile = as_profile(written["profile"])
    if profile is not None and not written.get("caching", True):  # a prompt file may say so
        profile = replace(profile, caching=None)
    slots = [_read_slot(index, each, get) for index, each in enumerate(written["slots"])]
    declared = Declaration(
        tuple(slots),
        Budget(written["budget"]),
        Counter.of(profile, tokenizer=tokenizer or _tokenizer(written["tokenizer"])),
        Schemas([get(key) for key in written["tools"]]),
        profile,
        _read_previous(written["previous"], get) if written.get("previous") else None,
    )
    if report is not None:
        _note_counts(declared, report)
    return deciding.decide(declared)


def _read_slot(index: int, written: Mapping[str, Any], get: Callable[[str], Any]) -> Slot:
    rules = {name: written[key] for key, name in _RULES.items() if key in written}
    if "group" in written:
        name, join, interleave, share, *chain = written["group"]
        rules["group"] = Group(
            name, join=join, interleave=interleave, share=share, chain=any(chain)
        )
    if "stepped" in written:
        low, retain = written["stepped"]
        rules["trimming"] = Stepped(low=low, retain=retain)
    if "frame" in written:
        opening, closing = written["frame"]
        rules["frame"] = opening, closing
    if "results" in written:
        ratio, *keep = written["results"]
        rules["results"] = Results(ratio, tuple(keep))
    if "ladder" in written:
        rules["ladder"] = Ladder(*written["ladder"])
    if "recap" in written:
        rules["recap"] = Recap(*written["recap"])
    if "marker" in written:
        rules["marker"] = read_marker(written["marker"])
    messages = tuple(map(Message.from_dict, _read_list(written["messages"], get, get)))
    return Slot(written["name"], index, messages, **rules)


def _tokenizer(name: str) -> str:
    try:
        as_tokenizer(name)
    except InvalidInput:
        return "estimate"
    return name


def _note_counts(declared: Declaration, report: Mapping[str, Any]) -> None:
    """Note the tokens of every message, so that no budget counts it again.

    Sizes of single messages are taken from the report: counting many megabytes takes seconds.
    """
    counter = declared.counter
    known: Mapping[int, Any] = {}
    if counter.name == report["tokenizer"]:
        known = {slot["index"]: slot for slot in report["slots"]}
    for slot in declared.slots:
        joined = slot.group is not None and slot.group.join is not None
        told = None if joined else known.get(slot.index)  # a joined text has only shares
        sizes = {} if told is None else _told_sizes(told, len(slot.messages))
        for index, item in enumerate(slot.messages):
            message = as_message(item)
            key = counter.key(message)
            if key is not None and not message.tool_calls:
                size = sizes.get(index)
                counted(message, key, counter.message(message) if size is None else size)


def _told_sizes(told: Mapping[str, Any], size: int) -> dict[int, int]:
    """Return the sizes of single messages in a report, by their places in the stored slot."""
    earlier = told["messages_asked"] - size
    return {
        each["first"] - earlier: each["tokens_asked"]
        for each in told["decisions"]
        if each["count"] == 1
        and each["status"] in ("kept", "trimmed", "dropped")
        and each["reason"] not in ("beyond_fit", "orphaned")
    }
