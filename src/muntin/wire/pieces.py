"""Pieces: the items of a framework as `fit` sees them, and the result as references.

An item is never converted back. A piece holds a message for counting and grouping and a reference
to the item; the result is references, and the few texts that replace others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType
from typing import Any, NamedTuple

from muntin.core.compaction import is_readable
from muntin.core.message import Message, Role
from muntin.core.profile import Profile
from muntin.core.usage import Usage
from muntin.core.window import Breakpoint, Window

# Tuples, not dataclasses: one is made for most messages of every list, so it must be quick.
_NONE: Mapping[str, str] = MappingProxyType({})


class Piece(NamedTuple):
    """One message of a framework's list, as it is counted and grouped, and its origin.

    `ref` is the adapter's own: an item, or the numbers of an item and of a part. `opaque` says why
    the item could not be read; then it counts as `tokens`, else as the size of `message` or `ref`.
    `repaired` says that the item cannot be sent as it is: the text and the arguments of `message`
    are always written back. `usage` is what the provider reported of an answer, where the item
    says so.
    """

    message: Message | None
    ref: Any
    opaque: str | None = None
    tokens: int | None = None
    repaired: bool = False
    usage: Usage | None = None


class Placed(NamedTuple):
    """One message of the fitted request.

    `ref` is the piece's, None if Muntin added the message: a summary, a line about what is missing,
    the fixed result of a call that has none. `message` is the counted message. `text`, if it is not
    None, replaces the item's text. Then `message.content` is either this text alone, and other
    content of the item goes, or parts, of which the text parts are new. `arguments` are new
    arguments of calls, as JSON texts by the ids of the calls. With a `breakpoint`, the provider is
    to cache up to the end of the message. Of a message that `is_bare` all thoughts go.
    """

    ref: Any
    message: Message
    text: str | None = None
    arguments: Mapping[str, str] = _NONE
    breakpoint: Breakpoint | None = None
    is_bare: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether the item is sent unchanged."""
        unchanged = self.text is None and not self.arguments and not self.is_bare
        return self.ref is not None and unchanged


@dataclass(frozen=True, slots=True)
class Fitted:
    """A list that fits: the messages that are sent, in order, and facts about them.

    `frontier` is plain JSON of at most 1 KB; pass it as `previous` with the next request of the
    conversation. `unread` names items that could not be read and are sent unchanged. `fresh` says
    why the given frontier was not used; None if it was used, or none was given.
    `system_breakpoint` stands after the system text that is sent elsewhere. `passes` says why the
    list is sent unchanged, whatever its size; `held` names the parameter that says that the
    provider holds the past. `folded` are later system messages that have left with their turns:
    their texts belong at the end of the system text.
    """

    placed: tuple[Placed, ...]
    window: Window
    frontier: dict[str, Any]
    unread: tuple[str, ...] = ()
    fresh: str | None = None
    system_breakpoint: Breakpoint | None = None
    passes: str | None = None
    held: str | None = None
    folded: tuple[Message, ...] = ()

    def __repr__(self) -> str:
        return f"<Fitted placed={len(self.placed)} tokens={self.window.tokens}>"


class Pieces(Sequence[Piece]):
    """The pieces of a list of items, each read when it is first needed.

    `read` returns the pieces of an item, which it gets with its number. An item is one piece,
    unless `several` has another count for its number. `role` returns the role of an item
    without reading the item, None if it must be read; `summary` returns its provider's summary of
    what stands before it, if it holds one.
    """

    def __init__(
        self,
        items: Sequence[Any],
        read: Callable[[Any, int], Sequence[Piece]],
        *,
        several: Mapping[int, int] | None = None,
        role: Callable[[Any], Role | None] | None = None,
        summary: Callable[[Any], Any] = lambda item: None,
    ) -> None:
        self._items = items
        self._read = read
        self._role = role
        self._summary = summary
        # Whether some items may have a standing effect.
        self.has_standing = False
        self._known: dict[int, Sequence[Piece]] = {}
        # Where each item begins; None if each item is one piece.
        self._begins: list[int] | None = None
        if several:
            sizes = (several.get(number, 1) for number in range(len(items)))
            self._begins = [0, *accumulate(sizes)]

    def __len__(self) -> int:
        return len(self._items) if self._begins is None else self._begins[-1]

    def __iter__(self) -> Iterator[Piece]:
        for number, item in enumerate(self._items):
            piece = self._known.get(number)
            if piece is None:
                piece = self._known[number] = self._read(item, number)
            yield from piece

    def __getitem__(self, index: Any) -> Any:
        # The quickest way: most pieces are asked for once and by a valid place.
        begins = self._begins
        if begins is None and index.__class__ is int and index >= 0:
            piece = self._known.get(index)
            if piece is None:
                piece = self._known[index] = self._read(self._items[index], index)
            return piece[0]
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        number, part = self._find(index % len(self))
        piece = self._known.get(number)
        if piece is None:
            piece = self._known[number] = self._read(self._items[number], number)
        return piece[part]

    def role(self, index: int) -> Role | None:
        """Return the role of a piece if it is known without reading the item."""
        return None if self._role is None else self._role(self._items[self._find(index)[0]])

    def newest_compaction(self, profile: Profile | None) -> int | None:
        """Return the place of the newest piece with a summary that the model reads."""
        for number in range(len(self._items) - 1, -1, -1):
            block = self._summary(self._items[number])
            if block is not None and is_readable(block, profile):
                return number if self._begins is None else self._begins[number]
        return None

    def _find(self, index: int) -> tuple[int, int]:
        """Return the number of an item, and which of its pieces it is."""
        if self._begins is None:
            return index, 0
        number = bisect_right(self._begins, index) - 1
        return number, index - self._begins[number]
