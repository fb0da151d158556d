"""Verdicts: what was decided about units and slots, as values.

The books enter them, a plan holds them; rendering and explaining only read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from muntin.core.message import Message
from muntin.core.planning.frontier import Start
from muntin.core.planning.limits import Limits
from muntin.core.planning.read import Reading, Unit
from muntin.core.planning.slot import Slot
from muntin.core.planning.step import SteppedSlot, Told
from muntin.core.report import Status


class Verdict(NamedTuple):
    """What was decided about a unit that is not kept whole: `trimmed` or `dropped`.

    `messages` and `costs` are the rest (of a dropped unit, the rest before). `rank`
    says when it was first cut for this `reason`, `fits_with` by how many tokens the slot was then
    over its ceiling or its room.
    """

    status: Status
    reason: str
    rank: int
    fits_with: int
    messages: tuple[Message, ...]
    costs: tuple[int, ...]

    @property
    def left(self) -> tuple[Message, ...]:
        """The messages that are left."""
        return () if self.status == "dropped" else self.messages

    @property
    def tokens(self) -> int:
        """The tokens that are left."""
        return 0 if self.status == "dropped" else sum(self.costs)


class SlotPlan(NamedTuple):
    """What was decided about one slot.

    `verdicts` are by the first message of a unit; units without one are kept whole. `limits` are
    the limits in force, `marker` is the line that says what is missing. `turn` is the place of the
    slot in the order slots go, `asked` its size once ceilings were applied, if any slot had to go.
    With `short` more tokens, a slot that cost others room would surely have been kept.
    """

    slot: Slot
    reading: Reading
    limits: Limits
    tokens: int
    verdicts: Mapping[int, Verdict]
    marker: Message | None = None
    beyond_rank: tuple[bool, int] | None = None
    step: SteppedSlot | None = None
    turn: int = 0
    asked: int = 0
    short: int = 0

    def is_cut(self) -> bool:
        """Say whether anything of the slot is missing."""
        return bool(self.reading.beyond or self.verdicts)

    def left(self) -> Iterator[tuple[Unit, tuple[Message, ...]]]:
        """Yield the units that stay, with the messages that are left of them."""
        for unit in self.reading.units:
            verdict = self.verdicts.get(unit.indices[0])
            if verdict is None:
                yield unit, unit.messages
            elif verdict.status != "dropped":
                yield unit, verdict.messages

    def places(self) -> list[int]:
        """Return the indices of the messages that stay, in the order of `kept`, without `front`."""
        units = [unit for unit, _ in self.left()] if self.verdicts else self.reading.units
        found = [index for unit in units for index in unit.indices]
        return sorted(found) if self.reading.scattered else found

    def kept(self) -> list[Message]:
        """Return the messages that stay, in order, the marker first."""
        units, verdicts = self.reading.units, self.verdicts
        if self.reading.scattered:
            pairs = [
                pair for unit, left in self.left() for pair in zip(unit.indices, left, strict=True)
            ]
            messages = [message for _, message in sorted(pairs, key=lambda pair: pair[0])]
        else:
            messages = []
            for unit in units:
                verdict = verdicts.get(unit.indices[0])
                messages += unit.messages if verdict is None else verdict.left
        return [*self.front, *messages]

    @property
    def told(self) -> Told | None:
        """The summary in front of the slot, if its past has one and begins here."""
        step = self.step
        return step.told if step is not None and step.members[0] == self.slot.index else None

    @property
    def front(self) -> list[Message]:
        """The messages in front: a summary, and the line that says what is missing."""
        told = [] if self.told is None else [self.told.recap.message]
        return told if self.marker is None else [*told, self.marker]


def starts_of(plans: Sequence[SlotPlan]) -> list[Start]:
    """Return where the pasts of a window begin, for the next turn."""
    by_slot = {each.slot.index: each for each in plans}
    starts = []
    for each in plans:
        if each.step is not None and each.step.members[0] == each.slot.index:
            members = [by_slot[index] for index in each.step.members]
            tokens = sum([member.tokens for member in members])
            starts.append(each.step.start([member.slot for member in members], tokens))
    return starts


def lowered(plans: Sequence[SlotPlan]) -> list[Message]:
    """Return the last short and the last stubbed message of pasts that step: from there on the next
    step down changes the window."""
    found: dict[str, Message] = {}
    for plan in plans:
        for unit, messages in plan.left() if plan.step is not None else ():
            if unit.form is not None and unit.form.level != "full":
                found[unit.form.level] = messages[-1]
    return [found[level] for level in ("short", "stub") if level in found]
