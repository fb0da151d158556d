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
from muntin.core.caching.frontier import Frontier
from muntin.core.checks import compact_json, digest
from muntin.core.counting.counter import Counter, TokenizerLike, as_tokenizer
from muntin.core.counting.law import Anchor, Law
from muntin.core.counting.memo import memoize_by_identity
from muntin.core.message import Message, answered, as_message, characters_of, counted
from muntin.core.planning.compact import Ladder, Results
from muntin.core.planning.plan import Declaration, Plan
from muntin.core.planning.planner import plan_window
from muntin.core.planning.slot import (
    Group,
    Place,
    Pool,
    Recap,
    Size,
    Slot,
    Stepped,
    Trim,
    in_full,
)
from muntin.core.profile import as_profile
from muntin.core.schemas import Schemas
from muntin.core.usage import AnswerTokens
from muntin.errors import InvalidInput, NeedsConversation
from muntin.timeline.markers import read_marker, write_marker

# Characters per token of the budget: about twice what a window can hold, for larger windows.
_CHARACTERS = 8
# A low mark must be below 1.
_LARGEST_LOW = 0.999
# The line in the place of a result has at least this many characters.
_LINE = 20
# Plain fields of a slot, by the value that holds them, with the keys under which they are written
# if they are not the default.
_FIELDS: dict[str, dict[str, str]] = {
    "": {name: name for name in ("kind", "priority", "required", "detail", "excluded")},
    "size": {name: name for name in ("max_ratio", "min_ratio", "min_tokens", "max_tokens")},
    "trim": {"behavior": "trim_behavior", "keep": "keep", "recovery": "recovery"},
    "place": {
        **{name: name for name in ("position", "tier", "lasting", "changes")},
        "breakpoint": "mark",
    },
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
        "tools": [_put(schema, contents) for schema in tools],
        "recap": None if declared.recap is None else list(astuple(declared.recap)),
        **_write_law(declared.counter),
        "slots": [
            _write_slot(slot, budget * _CHARACTERS, contents, _questions(plan, slot))
            for slot in declared.slots
        ],
    }


def _write_law(counter: Counter) -> dict[str, Any]:
    """Return what was known of how the provider counts, and what the schema of the answer costs."""
    law, form = counter.law, counter.answer - getattr(counter.tokenizer, "answer_overhead", 0)
    if law == Law(keeps_thoughts=law.keeps_thoughts):
        return {"form": form} if form else {}
    anchor = None if law.anchor is None else law.anchor.to_json()
    fixed = law.fixed and list(law.fixed)
    return {"form": form, "law": [list(law.first), fixed, law.factor, law.excess, anchor]}


def _with_law(counter: Counter, written: Mapping[str, Any]) -> Counter:
    """Return the counter of a stored plan; before 0.3 nothing was expected from the provider."""
    counter = counter.with_form_tokens(written.get("form", 0))
    first, fixed, factor, excess, anchor = written.get("law", ((0, 0), None, 1.0, 0, None))
    fixed = fixed and tuple(fixed)
    law = replace(counter.law, first=tuple(first), fixed=fixed, factor=factor, excess=excess)
    return counter.with_law(law.after(None if anchor is None else Anchor.from_json(anchor)))


def _questions(plan: Plan, slot: Slot) -> list[int]:
    """Return which messages of a slot stay in front of what has left it."""
    moved_plans = [
        each for each in plan.slots if each.slot.index == slot.index and each.levels.gone
    ]
    units = [form.unit for part in moved_plans for form in part.view.forms]
    return [index for unit in units if unit.role == "user" for index in unit.indices]


def _write_slot(
    slot: Slot, most: int, contents: dict[str, str], questions: Sequence[int] = ()
) -> dict[str, Any]:
    rules: dict[str, Any] = {}
    for part, names in _FIELDS.items():
        options, usual = (getattr(value, part) if part else value for value in (slot, _DEFAULTS))
        for name, key in names.items():
            if getattr(options, name) != getattr(usual, name):
                rules[key] = getattr(options, name)
    trim, group = slot.trim, slot.place.group
    if group is not None:
        rules["group"] = [group.name, group.join, group.interleave, group.share, group.chain]
    if slot.pool is not None:
        rules["pool"] = list(astuple(slot.pool))
    if isinstance(trim.trimming, Stepped):
        stepped = trim.trimming
        rules["stepped"] = [stepped.low if stepped.retain is None else stepped.low_mark]
    if trim.frame is not None:
        rules["frame"] = list(trim.frame)
    if trim.results is not None:
        rules["results"] = [trim.results.max_ratio, *trim.results.keep]
    if trim.ladder is not None:
        rules["ladder"] = _in_order(trim.ladder)
    marker = None if trim.marker is None else write_marker(trim.marker)
    if marker is not None:
        rules["marker"] = marker
    try:
        shown = _shown(slot, most, questions)
    except NeedsConversation:
        shown = _shown(in_full(slot), most, questions)
    messages = _put_messages([_content(message) for message in shown], contents)
    return {"name": slot.name, "messages": messages, **rules}


@lru_cache
def _in_order(rungs: Ladder) -> list[Any]:
    return list(astuple(rungs))


def _shown(slot: Slot, characters: int, questions: Sequence[int]) -> list[Message]:
    """Return the messages of a slot that a window could show; of a long list the newest, and the
    messages `asked` that asked for their run. A shortened result may be one line."""
    newest: list[Message] = []
    shortens = bool(slot.trim.ladder or slot.trim.results)
    for item in reversed(slot.messages):
        if characters < 0:
            break
        message = item if isinstance(item, Message) else as_message(item)
        newest.append(message)
        size = len(message.text)
        characters -= 1 + (min(size, _LINE) if shortens and message.role == "tool" else size)
    older = len(slot.messages) - len(newest)
    return [*(as_message(slot.messages[n]) for n in questions if 0 <= n < older), *newest[::-1]]


@memoize_by_identity(characters_of)
def _content(message: Message) -> tuple[str, str]:
    """Return a message as JSON, and the name under which it is kept."""
    return _written(message, message.answer_tokens)


@lru_cache(maxsize=2_048)  # most messages of a window were in the one before
def _written(message: Message, reported: AnswerTokens | None) -> tuple[str, str]:
    data = message.to_dict()
    if reported is not None:
        data[_REPORTED] = list(reported)
    text = compact_json(data)
    return digest(text, 12), text


def _read_message(data: Mapping[str, Any]) -> Message:
    if _REPORTED not in data:
        return Message.from_dict(data)
    plain = {key: value for key, value in data.items() if key != _REPORTED}
    return answered(Message.from_dict(plain), AnswerTokens(*data[_REPORTED]))


# What the provider reported of an answer, beside the fields of the message.
_REPORTED = "muntin_reported"


# A long list is kept in blocks. The name of a message decides whether a block ends there: about
# one in 64 does, by the last two hexadecimal digits. So the blocks of a growing history stay.
_LONG, _ENDS, _LEAST = 200, ("00", "40", "80", "c0"), 16


def _put_messages(named: Sequence[tuple[str, str]], contents: dict[str, str]) -> list[Any]:
    """Put messages into `contents`, and return their names; a block has its name and its length."""
    blocks, rest = _put_blocks(named, contents)
    return [*blocks, *[_put(item, contents) for item in rest]]


def _put_blocks(
    named: Sequence[tuple[str, str]], contents: dict[str, str]
) -> tuple[list[Any], Sequence[tuple[str, str]]]:
    """Put a long list into `contents` in blocks; return the blocks, and the rest behind them."""
    blocks: list[Any] = []
    start = 0
    for end, (name, _) in enumerate(named if len(named) > _LONG else (), 1):
        if end - start >= _LEAST and name.endswith(_ENDS):
            block = named[start:end]
            key = digest("".join([line for line, _ in block]), 12)
            contents[key] = f"[{','.join([text for _, text in block])}]"
            blocks.append([key, len(block)])
            start = end
    return blocks, named[start:]


def _write_previous(frontier: Frontier, contents: dict[str, str]) -> dict[str, Any]:
    """Return the frontier of the window before, its long lists in blocks."""
    digests = [(digest_, f'"{digest_}"') for digest_ in frontier.digests]
    blocks, rest = _put_blocks(digests, contents)
    chunks = {str(place): chunk for place, chunk in enumerate(frontier.chunks) if chunk}
    written = {**frontier.to_dict(), "digests": [*blocks, *[line for line, _ in rest]]}
    written.pop("tool_index", None)  # the plan has its own slot of it
    return {**written, "chunks": [len(frontier.chunks), chunks]} if blocks else written


def _read_previous(written: Mapping[str, Any], get: Callable[[str], Any]) -> Frontier:
    data = dict(written)
    if any(not isinstance(item, str) for item in data["digests"]):
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
    slots = [_read_slot(index, slot, get) for index, slot in enumerate(written["slots"])]
    declared = Declaration(
        tuple(slots),
        Budget(written["budget"]),
        _with_law(
            Counter.of(profile, tokenizer=tokenizer or _tokenizer(written["tokenizer"])), written
        ),
        Schemas([get(key) for key in written["tools"]]),
        profile,
        _read_previous(written["previous"], get) if written.get("previous") else None,
        Recap(*written["recap"]) if written.get("recap") else None,
    )
    if report is not None:
        _note_counts(declared, report)
    return plan_window(declared)


def _read_slot(index: int, written: Mapping[str, Any], get: Callable[[str], Any]) -> Slot:
    values = {
        part: {name: written[key] for name, key in names.items() if key in written}
        for part, names in _FIELDS.items()
    }
    slot, trim, place = values[""], values["trim"], values["place"]
    if "kind" not in slot:  # 0.2 wrote three flags
        for flag, kind in (("made", "text"), ("is_input", "input"), ("run", "run")):
            slot["kind"] = kind if written.get(flag) else slot.get("kind", "list")
    if "group" in written:
        name, join, interleave, share, *chain = written["group"]
        place["group"] = Group(
            name, join=join, interleave=interleave, share=share, chain=any(chain)
        )
    if "stepped" in written:
        trim["trimming"] = _read_stepped(*written["stepped"])
    if "frame" in written:
        opening, closing = written["frame"]
        trim["frame"] = opening, closing
    if "results" in written:
        ratio, *keep = written["results"]
        trim["results"] = Results(ratio, tuple(keep))
    if "ladder" in written:
        trim["ladder"] = Ladder(*written["ladder"])
    if "marker" in written:
        trim["marker"] = read_marker(written["marker"])
    messages = tuple(map(_read_message, _read_list(written["messages"], get, get)))
    pool = Pool(*written["pool"]) if "pool" in written else None
    return Slot(
        written["name"], index, messages, size=Size(**values["size"]), trim=Trim(**trim),
        place=Place(**place), pool=pool, **slot,
    )  # fmt: skip


def _read_stepped(low: float | None, retain: float | None = None) -> Stepped:
    if low is None and retain is not None:  # 0.2 wrote it too
        low = 2 * retain - 1
    return Stepped(None if low is None else min(max(0.0, low), _LARGEST_LOW))


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
    slots: Mapping[int, Any] = {}
    if counter.name == report["tokenizer"]:
        slots = {slot["index"]: slot for slot in report["slots"]}
    for slot in declared.slots:
        slot_report = (
            None if slot.is_joined else slots.get(slot.index)
        )  # a joined text has only shares
        sizes = {} if slot_report is None else _told_sizes(slot_report, len(slot.messages))
        for index, item in enumerate(slot.messages):
            message = as_message(item)
            key = counter.key(message)
            if key is not None and not message.tool_calls:
                size = sizes.get(index)
                counted(message, key, counter.message(message) if size is None else size)


def _told_sizes(slot_report: Mapping[str, Any], size: int) -> dict[int, int]:
    """Return the sizes of single messages in a report, by their places in the stored slot."""
    # The newest messages of the slot are stored.
    earlier = (
        max(
            (decision["first"] + decision["count"] for decision in slot_report["decisions"]),
            default=0,
        )
        - size
    )
    return {
        decision["first"] - earlier: decision["tokens_asked"]
        for decision in slot_report["decisions"]
        if decision["count"] == 1
        and decision["status"] in ("kept", "trimmed", "dropped")
        and decision["reason"] not in ("beyond_fit", "orphaned")
    }
