"""Reading a slot: its newest messages, counted, in atomic groups, as far as any could fit.

Owns what belongs together (a call and its results, reasoning and its message) and how far back
to look. It takes no decision about what stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from muntin.core.counting.counter import Counter
from muntin.core.message import Message, role_of
from muntin.core.parts import Part, Reasoning, Text
from muntin.core.planning.slot import MessageLike, Slot
from muntin.core.report import Status
from muntin.errors import InvalidInput, MuntinError

# How many messages beyond the fit are looked at for a system message, or for the call of a
# result; the system messages that open a list are always found.
LOOK_BACK = 100


class Unit:
    """An atomic group of messages of one slot: kept, cut or dropped together.

    `mates` are the parts of the same group in other slots. `held` units are never dropped.
    """

    # Defaults live on the class: most units never need their own.
    held = False
    missing: tuple[str, ...] = ()
    mates: tuple[Unit, ...] = ()
    status: Status = "kept"
    reason: str | None = None
    rank: int | None = None
    fits_with: int | None = None

    def __init__(
        self, load: Load, indices: list[int], messages: list[Message], costs: list[int]
    ) -> None:
        self.load = load
        self.indices = indices
        self.messages = messages
        self.costs = costs
        self.tokens = self.asked = costs[0] if len(costs) == 1 else sum(costs)
        self.system = messages[0].role == "system"


class Load:
    """What was read of one slot.

    `units` are in window order. `unread` are the messages where reading had stopped, `beyond` how
    many of them were really not looked at. `left_out` are messages that cannot be sent: (index,
    reason, tokens). `start` is the message a history begins at, None for all other slots.
    """

    __slots__ = (
        "beyond",
        "beyond_rank",
        "cap",
        "fallback_cap",
        "floor",
        "left_out",
        "limit",
        "marker",
        "marker_tokens",
        "open",
        "pending",
        "priority",
        "scattered",
        "seen",
        "size",
        "slot",
        "start",
        "tokens",
        "units",
        "unread",
        "until",
    )

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.units: list[Unit] = []
        self.tokens = 0
        self.unread = range(0)
        self.size = len(slot.messages)
        self.limit = 0
        self.until: int | None = None
        self.start: int | None = None
        self.beyond = 0
        self.beyond_rank: int | None = None
        self.left_out: list[tuple[int, str, int]] = []
        # Ids of the calls that were read, and those of them that have no result yet.
        self.seen: set[str] = set()
        self.pending: dict[str, Unit] = {}
        # Results whose call was not met yet: id -> [(index, message, tokens)].
        self.open: dict[str, list[tuple[int, Message, int]]] = {}
        self.scattered = False
        self.cap: int | None = None
        self.fallback_cap: int | None = None
        self.floor = 0
        self.priority = slot.priority
        self.marker: Message | None = None
        self.marker_tokens = 0

    def is_cut(self) -> bool:
        """Say whether anything of the slot is missing."""
        return bool(self.beyond) or any(unit.status != "kept" for unit in self.units)

    def kept(self) -> list[Message]:
        """Return the messages that stay, in order, the marker first."""
        units = self.units
        if self.scattered:
            pairs = [
                pair
                for unit in units
                if unit.status != "dropped"
                for pair in zip(unit.indices, unit.messages, strict=True)
            ]
            messages = [message for _, message in sorted(pairs, key=lambda pair: pair[0])]
        else:
            messages = [m for unit in units if unit.status != "dropped" for m in unit.messages]
        return messages if self.marker is None else [self.marker, *messages]


def load(
    slot: Slot,
    limit: int,
    counter: Counter,
    *,
    leading: bool = True,
    until: int | None = None,
    start: int = 0,
) -> Load:
    """Read the slot from its newest message back until what was read exceeds `limit`.

    With `leading`, the system messages that open it are read first: they stay longest. `until` is
    the index of a message that must be read in any case; before `start` nothing else is.
    """
    result = Load(slot)
    items = slot.messages
    if slot.made:  # one message, and something is in it
        made = cast("Message", items[0])
        result.tokens = counter.message(made)
        result.units.append(Unit(result, [0], [made], [result.tokens]))
        return result
    total = first = 0
    while leading and first < len(items) and role_of(items[first]) == "system":
        message = _convert(items[first], slot, first)
        tokens = counter.message(message)
        _take(result, first, message, tokens)
        total += tokens
        first += 1
    opening, result.units = result.units, []
    index = len(items)
    stop = index if until is None else until
    while index > first and ((total <= limit and index > start) or index > stop):
        index -= 1
        item = items[index]
        message = item if item.__class__ is Message else _convert(item, slot, index)
        total += _take(result, index, message, counter.message(message))
    if index > first:
        result.unread = range(first, index)
        _look(result, range(index - 1, max(first, index - LOOK_BACK) - 1, -1), counter)
    _finish(result, opening)
    return result


def load_head(slot: Slot, limit: int, counter: Counter, *, until: int | None = None) -> Load:
    """Read the slot from its oldest message on, for a slot that keeps its beginning."""
    if slot.made:
        return load(slot, limit, counter)
    stop = -1 if until is None else until
    result = Load(slot)
    items = slot.messages
    total = end = 0
    unanswered: set[str] = set()
    while end < len(items) and (total <= limit or end <= stop):
        message = _convert(items[end], slot, end)
        if message.tool_call_id is None or message.tool_call_id in unanswered:
            total += counter.message(message)  # a result without a call is not sent
        unanswered.discard(message.tool_call_id or "")
        unanswered.update(call.id for call in message.tool_calls)
        end += 1
    if end < len(items):
        result.unread = range(end, len(items))
        _look(result, range(min(len(items), end + LOOK_BACK) - 1, end - 1, -1), counter)
        _take_answers(result, unanswered, result.unread, counter)
    for index in range(end - 1, -1, -1):
        message = _convert(items[index], slot, index)
        _take(result, index, message, counter.message(message))
    _finish(result, [])
    return result


def _take_answers(load: Load, unanswered: set[str], indices: range, counter: Counter) -> None:
    """Take the results of these calls from messages that were not read."""
    for index in indices if unanswered else ():
        if role_of(load.slot.messages[index]) == "tool":
            message = _convert(load.slot.messages[index], load.slot, index)
            if message.tool_call_id in unanswered:
                unanswered.discard(message.tool_call_id)
                _take(load, index, message, counter.message(message))
        if not unanswered:
            return


def _finish(load: Load, opening: list[Unit]) -> None:
    load.units.reverse()
    load.units = opening + load.units
    load.tokens = sum([unit.tokens for unit in load.units])
    if load.unread:
        looked_at = [index for unit in load.units for index in unit.indices]
        looked_at += [index for index, _, _ in load.left_out]
        load.beyond = len(load.unread) - sum([index in load.unread for index in looked_at])


def _take(load: Load, index: int, message: Message, tokens: int) -> int:
    """Put one message, older than those read before it, into its unit; return the tokens that
    now are certain to belong to it (a result waits for its call)."""
    if message.tool_calls:
        return _take_calls(load, index, message, tokens)
    role = message.role
    if role == "tool" and message.tool_call_id is not None:
        load.open.setdefault(message.tool_call_id, []).append((index, message, tokens))
        return 0
    content = message.content
    if not message.attachments and _is_nothing(content):
        load.left_out.append((index, "empty", tokens))
        return 0
    if content.__class__ is tuple and _belongs_to_next(load, index, message):
        _prepend(load.units[-1], index, message, tokens)
        return tokens
    load.units.append(Unit(load, [index], [message], [tokens]))
    return tokens


def _is_nothing(content: str | tuple[Part, ...] | None) -> bool:
    if not content:
        return True
    return not isinstance(content, str) and all(isinstance(p, Text) and not p.text for p in content)


def _take_calls(load: Load, index: int, message: Message, tokens: int) -> int:
    """Close a tool group: the message with the calls, and the results met so far."""
    members = [(index, message, tokens)]
    missing = []
    for call in message.tool_calls:
        results = load.open.pop(call.id, None)
        if results is None:
            if call.id in load.seen:
                raise InvalidInput(
                    f"slot {load.slot.name!r}: message {index} makes a tool call with id "
                    f"{call.id!r} that has no result, and a later message uses the id again; "
                    "ids must be unique"
                )
            missing.append(call.id)
        elif len(results) > 1:
            raise InvalidInput(
                f"slot {load.slot.name!r}: messages {results[1][0]} and {results[0][0]} are both "
                f"results of tool call {call.id!r}; a call has one result"
            )
        else:
            members += results
        load.seen.add(call.id)
    if len(members) > 2:  # results come in any order
        members.sort(key=lambda member: member[0])
    indices = [member[0] for member in members]
    unit = Unit(load, indices, [member[1] for member in members], [m[2] for m in members])
    if missing:
        unit.missing = tuple(missing)
        load.pending.update(dict.fromkeys(missing, unit))
    if indices[-1] - indices[0] >= len(indices):
        load.scattered = True
    load.units.append(unit)
    return unit.tokens


def _belongs_to_next(load: Load, index: int, message: Message) -> bool:
    """Say whether this is bare reasoning, directly before the assistant message it led to."""
    return (
        message.role == "assistant"
        and all(isinstance(part, Reasoning) for part in message.content or ())
        and bool(load.units)
        and load.units[-1].indices[0] == index + 1
        and load.units[-1].messages[0].role == "assistant"
    )


def _prepend(unit: Unit, index: int, message: Message, tokens: int) -> None:
    unit.indices.insert(0, index)
    unit.messages.insert(0, message)
    unit.costs.insert(0, tokens)
    unit.tokens += tokens
    unit.asked += tokens


def _look(load: Load, indices: range, counter: Counter) -> None:
    """Beyond the fit, find the system messages and the calls of results that were read."""
    items = load.slot.messages
    near = items[min(indices) : max(indices) + 1]
    roles = [item.role if item.__class__ is Message else role_of(item) for item in near]
    if not load.open and "system" not in roles:
        return
    for index, role in zip(indices, reversed(roles), strict=True):
        if role == "system":
            message = _convert(items[index], load.slot, index)
            _take(load, index, message, counter.message(message))
        elif role == "assistant" and load.open:
            message = _convert(items[index], load.slot, index)
            ids = {call.id for call in message.tool_calls}
            if ids.isdisjoint(load.open):
                continue
            if load.slot.trim_behavior == "char":  # its texts may outlive older messages
                between = range(index + 1, load.unread.stop)
                _take_answers(load, ids - set(load.open), between, counter)
                _take(load, index, message, counter.message(message))
            for call_id in ids:
                for at, _, tokens in load.open.pop(call_id, ()):
                    load.left_out.append((at, "beyond_fit", tokens))


def _convert(item: MessageLike, slot: Slot, index: int) -> Message:
    """Return the item as a Message; an error names slot and message."""
    if isinstance(item, Message):
        return item
    try:
        return Message.from_dict(item)
    except MuntinError as error:
        raise type(error)(f"slot {slot.name!r}, message {index}: {error}") from error


def link(loads: Sequence[Load], counter: Counter) -> None:
    """Join groups across slots, leave out results without a call, and count missing results.

    `loads` are in window order. A result belongs to the nearest call before it that has its id
    and no result (inside an interleaved group of slots the order is found later, so any call of
    the group will do): an id may be used again once it is answered, as real traffic does.
    """
    order = {id(load): place for place, load in enumerate(loads)}
    pending: dict[str, list[Load]] = {}
    for load in reversed(loads):
        for call_id in load.pending:
            pending.setdefault(call_id, []).append(load)
    for load in loads:
        waiting = [(call_id, *result) for call_id, found in load.open.items() for result in found]
        for call_id, index, message, tokens in sorted(waiting, key=lambda result: result[1]):
            callers = [other for other in pending.get(call_id, ()) if call_id in other.pending]
            caller = next((each for each in callers if may_follow(each, load, order)), None)
            if caller is None:
                load.left_out.append((index, "orphaned", tokens))
                continue
            unit = caller.pending.pop(call_id)
            unit.missing = tuple(known for known in unit.missing if known != call_id)
            _add_mate(unit, Unit(load, [index], [message], [tokens]))
    unanswered: dict[str, Load] = {}
    for load in loads:
        for call_id, unit in load.pending.items():
            if call_id in unanswered:
                raise InvalidInput(
                    f"slots {unanswered[call_id].slot.name!r} and {load.slot.name!r} both make a "
                    f"tool call with id {call_id!r} that has no result; ids must be unique"
                )
            unanswered[call_id] = load
            tokens = counter.missing_result()
            unit.costs[unit.messages.index(_caller(unit))] += tokens
            unit.tokens += tokens
            unit.asked += tokens
            load.tokens += tokens


def find(load: Load, called: set[str], answered: set[str], most: int) -> int | None:
    """Return the farthest unread message, of the nearest `most`, that makes one of the calls
    `called` or is a result of one of `answered`; roles are read, nothing is counted."""
    unread, items = load.unread, load.slot.messages
    tail = unread.stop < len(items) or unread.start == 0  # the newest were read
    near = unread[-most:] if tail else unread[:most]
    found = []
    for index in near:
        role = role_of(items[index])
        if role == "assistant" and called:
            calls = _convert(items[index], load.slot, index).tool_calls
            if any(call.id in called for call in calls):
                found.append(index)
        elif (
            role == "tool"
            and answered
            and _convert(items[index], load.slot, index).tool_call_id in answered
        ):
            found.append(index)
    if not found:
        return None
    return min(found) if tail else max(found)


def _caller(unit: Unit) -> Message:
    return next(message for message in unit.messages if message.tool_calls)


def may_follow(caller: Load, follower: Load, order: dict[int, int]) -> bool:
    """Say whether a result in one slot may belong to a call in another."""
    group = caller.slot.group
    if group is not None and group.interleave and group == follower.slot.group:
        return True
    return order[id(caller)] < order[id(follower)]


def _add_mate(unit: Unit, mate: Unit) -> None:
    """Put a result of another slot's call into its own slot, tied to that call."""
    load = mate.load
    load.tokens += mate.tokens
    load.units.append(mate)
    load.units.sort(key=lambda each: each.indices[0])
    family = (unit, *unit.mates, mate)
    for member in family:
        member.mates = tuple(other for other in family if other is not member)
