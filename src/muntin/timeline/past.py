"""The past as messages, read when they are needed.

A timeline may be long, and a window short: code that needs only the newest messages calls `newest`.
"""

from __future__ import annotations

import math
from collections import Counter as Bag
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import takewhile
from threading import Lock
from typing import NamedTuple, overload

from muntin.core.message import Input, Message
from muntin.core.planning.compact import LEAST
from muntin.errors import InvalidInput
from muntin.threads import aside, in_thread
from muntin.timeline.history import History
from muntin.timeline.items import Item, unshared
from muntin.timeline.project import Projection, check_since, lasting, project
from muntin.timeline.recall.excerpts import Recalled
from muntin.timeline.recall.stored import before_turn, recall
from muntin.timeline.session import Session

# How many turns of a history are read at first; then four times as many.
PAGE = 50

# So many tokens are read for the last messages of a list; if that is too little, more, then all.
_FEW = (2_000, 16_000)

# A run of more items is not read whole to find its beginning.
_LONG_RUN = 2_000

# How many items before the frontier of a run are read at a time.
_ITEMS = 500


class WindowStart(NamedTuple):
    """Where windows that follow one another begin: at the item `item`, shown at the position `at`
    if it is part of a run."""

    at: int
    item: int


@dataclass(frozen=True, slots=True)
class Read:
    """The newest items of a timeline, read ahead: all items behind the position `after`.

    `live` is where live entries stand, `last` the newest completed turn.
    """

    items: Sequence[Item]
    after: int
    live: Collection[int]
    last: int
    # The same as messages: by position, projection, and whether entries are shown.
    messages: dict[tuple[int, Projection | None, bool], list[Message]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def with_entry(self, item: Item) -> Read:
        """Return a copy with a context entry that was inserted since."""
        read = self.without_entry(item.payload["id"])
        return replace(read, items=[*read.items, item], live={*read.live, item.position})

    def without_entry(self, id: str) -> Read:
        """Return a copy without a context entry that was removed since."""
        gone = {
            item.position
            for item in self.items
            if item.kind == "context_inserted" and item.payload["id"] == id
        }
        return replace(self, live=set(self.live) - gone)


class NewestMessages(list[Message]):
    """The newest messages of a timeline; `earlier` is about how many messages, and how many tokens,
    lie before them."""

    def __init__(self, messages: Iterable[Message], earlier: tuple[int, int] = (0, 0)) -> None:
        super().__init__(messages)
        self.earlier = earlier


def without(messages: Sequence[Message], positions: Collection[float | None]) -> NewestMessages:
    """Return messages without the ones at these positions."""
    rest = [message for message in messages if message.at not in positions]
    return NewestMessages(rest, getattr(messages, "earlier", (0, 0)))


class TimelineMessages(Sequence[Message]):
    """The messages of a session up to a turn, like a list.

    In async code, items that were not read ahead are read in a thread, while the event loop waits;
    `await messages.load()` reads all messages without blocking the event loop.
    """

    def __init__(
        self,
        session: Session,
        turn: int,
        since: int | None = None,
        projection: Projection | None = None,
        *,
        entries: bool = True,
        ahead: Read | None = None,
        begins: Callable[[], WindowStart | None] = lambda: None,
    ) -> None:
        self._session = session
        self._turn = turn
        self._since = 0 if since is None else check_since(since)
        self._projection = projection
        self._entries = entries
        self._ahead = ahead
        # Where the window before begins: everything since then is read, however long it is.
        self._begins = begins
        # The newest messages that are known, and how many tokens they have at least.
        self._known: tuple[float, NewestMessages] = (-1, NewestMessages(()))

    def __repr__(self) -> str:
        return f"<messages of {self._session.id!r} up to turn {self._turn}>"

    async def load(self) -> TimelineMessages:
        """Read all messages, without blocking the event loop, and return this list."""
        await in_thread(self._all)
        return self

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice) and index.stop is index.step is None and (index.start or 0) < 0:
            for tokens in _FEW:
                newest = self.newest(tokens)
                if len(newest) >= -index.start:
                    return list(newest)[index]
        return self._all()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Iterable[Message]) -> list[Message]:
        return [*self._all(), *other]

    def __radd__(self, other: Iterable[Message]) -> list[Message]:
        return [*other, *self._all()]

    def _all(self) -> NewestMessages:
        return self.newest(math.inf)

    def newest(self, tokens: float, since: Sequence[Item] | None = None) -> NewestMessages:
        """Return at least the newest messages of `tokens` tokens, or all.

        `since` are the items of the turn and of later turns, where they are known.
        """
        if self._known[0] < tokens:
            read = self._ahead
            if read is None or not self._reaches(read, tokens):
                read = aside(lambda: self.read_newest(tokens, since))
            messages = self._messages_of(read)
            earlier = (0, 0) if read.after <= self._since else self._earlier(messages)
            self._known = tokens, NewestMessages(messages, earlier)
        return self._known[1]

    def _reaches(self, read: Read, tokens: float) -> bool:
        """Say whether these are all items, or more than `tokens` are shown of them."""
        return read.after <= self._since or self._weigh(self._messages_of(read)) > tokens

    def _earlier(self, messages: Sequence[Message]) -> tuple[int, int]:
        """Return about how many messages and tokens lie before the newest: as many for each
        position of the timeline as there are among the newest."""
        end = len(messages)
        while end and messages[end - 1].role == "user":  # the input of this turn
            end -= 1
        items = [message.item[1] for message in messages[:end] if message.item is not None]
        if len(items) < 2 or items[0] <= self._since + 1:
            return 0, 0
        earlier = round((items[0] - self._since - 1) * len(items) / (items[-1] - items[0] + 1))
        tokens = sum(map(self._session.counter.message, messages[:end]))
        return earlier, round(earlier * tokens / end)

    def read_newest(self, tokens: float, since: Sequence[Item] | None = None) -> Read:
        """Read the items of at least the newest messages of `tokens` tokens.

        `since` are the items of the turn and of later turns, where they are known.
        """
        session = self._session
        if tokens == math.inf:
            return self._read(self._since)
        if since is None:
            since = session.opened().read(session.id, view="history", first_turn=self._turn)
        # The weight of this turn's items is not part of the past.
        weight = int(tokens) + sum(map(session.count, since)) + 1
        begins, read = self._begins(), None
        while True:
            start = 1
            for oldest in session.store.read(session.id, weight=weight, oldest=1):
                start = oldest.position
                if oldest.run is not None and start - oldest.run < _LONG_RUN:
                    start = oldest.run
            if begins is not None and begins.at < start:
                return self._with_question(self._read_from(begins))
            after = max(self._since, start - 1)
            read = self._read(after, read)
            whole = self._with_question(read)
            if self._reaches(whole, tokens):
                return whole
            weight *= 2  # hidden items or another tokenizer's counts weighed in

    def _with_question(self, read: Read) -> Read:
        """Return the items with the ones that began their turn, if the first of them is inside a
        run: they asked for the run."""
        first = read.items[0] if read.items else None
        if first is None or (first.run is None and first.kind != "run"):
            return read
        items = self._session.opened().read(
            self._session.id,
            view="history",
            after=self._since,
            before=first.position,
            first_turn=first.turn,
            last_turn=first.turn,
            oldest=_ITEMS,
        )
        question = list(takewhile(lambda item: item.run is None and item.kind != "run", items))
        live = {*read.live, *self._session.live(question)} if self._entries else ()
        return replace(read, items=[*question, *read.items], live=live)

    def _read_from(self, begins: WindowStart) -> Read:
        """Read the items from a place on; without earlier items of its run, which no window shows
        again."""
        at, item = begins
        if self._projection is not None or at == item:
            return self._read(max(self._since, at - 1))
        read, id = self._session.opened().read, self._session.id
        between: list[Item] = []
        after = max(self._since, at - 1)
        while page := read(id, view="history", after=after, before=item, oldest=_ITEMS):
            between += [item for item in page if item.run != at]
            after = page[-1].position
        newer = self._read(max(self._since, item - 1))
        live = self._session.live([*between, *newer.items]) if self._entries else ()
        return replace(newer, items=[*between, *newer.items], after=at - 1, live=live)

    def _weigh(self, messages: Sequence[Message]) -> int:
        """Count the tokens that are shown of the messages at least: nothing of a result whose call
        lies further back, and of any other result no more than a line."""
        counter, called = self._session.counter, Bag[str]()
        total = 0
        for message in messages:
            if message.tool_calls:
                called.update([call.id for call in message.tool_calls])
            if message.tool_call_id is None:
                total += counter.message(message)
            elif called[message.tool_call_id]:
                called[message.tool_call_id] -= 1
                total += min(counter.message(message), counter.overhead + LEAST)
        return total

    @property
    def plain(self) -> bool:
        """Whether no projection was given."""
        return self._projection is None

    @property
    def first(self) -> int:
        """The first position that may be shown."""
        return self._since + 1

    def _read(self, after: int, newer: Read | None = None) -> Read:
        """Read the items behind a position; `newer` are items that are known already."""
        session = self._session
        read = partial(session.opened().read, session.id, view="history", shared=True)
        if newer is None or self._projection is not None:  # a projection needs whole runs
            newer = Read((), after, (), 0)
        known = newer.items
        before = newer.after + 1 if known else None
        items = read(after=after, before=before, last_turn=self._turn)
        items = [*items, *known]
        if self._projection is not None and after > self._since:
            # A projection is shown whole runs: read the beginning of a run that was cut.
            runs = [item.run for item in items if item.run is not None and item.run <= after]
            if runs:
                start = max(self._since, min(runs) - 1)
                items = read(after=start, last_turn=self._turn)
        transient = True in [item.transient for item in items]
        live = session.live(items) if self._entries else ()
        return Read(items, after, live, session.last() if transient else 0)

    def _messages_of(self, read: Read) -> list[Message]:
        """Return the messages of items; leave out items that were only for a turn now over."""
        key = self._since, self._projection, self._entries
        if key not in read.messages:
            items = read.items
            if self._projection is not None:  # a store may share its items
                items = [unshared(item) for item in items]
            read.messages[key] = project(
                lasting(items, read.last),
                since=self._since,
                projection=self._projection,
                live=read.live if self._entries else (),
                counter=self._session.counter,
                session=self._session.id,
            )
        return read.messages[key]


class Pages(NamedTuple):
    """What was read of a history: so many turns at most, as messages, and whether these are all."""

    turns: int = 0
    messages: Sequence[Message] = ()
    is_whole: bool = False


class PastHistory(History):
    """The conversation of a session before a turn, read as far as it is needed.

    In async code the first page may be read ahead. Older turns are read in a thread, while the
    event loop waits; `await history.load()` reads all of them without blocking the event loop.
    """

    __slots__ = ("_lock", "_pages", "_session", "_turn")

    def __init__(self, session: Session, turn: int) -> None:
        super().__init__(counter=session.counter)
        self._session = session
        self._turn = turn
        # Threads may look at once: what was read is one value, which only changes as a whole.
        self._pages = Pages()
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"<History of {self._session.id!r} before turn {self._turn}>"

    async def load(self) -> PastHistory:
        """Read the whole history, without blocking the event loop, and return it."""
        await in_thread(self._all)
        return self

    def read_page(self) -> None:
        """Read the newest turns ahead; for code that runs in a thread."""
        self._read_on(lambda messages: self._pages.turns > 0)

    def relevant(
        self,
        query: str | Input,
        *,
        tokens: int,
        limit: int | None = None,
        times: Sequence[datetime | None] | None = None,
    ) -> Recalled:
        """Return the parts of the conversation that bear on a question, such as `ctx.input`, as one
        text for a slot; the times are the timeline's. What the window of the slot shows is left out
        when the window is made."""
        if times is not None:
            raise InvalidInput("times= is for lists: the messages of a session have their own")

        def read() -> Recalled:
            scope = before_turn(self._session, self._turn, completed=True)
            return recall(self._session, query, tokens, limit=limit, scope=scope)

        return aside(read)

    def _read_until(self, enough: Callable[[Sequence[Message]], bool]) -> Sequence[Message]:
        pages = self._pages
        if pages.is_whole or enough(pages.messages):
            return pages.messages
        return aside(lambda: self._read_on(enough))

    def _read_on(self, enough: Callable[[Sequence[Message]], bool]) -> Sequence[Message]:
        with self._lock:
            while not (self._pages.is_whole or enough(self._pages.messages)):
                turns = 4 * self._pages.turns or PAGE
                items, is_whole = self._session.items.newest(turns)
                past = [item for item in items if item.turn < self._turn]
                self._pages = Pages(turns, self._session.project(past), is_whole)
            return self._pages.messages


def newest_items(session: Session, enough: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """Return the newest turns of a session's history, all of them or enough."""
    turns = PAGE
    while True:
        items, is_whole = session.items.newest(turns)
        if is_whole or enough(items):
            return items
        turns *= 4
