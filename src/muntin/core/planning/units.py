"""Units: the messages of a slot that live and die together.

Owns what belongs together (a call and its results, reasoning and its message), which result answers
which call, and how far back a slot is read. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from muntin.core.compaction import stands_first
from muntin.core.counting.counter import Counter
from muntin.core.forms import joins_others
from muntin.core.message import Message, MessageLike, has_refusal_or_audio, place_of, role_of
from muntin.core.parts import Part, Reasoning, Text
from muntin.core.planning.compact import FULL, GONE, LEAST, SHORT, STUB, Compactor, Costed
from muntin.core.planning.slot import Slot
from muntin.core.thoughts import without_thoughts
from muntin.errors import InvalidInput, MuntinError, NeedsConversation, TokenizerError

# How many messages beyond the fit are looked at for a system message, or for the call of a
# result; the system messages that open a list are always found.
LOOK_BACK = 100
# About how many tokens the line in the place of a result has, and a short result.
_STUB, _SHORT = 16, 200
# A result with fewer characters is as short as a line that says that it comes again.
_REPEATED = 100
# A call with its arguments that has more tokens may be smaller as a stub.
_LONG_CALL = 64


@dataclass(slots=True)
class Unit:
    """Messages that are kept, shortened or dropped together.

    `position` is the place in the conversation, `turn` counts the user's turns. `indices` are the
    places of the messages in the slot. A result that stands in another slot than its call is part
    of the call's unit: `elsewhere` says in which slot, and where. `missing` are calls without a
    result; a group is calls with results. The unit that `begins` the past holds the provider's
    summary; it never leaves, as what `stays`. `repeats` are its results that come again, by their
    places: where they come again, and for which calls.
    """

    position: int
    indices: tuple[int, ...]
    messages: tuple[Message, ...]
    tokens: int
    compactor: Compactor
    is_system: bool = False
    missing: tuple[str, ...] = ()
    is_group: bool = False
    elsewhere: tuple[tuple[Slot, int], ...] = ()
    is_protected: bool = False
    turn: int = 0
    begins: bool = False
    stays: bool = False
    repeats: dict[int, list[tuple[int, str]]] | None = None
    forms: dict[tuple[int, int], Costed] = field(default_factory=dict, compare=False)

    @property
    def never_leaves(self) -> bool:
        """Whether it holds the provider's summary, or has a standing effect."""
        return self.begins or self.stays

    @property
    def added(self) -> int:
        """The tokens of the results that the wire adds."""
        return len(self.missing) * self.compactor.counter.missing_result() if self.missing else 0

    @property
    def role(self) -> str:
        """The role of its first message."""
        return self.messages[0].role

    @property
    def place(self) -> tuple[float, int]:
        """Where its last message stands on a timeline; behind everything if it is of none."""
        return place_of(self.messages[-1])

    def form(self, level: int, cut: int = 0) -> Costed:
        """Return the unit at a level: its messages and its tokens. A form that would be no smaller
        is the unit itself. Of results that come again before the position `cut`, it only says so.
        """
        if level == FULL:
            return self.messages, self.tokens
        key = level, cut if self.repeats else 0
        cached = self.forms.get(key)
        if cached is None:
            messages = self.messages if level == STUB else self._without_repeats(cut)
            messages, tokens = self.compactor.form(level, messages)
            cached = messages, tokens + self.added
            if cached[1] >= self.tokens:
                cached = self.messages, self.tokens
            self.forms[key] = cached
        return cached

    def size(self, level: int, cut: int = 0) -> int:
        """Return the tokens of the unit at a level."""
        if level == FULL:
            return self.tokens
        return 0 if level == GONE else self.form(level, cut)[1]

    def _without_repeats(self, cut: int) -> tuple[Message, ...]:
        messages = [*self.messages]
        names = {call.id: call.name for message in messages for call in message.tool_calls}
        for number, later in (self.repeats or {}).items():
            newest = [called for position, called in later if position < cut][-1:]
            for called in newest:
                message = messages[number]
                name = names.get(message.tool_call_id or "", "result")
                messages[number] = self.compactor.repeated(message, name, called)
        return tuple(messages)


# A message that was read: its index, the message, its tokens.
Read: TypeAlias = tuple[int, Message, int]


@dataclass(slots=True)
class Reading:
    """What was read of a slot, in the slot's order.

    `unread` are the messages where reading stopped, `beyond` how many of them were never looked at.
    `left_out` are messages that cannot be sent: (index, reason, tokens). `loose` are results whose
    call was not found in the slot. `is_scattered`: other messages stand between a call and its
    results, or its results stand in another slot. `before` are messages before the provider's
    summary: they are neither shown nor counted.
    """

    slot: Slot
    units: list[Unit]
    unread: range = range(0)
    beyond: int = 0
    left_out: list[tuple[int, str, int]] = field(default_factory=list)
    loose: list[Read] = field(default_factory=list)
    is_scattered: bool = False
    before: range = range(0)

    @property
    def tokens(self) -> int:
        """The tokens of everything that was read."""
        return sum([unit.tokens for unit in self.units])


def read_slot(
    slot: Slot,
    limit: int,
    counter: Counter,
    window: int,
    start: int = 0,
    *,
    opening: bool = True,
    bare: int = 0,
) -> Reading:
    """Read a slot from its newest message back until what was read exceeds `limit`, even in its
    most compact form; a slot that keeps its beginning is read from its oldest message on.

    Before `start` nothing is read but system messages that open the list, and the question of the
    turn that begins there. `window` is what sizes of compact forms are shares of. With `opening`,
    the system messages that open a list are read first: they stay longest. The first `bare`
    messages are read without their thoughts.
    """
    trim = slot.trim
    compactor = Compactor(counter, trim.recovery, trim.results, trim.ladder, window)
    try:
        if slot.kind == "text" and slot.messages:  # one message, and it is not empty
            message = cast("Message", slot.messages[0])
            message = without_thoughts(message) if bare else message
            tokens = counter.message(message)
            is_system = message.role == "system"
            unit = Unit(0, (0,), (message,), tokens, compactor, is_system)
            return Reading(slot, [unit])
        reader = _Reader(slot, counter, compactor, bare)
        if trim.behavior == "char" and trim.keep == "head":
            reader.read_forward(limit)
        else:
            reader.read_back(limit, start, opening)
    except TokenizerError as error:
        place = _place(slot, error.culprit)
        raise TokenizerError(f"slot {slot.name!r}{place}: {error}") from error
    except Exception as error:
        error.add_note(f"while reading slot {slot.name!r}")
        raise
    return reader.finish()


class _Reader:
    """The messages read of a slot so far, the newest first."""

    def __init__(self, slot: Slot, counter: Counter, compactor: Compactor, bare: int) -> None:
        self.slot = slot
        self.bare = bare
        self.items = slot.messages
        self.counter = counter
        self.compactor = compactor
        # About what a result has in its most compact form.
        largest = compactor.largest_result
        compact = {STUB: _STUB, SHORT: _SHORT}.get(compactor.deepest, largest)
        self.least_result = counter.overhead + min(compact, largest)
        self.units: list[Unit] = []
        self.opening: list[Unit] = []
        self.left_out: list[tuple[int, str, int]] = []
        # Results whose call was not found yet, by id, the newest first.
        self.open: dict[str, list[Read]] = {}
        self.unread = range(0)
        self.taken_unread = 0
        self.before = range(0)
        self.is_scattered = False

    def read_back(self, limit: int, start: int, opening: bool) -> None:
        items, counter = self.items, self.counter
        total = first = 0
        opening = opening and not self.slot.system_leaves
        while opening and first < len(items) and role_of(items[first]) == "system":
            total += self.take(first)
            first += 1
        summary, end = self.slot.begin, 0
        if summary is not None:
            first, end = self.take_summary(first, summary)
            total += sum([unit.tokens for unit in self.units if unit.begins])
        self.opening, self.units = self.units, []
        index = len(items)
        plain = counter.text_key
        while index > first and total <= limit and index > start:
            index -= 1
            if summary is not None and summary <= index < end:
                continue
            item = items[index]
            message = item if item.__class__ is Message else convert(item, self.slot, index)
            counted = message.known_tokens  # most messages have it; the counter is slower
            tokens = counted[1] if counted is not None and counted[0] == plain else None
            if message.answer_tokens is not None:
                tokens = None
            total += self.take_message(
                index, message, counter.message(message) if tokens is None else tokens
            )
        if index > first:
            self.unread = range(first, index)
            if summary is not None:
                self.taken_unread = max(0, min(end, index) - max(first, summary))
            self.look_back()
            if self.slot.is_stepped:
                self.take_question()
            self.take_standing()

    def take_summary(self, first: int, summary: int) -> tuple[int, int]:
        """Take the provider's summary, with the results of its calls; return the first message of
        the past, and where the summary ends.

        Before a summary the past is not shown; of OpenAI's compaction alone the user's messages
        that it returns before its item are.
        """
        items, end = self.items, min(summary + 1, len(self.items))
        if summary < len(items):
            while end < len(items) and role_of(items[end]) == "tool":
                end += 1
            for index in range(end - 1, summary - 1, -1):
                self.take(index)
            for unit in self.units:
                unit.begins = unit.begins or summary in unit.indices
            roles = {role_of(items[index]) for index in range(first, summary)}
            if roles == {"user"} and not stands_first(convert(items[summary], self.slot, summary)):
                return first, end
        self.before = range(first, summary)
        return max(first, end), end

    def take_standing(self) -> None:
        """Take the messages with a standing effect beyond the fit, with the results of their
        calls."""
        taken = {index for unit in self.units for index in unit.indices}
        for place in reversed(self.slot.standing):
            if place not in self.unread or place in taken:
                continue
            end = place + 1
            while end < len(self.items) and role_of(self.items[end]) == "tool":
                end += 1
            for index in range(end - 1, place - 1, -1):
                self.take(index)
        self.units.sort(key=lambda unit: -unit.indices[0])

    def read_forward(self, limit: int) -> None:
        items = self.items
        total = end = 0
        while end < len(items) and total <= limit:
            total += self.counter.message(convert(items[end], self.slot, end))
            end += 1
        self.unread = range(end, len(items))
        for index in reversed(self.unread[:LOOK_BACK]):
            if role_of(items[index]) == "system":
                self.take(index)
        for index in range(end - 1, -1, -1):
            self.take(index)

    def look_back(self) -> None:
        """Beyond the fit, find system messages, and name the results whose call lies there."""
        stop = self.unread.stop
        begin = max(self.unread.start, stop - LOOK_BACK)
        indices = range(stop - 1, begin - 1, -1)
        for index, item in zip(indices, reversed(self.items[begin:stop]), strict=True):
            role = item.role if item.__class__ is Message else role_of(item)
            if role == "system" and not self.slot.system_leaves:
                self.take(index)
            elif role == "assistant" and self.open:
                for call in convert(item, self.slot, index).tool_calls:
                    if call.id in self.open:
                        result = self.nearest(call.id)
                        self.left_out.append((result[0], "beyond_fit", result[2]))

    def take_question(self) -> None:
        """Take the user's messages that began the turn in which reading stopped."""
        oldest = next((unit for unit in reversed(self.units) if not unit.is_system), None)
        if oldest is None or oldest.role == "user":
            return
        index, end = self.unread.stop - 1, self.unread.start
        if self.slot.kind == "run":  # its question mostly stands in another slot
            end = max(end, index - LOOK_BACK)
        while index >= end and role_of(self.items[index]) != "user":
            index -= 1
        while index >= end and role_of(self.items[index]) == "user":
            self.take(index)
            index -= 1
        self.units.sort(key=lambda unit: -unit.indices[0])

    def take(self, index: int) -> int:
        self.taken_unread += index in self.unread
        message = convert(self.items[index], self.slot, index)
        return self.take_message(index, message, self.counter.message(message))

    def take_message(self, index: int, message: Message, tokens: int) -> int:
        """Put one message, older than all messages read so far, into its unit; return the tokens
        of its most compact form (a result waits for its call)."""
        if index < self.bare and message.content.__class__ is tuple:
            plain = without_thoughts(message)
            if plain is not message:
                message, tokens = plain, self.counter.message(plain)
        if message.tool_calls:
            return self.take_calls(index, message, tokens)
        called, content = message.tool_call_id, message.content
        if message.role == "tool" and called is not None:
            self.open.setdefault(called, []).append((index, message, tokens))
            return 0
        if not content or not isinstance(content, str):
            if (
                not message.attachments
                and _is_nothing(content)
                and not has_refusal_or_audio(message)
            ):
                self.left_out.append((index, "empty", tokens))
                return 0
            if content and self.belongs_to_next(index, message):
                self.prepend(index, message, tokens)
                return tokens
        is_system = message.role == "system" and not self.slot.system_leaves
        self.units.append(Unit(index, (index,), (message,), tokens, self.compactor, is_system))
        window = self.compactor.window
        return tokens if tokens <= window // 2 else min(tokens, max(LEAST, window // 4))

    def take_calls(self, index: int, message: Message, tokens: int) -> int:
        """Make the unit of a message with calls, and the nearest results found so far."""
        members = [(index, message, tokens)]
        missing = []
        for call in message.tool_calls:
            if call.id in self.open:
                members.append(self.nearest(call.id))
            else:
                missing.append(call.id)
        if len(members) > 2:  # results come in any order
            members.sort(key=lambda member: member[0])
        indices, messages, costs = zip(*members, strict=True)
        self.is_scattered = self.is_scattered or indices[-1] - indices[0] >= len(indices)
        self.units.append(
            Unit(
                indices[0],
                indices,
                messages,
                sum(costs),
                self.compactor,
                missing=tuple(missing),
                is_group=len(members) > 1,
            )
        )
        most = self.least_result
        least = sum([min(cost, most) if m.tool_call_id else cost for _, m, cost in members])
        if tokens > _LONG_CALL and self.compactor.deepest == STUB:
            return min(least, self.compactor.form(STUB, messages)[1])  # arguments get shorter too
        return least

    def nearest(self, call_id: str) -> Read:
        """Return the nearest result behind a call that no other call has."""
        results = self.open[call_id]
        result = results.pop()
        if not results:
            del self.open[call_id]
        return result

    def belongs_to_next(self, index: int, message: Message) -> bool:
        """Say whether a message is bare reasoning, directly before its assistant message."""
        return (
            message.role == "assistant"
            and all(isinstance(part, Reasoning) for part in message.content or ())
            and bool(self.units)
            and self.units[-1].indices[0] == index + 1
            and self.units[-1].role == "assistant"
        )

    def prepend(self, index: int, message: Message, tokens: int) -> None:
        unit = self.units[-1]
        unit.indices = (index, *unit.indices)
        unit.messages = (message, *unit.messages)
        unit.tokens += tokens
        unit.position = index

    def finish(self) -> Reading:
        units = [*self.opening, *self.units[::-1]]
        if self.slot.begin is not None:
            units.sort(key=lambda unit: unit.indices[0])
        if self.slot.standing:
            for unit in units:
                unit.stays = not {*self.slot.standing}.isdisjoint(unit.indices)
        loose = [result for results in self.open.values() for result in results]
        loose.sort(key=lambda result: result[0])
        unread, beyond = self.unread, len(self.unread) - self.taken_unread
        return Reading(
            self.slot, units, unread, beyond, self.left_out, loose, self.is_scattered, self.before
        )


def find_repeats(units: Iterable[Unit]) -> None:
    """Find results that come again later, byte for byte. Empty and short ones are no matter."""
    places: dict[str, list[tuple[Unit, int, str]]] = {}
    for unit in units:
        if not unit.is_group or unit.compactor.results is None:
            continue
        for number, message in enumerate(unit.messages):
            called, content = message.tool_call_id, message.content
            if called is not None and isinstance(content, str) and len(content) >= _REPEATED:
                places.setdefault(content, []).append((unit, number, called))
    for same in places.values():
        for place, (unit, number, _) in enumerate(same[:-1], 1):
            unit.repeats = unit.repeats or {}
            unit.repeats[number] = [(later.position, called) for later, _, called in same[place:]]


def link(readings: Sequence[Reading], counter: Counter) -> None:
    """Put results into the units of their calls in other slots; leave out results without a call,
    and count the results that the wire adds to calls without one.

    `readings` are in window order. A result belongs to the nearest call before it that has its id
    and no result yet: ids may repeat. Inside an interleaved group of slots the order is found
    later, so any call of another slot of the group will do.
    """
    waiting: dict[str | None, list[tuple[int, Unit]]] = {}
    for place, reading in enumerate(readings):
        for unit in reading.units:
            for call_id in unit.missing:
                waiting.setdefault(call_id, []).append((place, unit))
    for place, reading in enumerate(readings):
        for index, message, tokens in reading.loose:
            callers = waiting.get(message.tool_call_id, [])
            caller = next(
                (
                    caller
                    for caller in reversed(callers)
                    if caller[0] != place
                    and _may_follow(readings[caller[0]].slot, reading.slot, caller[0] < place)
                ),
                None,
            )
            if caller is None:
                reading.left_out.append((index, "orphaned", tokens))
                continue
            callers.remove(caller)
            _add_result(caller[1], reading.slot, index, message, tokens)
            readings[caller[0]].is_scattered = True
    partly = [(place, reading) for place, reading in enumerate(readings) if reading.beyond]
    for called, callers in waiting.items():
        for place, unit in callers:
            later = [reading for there, reading in partly if there > place]
            unread = _find_unread(later, called)
            if unread is None:
                unit.tokens += counter.missing_result()
                continue
            reading, index, message = unread
            reading.beyond -= 1
            _add_result(unit, reading.slot, index, message, counter.message(message))
            readings[place].is_scattered = True


def _add_result(unit: Unit, slot: Slot, index: int, message: Message, tokens: int) -> None:
    """Put a result that stands in another slot into the unit of its call."""
    unit.missing = tuple([call_id for call_id in unit.missing if call_id != message.tool_call_id])
    unit.is_group = True
    unit.elsewhere += ((slot, index),)
    unit.messages += (message,)
    unit.tokens += tokens


def _find_unread(
    readings: Sequence[Reading], called: str | None
) -> tuple[Reading, int, Message] | None:
    """Find the result of a call among the messages that were not read."""
    for reading in readings:
        for index in reading.unread[-LOOK_BACK:] if reading.beyond else ():
            item = reading.slot.messages[index]
            if role_of(item) == "tool":
                message = convert(item, reading.slot, index)
                if message.tool_call_id == called:
                    return reading, index, message
    return None


def _may_follow(caller: Slot, follower: Slot, is_before: bool) -> bool:
    group = caller.place.group
    return is_before or (group is not None and group.interleave and group == follower.place.group)


def least_size(unit: Unit) -> int:
    """Return the tokens of a unit in its most compact form."""
    return unit.size(unit.compactor.deepest) if unit.is_group else unit.tokens


def is_blank(reading: Reading) -> bool:
    """Say whether a slot holds nothing but white space."""
    return not reading.beyond and not any(
        message.text.strip()
        or message.tool_calls
        or message.attachments
        or _has_unknown_parts(message)
        for unit in reading.units
        for message in unit.messages
    )


def _has_unknown_parts(message: Message) -> bool:
    return isinstance(message.content, tuple) and not all(
        isinstance(part, Text) for part in message.content
    )


def check_joined(readings: Sequence[Reading], counter: Counter) -> None:
    """Check that joined texts share one role; parts of a joined text carry no overhead."""
    roles: dict[object, str] = {}
    for reading in readings:
        slot = reading.slot
        if not slot.is_joined or not reading.units:
            continue
        (unit,) = reading.units
        group = slot.place.group
        assert group is not None
        if roles.setdefault(group, unit.role) != unit.role:
            raise InvalidInput(
                f"slot {slot.name!r} has role {unit.role!r}, but the texts of group "
                f"{group.name!r} have role {roles[group]!r}; joined texts share one role"
            )
        unit.tokens -= counter.overhead


def _place(slot: Slot, culprit: object) -> str:
    """Say which message of a slot caused an error."""
    for index in reversed(range(len(slot.messages))):
        item = slot.messages[index]
        if item is culprit or (isinstance(item, Mapping) and Message.from_dict(item) == culprit):
            return f", message {index}"
    return ""


def _is_nothing(content: str | tuple[Part, ...] | None) -> bool:
    if not content:
        return True
    return not isinstance(content, str) and all(isinstance(p, Text) and not p.text for p in content)


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
