"""The receipt of a request as a header: which messages were sent, and which were left out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from muntin.fitting import Fitted, Piece, Pieces

HEADER = "x-muntin-receipt"
# Servers and proxies accept headers of a few kilobytes.
_LONGEST = 2_000


def receipt_of(fitted: Fitted, pieces: Sequence[Piece], session: str, changed: bool) -> str:
    """Return the receipt of a request, as JSON of one line.

    Messages are named by their places in the client's request.
    """
    told: dict[str, Any] = {"session": session, "tokens": fitted.window.tokens}
    if changed:
        placed = [each for each in fitted.placed if each.ref is not None]
        refs = places([each.ref for each in placed])
        # A long list is read in part, and each of its items is a message.
        lazy = isinstance(pieces, Pieces)
        every = set(range(len(pieces)) if lazy else places([piece.ref for piece in pieces]))
        told["left_out"] = ranges(every.difference(refs))
        told["shortened"] = ranges(
            {at for at, each in zip(refs, placed, strict=True) if not each.is_whole}
        )
        told["added"] = len(fitted.placed) - len(placed)
    if fitted.unread:
        told["unread"] = list(fitted.unread)
    if fitted.fresh is not None:
        told["fresh"] = fitted.fresh
    return _written(told)


def passed(why: str) -> str:
    """Return the receipt of a request that is passed on unchanged."""
    return _written({"passed": why})


def places(refs: Iterable[Any]) -> list[int]:
    """Return the places that pieces refer to."""
    return [ref if ref.__class__ is int else int(ref[0]) for ref in refs]


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
    """Return JSON that fits a header; values that are too long are cut."""
    text = json.dumps(told, separators=(",", ":"))
    for key in ("unread", "fresh", "passed", "left_out", "shortened", "session"):
        if len(text) > _LONGEST and key in told:
            cut = f"{len(told[key])} of them" if key == "unread" else f"{told[key][:200]}..."
            told = {**told, key: cut}
            text = json.dumps(told, separators=(",", ":"))
    return text
