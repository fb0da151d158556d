"""Standing wishes: what a user wants for good, kept when its message has left the window.

Owns which sentence of a message is a wish, which later wish replaces an earlier one, how wishes
become a block of a window, and the entries that the user's code adds and removes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from muntin.core.checks import check_text, refuse_blank, shown
from muntin.core.counting.counter import Counter
from muntin.core.message import Message
from muntin.core.tags.xml import escape_text
from muntin.errors import InvalidInput
from muntin.timeline.items import NoteKey, SideWrites
from muntin.timeline.recall.excerpts import SENTENCE
from muntin.timeline.recall.phrases import forbids, states_wish
from muntin.timeline.recall.words import terms

if TYPE_CHECKING:
    from muntin.timeline.session import Session

HEAD = "[What the user asked for earlier and still holds]"
# A wish has at most so many characters; of more wishes only the newest are looked at.
LONGEST, MOST = 240, 400
# A later wish replaces one of whose words it repeats more than this share.
_REPEATED = 0.6
_NOTE: NoteKey = ("standing", "")
# An entry that was added stands behind the items that were there; ids of entries begin so.
_ADDED = "+"


class Wish(NamedTuple):
    """A standing wish: its id, its text, and where it was stated.

    The id of a wish that the user stated is its position; that of an added one begins with `+`.
    """

    id: str
    text: str
    position: int

    @property
    def line(self) -> str:
        """The wish as a line of the block."""
        text = " ".join(escape_text(self.text).split())
        return f"{self.position if self.id[0] != _ADDED else self.id} {text}"


@dataclass(frozen=True, slots=True)
class Block:
    """The standing wishes of a window: their text, and those for which it has no room."""

    text: str = ""
    left_out: tuple[Wish, ...] = ()


def wish_in(text: str) -> str:
    """Return the first sentence of a text that states a wish that lasts; "" if none does."""
    begin = 0
    for end in (*(match.end() for match in SENTENCE.finditer(text)), len(text)):
        sentence, begin = text[begin:end].strip(), end
        if states_wish(sentence) and not re.search(r"[?？][\"')\]]*$", sentence):
            return sentence if len(sentence) <= LONGEST else f"{sentence[: LONGEST - 1].rstrip()}…"
    return ""


def current(wishes: Iterable[Wish]) -> list[Wish]:
    """Return wishes, oldest first, without those that a later one replaces."""
    kept: list[tuple[Wish, frozenset[str]]] = []
    for wish in sorted(wishes, key=lambda wish: wish.position):
        words = frozenset(terms(wish.text))
        kept = [(old, known) for old, known in kept if not _replaces(wish, words, old, known)]
        kept.append((wish, words))
    return [wish for wish, _ in kept]


def _replaces(wish: Wish, words: frozenset[str], old: Wish, known: frozenset[str]) -> bool:
    """Say whether a wish repeats most words of an earlier one. Two prohibitions hold side by side:
    what they forbid must be the same."""
    if forbids(wish.text) and forbids(old.text):
        return known <= words
    return len(known & words) > _REPEATED * len(known)


def block_of(wishes: Sequence[Wish], tokens: int, counter: Counter) -> Block:
    """Return a block of at most `tokens` tokens; if they are too many, the oldest leave."""
    for first in range(len(wishes)):
        text = "\n".join([HEAD, *(wish.line for wish in wishes[first:])])
        if counter.message(Message("user", text)) <= tokens:
            return Block(text, tuple(wishes[:first]))
    return Block("", tuple(wishes))


def changes_of(session: Session) -> dict[str, Any]:
    """Return what the user's code has changed: the entries `added`, each with its text, where it
    stands and its number; the positions `removed`; and the `next` number."""
    empty: dict[str, Any] = {"next": 1, "added": [], "removed": []}
    text = session.opened().content(session.id, *_NOTE)
    return empty if text is None else {**empty, **json.loads(text)}


def entries_of(changes: dict[str, Any]) -> list[Wish]:
    """Return the added entries as wishes."""
    return [Wish(f"{_ADDED}{number}", text, at) for text, at, number in changes["added"]]


class StandingWishes:
    """The standing wishes of a session; what is added or removed is durable.

    A window shows a change when it next moves: until then its beginning stays as it is.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, text: str) -> Wish:
        """Add a wish in your own words."""
        refuse_blank(check_text(text, "standing.add: text"), "standing.add: text")
        stored = changes_of(self._session)
        number, wording = stored["next"], text.strip()
        if len(wording) > LONGEST:
            raise InvalidInput(
                f"standing.add: a wish has at most {LONGEST} characters, this one {len(wording)}"
            )
        infos = self._session.opened().sessions(id=self._session.id)
        position = infos[0].items if infos else 0
        added = [*stored["added"], [wording, position, number]]
        self._store({**stored, "next": number + 1, "added": added})
        return Wish(f"{_ADDED}{number}", wording, position)

    def remove(self, id: str) -> None:
        """Remove a wish by its id; it does not come back."""
        if id not in {wish.id for wish in self.list()}:
            raise InvalidInput(
                f"there is no standing wish {shown(id)}: session.standing.list() has the ids"
            )
        stored = changes_of(self._session)
        added = [entry for entry in stored["added"] if f"{_ADDED}{entry[2]}" != id]
        removed = stored["removed"]
        if not id.startswith(_ADDED):
            removed = sorted({*removed, int(id)})
        self._store({**stored, "added": added, "removed": removed})

    def list(self) -> Sequence[Wish]:
        """Return the wishes that hold, oldest first: those that the user stated, and added ones."""
        from muntin.timeline.recall.stored import Scope, in_window, wishes_in

        scope = Scope(in_window(self._session), completed=True)
        return wishes_in(self._session, scope) or []

    def _store(self, stored: dict[str, Any]) -> None:
        notes = {_NOTE: json.dumps(stored, ensure_ascii=False)}
        self._session.store.put(self._session.id, SideWrites(notes=notes))
