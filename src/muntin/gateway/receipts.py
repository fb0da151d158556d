"""The receipt of a request as a header: which messages were sent, and which were left out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from muntin.fitting import Fitted, Piece, Pieces

HEADER = "x-muntin-receipt"
# Servers and proxies accept headers of a few kilobytes.
_LONGEST = 2_000


def receipt_of(fitted: Fitted, pieces: Sequence[Piece], changed: bool) -> dict[str, Any]:
    """Return the receipt of a request, without its session.

    Messages are named by their places in the client's request.
    """
    receipt: dict[str, Any] = {"tokens": fitted.window.tokens}
    if changed:
        placed = [message for message in fitted.placed if message.ref is not None]
        refs = places([message.ref for message in placed])
        # A long list is read in part, and each of its items is a message.
        lazy = isinstance(pieces, Pieces)
        every = set(range(len(pieces)) if lazy else places([piece.ref for piece in pieces]))
        receipt["left_out"] = ranges(every.difference(refs))
        receipt["shortened"] = ranges(
            {at for at, message in zip(refs, placed, strict=True) if not message.is_whole}
        )
        receipt["added"] = len(fitted.placed) - len(placed)
    if fitted.unread:
        receipt["unread"] = list(fitted.unread)
    if fitted.fresh is not None:
        receipt["fresh"] = fitted.fresh
    return receipt


def passed(why: str) -> dict[str, Any]:
    """Return the receipt of a request that is passed on unchanged."""
    return {"passed": why}


def places(refs: Iterable[Any]) -> list[int]:
    """Return the places that pieces refer to."""
    return [ref if ref.__class__ is int else int(ref[0]) for ref in refs]


def ranges(places: Iterable[int]) -> str:
    """Return places as people write them: `0-4,7`."""
    spans: list[list[int]] = []
    for at in sorted(places):
        if spans and spans[-1][1] == at - 1:
            spans[-1][1] = at
        else:
            spans.append([at, at])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def written(receipt: Mapping[str, Any]) -> str:
    """Return a receipt as JSON of one line that fits a header; values that are too long are cut."""
    text = json.dumps(receipt, separators=(",", ":"))
    for key in ("unread", "fresh", "passed", "remark", "left_out", "shortened", "session"):
        if len(text) > _LONGEST and key in receipt:
            cut = f"{len(receipt[key])} of them" if key == "unread" else f"{receipt[key][:200]}..."
            receipt = {**receipt, key: cut}
            text = json.dumps(receipt, separators=(",", ":"))
    return text
