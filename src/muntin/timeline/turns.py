"""Turns: which one an appended item belongs to, and who may work on one. For all stores."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from muntin.errors import InvalidInput
from muntin.timeline.items import Draft, Status, Turn
from muntin.timeline.owner import abandoned


def place(
    session: str, drafts: Sequence[Draft], newest: int, status: Status | None
) -> tuple[list[int], dict[int, Status]]:
    """Return the turn of each draft, and the status of each turn that gets one.

    `newest` is the session's newest turn (0: none yet) and `status` its status. What comes before
    a session's first request belongs to it.
    """
    numbers: list[int] = []
    changes: dict[int, Status] = {}
    waiting = newest == 0  # for the first request
    for draft in drafts:
        if draft.turn is not None:
            if not 1 <= draft.turn <= newest + 1:
                raise InvalidInput(
                    f"session {session!r} has turns 1 to {newest}; there is no {draft.turn}"
                )
            number = draft.turn
        else:
            joins = newest > 0 and (
                draft.opens is None or waiting or (draft.opens == "inbox" and status == "pending")
            )
            number = newest if joins else newest + 1
        if number > newest or (waiting and draft.opens is not None):
            newest = number
            if draft.opens is None and draft.turn is None:
                status = "completed"  # something was noted before anyone asked
            else:
                status = "open" if draft.opens in (None, "turn") else "pending"
            changes[number] = status
        waiting = waiting and draft.opens is None and draft.turn is None
        if draft.ends is not None:
            changes[number] = draft.ends
            if number == newest:
                status = draft.ends
        numbers.append(number)
    return numbers, changes


def choose(
    unsettled: Sequence[Turn], number: int | None, now: datetime
) -> tuple[Turn | None, list[int]]:
    """Return which turn may be worked on now, and which were given up by their owners.

    `unsettled` are the open and pending turns, the oldest first. One turn of a session is worked
    on at a time, in their order. With a `number` only that turn is wanted; without one, a
    resumable turn that its owner gave up, or the inbox.
    """
    alive = {turn.number for turn in unsettled if turn.owner and not abandoned(turn, now)}
    if any(turn.status == "open" and turn.number in alive for turn in unsettled):
        return None, []
    failed: list[int] = []
    for turn in unsettled:
        if turn.owner is None:
            if turn.status == "pending" and (number is None or number == turn.number):
                return turn, failed
        elif turn.number not in alive:
            if turn.status == "open" and number is None and turn.resumable:
                return turn, failed
            failed.append(turn.number)
        else:
            # Pending, and its owner waits for it: the first comes first.
            return (turn if turn.number == number else None), failed
    return None, failed
