"""The draft: a window while it is planned, slot by slot. What it holds in the end is the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from sys import maxsize

from muntin.core.counting.counter import Counter
from muntin.core.message import Message, as_message
from muntin.core.planning.levels import NO_LEVELS, Levels, SlotView
from muntin.core.planning.limits import Limits
from muntin.core.planning.memory import ConversationDraft
from muntin.core.planning.slot import Group, Recap, Slot
from muntin.core.planning.units import Reading

OVER_CAP, OVER_BUDGET, FALLBACK, MOVED = "over_cap", "over_budget", "fallback", "moved"
COMPACTED = "compacted"


@dataclass(slots=True)
class SlotPlan:
    """What is decided about one slot.

    `limits` are those in force. `conversation` is the one that it is part of, `offset` the place of
    its first message in the declared list. What `stands` cannot be dropped. `need` was set aside
    for it; `open_room` is the room that it was given before its ceiling, `room` after it. `beside`
    is what a text adds to its joined message beside its own tokens. `reason` is why anything of it
    is missing, unless it is over its ceiling or has moved. `order` is its place among the slots,
    the least protected first. `elsewhere` are results of calls in other slots, with their places in
    this one.
    """

    slot: Slot
    reading: Reading
    limits: Limits
    conversation: ConversationDraft | None = None
    offset: int = 0
    stands: bool = False
    need: int = 0
    open_room: int | None = None
    room: int = 0
    beside: int = 0
    view: SlotView = field(default_factory=SlotView)
    reason: str = OVER_BUDGET
    order: int = 0
    elsewhere: tuple[tuple[int, Message | None], ...] = ()

    @property
    def is_head(self) -> bool:
        """Whether its conversation begins with it."""
        return self.conversation is not None and self.conversation.slots[0] is self.slot

    @property
    def used(self) -> int:
        """The tokens that it takes of the window."""
        return self.view.tokens + self.beside

    @property
    def levels(self) -> Levels:
        """How far its conversation has moved."""
        after = None if self.conversation is None else self.conversation.after
        return NO_LEVELS if after is None else after[0].joined(after[1])

    @property
    def has_moved(self) -> bool:
        """Whether its conversation moved in this window."""
        talk = self.conversation
        if talk is None or not self.slot.is_stepped:
            return False
        return talk.after != (talk.lasting, talk.in_turn)

    @property
    def is_cut(self) -> bool:
        """Whether anything of the slot is missing or shorter."""
        forms = self.view.forms
        whole = len(forms) == len(self.reading.units)
        return bool(self.reading.beyond) or not whole or any(f.status != "kept" for f in forms)

    def is_whole(self, place: int) -> bool:
        """Say whether a message of the slot is shown as it was given."""
        if any(place in form.unit.indices and form.status == "kept" for form in self.view.forms):
            return True
        results = [result for index, result in self.elsewhere if index == place]
        return bool(results) and results[0] == as_message(self.slot.messages[place])

    def entries(self) -> list[tuple[int | None, Message]]:
        """Return the messages that stay, each with its place in the slot; None for a message that
        Muntin put in. Notes stand where the past begins."""
        view, gone = self.view, self.levels.gone
        pairs = [(index, message) for index, message in self.elsewhere if message is not None]
        for form in view.forms:
            pairs += zip(form.unit.indices, form.messages, strict=False)
        pairs.sort(key=itemgetter(0))
        begin = next(
            (
                form.unit.indices[0]
                for form in view.forms
                if form.unit.position >= gone and not form.unit.begins
            ),
            maxsize,
        )
        before = [pair for pair in pairs if pair[0] < begin]
        front, notes = ([(None, m) for m in messages] for messages in (view.front, view.notes))
        return [*front, *before, *notes, *pairs[len(before) :]]

    def messages(self) -> list[Message]:
        """Return the messages that stay."""
        view = self.view
        if view.notes or self.elsewhere or self.reading.is_scattered:
            return [message for _, message in self.entries()]
        return [*view.front, *[message for form in view.forms for message in form.messages]]


@dataclass(slots=True)
class Draft:
    """A window while it is planned.

    `budget` is what ratios are shares of, `room` what the window is to fit. `parts` are its slots
    in window order; `ranked` are those that hold anything, the best protected first. `history`,
    `input` and `run` are the parts of the main `conversation`. If it `fits_whole`, nothing has to
    give. In a `fallback` floors are ignored;
    with `has_least_run` a run needs only its newest calls. `begun` are the joined messages that
    have a part already. With `must_step` conversations go to their low marks even if they fit.
    """

    budget: int
    room: int
    counter: Counter
    recap: Recap | None
    may_run: bool
    parts: Sequence[SlotPlan]
    ranked: Sequence[SlotPlan] = ()
    conversation: ConversationDraft | None = None
    history: SlotPlan | None = None
    input: SlotPlan | None = None
    run: SlotPlan | None = None
    fits_whole: bool = False
    fallback: bool = False
    has_least_run: bool = False
    must_step: bool = False
    begun: set[Group] = field(default_factory=set)

    @property
    def used(self) -> int:
        """The tokens that the slots take of the window."""
        return sum([part.used for part in self.ranked])
