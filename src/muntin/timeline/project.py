"""Projection: the items of a timeline as the messages a model sees.

Pure. Knows what each kind of item looks like by default; a caller's projection may replace it
item by item, and several of one turn act as one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, cast

from muntin.core.checks import compact_json, replace_surrogates, shown
from muntin.core.counting.counter import Counter
from muntin.core.counting.memo import FormMemo
from muntin.core.forms import messages_from
from muntin.core.message import Message, at_position, characters_of, system, user
from muntin.core.parts import Part, Text
from muntin.core.planning.slot import MessageLike
from muntin.core.tags.xml import element
from muntin.core.usage import Usage
from muntin.errors import InvalidType
from muntin.timeline.entries import entry_of
from muntin.timeline.items import FACT, Item

Projection: TypeAlias = Callable[[Item], Sequence[MessageLike] | None]


def project(
    items: Iterable[Item],
    *,
    since: int = 0,
    projection: Projection | None = None,
    live: Collection[int] = (),
    counter: Counter | None = None,
    session: str | None = None,
) -> list[Message]:
    """Return the messages of the items after `since`, each with the position of its item.

    All items of a run stand at the position of the run; `item` tells them apart. Items that began a
    later turn stand behind the items of earlier turns. `projection` is asked once for each item
    that is not part of a run: a list replaces the default, None means the default. Context entries
    at the positions `live` are shown. Counts by `counter` that the items remember are not made
    again. With the id of their `session` the messages tell which item they show.
    """
    messages: list[Message] = []
    placing = _Placing(session, counter)
    heads, parts = _grouped(items)
    for item, at in in_turns([item for item in heads if item.position > since]):
        children = parts.get(item.position, item.items)
        projected = None
        if projection is not None:
            projected = projection(_with_items(item, children) if children else item)
        if projected is None:
            messages += _default(item, children, live, placing, at)
        else:
            shows = None if session is None else (session, item.position)
            messages += [
                at_position(message, at, None, shows) for message in _checked(projected, item)
            ]
    return messages


class _Placing:
    """Puts messages in their places, for one session and one counter."""

    __slots__ = ("_counter", "_key", "_session", "overhead")

    def __init__(self, session: str | None, counter: Counter | None) -> None:
        self._session = session
        self._counter = counter
        self._key = None if counter is None else counter.text_key  # most messages are texts
        self.overhead = 0 if counter is None else counter.overhead

    def key(self, message: Message) -> str | None:
        """Return the key under which an item keeps the count of a message."""
        return None if self._counter is None else self._counter.key(message)

    def put(
        self,
        message: Message,
        tokens: Mapping[str, int],
        at: float,
        shows: Item,
        answer: Item | None = None,
    ) -> Message:
        """Return a message that shows an item, placed at `at`; the usage of the `answer` in it may
        be another item's.

        The same message at the same place is the same object again, which memos recognise.
        """
        key, memo_key = self._key, (self._session, shows.position, self._key)
        cached = _placed.get(memo_key)
        if cached is not None and cached[0] is message and cached[1] is tokens and cached[2] == at:
            return cast("Message", cached[3])
        if key not in tokens:
            key = self.key(message) if tokens else None
        counted = (key, tokens[key]) if key is not None and key in tokens else None
        used = (answer or shows).meta.get("usage") if message.role == "assistant" else None
        known = None if used is None else Usage.from_dict(used).answer(in_run=False)
        known = known if known and known.output else None
        if self._session is None:
            return at_position(message, at, counted, None, known)
        placed = at_position(message, at, counted, (self._session, shows.position), known)
        # A message made from a payload is new each time.
        size = None if shows.message is None else characters_of(message)
        if size is not None:
            _placed.put(memo_key, (message, tokens, at, placed), size)
        return placed


# Placed messages by their items, up to this many characters in all.
_placed = FormMemo(16_000_000)
# Answers with the reasoning that led to them, by the messages they were made of.
_joined = FormMemo(4_000_000)


class Projections:
    """All projections that were given in a turn, as one projection.

    A list replaces the default, [] hides the item, None means the default. Of several projections
    the first that gives messages counts, then one that means the default. Each projection is asked
    once about the items at `positions`, however often they are read. `plain` says that the timeline
    is also shown without a projection: then none is in force.
    """

    def __init__(self, positions: Collection[int] = ()) -> None:
        self.plain = False
        self._positions = positions
        self._projections: list[Projection] = []
        self._known: dict[tuple[int, int], Sequence[MessageLike] | None] = {}

    def __bool__(self) -> bool:
        return bool(self._projections) and not self.plain

    def add(self, projection: Projection) -> Projection:
        """Put a projection into force; return the function to call in its place."""
        if not callable(projection):
            raise InvalidType(f"projection must be a function of an item, not {shown(projection)}")
        if projection not in self._projections:
            self._projections.append(projection)
        return partial(self._ask, self._projections.index(projection))

    def _ask(self, number: int, item: Item) -> Sequence[MessageLike] | None:
        if item.position not in self._positions:
            return self._projections[number](item)
        key = number, item.position
        if key not in self._known:
            self._known[key] = self._projections[number](item)
        return self._known[key]

    def __call__(self, item: Item) -> Sequence[MessageLike] | None:
        """Return the messages that are shown for an item."""
        if self.plain:
            return None
        answers = [self._ask(number, item) for number in range(len(self._projections))]
        messages = (
            messages
            for messages in answers
            if messages is not None and messages != [] and messages != ()
        )
        return next(messages, None if None in answers or not answers else [])


def check_since(since: object) -> int:
    """Return the position after which to begin; a position before the beginning becomes 0."""
    if since is None:
        return 0
    if not isinstance(since, int) or isinstance(since, bool):
        raise InvalidType(f"since must be a position (an int) or None, not {shown(since)}")
    return max(0, since)


def lasting(items: Sequence[Item], last: int) -> list[Item]:
    """Leave out items that were meant only for a turn now over."""
    return [item for item in items if not item.transient or item.turn > last]


def _grouped(items: Iterable[Item]) -> tuple[list[Item], Mapping[int, Sequence[Item]]]:
    """Return the items that are not part of a run, and the items of each run by its position."""
    runs: dict[int, Item] = {}
    children: dict[int, list[Item]] = {}
    outer: dict[int, int] = {}
    for item in items:
        run = item.run
        if run is not None and run >= item.position:
            run = None  # a run stands before its items; two could name each other
        while run is not None and run in outer:
            run = outer[run]
        if run is None or (run in runs and runs[run].kind != "run"):
            runs[item.position] = item
            continue
        if item.kind == "run":
            outer[item.position] = run
        children.setdefault(run, []).append(item)
    for run, parts in children.items():
        # A run that began before the first item read is known only by its items.
        if run not in runs:
            runs[run] = Item(run, "run", parts[0].turn)
    return [runs[position] for position in sorted(runs)], children


def in_turns(items: Sequence[Item]) -> list[tuple[Item, float]]:
    """Return items with the place where each is shown: turn by turn.

    A message may arrive before the run of the turn before it begins. That run is shown in front of
    the message, between its position and the one before.
    """
    newest = 0
    for item in items:
        if item.turn < newest:
            break
        newest = item.turn
    else:
        return [(item, item.position) for item in items]
    # Where each turn begins, and the turns that begin later, the oldest first.
    begins: dict[int, int] = {}
    for item in items:
        begins.setdefault(item.turn, item.position)
    placed: list[tuple[Item, float]] = []
    for item in items:
        later = [at for turn, at in begins.items() if turn > item.turn and at < item.position]
        placed.append((item, min(later) - 0.5 if later else item.position))
    return sorted(placed, key=lambda pair: (pair[1], pair[0].turn, pair[0].position))


def _with_items(run: Item, items: Sequence[Item]) -> Item:
    """Return a run with its children; like `replace`, but several times as fast."""
    return Item(
        run.position,
        run.kind,
        run.turn,
        run.message,
        run.payload,
        run=run.run,
        time=run.time,
        visibility=run.visibility,
        transient=run.transient,
        meta=run.meta,
        tokens=run.tokens,
        items=tuple(items),
    )


def _default(
    item: Item, children: Sequence[Item], live: Collection[int], placing: _Placing, at: float
) -> list[Message]:
    if item.kind != "run" and item.message is not None:  # most items
        return [placing.put(item.message, item.tokens, at, item)]
    messages: list[Message] = []
    thoughts: list[Item] = []
    for child in children if item.kind == "run" else (item,):
        if child.kind == "reasoning" and item.kind == "run":
            thoughts.append(child)
            continue
        for message in default_messages(child, live):
            if thoughts and message.role == "assistant":
                messages.append(_answer_with_reasoning([*thoughts, child], placing, at))
                thoughts = []
            else:
                messages.append(placing.put(message, child.tokens, at, child))
    if thoughts:
        messages.append(_answer_with_reasoning(thoughts, placing, at))
    return messages


def _answer_with_reasoning(items: Sequence[Item], placing: _Placing, at: float) -> Message:
    """Return an answer with its reasoning in front, as it goes back to the model."""
    *thoughts, last = (item.message for item in items if item.message is not None)
    if not thoughts:
        return placing.put(last, items[-1].tokens, at, items[-1])
    joint = _joint(thoughts, last)
    tokens: dict[str, int] = {}
    key = placing.key(joint)
    if key is not None and all(key in item.tokens for item in items):
        # One message now, so the overhead is counted once.
        spared = placing.overhead * (len(items) - 1)
        tokens = {key: sum(item.tokens[key] for item in items) - spared}
    return placing.put(joint, tokens, at, items[0], items[-1])


def _joint(thoughts: Sequence[Message], last: Message) -> Message:
    """Return an answer with its reasoning as one message, the same each time."""
    key = (id(last), *map(id, thoughts))
    cached = _joined.get(key)
    if cached is not None and all(map(operator.is_, cached[1:], (last, *thoughts))):
        return cast("Message", cached[0])
    content = tuple(part for message in (*thoughts, last) for part in _parts(message))
    joint = replace(last, content=content)
    size = characters_of(joint)
    if size is not None:
        _joined.put(key, (joint, last, *thoughts), size)
    return joint


def default_messages(item: Item, live: Collection[int] = ()) -> list[Message]:
    """Return the messages of one item by default; a run by itself has none."""
    if item.message is not None:
        return [item.message]
    if item.kind in ("message", "wake"):
        return [user(_text(item.payload))]
    if item.kind in ("signal", "error"):
        content = item.meta.get(FACT, item.payload) if item.kind == "error" else item.payload
        return [user(_tag(item.kind, content))]
    if item.kind == "context_inserted" and item.position in live:
        return [system(entry_of(item).render())]
    return []


def _text(payload: Any) -> str:
    text = payload if isinstance(payload, str) else compact_json(payload)
    return replace_surrogates(text)


def _tag(name: str, payload: Any) -> str:
    """Return a payload as an escaped tag of one line."""
    attributes = {}
    if isinstance(payload, dict) and isinstance(payload.get("type"), str):
        attributes["type"] = payload["type"]
        rest = {key: value for key, value in payload.items() if key != "type"}
        payload = rest.get("payload") if list(rest) == ["payload"] else rest or ""
    text = _text(payload)
    if text.splitlines() not in ([], [text]):
        text = compact_json(payload).translate(_LINE_ENDS)
    return element(name, attributes, text)


# Characters that end a line and yet stand unescaped in JSON.
_LINE_ENDS = {ord(character): f"\\u{ord(character):04x}" for character in "\x85\u2028\u2029"}


def _parts(message: Message) -> tuple[Part, ...]:
    if isinstance(message.content, tuple):
        return message.content
    return (Text(message.content),) if message.content else ()


def _checked(messages: object, item: Item) -> list[Message]:
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise InvalidType(
            f"the projection of the {item.kind} item at {item.position} must be a list of "
            f"messages or None, not {shown(messages)}"
        )
    return messages_from(messages)
