"""The question: how much of the current input is never cut, and how a long input is cut.

An input keeps its beginning and its end; a line between them says how much is missing.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import dropwhile, takewhile

from muntin.core.checks import shown
from muntin.core.message import Message
from muntin.core.parts import Text
from muntin.core.planning.books import Books
from muntin.core.planning.cut import ends, longest
from muntin.core.planning.read import Reading, Unit
from muntin.core.planning.slot import INPUT_LEAST, Cut, Marker, Slot
from muntin.errors import InvalidType

# A text that gives way to another text of the same input keeps this many characters.
_STUB = 64


def least_asked(books: Books, reading: Reading) -> int:
    """Return how many tokens of the current input are never cut: 256, and the tokens of files."""
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


def questions(reading: Reading) -> list[Unit]:
    """Return the user's messages at the end of a list that holds the question."""
    if not reading.slot.asks:
        return []
    behind = dropwhile(lambda unit: unit.messages[0].role != "user", reversed(reading.units))
    return list(takewhile(lambda unit: unit.messages[0].role == "user", behind))


def least_question(books: Books, reading: Reading) -> int:
    """Return how many tokens of the question of a list are never cut."""
    found = questions(reading)
    if not found:
        return 0
    return least_asked(books, reading._replace(units=tuple(found)))


def cut_question(books: Books, reading: Reading, target: int, over: int | None) -> None:
    """Cut the question of a list, the longest text first, until the slot fits."""
    size = books.sizes[reading.slot.index]
    found = questions(reading)
    if found and size > target:
        least = least_question(books, reading)
        rest = size - sum([books.tokens(unit) for unit in found])
        over = size - target if over is None else over
        texts = [(unit, n, m) for unit in found for n, m in enumerate(unit.messages) if _text(m)]
        for text in sorted(texts, key=lambda each: -len(_text(each[2]))):
            _cut_text(books, reading, *text, max(target, rest + least), over, stub=True)


def ask_less(books: Books, reading: Reading, target: int, over: int) -> None:
    """Cut the current input in the middle until it fits.

    The longest text is cut, if that is enough. Otherwise messages go from the middle on, and the
    first and the last message are cut.
    """
    target = max(target, least_asked(books, reading))
    texts = [
        (unit, number, message)
        for unit in reading.units
        for number, message in enumerate(unit.messages)
        if _text(message)
    ]
    texts.sort(key=lambda each: -len(_text(each[2])))
    if texts and not _cut_text(books, reading, *texts[0], target, over):
        _leave_out(books, reading, target, over)
        for unit, number, message in texts:
            if books.tokens(unit) and not books.verdict(unit):
                _cut_text(books, reading, unit, number, message, target, over, stub=True)


def _cut_text(
    books: Books,
    reading: Reading,
    unit: Unit,
    number: int,
    message: Message,
    target: int,
    over: int,
    *,
    stub: bool = False,
) -> bool:
    """Cut one text so that the input fits; with `stub`, as far as allowed. Say whether it fits."""
    size = books.sizes[reading.slot.index]
    if size <= target:
        return True
    whole = books.counter.text(_text(message))
    base = unit.costs[number] - whole
    room = target - (size - books.now(unit)[1][number]) - base
    found = _shorter(books, reading.slot, message, room, whole, stub=stub)
    if found is not None and found[1] < whole:
        text, tokens = found
        books.cut(unit, number, _with_text(message, text), base + tokens, over)
    return books.sizes[reading.slot.index] <= target


def _leave_out(books: Books, reading: Reading, target: int, over: int) -> None:
    """Leave out messages from the middle of the input; one of them says how much is missing."""
    slot, inner = reading.slot, list(reading.units[1:-1])
    middle = len(inner) // 2
    order = sorted(range(len(inner)), key=lambda n: (abs(n - middle), n))
    if not inner or len(inner[middle].messages) > 1:
        return
    missing = 0
    for count, place in enumerate(order, 1):
        missing += sum(len(message.text) for message in inner[place].messages)
        if count > 1:
            books.drop(inner[place], over)
        first = inner[middle].messages[0]
        cut = Cut(slot.name, count, missing, first.at, first.at)
        line = f"[{missing:,} characters are left out here]"
        line = line if slot.marker is None else write_line(slot, slot.marker, cut)
        told = replace(first, content=line, attachments=())
        books.cut(inner[middle], 0, told, books.counter.message(told), over)
        if books.sizes[slot.index] <= target:
            return


def _shorter(
    books: Books, slot: Slot, message: Message, room: int, whole: int, *, stub: bool
) -> tuple[str, int] | None:
    """Return the longest form of a text that fits, and its tokens; with `stub`, at least a stub."""
    text = _text(message)

    def measure(kept: str) -> int:
        return books.counter.text_once(_shortened(slot, message, text, len(kept)))

    found = longest(text, whole, room, measure, "ends")
    if found is None and stub and len(text) > _STUB:
        found = text[:_STUB], measure(text[:_STUB])
    if found is None:
        return None
    return _shortened(slot, message, text, len(found[0])), found[1]


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
    """Return the line of a slot's marker about the cut; an error names the slot."""
    try:
        text: object = marker(cut)
    except Exception as error:
        error.add_note(f"raised by the marker of slot {slot.name!r}")
        raise
    if not isinstance(text, str):
        raise InvalidType(f"slot {slot.name!r}: marker must return a str, not {shown(text)}")
    return text


def _text(message: Message) -> str:
    """Return the text of a message that may be cut: the longest of several parts."""
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
