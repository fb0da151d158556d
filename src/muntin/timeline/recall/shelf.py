"""The index of a session: in memory for the sessions used last, and stored beside its timeline.

Owns how an index is made from the store and kept up to date, how full segments and vectors are
stored, and that an index of another version is made again.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from muntin.errors import StoreError
from muntin.timeline.items import Item, NoteKey, SideWrites
from muntin.timeline.project import default_messages
from muntin.timeline.recall.index import SEGMENT, Index
from muntin.timeline.recall.lists import indexed_role, indexed_text
from muntin.timeline.recall.packing import pack, unpack
from muntin.timeline.recall.vectors import CHUNK, Vectors
from muntin.timeline.store import Store

if TYPE_CHECKING:
    from muntin.timeline.session import Session

# The indexes of one store in memory have about this many bytes together.
MOST_BYTES = 256_000_000
# This many items are read at once.
_PAGE = 1_000
# An embedder gets this many characters of a text.
_LONGEST = 4_000
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class CachedIndex:
    """The index of one session as far as it is made: up to the position `until`.

    `stored` of its segments are in the store.
    """

    created: datetime
    index: Index
    until: int = 0
    stored: int = 0
    # The vectors of its messages, by embedder.
    vectors: dict[str, Vectors] = field(default_factory=dict)
    # How many messages there were when the size was last measured, and the size.
    weighed: tuple[int, int] = (0, 0)
    lock: Lock = field(default_factory=Lock)

    @property
    def bytes(self) -> int:
        """About how many bytes the index takes; measured now and then."""
        count, _ = self.weighed
        if len(self.index) > count + count // 8:
            self.weighed = len(self.index), self.index.bytes
        return self.weighed[1] + sum(
            len(vectors) * vectors.dimension for vectors in self.vectors.values()
        )


class Shelf:
    """The indexes of one store that were used last; about `most` bytes of them.

    Their segments have `segment` messages.
    """

    def __init__(self, most: int = MOST_BYTES, segment: int = SEGMENT) -> None:
        self.most = most
        self.segment = segment
        self._cached: OrderedDict[str, CachedIndex] = OrderedDict()
        self._lock = Lock()

    def get(self, session: str, created: datetime, items: int) -> CachedIndex:
        """Return the index of a session; a new one if it is not here, or belongs to an older
        session of that name."""
        with self._lock:
            entry = self._cached.pop(session, None)
            if entry is None or entry.created != created or entry.until > items:
                entry = CachedIndex(created, Index(self.segment))
            self._cached[session] = entry
            return entry

    def tidy(self) -> None:
        """Remove the indexes that were unused for longest, beyond the limit."""
        with self._lock:
            size = sum(entry.bytes for entry in self._cached.values())
            while size > self.most and len(self._cached) > 1:
                _, gone = self._cached.popitem(last=False)
                size -= gone.bytes

    def __len__(self) -> int:
        return len(self._cached)


_shelves: WeakKeyDictionary[Store, Shelf] = WeakKeyDictionary()
_shelves_lock = Lock()


def shelf_of(store: Store) -> Shelf:
    """Return the indexes of a store."""
    with _shelves_lock:
        return _shelves.setdefault(store, Shelf())


def extend(session: Session, entry: CachedIndex, until: float | None) -> bool:
    """Bring an index up to date; False if the time was too short."""
    store, index = session.store, entry.index
    is_new = not entry.until
    while is_new and (text := store.content(session.id, *_segment(entry.stored))) is not None:
        segment = unpack(text)
        if segment is None or segment[0].size != index.segment:
            break
        index.take(*segment)
        entry.until = index.positions[-1]
        entry.stored += 1
    while page := store.read(session.id, view="history", after=entry.until, oldest=_PAGE):
        for item in page:
            text, name, role = _found_by(item)
            if text:
                day, at = item.time.date(), item.position
                index.add(text, name=name, role=role, day=day, position=at)
            entry.until = item.position
        if len(page) < _PAGE:
            break
        if until is not None and time.monotonic() > until:
            return False
    return True


def _found_by(item: Item) -> tuple[str, str, str]:
    """Return the text by which an item is found, its speaker and its role; no text if it is never
    found."""
    if item.kind in ("reasoning", "run"):
        return "", "", ""
    messages = default_messages(item)
    text = "\n".join(indexed_text(message) for message in messages).strip()
    if not text:
        return "", "", ""
    return text, messages[0].name or "", indexed_role(messages[0])


def _segment(number: int) -> NoteKey:
    return "recall_segment", str(number)


def keep_segments(session: Session, entry: CachedIndex) -> None:
    """Store the full segments beside the timeline."""
    index = entry.index
    while entry.stored < len(index) // index.segment:
        text = pack(*index.part(entry.stored))
        try:
            session.store.put(session.id, SideWrites(notes={_segment(entry.stored): text}))
        except StoreError as error:  # the segment is made again when it is needed
            _log.info("a segment of the index of %r was not kept: %s", session.id, error)
            return
        entry.stored += 1


def vectors_of(session: Session, entry: CachedIndex, embedder: str) -> Vectors:
    """Return the vectors of an embedder; at first the stored vectors are read."""
    if embedder not in entry.vectors:
        vectors = entry.vectors[embedder] = Vectors()
        while len(vectors) + CHUNK <= len(entry.index):
            text = session.store.content(session.id, *_chunk(embedder, len(vectors) // CHUNK))
            if text is None or not vectors.take(text):
                break
    return entry.vectors[embedder]


def _chunk(embedder: str, number: int) -> NoteKey:
    return "recall_vectors", f"{embedder}:{number}"


def without_vector(session: Session, embedder: str, most: int) -> tuple[int, list[str]]:
    """Return the texts of the first messages without a vector, and how many messages have one."""
    with _whole(session) as entry:
        if entry is None:
            return 0, []
        first, positions = len(vectors_of(session, entry, embedder)), entry.index.positions
        texts: list[str] = []
        after = positions[first - 1] if first else 0
        while len(texts) < most and first + len(texts) < len(positions):
            page = session.store.read(session.id, view="history", after=after, oldest=most)
            if not page:
                break
            found = [_found_by(item) for item in page if item.position <= positions[-1]]
            texts += [f"{name}: {text}" if name else text for text, name, _ in found if text]
            after = page[-1].position
        return first, [text[:_LONGEST] for text in texts[:most]]


def add_vectors(
    session: Session, embedder: str, first: int, rows: Sequence[Sequence[float]]
) -> None:
    """Add the vectors of messages from a number on, and store the full chunks."""
    with _whole(session) as entry:
        vectors = None if entry is None else vectors_of(session, entry, embedder)
        if vectors is None or len(vectors) != first:  # another task was quicker
            return
        vectors.add(rows)
        for number in range(first // CHUNK, len(vectors) // CHUNK):
            notes = {_chunk(embedder, number): vectors.pack(number)}
            session.store.put(session.id, SideWrites(notes=notes))


def wish_positions(session: Session, seconds: float | None) -> list[int] | None:
    """Return the positions of the messages that state a wish that lasts, oldest first; None if the
    index cannot be made within `seconds`."""
    until = None if seconds is None else time.monotonic() + seconds
    with _whole(session, until) as entry:
        if entry is None:
            return [] if not session.store.sessions(id=session.id) else None
        return [entry.index.positions[number] for number in entry.index.wishes()]


@contextmanager
def _whole(session: Session, until: float | None = None) -> Iterator[CachedIndex | None]:
    """Yield the index of a session, up to date and locked; None if there is no session, or the time
    was too short."""
    infos = session.opened().sessions(id=session.id)
    if not infos:
        yield None
        return
    (info,) = infos
    entry = shelf_of(session.store).get(session.id, info.created, info.items)
    with entry.lock:
        yield entry if extend(session, entry, until) else None
