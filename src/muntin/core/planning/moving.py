"""Moving: what a conversation shows of its past in the room that it is given.

It stays where it began as long as it fits; else it moves to the low mark. Pure functions of the
draft: what was decided about the run is known, nothing else is asked.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from muntin.core.counting.counter import Counter
from muntin.core.message import Message
from muntin.core.planning.compact import GONE
from muntin.core.planning.draft import Draft, SlotPlan
from muntin.core.planning.levels import Levels, SlotView, by_turn, lower, show_at, tokens_at
from muntin.core.planning.memory import ConversationDraft
from muntin.core.planning.shrink import compact, marker_tokens, with_marker, without_oldest
from muntin.core.planning.slot import Recap
from muntin.core.planning.units import Unit

# A note about missing calls names so many tools.
_NAMES = 8


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
    units, recap = part.reading.units, conversation.recap
    lasting, in_turn = levels_before(draft, conversation)
    front = _tokens_of(recap, draft.counter)
    view = show_at(units, lasting.joined(in_turn))
    if view.tokens + front > room:
        usual = _usual_room(draft, part, conversation, room)
        if tokens_at(units, lasting) + front > max(usual, room):
            recap, lasting = _move_for_good(draft, part, conversation, lasting, usual)
            front = _tokens_of(recap, draft.counter)
            view = show_at(units, lasting.joined(in_turn))
    if view.tokens + front > room:
        in_turn = _moved(draft, part, conversation, lasting.joined(in_turn), room - front)
        view = show_at(units, in_turn)
    if view.tokens + front > room and conversation is draft.conversation and draft.run is not None:
        # The newest turn alone does not fit, and requests of this turn will follow.
        older = [[place] for place, unit in enumerate(units[:-1]) if unit.role != "user"]
        most = max(0, room - front)
        in_turn = lower(units, in_turn, GONE, older, int(conversation.low * most), most)
        view = show_at(units, in_turn)
    if view.tokens + front > room:
        view = _without_oldest(draft, part, view, max(0, room - front))
    if recap is not None and view.tokens + front <= room:
        view.front, view.tokens = (recap.message,), view.tokens + front
    add_note(conversation, units, lasting, view, room, draft.counter)
    view = with_marker(part.reading, view, room, draft.counter)
    view.lasting, view.in_turn, view.recap = lasting, in_turn, recap
    return view


def _tokens_of(recap: Recap | None, counter: Counter) -> int:
    return 0 if recap is None else counter.message(recap.message)


def _move_for_good(
    draft: Draft, part: SlotPlan, conversation: ConversationDraft, levels: Levels, room: int
) -> tuple[Recap | None, Levels]:
    """Move, and put the newest summary in front if anything leaves with it."""
    newest, most = draft.recap if conversation is draft.conversation else None, room // 4
    recap = conversation.recap
    if recap is not None and _tokens_of(recap, draft.counter) > most:
        recap = None  # no longer worth its room
    if newest is not None and (
        conversation.recap is None or newest.until > conversation.recap.until
    ):
        front = _tokens_of(newest, draft.counter)
        moved = _moved(draft, part, conversation, levels, room - front)
        if front <= most and moved.gone > levels.gone:
            return newest, moved
    front = _tokens_of(recap, draft.counter)
    return recap, _moved(draft, part, conversation, levels, room - front)


def _moved(
    draft: Draft, part: SlotPlan, conversation: ConversationDraft, levels: Levels, room: int
) -> Levels:
    """Return the levels that leave a history at or below the low mark of its room, if the newest
    turn and the floor allow it. Nothing is shortened that shows no more messages for it, as long as
    half of the way from the low mark to the room stays free."""
    units = part.reading.units
    floor = 0 if draft.fallback else min(part.limits.floor, room)
    room = max(0, room - marker_tokens(part.slot, draft.counter))
    low = max(int(conversation.low * room), floor)
    short, fits = compact(units, levels, room, low, floor=floor)
    if fits:
        return short
    if short == levels:
        return lower(units, levels, GONE, by_turn(units), low, room, floor)
    turns = by_turn(units)
    short, whole = (lower(units, at, GONE, turns, low, room, floor) for at in (short, levels))
    shown_short, shown_whole = (
        _without_oldest(draft, part, show_at(units, at), room) for at in (short, whole)
    )
    gained = len(shown_short.forms) - len(shown_whole.forms)
    leaves_room = shown_whole.tokens <= (low + room) // 2
    return whole if gained < 0 or (gained == 0 and leaves_room) else short


def _without_oldest(draft: Draft, part: SlotPlan, view: SlotView, room: int) -> SlotView:
    """Leave out the oldest units of the newest turn; its question goes with its last unit."""
    units = [form.unit for form in view.forms if not form.unit.is_protected]
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


def add_note(
    conversation: ConversationDraft,
    units: Sequence[Unit],
    levels: Levels,
    view: SlotView,
    room: int,
    counter: Counter,
) -> None:
    """Say in front of the first unit that is left of a turn which calls are gone."""
    calls = conversation.calls_gone(units, levels)
    if not calls:
        return
    names = ", ".join(f"{name} {count}" for name, count in calls.most_common(_NAMES))
    total = calls.total()
    line = f"[{total} earlier calls are not shown: {names}]"
    note = Message("user", line if total > 1 else f"[1 earlier call is not shown: {names}]")
    tokens = counter.message(note)
    if view.tokens + tokens <= room:
        view.note, view.tokens = note, view.tokens + tokens
