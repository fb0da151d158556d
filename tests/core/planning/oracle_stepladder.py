"""An oracle for pasts that step down a ladder, to a low level that was given.

It shares no code with the planner. It plays a session request by request and knows only how far
each level reached last. Every state of a past is three numbers; what a state costs is added up from
nothing each time, and the way down is walked state by state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import floor, inf

FULL, SHORT, STUB = range(3)


@dataclass(frozen=True)
class Unit:
    """A unit of a past: a message of the user, an answer, a group, or the input; `first` is its
    first message, `end` the one behind it. A group has its sizes in full, short and as a stub."""

    kind: str  # u, a, g or i
    first: int
    end: int
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class State:
    """What stands before `gone` has left, before `stubs` is one line, before `shorts` short."""

    gone: int = 0
    stubs: int = 0
    shorts: int = 0

    def level(self, unit: Unit) -> int:
        if unit.kind != "g":
            return FULL
        return STUB if unit.first < self.stubs else SHORT if unit.first < self.shorts else FULL

    def size(self, unit: Unit) -> int:
        return unit.sizes[self.level(unit)]


@dataclass(frozen=True)
class Rules:
    """The high level, the low one as a share of it, and the ladder."""

    high: int
    low: float
    keep: int = 3
    stubs: bool = True


@dataclass(frozen=True)
class Known:
    """What one request leaves to the next."""

    state: State = field(default_factory=State)
    base: int = 0
    requests: int = 0


def turns(units: Sequence[Unit]) -> Iterator[list[Unit]]:
    """Yield the units of each turn: it begins with a message of the user, or with the input."""
    turn: list[Unit] = []
    for unit in units:
        if unit.kind in "ui" and turn:
            yield turn
            turn = []
        turn.append(unit)
    if turn:
        yield turn


def in_view(units: Sequence[Unit], state: State) -> list[Unit]:
    """Return what a window shows: all behind the frontier, the input, and what asked for a run of
    which a call is behind the frontier."""
    shown = []
    for turn in turns(units):
        behind = [unit for unit in turn if unit.first >= state.gone]
        asked = turn[0].kind in "ui" and any(unit.kind == "g" for unit in behind)
        shown += [u for u in turn if u in behind or u.kind == "i" or (asked and u is turn[0])]
    return shown


def total(units: Sequence[Unit], state: State) -> int:
    return sum(state.size(unit) for unit in in_view(units, state))


def newest(units: Sequence[Unit]) -> int:
    """Return the latest place where the past may begin: at the newest group of the run."""
    asked = max(n for n, unit in enumerate(units) if unit.kind == "i")
    run = [unit for unit in units[asked:] if unit.kind == "g"]
    return run[-1].first if run else units[asked].first


def in_sight(units: Sequence[Unit], state: State, rules: Rules) -> State:
    """Leave out what is so old that it does not fit although all behind it, in the history or in
    the run by itself, is as small as it can be. It counts for nothing, not even for the growth."""
    asked = max(n for n, unit in enumerate(units) if unit.kind == "i")
    lowest = STUB if rules.stubs else SHORT
    for part in (units[:asked], units[asked + 1 :]):
        room = rules.high
        for unit in reversed(part):
            if unit.first >= state.gone and room < 0:
                state = replace(state, gone=unit.end)
            room -= (
                unit.sizes[max(state.level(unit), lowest)] if unit.kind == "g" else unit.sizes[0]
            )
    return state


def growth(units: Sequence[Unit], known: Known | None, state: State) -> float:
    """Return what a request adds: since the last step, or by the turns in view."""
    if known is not None and known.requests:
        return max(1.0, (total(units, state) - known.base) / (known.requests + 1))
    sizes = [sum(state.size(unit) for unit in turn) for turn in turns(in_view(units, state))]
    sizes = [size for size in sizes if size] or [1]
    return sum(sizes) / len(sizes)


def play(units: Sequence[Unit], rules: Rules, known: Known | None) -> Known:
    """Return the state of one request that follows another."""
    before = known.state if known is not None else State()
    if total(units, before) <= rules.high:
        if known is None:
            return Known(before, total(units, before))
        return replace(known, requests=known.requests + 1)
    before = in_sight(units, before, rules)
    low = floor(rules.high * Fraction(str(rules.low)))
    must = max(low, int(rules.high - growth(units, known, before)))
    dropped = drop(units, before, rules.high, low)
    down = descend(units, before, rules, low, must)
    # What is rewritten for each unit that stays in view.
    price = [each(units, before, state, rules.high) for state in (down, dropped)]
    state = dropped if price[1] < price[0] else down
    return Known(state, total(units, state))


def each(units: Sequence[Unit], before: State, after: State, high: int) -> float:
    """Return what a way down rewrites for each unit that it leaves in view."""
    shown = in_view(units, after)
    if total(units, after) > high:
        return inf
    same = 0
    for unit in in_view(units, before):
        if unit not in shown or before.size(unit) != after.size(unit):
            break
        same += after.size(unit)
    else:
        same = total(units, after)
    return (total(units, after) - same) / max(1, len(shown))


def drop(units: Sequence[Unit], before: State, high: int, low: int) -> State:
    """Begin later, with nothing shortened: at a turn, if half of the level stays."""
    last = newest(units)
    places = [u.first for u in units if u.kind != "i" and before.gone <= u.first <= last]
    sizes = {place: total(units, replace(before, gone=place)) for place in places}
    openings = {turn[0].first for turn in turns(units)}
    for level in (low, high):
        anywhere = [place for place, size in sizes.items() if size <= level]
        for found in ([p for p in anywhere if p in openings and 2 * sizes[p] >= level], anywhere):
            if found:
                return replace(before, gone=min(found))
    return replace(before, gone=last)


def descend(units: Sequence[Unit], state: State, rules: Rules, low: int, must: int) -> State:
    """Walk down: older groups to the low level, the newest of the run only as far as they must,
    then what has to leave."""
    groups = [u for u in units if u.kind == "g" and u.first >= state.gone]
    asked = max(n for n, unit in enumerate(units) if unit.kind in "ui")
    run = [unit for unit in groups if unit.first > units[asked].first]
    kept = run[-rules.keep :] if rules.keep else []
    for zone, level in (([u for u in groups if u not in kept], low), (kept, must)):
        for walk in (_shorten, _stub if rules.stubs else None):
            for unit in zone if walk is not None else ():
                if total(units, state) > level and not (walk is _stub and unit is _last(units)):
                    assert walk is not None
                    state = walk(state, unit)
    return state if total(units, state) <= must else leave(units, state, low, must)


def _last(units: Sequence[Unit]) -> Unit | None:
    """Return the newest group of the run."""
    place = newest(units)
    return next((unit for unit in units if unit.first == place and unit.kind == "g"), None)


def _shorten(state: State, unit: Unit) -> State:
    return state if unit.first < state.shorts else replace(state, shorts=unit.end)


def _stub(state: State, unit: Unit) -> State:
    if unit.first < state.stubs:
        return state
    return replace(state, stubs=unit.end, shorts=max(state.shorts, unit.end))


def leave(units: Sequence[Unit], state: State, low: int, must: int) -> State:
    """Let the oldest leave, and go on to the next turn if half of what was aimed at stays."""
    last = newest(units)
    may = [u for u in units if u.kind != "i" and state.gone <= u.first < last]
    firm = total(units, replace(state, gone=last))
    share = Fraction(17, 20) if any(u.kind == "g" for u in may) else Fraction(1, 2)
    aim = max(low, firm + int(share * (must - firm)))
    for unit in may:
        if total(units, state) <= aim:
            break
        state = replace(state, gone=unit.end)
    openings = [t[0].first for t in turns(units) if t[0].kind in "ui"]
    at_turn = next((place for place in openings if state.gone <= place <= last), None)
    if at_turn is not None and 2 * total(units, replace(state, gone=at_turn)) >= aim:
        return replace(state, gone=at_turn)
    return state
