"""The Fitter: a framework's list of messages, made to fit a budget by the Composer.

Owns the layout of such a list: opening system messages stay, the user's last message stays, and
history and run are one past with it inside. What is kept comes back as references.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from muntin.agent.tools import ToolLike
from muntin.composer import Composer
from muntin.core.budget import Budget, as_budget
from muntin.core.checks import check_size
from muntin.core.counting.counter import AttachmentTokens, TokenizerLike
from muntin.core.message import Message
from muntin.core.planning.frontier import Frontier
from muntin.core.planning.shapes import LADDER, RESULTS, Ladder, Results
from muntin.core.planning.slot import Stepped, Trimming
from muntin.core.planning.window import Window
from muntin.core.planning.wire import as_sent
from muntin.core.profile import OMITTED
from muntin.errors import BudgetExceeded, InvalidInput
from muntin.fitting.frontiers import Left, Table, read_previous
from muntin.fitting.pieces import Fitted, Piece, Placed
from muntin.fitting.talk import Talk


class Fitter:
    """Makes lists of messages fit; one for an app or a hook, safe to use from many threads.

    `budget` is what a request may have, tools and system text included; without one it is the
    model's context window. `margin` tokens of it are kept free, for what a framework adds behind
    the hook. With `strict` what cannot be read is an error. `trimming`, `results` and `ladder` are
    as in every door.
    """

    def __init__(
        self,
        budget: Budget | int | None = None,
        *,
        model: str | None = None,
        tokenizer: TokenizerLike | None = None,
        attachment_tokens: AttachmentTokens | None = None,
        trimming: Trimming | None = None,
        results: Results | None = RESULTS,
        ladder: Ladder | None = LADDER,
        margin: int = 0,
        strict: bool = False,
        store: Any = None,
    ) -> None:
        self.budget = None if budget is None else as_budget(budget)
        self.model = model
        self.strict = strict
        self._margin = check_size(margin, "margin")
        self._options: dict[str, Any] = {
            "tokenizer": tokenizer,
            "attachment_tokens": attachment_tokens,
            "trimming": Stepped() if trimming is None else trimming,
            "results": results,
            "ladder": ladder,
        }
        self._table = Table()

    def fit(
        self,
        pieces: Sequence[Piece],
        *,
        tools: Sequence[ToolLike] = (),
        system: Sequence[Message] = (),
        previous: Mapping[str, Any] | Frontier | None = None,
        conversation: str | None = None,
        model: str | None = None,
    ) -> Fitted:
        """Return what of a list is sent.

        `system` are messages that stand before all others and are sent elsewhere: they are counted
        and not placed. `previous` is the frontier of the request before this one. Without it the
        conversation is found again by its name, or by its opening and what was in it, as long as
        the process lives; an empty mapping begins anew.
        """
        composer = self._composer(model or self.model, tools)
        talk = Talk(pieces, composer.counter)
        key = conversation or Left.of(None, talk, talk.opening).opening
        before, fresh = self._before(previous, key, talk)
        window = _window(composer.after(None if before is None else before.frontier), talk, system)
        if window.over_budget:
            raise _too_small(window, composer)
        left = Left.of(Frontier(window.lazy_frontier.starts), talk, talk.opening)
        self._table.put(key, left, before)
        unread = self._unread(window, talk)
        return Fitted(_placed(window, composer, talk), window, left.to_dict(), unread, fresh)

    def _composer(self, model: str | None, tools: Sequence[ToolLike]) -> Composer:
        composer = Composer.of(model, budget=self.budget, **self._options).offering(tools)
        if not self._margin:
            return composer
        given = composer.budget
        kept = replace(given, reserved_tokens=given.reserved_tokens + self._margin)
        return replace(composer, budget=kept)

    def _before(
        self, previous: Mapping[str, Any] | Frontier | None, key: str, talk: Talk
    ) -> tuple[Left | None, str | None]:
        """Return what the request before this one left, or why it is not used."""
        if previous is None:
            return self._table.find(key, talk, talk.opening), None
        if isinstance(previous, Mapping) and not previous:
            return None, None
        left = read_previous(previous)
        why = None if isinstance(previous, Frontier) else left.why_not(talk, talk.opening)
        return (left, None) if why is None else (None, why)

    def _unread(self, window: Window, talk: Talk) -> tuple[str, ...]:
        """Name the pieces of the window that could not be read."""
        found = []
        for _, place in _shown(window, talk):
            piece = talk.pieces[place]
            if piece.opaque is not None:
                found.append(f"message {place}: {piece.opaque}")
        if found and self.strict:
            raise InvalidInput(
                f"{found[0]}; without strict=True it is carried as it is, and counted by its size"
            )
        return tuple(found)


# The slot of what stands before all pieces and is sent elsewhere.
_ELSEWHERE = "instructions"


def _window(composer: Composer, talk: Talk, system: Sequence[Message]) -> Window:
    """Plan the window: the opening, then one past with the question in it."""
    slots = composer.slots()
    end = len(talk)
    first, asked = talk.opening, talk.question
    history = first if asked is None else asked
    run = first if asked is None else asked + 1
    if system:
        slots.add(_ELSEWHERE, [*system], required=True)
    if first:
        slots.add("system", talk.part(0, first), required=True)
    trimming = composer.history_trimming
    slots.add("history", talk.part(first, history), trimming=trimming)
    if asked is not None:
        slots.add("input", talk.part(asked, run))
    if run < end:
        slots.add("run", talk.part(run, end), trimming=trimming, run=True)
    return slots.render()


def _shown(window: Window, talk: Talk) -> Iterator[tuple[Message, int]]:
    """Yield the messages of the window that are pieces, each with its place."""
    asked = talk.question
    run = talk.opening if asked is None else asked + 1
    begins = {"system": 0, "history": talk.opening, "input": asked, "run": run}
    for fate in window.fates:
        begin = begins.get(fate.slot.name)
        if fate.shown is not None and begin is not None:
            yield fate.shown, begin + fate.first


def _placed(window: Window, composer: Composer, talk: Talk) -> tuple[Placed, ...]:
    """Return the messages of the window in the order they are sent, with their references."""
    shown = list(_shown(window, talk))
    elsewhere = {fate.slot.index for fate in window.fates if fate.slot.name == _ELSEWHERE}
    places: list[int | None] = []
    ahead = iter([*shown, (None, None)])
    message, place = next(ahead)
    for each in window.messages:
        if each is message:
            places.append(place)
            message, place = next(ahead)
        else:
            places.append(None)
    placed: list[Placed] = []
    lead = composer.profile is not None and composer.profile.user_first
    for sent in as_sent(window.messages):
        if sent.place is not None and window.origins[sent.place] in elsewhere:
            continue
        if lead and sent.message.role != "system":
            if sent.message.role != "user":
                placed.append(Placed(None, OMITTED, OMITTED.text))
            lead = False
        number = None if sent.place is None else places[sent.place]
        placed.append(_place(sent.message, None if number is None else talk.pieces[number]))
    return tuple(placed)


def _place(message: Message, piece: Piece | None) -> Placed:
    if piece is None:
        return Placed(None, message, message.text)
    given = piece.message
    if given is None or (given is message and not piece.repaired):
        return Placed(piece.ref, message)
    text = message.text if piece.repaired or message.content != given.content else None
    were = {call.id: call.arguments for call in given.tool_calls}
    arguments = {
        call.id: call.arguments
        for call in message.tool_calls
        if piece.repaired or were.get(call.id) != call.arguments
    }
    return Placed(piece.ref, message, text, arguments)


def _too_small(window: Window, composer: Composer) -> BudgetExceeded:
    report = window.report
    return BudgetExceeded(window.tokens, report.budget, report)
