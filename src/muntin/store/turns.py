"""Which turn each appended item belongs to: one rule for all stores."""

from __future__ import annotations

from collections.abc import Sequence

from muntin.errors import InvalidInput
from muntin.store.items import Draft, Status


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
                status = "pending" if draft.opens == "inbox" else "open"
            changes[number] = status
        waiting = waiting and draft.opens is None and draft.turn is None
        if draft.ends is not None:
            changes[number] = draft.ends
            if number == newest:
                status = draft.ends
        numbers.append(number)
    return numbers, changes
