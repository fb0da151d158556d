"""The window as lines to look at: its messages in order, and between them the messages left out.

Owns where a left-out message stands and which part of a text was cut. Knows no HTML and no
server; the receipt, the notebook and the inspector all show these lines.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal, TypeAlias

from muntin.core.counting.counter import file_hint
from muntin.core.message import Message
from muntin.core.parts import File, Image, Other, Part, Reasoning, Text
from muntin.core.report import Status
from muntin.core.window import MessageOutcome, Window

# How many characters of one text are shown at most.
LONGEST = 20_000

State: TypeAlias = Status | Literal["added"]
# Statuses of a group that hold only for its messages that are really shorter.
_CUT = ("trimmed", "short", "stubbed")


@dataclass(frozen=True, slots=True)
class Line:
    """One line: a message of the window (`place`), a declared one (`outcome`, `number`), or both.

    `joined` are the texts of slots that were joined into the message.
    """

    place: int | None
    outcome: MessageOutcome | None = None
    number: int = 0
    joined: tuple[MessageOutcome, ...] = ()


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A stretch of a text: kept or `cut`; `hidden` characters are left out, at its `end`."""

    text: str
    cut: bool = False
    hidden: int = 0
    end: Literal["head", "tail"] = "tail"
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class DisplayedLine:
    """A line as a person sees it.

    `slot` is the index of the slot, None if several were joined. `calls` are names and arguments,
    `notes` name the other parts of the message (images, files, its reasoning).
    """

    place: int | None
    slot: int | None
    role: str
    state: State
    reason: str | None
    pieces: tuple[TextPiece, ...]
    calls: tuple[tuple[str, TextPiece], ...] = ()
    notes: tuple[tuple[str, TextPiece], ...] = ()
    name: str | None = field(default=None, kw_only=True)
    answers: str | None = field(default=None, kw_only=True)


def lines(window: Window) -> list[Line]:
    """Return the messages of a window in order, with left-out messages where they would stand."""
    if not window.fates:  # a pickled window has no fates
        return [Line(place) for place in range(len(window.messages))]
    free: defaultdict[int, deque[int]] = defaultdict(deque)
    for place, message in enumerate(window.messages):
        free[id(message)].append(place)
    joined = deque(place for place, slot in enumerate(window.origins) if slot is None)
    # By slot; the outcomes of joined and of interleaved slots are one group.
    groups: dict[object, list[MessageOutcome]] = {}
    for outcome in window.fates:
        group = outcome.slot.place.group
        is_apart = group is None or not (group.interleave or group.join is not None)
        groups.setdefault(outcome.slot.index if is_apart else group, []).append(outcome)
    result: list[Line] = []
    for outcomes in groups.values():
        group = outcomes[0].slot.place.group
        if group is None or group.join is None:
            result += _merge_left_out(outcomes, free)
        elif any(outcome.shown is not None for outcome in outcomes) and joined:
            result.append(Line(joined.popleft(), joined=tuple(outcomes)))
        else:
            result += [Line(None, outcome) for outcome in outcomes]
    claimed = {line.place for line in result}
    for place in range(len(window.messages)):
        if place not in claimed:  # a marker
            behind = (n for n, line in enumerate(result) if line.place and line.place > place)
            result.insert(next(behind, len(result)), Line(place))
    return result


def _merge_left_out(outcomes: Sequence[MessageOutcome], free: dict[int, deque[int]]) -> list[Line]:
    """Put the left-out messages of each slot before its next message that is shown."""
    keyed: list[tuple[float, int, Line]] = []
    for _, run in groupby(outcomes, key=lambda outcome: outcome.slot.index):
        waiting: list[Line] = []
        last = -1.0
        for outcome in run:
            # A declared list is not copied: it may have been emptied since.
            there = range(min(outcome.count, len(outcome.slot.messages) - outcome.first))
            places = free.get(id(outcome.shown)) if there and outcome.shown is not None else None
            if not places:
                waiting += [Line(None, outcome, number) for number in there]
                continue
            last = places.popleft()
            keyed += [(last, 0, line) for line in waiting]
            keyed.append((last, 1, Line(int(last), outcome)))
            waiting = []
        keyed += [(last + 0.5, 0, line) for line in waiting]
    keyed.sort(key=lambda item: item[:2])
    return [line for _, _, line in keyed]


def show(window: Window, line: Line, longest: int = LONGEST) -> DisplayedLine:
    """Return a line as it is shown, with no text longer than `longest`."""
    outcome = line.outcome
    visible = None if line.place is None else window.messages[line.place]
    declared = outcome.declared(line.number) if outcome is not None else visible
    message = visible or declared
    assert message is not None  # a line is a message of the window, or a declared one
    if line.joined:
        pieces: Iterable[TextPiece] = _join(line.joined, longest)
        state: State = "kept" if all(joined.shown for joined in line.joined) else "trimmed"
        reason = next((joined.reason for joined in line.joined if joined.reason), None)
    else:
        keep = "tail" if outcome is None else outcome.slot.trim.keep
        pieces = _cut(declared, visible, keep == "head", longest)
        cut = any(piece.cut for piece in pieces) and visible is not None
        state = "added" if outcome is None else "kept" if outcome.status in _CUT else outcome.status
        if outcome is None and not window.fates:
            state = "kept"
        if cut:
            state = outcome.status if outcome is not None and outcome.status in _CUT else "trimmed"
        reason = outcome.reason if outcome is not None and state != "kept" else None
    gone = line.place is None
    origin = outcome.slot.index if outcome is not None else None
    if origin is None and line.place is not None:
        origin = window.origins[line.place]
    return DisplayedLine(
        line.place,
        origin,
        message.role,
        state,
        reason,
        tuple(pieces),
        tuple((call.name, clip(call.arguments, longest, cut=gone)) for call in message.tool_calls),
        tuple(_notes(message, longest)),
        name=message.name and message.name[:longest],
        answers=message.tool_call_id and message.tool_call_id[:longest],
    )


def clip(text: str, longest: int = LONGEST, *, cut: bool = False, head: bool = True) -> TextPiece:
    """Return a text as a piece that shows its beginning, or its end, if it is too long."""
    hidden = max(0, len(text) - longest)
    if not hidden:
        return TextPiece(text, cut)
    if head:
        return TextPiece(text[:longest], cut, hidden, "tail")
    return TextPiece(text[hidden:], cut, hidden, "head")


def _cut(
    declared: Message | None, visible: Message | None, head: bool, longest: int
) -> list[TextPiece]:
    """Divide a text into kept and cut pieces."""
    whole = declared.text if declared is not None else ""
    text = visible.text if visible is not None else ""
    if visible is None:
        pieces = [clip(whole, longest, cut=True)]
    elif text == whole:
        pieces = [clip(text, longest)]
    elif head and whole.startswith(text):
        pieces = [clip(text, longest), clip(whole[len(text) :], longest, cut=True)]
    elif whole.endswith(text):
        gone = whole[: len(whole) - len(text)]
        pieces = [clip(gone, longest, cut=True, head=False), clip(text, longest)]
    else:
        pieces = [clip(whole, longest, cut=True), clip(text, longest)]
    return [piece for piece in pieces if piece.text]


def _join(outcomes: Sequence[MessageOutcome], longest: int) -> Iterator[TextPiece]:
    group = outcomes[0].slot.place.group
    separator = (group.join if group is not None else None) or ""
    has_begun = False
    for outcome in outcomes:
        if outcome.status == "empty":
            continue
        is_kept = outcome.shown is not None
        text = outcome.shown.text if outcome.shown is not None else outcome.declared().text
        if is_kept and has_begun:
            yield TextPiece(separator)
        has_begun = has_begun or is_kept
        piece = clip(text, longest, cut=not is_kept)
        yield TextPiece(piece.text, piece.cut, piece.hidden, piece.end, outcome.slot.index)


def _notes(message: Message, longest: int) -> Iterator[tuple[str, TextPiece]]:
    parts: Sequence[Part] = message.content if isinstance(message.content, tuple) else ()
    for part in parts:
        if isinstance(part, Reasoning):
            yield "reasoning", clip(part.text, longest)
        elif isinstance(part, Image):
            yield "image", clip(part.url, 200)
        elif isinstance(part, File):
            yield "file", clip(part.name or part.id or "inline", 200)
        elif isinstance(part, Other):
            yield "part", clip(str(part.data["type"]), 200)
        else:
            assert isinstance(part, Text)
    for attachment in message.attachments:
        yield "file", clip(file_hint(attachment.name), 200)
