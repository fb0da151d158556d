"""A third oracle, for histories that step to a low level that was given.

It shares no code with the planner. It plays a session turn by turn and knows only where the
history began last: a system text, the history, a volatile text with a ceiling, and the input. A
text counts its characters. Where the history is to begin is found by trying every message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

from muntin import Message, system, user


@dataclass(frozen=True)
class Stage:
    """What stands around the history of one turn."""

    budget: int
    rules: str
    docs: str
    ceiling: int
    asked: str
    low: float

    @property
    def high(self) -> int:
        """What is left for the history and the input, however large the docs are this turn."""
        return max(0, self.budget - len(self.rules) - self.ceiling)


@dataclass(frozen=True)
class Outcome:
    """What the rules demand of one turn."""

    first: int
    messages: tuple[Message, ...]
    over_budget: bool


def turns(history: Sequence[Message]) -> set[int]:
    """Return where turns begin: at a user's message that follows no other."""
    roles = ["none", *(message.role for message in history)]
    return {n for n in range(len(history)) if roles[n + 1] == "user" and roles[n] != "user"}


def stepped(history: Sequence[Message], first: int, most: int, low: float, asked: int) -> int:
    """Return where a history begins that may have at most `most` tokens with the input."""
    sizes = {n: asked + sum(len(m.text) for m in history[n:]) for n in range(first, len(history))}
    opening = turns(history)
    for level in (floor(most * Fraction(str(low))), most):
        anywhere = [n for n, size in sizes.items() if size <= level]
        at_turns = [n for n in anywhere if n in opening and 2 * sizes[n] >= level]
        for places in (at_turns, anywhere):
            if places:
                return min(places)
    return len(history)


def play(stage: Stage, history: Sequence[Message], first: int) -> Outcome:
    """Return one turn, with the history that began at `first` the turn before."""
    asked = len(stage.asked)
    if sum(len(m.text) for m in history[first:]) + asked > stage.high:
        first = stepped(history, first, stage.high, stage.low, asked)
    while True:
        kept = sum(len(m.text) for m in history[first:])
        docs = min(len(stage.docs), stage.ceiling)
        over = len(stage.rules) + kept + docs + asked - stage.budget
        given = max(0, min(docs, over))  # what is gone next turn gives first
        over -= given
        if over <= 0 or not kept:
            break
        later = stepped(history, first, max(0, kept - over) + asked, stage.low, asked)
        if later == first:
            break
        first = later
    found = [system(stage.rules)] if stage.rules else []
    found += history[first:]
    if docs - given:
        found.append(user(stage.docs[len(stage.docs) - (docs - given) :]))
    found.append(user(stage.asked))  # so short a question is never cut
    return Outcome(first, tuple(found), over > 0)
