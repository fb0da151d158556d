"""Trimming: making one slot smaller, in the way its rules ask for.

Owns how messages are dropped, texts are cut, and room is made for the line that says so. Which
slot is trimmed, when, and to what size is decided elsewhere; every change goes into the books.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from muntin.core.message import Message, Role, as_message, at_of, role_of
from muntin.core.parts import Part, Reasoning, Text
from muntin.core.planning.books import Books
from muntin.core.planning.cut import Keep, longest, piece
from muntin.core.planning.question import ask_less, least_asked, least_question, write_line
from muntin.core.planning.read import Reading, Unit
from muntin.core.planning.run import cut_newest, least_newest
from muntin.core.planning.slot import Cut, Slot
from muntin.core.report import Status

# A longer marker may need a further cut: at most this many rounds are tried.
_MARKER_ROUNDS = 8


def shrink(
    books: Books, reading: Reading, target: int, *, cut_at: int = 0, over: int | None = None
) -> None:
    """Trim a slot to at most `target` tokens.

    Where dropping a whole message would leave less than `cut_at`, its text is cut instead. `over`
    is what the report says was missing, if that is more than what the slot is over.
    """
    slot = reading.slot
    books.unmark(slot.index)
    trim = _Trim(books, reading, target, cut_at, books.taken, over)
    if trim.is_done() and not books.is_cut(reading):
        return
    trim.body()
    if slot.marker is not None and not slot.is_input:
        trim.make_room_for_marker()


def least_of(books: Books, reading: Reading) -> int:
    """Return how many tokens of a slot nothing may drop or cut."""
    slot = reading.slot
    if slot.is_input and not slot.required:
        return least_asked(books, reading)
    if slot.required:
        return sum([books.tokens(unit) for unit in reading.units])
    least = least_newest(books, reading) + least_question(books, reading)
    for unit in books.held(reading):
        if unit.key in books.newest:
            continue
        least += books.tokens(unit)
        if slot.trim_behavior == "char" and not books.protects(reading, unit):
            texts = [text for message in books.now(unit)[0] for text in _texts_of(message)]
            least -= sum([books.counter.text(text) for text in texts])
    return least


class _Trim(NamedTuple):
    """One slot on its way to a size; `taken` is what other slots had taken when it set out."""

    books: Books
    reading: Reading
    target: int
    cut_at: int
    taken: int
    short: int | None

    @property
    def slot(self) -> Slot:
        return self.reading.slot

    @property
    def size(self) -> int:
        return self.books.sizes[self.reading.slot.index]

    @property
    def over(self) -> int:
        """How much more room would keep the unit that is about to go."""
        return self.size - self.aim() if self.short is None else self.short

    def aim(self) -> int:
        """Return the size wanted: parts dropped in slots that have their room leave room here."""
        return self.target + self.taken - self.books.taken

    def is_done(self) -> bool:
        return self.books.sizes[self.reading.slot.index] <= self.aim()

    def body(self) -> None:
        """Trim the slot, not counting a marker."""
        if self.is_done():
            return
        books, reading = self.books, self.reading
        books.pass_beyond(reading)
        if self.slot.is_input:
            if not self.slot.required:
                ask_less(books, reading, self.aim(), self.over)
        elif self.slot.trim_behavior == "char":
            self.cut_characters()
        elif self.slot.trim_behavior == "message":
            self.drop_messages(self.cut_at)
            cut_newest(books, reading, self.aim(), self.short)
        else:
            over = self.over
            for unit in reading.units:
                if not books.holds(reading, unit):
                    books.drop(unit, over)

    def drop_messages(self, cut_at: int) -> None:
        """Drop units, the oldest first; cut the text of a unit that must not go whole."""
        books = self.books
        for unit in _victims(self.reading):
            if self.is_done():
                return
            if not self.gives(unit) or books.holds(self.reading, unit):
                continue
            if cut_at and self.size - books.tokens(unit) < cut_at and self.cut_unit(unit):
                return
            books.drop(unit, self.over)

    def gives(self, unit: Unit) -> bool:
        """Say whether dropping a unit would free anything."""
        return self.books.tokens(unit) > 0 or (bool(unit.mates) and not self.books.is_dropped(unit))

    def cut_unit(self, unit: Unit) -> bool:
        """Cut the texts of one unit until the slot fits; else leave the unit as it was."""
        with self.books.trial() as keep:
            for number in range(len(unit.messages)):
                fits = self.cut_text(unit, number)
                if not fits:
                    self.set_text(unit, number, "")
                    fits = self.is_done() and any(m.text for m in self.books.now(unit)[0])
                if fits:
                    keep()
                    return True
        return False

    def cut_characters(self) -> None:
        """Cut texts, from the end that goes first, until the slot fits."""
        with self.books.trial() as keep:
            self.cut_in_order()
            held = self.books.capping and self.books.held(self.reading)
            if not held or (self.size and self.is_done()):
                keep()  # else a text that must not vanish stays whole
                return
        self.drop_messages(0)

    def cut_in_order(self) -> None:
        books, reading = self.books, self.reading
        for unit, number in self.texts_in_order():
            if self.is_done():
                return
            may_cut = books.capping or not books.protects(reading, unit)
            if may_cut and self.gives(unit) and not self.cut_text(unit, number):
                self.give_up(unit, number)
        if books.capping:  # ceilings are hard: groups with other slots go
            self.drop_messages(0)
            return
        for unit in _victims(reading):  # no slot after this one can let them go
            tied = unit.mates and all(books.is_seated(slot) for slot, _ in unit.mates)
            if tied and not self.is_done() and not books.holds(reading, unit):
                books.drop(unit, self.over)

    def may_drop(self, unit: Unit) -> bool:
        """Say whether a unit may go; under a ceiling, protection by its own slot does not count."""
        books, reading = self.books, self.reading
        if not books.holds(reading, unit):
            return True
        return books.capping and not unit.mates

    def texts_in_order(self) -> Iterator[tuple[Unit, int]]:
        places = [
            (unit.system, index, unit, number)
            for unit in self.reading.units
            for number, index in enumerate(unit.indices)
        ]
        sign = 1 if self.slot.keep == "tail" else -1
        places.sort(key=lambda place: (place[0], sign * place[1]))
        for _, _, unit, number in places:
            yield unit, number

    def give_up(self, unit: Unit, number: int) -> None:
        """Empty a text of which not one character can stay, or drop the group that it ends."""
        books = self.books
        message = books.now(unit)[0][number]
        family = books.family(unit)
        others = any(m.text for each in family for m in books.now(each)[0] if m is not message)
        self.set_text(unit, number, "")
        alone = len(family) == len(unit.messages) == 1 and not message.tool_calls
        if others or (alone and _has_body(message) and self.is_done()):
            return
        if self.may_drop(unit):
            books.drop(unit, self.over)

    def cut_text(self, unit: Unit, number: int) -> bool:
        """Cut one text so that its slot fits; False if nothing of it would stay."""
        messages, costs = self.books.now(unit)
        original = self.original(messages[number])
        text = self.inner(original)
        base = costs[number] - self.text_tokens(messages[number])
        room = self.aim() - (self.size - costs[number]) - base
        if not text or room < 0:
            return False
        whole = self.text_tokens(original)
        for marked in (True, False) if self.slot.marker and self.slot.made else (False,):
            measure = self.measure(original, marked)
            found = longest(text, whole, room, measure, self.slot.keep)
            if found is not None:
                kept, tokens = found
                message = self.cut_message(original, kept, marked)
                self.books.cut(unit, number, message, base + tokens, self.over)
                return True
        return False

    def original(self, message: Message) -> Message:
        """Return the message to cut: for a marked text the original, without a marker."""
        slot = self.slot
        marked = slot.marker is not None or slot.frame is not None
        if marked and slot.made and isinstance(slot.messages[0], Message):
            return slot.messages[0]
        return message

    def inner(self, message: Message) -> str:
        """Return the text that may be cut: the text inside its frame."""
        opening, closing = self.slot.frame or ("", "")
        return message.text[len(opening) : len(message.text) - len(closing)]

    def measure(self, message: Message, marked: bool) -> Callable[[str], int]:
        """Return what a piece of the message's text would cost."""
        count = self.books.counter.text_once
        if isinstance(message.content, str) and not marked and self.slot.frame is None:
            return count
        return lambda kept: sum(
            count(text) for text in _texts_of(self.cut_message(message, kept, marked))
        )

    def cut_message(self, message: Message, kept: str, marked: bool) -> Message:
        keep, (opening, closing) = self.slot.keep, self.slot.frame or ("", "")
        text = f"{opening}{kept}{closing}"
        if not marked:
            return _with_text(message, text, keep)
        line = self.marker_text(len(self.inner(message)) - len(kept))
        return _with_text(message, f"{line}\n{text}" if keep == "tail" else f"{text}\n{line}", keep)

    def set_text(self, unit: Unit, number: int, text: str) -> None:
        messages, costs = self.books.now(unit)
        message = messages[number]
        changed = _with_text(message, text, self.slot.keep)
        saved = self.text_tokens(message) - self.text_tokens(changed)
        if saved > 0 or (text != message.text and not text):
            self.books.cut(unit, number, changed, costs[number] - saved, self.over)

    def text_tokens(self, message: Message) -> int:
        return sum([self.books.counter.text(text) for text in _texts_of(message)])

    # Markers: a line that says what was left out.

    def make_room_for_marker(self) -> None:
        """Put the marker in front of the rest, making room for it; without room, leave it out."""
        books, slot = self.books, self.slot
        body, target = self.size, self.aim()
        joined = slot.group is not None and slot.group.join is not None
        if joined or (slot.made and body) or not books.is_cut(self.reading):
            return  # the marker is a line inside the text, or nothing is missing
        role: Role = role_of(slot.messages[0]) if slot.made else "system"
        with books.trial() as keep:
            for _ in range(_MARKER_ROUNDS):
                marker = Message(role, self.marker_text(self.characters_cut()))
                tokens = books.counter.message(marker)
                if self.size + tokens <= target:
                    books.mark(slot.index, marker, tokens)
                    keep()
                    return
                if tokens > target or not self.size:
                    return
                self._replace(target=target - tokens, taken=books.taken).body()
                if body and not self.size:
                    return  # a marker is not worth the last of the content

    def marker_text(self, characters: int) -> str:
        assert self.slot.marker is not None
        return write_line(self.slot, self.slot.marker, self.missing(characters))

    def missing(self, characters: int) -> Cut:
        """Sum up what is missing: whole messages, and `characters` of the messages that stay."""
        slot, reading = self.slot, self.reading
        gone = [index for indices, _ in self.given("dropped") for index in indices]
        ends = [*gone, reading.unread[0], reading.unread[-1]] if reading.beyond else gone
        at_first = at_of(slot.messages[min(ends)]) if ends else None
        at_last = at_of(slot.messages[max(ends)]) if ends else None
        if slot.made and gone:
            messages, _ = self.books.now(reading.units[0])
            characters = len(self.inner(self.original(messages[0])))
        return Cut(slot.name, reading.beyond + len(gone), characters, at_first, at_last)

    def characters_cut(self) -> int:
        return sum(
            len(as_message(self.slot.messages[index]).text) - len(message.text)
            for indices, messages in self.given("trimmed")
            for index, message in zip(indices, messages, strict=True)
        )

    def given(self, status: Status) -> list[tuple[tuple[int, ...], tuple[Message, ...]]]:
        """Return the units with this status, with the messages left of them."""
        verdicts = self.books.verdicts(self.reading)
        found = {first: each for first, each in verdicts.items() if each.status == status}
        units = self.reading.units if found else ()
        firsts = [unit.indices for unit in units if unit.indices[0] in found]
        return [(indices, found[indices[0]].messages) for indices in firsts]


def _victims(reading: Reading) -> Iterator[Unit]:
    """Yield the units of a slot in the order they go: the oldest first, system messages last."""
    for unit in reading.units:
        if not unit.system:
            yield unit
    for unit in reading.units:
        if unit.system:
            yield unit


def _texts_of(message: Message) -> list[str]:
    """Return the texts of a message as they are counted: each text part by itself."""
    content = message.content
    if isinstance(content, str):
        return [content]
    return [part.text for part in content or () if isinstance(part, Text)]


def _has_body(message: Message) -> bool:
    """Say whether anything but text and reasoning is in the message."""
    parts = message.content if isinstance(message.content, tuple) else ()
    return bool(message.attachments) or any(not isinstance(p, Text | Reasoning) for p in parts)


def _with_text(message: Message, text: str, keep: Keep) -> Message:
    """Return the message with a piece of its text in the place of its text; other parts stay."""
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
