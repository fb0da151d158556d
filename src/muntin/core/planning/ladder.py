"""The ladder: how far a past has gone down, and how it goes further.

A past is a list of units, the oldest first. Each level reaches from the beginning up to some
message: what stands before `gone` has left, before `stubs` is one line a result, before `shorts`
is short. Going down moves these three forward, never back, in one fixed order: all older groups
become short, then stubs, then they leave; only then do the newest groups follow, and the very
newest never leaves. So a past at any time is described by three numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from muntin.core.planning.forms import Ladder, Level


@dataclass(frozen=True, slots=True)
class Levels:
    """How far each level reaches, as indices of messages."""

    gone: int = 0
    stubs: int = 0
    shorts: int = 0

    def of(self, index: int) -> Level:
        """Return the level of the unit that begins at a message, if it has not left."""
        return "stub" if index < self.stubs else "short" if index < self.shorts else "full"


@dataclass(frozen=True, slots=True)
class Rung:
    """One unit of a past: where it begins and ends, and whether it has lower levels than full."""

    first: int
    end: int
    is_group: bool
    opens_turn: bool = False


# The size of a rung at a level.
Size = Callable[[Rung, Level], int]


def descend(
    rungs: Sequence[Rung],
    levels: Levels,
    rules: Ladder,
    total: int,
    target: int,
    size: Size,
    *,
    run: int | None = None,
) -> Levels:
    """Go down from `total` tokens until at most `target` are left, or nothing more may go.

    `run` is the message at which the run begins: its newest groups go last, and the very newest
    stays.
    """
    if total <= target:
        return levels
    rungs = [each for each in rungs if each.first >= levels.gone]
    for levels, saved in _steps(rungs, levels, rules, size, run):
        total -= saved
        if total <= target:
            return levels
    return levels


def _steps(
    rungs: Sequence[Rung], levels: Levels, rules: Ladder, size: Size, run: int | None
) -> Iterator[tuple[Levels, int]]:
    """Yield the levels after each step down, and what the step saves."""
    groups = [
        place
        for place, rung in enumerate(rungs)
        if rung.is_group and run is not None and rung.first >= run
    ]
    newest = rungs[groups[-1]].first if groups else inf
    last = groups[-rules.keep_groups :] if rules.keep_groups else []
    edge = last[0] if last else len(rungs)
    for zone in (rungs[:edge], rungs[edge:]):
        for rung in zone:
            if rung.is_group and rung.first >= levels.shorts:
                saved = size(rung, levels.of(rung.first)) - size(rung, "short")
                levels = replace(levels, shorts=rung.end)
                yield levels, saved
        for rung in zone if rules.stubs else ():
            if rung.is_group and levels.stubs <= rung.first < newest:
                saved = size(rung, levels.of(rung.first)) - size(rung, "stub")
                levels = replace(levels, stubs=rung.end, shorts=max(levels.shorts, rung.end))
                yield levels, saved
        for rung in zone:
            if rung.first >= newest:
                return
            saved = size(rung, levels.of(rung.first))
            levels = replace(levels, gone=rung.end)
            yield levels, saved
