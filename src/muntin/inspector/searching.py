"""Searching: one session by the index its windows recall from, and all sessions by the same.

Owns how long a search of all sessions may take, and where it goes on.
"""

from __future__ import annotations

import time
from html import unescape
from typing import Any, cast

from muntin.errors import InvalidInput
from muntin.inspector.plans import Plans
from muntin.timeline.files import is_staged
from muntin.timeline.items import SessionInfo, check_session_id
from muntin.timeline.recall.stored import search
from muntin.timeline.session import Session
from muntin.timeline.store import Store

# How many excerpts a search of a session finds, and how many of each one a search of all.
FOUND, EACH = 20, 3
# How much of an excerpt is told, of one session and of all.
MOST_FOUND, EXCERPT = 4_000, 400
# How long a search of all sessions may take before it tells what it has, and how long of what.
SECONDS = 2.0
SCANNED, _NAME = 5_000, 2_000


def session_info(plans: Plans, session: str) -> SessionInfo:
    """Return what is known of a session that must be there."""
    info = plans.store.session(check_session_id(session))
    if info is None:
        raise InvalidInput(f"there is no session {session[:_NAME]!r}")
    return info


def scan(plans: Plans) -> list[SessionInfo]:
    """Return the sessions of a store, the newest first; of very many those first by id."""
    after: str | None = None
    found: list[SessionInfo] = []
    left = SCANNED
    while left > 0 and (page := plans.store.sessions(after=after, limit=min(left, 500))):
        found += [info for info in page if not is_staged(info)]
        after, left = page[-1].id, left - len(page)
    return sorted(found, key=lambda info: (info.updated, info.id), reverse=True)


def found(plans: Plans, session: str, query: str) -> dict[str, Any]:
    """Return what a session has on a question, best first, each with the turn it belongs to."""
    id = session_info(plans, session).id
    return {"session": id, "query": query[:_NAME], "found": _hits(plans, id, query, FOUND)}


def everywhere(plans: Plans, query: str, offset: int = 0) -> dict[str, Any]:
    """Return what the sessions have on a question, from the newest session on.

    It stops after a while; `next` is where to go on, None at the end.
    """
    sessions = scan(plans)
    until = time.monotonic() + SECONDS
    told: list[dict[str, Any]] = []
    place = offset
    while place < len(sessions) and (place == offset or time.monotonic() < until):
        info = sessions[place]
        hits = _hits(plans, info.id, query, EACH) if info.items else []
        matching = [hit for hit in hits if hit["words"]]  # the rest is what stands beside it
        told += [{"session": info.id, **hit, "text": hit["text"][:EXCERPT]} for hit in matching]
        place += 1
    return {
        "query": query[:_NAME],
        "found": told,
        "looked": place,
        "sessions": len(sessions),
        "next": place if place < len(sessions) else None,
    }


def _hits(plans: Plans, session: str, query: str, most: int) -> list[dict[str, Any]]:
    # Of the store only what reads is used: nothing is kept, and no turn is mended.
    store = cast("Store", plans.store)
    told = []
    for each in search(Session(session, store=store, mend=False), query, most, keep=False):
        at = each.positions[0]
        items = store.read(session, after=at - 1, before=at + 1)
        told.append(
            {
                "positions": list(each.positions),
                "turn": items[0].turn if items else None,
                "score": round(each.score, 2),
                "words": list(each.words),
                "text": unescape(each.text)[:MOST_FOUND],
            }
        )
    return told
