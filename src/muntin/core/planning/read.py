"""Reading a slot: its newest messages, counted, in atomic groups, as far as any could fit.

Owns what belongs together (a call and its results, reasoning and its message) and how far beyond
the fit to look. It does not decide what stays; the readings it returns are never changed.
"""

from __future__ import annotations

from collections import Counter as Bag
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple, TypeAlias, cast

from muntin.core.counting.counter import Counter
from muntin.core.forms import joins_others
from muntin.core.message import Message, MessageLike, role_of
from muntin.core.parts import Part, Reasoning, Text
from muntin.core.planning.limits import NO_LIMITS, Limits
from muntin.core.planning.past import NOBODY, question_before
from muntin.core.planning.shapes import Form, Shape
from muntin.core.planning.slot import Slot
from muntin.errors import MuntinError, NeedsConversation, TokenizerError

# How many messages beyond the fit are looked at for a system message, or for the call of a
# result; the system messages that open a list are always found.
LOOK_BACK = 100

# A unit by the index of its slot and of its first message.
Key: TypeAlias = tuple[int, int]
# A message that was read, and its tokens: (index, message, tokens).
Read: TypeAlias = tuple[int, Message, int]
_NONE: Mapping[str, Any] = {}
_NOTHING: Mapping[int, tuple[Message, int]] = {}


# Tuples, not dataclasses: a unit is made for most messages of every window, so it must be quick.


class Unit(NamedTuple):
    """An atomic group of messages of one slot: kept, cut or dropped together.

    `slot` is the index of its slot. `missing` are its calls without a result; `mates` the parts of
    the same group in other slots; `form` is the unit before it was shortened.
    """

    slot: int
    indices: tuple[int, ...]
    messages: tuple[Message, ...]
    costs: tuple[int, ...]
    tokens: int
    system: bool
    missing: tuple[str, ...] = ()
    mates: tuple[Key, ...] = ()
    form: Form | None = None

    @property
    def key(self) -> Key:
        """The key that tells this unit from all other units of a window."""
        return self.slot, self.indices[0]


class Reading(NamedTuple):
    """The messages read of one slot, as units.

    `units` are in window order. `unread` are the messages where reading had stopped, `beyond` how
    many of them were never looked at. `left_out` are messages that cannot be sent: (index, reason,
    tokens). `limit` and `until` say how far to read; `start` is the message a history begins at,
    None for all other slots. `shape` is how its groups are shown.
    """

    slot: Slot
    units: tuple[Unit, ...] = ()
    tokens: int = 0
    size: int = 0
    unread: range = range(0)
    beyond: int = 0
    left_out: tuple[tuple[int, str, int], ...] = ()
    scattered: bool = False
    # Ids of calls without a result so far, with the first messages of their units; results whose
    # call was not found. Ids may repeat.
    pending: Mapping[str, Sequence[int]] = _NONE
    open: Mapping[str, Sequence[Read]] = _NONE
    limit: int = 0
    until: int | None = None
    start: int | None = None
    limits: Limits = NO_LIMITS
    shape: Shape | None = None


def read(
    slot: Slot,
    limit: int,
    counter: Counter,
    *,
    leading: bool = True,
    until: int | None = None,
    start: int | None = None,
    limits: Limits = NO_LIMITS,
    shape: Shape | None = None,
    asked: range | None = None,
) -> Reading:
    """Read the slot from its newest message back until the messages read exceed `limit`; a slot
    that keeps its beginning is read from its oldest message on.

    With `leading`, the system messages that open it are read first: they stay longest. `until` is
    the index of a message that must be read in any case. Before `start` nothing else is read,
    except `asked`: the messages that asked for the run that begins there. `shape` is how groups are
    shown.
    """
    try:
        if slot.made:  # one message, and it is not empty
            made = cast("Message", slot.messages[0])
            tokens = counter.message(made)
            unit = Unit(slot.index, (0,), (made,), (tokens,), tokens, made.role == "system")
            return Reading(slot, (unit,), tokens, 1, limit=limit, until=until, limits=limits)
        reader = _Reader(slot, counter, shape)
        if slot.trim_behavior == "char" and slot.keep == "head":
            units = reader.from_head(limit, until)
        else:
            units = reader.from_tail(limit, until, start or 0, leading, asked)
    except TokenizerError as error:
        place = _place(slot, error.culprit)
        raise TokenizerError(f"slot {slot.name!r}{place}: {error}") from error
    except Exception as error:
        error.add_note(f"while reading slot {slot.name!r}")
        raise
    tokens = sum([unit.tokens for unit in units])
    found = reader.found(units)
    size = len(slot.messages)
    return Reading(slot, units, tokens, size, *found, limit, until, start, limits, shape)


# The fields of a reading from `unread` to `open`.
_Found: TypeAlias = tuple[
    range,
    int,
    tuple[tuple[int, str, int], ...],
    bool,
    Mapping[str, Sequence[int]],
    Mapping[str, Sequence[Read]],
]


class _Reader:
    """The messages read of a slot so far, the newest first."""

    def __init__(self, slot: Slot, counter: Counter, shape: Shape | None) -> None:
        self.slot = slot
        self.shape = shape
        # Results before they were cut to their ceilings.
        self.whole: dict[int, tuple[Message, int]] = {}
        self.index = slot.index
        self.items = slot.messages
        self.counter = counter
        self.units: list[Unit] = []
        self.left_out: list[tuple[int, str, int]] = []
        # Results whose call was not found yet, by id, the newest first.
        self.open: dict[str, list[Read]] = {}
        self.unread = range(0)
        self.scattered = False
        # Whether a call without a result was read.
        self.waits = False

    def from_tail(
        self, limit: int, until: int | None, start: int, leading: bool, asked: range | None
    ) -> tuple[Unit, ...]:
        items, counter = self.items, self.counter
        total = first = 0
        while leading and first < len(items) and _is_system(items[first]):
            message = convert(items[first], self.slot, first)
            tokens = counter.message(message)
            self.take_message(first, message, tokens)
            total += tokens
            first += 1
        opening, self.units = self.units, []
        index = len(items)
        stop = index if until is None else until
        take, count, plain = self.take_message, counter.message, counter.text_key
        while index > first and ((total <= limit and index > start) or index > stop):
            index -= 1
            item = items[index]
            message = item if item.__class__ is Message else convert(item, self.slot, index)
            known = message.known_tokens  # most messages have it; the counter is slower
            tokens = known[1] if known is not None and known[0] == plain else count(message)
            total += take(index, message, tokens)
        if index > first:
            self.unread = range(first, index)
            self.look(range(index - 1, max(first, index - LOOK_BACK) - 1, -1))
            self.take_question(range(max(first, start), index), asked)
        return (*opening, *self.units[::-1])

    def from_head(self, limit: int, until: int | None) -> tuple[Unit, ...]:
        items = self.items
        stop = -1 if until is None else until
        total = end = 0
        unanswered: Bag[str] = Bag()
        while end < len(items) and (total <= limit or end <= stop):
            message = convert(items[end], self.slot, end)
            called = message.tool_call_id
            if called is None or unanswered[called]:
                total += self.counter.message(message)  # a result without a call is not sent
            if called is not None and unanswered[called]:
                unanswered[called] -= 1
            unanswered.update(call.id for call in message.tool_calls)
            end += 1
        if end < len(items):
            self.unread = range(end, len(items))
            self.look(range(min(len(items), end + LOOK_BACK) - 1, end - 1, -1))
            self.take_answers(+unanswered, self.unread)
        for index in range(end - 1, -1, -1):
            self.take(index)
        return tuple(self.units[::-1])

    def take_question(self, unread: range, asked: range | None) -> None:
        """Take the messages that asked for the run of the oldest messages read: `asked`, or nearer
        ones if more of the history was left unread."""
        turn = takewhile(lambda unit: unit.messages[0].role != "user", reversed(self.units))
        if asked is None or not any(m.tool_calls for unit in turn for m in unit.messages):
            return
        near = question_before(self.items, unread.stop, unread.start) if unread else NOBODY
        taken = {index for unit in self.units for index in unit.indices}
        for index in reversed(near or asked):
            if index in self.unread and index not in taken:
                self.take(index)
        self.units.sort(key=lambda unit: -unit.indices[0])

    def found(self, units: Sequence[Unit]) -> _Found:
        """Return what was found beside the units."""
        unread, beyond = self.unread, 0
        pending: dict[str, list[int]] = {}
        if unread:
            looked_at = [index for unit in units for index in unit.indices]
            looked_at += [index for index, _, _ in self.left_out]
            beyond = len(unread) - sum([index in unread for index in looked_at])
        if self.waits:
            for unit in units:
                for name in unit.missing:
                    pending.setdefault(name, []).append(unit.indices[0])
        return unread, beyond, tuple(self.left_out), self.scattered, pending, self.open

    def take(self, index: int) -> None:
        message = convert(self.items[index], self.slot, index)
        self.take_message(index, message, self.counter.message(message))

    def take_message(self, index: int, message: Message, tokens: int) -> int:
        """Put one message, older than all messages read so far, into its unit; return the tokens
        that now are certain to belong to it (a result waits for its call)."""
        if message.tool_calls:
            return self.take_calls(index, message, tokens)
        role = message.role
        called = message.tool_call_id
        if role == "tool" and called is not None:
            if self.shape is not None and tokens > self.shape.cuts_at(index):
                message, tokens = self.cut(index, message, tokens)
            self.open.setdefault(called, []).append((index, message, tokens))
            return 0
        content = message.content
        if not message.attachments and _is_nothing(content):
            self.left_out.append((index, "empty", tokens))
            return 0
        if content.__class__ is tuple and self.belongs_to_next(index, message):
            self.units.append(_prepended(self.units.pop(), index, message, tokens))
            return tokens
        # The quickest way to make a unit: most messages of every window come here.
        one, is_system = (index,), role == "system"
        fields = (self.index, one, (message,), (tokens,), tokens, is_system, (), (), None)
        self.units.append(tuple.__new__(Unit, fields))
        return tokens

    def cut(self, index: int, message: Message, tokens: int) -> tuple[Message, int]:
        """Cut a result to its ceiling."""
        assert self.shape is not None
        cut = self.shape.result(message)
        if cut is not message:
            self.whole[index] = message, tokens
        return cut, self.counter.message(cut)

    def take_calls(self, index: int, message: Message, tokens: int) -> int:
        """Close a tool group: the message with the calls, and the nearest results found so far."""
        members = [(index, message, tokens)]
        missing = []
        for call in message.tool_calls:
            result = self.nearest(call.id)
            if result is None:
                missing.append(call.id)
            else:
                members.append(result)
        if len(members) > 2:  # results come in any order
            members.sort(key=lambda member: member[0])
        indices, messages, costs = zip(*members, strict=True)
        unit = Unit(self.index, indices, messages, costs, sum(costs), False, tuple(missing))
        self.waits = self.waits or bool(missing)
        if indices[-1] - indices[0] >= len(indices):
            self.scattered = True
        if self.shape is None:
            self.units.append(unit)
            return unit.tokens
        self.units.append(unit := shaped(unit, self.shape, self.whole))
        return self.shape.least(unit.tokens, unit.costs, unit.messages)

    def nearest(self, call_id: str) -> Read | None:
        """Return the nearest result behind a call that no other call has taken."""
        results = self.open.get(call_id)
        if results is None:
            return None
        found = results.pop()
        if not results:
            del self.open[call_id]
        return found

    def take_answers(self, unanswered: Bag[str], indices: range) -> None:
        """Take the results of these calls from unread messages behind the calls."""
        between: Bag[str] = Bag()  # calls with the same ids, which are answered first
        found = []
        for index in indices if unanswered else ():
            role = role_of(self.items[index])
            if role not in ("tool", "assistant"):
                continue
            message = convert(self.items[index], self.slot, index)
            between.update(call.id for call in message.tool_calls if call.id in unanswered)
            called = message.tool_call_id
            if called is None or called not in unanswered:
                continue
            if between[called]:
                between[called] -= 1
                continue
            found.append((index, message))
            unanswered = unanswered - Bag((called,))
            if not unanswered:
                break
        for index, message in reversed(found):  # the newest first, like all messages
            self.take_message(index, message, self.counter.message(message))

    def belongs_to_next(self, index: int, message: Message) -> bool:
        """Say whether a message is bare reasoning, directly before its assistant message."""
        return (
            message.role == "assistant"
            and all(isinstance(part, Reasoning) for part in message.content or ())
            and bool(self.units)
            and self.units[-1].indices[0] == index + 1
            and self.units[-1].messages[0].role == "assistant"
        )

    def look(self, indices: range) -> None:
        """Beyond the fit, find the system messages and the calls of results that were read."""
        near = self.items[min(indices) : max(indices) + 1]
        roles = [item.role if item.__class__ is Message else role_of(item) for item in near]
        if not self.open and "system" not in roles:
            return
        for index, role in zip(indices, reversed(roles), strict=True):
            if role == "system":
                self.take(index)
            elif role == "assistant" and self.open:
                message = convert(self.items[index], self.slot, index)
                ids = Bag(call.id for call in message.tool_calls)
                if self.open.keys().isdisjoint(ids):
                    continue
                if self.slot.trim_behavior == "char":  # cut results may stay longer
                    self.take_answers(ids, range(index + 1, self.unread.stop))
                    self.take(index)
                    continue
                for call_id in ids.elements():
                    result = self.nearest(call_id)
                    if result is not None:
                        self.left_out.append((result[0], "beyond_fit", result[2]))


def _place(slot: Slot, culprit: object) -> str:
    """Say which message of a slot caused an error."""
    for index in reversed(range(len(slot.messages))):
        item = slot.messages[index]
        if item is culprit or (isinstance(item, Mapping) and Message.from_dict(item) == culprit):
            return f", message {index}"
    return ""


def shaped(unit: Unit, shape: Shape, whole: Mapping[int, tuple[Message, int]] = _NOTHING) -> Unit:
    """Return a group of calls and results at its level; `whole` are results before their cut."""
    level = shape.levels.of(unit.indices[0])
    if level != "full":
        shown, costs, tokens = shape.group(level, unit.messages)
        form = Form(level, unit.messages, unit.tokens)
        fields = (unit.slot, unit.indices, shown, costs, tokens, False, unit.missing, (), form)
        return tuple.__new__(Unit, fields)
    if not whole or whole.keys().isdisjoint(unit.indices):
        return unit
    were = [
        whole.get(index, (message, cost))
        for index, message, cost in zip(unit.indices, unit.messages, unit.costs, strict=True)
    ]
    form = Form(level, tuple([each for each, _ in were]), sum([cost for _, cost in were]))
    return unit._replace(form=form)


def _is_system(item: MessageLike) -> bool:
    return (item.role if isinstance(item, Message) else role_of(item)) == "system"


def _is_nothing(content: str | tuple[Part, ...] | None) -> bool:
    if not content:
        return True
    return not isinstance(content, str) and all(isinstance(p, Text) and not p.text for p in content)


def _prepended(unit: Unit, index: int, message: Message, tokens: int) -> Unit:
    return unit._replace(
        indices=(index, *unit.indices),
        messages=(message, *unit.messages),
        costs=(tokens, *unit.costs),
        tokens=unit.tokens + tokens,
        system=False,
        form=unit.form
        and Form(unit.form.level, (message, *unit.form.messages), unit.form.tokens + tokens),
    )


def convert(item: MessageLike, slot: Slot, index: int) -> Message:
    """Return the item as a Message; an error names slot and message."""
    if isinstance(item, Message):
        return item
    if joins_others(item):
        raise NeedsConversation(f"slot {slot.name!r}, message {index} is read with its neighbours")
    try:
        return Message.from_dict(item)
    except MuntinError as error:
        raise type(error)(f"slot {slot.name!r}, message {index}: {error}") from error
