"""The books: the one thing that changes while a window is decided.

They hold a verdict for every unit that gave something, the size of every slot and the total, and
keep these true. A journal remembers every change, so that a trial can be taken back. Other modules
decide what is entered, and when.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from muntin.core.message import Message
from muntin.core.planning.intake import Intake
from muntin.core.planning.ladder import newest_group, rungs_of
from muntin.core.planning.limits import Limits
from muntin.core.planning.past import Past
from muntin.core.planning.read import Key, Reading, Unit
from muntin.core.planning.slot import Group
from muntin.core.planning.step import advance
from muntin.core.planning.verdict import SlotPlan, Verdict
from muntin.core.report import Status

OVER_CAP, OVER_BUDGET, FALLBACK = "over_cap", "over_budget", "fallback"


@dataclass(frozen=True, slots=True)
class Lessons:
    """What earlier attempts at a window have shown.

    `slots` and `units` have no place in the window and are left out from the start; inputs in
    `stuck` cannot be cut. With `short` more tokens beside its own, a slot in `slots` would have
    been kept. `calm` says that all slots with a priority are left out. `stood` are the slots that
    stood in the window when another slot was left out.
    """

    slots: Mapping[int, Verdict] = field(default_factory=dict)
    short: Mapping[int, int] = field(default_factory=dict)
    units: Mapping[Key, Verdict] = field(default_factory=dict)
    stuck: frozenset[int] = frozenset()
    calm: bool = False
    stood: frozenset[int] = frozenset()


class Books:
    """Verdicts, sizes and the total of one window; slots are named by their index."""

    def __init__(self, intake: Intake, lessons: Lessons | None = None) -> None:
        self.readings = intake.readings
        self.counter = intake.counter
        self.room = intake.room
        self.goal = intake.goal
        self.calm = intake.calm
        self.steps = dict(intake.steps)
        # Whether a history stepped beyond its high level: then everything is read again.
        self.stepped = False
        self.fallback = False
        # Why units give at the moment. While it is OVER_CAP, slots are measured against their
        # ceilings, afterwards against the room that they are left.
        self.reason = OVER_CAP
        # The tokens of the slots that have their room; the tokens that no slot needs; these slots.
        self.taken = self.spare = 0
        self._seated: set[int] = set()
        self._seated_parts: set[int] = set()
        # Chains in which a slot was dropped.
        self.broken: set[Group] = set()
        # The place of each slot in the order in which slots go, if any slot had to.
        self.order: dict[int, int] = {}
        # If the slots were too large: their tokens after ceilings were applied, in all and by slot.
        self.asked = 0
        self.asks: dict[int, int] = {}
        # Whether units have parts in other slots; units dropped when another slot took its room.
        self.tied = any(each.open or each.pending for each in self.readings)
        self.torn: list[Unit] = []
        # Inputs that cannot be cut to their smallest size.
        self.stuck: frozenset[int] = frozenset()
        self._short: dict[int, int] = {}
        self._verdicts: dict[int, dict[int, Verdict]] = {}
        self._ground = intake.ground
        # The newest calls of runs, which are never dropped.
        runs = [each for each in self.readings if each.slot.run or each.slot.asks]
        newest = [newest_group(each) for each in runs]
        self.newest = {unit.key for unit in newest if unit is not None}
        self.sizes = {each.slot.index: each.tokens for each in self.readings}
        self.limits = {each.slot.index: each.limits for each in self.readings}
        # The tokens of the window's messages as they stand.
        self.total = sum(self.sizes.values())
        self._markers: dict[int, tuple[Message, int]] = {}
        self._beyond_ranks: dict[int, tuple[bool, int]] = {}
        self._journal: list[tuple[Unit, Verdict | None]] = []
        self._began = 0
        self._rank = 0
        # Units by key and readings by slot; filled when first needed.
        self._units: dict[Key, Unit] = {}
        self._by_slot: dict[int, Reading] = {}
        # Joined texts: their slots, their tokens, and the tokens that joining adds to the sum of
        # the parts; the tokens of parts that nothing may drop, and of parts that have their room.
        self.added = 0
        self.pinned: dict[Group, int] = {}
        self.joined_room: dict[Group, int] = {}
        self._joins: dict[Group, list[Reading]] = {}
        self.joined: dict[Group, int] = {}
        self._added: dict[Group, int] = {}
        for each in self.readings:
            group = each.slot.group
            if group is not None and group.join is not None:
                self._joins.setdefault(group, []).append(each)
        if lessons is not None:
            self._leave_out(lessons)
        self._opened = len(self._journal)
        for group in self._joins:
            self.recount(group)

    def _leave_out(self, gone: Lessons) -> None:
        self.stuck = gone.stuck
        for reading in self.readings:
            whole = gone.slots.get(reading.slot.index)
            for unit in reading.units:
                verdict = whole or gone.units.get(unit.key)
                if verdict is not None:
                    self.reason = verdict.reason
                    self.drop(unit, verdict.fits_with)
            if whole is not None:
                self.asks[reading.slot.index] = reading.tokens
                if reading.slot.index in gone.short:
                    others = gone.short[reading.slot.index]
                    self._short[reading.slot.index] = others + reading.tokens
                self.pass_beyond(reading)
        self.reason = OVER_CAP

    # The state of the books.

    @property
    def capping(self) -> bool:
        """Whether ceilings are applied at the moment."""
        return self.reason == OVER_CAP

    def verdict(self, unit: Unit) -> Verdict | None:
        """Return what was decided about a unit, None if it is kept whole."""
        verdicts = self._verdicts.get(unit.slot)
        return None if verdicts is None else verdicts.get(unit.indices[0])

    def verdicts(self, reading: Reading) -> Mapping[int, Verdict]:
        """Return what was decided about the units of a slot, by their first messages."""
        return self._verdicts.get(reading.slot.index, {})

    def now(self, unit: Unit) -> tuple[tuple[Message, ...], tuple[int, ...]]:
        """Return the messages of a unit as they stand, and the tokens of each."""
        verdict = self.verdict(unit)
        return (unit.messages, unit.costs) if verdict is None else (verdict.messages, verdict.costs)

    def tokens(self, unit: Unit) -> int:
        """Return the tokens of a unit as they stand."""
        verdict = self.verdict(unit)
        return unit.tokens if verdict is None else verdict.tokens

    def is_dropped(self, unit: Unit) -> bool:
        """Say whether a unit is gone."""
        verdict = self.verdict(unit)
        return verdict is not None and verdict.status == "dropped"

    def is_cut(self, reading: Reading) -> bool:
        """Say whether anything of a slot is missing."""
        return bool(reading.beyond or self._verdicts.get(reading.slot.index))

    def is_empty(self, reading: Reading) -> bool:
        """Say whether nothing of a slot stands in the window, although it had something."""
        if not reading.units or self.sizes[reading.slot.index]:
            return False
        return all(map(self.is_dropped, reading.units))

    def protects(self, reading: Reading, unit: Unit) -> bool:
        """Say whether a unit is protected by its own slot: a unit of a required slot or of the
        current input, the newest calls of a run, a system message by default and in a past that
        steps. Of joined texts, system text is not protected."""
        slot = reading.slot
        if slot.required or slot.is_input or unit.key in self.newest:
            return True
        if not unit.system or not (self.calm or reading.start is not None):
            return False
        return slot.group is None or slot.group.join is None

    def holds(self, reading: Reading, unit: Unit) -> bool:
        """Say whether nothing may drop a unit: it is protected, or a part of it is."""
        if self.protects(reading, unit):
            return True
        return bool(unit.mates) and any(
            self.protects(self._by_slot[each.slot], each) for each in self.family(unit)
        )

    def held(self, reading: Reading) -> list[Unit]:
        """Return the units of a slot that nothing may drop."""
        slot = reading.slot
        if slot.required or slot.is_input:
            return list(reading.units)
        if self.tied or self.newest:
            return [unit for unit in reading.units if self.holds(reading, unit)]
        if not (self.calm or reading.start is not None):
            return []
        joined = slot.group is not None and slot.group.join is not None
        return [] if joined else [unit for unit in reading.units if unit.system]

    def family(self, unit: Unit) -> tuple[Unit, ...]:
        """Return a unit with its parts in other slots."""
        if not unit.mates:
            return (unit,)
        if not self._units:
            self._units = {each.key: each for reading in self.readings for each in reading.units}
            self._by_slot = {each.slot.index: each for each in self.readings}
        return (unit, *(self._units[key] for key in unit.mates))

    # Changes.

    def drop(self, unit: Unit, over: int = 0) -> None:
        """Drop a unit with its parts in other slots; its slot was `over` tokens too large."""
        for each in self.family(unit) if unit.mates else (unit,):
            before = self.verdict(each)
            if each.slot in self._seated and not self.is_dropped(each):
                self.torn.append(each)
            if before is None:
                self._note(each, None, "dropped", over, each.messages, each.costs)
            elif before.status != "dropped":
                self._note(each, before, "dropped", over, before.messages, before.costs)

    def cut(self, unit: Unit, number: int, message: Message, tokens: int, over: int = 0) -> None:
        """Replace one message of a unit by a shorter one."""
        messages, costs = self.now(unit)
        messages = (*messages[:number], message, *messages[number + 1 :])
        costs = (*costs[:number], tokens, *costs[number + 1 :])
        self._note(unit, self.verdict(unit), "trimmed", over, messages, costs)

    def shorten(self, unit: Unit, status: Status, messages: tuple[Message, ...], over: int) -> None:
        """Replace the messages of a group by shorter ones."""
        costs = tuple([self.counter.message(each) for each in messages])
        self._note(unit, self.verdict(unit), status, over, messages, costs)

    def _note(
        self,
        unit: Unit,
        before: Verdict | None,
        status: Status,
        over: int,
        messages: tuple[Message, ...],
        costs: tuple[int, ...],
    ) -> None:
        if before is None or before.reason != self.reason:
            rank = self._next_rank()
            if self.reason == FALLBACK:  # with less than all, floors may or may not count again
                over = self.asked - self.goal
        else:
            rank, over = before.rank, before.fits_with
        self._journal.append((unit, before))
        self._enter(unit, Verdict(status, self.reason, rank, over, messages, costs))

    def _enter(self, unit: Unit, verdict: Verdict | None) -> None:
        change = (unit if verdict is None else verdict).tokens - self.tokens(unit)
        verdicts = self._verdicts.setdefault(unit.slot, {})
        if verdict is None:
            del verdicts[unit.indices[0]]
        else:
            verdicts[unit.indices[0]] = verdict
        self._book(unit.slot, change)

    def _book(self, slot: int, change: int) -> None:
        self.sizes[slot] += change
        self.total += change
        if slot in self._seated:
            self.taken += change

    def is_seated(self, slot: int) -> bool:
        """Say whether a slot has taken its room."""
        return slot in self._seated

    def seat(self, reading: Reading) -> None:
        """Enter that a slot has taken its room."""
        self._seated.add(reading.slot.index)
        self.taken += self.sizes[reading.slot.index]
        group = reading.slot.group
        if group is not None and group.chain and self.is_empty(reading):
            self.broken.add(group)

    def _next_rank(self) -> int:
        self._rank += 1
        return self._rank

    def pass_beyond(self, reading: Reading) -> None:
        """Give the messages that were never read a rank, once the slot gives."""
        if reading.beyond and reading.slot.index not in self._beyond_ranks:
            self._beyond_ranks[reading.slot.index] = self.capping, self._next_rank()

    def mark(self, slot: int, marker: Message, tokens: int) -> None:
        """Put the line that says what is missing in front of a slot."""
        self._markers[slot] = marker, tokens
        self._book(slot, tokens)

    def unmark(self, slot: int) -> None:
        """Take the line that says what is missing away."""
        if slot in self._markers:
            self._book(slot, -self._markers.pop(slot)[1])

    @contextmanager
    def trial(self) -> Iterator[Callable[[], None]]:
        """Take back every change made inside, unless the yielded function is called.

        Ranks are not taken back: they say in which order things were tried.
        """
        mark = len(self._journal)
        kept = False

        def keep() -> None:
            nonlocal kept
            kept = True

        yield keep
        if not kept:
            self._rewind(mark)

    def _rewind(self, mark: int, only: Collection[Key] | None = None) -> None:
        entries, self._journal[mark:] = self._journal[mark:], []
        for unit, before in reversed(entries):
            if only is None or unit.key in only:
                self._enter(unit, before)

    def give_back(self, readings: Collection[Reading]) -> None:
        """Bring back what these slots, and units tied to them, gave since ceilings were applied."""
        units = [unit for each in readings for unit in each.units]
        self._rewind(self._began, {each.key for unit in units for each in self.family(unit)})

    def ignore_floors(self) -> None:
        """Fall back: floors no longer raise ceilings, and yield to them; units cut to a raised
        ceiling are whole again."""
        self.fallback = True
        self.reason = OVER_CAP
        self._rewind(self._opened)
        for group in self._joins:
            self.recount(group)
        for slot, limits in self.limits.items():
            cap, floor = limits.fallback_cap, limits.floor
            floor = floor if cap is None else min(floor, cap)
            self.limits[slot] = Limits(cap, floor, cap)

    def begin_taking(self) -> None:
        """From now on slots are measured against their room."""
        ignored = self.fallback and any(each.floor for each in self.limits.values())
        self.reason = FALLBACK if ignored else OVER_BUDGET
        self._began = len(self._journal)
        self._seated.clear()
        self._seated_parts.clear()
        self.broken.clear()
        self.pinned = {
            group: self.measure(group, [each for each in parts if not self.held(each)])
            for group, parts in self._joins.items()
        }
        self.joined_room = dict(self.pinned)
        self.taken = sum(self.pinned.values())

    # Joined texts and histories.

    def parts(self, group: Group) -> list[Reading]:
        """Return the slots of a joined text."""
        return self._joins[group]

    def waiting(self, group: Group) -> list[Reading]:
        """Return the slots of a joined text that may go and do not have their room yet."""
        return [
            each
            for each in self._joins[group]
            if each.slot.index not in self._seated_parts and self.sizes[each.slot.index]
            if not self.held(each)
        ]

    def seat_joined(self, group: Group, readings: Collection[Reading], tokens: int) -> None:
        """Enter that slots of a joined text have their room: the text now has `tokens` tokens."""
        self.taken += tokens - self.joined_room[group]
        self.joined_room[group] = tokens
        self.recount(group)
        self._seated_parts.update(each.slot.index for each in readings)

    def measure(self, group: Group, without: Collection[Reading] = ()) -> int:
        """Count the joined text that is left without these slots."""
        assert group.join is not None
        gone = {each.slot.index for each in without}
        texts = []
        for each in self._joins[group]:
            index = each.slot.index
            if index in gone or not each.units:
                continue
            (unit,) = each.units  # a joined slot is one text
            verdicts = self._verdicts.get(index)
            verdict = None if verdicts is None else verdicts.get(unit.indices[0])
            if verdict is None:
                texts.append(unit.messages[0].text)
            elif verdict.status != "dropped":
                texts.append(verdict.messages[0].text)
        text = group.join.join(texts)
        return self.counter.overhead + self.counter.text(text) if text else 0

    def recount(self, group: Group) -> None:
        """Count a joined text again, after a change of its parts."""
        parts = sum([self.sizes[each.slot.index] for each in self._joins[group]])
        self.joined[group] = self.measure(group)
        before, self._added[group] = self._added.get(group, 0), self.joined[group] - parts
        self.added += self._added[group] - before
        self.total += self._added[group] - before

    def step(self, reading: Reading, most: int) -> None:
        """Make a past begin later, or go down, so that this slot has at most `most` tokens; slots
        of the past that have their room come on top."""
        before = self.steps[reading.slot.index]
        members = [each for each in self.readings if each.slot.index in before.members]
        total = sum([self.sizes[each.slot.index] for each in members])
        others = [index for index in before.members if index in self._seated]
        most += sum([self.sizes[index] for index in others if index != reading.slot.index])
        offsets = Past([each.slot.messages for each in members]).offsets[:-1]
        rungs = rungs_of(members, offsets, self.tokens)
        step = advance(before, reading.slot.ladder, rungs, total, most, self._ground)
        changed = (step.levels, step.told) != (before.levels, before.told)
        self.stepped = self.stepped or changed
        for each, offset in zip(members, offsets, strict=True):
            if each.slot.index in self.steps:
                self.steps[each.slot.index] = self.steps[each.slot.index].like(step)
                for unit in each.units:
                    first = unit.indices[0] + offset
                    if not unit.system and first < step.levels.gone and first not in step.asked:
                        self.drop(unit)

    def close(self) -> tuple[SlotPlan, ...]:
        """Return what was decided about every slot."""
        return tuple(
            [
                SlotPlan(
                    each.slot,
                    each,
                    self.limits[index],
                    self.sizes[index],
                    self._verdicts.get(index, {}),
                    self._markers[index][0] if index in self._markers else None,
                    self._beyond_ranks.get(index),
                    self.steps.get(index),
                    self.order.get(index, 0),
                    self.asks.get(index, 0),
                    self._short.get(index, 0),
                )
                for each in self.readings
                for index in [each.slot.index]
            ]
        )
