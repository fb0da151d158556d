"""The step that comes next: how near it is, and what will leave with it.

A guess from the plan of one window; nothing is decided by it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from muntin.core.message import at_of
from muntin.core.planning.ladder import Rung, rungs_of
from muntin.core.planning.past import Past
from muntin.core.planning.plan import Plan
from muntin.core.planning.slot import Recap
from muntin.core.planning.step import Ground, SteppedSlot, Told, advance, growth_of, most_told
from muntin.core.planning.verdict import SlotPlan, starts_of


class Coming(NamedTuple):
    """The next step of a history.

    `reached` is the share of the way from the last step to the next. Messages up to the position
    `until` are expected to leave with the next step; None if none are. Messages up to `told` are in
    the summary that is shown. `since` is where the history begins now.
    """

    reached: float
    until: float | None
    told: float
    since: float


def coming_step(plan: Plan, more: int = 0, summary: int = 0) -> Coming | None:
    """Return the next step of the last history of a window that gets `more` tokens, with a summary
    of `summary` tokens; None without a history that steps."""
    heads = [each for each in plan.slots if _is_head(each)]
    if not heads:
        return None
    head = heads[-1]
    assert head.step is not None
    start = next(each for each in starts_of([*plan.slots]) if each.slot == head.slot.name)
    members = [each for each in plan.slots if each.slot.index in head.step.members]
    tokens = more + sum([each.tokens for each in members])
    way = max(1, head.step.high - start.base)
    told = 0.0 if start.recap is None else start.recap.until
    until = _until(plan, head, members, tokens, summary)
    return Coming((tokens - start.base) / way, until, told, start.at or 0.0)


def _is_head(each: SlotPlan) -> bool:
    step = each.step
    return step is not None and step.members[0] == each.slot.index and not each.slot.run


def _until(
    plan: Plan, head: SlotPlan, members: list[SlotPlan], tokens: int, summary: int
) -> float | None:
    """Return the position up to which messages will leave, if the past grows as before."""
    step = head.step
    assert step is not None
    past = Past([each.slot.messages for each in members])
    rungs = rungs_of([each.reading for each in members], past.offsets[:-1])
    growth = int(growth_of(rungs, tokens, step.before))
    # Everything still to come, as one message.
    rest = max(0, step.high - tokens) + growth + 1
    rungs.append(Rung(len(past), len(past) + 1, rest, opens_turn=True))
    ground, ladder = Ground(plan.tools, plan.caching), head.slot.ladder
    step, size = replace(step, newer=None), tokens + rest
    gone, dropped, told = [
        advance(
            each, way, rungs, size + each.told_tokens - step.told_tokens, step.high, ground
        ).levels.gone
        for each, way in ((step, ladder), (step, None), (_telling(step, summary), ladder))
    ]
    if gone <= step.levels.gone and not step.levels.stubs:
        return None  # results become shorter first
    # The farthest of the three ways: a message both summarised and shown is better than one lost.
    left = range(step.levels.gone, min(max(gone, dropped, told), len(past)))
    dated = (at_of(past[index]) for index in reversed(left))
    return next((at for at in dated if at is not None), None)


def _telling(step: SteppedSlot, tokens: int) -> SteppedSlot:
    """Return the history with a summary of `tokens` tokens in front, which needs room too."""
    most = min(tokens, most_told(step.high))
    return replace(step, told=Told(Recap("", 0.0), most)) if most else step
