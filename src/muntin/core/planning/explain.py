"""Explaining: telling what became of every slot and every message.

Owns the making of the report and of the fates. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from muntin.core.planning.read import Unit
from muntin.core.planning.verdict import SlotPlan, Verdict
from muntin.core.planning.window import Fate
from muntin.core.report import Decision, SlotReport, Status


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
        for index, message in zip(unit.indices, unit.messages, strict=True):
            yield Fate(plan.slot, index, 1, "kept", None, message)
        return
    for index, message in zip(unit.indices, verdict.messages, strict=True):
        shown = None if verdict.status == "dropped" else message
        yield Fate(plan.slot, index, 1, verdict.status, verdict.reason, shown)


def _unread(plan: SlotPlan, read: Sequence[Fate]) -> Iterable[Fate]:
    """Yield the runs of messages that were not looked at."""
    unread = plan.reading.unread
    if not plan.reading.beyond:
        return
    first = unread.start
    for end in [*sorted({fate.first for fate in read} & set(unread)), unread.stop]:
        if end > first:
            yield Fate(plan.slot, first, end - first, "dropped", "beyond_fit")
        first = end + 1


def tell_slot(plan: SlotPlan) -> SlotReport:
    """Tell what became of one slot and of every unit of it."""
    slot, reading = plan.slot, plan.reading
    decisions = _decisions(plan)
    status, reason = _outcome(plan, decisions)
    return SlotReport(
        name=slot.name,
        index=slot.index,
        status=status,
        reason=reason,
        detail=slot.detail,
        priority=plan.priority,
        tier=slot.tier,
        floor=plan.limits.floor,
        cap=plan.limits.cap,
        tokens_asked=sum(decision.tokens_asked for decision in decisions),
        tokens_kept=plan.tokens,
        asked_is_estimate=bool(reading.beyond),
        messages_asked=reading.size,
        messages_kept=sum(d.count for d in decisions if d.status in ("kept", "trimmed")),
        decisions=decisions,
    )


def _outcome(plan: SlotPlan, decisions: Sequence[Decision]) -> tuple[Status, str | None]:
    """Sum up a slot: its status, and the reason of the last thing that was cut."""
    if plan.slot.excluded is not None:
        return "excluded", plan.slot.excluded
    if all(decision.status == "empty" for decision in decisions):
        return "empty", None
    cut = [d for d in decisions if d.status not in ("kept", "empty")]
    if not cut:
        return "kept", None
    reason = max(cut, key=lambda decision: decision.rank or 0).reason
    kept = any(decision.status in ("kept", "trimmed") for decision in decisions)
    return ("trimmed" if kept else "dropped"), reason


def _decisions(plan: SlotPlan) -> tuple[Decision, ...]:
    reading = plan.reading
    decisions = [_decision(unit, plan.verdicts.get(unit.indices[0])) for unit in reading.units]
    for index, reason, tokens in reading.left_out:
        status: Status = "empty" if reason == "empty" else "dropped"
        decisions.append(Decision(index, 1, status, reason, 0 if reason == "empty" else tokens))
    if reading.beyond:
        decisions.append(_beyond(plan))
    return tuple(sorted(decisions, key=lambda decision: decision.first))


def _decision(unit: Unit, verdict: Verdict | None) -> Decision:
    first, count, asked = unit.indices[0], len(unit.indices), unit.tokens
    if verdict is None:
        return Decision(first, count, "kept", None, asked, asked)
    return Decision(
        first,
        count,
        verdict.status,
        verdict.reason,
        asked,
        verdict.tokens,
        verdict.rank,
        max(0, verdict.fits_with) or None,  # below 0 where a marker came after it
    )


def _beyond(plan: SlotPlan) -> Decision:
    """The messages too old to fit, never looked at: their size is the average of those read."""
    reading = plan.reading
    read = [unit for unit in reading.units if not unit.system] or reading.units
    counted = sum(len(unit.indices) for unit in read)
    estimate = -(-sum(unit.tokens for unit in read) * reading.beyond // counted) if counted else 0
    taken = {index for unit in reading.units for index in unit.indices}
    taken.update(index for index, _, _ in reading.left_out)
    verdicts = [plan.verdicts.get(unit.indices[0]) for unit in read]
    nearest = max((0 if each is None else each.fits_with for each in verdicts), default=0)
    stepped = reading.start is not None  # no more tokens would bring them back
    return Decision(
        first=next(index for index in reading.unread if index not in taken),
        count=reading.beyond,
        status="dropped",
        reason="stepped" if stepped else "beyond_fit",
        tokens_asked=estimate,
        rank=plan.beyond_rank,
        fits_with=None if stepped else nearest + estimate or None,
    )
