"""Runs under pressure: going down the ladder at once, and the newest calls, which always stay.

Owns how groups of calls and results become smaller when a slot must; enters it in the books.
"""

from __future__ import annotations

from muntin.core.planning.books import Books
from muntin.core.planning.ladder import groups_of, lower, newest_group
from muntin.core.planning.limits import allocate
from muntin.core.planning.read import Reading
from muntin.core.planning.shapes import LEAST, NO_LEVELS
from muntin.core.report import Status


def go_down(books: Books, reading: Reading, target: int, over: int | None) -> None:
    """Make calls and results of a slot short, then stubs, as few as are needed. Units that must
    leave after that leave as without a ladder."""
    slot, shape = reading.slot, reading.shape
    size = books.sizes[slot.index]
    if slot.ladder is None or shape is None or size <= target:
        return
    over = size - target if over is None else over
    groups = groups_of(reading)
    rungs = [rung for _, rung in groups]
    levels, _ = lower(rungs, NO_LEVELS, slot.ladder, size, target, target)
    for unit, rung in groups:
        level = levels.of(rung.first)
        if level == "full" or rung.fixed or books.is_dropped(unit):
            continue
        was = unit.messages if unit.form is None else unit.form.messages
        messages = shape.group(level, was)[0]
        if messages != unit.messages and books.protects(reading, unit) <= rung.stays:
            status: Status = "short" if level == "short" else "stubbed"
            books.shorten(unit, status, messages, over)


def least_newest(books: Books, reading: Reading) -> int:
    """Return how many tokens of the newest calls of a run are never cut: 64 of each result."""
    unit = newest_group(reading)
    if unit is None:
        return 0
    most = LEAST + books.counter.overhead
    return sum(
        min(cost, most) if message.tool_call_id is not None else cost
        for message, cost in zip(*books.now(unit), strict=True)
    )


def cut_newest(books: Books, reading: Reading, target: int, over: int | None) -> None:
    """Cut the results of the newest calls of a run, the longest most, until the slot fits."""
    unit, shape = newest_group(reading), reading.shape
    size = books.sizes[reading.slot.index]
    if unit is None or shape is None or size <= target:
        return
    was = unit.messages if unit.form is None else unit.form.messages
    shown, costs = books.now(unit)
    results = [number for number, each in enumerate(was) if each.tool_call_id is not None]
    asks = [costs[number] for number in results]
    pot = max(0, target - (size - sum(asks)))
    shares = allocate(pot, asks, [1] * len(asks))
    messages = list(shown)
    for number, share in zip(results, shares, strict=True):
        if costs[number] > share:
            most = max(LEAST, share - books.counter.overhead)
            messages[number] = shape.forms.result(was[number], most, shape.keep)
    books.shorten(unit, "short", tuple(messages), size - target if over is None else over)
