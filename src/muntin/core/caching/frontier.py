"""The frontier: what one turn leaves to the next, small enough to be stored with the session.

Holds where each history begins, its breakpoints, and a digest of every message that was sent. It
knows messages; of slots it knows only the names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Any, TypeAlias

from muntin.core.caching.cleared import ClearedText
from muntin.core.checks import check_size, shown
from muntin.core.checks import digest as hashed
from muntin.core.compaction import newest_compaction
from muntin.core.counting.book import CountedRequest
from muntin.core.counting.counter import Counter
from muntin.core.counting.law import Anchor
from muntin.core.digests import BYTES, digest
from muntin.core.message import Message, role_of
from muntin.core.planning.memory import ConversationState, read_conversation_state
from muntin.core.planning.slot import VOLATILE, Slot
from muntin.core.schemas import Schemas
from muntin.core.tool_marks import TOOL_INDEX, TOOLS_CARRIED, found_tools
from muntin.errors import InvalidInput, InvalidType

# How many messages a request sent, and a digest of them and of the loaded tools.
SentText: TypeAlias = tuple[int, str]
# The name that stands for the tools among the slots.
TOOLS = "(tools)"
_VERSION = 1
# A provider that caches by itself finds the unchanged beginning of a text whose end changed. So
# texts are also known by the digests of their beginnings, in pieces of this many characters.
CHUNK = 128
_CHUNK_BYTES = 3


@dataclass(frozen=True, slots=True)
class Frontier:
    """What the next turn must know of a window.

    `breakpoints` are places, in pieces of the request. `digests` are of these pieces in the order
    they are sent, `schemas` of the tools before them, `runs` the slots they come from, each with a
    count. The first `lasting` pieces, which have `lasting_tokens` with the tools, were expected to
    stay; the first `trunk` pieces if the input becomes history. `chunks` are digests of the
    beginnings of long texts. `sent` proves what a request held where that matters; `cleared` are
    texts for one turn that stay in it. `summary` is where the provider's summary stands on the
    timeline, its position and its item. `carried` are the declarations, as JSON, of tools that stay
    loaded in front of the history; `tool_index` is the text that says which tools can be loaded.
    The `anchor` is the newest request whose input was reported.
    """

    starts: tuple[ConversationState, ...] = ()
    breakpoints: tuple[int, ...] = field(default=(), kw_only=True)
    tools: str = field(default="", kw_only=True)
    digests: tuple[str, ...] = field(default=(), kw_only=True)
    runs: tuple[tuple[str, int], ...] = field(default=(), kw_only=True)
    lasting: int = field(default=0, kw_only=True)
    lasting_tokens: int = field(default=0, kw_only=True)
    schemas: tuple[str, ...] = field(default=(), kw_only=True)
    trunk: int = field(default=0, kw_only=True)
    chunks: tuple[str, ...] = field(default=(), kw_only=True)
    sent: SentText | None = field(default=None, kw_only=True)
    summary: tuple[int, int] | None = field(default=None, kw_only=True)
    cleared: tuple[ClearedText, ...] = field(default=(), kw_only=True)
    carried: tuple[str, ...] = field(default=(), kw_only=True)
    tool_index: str = field(default="", kw_only=True)
    anchor: Anchor | None = field(default=None, kw_only=True)

    @property
    def labels(self) -> list[str]:
        """The slot of each message."""
        return [slot for slot, count in self.runs for _ in range(count)]

    @property
    def is_bare(self) -> bool:
        """Whether it tells where histories begin, and nothing of the messages sent."""
        return not self.digests and not self.tools

    @property
    def hash(self) -> str:
        """One digest of all that was sent: the tools, then the messages."""
        return hashed("\n".join((self.tools, *self.digests)), BYTES)

    def digest(self, place: int) -> str | None:
        """Return the digest of a message, or None if there was none."""
        return self.digests[place] if 0 <= place < len(self.digests) else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; `from_dict` reads them back."""
        summary = {} if self.summary is None else {"summary": list(self.summary)}
        anchor = {} if self.anchor is None else {"anchor": self.anchor.to_json()}
        data = summary | {
            "version": _VERSION,
            "starts": [start.to_dict() for start in self.starts],
            "marks": list(self.breakpoints),
            "tools": self.tools,
            "digests": list(self.digests),
            "runs": [list(run) for run in self.runs],
            "lasting": self.lasting,
            "lasting_tokens": self.lasting_tokens,
            "schemas": list(self.schemas),
            "trunk": self.trunk,
            "chunks": list(self.chunks),
            **({"carried": list(self.carried)} if self.carried else {}),
            **({"tool_index": self.tool_index} if self.tool_index else {}),
            **anchor,
        }
        if self.sent is not None:
            data["sent"] = list(self.sent)
        if self.cleared:  # only their names: the texts are kept elsewhere
            data["cleared"] = [[place, text_name(text)] for place, text in self.cleared]
        return data

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], texts: Callable[[str], str | None] | None = None
    ) -> Frontier:
        """Read what `to_dict` wrote; anything else is an error.

        `texts` returns the text of a name.
        """
        if not isinstance(data, Mapping):
            raise InvalidType(f"a frontier must be a mapping, not {type(data).__name__}")
        if data.get("version") != _VERSION:
            raise InvalidInput(
                f"a frontier of version {shown(data.get('version'))} cannot be read, only "
                f"{_VERSION}; leave `previous` out: the next window begins anew"
            )
        try:
            summary = data.get("summary")
            return cls(
                tuple(read_conversation_state(state) for state in data["starts"]),
                breakpoints=tuple(check_size(place, "marks") for place in data["marks"]),
                tools=str(data["tools"]),
                digests=tuple(str(text) for text in data["digests"]),
                runs=tuple((str(slot), check_size(count, "runs")) for slot, count in data["runs"]),
                lasting=check_size(data["lasting"], "lasting"),
                lasting_tokens=check_size(data["lasting_tokens"], "lasting_tokens"),
                # Earlier versions did not write these.
                schemas=tuple(str(text) for text in data.get("schemas", ())),
                trunk=check_size(data.get("trunk", data["lasting"]), "trunk"),
                chunks=tuple(str(text) for text in data.get("chunks", ())),
                sent=read_sent(data.get("sent")),
                summary=None
                if summary is None
                else (check_size(summary[0], "summary"), check_size(summary[1], "summary")),
                cleared=tuple(
                    ClearedText(
                        check_size(place, "cleared"), None if texts is None else texts(name)
                    )
                    for place, name in data.get("cleared", ())
                ),
                carried=tuple(str(text) for text in data.get("carried", ())),
                tool_index=str(data.get("tool_index", "")),
                anchor=Anchor.from_json(data["anchor"]) if data.get("anchor") else None,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(
                f"this is no frontier that was written here: {shown(error)}"
            ) from error


def text_name(text: str | None) -> str:
    """Return the name under which a text for one turn is kept."""
    return "" if text is None else hashed(text, BYTES)


def read_sent(data: Any) -> SentText | None:
    """Read what proves the text of a request."""
    return None if data is None else (check_size(data[0], "sent"), str(data[1]))


class LazyFrontier:
    """A window as the next turn sees it, its messages as they are sent; hashed when asked for.

    It holds one window's messages and nothing of earlier windows, so that a long session does not
    keep all of its windows. `known` are the messages of the window before, and their digests if
    they were ever asked for: equal messages need not be hashed again. `moved` are the conversations
    that moved in this window. `behind` are the slots of texts behind a conversation. The
    `changed_slots` did not stay since the window before: until they have stayed once, they are
    expected to change again. With `chunked`, the beginnings of texts are hashed too; with `proves`,
    all of the text is.
    """

    def __init__(
        self,
        *,
        starts: tuple[ConversationState, ...],
        moved: frozenset[str] = frozenset(),
        messages: Sequence[Message],
        slots: Sequence[Slot],
        tools: Schemas,
        tokens: int,
        counter: Counter,
        behind: frozenset[int] = frozenset(),
        earlier: tuple[Sequence[Message], Sequence[str]] = ((), ()),
        chunked: bool = False,
        proves: bool = False,
        cleared: tuple[ClearedText, ...] = (),
    ) -> None:
        self.starts = starts
        self.moved = moved
        self.breakpoints: tuple[int, ...] = ()
        self.changed_slots: frozenset[str] = frozenset()
        self.messages = messages
        self._slots = slots
        self._tools = tools
        self._tokens = tokens
        self._counter = counter
        self._behind = behind
        self._earlier = earlier
        self._chunked = chunked
        self._proves = proves
        self.cleared = cleared
        # The newest request of the conversation whose input was reported.
        self.anchor = counter.law.anchor

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LazyFrontier):
            return self is other or self.frontier == other.frontier
        return self.frontier == other if isinstance(other, Frontier) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.frontier)

    def __reduce__(self) -> tuple[Any, ...]:
        return Frontier.from_dict, (self.frontier.to_dict(),)

    @property
    def counted(self) -> CountedRequest:
        """The size of the request, for the book of counts."""
        law, has_tools = self._counter.law, bool(self._tools)
        size = self._counter.size(self.messages, self._tokens, has_tools)
        return CountedRequest(
            size, law.estimate(self._tokens, has_tools), None if self.moved else law.anchor
        )

    def enter_reported(self, tokens: int) -> None:
        """Take over what the provider reported as the input of the request."""
        counted = self.counted
        if counted.is_plausible(tokens):
            self.anchor = Anchor(counted.size, tokens)

    @property
    def hashed(self) -> tuple[Sequence[Message], Sequence[str]]:
        """The messages and their digests, if they were asked for."""
        digests: tuple[str, ...] | None = self.__dict__.get("digests")
        return (self.messages, digests) if digests is not None else ((), ())

    def digest(self, place: int) -> str | None:
        """Return the digest of a message, or None if there was none."""
        return digest(self.messages[place]) if 0 <= place < len(self.messages) else None

    @cached_property
    def digests(self) -> tuple[str, ...]:
        """The digests of the messages."""
        digests: list[str] = []
        for old, name, new in zip(*self._earlier, self.messages, strict=False):
            if old is not new and old != new:
                break
            digests.append(name)
        self._earlier = (), ()
        return (*digests, *map(digest, self.messages[len(digests) :]))

    @cached_property
    def tools(self) -> str:
        """One digest of all tools."""
        return hashed(f"[{','.join(self._tools.texts)}]", BYTES) if self._tools else ""

    @cached_property
    def sent(self) -> SentText | None:
        """What proves the text of the request, if thoughts are bound to it."""
        return self._text(len(self.messages)) if self._proves else None

    def goes_on_from(self, sent: SentText) -> bool:
        """Say whether the text of a request is the beginning of this one's."""
        return sent[0] <= len(self.messages) and self._text(sent[0]) == sent

    def _text(self, count: int) -> SentText:
        texts = self._tools.loaded
        return count, hashed("\n".join((*texts, "", *self.digests[:count])), BYTES)

    @cached_property
    def schemas(self) -> tuple[str, ...]:
        """The digests of the tools."""
        return tuple([hashed(text, BYTES) for text in self._tools.texts])

    @cached_property
    def labels(self) -> list[str]:
        """The name of each message's slot."""
        return [slot.name for slot in self._slots]

    @cached_property
    def sizes(self) -> list[int]:
        """The tokens of each message."""
        return [self._counter.message(message) for message in self.messages]

    @cached_property
    def tools_tokens(self) -> int:
        """The tokens of the tools, which stand before all messages."""
        return self._counter.tools(self._tools)

    def tools_before(self, place: int) -> int:
        """Return the tokens of the first `place` tools."""
        return self._counter.tools(self._tools[:place])

    def beginning_tokens(self, place: int, chunks: int) -> int:
        """Return the tokens of the first `chunks` pieces of a text."""
        text = self.messages[place].text[: chunks * CHUNK]
        return self._counter.overhead + self._counter.text_once(text) if text else 0

    @cached_property
    def trunk(self) -> int:
        """How many messages the next turn will have again, if the input becomes history."""
        return lasting_count(self._slots, self._behind, inputs=True)

    @cached_property
    def tool_index(self) -> str:
        """The text that says which tools can be loaded."""
        pairs = zip(self._slots, self.messages, strict=True)
        return next((message.text for slot, message in pairs if slot.name == TOOL_INDEX), "")

    @cached_property
    def carried(self) -> tuple[str, ...]:
        """The declarations of the tools that stay loaded in front of the history."""
        pairs = zip(self._slots, self.messages, strict=True)
        found = [m for slot, m in pairs if slot.name == TOOLS_CARRIED and m.role == "tool"]
        return tuple(json.dumps(t, ensure_ascii=False) for m in found for t in found_tools(m))

    @property
    def settled(self) -> int:
        """How many messages the next turn will have again, if the input becomes history and the
        `changed_slots` change again."""
        if TOOLS in self.changed_slots:
            return 0
        return lasting_count(
            self._slots, self._behind, inputs=True, changed_slots=self.changed_slots
        )

    @property
    def settled_tokens(self) -> int:
        """The tokens that the next turn will have again."""
        return 0 if TOOLS in self.changed_slots else self._tokens_before(self.settled)

    def _tokens_before(self, place: int) -> int:
        gone = sum([self._counter.message(message) for message in self.messages[place:]])
        return max(0, self._tokens - gone)

    @property
    def frontier(self) -> Frontier:
        """The frontier with everything hashed."""
        frontier = self._unreported
        return frontier if self.anchor is None else replace(frontier, anchor=self.anchor)

    @cached_property
    def _unreported(self) -> Frontier:
        lasting = lasting_count(self._slots, self._behind)
        return Frontier(
            self.starts,
            breakpoints=self.breakpoints,
            tools=self.tools,
            digests=self.digests,
            runs=tuple((slot, len(list(run))) for slot, run in groupby(self.labels)),
            lasting=lasting,
            lasting_tokens=self._tokens_before(lasting),
            schemas=self.schemas,
            trunk=self.trunk,
            chunks=tuple(map(text_chunks, self.messages)) if self._chunked else (),
            sent=self.sent,
            summary=self.summary,
            cleared=self.cleared,
            carried=self.carried,
            tool_index=self.tool_index,
        )

    @cached_property
    def summary(self) -> tuple[int, int] | None:
        """Where the provider's summary stands on the timeline: its position and its item."""
        place = newest_compaction([*self.messages])
        message = None if place is None else self.messages[place]
        if message is None or message.at is None or message.item is None:
            return None
        return int(message.at), message.item[1]


def lasting_count(
    slots: Sequence[Slot],
    behind: frozenset[int],
    *,
    inputs: bool = False,
    changed_slots: frozenset[str] = frozenset(),
) -> int:
    """Return how many messages, from the first, are expected to stand in the next window too.

    With `inputs`, the current input is expected to become history, as it mostly does. Texts
    `behind` a conversation do not stay, because the conversation grows in front of them.
    """
    before: Slot | None = None
    for place, slot in enumerate(slots):
        if slot is before:  # its next message
            continue
        before = slot
        stays = inputs if slot.kind == "input" else slot.place.lasting
        if not stays or slot.place.changes or slot.index in behind or slot.name in changed_slots:
            return place
    return len(slots)


def is_text(slot: Slot) -> bool:
    """Say whether a slot holds one text made from its content, or several joined texts."""
    return slot.kind == "text" or slot.is_joined


def texts_after_conversation(slots: Iterable[Slot]) -> frozenset[int]:
    """Return the indices of the texts behind a conversation, even if the conversation is empty."""
    has_conversation = False
    indices = []
    for slot in slots:
        if is_text(slot):
            if has_conversation and slot.kind != "input":
                indices.append(slot.index)
        elif slot.place.lasting and slot.place.tier in (None, VOLATILE) and slot.kind != "input":
            has_conversation = (
                has_conversation or not slot.messages or role_of(slot.messages[0]) != "system"
            )
    return frozenset(indices)


@lru_cache(maxsize=2_048)  # most messages of a window were in the one before
def text_chunks(message: Message) -> str:
    """Return digests of the pieces of a text, from its beginning; a short text has none."""
    text = message.text
    if len(text) < CHUNK or not isinstance(message.content, str):
        return ""
    header = f"{message.role} {message.name} {message.tool_call_id} "
    pieces = [text[n : n + CHUNK] for n in range(0, len(text) - CHUNK + 1, CHUNK)]
    pieces[0] = header + pieces[0]
    return "".join(hashed(piece, _CHUNK_BYTES) for piece in pieces)


def shared_chunks(new: str, old: str) -> int:
    """Return how many pieces two texts have in common, from their beginnings."""
    size = 2 * _CHUNK_BYTES
    most = min(len(new), len(old)) // size
    return next((n for n in range(most) if new[n * size :][:size] != old[n * size :][:size]), most)
