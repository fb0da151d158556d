"""The next move of a conversation: how near it is, and what will leave with it.

An estimate from the plan of one window, for summaries that are made ahead; nothing is decided by
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from muntin.core.message import Message, place_of
from muntin.core.planning.compact import GONE, STUB
from muntin.core.planning.draft import SlotPlan
from muntin.core.planning.levels import by_turn, end_of, lower, tokens_at
from muntin.core.planning.plan import Plan
from muntin.core.planning.shrink import compact

# A summary is made when a conversation has gone this share of the way to its next move.
NEAR = 0.7

# A place on a timeline: `at`, and the item.
TimelinePlace = tuple[float, int]


class Leaving(NamedTuple):
    """A message that is expected to leave: where it stands, as the window shows it."""

    place: TimelinePlace
    message: Message
    tokens: int


class NextMove(NamedTuple):
    """The next move of a conversation, when it is near.

    `leaving` is expected to leave, the oldest first. Messages up to `summarized` are in the summary
    that is shown. `budget` is the size of the window. What stands up to `begins` is in a summary
    of the provider's.
    """

    leaving: Sequence[Leaving]
    summarized: TimelinePlace
    budget: int
    begins: TimelinePlace = (0.0, 0)

    @property
    def until(self) -> TimelinePlace:
        """Where the last message stands that is expected to leave."""
        return self.leaving[-1].place


def next_move(plan: Plan, more: int = 0, summary: int = 0) -> NextMove | None:
    """Return the next move of the main conversation of a window that gets `more` tokens, with a
    summary of `summary` tokens in front; None if it is not near, or nothing will leave."""
    conversations = (
        part.conversation
        for part in reversed(plan.slots)
        if part.conversation and part.conversation.is_stepped
    )
    conversation = next(conversations, None)
    if conversation is None:
        return None
    start = next(
        start
        for start in plan.starts
        if (start.slot, start.number) == (conversation.name, conversation.number)
    )
    members = [part for part in plan.slots if any(part.slot is slot for slot in conversation.slots)]
    run = next((part for part in members if part.slot.kind == "run"), None)
    gone = None if run is None else _where_run_is_cut(plan, run, more)
    if gone is None:
        gone = _where_history_is_cut(members, start.rooms, more, summary)
    leaving = _leaving(members, gone)
    summarized = (0.0, 0) if start.recap is None else start.recap.place
    budget = plan.declared.budget.remaining_input_tokens
    units = [unit for part in members for unit in part.reading.units if unit.begins]
    begins = units[0].place if units else (0.0, 0)
    return NextMove(leaving, summarized, budget, begins) if leaving else None


def _where_run_is_cut(plan: Plan, run: SlotPlan, more: int) -> int | None:
    """Return before which position the run leaves; None if its calls are not about to leave: all
    but the newest of them become stubs first."""
    units = run.reading.units
    groups = [unit for unit in units if unit.is_group]
    ladder = run.slot.trim.ladder
    newest = groups[-max(1, ladder.keep_groups if ladder else 1) :]
    if not newest or run.open_room is None:
        return None
    least = tokens_at(units, run.levels.raised(STUB, end_of(units, len(units) - 1))) + more
    least += sum(map(plan.declared.counter.message, run.view.notes))
    few = int(run.conversation.low * run.open_room) // 2 if run.conversation else 0
    is_near = least - few >= NEAR * (run.open_room - few)
    return newest[0].position if is_near else None


def _where_history_is_cut(
    members: Sequence[SlotPlan], rooms: Sequence[int], more: int, summary: int
) -> int:
    """Return before which position the history leaves; 0 if that is not near."""
    head = members[0]
    assert head.conversation is not None
    units = [unit for part in members for unit in part.reading.units]
    room = sorted(rooms)[min(1, len(rooms) - 1)] if rooms else 0
    if head.limits.cap is not None:  # in the next window all of it is history
        room = min(room, head.limits.cap)
    tokens = sum([part.view.tokens for part in members]) + more
    low = int(head.conversation.low * room)
    if tokens - low < NEAR * max(1, room - low):
        return 0
    # Everything still to come counts as one message: the rest must make room for it.
    levels = head.levels
    target = max(0, low - max(0, room - tokens) - min(summary, room // 4))
    levels, _ = compact(units, levels, max(0, target - 1), target)
    if tokens_at(units, levels) <= target:
        return 0
    return lower(units, levels, GONE, by_turn(units), target, target).gone


def _leaving(members: Sequence[SlotPlan], gone: int) -> list[Leaving]:
    """Return the messages between where a conversation begins and a position, as they are shown;
    what this window alone leaves out, as stubs."""
    leaving = []
    for part in members:
        forms = {id(form.unit): form.messages for form in part.view.forms}
        for unit in part.reading.units:
            stays = unit.is_system or unit.never_leaves
            if stays or not part.levels.gone <= unit.position < gone:
                continue
            for message, form in zip(
                unit.messages, forms.get(id(unit), unit.form(STUB)[0]), strict=True
            ):
                if message.at is not None:  # memos of forms may hold another item's place
                    tokens = unit.tokens // len(unit.messages)
                    leaving.append(Leaving(place_of(message), form, tokens))
    return sorted(leaving, key=lambda message: message.place)
