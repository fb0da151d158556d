"""The next move of a conversation: how near it is, and what will leave with it.

An estimate from the plan of one window, for summaries that are made ahead; nothing is decided by
it.
"""

from __future__ import annotations

from typing import NamedTuple

from muntin.core.message import at_of
from muntin.core.planning.compact import GONE
from muntin.core.planning.levels import by_turn, lower, tokens_at
from muntin.core.planning.plan import Plan
from muntin.core.planning.shrink import compact


class NextMove(NamedTuple):
    """The next move of a conversation.

    `reached` is the share of the way from the low mark to the room. Messages up to the position
    `until` are expected to leave; None if none are. Messages up to `summarized` are in the summary
    that is shown. `since` is where the history begins now.
    """

    reached: float
    until: float | None
    summarized: float
    since: float


def next_move(plan: Plan, more: int = 0, summary: int = 0) -> NextMove | None:
    """Return the next move of the main conversation of a window that gets `more` tokens, with a
    summary of `summary` tokens in front; None without a history."""
    head = next(
        (
            each
            for each in reversed(plan.slots)
            if each.conversation is not None and each.slot.is_stepped and each.slot.kind == "list"
        ),
        None,
    )
    if head is None or head.conversation is None:
        return None
    past = head.conversation
    start = next(
        each for each in plan.starts if (each.slot, each.number) == (past.name, past.number)
    )
    members = [each for each in plan.slots if any(each.slot is slot for slot in past.slots)]
    units = [unit for each in members for unit in each.reading.units]
    room = sorted(start.rooms)[min(1, len(start.rooms) - 1)] if start.rooms else 0
    if head.limits.cap is not None:  # in the next window all of it is history
        room = min(room, head.limits.cap)
    tokens = sum([each.view.tokens for each in members]) + more
    low = int(past.low * room)
    summarized = 0.0 if start.recap is None else start.recap.until
    reached = (tokens - low) / max(1, room - low)
    # Everything still to come counts as one message: the rest must make room for it.
    levels = head.levels
    target = max(0, low - max(0, room - tokens) - min(summary, room // 4))
    levels, _ = compact(units, levels, max(0, target - 1), target)
    is_enough = tokens_at(units, levels) <= target
    until = None
    if not is_enough:
        gone = lower(units, levels, GONE, by_turn(units), target, target).gone
        left = [unit for unit in units if head.levels.gone <= unit.position < gone]
        dated = [at for unit in left for at in map(at_of, unit.messages) if at is not None]
        until = max(dated, default=None)
    return NextMove(reached, until, summarized, start.at or 0.0)
