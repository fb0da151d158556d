"""Rendering: putting the kept messages in order, and telling what became of the rest.

Owns joining, interleaving and the making of the report. It decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from muntin.core.counting.counter import Counter
from muntin.core.message import Message, Role
from muntin.core.planning.read import Load, Unit
from muntin.core.planning.slot import Group, Slot
from muntin.core.planning.window import Fate
from muntin.core.report import Decision, Prefix, Report, SlotReport, Status


class Join:
    """Slots whose texts become one message, whose size is the count of the joined text."""

    def __init__(self, separator: str, counter: Counter) -> None:
        self.loads: list[Load] = []
        self.units: list[Unit] = []
        self.role: Role | None = None
        self._separator = separator
        self._counter = counter
        self.tokens = 0
        # What joining added when it was last counted.
        self.counted = 0

    def text(self, without: Iterable[Load] = ()) -> str:
        """Return the texts that are still there, put together."""
        gone = set(without)
        texts = [
            unit.messages[0].text
            for unit in self.units
            if unit.status != "dropped" and unit.load not in gone
        ]
        return self._separator.join(texts)

    def measure(self, without: Iterable[Load] = ()) -> int:
        """Count the message that would be left without these slots."""
        text = self.text(without)
        return self._counter.overhead + self._counter.text(text) if text else 0

    def recount(self) -> int:
        """Count the joined text as it now stands; return what joining adds to its parts."""
        self.tokens = self.measure()
        self.counted = self.added
        return self.counted

    @property
    def added(self) -> int:
        """What joining adds to the sum of the parts."""
        return self.tokens - sum(load.tokens for load in self.loads)

    def message(self) -> Message | None:
        """Return the one message, or None if no text is left."""
        text = self.text()
        return Message(self.role or "system", text) if text else None


@dataclass(frozen=True, slots=True)
class Rendered:
    """Messages in window order, each with its slot; `origins` is that slot's index.

    Joined texts have no origin, and a slot that stands for all of theirs.
    """

    messages: list[Message] = field(default_factory=list)
    origins: list[int | None] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)


def render(loads: Sequence[Load], joins: Mapping[Group, Join]) -> Rendered:
    """Put the kept messages together; a group of slots stands where its first slot stands."""
    result = Rendered()
    done: set[Group] = set()
    for load in loads:
        group = load.slot.group
        if group is None or not (group.interleave or group.join is not None):
            messages = load.kept()
            result.messages.extend(messages)
            result.origins.extend([load.slot.index] * len(messages))
            result.slots.extend([load.slot] * len(messages))
        elif group not in done:
            done.add(group)
            if group in joins:
                message = joins[group].message()
                if message is not None:
                    result.messages.append(message)
                    result.origins.append(None)
                    result.slots.append(_together(group, joins[group].loads))
            else:
                members = [each for each in loads if each.slot.group == group]
                slots = {each.slot.index: each.slot for each in members}
                for message, index in _interleave(members):
                    result.messages.append(message)
                    result.origins.append(index)
                    result.slots.append(slots[index])
    return result


def _together(group: Group, loads: Sequence[Load]) -> Slot:
    """Return a slot that stands for joined ones: the first, by the group's name."""
    slots = [load.slot for load in loads]
    asked = any(slot.breakpoint for slot in slots)
    return replace(slots[0], name=group.name, messages=(), breakpoint=asked)


def _interleave(loads: Sequence[Load]) -> list[tuple[Message, int]]:
    """Merge by `at`, keeping the order inside each slot and tool groups in one piece."""
    placed: list[tuple[float, int, Message, int]] = []
    for place, load in enumerate(loads):
        latest, end, fixed = -math.inf, -1, -math.inf
        dated: list[tuple[float, int, Message, int]] = []
        for index, message, last, origin in _members(load, loads):
            if message.at is not None and origin == load.slot.index:
                latest = max(latest, message.at)
            if index > end:
                end, fixed = last, latest
            dated.append((fixed, place, message, origin))
        if load.marker is not None:
            first = dated[0][0] if dated else -math.inf
            dated.insert(0, (first, place, load.marker, load.slot.index))
        placed.extend(dated)
    placed.sort(key=lambda item: (item[0], item[1]))
    return [(message, origin) for _, _, message, origin in placed]


def _members(load: Load, loads: Sequence[Load]) -> list[tuple[int, Message, int, int]]:
    """Return (index, message, last index of its group, index of its slot), in the slot's order.

    Results of a call of this slot that stand in others of `loads` come right behind the call.
    """
    members = []
    for unit in load.units:
        near = [mate for mate in unit.mates if mate.load in loads]
        calls = any(message.tool_calls for message in unit.messages)
        if unit.status == "dropped" or (near and not calls):
            continue
        last = unit.indices[-1]
        for index, message in zip(unit.indices, unit.messages, strict=True):
            members.append((index, message, last, load.slot.index))
        members += [(last, mate.messages[0], last, mate.load.slot.index) for mate in near]
    members.sort(key=lambda member: member[0])
    return members


def make_report(
    loads: Sequence[Load],
    joins: Mapping[Group, Join],
    *,
    tokens: int,
    budget: int,
    fallback: bool,
    over_budget: bool,
    tools_tokens: int,
    lead_tokens: int,
    tokenizer: str,
    prefix: Prefix | None,
) -> Report:
    """Tell what became of every slot and every group."""
    return Report(
        slots=tuple(_slot_report(load) for load in loads),
        tokens=tokens,
        budget=budget,
        fallback=fallback,
        over_budget=over_budget,
        tools_tokens=tools_tokens,
        joined_tokens=sum(join.added for join in joins.values()),
        lead_tokens=lead_tokens,
        tokenizer=tokenizer,
        prefix=prefix,
    )


def tell_fates(loads: Sequence[Load]) -> tuple[Fate, ...]:
    """Tell what became of every message, slot by slot, in the order of the slot."""
    told: list[Fate] = []
    for load in loads:
        slot = load.slot
        each = [
            Fate(
                slot,
                index,
                1,
                unit.status,
                unit.reason,
                None if unit.status == "dropped" else shown,
            )
            for unit in load.units
            for index, shown in zip(unit.indices, unit.messages, strict=True)
        ]
        for index, reason, _ in load.left_out:
            each.append(Fate(slot, index, 1, "empty" if reason == "empty" else "dropped", reason))
        told += sorted([*each, *_unread(load, each)], key=lambda fate: fate.first)
    return tuple(told)


def _unread(load: Load, read: Sequence[Fate]) -> Iterable[Fate]:
    """Yield the runs of messages that nobody looked at."""
    if not load.beyond:
        return
    first = load.unread.start
    for end in [*sorted({fate.first for fate in read} & set(load.unread)), load.unread.stop]:
        if end > first:
            yield Fate(load.slot, first, end - first, "dropped", "beyond_fit")
        first = end + 1


def _slot_report(load: Load) -> SlotReport:
    slot = load.slot
    decisions = _decisions(load)
    asked = sum(decision.tokens_asked for decision in decisions)
    messages_kept = sum(d.count for d in decisions if d.status in ("kept", "trimmed"))
    status, reason = _outcome(load, decisions)
    return SlotReport(
        name=slot.name,
        index=slot.index,
        status=status,
        reason=reason,
        detail=slot.detail,
        priority=load.priority,
        tier=slot.tier,
        floor=load.floor,
        cap=load.cap,
        tokens_asked=asked,
        tokens_kept=load.tokens,
        asked_is_estimate=bool(load.beyond),
        messages_asked=load.size,
        messages_kept=messages_kept,
        decisions=decisions,
    )


def _outcome(load: Load, decisions: Sequence[Decision]) -> tuple[Status, str | None]:
    """Sum up a slot: its status, and the reason of the last thing that was cut."""
    if load.slot.excluded is not None:
        return "excluded", load.slot.excluded
    if all(decision.status == "empty" for decision in decisions):
        return "empty", None
    cut = [d for d in decisions if d.status not in ("kept", "empty")]
    if not cut:
        return "kept", None
    reason = max(cut, key=lambda decision: decision.rank or 0).reason
    kept = any(decision.status in ("kept", "trimmed") for decision in decisions)
    return ("trimmed" if kept else "dropped"), reason


def _decisions(load: Load) -> tuple[Decision, ...]:
    decisions = [
        Decision(
            first=unit.indices[0],
            count=len(unit.indices),
            status=unit.status,
            reason=unit.reason,
            tokens_asked=unit.asked,
            tokens_kept=unit.tokens,
            rank=unit.rank,
            # Below 0 where a marker came after it.
            fits_with=max(0, unit.fits_with or 0) or None,
        )
        for unit in load.units
    ]
    for index, reason, tokens in load.left_out:
        status: Status = "empty" if reason == "empty" else "dropped"
        decisions.append(Decision(index, 1, status, reason, 0 if reason == "empty" else tokens))
    if load.beyond:
        decisions.append(_beyond(load))
    return tuple(sorted(decisions, key=lambda decision: decision.first))


def _beyond(load: Load) -> Decision:
    """The messages too old to fit, never looked at: their size is the average of those read."""
    read = [unit for unit in load.units if not unit.system] or load.units
    counted = sum(len(unit.indices) for unit in read)
    estimate = -(-sum(unit.asked for unit in read) * load.beyond // counted) if counted else 0
    taken = {index for unit in load.units for index in unit.indices}
    taken.update(index for index, _, _ in load.left_out)
    nearest = max((unit.fits_with or 0 for unit in read), default=0)
    stepped = load.start is not None  # no more tokens would bring them back
    return Decision(
        first=next(index for index in load.unread if index not in taken),
        count=load.beyond,
        status="dropped",
        reason="stepped" if stepped else "beyond_fit",
        tokens_asked=estimate,
        rank=load.beyond_rank,
        fits_with=None if stepped else nearest + estimate or None,
    )
