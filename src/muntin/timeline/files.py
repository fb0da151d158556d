"""Sessions as files: written as JSON Lines and read back exactly; chats of OpenAI's form read in.

A session is one header line, a line for each turn that is not completed, and a line for each
item. Knows stores and lines of bytes, no files and no terminal. One page of items is in memory.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from muntin.core.counting.counter import TokenizerLike
from muntin.core.forms import messages_from
from muntin.errors import InvalidInput, MuntinError, StoreError
from muntin.settings import counter_for
from muntin.timeline.items import STATUSES, Draft, Item, Status, check_session_id, draft_of
from muntin.timeline.lines import (
    FORMAT,
    VERSION,
    Lines,
    iso,
    item_to_dict,
    line,
    read_header,
    read_item,
    read_turn,
    short,
)
from muntin.timeline.project import default_messages
from muntin.timeline.store import Store

# How many items are read at once, and how many are written in one transaction; one that has
# grown to so many bytes is written before.
PAGE = 100
BATCH = 1_000
BATCH_BYTES = 8_000_000
# More than any text weighs; the sum of a session still fits into 64 bits.
MAX_WEIGHT = 2**40


@dataclass(frozen=True, slots=True)
class Imported:
    """How far the import of a session has come; `complete` once it is."""

    session: str
    items: int
    turns: int
    complete: bool


# Writing.


def export_session(store: Store, session: str) -> Iterator[bytes]:
    """Yield a session line by line, as it stands when the first line is asked for."""
    info = store.session(session)
    if info is None:
        raise InvalidInput(f"{store.name}: there is no session {session!r}")
    head = info.items
    page = store.read(session, before=head + 1, oldest=PAGE)
    created = page[0].time if page else info.created
    yield line(
        {
            "format": FORMAT,
            "version": VERSION,
            "id": info.id,
            "created": iso(created),
            "items": head,
        }
    )
    unfinished = [status for status in STATUSES if status != "completed"]
    turns = chain.from_iterable(store.turns(session, status=status) for status in unfinished)
    for turn in sorted(turns, key=lambda turn: turn.number):
        if turn.first <= head:  # not one that began meanwhile
            yield line({"turn": turn.number, "status": turn.status})
    position = 0
    while position < head:
        if not page:
            raise StoreError(f"{store.name}: {session!r} was removed while it was exported")
        for item in page:
            yield line(item_to_dict(item))
        position = page[-1].position
        page = store.read(session, after=position, before=head + 1, oldest=PAGE)


# Reading.


def import_sessions(
    store: Store,
    lines: Iterable[bytes],
    *,
    source: str = "import",
    stem: str = "session",
    rename: str | None = None,
    tokenizer: TokenizerLike | None = None,
) -> Generator[Imported, None, None]:
    """Import sessions from the lines of a file, and yield how far it has come.

    All of them or none: when a line is wrong, or the caller stops early, what was imported is
    removed again. `source` is what errors call the file; `stem` names a chat without an id.
    `rename` is another id for the only session. Counts in the lines are kept; a `tokenizer`
    adds its own where they are missing, and chats are always counted.
    """
    begun: list[str] = []
    writer: _Writer | None = None
    read = Lines(lines)
    try:
        for value in read:
            if writer is not None and type(value) is dict and "position" in value:
                if writer.add(value, read.size):
                    yield writer.progress()
                continue
            name = _name(value, stem if read.alone else f"{stem}-{read.number}")
            if name is None:
                if writer is None:
                    raise InvalidInput("neither a session of Muntin nor a chat with 'messages'")
                writer.add_turn(value)
                continue
            if writer is not None:
                yield writer.finish()
            if begun and rename is not None:
                raise InvalidInput("a second session; only a single one can get another id")
            items = read_header(value) if _is_header(value) else None
            name = check_session_id(name if rename is None else rename)
            writer = _Writer(store, name, begun, tokenizer, items)
            if items is None:
                yield from writer.add_chat(value if isinstance(value, list) else value["messages"])
        if writer is not None:
            yield writer.finish()
    except BaseException as error:
        told = _remove(store, begun)
        if isinstance(error, InvalidInput):
            raise InvalidInput(f"{source}:{read.number}: {error}{told}") from error
        if told and isinstance(error, Exception):
            raise StoreError(f"{error}{told}") from error
        raise


def _remove(store: Store, sessions: list[str]) -> str:
    """Remove what was imported; return what to tell if that fails too."""
    for session in sessions:
        try:
            store.delete(session)
        except MuntinError as error:
            return f"; and what was imported of {session!r} could not be removed: {error}"
    return ""


def _name(value: object, other: str) -> str | None:
    """Return the id of the session that a line begins; None if it begins none."""
    if isinstance(value, list):
        return other
    if not isinstance(value, dict):
        raise InvalidInput(f"an object was expected, not {short(value)}")
    if _is_header(value):
        return check_session_id(value.get("id"))
    if "messages" not in value:
        return None
    name = value.get("id")
    if name is None:
        return other
    return str(name) if type(name) is int else check_session_id(name)


def _is_header(value: object) -> bool:
    return isinstance(value, dict) and "format" in value and "messages" not in value


class _Writer:
    """Writes one session in batches; `begun` gets its id before anything is written."""

    def __init__(
        self,
        store: Store,
        session: str,
        begun: list[str],
        tokenizer: TokenizerLike | None,
        items: int | None,
    ) -> None:
        if store.session(session) is not None:
            raise InvalidInput(
                f"{store.name} already has a session {session!r}; give this one another id"
            )
        begun.append(session)
        self._store, self._session, self._begun = store, session, begun
        self._counter = counter_for(None, tokenizer)
        self._adds = tokenizer is not None or items is None
        # How many are announced; None for a chat.
        self._announced = items
        self._statuses: dict[int, Status] = {}
        self._drafts: list[Draft] = []
        self._bytes = 0
        self._position = self._turn = 0

    def add_chat(self, messages: object) -> Iterator[Imported]:
        """Take messages: turns as `Session.append` makes them.

        A user's message that follows no other begins a turn, the first one not even that: what
        stands before it belongs to it.
        """
        if not isinstance(messages, list) or not messages:
            raise InvalidInput(f"a list of messages was expected, not {short(messages)}")
        asked = ever = False
        for each in messages_from(messages):
            draft = draft_of(each)
            asks = draft.message is not None and draft.message.role == "user"
            begins = self._turn == 0 or (asks and ever and not asked)
            asked, ever = asks, ever or asks
            turn = self._turn + 1 if begins else self._turn
            object.__setattr__(draft, "turn", turn)
            self._place(draft, turn)
            if self._is_full() and self._write():
                yield self.progress()

    def add_turn(self, value: dict[str, Any]) -> None:
        """Take the line of a turn."""
        number, status = read_turn(value)
        if self._announced is None or self._position:
            raise InvalidInput("the status of a turn stands between the header and the items")
        self._statuses[number] = status

    def add(self, value: dict[str, Any], size: int) -> bool:
        """Take the line of an item; say whether a batch was written."""
        if self._announced is None:
            raise InvalidInput("an item without the header of its session")
        if self._position == self._announced:
            raise InvalidInput(f"more items than the {self._announced} that the header announces")
        draft = read_item(value, self._position + 1)
        turn = draft.turn or 0
        if not 1 <= turn <= self._turn + 1:
            raise InvalidInput(f"turn {turn} cannot follow turn {self._turn}")
        self._place(draft, turn)
        self._bytes += size
        return self._is_full() and self._write()

    def progress(self, *, complete: bool = False) -> Imported:
        """Return how far it has come."""
        return Imported(self._session, self._position, self._turn, complete)

    def finish(self) -> Imported:
        """Write what is left; refuse a file that ends too early."""
        if self._announced is not None and self._position < self._announced:
            raise InvalidInput(
                f"session {self._session!r} ends after {self._position} of its "
                f"{self._announced} items"
            )
        if self._statuses:
            raise InvalidInput(f"turn {min(self._statuses)} of {self._session!r} has no items")
        if self._drafts:
            self._write()
        return self.progress(complete=True)

    def _place(self, draft: Draft, turn: int) -> None:
        """Note what a draft does to its turn, and what it weighs."""
        self._position += 1
        # A draft of our own that nobody else has seen: setting a field is cheaper than a copy.
        if turn > self._turn:
            self._turn = turn
            object.__setattr__(draft, "ends", self._statuses.pop(turn, "completed"))
        if draft.visibility.history:
            tokens = self._count(draft)
            if not draft.transient:
                object.__setattr__(draft, "weight", min(tokens, MAX_WEIGHT))
        self._drafts.append(draft)

    def _count(self, draft: Draft) -> int:
        """Return the count that the file has, if it can be used, else count."""
        key = self._counter.key(draft.message)
        if key is not None and key in draft.tokens:
            return draft.tokens[key]
        if draft.tokens and not self._adds:
            return next(iter(draft.tokens.values()))
        item = Item(1, draft.kind, 1, draft.message, draft.payload)
        # An entry counts as if it were live.
        counted = sum(self._counter.message(each) for each in default_messages(item, (1,)))
        if self._adds and key is not None:
            object.__setattr__(draft, "tokens", {**draft.tokens, key: counted})
        return counted

    def _is_full(self) -> bool:
        return len(self._drafts) >= BATCH or self._bytes >= BATCH_BYTES

    def _write(self) -> bool:
        """Write the batch; always true."""
        size = len(self._drafts)
        try:
            items = self._store.append(self._session, self._drafts)
        except InvalidInput as error:
            first = self._position - size + 1
            raise InvalidInput(f"of the items {first} to {self._position}: {error}") from error
        if items[-1].position != self._position:
            self._begun.remove(self._session)  # not ours alone to remove
            raise StoreError(
                f"{self._store.name}: another process wrote to session {self._session!r} during "
                "the import; it now holds the items of both"
            )
        self._drafts = []
        self._bytes = 0
        return True
