"""The ladder: how a past goes down.

A past is a list of units, the oldest first. Going down moves its levels forward, never back, in
one fixed order: all older groups become short, then stubs; then the newest groups of the run do
the same; then units leave, the oldest first. The very newest group is never a stub and never
leaves. The question that began a run leaves with the last call of the run. So three numbers
describe a past at any time, and the way down is one line of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise, takewhile

from muntin.core.message import Message, opens_turn, role_of
from muntin.core.planning.past import NOBODY
from muntin.core.planning.read import Reading, Unit
from muntin.core.planning.shapes import Ladder, Level, Levels, Shape

# When anything has to leave, this share of what may leave stays: of texts alone, and with calls
# that became stubs. Each unit that leaves rewrites all that follows it, so several leave at once;
# but stubs are small, and dropping more of them loses more and saves little. Chosen by
# bench/long_runs.py, where keeping half of them costs as much and shows a seventh fewer turns.
_TEXTS_STAY, _STUBS_STAY = Fraction(1, 2), Fraction(17, 20)


@dataclass(slots=True)
class Rung:
    """One unit of a past, which begins at the message `first` and has `tokens` tokens now.

    `fixed` units never go (system messages, the current input). `in_run` says that the unit follows
    the last message of the user, `stays` that it is the newest group of a run. `asked` are the
    messages that asked for the run of this unit, if calls of the run follow; `asks` says that the
    unit is one of these messages. With the last call of a run, the `question` tokens of the
    messages that asked for it leave too.
    """

    first: int
    end: int
    tokens: int
    is_group: bool = False
    opens_turn: bool = False
    fixed: bool = False
    in_run: bool = False
    stays: bool = False
    asked: range = NOBODY
    asks: bool = False
    question: int = 0
    shape: Shape | None = None
    messages: tuple[Message, ...] = ()
    sizes: dict[Level, int] = field(default_factory=dict)

    def size(self, level: Level) -> int:
        """Return the tokens at a level."""
        if self.shape is None:
            return self.tokens
        known = self.sizes.get(level)
        if known is None:
            known = self.sizes[level] = self.shape.group(level, self.messages)[2]
        return known


def newest_group(reading: Reading) -> Unit | None:
    """Return the newest calls of a run, with their results."""
    slot = reading.slot
    if not slot.run and not (slot.asks and role_of(slot.messages[-1]) == "tool"):
        return None
    return next((unit for unit in reversed(reading.units) if is_group(unit)), None)


def is_group(unit: Unit) -> bool:
    """Say whether a unit is calls with their results."""
    return len(unit.messages) > 1 and any(each.tool_calls for each in unit.messages)


def rungs_of(
    readings: Sequence[Reading],
    offsets: Sequence[int],
    tokens: Callable[[Unit], int] | None = None,
) -> list[Rung]:
    """Return the units of a past that stands in these slots, with the tokens they have now."""
    placed = [
        (offset + unit.indices[0], unit, each)
        for each, offset in zip(readings, offsets, strict=True)
        for unit in each.units
    ]
    if not placed:
        return []
    ends = [first for first, _, _ in placed[1:]]
    ends.append(offsets[-1] + len(readings[-1].slot.messages))
    users = [unit.messages[0].role == "user" for _, unit, _ in placed]
    asked = [number for number, is_user in enumerate(users) if is_user]
    newest = {id(newest_group(each)) for each in readings}
    rungs = []
    for number, ((first, unit, each), end) in enumerate(zip(placed, ends, strict=True)):
        rung = Rung(first, end, unit.tokens if tokens is None else tokens(unit))
        rung.opens_turn = users[number] and opens_turn(each.slot.messages, unit.indices[0])
        rung.fixed = unit.system or each.slot.is_input
        rung.in_run = number > (asked[-1] if asked else -1)
        if len(unit.messages) > 1 and is_group(unit):
            rung.stays = id(unit) in newest
            rung.is_group = each.shape is not None
            rung.shape = each.shape
            rung.messages = unit.messages if unit.form is None else unit.form.messages
        rungs.append(rung)
    if readings[-1].slot.asks and asked:
        for number in takewhile(lambda n: users[n], range(asked[-1], -1, -1)):
            rungs[number].fixed = True
    _tell_questions(rungs, users)
    return rungs


def groups_of(reading: Reading) -> list[tuple[Unit, Rung]]:
    """Return the calls of a slot with their results, except groups with parts in other slots: these
    groups can become smaller where nothing leaves."""
    units = [unit for unit in reading.units if not unit.mates]
    numbers = [n for n, unit in enumerate(units) if len(unit.messages) > 1 and is_group(unit)]
    if not numbers:
        return []
    roles = [unit.messages[0].role for unit in units]
    asked = len(roles) - 1 - roles[::-1].index("user") if "user" in roles else -1
    newest = newest_group(reading._replace(units=tuple(units)))
    size = len(reading.slot.messages)
    groups = []
    for number in numbers:
        unit = units[number]
        end = units[number + 1].indices[0] if number + 1 < len(units) else size
        rung = Rung(unit.indices[0], end, unit.tokens, is_group=True)
        rung.fixed = unit.system or reading.slot.is_input
        rung.in_run = number > asked
        rung.stays = unit is newest
        rung.shape = reading.shape
        rung.messages = unit.messages if unit.form is None else unit.form.messages
        groups.append((unit, rung))
    return groups


def _tell_questions(rungs: Sequence[Rung], users: Sequence[bool]) -> None:
    """Note in the units of each turn, up to its last calls, which messages asked for the turn."""
    begins = [
        number
        for number, (rung, is_user) in enumerate(zip(rungs, users, strict=True))
        if is_user and (rung.opens_turn or not number or not users[number - 1])
    ]
    for begin, end in pairwise([*begins, len(rungs)]):
        turn = rungs[begin:end]
        last = next((n for n in reversed(range(len(turn))) if turn[n].messages), None)
        if last is None:
            continue
        asking = list(takewhile(lambda n: users[n], range(begin, end)))
        asked = range(turn[0].first, rungs[asking[-1]].first + 1)
        for rung in turn[: last + 1]:
            rung.asked = asked
        for number in asking:
            rungs[number].asks = True
        turn[last].question = sum([rungs[n].tokens for n in asking if not rungs[n].fixed])


def question_of(rungs: Sequence[Rung], gone: int) -> range:
    """Return the messages that asked for the run in which a past begins, at the message `gone`."""
    first = next((rung for rung in rungs if rung.first >= gone), None)
    return NOBODY if first is None or first.first <= first.asked.start else first.asked


def freed(rung: Rung, size: int) -> int:
    """Return the tokens that are freed when a unit of this size leaves: with the last call of a run
    the question's too, and none with the question itself."""
    return (0 if rung.asks else size) + rung.question


def newest_of(rungs: Sequence[Rung]) -> int:
    """Return where a past may begin at the latest: at the newest group of its run, if it has one,
    else behind all but the input."""
    for rung in reversed(rungs):
        if rung.stays:
            return rung.first
    end = rungs[-1].end if rungs else 0
    for rung in reversed(rungs):
        if not rung.fixed:
            break
        end = rung.first
    return end


def descend(
    rungs: Sequence[Rung],
    levels: Levels,
    rules: Ladder,
    total: int,
    target: int,
    must: int | None = None,
) -> Levels:
    """Go down from `total` tokens until at most `target` are left, or nothing more may go.

    With `must`, older groups go down to `target` as far as they can without leaving; the newest
    groups go down, and anything leaves, only if more than `must` are left.
    """
    exact, must = must is None, target if must is None else max(target, must)
    levels, total = lower(rungs, levels, rules, total, target, must)
    if total <= must:
        return levels
    aim, levels, total = _leave(rungs, levels, total, target, must)
    return levels if exact else _at_turn(rungs, levels, total, aim, newest_of(rungs))


def lower(
    rungs: Sequence[Rung], levels: Levels, rules: Ladder, total: int, target: int, must: int
) -> tuple[Levels, int]:
    """Make groups short, then stubs, as few as are needed; return also the tokens left.
    Nothing leaves."""
    if total <= target:
        return levels, total
    free = [rung for rung in rungs if rung.first >= levels.gone and not rung.fixed]
    groups = [place for place, rung in enumerate(free) if rung.is_group and rung.in_run]
    kept = groups[-rules.keep_groups :] if rules.keep_groups else []
    edge = kept[0] if kept else len(free)
    for zone, low in ((free[:edge], target), (free[edge:], must)):
        for moved, saved in _lower(zone, levels, rules):
            if total <= low:
                break
            levels, total = moved, total - saved
    return levels, total


def _lower(zone: Sequence[Rung], levels: Levels, rules: Ladder) -> Iterator[tuple[Levels, int]]:
    """Yield the levels after each step down, and what it saves: first all become short, then
    stubs."""
    for rung in zone:
        if rung.is_group and rung.first >= levels.shorts:
            saved = rung.size(levels.of(rung.first)) - rung.size("short")
            levels = replace(levels, shorts=rung.end)
            yield levels, saved
    for rung in zone if rules.stubs else ():
        if rung.stays:
            return
        if rung.is_group and levels.stubs <= rung.first:
            saved = rung.size(levels.of(rung.first)) - rung.size("stub")
            levels = replace(levels, stubs=rung.end, shorts=max(levels.shorts, rung.end))
            yield levels, saved


def _leave(
    rungs: Sequence[Rung], levels: Levels, total: int, target: int, must: int
) -> tuple[int, Levels, int]:
    """Let the oldest units leave; a share of what may leave stays, if `target` is lower than that.
    Return the size aimed at, the levels, and the size that is left."""
    newest = newest_of(rungs)
    may = [rung for rung in rungs if levels.gone <= rung.first < newest and not rung.fixed]
    sizes = [rung.size(levels.of(rung.first)) for rung in may]
    rest = total - sum(map(freed, may, sizes))
    share = _STUBS_STAY if any(rung.is_group for rung in may) else _TEXTS_STAY
    aim = max(target, rest + int(share * (must - rest)))
    for rung, size in zip(may, sizes, strict=True):
        if total <= aim:
            break
        total -= freed(rung, size)
        levels = replace(levels, gone=rung.end)
    return aim, levels, total


def _at_turn(rungs: Sequence[Rung], levels: Levels, total: int, aim: int, newest: int) -> Levels:
    """Go on to the next beginning of a turn, if at least half of the size aimed at stays."""
    for rung in rungs:
        if not levels.gone <= rung.first <= newest:
            continue
        if rung.opens_turn:
            return replace(levels, gone=rung.first) if 2 * total >= aim else levels
        if not rung.fixed:
            total -= freed(rung, rung.size(levels.of(rung.first)))
    return levels
