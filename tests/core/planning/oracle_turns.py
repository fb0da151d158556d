"""A second oracle, for what depends on whose turn it is: fair shares, and markers.

It shares no code with the planner. Slots take room in turn; what a slot keeps is found by listing
all its legal states and taking the largest that is small enough. It knows neither floors, nor tool
groups across slots, nor inputs that are cut: those are the first oracle's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor, inf

from muntin import Message
from tests.core.planning.oracle import Found, priorities_in_vain, texts, within
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


@dataclass(eq=False)
class Turn:
    """A slot as it stands: its state, the line in front of it, or the line inside its text."""

    place: Place
    overhead: int
    state: State
    front: bool = False
    capping: bool = True
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
        if self.size <= target or self.place.given.is_input:
            return
        self.front = False
        if self.place.given.required and not self.capping:
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
        protected = self.place.protected
        loose = self.capping and self.place.by_char and bool(protected)
        if loose:  # rule 8: what is protected is cut to its ceiling, but does not vanish
            self.place.protected = set()
        fitting = [s for s in self._states(top) if self.place.size(s) <= target]
        self.place.protected = protected
        if loose:
            fitting = [s for s in fitting if any(kept is not None for kept in s)]
        return max(fitting, key=amount) if fitting else min(self._states(top), key=amount)

    def _states(self, top: State) -> list[State]:
        return [
            state
            for state in set(all_states(self.place))
            if within(state, top) and legal(self.place, state, {}, top)
        ]

    @property
    def firm(self) -> int:
        """What nothing may drop of the slot as it stands."""
        if self.place.given.is_input:
            return self.place.size(self.state)
        safe = (k if i in self.place.protected else None for i, k in enumerate(self.state))
        return self.place.size(tuple(safe))

    @property
    def gone(self) -> bool:
        return bool(self.place.messages) and not self.size and set(self.state) == {None}

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
    """Return what the rules demand when slots take room in turn.

    If a slot that stood while another was left out is dropped in the end, all is judged without
    that slot first, unless one of those that stayed would go then.
    """
    found = _attempt(slots, slots, budget, overhead, frozenset())
    while vain := found.stood - found.standing - found.left_out:
        slots = [replace(s, content=None) if n in vain else s for n, s in enumerate(slots)]
        other = _attempt(slots, slots, budget, overhead, frozenset())
        if not found.standing <= other.standing:
            break
        found = other
    return found.verdict


def _attempt(
    whole: Sequence[Given],
    slots: Sequence[Given],
    budget: int,
    overhead: int,
    stood: frozenset[int],
) -> Found:
    """Judge slots, and again without what was dropped in vain.

    `slots` are those of `whole` that are not known to be dropped in vain.
    """
    window = places(slots, overhead)
    set_priorities(window)
    set_limits(window, budget, fallback=False)
    protect(window)
    turns = [Turn(place, overhead, place.full) for place in window]
    for turn in turns:
        if turn.place.cap != inf:
            turn.fit(int(turn.place.cap))
        turn.place.capped, turn.capping = turn.state, False
    fallback = sum(turn.firm for turn in turns) > budget
    capped_away = [turn for turn in turns if set(turn.state) == {None}]
    if sum(turn.size for turn in turns) > budget:
        _take(turns, budget)
    gone = [turn for turn in turns if turn.gone]
    kept = [turn.place for turn in turns if turn not in gone]
    standing = frozenset(
        n for n, s in enumerate(slots) for each in kept if each.given is s and each.messages
    )
    shared = [t for t in _order(turns) if t in gone and t not in capped_away]
    costly = next((turn for turn in shared if turn.place.given.group is not None), None)
    empty = budget == 0 and any(place.messages for place in window)
    if costly is not None:  # it had a share
        left = [replace(s, content=None) if s is costly.place.given else s for s in slots]
        found = _attempt(whole, left, budget, overhead, stood | standing)
        return replace(found, verdict=_over(found.verdict, budget == 0))
    if priorities_in_vain(places(whole, overhead), kept):
        left = [replace(s, content=None) if s.priority else s for s in whole]
        found = _attempt(left, left, budget, overhead, frozenset())
        return replace(found, verdict=_over(found.verdict, budget == 0))
    told = tuple(message for turn in turns for message in turn.messages())
    size = sum(turn.size for turn in turns)
    left_out = frozenset(n for n, s in enumerate(slots) if s.content is None)
    return Found(Verdict(told, size > budget or empty, fallback), size, standing, stood, left_out)


def _over(verdict: Verdict, over: bool) -> Verdict:
    return replace(verdict, over_budget=verdict.over_budget or over)


def _order(turns: list[Turn]) -> list[Turn]:
    return sorted((t for t in turns if t.place.messages), key=lambda turn: turn.place.priority)


def _take(turns: list[Turn], budget: int) -> None:
    order = [turn for turn in _order(turns) if not turn.gone]
    rounds: list[list[Turn]] = []
    for turn in order:  # all of a group take when the first of them would
        group = turn.place.given.group
        if group is None or not any(each[0].place.given.group == group for each in rounds):
            together = [each for each in order if each.place.given.group == group]
            rounds.append([turn] if group is None else together)
    waiting, taken = list(turns), 0
    for members in reversed(rounds):
        waiting = [turn for turn in waiting if turn not in members]
        room = budget - taken - sum(turn.firm for turn in waiting)
        if len(members) == 1 and members[0].place.given.group is None:
            members[0].fit(room)
        else:
            _share(members, max(0, room))
        taken += sum(turn.size for turn in members)


def _share(members: list[Turn], pot: int) -> None:
    asks, needs = [turn.size for turn in members], [turn.firm for turn in members]
    caps = [turn.place.given.max_tokens for turn in members]
    weights = [pot if cap is None else cap for cap in caps]
    firm: set[int] = set()  # those whose fair share is less than they need
    while True:
        free = [n for n in range(len(members)) if n not in firm]
        left = max(0, pot - sum(needs[n] for n in firm))
        shares = fair_shares(left, [asks[n] for n in free], [weights[n] for n in free])
        short = {n for n, share in zip(free, shares, strict=True) if share < needs[n]}
        if not short:
            break
        firm |= short
    for n in firm:
        members[n].fit(needs[n])
    for n, share in zip(free, shares, strict=True):
        members[n].fit(share)


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
