"""Levels: how far a conversation has moved, and what it shows at given levels.

Four positions describe a conversation at any time: up to where texts and results are cut, results
are short, results are one line, and messages are gone. Moves only raise them. Pure functions of
units and levels; `planner` decides when a conversation moves, and into which room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from muntin.core.message import Message
from muntin.core.planning.compact import CUT, FULL, GONE, SHORT, STUB
from muntin.core.planning.slot import Recap
from muntin.core.planning.units import Unit
from muntin.core.report import Status

STATUSES: tuple[Status, ...] = ("kept", "short", "short", "stubbed", "dropped")


class Levels(NamedTuple):
    """Up to which position, exclusive, messages are cut, short, one line, and gone."""

    cut: int = 0
    short: int = 0
    stub: int = 0
    gone: int = 0

    def of(self, unit: Unit) -> int:
        """Return the level of a unit."""
        position = unit.position
        if unit.is_protected:
            return FULL
        if position < self.gone and not (unit.is_system or unit.never_leaves):
            return GONE
        if not unit.is_group:
            is_large = position < self.cut and unit.tokens > unit.compactor.window // 2
            return CUT if is_large else FULL
        level = STUB if position < self.stub else SHORT if position < self.short else FULL
        if level == FULL and position < self.cut:
            level = CUT
        return min(level, unit.compactor.deepest)

    def raised(self, level: int, until: int) -> Levels:
        """Return the levels with one of them raised to a position."""
        raised = [*self]
        raised[level - 1] = max(until, raised[level - 1])
        return Levels(*raised)

    def joined(self, other: Levels) -> Levels:
        """Return the higher of both, level by level."""
        return Levels(*map(max, self, other))

    def shifted(self, by: int) -> Levels:
        """Return the levels of the same list with `by` more messages in front (fewer below 0)."""
        return Levels(*[max(0, level + by) for level in self]) if by else self


NO_LEVELS = Levels()


class Form(NamedTuple):
    """A unit as it is shown."""

    unit: Unit
    messages: tuple[Message, ...]
    tokens: int
    status: Status = "kept"


@dataclass(slots=True)
class SlotView:
    """What a slot shows in a given room.

    `front` are messages before the slot's own; `notes` stand where the past begins, behind the
    question of a turn that has partly left: a summary, and a line about missing calls. `lasting`
    and `in_turn` are the levels that a conversation reached: for good, and for this turn.
    """

    forms: list[Form] = field(default_factory=list)
    tokens: int = 0
    front: tuple[Message, ...] = ()
    notes: tuple[Message, ...] = ()
    lasting: Levels | None = None
    in_turn: Levels | None = None
    recap: Recap | None = None


def show_whole(units: Sequence[Unit]) -> SlotView:
    """Show everything."""
    forms = [Form(unit, unit.messages, unit.tokens) for unit in units]
    return SlotView(forms, sum([unit.tokens for unit in units]))


def levels_at(units: Sequence[Unit], levels: Levels) -> list[int]:
    """Return the level of every unit; the question of a turn leaves with its last unit."""
    moved = max(levels)
    unit_levels = [levels.of(unit) if unit.position < moved else FULL for unit in units]
    if GONE in unit_levels:
        turns = {unit.turn for unit, level in zip(units, unit_levels, strict=True) if level != GONE}
        for place, unit in enumerate(units):
            if unit_levels[place] == GONE and unit.turn in turns and unit.role == "user":
                unit_levels[place] = FULL
    return unit_levels


def show_at(units: Sequence[Unit], levels: Levels) -> SlotView:
    """Show a conversation at its levels."""
    if levels == NO_LEVELS:
        return show_whole(units)
    forms = []
    for unit, level in zip(units, levels_at(units, levels), strict=True):
        if level == FULL:
            forms.append(Form(unit, unit.messages, unit.tokens))
        elif level != GONE:
            messages, tokens = unit.form(level, levels.cut)
            status = STATUSES[level] if tokens < unit.tokens else "kept"
            forms.append(Form(unit, messages, tokens, status))
    return SlotView(forms, sum([form.tokens for form in forms]))


def sizes_at(units: Sequence[Unit], levels: Levels) -> list[int]:
    """Return the tokens of every unit of a conversation at its levels; 0 if it is gone."""
    if levels == NO_LEVELS:
        return [unit.tokens for unit in units]
    pairs = zip(units, levels_at(units, levels), strict=True)
    return [unit.size(level, levels.cut) if level else unit.tokens for unit, level in pairs]


def tokens_at(units: Sequence[Unit], levels: Levels) -> int:
    """Return the tokens of a conversation at its levels."""
    return sum(sizes_at(units, levels))


def lower(
    units: Sequence[Unit],
    levels: Levels,
    level: int,
    batches: Iterable[Sequence[int]],
    low: int,
    room: int,
    floor: int = 0,
    sizes: list[int] | None = None,
) -> Levels:
    """Lower one batch of units after another, the oldest first, until at most `low` tokens are
    shown. A batch holds the places of its units; `sizes` are those at the levels, and follow them.

    A batch that would cross the low mark stays if half of the way from it to the room is free.
    Nothing crosses the floor.
    """
    sizes = sizes_at(units, levels) if sizes is None else sizes
    size = sum(sizes)
    for batch in batches:
        if size <= low:
            break
        raised = levels.raised(level, end_of(units, batch[-1]))
        if raised == levels:
            continue
        after = [units[n].size(raised.of(units[n]), raised.cut) for n in batch]
        remaining = size + sum(after) - sum([sizes[place] for place in batch])
        if (remaining < low and size <= (low + room) // 2) or remaining < floor:
            break
        levels, size = raised, remaining
        for place, tokens in zip(batch, after, strict=True):
            sizes[place] = tokens
    return levels


def lower_summarized(
    units: Sequence[Unit],
    levels: Levels,
    batches: Sequence[Sequence[int]],
    low: int,
    room: int,
    floor: int = 0,
    recap: Recap | None = None,
) -> Levels:
    """Let batches leave; no more than a summary covers, if that is half of the way to the mark."""
    if recap is not None and recap.text:
        covered = [batch for batch in batches if units[batch[-1]].place <= recap.place]
        short = lower(units, levels, GONE, covered, low, room, floor)
        if tokens_at(units, short) <= (low + room) // 2:
            return short
    return lower(units, levels, GONE, batches, low, room, floor)


def end_of(units: Sequence[Unit], place: int) -> int:
    """Return where a unit ends: where the next one begins."""
    if place + 1 < len(units):
        return units[place + 1].position
    last = units[place]
    return last.position + last.indices[-1] - last.indices[0] + 1


def by_turn(units: Sequence[Unit]) -> list[list[int]]:
    """Return the places of the units of every turn but the newest."""
    turns: dict[int, list[int]] = {}
    for place, unit in enumerate(units):
        turns.setdefault(unit.turn, []).append(place)
    return list(turns.values())[:-1]


def number_turns(units: Sequence[Unit], offset: int, turn: int) -> int:
    """Give units their positions and turns; return the number of the last turn."""
    before = None
    summary = next((offset + unit.indices[0] for unit in units if unit.begins), 0)
    for unit in units:
        role = unit.role
        # The user's messages before a summary are no one's question: each leaves by itself.
        if (role == "user" and (before != "user" or offset + unit.indices[0] < summary)) or (
            unit.begins
        ):
            turn += 1
        before = role
        unit.position = offset + unit.indices[0]
        unit.turn = turn
    return turn
