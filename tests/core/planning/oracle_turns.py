"""A second oracle, for what depends on whose turn it is: fair shares, and markers.

It shares no code with the planner. Slots give in turn; what a slot gives is found by listing all
its legal states and taking the largest that is small enough. It knows neither floors nor tool
groups across slots: those are the first oracle's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor, inf

from muntin import Message
from tests.core.planning.oracle import texts, within
from tests.core.planning.oracle_slots import (
    Given,
    Place,
    State,
    Verdict,
    all_states,
    amount,
    legal,
    places,
    protect,
    set_limits,
    set_priorities,
)


@dataclass
class Turn:
    """A slot as it stands: its state, the line in front of it, or the line inside its text."""

    place: Place
    overhead: int
    state: State
    front: bool = False
    inside: int | None = None  # how many characters of the text are left beside the line

    @property
    def line(self) -> int:
        return len(self.place.given.marker or "") + self.overhead

    @property
    def size(self) -> int:
        if self.inside is not None:
            return self.overhead + len(self.place.given.marker or "") + 1 + self.inside
        return self.place.size(self.state) + (self.line if self.front else 0)

    @property
    def made(self) -> bool:
        return not isinstance(self.place.given.content, list | tuple)

    def messages(self) -> list[Message]:
        given = self.place.given
        kept = list(texts([self.place], [self.state]))
        if self.inside is not None:
            text, line = self.place.messages[0].text, given.marker
            if given.keep == "head":
                cut = f"{text[: self.inside]}\n{line}"
            else:
                cut = f"{line}\n{text[len(text) - self.inside :]}"
            return [replace(self.place.messages[0], content=cut)]
        if self.front:
            role = self.place.messages[0].role if self.made else "system"
            return [Message(role, given.marker), *kept]
        return kept

    def fit(self, target: int) -> None:
        """Give until the slot has at most `target` tokens, or nothing more to give."""
        if self.size <= target:
            return
        self.front = False
        if self.place.given.required and self.place.protected:
            return
        if self.made and self.place.given.marker is not None and self.place.by_char:
            self._cut_text(target)
        else:
            self.state = self._largest(self.state, target)
        self.tell(target)

    def tell(self, target: int) -> None:
        """Put the line in front, if something is missing and there is room beside what is left."""
        if self.place.given.marker is None or self.state == self.place.full:
            return
        if self.made and (self.inside is not None or self.state != (None,)):
            return  # it is a line inside the text, or had no room there
        size = self.place.size(self.state)
        if size + self.line <= target:
            self.front = True
        elif size and self.line <= target:
            smaller = self._largest(self.state, target - self.line)
            left = self.place.size(smaller)
            if left and left + self.line <= target:
                self.state, self.front = smaller, True

    def _largest(self, top: State, target: float) -> State:
        states = [
            state
            for state in set(all_states(self.place))
            if within(state, top) and legal(self.place, state, {}, top)
        ]
        fitting = [state for state in states if self.place.size(state) <= target]
        return max(fitting, key=amount) if fitting else min(states, key=amount)

    def _cut_text(self, target: int) -> None:
        """Cut one text with its line inside; without a line if there is no room for both."""
        whole = self.place.lengths[0]
        room = target - self.overhead
        beside = min(room - len(self.place.given.marker or "") - 1, whole - 1)
        self.inside = None
        if beside >= 1:
            self.inside, self.state = beside, (beside,)
        elif room >= 1:
            self.state = (min(room, whole - 1),) if whole > 1 else (None,)
        else:
            self.state = (None,)


def judge_in_turn(slots: Sequence[Given], budget: int, *, overhead: int = 0) -> Verdict:
    """Return what the rules demand when slots give in turn."""
    window = places(slots, overhead)
    set_priorities(window)
    set_limits(window, budget, fallback=False)
    turns = [Turn(place, overhead, place.full) for place in window]
    for turn in turns:  # ceilings are hard: nothing is protected yet
        if turn.place.cap != inf:
            turn.fit(int(turn.place.cap))
    protect(window)
    held = [
        sum(
            turn.place.fixed[i] + (turn.state[i] or 0)
            for i in turn.place.protected
            if turn.state[i] is not None
        )
        for turn in turns
    ]
    for turn in turns:
        turn.place.capped = turn.state
    before = [(turn.state, turn.front) for turn in turns]
    for _ in range(2):
        _give(turns, budget)
    size = sum(turn.size for turn in turns)
    if size > budget:
        for turn, (state, front) in zip(turns, before, strict=True):
            if turn.place.given.is_input:  # rule 8: the input stays whole
                turn.state, turn.front = state, front
        size = sum(turn.size for turn in turns)
    found = tuple(message for turn in turns for message in turn.messages())
    empty = budget == 0 and any(place.messages for place in window)
    return Verdict(found, size > budget or empty, sum(held) > budget)


def _give(turns: list[Turn], budget: int) -> None:
    order = sorted(
        (turn for turn in turns if turn.place.messages),
        key=lambda turn: (turn.place.priority, turn.place.given.is_input),
    )
    done = set()
    for turn in order:
        over = sum(each.size for each in turns) - budget
        if over <= 0:
            return
        group = turn.place.given.group
        if group is None:
            turn.fit(turn.size - over)
        elif group not in done:  # all of a group give when the first of them does
            done.add(group)
            members = [each for each in order if each.place.given.group == group]
            asks = [each.size for each in members]
            pot = max(0, sum(asks) - over)
            caps = [each.place.given.max_tokens for each in members]
            weights = [pot if cap is None else cap for cap in caps]
            for each, share in zip(members, fair_shares(pot, asks, weights), strict=True):
                each.fit(share)


def fair_shares(pot: int, asks: Sequence[int], weights: Sequence[int]) -> list[int]:
    """Divide by the water level: the highest at which all shares together are not too much.

    What is left by rounding goes to those that lost most by it, of equals to the first. Where
    nothing but weights of 0 is left thirsty, all weigh the same.
    """
    if sum(asks) <= pot:
        return list(asks)
    levels = sorted({Fraction(ask, w) for ask, w in zip(asks, weights, strict=True) if w})

    def filled(level: Fraction) -> list[Fraction]:
        return [min(Fraction(ask), level * w) for ask, w in zip(asks, weights, strict=True)]

    full = [level for level in levels if sum(filled(level)) <= pot]
    base = filled(full[-1]) if full else [Fraction(0)] * len(asks)
    thirsty = [n for n, ask in enumerate(asks) if base[n] < ask]
    weight = {n: weights[n] for n in thirsty}
    if not any(weight.values()):
        rest = fair_shares(pot - int(sum(base)), [asks[n] for n in thirsty], [1] * len(thirsty))
        shares = [int(each) for each in base]
        for n, share in zip(thirsty, rest, strict=True):
            shares[n] = share
        return shares
    left = pot - sum(int(base[n]) for n in range(len(asks)) if n not in thirsty)
    exact = {n: Fraction(left * weight[n], sum(weight.values())) for n in thirsty}
    shares = [floor(exact[n]) if n in exact else int(base[n]) for n in range(len(asks))]
    losers = sorted(thirsty, key=lambda n: (floor(exact[n]) - exact[n], n))
    for n in losers[: pot - sum(shares)]:
        shares[n] += 1
    return shares
