"""Recall over the list of a request: what has left its window and bears on its question.

Owns that excerpts are chosen from the messages before the question that the window does not show,
so that they stay the same during a run. `timeline.recall` chooses them, the Composer places them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from muntin.composer import Composer
from muntin.core.planning.slots import Slots
from muntin.core.window import Window
from muntin.errors import InvalidInput
from muntin.fitting.layout import shown_places
from muntin.fitting.talk import LazyMessages
from muntin.timeline.recall.excerpts import Recalled
from muntin.timeline.recall.lists import relevant
from muntin.timeline.recall.settings import Recall, RecallLike, check_recall

# How often excerpts are chosen, if the history is found to begin elsewhere.
_ROUNDS = 3
_log = logging.getLogger(__name__)


def recall_of(recall: RecallLike) -> Recall | None:
    """Return the recall setting of a Fitter; refuse what only a session can do."""
    checked = check_recall(False if recall == "inherit" else recall, "fit")
    if not checked:
        return None
    settings: Recall = checked
    if settings.embed is not None:
        raise InvalidInput("fit: Recall(embed=...) needs a session, which an App has; leave it out")
    return settings


def compose(
    slots: Slots, composer: Composer, talk: LazyMessages, settings: Recall, begin: int
) -> tuple[Slots, Window]:
    """Return slots with excerpts, and their window.

    `begin` is the place at which the past of the request before this one began.
    """
    query = "" if talk.question is None else talk[talk.question].text
    room = composer.budget.remaining_input_tokens - composer.counter.beside(composer.tools)
    most = settings.most(room)
    if not most or not query.strip() or talk.asked == talk.opening:
        return slots, slots.render()
    past = range(talk.opening, talk.asked)
    shown: Collection[int] = range(max(begin, talk.opening), talk.asked)
    if begin <= talk.opening:  # perhaps all of it is shown
        window = slots.render()
        shown = _shown(window, talk, past)
        if len(shown) == len(past):
            return slots, window
    for _ in range(_ROUNDS):
        found = _find(composer, talk, settings, query, most, shown)
        recalling = composer.with_recalled(slots, found, most, may_clear=False)
        window = recalling.render()
        before, shown = shown, _shown(window, talk, past)
        if shown.isdisjoint(found.positions) and shown.issuperset(before):
            return recalling, window
    return slots, slots.render()  # the history shows what would have been recalled


def _shown(window: Window, talk: LazyMessages, past: range) -> set[int]:
    """Return the places of the past that a window shows."""
    return {place for place in shown_places(window, talk) if place is not None and place in past}


def _find(
    composer: Composer,
    talk: LazyMessages,
    settings: Recall,
    query: str,
    most: int,
    shown: Collection[int],
) -> Recalled:
    try:
        return relevant(
            tuple(talk.part(0, talk.asked)),
            query,
            most,
            composer.counter,
            limit=settings.limit,
            shown=shown,
            results=settings.results,
        )
    except Exception as error:  # a failure costs only the excerpts
        _log.warning("nothing was recalled: %s", error, exc_info=error)
        return Recalled(trouble=f"{type(error).__name__}: {error}"[:300])
