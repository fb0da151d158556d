"""Explaining: what became of every slot and every message, for the report and for pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TypeAlias

from muntin.core.message import Message, as_message
from muntin.core.planning.compact import FULL
from muntin.core.planning.draft import COMPACTED, MOVED, OVER_CAP, SlotPlan
from muntin.core.planning.levels import Form
from muntin.core.planning.units import Unit
from muntin.core.report import SHORT, Decision, SlotReport, Status, ranges
from muntin.core.window import MessageOutcome

# The statuses of messages that are in the window.
_STAYS = ("kept", "trimmed", "short", "stubbed")


# What became of a unit or of other messages of a slot, with their places and what is shown of them.
_Fate: TypeAlias = tuple[Decision, Sequence[int], Sequence[Message | None]]


def explain_messages(plans: Sequence[SlotPlan]) -> tuple[MessageOutcome, ...]:
    """Say what became of every message, slot by slot, in the order of the slot."""
    outcomes: list[MessageOutcome] = []
    for plan in plans:
        of_slot = [
            MessageOutcome(
                plan.slot, index, fate.count // len(indices), fate.status, fate.reason, visible
            )
            for fate, indices, messages in _fates(plan, {})
            for index, visible in zip(indices, messages, strict=False)
        ]
        outcomes += sorted(of_slot, key=attrgetter("first"))
    return tuple(outcomes)


def explain_slots(plans: Sequence[SlotPlan], *, in_ranges: bool = False) -> tuple[SlotReport, ...]:
    """Say what became of every slot and of every unit of it.

    With `in_ranges`, as it is stored: neighbours with the same fate become one decision.
    """
    ranks = _ranks(plans)
    rows = []
    for _, parts in groupby(plans, key=lambda plan: plan.slot.index):
        together = list(parts)
        rows.append((together, [d for plan in together for d in _decisions(plan, ranks)]))
    joined = in_ranges and sum(len(decisions) for _, decisions in rows) > SHORT
    return tuple([_explain_slot(parts, decisions, joined) for parts, decisions in rows])


def _fates(plan: SlotPlan, ranks: Mapping[int, int]) -> Iterator[_Fate]:
    """Yield what became of everything in a slot."""
    reading, offset = plan.reading, plan.offset
    seen = set[int]()
    for unit, form in _by_unit(plan):
        indices, tokens = unit.indices, 0 if form is None else form.tokens
        messages = (None,) * len(indices) if form is None else form.messages
        decided, rank = _outcome(plan, unit, form), ranks.get(id(unit))
        first, count = offset + indices[0], len(indices)
        yield Decision(first, count, *decided, unit.tokens, tokens, rank), indices, messages
        seen.update(indices)
    for index, reason, tokens in reading.left_out:
        status: Status = "empty" if reason == "empty" else "dropped"
        tokens = 0 if reason == "empty" else tokens
        yield Decision(offset + index, 1, status, reason, tokens), (index,), (None,)
        seen.add(index)
    for index, message in plan.elsewhere:  # counted with its call
        status = "dropped" if message is None else "kept"
        reason_of_call = plan.reason if message is None else None
        yield Decision(offset + index, 1, status, reason_of_call), (index,), (message,)
        seen.add(index)
    if reading.before:
        first, count = reading.before.start, len(reading.before)
        yield Decision(offset + first, count, "dropped", COMPACTED), (first,), (None,)
    if reading.beyond:
        reason = MOVED if plan.slot.is_stepped and plan.levels.gone else "beyond_fit"
        first, remaining, tokens = reading.unread.start, reading.beyond, _unread_tokens(plan)
        for end in [*sorted(seen.intersection(reading.unread)), reading.unread.stop]:
            if count := end - first:
                share = tokens * count // remaining
                yield Decision(offset + first, count, "dropped", reason, share), (first,), (None,)
                remaining, tokens = remaining - count, tokens - share
            first = end + 1


def note_row(name: str, index: int, reason: str, detail: str) -> SlotReport:
    """Return a row that tells something about the window beside its slots."""
    return SlotReport(
        name=name,
        index=index,
        status="excluded",
        reason=reason,
        detail=detail,
        priority=0,
        tier=None,
        floor=0,
        cap=None,
        tokens_asked=0,
        tokens_kept=0,
        asked_is_estimate=False,
        messages_asked=0,
        messages_kept=0,
        decisions=(),
    )


def originals(plans: Sequence[SlotPlan]) -> Iterator[Message]:
    """Yield the messages that a window shows, as they were declared."""
    for plan in plans:
        for form in plan.view.forms:
            yield from (as_message(plan.slot.messages[index]) for index in form.unit.indices)


def _by_unit(plan: SlotPlan) -> list[tuple[Unit, Form | None]]:
    """Return the units of a slot, each with its form; None if it was dropped."""
    forms = {id(form.unit): form for form in plan.view.forms}
    return [(unit, forms.get(id(unit))) for unit in plan.reading.units]


def _outcome(plan: SlotPlan, unit: Unit, form: Form | None) -> tuple[Status, str | None]:
    """Return the status and the reason of a unit."""
    cap = plan.limits.cap
    if form is not None and form.status == "kept":
        return "kept", OVER_CAP if cap is not None and plan.view.tokens > cap else None
    status: Status = "dropped" if form is None else form.status
    if plan.slot.is_stepped and plan.levels.of(unit) != FULL:
        return status, MOVED
    # Nothing but its ceiling cuts what must stay.
    capped = cap is not None and (plan.room >= cap or unit.is_protected)
    return status, OVER_CAP if capped else plan.reason


def _ranks(plans: Sequence[SlotPlan]) -> dict[int, int]:
    """Number the units that gave something as they left: the least protected slot first, and the
    oldest of a slot, system messages last."""
    ranks: dict[int, int] = {}
    for plan in sorted(plans, key=lambda plan: plan.order):
        trim = plan.slot.trim
        units = [unit for unit, form in _by_unit(plan) if form is None or form.status != "kept"]
        if trim.behavior == "char" and trim.keep == "head":
            units.reverse()
        for unit in sorted(units, key=attrgetter("is_system")):
            ranks[id(unit)] = len(ranks) + 1
    return ranks


def _decisions(plan: SlotPlan, ranks: Mapping[int, int]) -> list[Decision]:
    decisions = [decision for decision, _, _ in _fates(plan, ranks)]
    recap = plan.view.recap
    if recap is not None and recap.message in plan.view.notes:  # no message of the slot
        tokens = plan.reading.units[0].compactor.counter.message(recap.message)
        why = "summary" if recap.text else "standing"
        decisions.insert(0, Decision(0, 0, "kept", why, tokens, tokens))
    return sorted(decisions, key=attrgetter("first"))


def _unread_tokens(plan: SlotPlan) -> int:
    """Return about how many tokens the unread messages have: as those that were read."""
    reading = plan.reading
    units = [unit for unit in reading.units if not unit.is_system] or reading.units
    count = sum([len(unit.indices) for unit in units])
    return -(-sum([unit.tokens for unit in units]) * reading.beyond // count) if count else 0


def _explain_slot(
    parts: Sequence[SlotPlan], decisions: Sequence[Decision], joined: bool
) -> SlotReport:
    plan = parts[0]
    slot = plan.slot
    status, reason = _sum_up(plan, decisions)
    # A timeline is read from its newest message back: the store knows how much lies before it.
    earlier, earlier_tokens = getattr(slot.messages, "earlier", (0, 0))
    return SlotReport(
        name=slot.name,
        index=slot.index,
        status=status,
        reason=reason,
        detail=_detail(parts),
        priority=slot.priority,
        tier=slot.place.tier,
        floor=plan.limits.floor,
        cap=plan.limits.cap,
        tokens_asked=sum([decision.tokens_asked for decision in decisions]) + earlier_tokens,
        tokens_kept=sum([part.view.tokens for part in parts]),
        asked_is_estimate=bool(earlier) or any(part.reading.beyond for part in parts),
        messages_asked=sum([len(part.slot.messages) for part in parts]) + earlier,
        messages_kept=sum([decision.count for decision in decisions if decision.status in _STAYS]),
        decisions=tuple(ranges(decisions) if joined else decisions),
    )


def _detail(parts: Sequence[SlotPlan]) -> str | None:
    """Return the remark about a slot, how far its conversation moved in this window, and where the
    provider's summary stands."""
    plan = parts[0]
    remarks = [plan.slot.detail] if plan.slot.detail else []
    size = sum([form.tokens for part in parts for form in part.view.forms if form.unit.begins])
    compacted = sum([len(part.reading.before) for part in parts])
    if size:
        remarks.append(f"the provider's summary {size:,} tokens")
    if compacted:
        are = "messages stand" if compacted > 1 else "message stands"
        remarks.append(f"{compacted:,} {are} before the provider's summary")
    conversation, after = plan.conversation, plan.levels
    if conversation is not None and plan.has_moved and plan.slot.kind == "list":
        before = conversation.lasting.joined(conversation.in_turn)
        gone = {u.turn for u in plan.reading.units if before.gone <= u.position < after.gone}
        stays = {form.unit.turn for form in plan.view.forms}
        turns, beyond = len(gone - stays), plan.reading.beyond
        if turns:
            more = f" and {beyond:,} earlier messages" if beyond and not before.gone else ""
            remarks.append(f"{turns:,} turn{'s' if turns > 1 else ''}{more} left the window")
        elif plan.view.forms and plan.is_cut:
            remarks.append("old messages became shorter")
    return "; ".join(remarks) or None


def _sum_up(plan: SlotPlan, decisions: Sequence[Decision]) -> tuple[Status, str | None]:
    """Sum up a slot: its status, and the reason of the last cut."""
    if plan.slot.excluded is not None:
        return "excluded", plan.slot.excluded
    if all(decision.status == "empty" for decision in decisions):
        return "empty", None
    cut = [d for d in decisions if d.status not in ("kept", "empty")]
    if not cut:
        cap = plan.limits.cap
        return "kept", OVER_CAP if cap is not None and plan.view.tokens > cap else None
    reason = max(cut, key=lambda decision: decision.rank or 0).reason
    became = {decision.status for decision in cut}
    if became <= {"short", "stubbed"}:
        return ("stubbed" if "stubbed" in became else "short"), reason
    any_kept = any(decision.status in _STAYS for decision in decisions)
    return ("trimmed" if any_kept else "dropped"), reason
