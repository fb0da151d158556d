"""The frontier: what one turn leaves to the next, small enough to be stored with the session.

Where each history begins, its breakpoints, and a digest of every message. It knows
what a message is; of slots it knows the names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

from muntin.core.checks import check_size, replace_surrogates
from muntin.core.checks import digest as hashed
from muntin.core.counting.counter import Counter
from muntin.core.message import Message
from muntin.core.parts import Part, Text, compact_json
from muntin.core.planning.slot import Slot
from muntin.errors import InvalidInput, InvalidType

# Breakpoints in the providers' own words; where they stand is no part of what is cached.
USER_BREAKPOINTS = ("cache_control", "prompt_cache_breakpoint")
_VERSION = 1
_BYTES = 8  # of a digest


@dataclass(frozen=True, slots=True)
class Start:
    """Where one history begins: at the message `first` of its list, with this `at` and digest.

    `number` tells slots of one name apart. The history had `base` tokens when its frontier last
    moved (or it was first seen), `requests` windows ago. `surplus` is how many tokens more than
    asked for were kept, all windows since its first step taken together. Results before the message
    `stubs` are one line, before `shorts` short.
    """

    slot: str
    number: int = 0
    first: int = 0
    at: float | None = None
    digest: str | None = None
    base: int = 0
    requests: int = 0
    surplus: int = 0
    stubs: int = 0
    shorts: int = 0


@dataclass(frozen=True, slots=True)
class Frontier:
    """What the next turn must know of a window.

    `breakpoints` are places, in messages. `digests` are of its messages in the order they are
    sent, `runs` the slots they come from, each with a count; the first `lasting` of them, which
    have `lasting_tokens` with the tools, were expected to stay.
    """

    starts: tuple[Start, ...] = ()
    breakpoints: tuple[int, ...] = field(default=(), kw_only=True)
    tools: str = field(default="", kw_only=True)
    digests: tuple[str, ...] = field(default=(), kw_only=True)
    runs: tuple[tuple[str, int], ...] = field(default=(), kw_only=True)
    lasting: int = field(default=0, kw_only=True)
    lasting_tokens: int = field(default=0, kw_only=True)

    @property
    def labels(self) -> list[str]:
        """The slot of each message."""
        return [slot for slot, count in self.runs for _ in range(count)]

    @property
    def hash(self) -> str:
        """One digest of all that was sent: the tools, then the messages."""
        return hashed("\n".join((self.tools, *self.digests)), _BYTES)

    def digest(self, place: int) -> str | None:
        """Return the digest of a message, or None if there was none."""
        return self.digests[place] if 0 <= place < len(self.digests) else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; `from_dict` reads them back."""
        return {
            "version": _VERSION,
            "starts": [asdict(start) for start in self.starts],
            "marks": list(self.breakpoints),
            "tools": self.tools,
            "digests": list(self.digests),
            "runs": [list(run) for run in self.runs],
            "lasting": self.lasting,
            "lasting_tokens": self.lasting_tokens,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Frontier:
        """Read what `to_dict` wrote; anything else is an error."""
        if not isinstance(data, Mapping):
            raise InvalidType(f"a frontier must be a mapping, not {type(data).__name__}")
        if data.get("version") != _VERSION:
            raise InvalidInput(
                f"a frontier of version {data.get('version')!r} cannot be read, only {_VERSION}; "
                "leave `previous` out: the next window begins anew"
            )
        try:
            return cls(
                tuple(_start(each) for each in data["starts"]),
                breakpoints=tuple(check_size(each, "marks") for each in data["marks"]),
                tools=str(data["tools"]),
                digests=tuple(str(each) for each in data["digests"]),
                runs=tuple((str(slot), check_size(count, "runs")) for slot, count in data["runs"]),
                lasting=check_size(data["lasting"], "lasting"),
                lasting_tokens=check_size(data["lasting_tokens"], "lasting_tokens"),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"this is no frontier that was written here: {error!r}") from error


def _start(data: Mapping[str, Any]) -> Start:
    start = Start(**data)
    for name in ("number", "first", "base", "requests", "stubs", "shorts"):
        check_size(getattr(start, name), name)
    if not isinstance(start.surplus, int):
        raise InvalidType(f"surplus must be an int, not {start.surplus!r}")
    return start


class LazyFrontier:
    """A window as the next turn sees it; hashed only when it is asked for.

    It holds on to one window's messages and to nothing before them, so that a long session does
    not keep all of its windows. `known` are the messages of the window before, and their digests
    if they were ever asked for: what is the same need not be hashed again.
    """

    def __init__(
        self,
        *,
        starts: tuple[Start, ...],
        breakpoints: tuple[int, ...],
        messages: Sequence[Message],
        slots: Sequence[Slot],
        tools: Sequence[Mapping[str, Any]],
        tokens: int,
        counter: Counter,
        known: tuple[Sequence[Message], Sequence[str]] = ((), ()),
    ) -> None:
        self.starts = starts
        self.breakpoints = breakpoints
        self.messages = messages
        self._slots = slots
        self._tools = tools
        self._tokens = tokens
        self._counter = counter
        self._known = known

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LazyFrontier):
            return self is other or self.frontier == other.frontier
        return self.frontier == other if isinstance(other, Frontier) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.frontier)

    def __reduce__(self) -> tuple[Any, ...]:
        return Frontier.from_dict, (self.frontier.to_dict(),)

    @property
    def hashed(self) -> tuple[Sequence[Message], Sequence[str]]:
        """The messages and their digests, if they were asked for."""
        made: Frontier | None = self.__dict__.get("frontier")
        return (self.messages, made.digests) if made is not None else ((), ())

    def digest(self, place: int) -> str | None:
        """Return the digest of a message, or None if there was none."""
        return digest(self.messages[place]) if 0 <= place < len(self.messages) else None

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

    @cached_property
    def trunk_tokens(self) -> int:
        """What the next turn will find again, if the current input becomes history."""
        return self._tokens_before(lasting_count(self._slots, inputs=True))

    def _tokens_before(self, place: int) -> int:
        gone = sum(self._counter.message(each) for each in self.messages[place:])
        return max(0, self._tokens - gone)

    @cached_property
    def frontier(self) -> Frontier:
        """Everything, hashed."""
        digests: list[str] = []
        for old, name, new in zip(*self._known, self.messages, strict=False):
            if old is not new and old != new:
                break
            digests.append(name)
        digests += [digest(message) for message in self.messages[len(digests) :]]
        lasting = lasting_count(self._slots)
        return Frontier(
            self.starts,
            breakpoints=self.breakpoints,
            tools=hashed(compact_json(list(self._tools)), _BYTES) if self._tools else "",
            digests=tuple(digests),
            runs=tuple((slot, len(list(run))) for slot, run in groupby(self.labels)),
            lasting=lasting,
            lasting_tokens=self._tokens_before(lasting),
        )


def lasting_count(slots: Sequence[Slot], *, inputs: bool = False) -> int:
    """Return how many messages, from the first, are expected to stand in the next window too.

    With `inputs`, the current input is taken to become history, as it mostly does.
    """
    for place, slot in enumerate(slots):
        if not (inputs if slot.is_input else slot.lasting):
            return place
    return len(slots)


def digest(message: Message) -> str:
    """Return what tells the bytes of a message from others', less position and breakpoints."""
    content = message.content or ""
    if content.__class__ is tuple:
        content = _plain(content)
    if message.attachments or content.__class__ is not str or _without_breakpoints(message.extra):
        return hashed(_full_text(message), _BYTES)
    # Most messages, and by far the quickest way: this may be done for a whole window every turn.
    role, result, name = message.role, message.tool_call_id or "", message.name or ""
    if not message.tool_calls:
        sizes = f"[{len(role)}, {len(result)}, {len(name)}, {len(content)}]"
        return hashed(f"{sizes}{role}{result}{name}{content}", _BYTES)
    pieces: list[str] = [role, result, name, content]
    for call in message.tool_calls:
        if call.extra:
            return hashed(_full_text(message), _BYTES)
        pieces += (call.id, call.name, call.arguments)
    # Lengths, so that no text can look like the next piece.
    return hashed(f"{[len(piece) for piece in pieces]}{''.join(pieces)}", _BYTES)


def _plain(parts: tuple[Part, ...]) -> str | tuple[Part, ...]:
    """Return the text of a single text part: a breakpoint makes parts of what was a str."""
    part = parts[0]
    if len(parts) == 1 and isinstance(part, Text) and not _without_breakpoints(part.extra):
        return part.text
    return parts


def _full_text(message: Message) -> str:
    data = _without_breakpoints(message.to_dict())
    data.pop("at", None)
    if isinstance(data["content"], list):
        data["content"] = [_without_breakpoints(part) for part in data["content"]]
    try:
        text = compact_json(data)
    except (TypeError, ValueError):  # values of the caller's that no JSON can carry
        text = repr(data)
    return replace_surrogates(text)


def _without_breakpoints(data: Mapping[str, Any] | None) -> dict[str, Any]:
    return (
        {}
        if data is None
        else {key: value for key, value in data.items() if key not in USER_BREAKPOINTS}
    )
