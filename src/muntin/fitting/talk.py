"""A talk: the pieces of one request as messages, and where its parts begin.

Owns which messages of a framework's list are the opening, the history, the question and the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from muntin.core.caching.cleared import is_cleared
from muntin.core.checks import compact_json
from muntin.core.compaction import newest_compaction
from muntin.core.counting.counter import Counter
from muntin.core.digests import digest
from muntin.core.message import Message, Role, answered, counted
from muntin.core.parts import Other
from muntin.core.profile import Profile
from muntin.core.standing import standing_places
from muntin.core.thoughts import count_thoughts
from muntin.core.usage import AnswerTokens, Usage
from muntin.core.window import Window
from muntin.fitting.frontiers import ANSWERS, KnownAnswer, RequestTrace, digests_of_beginnings
from muntin.timeline.receipts import plan_of
from muntin.wire.pieces import Piece, Pieces
from muntin.wire.reply import Reply
from muntin.wire.requests import ASKS
from muntin.wire.responses import TRIGGER, is_trigger

# So many of the newest messages are searched for thoughts.
_NEWEST = 1_000
# The answers among so many of the newest messages are looked at.
_SEARCHED = 400
# If nothing is known of so many of the newest answers, nothing is known of the others.
_UNREPORTED = 4
_NOTHING = AnswerTokens(0)


class LazyMessages(Sequence[Message]):
    """The messages of a list of pieces, each read when it is first needed.

    `opening` is how many system messages stand in front, `question` the place of the user's last
    message. The history ends there, at `asked`, and the run begins behind it; without a question
    all messages behind the opening are the run.
    """

    def __init__(self, pieces: Sequence[Piece], counter: Counter) -> None:
        self.pieces = pieces
        self._counter = counter
        self._known: dict[int, Message] = {}
        self._newest = -1
        # Why messages could not be read, by their places.
        self.opaque: dict[int, str] = {}
        # All messages, if the pieces are read already.
        self._all: list[Message] | None = None
        if pieces.__class__ is list:
            # Most pieces are plain: a message, with nothing else.
            self._all = [
                message
                if message is not None and opaque is None and tokens is None
                else self._look(number)
                for number, (message, _, opaque, tokens, _, _) in enumerate(pieces)
            ]
        # What was reported of the newest answers, by their places, the newest first.
        self._answers: dict[int, KnownAnswer] = {}
        self.opening = self._opening()
        self._newest = self._newest_of_user()
        if self._all is not None:
            self._all = [self._uncounted(n, message) for n, message in enumerate(self._all)]
        self._known = {n: self._uncounted(n, message) for n, message in self._known.items()}
        self.question = self._question()
        self.asked = self.opening if self.question is None else self.question
        self.run = self.opening if self.question is None else self.question + 1

    def __len__(self) -> int:
        return len(self.pieces)

    def __getitem__(self, index: Any) -> Any:
        if index.__class__ is slice:
            return [self[place] for place in range(*index.indices(len(self)))]
        if self._all is not None:
            return self._all[index]
        message = self._known.get(index)
        if message is None:
            message = self._known[index] = self._uncounted(index, self._look(index))
        return message

    @property
    def passes(self) -> str | None:
        """Why the list is sent unchanged: it asks its provider to compact it; None if not."""
        content = self[len(self) - 1].content if len(self) else None
        content = content if isinstance(content, tuple) else ()
        parts = [part.data for part in content if isinstance(part, Other)]
        return ASKS.format(TRIGGER) if any(map(is_trigger, parts)) else None

    @property
    def past(self) -> Sequence[Message]:
        """All messages behind the opening."""
        return self.part(self.opening, len(self))

    @property
    def first_digest(self) -> str:
        """The digest of the first message behind the opening; it identifies the conversation."""
        return digest(self[self.opening]) if self.opening < len(self) else ""

    @cached_property
    def pasts(self) -> Sequence[str]:
        """The digests of the beginnings of the past, from none of its messages to all."""
        return digests_of_beginnings(self.past)

    def enter_answers(self, before: RequestTrace, entered: Usage | Reply | None) -> Usage | None:
        """Take over what was reported of answers: their items may say it, the request before knows
        the older ones, and the newest one may be `entered`. Return what was reported of the newest
        one, if it came after that request."""
        usage = entered.usage if isinstance(entered, Reply) else entered
        by_digest = {answer.digest: answer for answer in before.answers}
        newest, is_first, looked_at = None, True, 0
        behind = self.opening + before.count
        end = behind if behind <= len(self) else 0
        for place in range(len(self) - 1, max(self.opening, len(self) - _SEARCHED) - 1, -1):
            if self.role(place) != "assistant":
                continue
            message, reported = self[place], self.pieces[place].usage
            if is_first:
                is_first = False
                newest = (usage or reported) if place >= end else None
                if isinstance(entered, Reply) and not _is_same(entered.message, message):
                    usage = None  # the caller has put another answer into the list
                reported = usage or reported
            tokens, in_run = None, place >= self.run
            if reported is not None:
                tokens = reported.answer(in_run=in_run)
            elif by_digest:
                match = by_digest.get(KnownAnswer.of(message, _NOTHING).digest)
                tokens = match and AnswerTokens(match.output, match.reasoning, in_run)
            if tokens is None or not tokens.output:
                looked_at += 1
                if looked_at >= _UNREPORTED and not by_digest and not self._answers:
                    break  # nothing was reported of this list: older items are not read
                continue
            self._set(place, answered(message, tokens))
            if len(self._answers) < ANSWERS:
                self._answers[place] = KnownAnswer.of(message, tokens)
        return newest

    def _set(self, place: int, message: Message) -> None:
        if self._all is not None:
            self._all[place] = message
        else:
            self._known[place] = message

    def part(self, first: int, end: int) -> Sequence[Message]:
        """Return the messages from `first` to `end`."""
        return MessageSlice(self, first, end) if self._all is None else self._all[first:end]

    def trace(self, window: Window, places: Sequence[int | None]) -> RequestTrace:
        """Return what a request with these messages leaves to the next; `places` are those of the
        window's messages in the list."""
        starts = window.lazy_frontier.starts
        trace = RequestTrace.of(starts[0] if starts else None, self.past, self.first_digest)
        answers, counter = dict(self._answers), plan_of(window).declared.counter
        for place, message in zip(places, window.messages, strict=False) if answers else ():
            if place in answers and message.answer_tokens is not None:
                size, plain = counter.size((message,), 0, False), counter.plain(message)
                answers[place] = answers[place]._replace(reported=size.answers, counted=plain)
        known = tuple(reversed(answers.values()))
        return replace(trace, counted=window.counted, answers=known)

    def newest_compaction(self, profile: Profile | None) -> int | None:
        """Return the place of the newest summary of the provider, without reading the list."""
        return newest_compaction(self.pieces if self._all is None else self._all, profile)

    def standing_places(self) -> tuple[int, ...]:
        """Return the places of the messages with a standing effect."""
        if self._all is not None:
            return standing_places(self._all)
        return standing_places(self[:]) if getattr(self.pieces, "has_standing", False) else ()

    def role(self, index: int) -> Role:
        """Return the role of a message, without reading the message if possible."""
        pieces = self.pieces
        role = pieces.role(index) if isinstance(pieces, Pieces) else None
        return role or self[index].role

    def _opening(self) -> int:
        count = 0
        while count < len(self) and self.role(count) == "system":
            count += 1
        return count

    def _newest_of_user(self) -> int:
        """Return the place of the newest message of the user or of a tool."""
        places = range(len(self) - 1, self.opening - 1, -1)
        return next((place for place in places if self.role(place) in ("user", "tool")), -1)

    def _uncounted(self, index: int, message: Message) -> Message:
        """Return a message; a text for one turn that is over counts nothing."""
        if index > self._newest or message.extra is None or not is_cleared(message):
            return message
        return counted(replace(message), self._counter.key(message) or "", 0)

    def _question(self) -> int | None:
        for place in range(len(self) - 1, self.opening - 1, -1):
            if self.role(place) == "user":
                return place
        return None

    def _look(self, index: int) -> Message:
        """Return the message of a piece."""
        piece = self.pieces[index]
        message = piece.message
        if piece.opaque is not None or message is None:
            self.opaque[index] = piece.opaque or "it was not read"
        if message is None:
            # Not a text that could be cut: the item is sent unchanged, or not at all.
            message = Message("user", (Other({"type": "unread", "value": _text(piece.ref)}),))
        if piece.tokens is not None:
            counted(message, self._counter.key(message), piece.tokens)  # type: ignore[arg-type]
        return message


class MessageSlice(Sequence[Message]):
    """Consecutive messages of a talk."""

    def __init__(self, talk: LazyMessages, first: int, end: int) -> None:
        self._talk, self._first, self._size = talk, first, end - first

    def __len__(self) -> int:
        return self._size

    def standing_places(self) -> tuple[int, ...]:
        """Return the places of the messages with a standing effect."""
        first, end = self._first, self._first + self._size
        return tuple([n - first for n in self._talk.standing_places() if first <= n < end])

    def newest_compaction(self, profile: Profile | None) -> int | None:
        """Return the place of the newest summary of the provider, without reading the messages."""
        place = self._talk.newest_compaction(profile)
        is_inside = place is not None and self._first <= place < self._first + self._size
        return place - self._first if is_inside else None  # type: ignore[operator]

    def __getitem__(self, index: Any) -> Any:
        size = self._size
        if index.__class__ is slice:
            first, talk = self._first, self._talk
            return [talk[first + place] for place in range(*index.indices(size))]
        if not -size <= index < size:
            raise IndexError(index)
        return self._talk[self._first + index % size]


def may_be_bound(talk: LazyMessages) -> bool:
    """Say whether a talk may be with a model whose thoughts are bound: its answers hold thoughts of
    Claude's, or there is no answer yet."""
    places = range(len(talk) - 1, talk.opening - 1, -1)[:_NEWEST]
    answers = [place for place in places if talk.role(place) == "assistant"]
    return not answers or any(count_thoughts(talk[place]) for place in answers)


def _is_same(answer: Message, message: Message) -> bool:
    """Say whether a message is an answer, as a client sends it back."""
    calls = [[(call.id, call.name) for call in each.tool_calls] for each in (answer, message)]
    return calls[0] == calls[1] and answer.text.strip() == message.text.strip()


def _text(value: Any) -> str:
    """Return roughly the text of an item as it is sent."""
    try:
        return compact_json(value)
    except (TypeError, ValueError, RecursionError):
        return repr(value)
