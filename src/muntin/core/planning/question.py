"""The question: what of the current input may never be cut, and how a long one is cut.

An input keeps its beginning and its end; a line between them says how much is missing.
"""

from __future__ import annotations

from dataclasses import replace

from muntin.core.message import Message
from muntin.core.parts import Text
from muntin.core.planning.books import Books
from muntin.core.planning.cut import ends, longest
from muntin.core.planning.read import Reading
from muntin.core.planning.slot import INPUT_LEAST, Cut, Marker, Slot
from muntin.errors import InvalidType

# Of a text that must give way to another of the same input, so many characters stay.
_STUB = 64


def least_asked(books: Books, reading: Reading) -> int:
    """Return what of the current input is never cut: 256 tokens, and files on top."""
    size = sum([books.tokens(unit) for unit in reading.units])
    index = reading.slot.index
    if size <= INPUT_LEAST or index in books.stuck:
        return size
    files = 0
    for unit in reading.units:
        for message, cost in zip(unit.messages, unit.costs, strict=True):
            if message.attachments or isinstance(message.content, tuple):
                files += cost - books.counter.text(_text(message)) - books.counter.overhead
    return min(size, INPUT_LEAST + files)


def ask_less(books: Books, reading: Reading, target: int, over: int) -> None:
    """Cut the texts of the current input in the middle, the longest first, until it fits."""
    target = max(target, least_asked(books, reading))
    texts = [
        (unit, number, message)
        for unit in reading.units
        for number, message in enumerate(unit.messages)
        if _text(message)
    ]
    texts.sort(key=lambda each: -len(_text(each[2])))
    for unit, number, message in texts:
        size = books.sizes[reading.slot.index]
        if size <= target:
            return
        count = books.counter.text_once
        text, slot = _text(message), reading.slot
        whole = books.counter.text(text)
        base = unit.costs[number] - whole
        room = target - (size - books.now(unit)[1][number]) - base

        def measure(kept: str, text: str = text, message: Message = message) -> int:
            return count(_shortened(slot, message, text, len(kept)))

        found = longest(text, whole, room, measure, "ends")
        if found is None and len(texts) > 1 and len(text) > _STUB:
            stub = text[:_STUB]
            found = stub, measure(stub)
        if found is not None and found[1] < whole:
            shorter = _shortened(slot, message, text, len(found[0]))
            books.cut(unit, number, _with_text(message, shorter), base + found[1], over)


def _shortened(slot: Slot, message: Message, text: str, length: int) -> str:
    """Return beginning and end of a text, and between them the line that says what is missing."""
    missing = len(text) - length
    head, tail = ends(text, length)
    if slot.marker is None:
        line = f"[{missing:,} characters of this message are left out here]"
    else:
        line = write_line(slot, slot.marker, Cut(slot.name, 0, missing, message.at, message.at))
    return f"{head}\n{line}\n{tail}"


def write_line(slot: Slot, marker: Marker, cut: Cut) -> str:
    """Return what a slot's marker says of what was cut; an error names the slot."""
    try:
        text: object = marker(cut)
    except Exception as error:
        error.add_note(f"raised by the marker of slot {slot.name!r}")
        raise
    if not isinstance(text, str):
        raise InvalidType(f"slot {slot.name!r}: marker must return a str, not {text!r}")
    return text


def _text(message: Message) -> str:
    """Return the text of a message that may be cut: of several parts the longest."""
    if isinstance(message.content, tuple):
        return max((p.text for p in message.content if isinstance(p, Text)), key=len, default="")
    return message.content or ""


def _with_text(message: Message, text: str) -> Message:
    if not isinstance(message.content, tuple):
        return replace(message, content=text)
    longest_text = _text(message)
    parts = list(message.content)
    place = next(n for n, p in enumerate(parts) if isinstance(p, Text) and p.text == longest_text)
    part = parts[place]
    assert isinstance(part, Text)
    parts[place] = replace(part, text=text)
    return replace(message, content=tuple(parts))
