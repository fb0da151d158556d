"""The receipt of a request as a header: what was sent of it, and what was left out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from muntin.fitting.requests import Outcome

HEADER = "x-muntin-receipt"
# Servers and proxies take headers of some kilobytes.
_LONGEST = 2_000


def receipt_of(outcome: Outcome, session: str | None = None) -> str:
    """Return the receipt of a request, as JSON of one line.

    Messages are named by their places in the request that came.
    """
    told: dict[str, Any] = {} if session is None else {"session": session}
    if outcome.fitted is None:
        return _written({**told, "passed": outcome.passes or ""})
    window = outcome.fitted.window
    told |= {"tokens": window.tokens, "budget": window.report.budget}
    if outcome.changed:
        placed = [each for each in outcome.fitted.placed if each.ref is not None]
        refs = [place(each.ref) for each in placed]
        every = {place(piece.ref) for piece in outcome.request.pieces}
        told["left_out"] = ranges(every.difference(refs))
        told["shortened"] = ranges(
            {at for at, each in zip(refs, placed, strict=True) if not each.is_whole}
        )
        told["added"] = len(outcome.fitted.placed) - len(placed)
    if outcome.fitted.unread:
        told["unread"] = list(outcome.fitted.unread)
    if outcome.fitted.fresh is not None:
        told["fresh"] = outcome.fitted.fresh
    return _written(told)


def passed(why: str) -> str:
    """Return the receipt of a request that goes as it came."""
    return _written({"passed": why})


def place(ref: Any) -> int:
    """Return the place of what a piece refers to."""
    return int(ref if isinstance(ref, int) else ref[0])


def ranges(places: Iterable[int]) -> str:
    """Return places as people write them: `0-4,7`."""
    found: list[list[int]] = []
    for at in sorted(places):
        if found and found[-1][1] == at - 1:
            found[-1][1] = at
        else:
            found.append([at, at])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def _written(told: dict[str, Any]) -> str:
    """Return JSON that a header can hold; what is too long is cut to how much there is."""
    text = json.dumps(told, separators=(",", ":"))
    for key in ("unread", "fresh", "passed", "left_out", "shortened", "session"):
        if len(text) > _LONGEST and key in told:
            cut = f"{len(told[key])} of them" if key == "unread" else f"{told[key][:200]}..."
            told = {**told, key: cut}
            text = json.dumps(told, separators=(",", ":"))
    return text
