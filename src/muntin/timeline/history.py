"""History: a read-only look at the conversation before the current turn.

It selects messages; the engine counts and groups them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from muntin.core.checks import check_size, shown
from muntin.core.counting.counter import AttachmentTokens, Counter, TokenizerLike, file_hint
from muntin.core.forms import messages_from
from muntin.core.message import Input, Message, Role, opens_turn
from muntin.core.parts import File
from muntin.core.planning.slot import MessageLike, Slot
from muntin.core.planning.units import link, read_slot
from muntin.errors import InvalidInput, InvalidType
from muntin.settings import counter_for
from muntin.timeline.recall.excerpts import Recalled
from muntin.timeline.recall.lists import relevant


@dataclass(frozen=True, slots=True)
class Turns:
    """The last `count` turns: a user's request and all that followed it. No turns for 0 or less."""

    count: int

    def __post_init__(self) -> None:
        _check_int(self.count, "Turns")


@dataclass(frozen=True, slots=True)
class Tokens:
    """The newest whole turns that have at most `count` tokens together; always the newest one."""

    count: int

    def __post_init__(self) -> None:
        check_size(self.count, "Tokens")


def _check_int(value: object, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidType(f"{what} must be an int, not {shown(value)}")
    return value


_NO_LIST = (str, bytes, Message, Mapping)  # one message is not a list of messages


class History:
    """A snapshot of the messages before the current input, oldest first.

    Returned lists may be changed; the messages in them are frozen.
    """

    __slots__ = ("_counter", "_messages")

    def __init__(
        self,
        messages: Iterable[MessageLike] = (),
        *,
        tokenizer: TokenizerLike | None = None,
        attachment_tokens: AttachmentTokens | None = None,
        counter: Counter | None = None,
    ) -> None:
        if isinstance(messages, _NO_LIST) or not isinstance(messages, Iterable):
            raise InvalidType(f"history must be a list of messages, not {shown(messages)}")
        # Read at once: later changes of the caller's dicts are not seen here.
        given = messages_from(messages, where="history, message {}") if messages != () else ()
        self._messages = tuple(given)
        self._counter = counter or counter_for(None, tokenizer, attachment_tokens)

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[Message]:
        return iter(self._all())

    def __repr__(self) -> str:
        return f"<History messages={len(self)} tokenizer={self._counter.name!r}>"

    def last_user(self) -> Message | None:
        """Return the newest user message, or None."""
        return self._last("user")

    def last_assistant(self) -> Message | None:
        """Return the newest assistant message, or None."""
        return self._last("assistant")

    def _last(self, role: Role) -> Message | None:
        def newest(messages: Sequence[Message]) -> Message | None:
            return next((message for message in reversed(messages) if message.role == role), None)

        return newest(self._read_until(lambda messages: newest(messages) is not None))

    def range(self, from_end: int, to_end: int) -> list[Message]:
        """Return the messages between two distances from the end, oldest first.

        `range(n, 0)` is the latest n; `range(3, 1)` leaves out the newest and gives the two
        before it.
        """
        _check_int(from_end, "from_end")
        _check_int(to_end, "to_end")
        if not from_end > to_end >= 0:
            raise InvalidInput(
                f"range needs from_end > to_end >= 0, got from_end={from_end}, to_end={to_end}"
            )
        messages = self._read_until(lambda messages: len(messages) >= from_end)
        size = len(messages)
        return list(messages[max(0, size - from_end) : max(0, size - to_end)])

    def recent(self, n: int) -> list[Message]:
        """Return the latest `n` messages, oldest first.

        The slice may begin inside a tool group: the engine leaves results without a call out.
        """
        check_size(n, "n")
        messages = self._read_until(lambda messages: len(messages) >= n)
        return list(messages[max(0, len(messages) - n) :])

    def by_tokens(self, max_tokens: int) -> list[Message]:
        """Return the newest messages that have at most `max_tokens` together, oldest first.

        Stops at the first message, or tool group, that would not fit.
        """
        check_size(max_tokens, "max_tokens")
        messages = self._read_until(lambda messages: self._weigh(messages) > max_tokens)
        size = len(messages)
        past = Slot("history", 0, messages=messages)
        found = read_slot(past, max_tokens, self._counter, max_tokens, opening=False)
        link([found], self._counter)
        # For each message: its tokens, and where its group begins (-1: too far back).
        members = {
            index: (tokens, -1 if reason == "beyond_fit" else index)
            for index, reason, tokens in found.left_out
        }
        for unit in found.units:
            for index, message in zip(unit.indices, unit.messages, strict=True):
                members[index] = self._counter.message(message), unit.indices[0]
        total, start, group_start = 0, size, size
        for index in reversed(range(found.unread.stop, size)):
            tokens, first = members[index]
            total += tokens
            if total > max_tokens:
                break
            group_start = min(group_start, first)
            if group_start >= index:  # no group is split here
                start = index
        return list(messages[start:])

    def window(self, limit: Turns | Tokens) -> list[Message]:
        """Return the newest whole turns within `limit`, oldest first."""
        if not isinstance(limit, Turns | Tokens):
            raise InvalidType(f"a window must be Turns(n) or Tokens(n), not {shown(limit)}")
        if isinstance(limit, Turns):
            messages = self._read_until(lambda messages: len(list(_spans(messages))) > limit.count)
            chosen = list(islice(_spans(messages), max(0, limit.count)))
            return list(messages[chosen[-1][0] :]) if chosen else []
        messages = self._read_until(lambda messages: self._weigh(messages) > limit.count)
        total, start = 0, len(messages)
        for begin, end in _spans(messages):
            total += self._weigh(messages[begin:end])
            if total > limit.count and start < len(messages):
                break  # the newest turn stays even if it alone is too large
            start = begin
        return list(messages[start:])

    def relevant(
        self,
        query: str | Input,
        *,
        tokens: int,
        limit: int | None = None,
        times: Sequence[datetime | None] | None = None,
    ) -> Recalled:
        """Return the messages that bear on a question, as one text for a slot.

        It has at most `tokens` as a message, and at most `limit` excerpts. `times` are the times of
        the messages.
        """
        return relevant(self._messages, query, tokens, self._counter, limit=limit, times=times)

    def recent_text(self, n: int) -> str:
        """Return the latest `n` messages as plain text, one speaker a line.

        A file is a line `File: name` below its message.
        """
        lines: list[str] = []
        for message in self.recent(n):
            lines.append(f"{message.role.capitalize()}: {message.text}".rstrip(" "))
            names = [item.name for item in message.attachments]
            if isinstance(message.content, tuple):
                names += [p.name for p in message.content if isinstance(p, File) and p.name]
            lines += [file_hint(name) for name in names]
        return "\n".join(lines)

    def turns(self) -> Iterator[tuple[int, int]]:
        """Return (start, end) of each turn, the newest first.

        A turn begins at a user message that follows no other; messages before the first user
        message belong to its turn.
        """
        return _spans(self._all())

    def _all(self) -> Sequence[Message]:
        return self._read_until(lambda messages: False)

    def _read_until(self, enough: Callable[[Sequence[Message]], bool]) -> Sequence[Message]:
        """Return the newest messages, all of them or enough; here all are known."""
        return self._messages

    def _weigh(self, messages: Iterable[Message]) -> int:
        return sum(map(self._counter.message, messages))


def _spans(messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
    end = begin = len(messages)
    for index in reversed(range(len(messages))):
        if opens_turn(messages, index):
            if begin < end:
                yield begin, end
                end = begin
            begin = index
    if end:
        yield 0, end
