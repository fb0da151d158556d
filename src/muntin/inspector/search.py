"""Searching: one session by its index for recall, and all sessions in the same way.

Owns how long a search of all sessions may take, and where it continues.
"""

from __future__ import annotations

import time
from html import unescape
from typing import Any

from muntin.errors import InvalidInput
from muntin.inspector.plans import Plans
from muntin.timeline.files import is_staged
from muntin.timeline.items import SessionInfo, check_session_id
from muntin.timeline.recall.stored import search
from muntin.timeline.session import Session

# How many excerpts a search of one session finds, and how many of each in a search of all.
MOST_HITS, MOST_HITS_OF_SESSION = 20, 3
# How many characters of an excerpt are shown, of one session and of all.
MOST_FOUND, EXCERPT = 4_000, 400
# How many seconds a search of all sessions may take before it returns its hits so far.
SECONDS = 2.0
SCANNED, _NAME = 5_000, 2_000


def session_info(plans: Plans, session: str) -> SessionInfo:
    """Return the facts about a session that must exist."""
    infos = plans.store.sessions(id=check_session_id(session))
    if not infos:
        raise InvalidInput(f"there is no session {session[:_NAME]!r}")
    return infos[0]


def scan(plans: Plans) -> list[SessionInfo]:
    """Return the sessions of a store, the newest first; of very many, only the first by id."""
    after: str | None = None
    infos: list[SessionInfo] = []
    remaining = SCANNED
    while remaining > 0 and (page := plans.store.sessions(after=after, limit=min(remaining, 500))):
        infos += [info for info in page if not is_staged(info)]
        after, remaining = page[-1].id, remaining - len(page)
    return sorted(infos, key=lambda info: (info.updated, info.id), reverse=True)


def search_session(plans: Plans, session: str, query: str) -> dict[str, Any]:
    """Return the excerpts of a session on a question, best first, each with its turn."""
    id = session_info(plans, session).id
    return {"session": id, "query": query[:_NAME], "found": _hits(plans, id, query, MOST_HITS)}


def search_sessions(plans: Plans, query: str, offset: int = 0) -> dict[str, Any]:
    """Return the excerpts of all sessions on a question, from the newest session on.

    It stops after a while; `next` is where to continue, None at the end.
    """
    sessions = scan(plans)
    until = time.monotonic() + SECONDS
    excerpts: list[dict[str, Any]] = []
    place = offset
    while place < len(sessions) and (place == offset or time.monotonic() < until):
        info = sessions[place]
        hits = _hits(plans, info.id, query, MOST_HITS_OF_SESSION) if info.items else []
        matching = [hit for hit in hits if hit["words"]]  # the others only stand beside a match
        excerpts += [{"session": info.id, **hit, "text": hit["text"][:EXCERPT]} for hit in matching]
        place += 1
    return {
        "query": query[:_NAME],
        "found": excerpts,
        "looked": place,
        "sessions": len(sessions),
        "next": place if place < len(sessions) else None,
    }


def _hits(plans: Plans, session: str, query: str, most: int) -> list[dict[str, Any]]:
    hits = []
    for excerpt in search(Session(session, store=plans.store, mend=False), query, most, keep=False):
        at = excerpt.positions[0]
        items = plans.store.read(session, after=at - 1, before=at + 1)
        hits.append(
            {
                "positions": list(excerpt.positions),
                "turn": items[0].turn if items else None,
                "score": round(excerpt.score, 2),
                "words": list(excerpt.words),
                "text": unescape(excerpt.text)[:MOST_FOUND],
            }
        )
    return hits
