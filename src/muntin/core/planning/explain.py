"""Explaining: telling what became of every slot and every message.

Owns the making of the report and of the fates. It decides nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from muntin.core.planning.books import OVER_CAP
from muntin.core.planning.composed import Fate
from muntin.core.planning.ladder import newest_group
from muntin.core.planning.past import item_of
from muntin.core.planning.read import Unit
from muntin.core.planning.slot import Slot
from muntin.core.planning.verdict import SlotPlan, Verdict
from muntin.core.report import SHORT, SlotReport, Status, Telling, ranges

# The statuses of messages that are in the window.
_STAYS = ("kept", "trimmed", "short", "stubbed")


def tell_fates(plans: Sequence[SlotPlan]) -> tuple[Fate, ...]:
    """Tell what became of every message, slot by slot, in the order of the slot."""
    told: list[Fate] = []
    for plan in plans:
        slot = plan.slot
        each = [fate for unit in plan.reading.units for fate in _unit_fates(plan, unit)]
        for index, reason, _ in plan.reading.left_out:
            each.append(Fate(slot, index, 1, "empty" if reason == "empty" else "dropped", reason))
        told += sorted([*each, *_unread(plan, each)], key=lambda fate: fate.first)
    return tuple(told)


def _unit_fates(plan: SlotPlan, unit: Unit) -> Iterable[Fate]:
    verdict = plan.verdicts.get(unit.indices[0])
    if verdict is None:
        status, reason = _shown(plan, unit)
        for index, message in zip(unit.indices, unit.messages, strict=True):
            yield Fate(plan.slot, index, 1, status, reason, message)
        return
    for index, message in zip(unit.indices, verdict.messages, strict=True):
        shown = None if verdict.status == "dropped" else message
        yield Fate(plan.slot, index, 1, verdict.status, verdict.reason, shown)


def _shown(plan: SlotPlan, unit: Unit) -> tuple[Status, str | None]:
    """Return the status and the reason of a unit about which nothing was decided."""
    if unit.form is None:
        return "kept", _over_cap(plan)
    if unit.form.level == "full":  # a result has its ceiling
        return "short", OVER_CAP
    status: Status = "short" if unit.form.level == "short" else "stubbed"
    return status, "stepped"


def _over_cap(plan: SlotPlan) -> str | None:
    """Return the reason of a slot that stays although it is over its ceiling, else None."""
    return OVER_CAP if plan.limits.cap is not None and plan.tokens > plan.limits.cap else None


def _unread(plan: SlotPlan, read: Sequence[Fate]) -> Iterable[Fate]:
    """Yield the runs of messages that were not read."""
    unread = plan.reading.unread
    if not plan.reading.beyond:
        return
    first = unread.start
    for end in [*sorted({fate.first for fate in read if fate.first in unread}), unread.stop]:
        if end > first:
            yield Fate(plan.slot, first, end - first, "dropped", "beyond_fit")
        first = end + 1


def tell_slots(plans: Sequence[SlotPlan], *, kept: bool = False) -> tuple[SlotReport, ...]:
    """Tell what became of every slot and of every unit of it.

    With `kept`, in the form that is stored: neighbours with the same fate become one decision.
    """
    ranks, before = _ranks(plans), _taken_first(plans)
    told = [_decisions(plan, ranks, before[plan.turn]) for plan in plans]
    joined = kept and sum(map(len, told)) > SHORT
    return tuple([_tell_slot(*each, joined) for each in zip(plans, told, strict=True)])


# A unit by the index of its slot and of its first message; None stands for the unread messages.
Cut: TypeAlias = tuple[int, int | None]


def _ranks(plans: Sequence[SlotPlan]) -> dict[Cut, int]:
    """Number the cuts in the order in which they were made.

    Ceilings are applied first; then slots go in their order, though they take room in reverse.
    """
    cuts: list[tuple[bool, int, int, Cut]] = []
    for plan in plans:
        index = plan.slot.index
        for first, verdict in plan.verdicts.items():
            late = verdict.reason != OVER_CAP
            cuts.append((late, plan.turn * late, verdict.rank, (index, first)))
        if plan.beyond_rank is not None:
            capped, rank = plan.beyond_rank
            cuts.append((not capped, plan.turn * (not capped), rank, (index, None)))
    cuts.sort(key=lambda cut: cut[:3])
    return {key: number for number, (*_, key) in enumerate(cuts, 1)}


class Before(NamedTuple):
    """What slots that go later would take first, if there were more room: any of them takes
    something from `nearest` more tokens on, and all together lost `lost` tokens."""

    nearest: int = sys.maxsize
    lost: int = 0

    def needed(self, over: int) -> int:
        """Return how many more tokens the window needs so that a slot gets `over` more."""
        return over if over < self.nearest else over + self.lost


def _taken_first(plans: Sequence[SlotPlan]) -> dict[int, Before]:
    """Return, for each place in the order, what slots that go later would take first."""
    found: dict[int, Before] = {}
    nearest, lost = sys.maxsize, 0
    by_turn = sorted(plans, key=lambda plan: -plan.turn)
    for turn, together in groupby(by_turn, key=lambda plan: plan.turn):
        found[turn] = Before(nearest, lost)
        for plan in together:
            short = [each for each in plan.verdicts.values() if each.reason != OVER_CAP]
            if short or plan.reading.beyond:
                cut = plan.slot.trim_behavior == "char" or plan.slot.is_input or plan.limits.floor
                least = 1 if cut or not short else min(each.fits_with for each in short)
                nearest = min(nearest, least)
                lost += max(0, plan.asked - plan.tokens) + _estimate(plan)
    return found


def _tell_slot(plan: SlotPlan, decisions: Sequence[Telling], joined: bool) -> SlotReport:
    slot, reading = plan.slot, plan.reading
    status, reason = _outcome(plan, decisions)
    kept = sum([each.count for each in decisions if each.status in _STAYS])
    return SlotReport(
        name=slot.name,
        index=slot.index,
        status=status,
        reason=reason,
        detail=_detail(plan, kept),
        priority=slot.priority,
        tier=slot.tier,
        floor=plan.limits.floor,
        cap=plan.limits.cap,
        tokens_asked=sum([decision.tokens_asked for decision in decisions]),
        tokens_kept=plan.tokens,
        asked_is_estimate=bool(reading.beyond),
        messages_asked=reading.size,
        messages_kept=kept,
        decisions=tuple(ranges(decisions) if joined else [each.told() for each in decisions]),
    )


def _detail(plan: SlotPlan, kept: int) -> str | None:
    """Return the remark about a slot; how its past went down, if it did so in this window; how much
    is left of the newest results, if they were cut; and how many messages were read, if not all."""
    said = [plan.slot.detail] if plan.slot.detail else []
    step = plan.step
    if step is not None and step.way and step.members[0] == plan.slot.index:
        said.append(step.way)
    unit = newest_group(plan.reading) if plan.verdicts else None
    if unit is not None and unit.indices[0] in plan.verdicts:
        said += _cut_results(plan, unit, plan.verdicts[unit.indices[0]])
    if kept < plan.reading.size and _begins_later(plan.slot):
        said.append(f"{plan.reading.size:,} messages were read")
    return "; ".join(said) or None


def _begins_later(slot: Slot) -> bool:
    """Say whether a list shows a timeline from a later point than its beginning: of a long
    timeline, only messages that could fit are read. A run, and a turn of a history, are whole."""
    if slot.is_input or slot.run or (slot.group is not None and slot.group.chain):
        return False
    first = item_of(slot.messages[0])
    return first is not None and first > 1


def _cut_results(plan: SlotPlan, unit: Unit, verdict: Verdict) -> Iterable[str]:
    """Say how much is left of each result."""
    shape = plan.reading.shape
    names = {call.id: call.name for each in unit.messages for call in each.tool_calls}
    whole = unit.messages if unit.form is None else unit.form.messages
    for message, now in zip(whole, verdict.costs, strict=True):
        if shape is not None and message.tool_call_id is not None:
            name = names.get(message.tool_call_id, "a result")
            was = shape.forms.counter.message(message)
            yield f"{name}: {was:,} tokens" + (f", cut to {now:,}" if now < was else "")


def _outcome(plan: SlotPlan, decisions: Sequence[Telling]) -> tuple[Status, str | None]:
    """Sum up a slot: its status, and the reason of the last cut."""
    if plan.slot.excluded is not None:
        return "excluded", plan.slot.excluded
    if all(decision.status == "empty" for decision in decisions):
        return "empty", None
    cut = [d for d in decisions if d.status not in ("kept", "empty")]
    if not cut:
        return "kept", _over_cap(plan)
    reason = max(cut, key=lambda decision: decision.rank or 0).reason
    became = {decision.status for decision in cut}
    if became <= {"short", "stubbed"}:
        return ("stubbed" if "stubbed" in became else "short"), reason
    kept = any(decision.status in _STAYS for decision in decisions)
    return ("trimmed" if kept else "dropped"), reason


def _decisions(plan: SlotPlan, ranks: Mapping[Cut, int], before: Before) -> list[Telling]:
    reading, index = plan.reading, plan.slot.index
    decisions = []
    if plan.step is not None and plan.told is not None:  # no message of the slot
        told = plan.told.tokens
        decisions.append(Telling(0, 0, "kept", "summary", told, told))
    stays, verdicts = _over_cap(plan), plan.verdicts
    for unit in reading.units:
        first, count = unit.indices[0], len(unit.indices)
        verdict = verdicts.get(first)
        if verdict is None and unit.form is None:  # as for most units
            decisions.append(Telling(first, count, "kept", stays, unit.tokens, unit.tokens))
            continue
        asked = unit.tokens if unit.form is None else unit.form.tokens
        if verdict is None:
            decisions.append(Telling(first, count, *_shown(plan, unit), asked, unit.tokens))
            continue
        more = max(0, verdict.fits_with)  # below 0 where a marker came after it
        if verdict.reason == "over_budget":
            more = max(before.needed(more), plan.short)
        status, reason, kept = verdict.status, verdict.reason, verdict.tokens
        rank = ranks[index, first]
        decisions.append(Telling(first, count, status, reason, asked, kept, rank, more or None))
    for first, reason, tokens in reading.left_out:
        gone: Status = "empty" if reason == "empty" else "dropped"
        decisions.append(Telling(first, 1, gone, reason, 0 if reason == "empty" else tokens))
    if reading.beyond:
        decisions.append(_beyond(plan, ranks.get((index, None)), before))
    decisions.sort(key=attrgetter("first"))
    return decisions


def _estimate(plan: SlotPlan) -> int:
    """Return about how many tokens the unread messages have."""
    reading = plan.reading
    if not reading.beyond:
        return 0
    read = [unit for unit in reading.units if not unit.system] or reading.units
    counted = sum(len(unit.indices) for unit in read)
    # Sizes before shortening: a shortened message tells nothing of the size of older messages.
    tokens = sum(unit.tokens if unit.form is None else unit.form.tokens for unit in read)
    return -(-tokens * reading.beyond // counted) if counted else 0


def _beyond(plan: SlotPlan, rank: int | None, before: Before) -> Telling:
    """The unread messages, too old to fit: their size is the average of the messages read."""
    reading, estimate = plan.reading, _estimate(plan)
    read = [unit for unit in reading.units if not unit.system] or reading.units
    taken = {index for unit in reading.units for index in unit.indices}
    taken.update(index for index, _, _ in reading.left_out)
    verdicts = [plan.verdicts.get(unit.indices[0]) for unit in read]
    # A verdict may be below 0: it was found while more room was kept than is needed in the end.
    nearest = max([0, *[each.fits_with for each in verdicts if each is not None]])
    stepped = reading.start is not None  # more tokens would not bring these messages back
    return Telling(
        first=next(index for index in reading.unread if index not in taken),
        count=reading.beyond,
        status="dropped",
        reason="stepped" if stepped else "beyond_fit",
        tokens_asked=estimate,
        rank=rank,
        fits_with=None if stepped else before.needed(nearest + estimate) or None,
    )
