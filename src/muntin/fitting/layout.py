"""Layout: a talk as slots of the Composer, and the window as references.

The opening system messages stay, the user's last message stays; history and run are one past with
that message inside. Nothing is trimmed here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from operator import is_

from muntin.composer import Composer
from muntin.core.caching.cleared import is_cleared
from muntin.core.caching.frontier import LazyFrontier
from muntin.core.caching.wire_order import as_sent
from muntin.core.compaction import may_come_first, stands_first
from muntin.core.message import Message
from muntin.core.planning.compact import Compactor
from muntin.core.planning.slots import Slots
from muntin.core.profile import OMITTED
from muntin.core.thoughts import count_thoughts, without_thoughts
from muntin.core.window import Breakpoint, Window
from muntin.errors import BudgetExceeded
from muntin.fitting.talk import LazyMessages
from muntin.timeline.receipts import plan_of
from muntin.wire.pieces import Piece, Placed

# The slot of the messages that stand before all pieces and are sent elsewhere.
_ELSEWHERE = "instructions"


def lay_out(
    composer: Composer,
    talk: LazyMessages,
    system: Sequence[Message],
    *,
    system_leaves: bool = False,
) -> Slots:
    """Return the slots of a talk; on request, later system messages leave with their turns."""
    slots = composer.slots()
    if system:
        slots.add(_ELSEWHERE, [*system], required=True)
    if talk.opening:
        slots.add("system", talk.part(0, talk.opening), required=True)
    trimming = composer.history_trimming
    slots.add("history", talk.part(talk.opening, talk.asked), trimming=trimming)
    if talk.question is not None:
        slots.add("input", talk.part(talk.asked, talk.run))
    if talk.run < len(talk):
        slots.add("run", talk.part(talk.run, len(talk)), trimming=trimming, run=True)
    if not system_leaves:
        return slots
    leaving = composer.slots()
    for slot in slots.declared:
        leaving.take(replace(slot, system_leaves=slot.name in ("history", "input", "run")))
    return leaving


def folded_system(talk: LazyMessages, places: Collection[int | None]) -> list[Message]:
    """Return the later system messages of a talk that have left with their turns, and still hold:
    neither cleared, nor told by the provider's summary."""
    shown = {place for place in places if place is not None}
    summary = next((place for place in sorted(shown) if stands_first(talk[place])), 0)
    later = [place for place in range(talk.opening, len(talk)) if talk.role(place) == "system"]
    gone = [talk[place] for place in later if place not in shown and place >= summary]
    return [message for message in gone if not is_cleared(message)]


def cut_results(composer: Composer, talk: Sequence[Message]) -> list[Message]:
    """Return messages with results of no more than their ceiling."""
    most, results = composer.largest_result, composer.results
    if most is None or results is None:
        return list(talk)
    compactor = Compactor(composer.counter, results=results)
    return [
        message if message.tool_call_id is None else compactor.result(message, most, results.keep)
        for message in talk
    ]


def lay_out_whole(
    composer: Composer, messages: Sequence[Message], system: Sequence[Message]
) -> Slots:
    """Return the slots of messages that are all sent."""
    slots = composer.slots()
    if system:
        slots.add(_ELSEWHERE, [*system], required=True)
    slots.add("history", list(messages), required=True)
    return slots


def refuse_too_large(window: Window) -> None:
    """Refuse a window that is over budget, saying what could not be left out."""
    if not window.over_budget:
        return
    report = window.report
    sizes = {"the tools": report.tools_tokens}
    for slot in report.slots:
        name = _NAMES.get(slot.name, slot.name)
        sizes[f"{name} ({slot.detail})" if slot.detail else name] = slot.tokens_kept
    parts = ", ".join(f"{name} {size:,}" for name, size in sizes.items() if size)
    why = (
        f"a request of {report.budget:,} tokens has no room for what must stay: it needs "
        f"{window.tokens:,} ({parts}). Raise the budget, or shorten these."
    )
    raise BudgetExceeded(window.tokens, report.budget, report, why)


_NAMES = {
    _ELSEWHERE: "the system text",
    "system": "the system messages",
    "history": "the history",
    "input": "the user's last message",
    "run": "the newest calls and results",
}


def shown_places(window: Window, talk: LazyMessages) -> list[int | None]:
    """Return for each message of the window the place of its piece, None if it has none."""
    begins = {"system": 0, "history": talk.opening, "input": talk.asked, "run": talk.run}
    places: list[int | None] = []
    for plan in plan_of(window).slots:
        begin = begins.get(plan.slot.name)
        for index, _ in plan.entries():
            places.append(None if begin is None or index is None else begin + index)
    return places


def place(
    window: Window,
    composer: Composer,
    talk: LazyMessages,
    places: Sequence[int | None],
    elsewhere: int,
) -> tuple[tuple[Placed, ...], Breakpoint | None]:
    """Return the messages that are sent, in order, and the breakpoint behind the first `elsewhere`
    messages, which are sent elsewhere."""
    marks: dict[int | None, Breakpoint] = {point.after - 1: point for point in window.breakpoints}
    placed: list[Placed] = []
    pieces = talk.pieces
    lead = composer.profile is not None and composer.profile.user_first
    for at, message in _in_order(window):
        if at is not None and at < elsewhere:
            continue
        if lead and message.role != "system":
            if not may_come_first(message):
                placed.append(Placed(None, OMITTED, OMITTED.text))
            lead = False
        number = None if at is None else places[at]
        piece = None if number is None else pieces[number]
        placed.append(_place(message, piece, marks.get(at) if marks else None))
    return tuple(placed), marks.get(elsewhere - 1)


def place_whole(talk: LazyMessages, messages: Sequence[Message]) -> tuple[Placed, ...]:
    """Return all messages of a talk, as they are now."""
    pieces = zip(messages, talk.pieces, strict=True)
    return tuple([_place(message, piece, None) for message, piece in pieces])


def _in_order(window: Window) -> Iterable[tuple[int | None, Message]]:
    """Return the messages in the order on the wire, each with its place in the window."""
    messages, frontier = window.messages, window.lazy_frontier
    sent = frontier.messages if isinstance(frontier, LazyFrontier) else ()
    if len(sent) == len(messages) and all(map(is_, sent, messages)):
        return enumerate(messages)  # as in most windows: nothing moves, nothing is added
    return [(piece.place, piece.message) for piece in as_sent(messages)]


def _place(message: Message, piece: Piece | None, mark: Breakpoint | None) -> Placed:
    if piece is None:
        return Placed(None, message, message.text, breakpoint=mark)
    original = piece.message
    if original is None or (original is message and not piece.repaired):
        return Placed(piece.ref, message, breakpoint=mark)
    is_bare = count_thoughts(original) > count_thoughts(message)
    whole = without_thoughts(original) if is_bare else original
    same = message.content == whole.content and message.attachments == whole.attachments
    were = {call.id: call.arguments for call in original.tool_calls}
    arguments = {
        call.id: call.arguments
        for call in message.tool_calls
        if piece.repaired or were.get(call.id) != call.arguments
    }
    text = None if same and not piece.repaired else message.text
    return Placed(piece.ref, message, text, arguments, mark, is_bare)
