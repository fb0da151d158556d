"""Trimming: making one slot smaller, in the way its rules ask for.

Owns how messages are dropped and texts are cut, and keeps the running totals true. Which slot
is trimmed, when, and to what size is decided in `plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from muntin.core.counting.counter import Counter
from muntin.core.message import Message, as_message, at_of
from muntin.core.parts import Part, Reasoning, Text
from muntin.core.planning.cut import Keep, longest, piece, smallest
from muntin.core.planning.read import Load, Unit
from muntin.core.planning.slot import Cut, Slot
from muntin.core.report import Status
from muntin.errors import InvalidType

# A marker that counts what was cut may itself make more to cut; so many rounds are tried.
_MARKER_ROUNDS = 8


class Trimmer:
    """Shrinks slots and keeps the books: the total, the order of the cuts, what each missed by.

    While `capping`, a slot is measured against its ceiling; afterwards the window against `room`.
    """

    def __init__(self, loads: list[Load], room: int, counter: Counter) -> None:
        self.room = room
        self.counter = counter
        self._booked = sum([load.tokens for load in loads])
        # What joined texts cost beyond the sum of their parts; `plan` keeps it up to date.
        self.joined = 0
        # The target and the floor of the slot that is being trimmed.
        self._goal = 0, 0
        self.reason = "over_cap"
        self.capping = True
        self._rank = 0

    @property
    def total(self) -> int:
        """The tokens of the window's messages as they stand."""
        return self._booked + self.joined

    def shrink(self, load: Load, target: int, *, floor: int = 0, cut_at: int = 0) -> None:
        """Trim the slot to at most `target` tokens, or to its floor.

        Where dropping a whole message would leave less than `cut_at`, its text is cut instead.
        """
        self._goal = target, floor
        self.unmark(load)
        if load.tokens <= self._target() and not load.is_cut():
            return
        self._shrink_body(load, cut_at)
        if load.slot.marker is not None:
            self._mark(load, cut_at)

    def _target(self) -> int:
        """Return the size wanted; without a floor it may be negative, if others are to give too."""
        target, floor = self._goal
        return max(target, floor) if floor else target

    def _shrink_body(self, load: Load, cut_at: int) -> None:
        if load.tokens <= self._target():
            return
        if load.beyond and load.beyond_rank is None:
            load.beyond_rank = self._next_rank()
        if load.slot.trim_behavior == "char" or load.slot.is_input:
            self._cut_characters(load)
        elif load.slot.trim_behavior == "message":
            self._drop_messages(load, cut_at)
        else:
            over = self.over(load)
            for unit in load.units:
                if self._may_drop(unit):
                    self.drop(unit, over)

    def _drop_messages(self, load: Load, cut_at: int) -> None:
        for unit in victims(load):
            if load.tokens <= self._target():
                return
            if not _gives(unit) or not self._may_drop(unit):
                continue
            if load.tokens - unit.tokens < cut_at and self._cut_unit(unit):
                return
            self.drop(unit)

    def _cut_unit(self, unit: Unit) -> bool:
        """Cut the texts of one group until the slot fits; leave it as it was if that cannot be."""
        before = self.save([unit.load])
        for number in range(len(unit.messages)):
            if self._cut_text(unit, number):
                return True
            self._set_text(unit, number, "")
            if unit.load.tokens <= self._target() and any(
                message.text for message in unit.messages
            ):
                return True
        self.restore(before)
        return False

    def _cut_characters(self, load: Load) -> None:
        order = list(_cut_order(load))
        texts = [place for place in order if place[0].messages[place[1]].text]
        last = texts[-1] if load.slot.is_input and texts else None
        for unit, number in order:
            if load.tokens <= self._target():
                return
            if not _gives(unit) or not self._may_cut(unit):
                continue
            if self._cut_text(unit, number):
                continue
            if (unit, number) == last:
                text = smallest(unit.messages[number].text, load.slot.keep)
                self._set_text(unit, number, text)
            elif load.slot.is_input and last is None:
                continue  # nothing but attachments: the current input is never dropped
            else:
                self._give_up(unit, number)
        if self.capping and not load.slot.is_input:  # ceilings are hard: groups with other slots go
            self._drop_messages(load, 0)

    def _give_up(self, unit: Unit, number: int) -> None:
        """Not one character of this text can stay: empty it, or drop the group it ends."""
        message = unit.messages[number]
        family = (unit, *unit.mates)
        others = any(m.text for each in family for m in each.messages if m is not message)
        self._set_text(unit, number, "")
        alone = len(family) == len(unit.messages) == 1 and not message.tool_calls
        if others or (alone and _has_body(message) and unit.load.tokens <= self._target()):
            return
        if unit.load.slot.is_input or self._may_drop(unit):
            self.drop(unit)

    def _may_drop(self, unit: Unit) -> bool:
        if self.capping:  # ceilings are hard; only the current input outlives them
            return not unit.load.slot.is_input
        return not unit.held and not any(mate.held for mate in unit.mates)

    def _may_cut(self, unit: Unit) -> bool:
        return self.capping or unit.load.slot.is_input or not unit.held

    def _cut_text(self, unit: Unit, number: int) -> bool:
        """Cut one text so that its slot fits; False if nothing of it would stay."""
        load, cost = unit.load, unit.costs[number]
        original = _original(unit, number)
        text = original.text
        base = cost - self._text_tokens(unit.messages[number])
        room = self._target() - (load.tokens - cost) - base
        if not text or room < 0:
            return False
        whole = self._text_tokens(original)
        for marked in (True, False) if load.slot.marker and load.slot.made else (False,):
            measure = self._measure(load, original, marked)
            found = longest(text, whole, room, measure, load.slot.keep)
            if found is not None:
                kept, tokens = found
                message = self._cut_message(load, original, kept, marked)
                self._replace(unit, number, message, base + tokens)
                return True
        return False

    def _measure(self, load: Load, message: Message, marked: bool) -> Callable[[str], int]:
        """Return what a piece of the message's text would cost."""
        count = self.counter.text_once
        if isinstance(message.content, str) and not marked:
            return count
        return lambda kept: sum(
            count(text) for text in texts_of(self._cut_message(load, message, kept, marked))
        )

    def _cut_message(self, load: Load, message: Message, kept: str, marked: bool) -> Message:
        keep = load.slot.keep
        if not marked:
            return with_text(message, kept, keep)
        line = self._marker_text(load, len(message.text) - len(kept))
        return with_text(message, f"{line}\n{kept}" if keep == "tail" else f"{kept}\n{line}", keep)

    def _set_text(self, unit: Unit, number: int, text: str) -> None:
        message = unit.messages[number]
        changed = with_text(message, text, unit.load.slot.keep)
        saved = self._text_tokens(message) - self._text_tokens(changed)
        if saved > 0 or (text != message.text and not text):
            self._replace(unit, number, changed, unit.costs[number] - saved)

    def _text_tokens(self, message: Message) -> int:
        return sum([self.counter.text(text) for text in texts_of(message)])

    def _replace(self, unit: Unit, number: int, message: Message, tokens: int) -> None:
        self._note(unit, "trimmed", self.over(unit.load))
        change = tokens - unit.costs[number]
        unit.messages[number] = message
        unit.costs[number] = tokens
        unit.tokens += change
        self._book(unit.load, change)

    def drop(self, unit: Unit, over: int | None = None) -> None:
        """Drop a group, with its parts in other slots."""
        over = self.over(unit.load) if over is None else over
        for each in (unit, *unit.mates):
            if each.status != "dropped":
                self._note(each, "dropped", over)
                self._book(each.load, -each.tokens)
                if each.load is not unit.load and not self.capping:  # so much less to give here
                    self._goal = self._goal[0] + each.tokens, self._goal[1]
                each.tokens = 0

    def _book(self, load: Load, change: int) -> None:
        load.tokens += change
        self._booked += change

    def _note(self, unit: Unit, status: Status, over: int) -> None:
        unit.status = status
        if unit.reason != self.reason:
            unit.reason = self.reason
            unit.rank = self._next_rank()
            unit.fits_with = over

    def over(self, load: Load) -> int:
        """Return by how much the slot is over its ceiling, or the window over its budget."""
        return load.tokens - (load.cap or 0) if self.capping else self.total - self.room

    def _next_rank(self) -> int:
        self._rank += 1
        return self._rank

    def save(self, loads: list[Load]) -> list[tuple[Unit, tuple[object, ...]]]:
        """Remember these slots, and those tied to them, as they are."""
        units = [unit for load in loads for unit in load.units]
        tied = {id(unit): unit for each in units for unit in (each, *each.mates)}
        return [
            (
                unit,
                (
                    list(unit.messages),
                    list(unit.costs),
                    unit.tokens,
                    unit.status,
                    unit.reason,
                    unit.rank,
                    unit.fits_with,
                ),
            )
            for unit in tied.values()
        ]

    def restore(self, saved: list[tuple[Unit, tuple[object, ...]]]) -> None:
        """Bring back what `save` remembered."""
        names = ("messages", "costs", "tokens", "status", "reason", "rank", "fits_with")
        for unit, values in saved:
            before = unit.tokens
            for name, value in zip(names, values, strict=True):
                setattr(unit, name, value)
            self._book(unit.load, unit.tokens - before)

    # Markers: a line that says what was left out.

    def unmark(self, load: Load) -> None:
        """Take the marker away."""
        if load.marker is not None:
            self._book(load, -load.marker_tokens)
            load.marker, load.marker_tokens = None, 0

    def _mark(self, load: Load, cut_at: int) -> None:
        """Put the marker in front of what is left, making room for it; without room, leave it."""
        if (load.slot.made and load.tokens) or not load.is_cut():
            return  # the marker is a line inside the text, or nothing is missing
        body, target = load.tokens, self._target()
        before = self.save([load])
        for _ in range(_MARKER_ROUNDS):
            role = load.slot.messages[0].role if load.slot.made else "system"  # type: ignore[union-attr]
            marker = Message(role, self._marker_text(load, _characters_cut(load)))
            tokens = self.counter.message(marker)
            if load.tokens + tokens <= target:
                load.marker, load.marker_tokens = marker, tokens
                self._book(load, tokens)
                return
            if tokens > target or not load.tokens:
                break
            self._goal = target - tokens, 0
            self._shrink_body(load, cut_at)
            if body and not load.tokens:
                break  # a marker is not worth the last of the content
        self.restore(before)

    def _marker_text(self, load: Load, characters: int) -> str:
        assert load.slot.marker is not None
        try:
            text: object = load.slot.marker(_cut_of(load, characters))
        except Exception as error:
            error.add_note(f"raised by the marker of slot {load.slot.name!r}")
            raise
        if not isinstance(text, str):
            raise InvalidType(f"slot {load.slot.name!r}: marker must return a str, not {text!r}")
        return text


def _cut_of(load: Load, characters: int) -> Cut:
    """Sum up what is missing: whole messages, and `characters` of those that stay."""
    slot = load.slot
    gone = [index for unit in load.units if unit.status == "dropped" for index in unit.indices]
    ends = gone if not load.beyond else [*gone, load.unread[0], load.unread[-1]]
    first, last = (min(ends), max(ends)) if ends else (None, None)
    if slot.made and gone:
        characters = len(_original(load.units[0], 0).text)
    return Cut(slot.name, load.beyond + len(gone), characters, _at(slot, first), _at(slot, last))


def _characters_cut(load: Load) -> int:
    return sum(
        len(as_message(load.slot.messages[index]).text) - len(message.text)
        for unit in load.units
        if unit.status == "trimmed"
        for index, message in zip(unit.indices, unit.messages, strict=True)
    )


def _gives(unit: Unit) -> bool:
    """Say whether dropping the group would free anything."""
    return unit.status != "dropped" and (unit.tokens > 0 or bool(unit.mates))


def victims(load: Load) -> Iterator[Unit]:
    """Yield the groups of a slot in the order they go: the oldest first, system messages last."""
    for unit in load.units:
        if not unit.system:
            yield unit
    for unit in load.units:
        if unit.system:
            yield unit


def _cut_order(load: Load) -> Iterator[tuple[Unit, int]]:
    places = [
        (unit.system, unit.indices[number], unit, number)
        for unit in load.units
        for number in range(len(unit.messages))
    ]
    sign = 1 if load.slot.keep == "tail" else -1
    places.sort(key=lambda place: (place[0], sign * place[1]))
    for _, _, unit, number in places:
        yield unit, number


def _original(unit: Unit, number: int) -> Message:
    """Return the message to cut: for a marked text the one first given, without a marker."""
    slot = unit.load.slot
    if slot.marker is not None and slot.made and isinstance(slot.messages[0], Message):
        return slot.messages[0]
    return unit.messages[number]


def _at(slot: Slot, index: int | None) -> float | None:
    if index is None:
        return None
    return at_of(slot.messages[index])


def texts_of(message: Message) -> list[str]:
    """Return the texts of a message as they are counted: each text part by itself."""
    content = message.content
    if isinstance(content, str):
        return [content]
    return [part.text for part in content or () if isinstance(part, Text)]


def _has_body(message: Message) -> bool:
    """Say whether anything but text and reasoning is in the message."""
    parts = message.content if isinstance(message.content, tuple) else ()
    return bool(message.attachments) or any(not isinstance(p, Text | Reasoning) for p in parts)


def with_text(message: Message, text: str, keep: Keep) -> Message:
    """Return the message with a piece of its text in the place of all of it; the rest stays."""
    if not isinstance(message.content, tuple):
        return replace(message, content=text)
    left = len(text)
    parts: list[Part] = []
    for part in message.content if keep == "head" else reversed(message.content):
        if not isinstance(part, Text):
            parts.append(part)
        elif left:
            size = min(left, len(part.text))
            parts.append(replace(part, text=piece(part.text, size, keep)))
            left -= size
    return replace(message, content=tuple(parts if keep == "head" else reversed(parts)))
