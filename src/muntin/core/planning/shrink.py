"""Shrinking: what a slot shows of its units in a given room.

Pure functions: units and a room go in, what is shown comes out. Owns how messages are dropped,
texts and the input are cut, and the lines that say so. Which slot has how much room is decided in
`planner`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile

from muntin.core.checks import shown as quote
from muntin.core.counting.counter import Counter
from muntin.core.cutting import Keep, cut_with_line, longest, piece
from muntin.core.message import Message, Role, at_of, role_of
from muntin.core.parts import Part, Reasoning, Text
from muntin.core.planning.compact import CUT, LEAST, SHORT, STUB
from muntin.core.planning.levels import (
    Form,
    Levels,
    SlotView,
    end_of,
    lower,
    show_at,
    show_whole,
    sizes_at,
)
from muntin.core.planning.slot import INPUT_LEAST, Cut, Marker, Slot
from muntin.core.planning.units import Reading, Unit
from muntin.errors import InvalidType


def shrink(reading: Reading, room: int, floor: int, counter: Counter, at: Levels) -> SlotView:
    """Return what a slot shows in a room under `Exact()`: results are cut, then made compact, then
    the oldest messages leave; or characters are cut; or all leaves. Nothing is shortened that shows
    no more messages for it. `at` are levels reached already. Below the floor a text is cut rather
    than dropped."""
    slot, units = reading.slot, reading.units
    view = show_at(units, at)
    if view.tokens <= room and not is_missing(reading, view):
        return view
    if slot.trim.behavior == "slot" and view.tokens > room:
        forms = [form for form in view.forms if form.unit.is_protected or form.unit.never_leaves]
        view = SlotView(forms, sum([form.tokens for form in forms]))
        return with_marker(reading, view, room, counter)
    remaining_view = _with_oldest_gone(reading, view, room, floor, counter)
    if slot.trim.behavior == "message" and view.tokens > room:
        levels, _ = compact(units, at, room, room, _newest_groups(units))
        if levels != at:
            shorter = _with_oldest_gone(reading, show_at(units, levels), room, floor, counter)
            return shorter if len(shorter.forms) > len(remaining_view.forms) else remaining_view
    return remaining_view


def _with_oldest_gone(
    reading: Reading, view: SlotView, room: int, floor: int, counter: Counter
) -> SlotView:
    """Drop units from the oldest on, and say so in the slot's marker, if it has one."""
    slot = reading.slot
    reserve = 0 if slot.kind == "text" else marker_tokens(slot, counter)
    if reserve:
        inner = without_oldest(reading, view, room - reserve, floor, counter)
        if inner.forms:
            return with_marker(reading, inner, room, counter)
    rest = without_oldest(reading, view, room, floor, counter)
    return with_marker(reading, rest, room, counter) if slot.kind == "text" else rest


def _newest_groups(units: Sequence[Unit]) -> int:
    """Return how many of the newest calls stay full: those of a turn that has no answer yet."""
    ladder = units[-1].compactor.ladder if units and units[-1].is_group else None
    if ladder is None:
        return 0
    since = takewhile(lambda unit: unit.role != "user", reversed(units))
    return min(ladder.keep_groups, sum(unit.is_group for unit in since))


def compact(
    units: Sequence[Unit], levels: Levels, room: int, low: int, newest: int = 0, floor: int = 0
) -> tuple[Levels, bool]:
    """Cut large results and texts; if that is not enough, make results short, then stubs, until
    `low` tokens are left. The `newest` calls stay full, and nothing crosses the floor. Return the
    levels, and whether that was enough."""
    if not units:
        return levels, True
    sizes = sizes_at(units, levels)
    # The units of a history stand before those of the run.
    ends = units[0].compactor, units[-1].compactor
    large = min(min(end.largest_result, end.window // 2) for end in ends)
    may_cut = max(sizes) > large or any(unit.repeats for unit in units)
    if sum(sizes) > room and may_cut:
        cut = levels.raised(CUT, end_of(units, len(units) - 1))
        after = sizes_at(units, cut)
        if floor <= sum(after) < sum(sizes):
            levels, sizes = cut, after
    if sum(sizes) <= room:
        return levels, True
    groups = [n for n, unit in enumerate(units) if unit.is_group and not unit.is_protected]
    older = groups[: len(groups) - newest] if newest else groups
    for level in (SHORT, STUB):
        able = [place for place in older if units[place].compactor.deepest >= level]
        if not able:
            continue
        batches = [[place] for place in able]
        levels = lower(units, levels, level, batches, low, room, floor, sizes)
        # One that would cross the low mark stays as it is: then that is enough.
        stays = levels.of(units[able[-1]]) < level
        if stays and sum(sizes) <= (low + room) // 2:
            return levels, True
    return levels, False


def without_oldest(
    reading: Reading,
    view: SlotView,
    room: int,
    floor: int,
    counter: Counter,
    order: Sequence[Unit] | None = None,
) -> SlotView:
    """Drop units from the oldest on, or in the given order, system messages last, until the rest
    fits. The text of a unit is cut instead by characters, or if the slot would fall below its
    floor."""
    slot, size = reading.slot, view.tokens
    if size <= room:
        return view
    by_character = slot.trim.behavior == "char"
    forms: list[Form | None] = [*view.forms]
    if order is None:
        places = [
            place
            for place, form in enumerate(view.forms)
            if not (form.unit.is_protected or form.unit.never_leaves)
        ]
    else:
        by_unit = {id(form.unit): place for place, form in enumerate(view.forms)}
        places = [by_unit[id(unit)] for unit in order]
    if by_character and slot.trim.keep == "head":
        places.reverse()
    system = [place for place in places if view.forms[place].unit.is_system]
    rest = [place for place in places if place not in system] if system else places
    for place in (*rest, *system):
        if size <= room:
            break
        form = view.forms[place]
        size -= form.tokens
        forms[place] = None
        if by_character or size < floor:
            short = forms[place] = cut_unit(reading, form, room - size, counter)
            size += short.tokens if short else 0
    return replace(view, forms=[form for form in forms if form is not None], tokens=size)


def cut_unit(reading: Reading, form: Form, room: int, counter: Counter) -> Form | None:
    """Cut the text of a single message; None if nothing of it would stay."""
    unit, slot = form.unit, reading.slot
    if len(unit.messages) != 1 or unit.messages[0].tool_calls:
        return None
    message, tokens = unit.messages[0], unit.tokens
    whole = _text_tokens(message, counter)
    base = tokens - whole
    opening, closing = slot.trim.frame or ("", "")
    inner = message.text[len(opening) : len(message.text) - len(closing)]

    def cut(inner_text: str, marked: bool) -> Message:
        text = f"{opening}{inner_text}{closing}"
        if marked:
            line = write_line(slot, Cut(slot.name, 0, len(inner) - len(inner_text), None, None))
            text = f"{line}\n{text}" if slot.trim.keep == "tail" else f"{text}\n{line}"
        return with_text(message, text, slot.trim.keep)

    for marked in (True, False) if slot.trim.marker and slot.kind == "text" else (False,):

        def measure(inner_text: str, marked: bool = marked) -> int:
            return _text_tokens(cut(inner_text, marked), counter, once=True)

        best = longest(inner, whole, room - base, measure, slot.trim.keep)
        if best is not None:
            return Form(unit, (cut(best[0], marked),), base + best[1], "trimmed")
    if _has_body(message) and base <= room:
        return Form(unit, (with_text(message, "", slot.trim.keep),), base, "trimmed")
    return None


def is_missing(reading: Reading, view: SlotView) -> bool:
    """Say whether a slot has a marker and something of it is missing."""
    if reading.slot.trim.marker is None:
        return False
    return bool(reading.beyond) or len(view.forms) < len(reading.units)


def with_marker(reading: Reading, view: SlotView, room: int, counter: Counter) -> SlotView:
    """Put a line in front that says what is missing, if it fits beside what is shown."""
    slot = reading.slot
    if not is_missing(reading, view) or not (view.forms or slot.kind == "text"):
        return view
    stays = {id(form.unit) for form in view.forms}
    gone = [index for unit in reading.units if id(unit) not in stays for index in unit.indices]
    ends = [*gone, reading.unread[0], reading.unread[-1]] if reading.beyond else gone
    first, last = (at_of(slot.messages[place(ends)]) for place in (min, max))
    characters = 0
    if slot.kind == "text":
        opening, closing = slot.trim.frame or ("", "")
        characters = len(reading.units[0].messages[0].text) - len(opening) - len(closing)
    cut = Cut(slot.name, reading.beyond + len(gone), characters, first, last)
    role: Role = role_of(slot.messages[0]) if slot.kind == "text" else "system"
    marker = Message(role, write_line(slot, cut))
    tokens = counter.message(marker) - (counter.overhead if slot.is_joined else 0)
    if view.tokens + tokens > room or slot.is_joined:
        return view
    return replace(view, front=(*view.front, marker), tokens=view.tokens + tokens)


def marker_tokens(slot: Slot, counter: Counter) -> int:
    """Return the tokens of the longest line that a slot's marker may need."""
    if slot.trim.marker is None or not slot.messages:
        return 0
    first, last = at_of(slot.messages[0]), at_of(slot.messages[-1])
    line = write_line(slot, Cut(slot.name, len(slot.messages), 0, first, last))
    return counter.message(Message("system", line))


def write_line(slot: Slot, cut: Cut) -> str:
    """Return the line of a slot's marker; an error names the slot."""
    marker: Marker | None = slot.trim.marker
    assert marker is not None
    try:
        text: object = marker(cut)
    except Exception as error:
        error.add_note(f"raised by the marker of slot {slot.name!r}")
        raise
    if not isinstance(text, str):
        raise InvalidType(f"slot {slot.name!r}: marker must return a str, not {quote(text)}")
    return text


def least_input(reading: Reading, counter: Counter) -> int:
    """Return how many tokens of an input are never cut: 256, and what is no text of its first and
    its last message."""
    if reading.tokens <= INPUT_LEAST:
        return reading.tokens
    ends = reading.units[:: max(1, len(reading.units) - 1)]
    rest = sum([unit.tokens - _longest_tokens(unit, counter) for unit in ends])
    return min(reading.tokens, INPUT_LEAST + rest)


def shrink_input(reading: Reading, limit: int, counter: Counter) -> SlotView:
    """Cut the longest message of the input in its middle until the input fits. If that is not
    enough, messages leave from the middle on, and the first and then the last message are cut."""
    view = show_whole(reading.units)
    limit = max(limit, least_input(reading, counter))
    if view.tokens <= limit:
        return view
    longest = max(view.forms, key=lambda form: _longest_tokens(form.unit, counter))
    cut = _cut_middle(reading, view, longest, limit, counter)
    if cut.tokens <= limit or len(view.forms) == 1:
        return cut
    view = _without_middle(reading, view, limit, counter)
    first, last = view.forms[0], view.forms[-1]
    least = view.tokens - _longest_tokens(first.unit, counter) + LEAST
    view = _cut_middle(reading, view, first, max(limit, least), counter)
    return _cut_middle(reading, view, last, limit, counter)


def _cut_middle(
    reading: Reading, view: SlotView, form: Form, limit: int, counter: Counter
) -> SlotView:
    """Cut the longest text of one message of the input in its middle until all of it fits."""
    if view.tokens <= limit:
        return view
    slot, unit = reading.slot, form.unit
    number = max(range(len(unit.messages)), key=lambda n: len(_longest_text(unit.messages[n])))
    message, size = unit.messages[number], _longest_tokens(unit, counter)
    text = _longest_text(message)

    def line(inner_text: str) -> str:
        missing = len(text) - len(inner_text)
        if slot.trim.marker is None:
            return f"[{missing:,} characters of this message are left out here]"
        return write_line(slot, Cut(slot.name, 0, missing, message.at, message.at))

    most = limit - (view.tokens - size)
    cut, tokens = cut_with_line(text, size, most, counter.text_once, line)
    if tokens >= size:
        return view
    messages = list(unit.messages)
    messages[number] = _replace_text(message, text, cut)
    after = Form(unit, tuple(messages), unit.tokens - size + tokens, "trimmed")
    forms = [after if other is form else other for other in view.forms]
    return replace(view, forms=forms, tokens=view.tokens - size + tokens)


def _without_middle(reading: Reading, view: SlotView, limit: int, counter: Counter) -> SlotView:
    """Leave out messages of the input from its middle on; one of them says how many."""
    slot, forms = reading.slot, view.forms
    middle = len(forms) // 2
    inner = [n for n in range(1, len(forms) - 1) if len(forms[n].messages) == 1]
    inner.sort(key=lambda n: (abs(n - middle), n))
    size = characters = 0
    for count, place in enumerate(inner, 1):
        size += forms[place].tokens
        characters += len(forms[place].messages[0].text)
        note = forms[inner[0]].messages[0]
        line = f"[{count:,} message{'s are' if count > 1 else ' is'} left out here]"
        if slot.trim.marker is not None:
            line = write_line(slot, Cut(slot.name, count, characters, note.at, note.at))
        note = replace(note, content=line, attachments=())
        tokens = view.tokens - size + counter.message(note)
        if tokens <= limit or count == len(inner):
            after = Form(forms[inner[0]].unit, (note,), counter.message(note), "trimmed")
            by_place = {n: form for n, form in enumerate(forms) if n not in inner[1:count]}
            return replace(view, forms=[*(by_place | {inner[0]: after}).values()], tokens=tokens)
    return view


def _longest_text(message: Message) -> str:
    """Return the text of a message that may be cut: the longest of several parts."""
    if isinstance(message.content, tuple):
        return max((p.text for p in message.content if isinstance(p, Text)), key=len, default="")
    return message.content or ""


def _longest_tokens(unit: Unit, counter: Counter) -> int:
    return counter.text(max((_longest_text(message) for message in unit.messages), key=len))


def _replace_text(message: Message, text: str, by: str) -> Message:
    if not isinstance(message.content, tuple):
        return replace(message, content=by)
    parts = [
        replace(part, text=by) if isinstance(part, Text) and part.text == text else part
        for part in message.content
    ]
    return replace(message, content=tuple(parts))


def _text_tokens(message: Message, counter: Counter, once: bool = False) -> int:
    """Count the texts of a message: each text part by itself."""
    count: Callable[[str], int] = counter.text_once if once else counter.text
    content = message.content
    if isinstance(content, str):
        return count(content)
    return sum([count(part.text) for part in content or () if isinstance(part, Text)])


def _has_body(message: Message) -> bool:
    """Say whether anything but text and reasoning is in the message."""
    parts = message.content if isinstance(message.content, tuple) else ()
    return bool(message.attachments) or any(not isinstance(p, Text | Reasoning) for p in parts)


def with_text(message: Message, text: str, keep: Keep) -> Message:
    """Return the message with a piece of its text in the place of its text; other parts stay."""
    if not isinstance(message.content, tuple):
        return replace(message, content=text)
    remaining = len(text)
    parts: list[Part] = []
    for part in message.content if keep == "head" else reversed(message.content):
        if not isinstance(part, Text):
            parts.append(part)
        elif remaining:
            size = min(remaining, len(part.text))
            parts.append(replace(part, text=piece(part.text, size, keep)))
            remaining -= size
    return replace(message, content=tuple(parts if keep == "head" else reversed(parts)))
