"""Reading a slot: its newest messages, counted, in atomic groups, as far as any could fit.

Owns what belongs together (a call and its results, reasoning and its message) and how far back
to look. It takes no decision about what stays.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from typing import Any

from muntin.core.message import Message, Reasoning
from muntin.core.report import Status
from muntin.core.slot import MessageLike, Slot
from muntin.core.tokens import Counter
from muntin.errors import InvalidInput, MuntinError

# How many messages beyond the fit are looked at for a system message, or for the call of a
# result; the system messages that open a list are always found.
LOOK_BACK = 256


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

    `units` are in window order. Reading stopped at message `start`; `beyond` of the messages
    before it were not looked at. `left_out` are messages that cannot be sent: (index, reason,
    tokens).
    """

    __slots__ = (
        "beyond",
        "beyond_rank",
        "cap",
        "fallback_cap",
        "floor",
        "left_out",
        "marker",
        "marker_tokens",
        "open",
        "pending",
        "priority",
        "scattered",
        "seen",
        "slot",
        "start",
        "tokens",
        "units",
    )

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.units: list[Unit] = []
        self.tokens = 0
        self.start = 0
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


def load(slot: Slot, limit: int, counter: Counter, *, leading: bool = True) -> Load:
    """Read the slot from its newest message back until what was read exceeds `limit`.

    With `leading`, the system messages that open it are read first: they stay longest.
    """
    result = Load(slot)
    items = slot.messages
    total = first = 0
    while leading and first < len(items) and role_of(items[first]) == "system":
        message = _convert(items[first], slot, first)
        tokens = counter.message(message)
        _take(result, first, message, tokens)
        total += tokens
        first += 1
    opening, result.units = result.units, []
    index = len(items)
    while index > first and total <= limit:
        index -= 1
        item = items[index]
        message = item if item.__class__ is Message else _convert(item, slot, index)
        total += _take(result, index, message, counter.message(message))
    result.start = index
    if index > first:
        _look_back(result, first, counter)
    result.units.reverse()
    result.units = opening + result.units
    result.tokens = sum([unit.tokens for unit in result.units])
    return result


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
    if not content and not message.attachments:
        load.left_out.append((index, "empty", tokens))
        return 0
    if content.__class__ is tuple and _belongs_to_next(load, index, message):
        _prepend(load.units[-1], index, message, tokens)
        return tokens
    load.units.append(Unit(load, [index], [message], [tokens]))
    return tokens


def _take_calls(load: Load, index: int, message: Message, tokens: int) -> int:
    """Close a tool group: the message with the calls, and the results met so far."""
    indices, messages, costs = [index], [message], [tokens]
    missing = []
    for call in message.tool_calls:
        if call.id in load.open:
            (at, result, cost), *more = load.open.pop(call.id)
            if more:
                raise InvalidInput(
                    f"slot {load.slot.name!r}: messages {more[0][0]} and {at} are both results of "
                    f"tool call {call.id!r}; a call has one result"
                )
            place = bisect(indices, at)  # results come in any order
            indices.insert(place, at)
            messages.insert(place, result)
            costs.insert(place, cost)
        elif call.id in load.seen:
            raise InvalidInput(
                f"slot {load.slot.name!r}: message {index} makes a tool call with id {call.id!r} "
                "that has no result, and a later message uses the id again; ids must be unique"
            )
        else:
            missing.append(call.id)
    unit = Unit(load, indices, messages, costs)
    if missing:
        unit.missing = tuple(missing)
    if indices[-1] - indices[0] >= len(indices):
        load.scattered = True
    load.seen.update([call.id for call in message.tool_calls])
    load.pending.update(dict.fromkeys(missing, unit))
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


def _look_back(load: Load, first: int, counter: Counter) -> None:
    """Beyond the fit, find the system messages and the calls of results that were read."""
    items, end = load.slot.messages, load.start
    start = max(first, end - LOOK_BACK)
    taken = 0
    for back, role in enumerate([role_of(item) for item in items[start:end]][::-1], start=1):
        index = end - back
        if role == "system":
            message = _convert(items[index], load.slot, index)
            _take(load, index, message, counter.message(message))
            taken += 1
        elif role == "assistant" and load.open:
            for call in _convert(items[index], load.slot, index).tool_calls:
                for at, _, tokens in load.open.pop(call.id, ()):
                    load.left_out.append((at, "beyond_fit", tokens))
    load.beyond = end - first - taken


def role_of(item: MessageLike) -> Any:
    """Return the role of a message or message dict, without reading more of it."""
    if item.__class__ is Message:
        return item.role
    role = item.get("role") if isinstance(item, Mapping) else None
    return "system" if role == "developer" else role


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
    for load in loads:
        waiting = [(call_id, *result) for call_id, found in load.open.items() for result in found]
        for call_id, index, message, tokens in sorted(waiting, key=lambda result: result[1]):
            callers = [other for other in reversed(loads) if call_id in other.pending]
            caller = next((each for each in callers if _may_follow(each, load, order)), None)
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


def _caller(unit: Unit) -> Message:
    return next(message for message in unit.messages if message.tool_calls)


def _may_follow(caller: Load, follower: Load, order: dict[int, int]) -> bool:
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
