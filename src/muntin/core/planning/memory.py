"""Memory: what a conversation knows of its last window, and where it is found again.

A conversation is a history, the current input and the run of the turn, in up to three slots. Owns
how its positions are recognised in a list that has grown or lost its beginning, and what is kept
for the next window.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter as Bag
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import accumulate
from math import inf
from typing import Any

from muntin.core.checks import check_size
from muntin.core.digests import digest
from muntin.core.message import Message, MessageLike, as_message, at_of, role_of
from muntin.core.planning.compact import GONE
from muntin.core.planning.levels import NO_LEVELS, Levels
from muntin.core.planning.slot import Recap, Slot
from muntin.core.planning.units import Unit

# How many messages are searched for a frontier that is not at its old place.
SEARCH = 1_000
# So many turns' rooms are remembered.
TURNS = 8
# How many of the newest messages of a list are looked at for an answer of the assistant.
_NEWEST = 20


@dataclass(frozen=True, slots=True)
class TurnMemory:
    """What holds for one turn: `turn` is a digest of its input, `levels` how far the conversation
    moved for this turn only, `input_tokens` the size to which the input was cut."""

    turn: str = ""
    levels: tuple[int, ...] = ()
    input_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ConversationState:
    """What one conversation remembers of its last window.

    Messages before `first` are gone; it is recognised by its `at`, its `item` on a timeline and its
    digest. `number` tells slots of one name apart. Results before `stubs` are one line, results
    before `shorts` are short, large messages before `cut` are cut; `newest` is the place, the item
    and the digest of the newest of these messages. `recap` is the summary in front, `rooms` are the
    smallest rooms of the last turns. `missing` counts the calls, by name, that are gone from the
    turn in which the history begins. The first `thoughts` messages are shown without thoughts; None
    is all of them.
    """

    slot: str
    number: int = 0
    first: int = 0
    at: float | None = None
    digest: str | None = None
    stubs: int = 0
    shorts: int = 0
    item: int | None = None
    recap: Recap | None = None
    cut: int = 0
    newest: tuple[int, int | None, str] | None = None
    rooms: tuple[int, ...] = ()
    this_turn: TurnMemory = TurnMemory()
    missing: tuple[tuple[str, int], ...] = ()
    thoughts: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, without those that are the default."""
        values = {name: getattr(self, name) for name in _STATE_FIELDS}
        data = {name: value for name, value in values.items() if value != _DEFAULTS.get(name)}
        if "recap" in data:
            data["recap"] = asdict(data["recap"])
        if "this_turn" in data:
            turn = asdict(data["this_turn"])
            data["this_turn"] = {name: value for name, value in turn.items() if value}
        plain: dict[str, Any] = _in_lists(data)
        return plain


def _in_lists(value: Any) -> Any:
    """Return a value as JSON gives it back: with lists in the place of tuples."""
    if isinstance(value, dict):
        return {key: _in_lists(item) for key, item in value.items()}
    return [_in_lists(item) for item in value] if isinstance(value, tuple) else value


def read_conversation_state(data: Mapping[str, Any]) -> ConversationState:
    """Read what `ConversationState.to_dict` wrote; what only 0.2 wrote is left out."""
    values = {name: data[name] for name in _STATE_FIELDS if name in data}
    if values.get("recap") is not None:
        values["recap"] = Recap(**values["recap"])
    for name in ("number", "first", "stubs", "shorts", "cut"):
        check_size(values.get(name, 0), name)
    values["rooms"] = _sizes(values.get("rooms", ()), "rooms")
    turn = values.get("this_turn") or {}
    values["this_turn"] = TurnMemory(
        str(turn.get("turn", "")),
        _sizes(turn.get("levels", ()), "levels"),
        turn.get("input_tokens"),
    )
    if values.get("newest") is not None:
        place, item, name = values["newest"]
        item = None if item is None else check_size(item, "newest")
        values["newest"] = check_size(place, "newest"), item, str(name)
    if values.get("thoughts") is not None:
        check_size(values["thoughts"], "thoughts")
    counts = values.get("missing", ())
    values["missing"] = tuple((str(call), check_size(n, "missing")) for call, n in counts)
    return ConversationState(**values)


def _sizes(values: Iterable[Any], name: str) -> tuple[int, ...]:
    return tuple([check_size(value, name) for value in values])


_STATE_FIELDS = tuple(spec.name for spec in fields(ConversationState))
_DEFAULTS = {spec.name: spec.default for spec in fields(ConversationState)}


class JoinedList(Sequence[MessageLike]):
    """The messages of several slots, one behind the other."""

    def __init__(self, lists: Iterable[Sequence[MessageLike]]) -> None:
        self._lists = list(lists)
        self.offsets = [0, *accumulate(len(part) for part in self._lists)]

    def __len__(self) -> int:
        return self.offsets[-1]

    def __getitem__(self, index: Any) -> Any:
        place = bisect_right(self.offsets, index) - 1
        return self._lists[place][index - self.offsets[place]]


@dataclass(slots=True)
class ConversationDraft:
    """A conversation on its way into a window.

    `slots` are its history, input and run, as far as they are declared. `lasting` levels were
    reached for good, `in_turn` levels hold for this turn. `rooms` are the smallest rooms that the
    conversation had in its last turns. `input_tokens` is the size to which the input was cut in
    this turn. `missing` counts the calls, by name, that are gone from the turn that begins the
    past. `is_lost` says that the message at the frontier was not found again. `after` is how far it
    has moved in this window: for good, and in this turn. The first `thoughts` messages are shown
    without thoughts; None is all.
    """

    name: str
    number: int
    slots: list[Slot]
    lasting: Levels = NO_LEVELS
    in_turn: Levels = NO_LEVELS
    rooms: tuple[int, ...] = ()
    turn: str = ""
    is_same_turn: bool = False
    input_tokens: int | None = None
    missing: tuple[tuple[str, int], ...] = ()
    recap: Recap | None = None
    is_lost: bool = False
    after: tuple[Levels, Levels] | None = None
    thoughts: int | None = None

    @property
    def low(self) -> float:
        """The share of the room that is left after a move."""
        trimming = [slot.trim.trimming for slot in self.slots if slot.is_stepped]
        return trimming[0].low_mark if trimming else 1.0  # type: ignore[union-attr]

    @property
    def is_stepped(self) -> bool:
        """Whether it remembers anything."""
        return any(slot.is_stepped for slot in self.slots)

    def offset(self, slot: Slot) -> int:
        """Return the position of a slot's first message."""
        place = next(n for n, member in enumerate(self.slots) if member is slot)
        return sum([len(member.messages) for member in self.slots[:place]])

    def recall(self, before: ConversationState | None) -> None:
        """Take over what the window before left."""
        if not self.is_stepped:
            self.thoughts = None if before is None else before.thoughts
            return
        has_run = any(slot.kind == "run" and slot.messages for slot in self.slots)
        input_slot = next(
            (slot for slot in self.slots if slot.kind == "input" and slot.messages), None
        )
        self.turn = "" if input_slot is None else digest(as_message(input_slot.messages[-1]))
        if before is None:
            return
        levels = self._find_levels(before)
        if levels is None:
            self.is_lost = any(slot.kind == "list" and slot.messages for slot in self.slots)
            return
        self.lasting, by = levels
        self.thoughts = None if before.thoughts is None else max(0, before.thoughts + by)
        self.rooms, self.recap, self.missing = before.rooms, before.recap, before.missing
        turn = before.this_turn
        self.is_same_turn = has_run and turn.turn == self.turn
        if self.is_same_turn:
            self.in_turn = Levels(*turn.levels).shifted(by) if turn.levels else NO_LEVELS
            self.input_tokens = turn.input_tokens

    def _find_levels(self, before: ConversationState) -> tuple[Levels, int] | None:
        """Return the levels of the window before in the lists of this one, and how far the lists
        slid; None if the message at the frontier is not there any more."""
        messages = JoinedList([slot.messages for slot in self.slots])
        levels = Levels(before.cut, before.shorts, before.stubs, before.first)
        if before.newest is not None:
            place, at_item, name = before.newest

            def is_newest(message: MessageLike) -> bool:
                if None not in (at_item, item := item_of(message)) and item != at_item:
                    return False  # not every list has items: a stored plan has none
                return digest(as_message(message)) == name

            match = _search(messages, place, is_newest)
            if match is not None:
                return levels.shifted(match - place), match - place
        match = locate(messages, before)
        if match is None:
            return None
        if before.newest is None or before.digest is None:
            return levels.shifted(match - before.first), match - before.first
        # What was shortened has left the list: all that it holds now came later.
        return Levels(gone=match), -len(messages)

    def usual_rooms(self, room: int) -> tuple[int, ...]:
        """Return the rooms of the last turns, with the smallest of this one."""
        if self.is_same_turn and self.rooms:
            return (*self.rooms[:-1], min(room, self.rooms[-1]))
        return (*self.rooms, room)[-TURNS:]

    def calls_gone(self, units: Sequence[Unit], levels: Levels) -> Bag[str]:
        """Count the calls, by name, that are gone from the turn in which the past begins."""
        first = next((unit for unit in units if unit.position >= levels.gone), None)
        counts: Bag[str] = Bag()
        if first is None or first.role == "user":
            return counts
        for unit in units:
            if unit.turn == first.turn and levels.of(unit) == GONE:
                counts.update(call.name for message in unit.messages for call in message.tool_calls)
        begin = next((unit for unit in units if unit.position >= self.lasting.gone), first)
        if begin.turn == first.turn and units[0].position <= self.lasting.gone:
            counts.update(dict(self.missing))
        return counts

    def start(self, room: int | None, *, is_bound: bool = False) -> ConversationState:
        """Return what the next window must know of this one; `room` is None without a history. With
        `is_bound` that includes up to where thoughts left."""
        gone = self.lasting.gone
        at = name = item = None
        messages = JoinedList([slot.messages for slot in self.slots])
        moved = self.lasting != NO_LEVELS or self.in_turn != NO_LEVELS
        # An input may be recorded in other words, or not at all: then the messages behind it are
        # new. Shortened messages must be found again too, even if nothing has left yet.
        if moved and gone < len(messages) and not self._is_input(gone):
            at, item = at_of(messages[gone]), item_of(messages[gone])
            name = digest(as_message(messages[gone]))
        thoughts = None
        if is_bound:
            thoughts = len(messages) if self.thoughts is None else self.thoughts
        newest = max(*self.lasting[:3], thoughts or 0) - 1
        while newest >= 0 and (newest >= len(messages) or self._is_input(newest)):
            newest -= 1
        in_turn = () if self.in_turn == NO_LEVELS else tuple(self.in_turn)
        return ConversationState(
            self.name,
            self.number,
            gone,
            at,
            name,
            self.lasting.stub,
            self.lasting.short,
            item,
            self.recap,
            self.lasting.cut,
            None
            if newest < gone
            else (newest, item_of(messages[newest]), digest(as_message(messages[newest]))),
            self.rooms if room is None else self.usual_rooms(room),
            TurnMemory(self.turn, in_turn, self.input_tokens),
            self.missing,
            thoughts,
        )

    def _is_input(self, position: int) -> bool:
        for slot in self.slots:
            position -= len(slot.messages)
            if position < 0:
                return slot.kind == "input"
        return False


def find_conversations(
    slots: Sequence[Slot], starts: Iterable[ConversationState]
) -> list[ConversationDraft]:
    """Return the conversations of a window, the one with the input and the run last."""
    remembered = {(start.slot, start.number): start for start in starts}
    runs = [slot for slot in slots if slot.kind == "run" and slot.may_step]
    run = runs[-1] if runs else None
    histories = [slot for slot in slots if slot.is_stepped and slot.kind == "list"]
    if not histories and run is not None:  # under Exact() the run goes before its history too
        speaking = [slot for slot in slots if slot.kind == "list" and slot.may_step]
        histories = [slot for slot in speaking if is_conversation(slot.messages)][-1:]
    input_slot = next((slot for slot in reversed(slots) if slot.kind == "input"), None)
    if not histories and run is None:
        return []
    last = [slot for slot in (*histories[-1:], input_slot, run) if slot is not None]
    members = [*([slot] for slot in histories[:-1]), last]
    numbers: Bag[str] = Bag()
    conversations = []
    for member_slots in members:
        name = member_slots[0].name
        conversation = ConversationDraft(name, numbers[name], member_slots)
        numbers[name] += 1
        before = remembered.get((conversation.name, conversation.number))
        if before is None and member_slots is last:  # the first windows may have had no history
            before = remembered.get(("input", 0)) or remembered.get(("run", 0))
        conversation.recall(before)
        conversations.append(conversation)
    return conversations


def is_conversation(messages: Sequence[MessageLike]) -> bool:
    """Say whether a list is a conversation: the assistant or its tools speak in it, or it is
    empty."""
    newest = messages[-_NEWEST:]
    return not newest or any(role_of(message) in ("assistant", "tool") for message in newest)


def locate(items: Sequence[MessageLike], start: ConversationState) -> int | None:
    """Find the message at which a history began; None if it is not there any more.

    A message is known by its item of a timeline, by its `at`, or by its bytes where it has none. In
    a list that only grew it is at its old place; in a list that lost its beginning, or got more in
    front, it is near its old place.
    """
    first = start.first
    if start.digest is None:  # nothing, or everything, was cut: all later messages are new
        return first if first <= len(items) else None
    if first < len(items) and _is_at(items[first], start):
        return first
    if start.at is not None:
        index = bisect_left(items, start.at, key=_sort_at)
        end = index
        while end < len(items) and at_of(items[end]) == start.at:
            end += 1
        # All messages of a run have the same position.
        same = [n for n in range(index, end) if item_of(items[n]) in (None, start.item)]
        exact = [n for n in same if digest(as_message(items[n])) == start.digest]
        places = exact or same or range(index, min(index + 1, len(items)))
        return next(iter(places), None)
    return _search(items, first, lambda item: _is_at(item, start))


def _search(
    items: Sequence[MessageLike], place: int, is_it: Callable[[MessageLike], bool]
) -> int | None:
    """Search a message at its old place, then before it, then behind it."""
    near = min(place, len(items) - 1)
    below = range(near, max(-1, near - SEARCH), -1)
    above = range(near + 1, min(len(items), near + SEARCH))
    return next((n for span in (below, above) for n in span if is_it(items[n])), None)


def _is_at(item: MessageLike, start: ConversationState) -> bool:
    if start.at is not None and (at_of(item), item_of(item)) != (start.at, start.item):
        return False
    return digest(as_message(item)) == start.digest


def item_of(message: MessageLike) -> int | None:
    """Return where a message stands on its timeline, if it is one of a timeline."""
    item = message.item if isinstance(message, Message) else None
    return None if item is None else item[1]


def _sort_at(item: MessageLike) -> float:
    at = at_of(item)
    return -inf if at is None else at
