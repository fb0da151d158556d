"""Moving: what a conversation shows of its past, and of the run, in the room that it is given.

It stays where it began as long as it fits; else it moves to the low mark. Pure functions of the
draft: the run is asked first, its history knows what was decided about it, nothing else is asked.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from muntin.core.counting.counter import Counter
from muntin.core.message import Message
from muntin.core.planning.compact import CUT, GONE, LADDER, LEAST, STUB
from muntin.core.planning.draft import Draft, SlotPlan
from muntin.core.planning.levels import (
    Form,
    Levels,
    SlotView,
    by_turn,
    lower,
    lower_summarized,
    show_at,
    tokens_at,
)
from muntin.core.planning.limits import fair_shares
from muntin.core.planning.memory import ConversationDraft
from muntin.core.planning.shrink import compact, marker_tokens, with_marker, without_oldest
from muntin.core.planning.slot import Recap
from muntin.core.planning.units import Unit

# A note about missing calls names so many tools, and has about so many tokens.
_NAMES, _NOTE = 8, 32


def levels_before(draft: Draft, conversation: ConversationDraft) -> tuple[Levels, Levels]:
    """Return how far a conversation has moved for good, and in this turn. What a run does its
    history does too: both are one conversation, the oldest first."""
    lasting, run = conversation.lasting, draft.run
    if run is not None and conversation is draft.conversation and run.view.lasting is not None:
        lasting = lasting.joined(run.view.lasting)
    return lasting, conversation.in_turn


def show_history(
    draft: Draft, part: SlotPlan, conversation: ConversationDraft, room: int
) -> SlotView:
    """Stay where the conversation began, if that fits; else move.

    It moves for good if it has outgrown the room it usually has, to the low mark of that room.
    If it has not, other slots are unusually large: then it moves for this turn only.
    """
    units = part.reading.units
    lasting, in_turn = levels_before(draft, conversation)
    recap = None if _begins_in_run(draft, conversation, lasting) else conversation.recap
    notes = notes_of(conversation, units, lasting, recap)
    front = tokens_of(notes, draft.counter)
    view = show_at(units, lasting.joined(in_turn))
    if view.tokens + front > room or draft.must_step:
        usual = _usual_room(draft, part, conversation, room)
        if tokens_at(units, lasting) + front > max(usual, room) or draft.must_step:
            recap, lasting = _move_for_good(draft, part, conversation, lasting, usual)
            notes = notes_of(conversation, units, lasting, recap)
            front = tokens_of(notes, draft.counter)
            view = show_at(units, lasting.joined(in_turn))
    if view.tokens + front > room:
        in_turn = _lowered_levels(draft, part, conversation, lasting.joined(in_turn), room - front)
        view = show_at(units, in_turn)
    if view.tokens + front > room and conversation is draft.conversation and draft.run is not None:
        # The newest turn alone does not fit, and requests of this turn will follow.
        older = [[place] for place, unit in enumerate(units[:-1]) if unit.role != "user"]
        most = max(0, room - front)
        in_turn = lower(units, in_turn, GONE, older, int(conversation.low * most), most)
        view = show_at(units, in_turn)
    if view.tokens + front > room:
        view = _without_oldest(draft, part, view, max(0, room - front))
    add_notes(view, notes, room, draft.counter)
    view = with_marker(part.reading, view, room, draft.counter)
    view.lasting, view.in_turn, view.recap = lasting, in_turn, recap
    return view


def _begins_in_run(draft: Draft, conversation: ConversationDraft, levels: Levels) -> bool:
    """Say whether the past begins in the run: then the summary stands there."""
    run = draft.run if conversation is draft.conversation else None
    return run is not None and levels.gone >= conversation.offset(run.slot)


def newest_recap(draft: Draft, conversation: ConversationDraft, room: int) -> Recap | None:
    """Return the summary and the wishes for a conversation that moves in a room; none that are
    larger than a quarter of it: then the wishes alone, if they are not."""
    newest = draft.recap if conversation is draft.conversation else None
    recaps = [recap for recap in (newest, conversation.recap) if recap is not None]
    recaps += [Recap("", 0.0, standing=recap.standing) for recap in recaps if recap.standing]
    recaps = [recap for recap in recaps if draft.counter.message(recap.message) <= room // 4]
    return max(recaps, key=lambda recap: recap.place, default=None)


def tokens_of(messages: Iterable[Message], counter: Counter) -> int:
    """Count some messages."""
    return sum([counter.message(message) for message in messages])


def _move_for_good(
    draft: Draft, part: SlotPlan, conversation: ConversationDraft, levels: Levels, room: int
) -> tuple[Recap | None, Levels]:
    """Move, and put the newest summary in front if anything leaves with it."""
    newest = newest_recap(draft, conversation, room)
    front = 0 if newest is None else draft.counter.message(newest.message)
    moved = _lowered_levels(draft, part, conversation, levels, room - front, newest)
    if newest is conversation.recap or moved.gone > levels.gone:
        return newest, moved
    recap = conversation.recap  # nothing leaves: it stays, unless it is no longer worth its room
    front = 0 if recap is None else draft.counter.message(recap.message)
    recap, front = (recap, front) if front <= room // 4 else (None, 0)
    return recap, _lowered_levels(draft, part, conversation, levels, room - front)


def _lowered_levels(
    draft: Draft,
    part: SlotPlan,
    conversation: ConversationDraft,
    levels: Levels,
    room: int,
    recap: Recap | None = None,
) -> Levels:
    """Return the levels that leave a history at or below the low mark of its room, if the newest
    turn, the floor and the summary allow it. Nothing is shortened that shows no more messages for
    it, as long as half of the way from the low mark to the room stays free."""
    units = part.reading.units
    floor = 0 if draft.fallback else min(part.limits.floor, room)
    room = max(0, room - marker_tokens(part.slot, draft.counter))
    low = max(int(conversation.low * room), floor)
    room = low if draft.must_step else room
    short, fits = compact(units, levels, room, low, floor=floor)
    if fits:
        return short
    if short == levels:
        return lower_summarized(units, levels, by_turn(units), low, room, floor, recap)
    turns = by_turn(units)
    short, whole = (
        lower_summarized(units, at, turns, low, room, floor, recap) for at in (short, levels)
    )
    shown_short, shown_whole = (
        _without_oldest(draft, part, show_at(units, at), room) for at in (short, whole)
    )
    gained = len(shown_short.forms) - len(shown_whole.forms)
    leaves_room = shown_whole.tokens <= (low + room) // 2
    return whole if gained < 0 or (gained == 0 and leaves_room) else short


def _without_oldest(draft: Draft, part: SlotPlan, view: SlotView, room: int) -> SlotView:
    """Leave out the oldest units of the newest turn; its question goes with its last unit."""
    shown = [form.unit for form in view.forms]
    units = [unit for unit in shown if not (unit.is_protected or unit.never_leaves)]
    order = [*sorted(units[:-1], key=lambda unit: unit.role == "user"), *units[-1:]]
    floor = part.limits.floor
    floor = sys.maxsize if draft.fallback and floor else floor
    return without_oldest(part.reading, view, room, floor, draft.counter, order)


def _usual_room(draft: Draft, part: SlotPlan, conversation: ConversationDraft, room: int) -> int:
    """Return the room that a history usually has: the smallest of the last turns but one, so that
    one odd turn does not count."""
    beside, ceiling = tokens_beside(draft, part), part.limits.cap
    rooms = sorted(conversation.usual_rooms(room_of(part, room) + beside))
    usual = rooms[min(1, len(rooms) - 1)] - beside
    usual = usual if ceiling is None else min(usual, ceiling)
    return max(usual, min(part.limits.floor, room), 0)


def room_of(part: SlotPlan, room: int) -> int:
    """Return the room of a slot before its ceiling, or `room` if it was not served yet."""
    return room if part.open_room is None else part.open_room


def tokens_beside(draft: Draft, part: SlotPlan) -> int:
    """Return the tokens of the input and the run, which are part of the conversation too."""
    if part is not draft.history:
        return 0
    beside = [other for other in (draft.input, draft.run) if other is not None]
    return sum([other.view.tokens for other in beside if other.slot.pool == part.slot.pool])


def add_notes(view: SlotView, notes: Sequence[Message], room: int, counter: Counter) -> None:
    """Put notes where the past begins, as far as they fit."""
    for note in notes:
        tokens = counter.message(note)
        if view.tokens + tokens <= room:
            view.notes, view.tokens = (*view.notes, note), view.tokens + tokens


def notes_of(
    conversation: ConversationDraft, units: Sequence[Unit], levels: Levels, recap: Recap | None
) -> list[Message]:
    """Return the summary, and the line that says which calls are gone of the turn in which the past
    begins."""
    notes = [] if recap is None else [recap.message]
    calls = conversation.calls_gone(units, levels)
    if not calls:
        return notes
    names = ", ".join(f"{name} {count}" for name, count in calls.most_common(_NAMES))
    total = calls.total()
    line = f"[{total} earlier calls are not shown: {names}]"
    line = line if total > 1 else f"[1 earlier call is not shown: {names}]"
    return [*notes, Message("user", line)]


# The run.


def show_run(draft: Draft, part: SlotPlan, conversation: ConversationDraft, room: int) -> SlotView:
    """Old results become short, then stubs: first the history's, then the run's. Only if the
    run alone is still too large, its newest results are cut and its oldest calls leave."""
    units = part.reading.units
    lasting, in_turn = levels_before(draft, conversation)
    before = levels = lasting.joined(in_turn)
    begin = conversation.offset(part.slot)
    recap = conversation.recap if lasting.gone >= begin else None
    notes = notes_of(conversation, units, lasting, recap)
    front = tokens_of(notes, draft.counter)
    view = show_at(units, levels)
    history, ceiling = [], None
    if draft.history is not None and draft.history.slot.pool == part.slot.pool:
        history, ceiling = draft.history.reading.units, draft.history.limits.cap
    size, both = tokens_at(history, levels), room
    if ceiling is not None:  # what is above it will not be shown anyway
        both += max(0, size - ceiling)
    taken, low = view.tokens + front, int(conversation.low * both)
    most = low if draft.must_step else both
    if size + taken <= most:
        add_notes(view, notes, room, draft.counter)
        view.recap = recap
        return view
    inner = room - front
    levels, _ = compact(history, levels, most - taken, max(0, low - taken))
    levels, _ = compact([*history, *units], levels, most - front, low, _newest_groups(part))
    view = _with_newest_cut(part, levels, inner)
    if view.tokens > inner:
        newest = [unit for unit in units if unit.is_group][-1:] or units[-1:]
        earlier = [[n] for n, unit in enumerate(units) if unit.position < newest[0].position]
        few = min(room, int(conversation.low * draft.budget) // 2) - _NOTE
        recap = newest_recap(draft, conversation, room)
        inner = room - _NOTE - (0 if recap is None else draft.counter.message(recap.message))
        levels = lower_summarized(units, levels, earlier, few, inner, recap=recap)
        view = _with_newest_cut(part, levels, inner)
    # Levels of this turn alone stay so, unless the run went beyond them.
    raised = zip(levels, before, lasting, strict=True)
    view.lasting = Levels(*[new if new > old else current for new, old, current in raised])
    view.recap = recap if levels.gone >= begin else None
    add_notes(view, notes_of(conversation, units, levels, view.recap), room, draft.counter)
    return view


def run_need(draft: Draft, part: SlotPlan, conversation: ConversationDraft) -> int:
    """Return the tokens of a run whose old results are stubs; half of the window at most."""
    if draft.has_least_run:
        return show_run(draft, part, conversation, 0).tokens
    units = part.reading.units
    levels = conversation.lasting.joined(conversation.in_turn).raised(CUT, units[-1].position + 1)
    groups = [unit for unit in units if unit.is_group]
    older = groups[: max(0, len(groups) - _newest_groups(part))]
    if older:
        levels = levels.raised(STUB, older[-1].position + 1)
    tokens = tokens_at(units, levels)
    half = draft.budget // 2
    return tokens if tokens <= half else show_run(draft, part, conversation, half).tokens


def _newest_groups(part: SlotPlan) -> int:
    return (part.slot.trim.ladder or LADDER).keep_groups


def _with_newest_cut(part: SlotPlan, levels: Levels, room: int) -> SlotView:
    """Cut the newest calls and their results to equal shares of the room, 64 tokens at least."""
    view = show_at(part.reading.units, levels)
    over = view.tokens - room
    groups = [place for place, form in enumerate(view.forms) if form.unit.is_group]
    newest = groups[max(0, len(groups) - max(1, _newest_groups(part))) :]
    cuttable = [
        (place, number)
        for place in newest
        for number, message in enumerate(view.forms[place].messages)
        if message.tool_call_id is not None or message.tool_calls
    ]
    if over <= 0 or not cuttable:
        return view
    compactor = view.forms[newest[0]].unit.compactor
    sizes = [compactor.body_tokens(view.forms[p].messages[i]) for p, i in cuttable]
    least = [min(size, LEAST) for size in sizes]
    shares = fair_shares(sum(sizes) - over, sizes, [1] * len(sizes), least)
    for (place, number), size, share in zip(cuttable, sizes, shares, strict=True):
        if share >= size:
            continue
        form = view.forms[place]
        messages = list(form.messages)
        whole = form.unit.messages[number]
        messages[number] = compactor.cut(whole, share)
        change = compactor.body_tokens(messages[number]) - size
        if change < 0:
            view.forms[place] = Form(form.unit, tuple(messages), form.tokens + change, "short")
            view.tokens += change
    return view
