"""Sessions as files: written as JSON Lines and read back exactly; chats of OpenAI's form read in.

A session is one header line, a line for each turn that is not completed, and a line for each
item. Knows stores and lines of bytes, no files and no terminal. Holds one page of items in memory.

An import writes under another id, and gives sessions their own ids when all of them are there: no
reader sees half of a session, and of two imports of one session one is refused. The store is locked
only while a batch is written, never while lines are awaited.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

from muntin.core.checks import shown
from muntin.core.counting.counter import TokenizerLike
from muntin.core.forms import messages_from
from muntin.errors import InvalidInput, MuntinError, StoreError
from muntin.settings import counter_for
from muntin.timeline.items import (
    STATUSES,
    UNSETTLED,
    Draft,
    Item,
    SessionInfo,
    Status,
    check_session_id,
    draft_of,
)
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
)
from muntin.timeline.owner import Owner, done, is_gone, new_owner
from muntin.timeline.project import default_messages
from muntin.timeline.store import Store
from muntin.timeline.store.rows import taken

# How many items are read at once, and how many are written in one transaction; a batch of this
# many bytes is written earlier.
PAGE = 100
BATCH = 1_000
BATCH_BYTES = 8_000_000
# More than any text weighs; the sum of a session still fits into 64 bits.
MAX_WEIGHT = 2**40
# Ids of sessions that are being imported begin with this; the import's owner follows.
STAGED = "muntin-import:"
# An import of another machine is taken for dead when it last wrote this long ago.
_ABANDONED = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Imported:
    """How far the import of a session has come; `complete` when its whole file is in the store.

    `unsettled` is how many of its turns were pending or open when it was exported.
    """

    session: str
    items: int
    turns: int
    complete: bool
    unsettled: int = 0


# Writing.


def export_session(store: Store, session: str) -> Iterator[bytes]:
    """Yield a session line by line, as it stands when the first line is asked for."""
    infos = store.sessions(id=session)
    if not infos:
        raise InvalidInput(f"{store.name}: there is no session {session!r}")
    (info,) = infos
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
        if turn.first <= head:  # not a turn that began meanwhile
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
    wake: bool = False,
) -> Generator[Imported, None, None]:
    """Import sessions from the lines of a file, and yield the progress.

    All sessions or none: they appear when the last line is read. `source` is the file's name in
    errors; `stem` names a chat without an id. `rename` is another id for the only session. Tokens
    are counted by `tokenizer`, whatever the lines say. An unfinished turn is marked failed, so that
    no entity is woken; with `wake` it waits for its entity.
    """
    remove_abandoned(store)
    staged = _Staged(store, tokenizer, wake)
    read = Lines(lines)
    try:
        yield from _import(staged, read, stem, rename)
        finished = [writer.finish() for writer in staged.writers]
        store.rename({writer.staged: writer.session for writer in staged.writers})
    except BaseException as error:
        failure = staged.remove()
        if isinstance(error, InvalidInput):
            raise InvalidInput(f"{source}{read.place}: {error}{failure}") from error
        if failure and isinstance(error, Exception):
            raise StoreError(f"{error}{failure}") from error
        raise
    finally:
        done(staged.owner)
    yield from finished


def _import(
    staged: _Staged, read: Lines, stem: str, rename: str | None
) -> Generator[Imported, None, None]:
    """Write the sessions of the lines, and yield the progress."""
    writer: _Writer | None = None
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
            writer.finish()
        if writer is not None and rename is not None:
            raise InvalidInput("a second session; only a single one can get another id")
        items = read_header(value) if _is_header(value) else None
        writer = staged.begin(check_session_id(name if rename is None else rename), items)
        if items is None:
            yield from writer.add_chat(value if isinstance(value, list) else value["messages"])


def is_staged(info: SessionInfo) -> bool:
    """Say whether a session is being imported, or was when its process died."""
    return info.id.startswith(STAGED)


def remove_abandoned(store: Store) -> list[str]:
    """Remove the parts that imports of dead processes left; return the ids."""
    now, removed = datetime.now(UTC), []
    for info in list(_staged(store)):
        owner = info.id.removeprefix(STAGED).rpartition(":")[0]
        if Owner.parse(owner) and is_gone(owner, info.updated + _ABANDONED, now):
            store.delete(info.id)
            removed.append(info.id)
    return removed


def _staged(store: Store) -> Iterator[SessionInfo]:
    after = STAGED
    while page := store.sessions(after=after, limit=PAGE):
        for info in page:
            if not is_staged(info):
                return
            yield info
        after = page[-1].id


class _Staged:
    """The sessions of one import, each under an id that names the import's owner."""

    def __init__(self, store: Store, tokenizer: TokenizerLike | None, wake: bool) -> None:
        self.store = store
        self.wake = wake
        self.counter = counter_for(None, tokenizer)
        self.owner = new_owner()
        self.writers: list[_Writer] = []

    def begin(self, session: str, items: int | None) -> _Writer:
        """Begin a session of `items` items, None for a chat; refuse an id that exists."""
        is_begun = any(writer.session == session for writer in self.writers)
        if is_begun or self.store.sessions(id=session):
            raise taken(self.store.name, session)
        staged = f"{STAGED}{self.owner}:{len(self.writers)}"
        self.writers.append(_Writer(self, session, staged, items))
        return self.writers[-1]

    def remove(self) -> str:
        """Remove what was written; return the text for the error if that fails too."""
        for writer in self.writers:
            try:
                self.store.delete(writer.staged)
            except MuntinError as error:
                return (
                    f"; and what was imported of {writer.session!r} could not be removed: {error}"
                )
        return ""


def _name(value: object, other: str) -> str | None:
    """Return the id of the session that a line begins; None if it begins none."""
    if isinstance(value, list):
        return other
    if not isinstance(value, dict):
        raise InvalidInput(f"an object was expected, not {shown(value)}")
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
    """Writes one session in batches, under the id `staged`."""

    def __init__(self, import_: _Staged, session: str, staged: str, items: int | None) -> None:
        self.session, self.staged = session, staged
        self._store, self._counter, self._wake = import_.store, import_.counter, import_.wake
        # How many items the header announces; None for a chat.
        self._announced = items
        self._statuses: dict[int, Status] = {}
        self._unsettled = 0
        self._drafts: list[Draft] = []
        self._bytes = 0
        self._position = self._turn = 0

    def add_chat(self, messages: object) -> Iterator[Imported]:
        """Take messages: turns as `Session.append` makes them.

        A user's message that follows no other user's begins a turn; the first user's message does
        not, if messages stand before it: they belong to its turn.
        """
        if not isinstance(messages, list) or not messages:
            raise InvalidInput(f"a list of messages was expected, not {shown(messages)}")
        was_asked = ever = False
        for message in messages_from(messages):
            draft = draft_of(message)
            asks = draft.message is not None and draft.message.role == "user"
            begins = self._turn == 0 or (asks and ever and not was_asked)
            was_asked, ever = asks, ever or asks
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
        """Return the progress of this session."""
        return Imported(self.session, self._position, self._turn, complete, self._unsettled)

    def finish(self) -> Imported:
        """Write the rest; refuse a file that ends too early."""
        if self._announced is not None and self._position < self._announced:
            raise InvalidInput(
                f"session {self.session!r} ends after {self._position} of its "
                f"{self._announced} items"
            )
        if self._statuses:
            raise InvalidInput(f"turn {min(self._statuses)} of {self.session!r} has no items")
        if self._drafts:
            self._write()
        return self.progress(complete=True)

    def _place(self, draft: Draft, turn: int) -> None:
        """Note the turn and the status of a draft, count it, and add it to the batch."""
        self._position += 1
        # The draft was made here and nothing else has it: setting a field is cheaper than a copy.
        if turn > self._turn:
            self._turn = turn
            object.__setattr__(draft, "ends", self._status(turn))
        self._count(draft)
        self._drafts.append(draft)

    def _status(self, turn: int) -> Status:
        """Return the status of an imported turn: never `open`, and `pending` only with `wake`."""
        status = self._statuses.pop(turn, "completed")
        if status not in UNSETTLED:
            return status
        self._unsettled += 1
        return "pending" if self._wake else "failed"

    def _count(self, draft: Draft) -> None:
        """Count the messages of a draft, whatever its line claims."""
        if not draft.visibility.history:
            object.__setattr__(draft, "tokens", {})
            return
        item = Item(1, draft.kind, 1, draft.message, draft.payload)
        # An entry counts as if it were live.
        counted = sum(self._counter.message(message) for message in default_messages(item, (1,)))
        key = self._counter.key(draft.message)
        object.__setattr__(draft, "tokens", {} if key is None else {key: counted})
        if not draft.transient:
            object.__setattr__(draft, "weight", min(counted, MAX_WEIGHT))

    def _is_full(self) -> bool:
        return len(self._drafts) >= BATCH or self._bytes >= BATCH_BYTES

    def _write(self) -> bool:
        """Write the batch; always true."""
        size = len(self._drafts)
        try:
            self._store.append(self.staged, self._drafts)
        except InvalidInput as error:
            first = self._position - size + 1
            raise InvalidInput(f"of the items {first} to {self._position}: {error}") from error
        self._drafts = []
        self._bytes = 0
        return True
