"""Projection: the items of a timeline as the messages a model sees.

Pure. Knows what each kind of item looks like by default; a caller's projection may replace it
item by item, and several of one turn act as one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from muntin.core.checks import compact_json, replace_surrogates, shown
from muntin.core.counting.counter import Counter
from muntin.core.forms import messages_from
from muntin.core.message import Message, at_position, system, user
from muntin.core.parts import Part, Text
from muntin.core.planning.slot import MessageLike
from muntin.core.tags.xml import element
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

    A run stands with all its items at its own position; `item` tells them apart. What began a
    later turn stands behind what was said in the turns before it. `projection` is
    asked once for each item that is not part of a run: a list replaces the default, None means
    the default. Of the context entries those at the positions `live` are shown. What `counter`
    once counted and the items remember is not counted again. With the id of their `session` the
    messages tell which item they show.
    """
    messages: list[Message] = []
    plain = None if counter is None else counter.text_key
    for item, at in in_turns([item for item in top_level(items) if item.position > since]):
        place = _Place(at, None if session is None else (session, item.position), counter, plain)
        given = None if projection is None else projection(item)
        if given is None:
            messages += _default(item, live, place)
        else:
            messages += [place.put(each, {}) for each in _checked(given, item)]
    return messages


class _Place(NamedTuple):
    """Where the messages of one item stand; `plain` is the key of the counts of texts."""

    position: float
    item: tuple[str, int] | None
    counter: Counter | None
    plain: str | None

    def put(
        self, message: Message, tokens: Mapping[str, int], position: int | None = None
    ) -> Message:
        """Place a message; `position` is that of its own item, where it is part of a run."""
        counter, item, key = self.counter, self.item, self.plain
        if key not in tokens:  # most messages are texts
            key = counter.key(message) if counter is not None and tokens else None
        known = (key, tokens[key]) if key is not None and key in tokens else None
        if item is not None and position is not None:
            item = item[0], position
        return at_position(message, self.position, known, item)


class Projections:
    """The projections that were given in a turn, as one: what is in force.

    A list replaces the default, [] hides the item, None means the default: of several projections
    the first that gives messages counts, then one that means the default. The items at
    `positions` are shown to each of them once, however often they are looked at. `plain` says that
    the timeline is shown without a projection too: then nothing is in force.
    """

    def __init__(self, positions: Collection[int] = ()) -> None:
        self.plain = False
        self._positions = positions
        self._given: list[Projection] = []
        self._known: dict[tuple[int, int], Sequence[MessageLike] | None] = {}

    def __bool__(self) -> bool:
        return bool(self._given) and not self.plain

    def add(self, projection: Projection) -> Projection:
        """Put a projection into force, and return it as it is to be asked."""
        if not callable(projection):
            raise InvalidType(f"projection must be a function of an item, not {shown(projection)}")
        if projection not in self._given:
            self._given.append(projection)
        return partial(self._ask, self._given.index(projection))

    def _ask(self, number: int, item: Item) -> Sequence[MessageLike] | None:
        if item.position not in self._positions:
            return self._given[number](item)
        key = number, item.position
        if key not in self._known:
            self._known[key] = self._given[number](item)
        return self._known[key]

    def __call__(self, item: Item) -> Sequence[MessageLike] | None:
        """Return what is shown of an item."""
        if self.plain:
            return None
        answers = [self._ask(number, item) for number in range(len(self._given))]
        shown = (each for each in answers if each is not None and each != [] and each != ())
        return next(shown, None if None in answers or not answers else [])


def check_since(since: object) -> int:
    """Return the position after which to begin; what lies before the beginning is the beginning."""
    if since is None:
        return 0
    if not isinstance(since, int) or isinstance(since, bool):
        raise InvalidType(f"since must be a position (an int) or None, not {shown(since)}")
    return max(0, since)


def lasting(items: Sequence[Item], last: int) -> list[Item]:
    """Leave out what was only meant for a turn that is over."""
    return [item for item in items if not item.transient or item.turn > last]


def top_level(items: Iterable[Item]) -> list[Item]:
    """Return the items that are not part of a run, each run with its items.

    A run inside of a run is part of the outer one.
    """
    found: dict[int, Item] = {}
    children: dict[int, list[Item]] = {}
    outer: dict[int, int] = {}
    for item in items:
        run = item.run
        if run is not None and run >= item.position:
            run = None  # no run begins behind its items; two could name each other
        while run is not None and run in outer:
            run = outer[run]
        if run is None or (run in found and found[run].kind != "run"):
            found[item.position] = item
            continue
        if item.kind == "run":
            outer[item.position] = run
        children.setdefault(run, []).append(item)
    for run, parts in children.items():
        # A run that began before the first item read is known only by its items.
        known = found.get(run) or Item(run, "run", parts[0].turn)
        found[run] = _with_items(known, parts)
    return [found[position] for position in sorted(found)]


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
    shown: list[tuple[Item, float]] = []
    for item in items:
        later = [at for turn, at in begins.items() if turn > item.turn and at < item.position]
        shown.append((item, min(later) - 0.5 if later else item.position))
    return sorted(shown, key=lambda each: (each[1], each[0].turn, each[0].position))


def _with_items(run: Item, items: Sequence[Item]) -> Item:
    """Return a run with its children; what `replace` does, several times as fast."""
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


def _default(item: Item, live: Collection[int], place: _Place) -> list[Message]:
    children = item.items if item.kind == "run" else (item,)
    messages: list[Message] = []
    thoughts: list[Item] = []
    for child in children:
        if child.kind == "reasoning" and item.kind == "run":
            thoughts.append(child)
            continue
        for message in default_messages(child, live):
            if message.role == "assistant":
                messages.append(_told([*thoughts, child], place))
                thoughts = []
            else:
                messages.append(place.put(message, child.tokens, child.position))
    if thoughts:
        messages.append(_told(thoughts, place))
    return messages


def _told(items: Sequence[Item], place: _Place) -> Message:
    """Return an answer with the reasoning that led to it in front, as it goes back to the model."""
    *thoughts, last = (item.message for item in items if item.message is not None)
    if not thoughts:
        return place.put(last, items[-1].tokens, items[-1].position)
    content = tuple(part for message in (*thoughts, last) for part in _parts(message))
    told = replace(last, content=content)
    tokens: dict[str, int] = {}
    counter = place.counter
    key = counter.key(told) if counter is not None else None
    if counter is not None and key is not None and all(key in item.tokens for item in items):
        # One message now, so the overhead is counted once.
        spared = counter.overhead * (len(items) - 1)
        tokens = {key: sum(item.tokens[key] for item in items) - spared}
    return place.put(told, tokens, items[0].position)


def default_messages(item: Item, live: Collection[int] = ()) -> list[Message]:
    """Return what one item looks like by default; a run by itself looks like nothing."""
    if item.message is not None:
        return [item.message]
    if item.kind in ("message", "wake"):
        return [user(_text(item.payload))]
    if item.kind in ("signal", "error"):
        told = item.meta.get(FACT, item.payload) if item.kind == "error" else item.payload
        return [user(_tag(item.kind, told))]
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


# What ends a line and yet stands in JSON as it is.
_LINE_ENDS = {ord(each): f"\\u{ord(each):04x}" for each in "\x85\u2028\u2029"}


def _parts(message: Message) -> tuple[Part, ...]:
    if isinstance(message.content, tuple):
        return message.content
    return (Text(message.content),) if message.content else ()


def _checked(given: object, item: Item) -> list[Message]:
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise InvalidType(
            f"the projection of the {item.kind} item at {item.position} must be a list of "
            f"messages or None, not {shown(given)}"
        )
    return messages_from(given)
