"""A slot: one named place in the window, with its rules.

`Slots.add` makes slots; `check_slot` refuses a wrong rule, naming slot and option.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, get_args
from warnings import warn

from muntin.core.checks import check_size, check_text, shown
from muntin.core.cutting import Keep
from muntin.core.forms import messages_from
from muntin.core.message import Input, Message
from muntin.core.message import MessageLike as MessageLike
from muntin.core.parts import Attachment
from muntin.core.planning.compact import Ladder, Results
from muntin.errors import InvalidInput, InvalidType

Content: TypeAlias = (
    str | MessageLike | Input | Attachment | Sequence[MessageLike] | Sequence[Attachment] | None
)
TrimBehavior: TypeAlias = Literal["message", "char", "slot"]
Tier: TypeAlias = Literal["pinned", "stable", "slow-changing", "volatile"]
# A text is one message made from a string, an Input or attachments. A run is the agent's work in
# this turn.
Kind: TypeAlias = Literal["text", "list", "input", "run"]
TIERS: tuple[Tier, ...] = get_args(Tier)
VOLATILE: Tier = "volatile"

# The priorities that interfaces use. The lowest gives first; the current input has none.
HISTORY = 10
CONTEXT = 50
RUN = 90
SYSTEM = 100

# An input up to this many tokens is never cut, and a longer input never to fewer.
INPUT_LEAST = 256


@dataclass(frozen=True, slots=True)
class Exact:
    """Trim just enough, every turn."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """Trim rarely and far, so that the beginning of the window stays in the provider's cache.

    A conversation that outgrows its room moves: it is trimmed to `low` of the room, and then stays
    as it is until it has filled the room again. `retain` is deprecated: the share of the room that
    is used on average, read as `low = 2 * retain - 1`.
    """

    low: float | None = None
    retain: float | None = None

    def __post_init__(self) -> None:
        for name in ("low", "retain"):
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise InvalidType(f"Stepped.{name} must be a number, not {shown(value)}")
            most = "below 1" if name == "low" else "to 1"
            if not 0 <= value <= 1 or (name == "low" and value == 1):  # NaN is not
                raise InvalidInput(f"Stepped.{name} must be from 0 {most}, got {shown(value)}")
        if self.retain is not None:
            warn("Stepped(retain=) is deprecated: use low=", DeprecationWarning, stacklevel=3)

    @property
    def low_mark(self) -> float:
        """The share of the room that is left after a move."""
        if self.low is not None:
            return self.low
        return 0.5 if self.retain is None else max(0.0, 2 * self.retain - 1)


Trimming: TypeAlias = Exact | Stepped
EXACT = Exact()


@dataclass(frozen=True, slots=True)
class Group:
    """Slots that act together; all slots given an equal Group belong to it.

    `join`: their texts become one message, put together with this separator.
    `interleave`: their messages are merged by `at`.
    `share`: their common room is divided in proportion to each slot's `max_tokens` (without one,
    to all the room); what one slot does not need goes to the others.
    `chain`: once one of them is dropped, so are the ones that are less protected.
    """

    name: str
    join: str | None = field(default=None, kw_only=True)
    interleave: bool = field(default=False, kw_only=True)
    share: bool = field(default=False, kw_only=True)
    chain: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        check_text(self.name, "Group.name")
        if self.join is not None:
            check_text(self.join, f"the separator of group {self.name!r}")
            if self.interleave or self.share:
                raise InvalidInput(
                    f"group {self.name!r}: joined texts can be neither interleaved nor shared"
                )


@dataclass(frozen=True, slots=True)
class Pool:
    """A smaller budget that slots have together; all slots given an equal Pool belong to it."""

    name: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Cut:
    """What was left out of a slot, for the marker line that says so."""

    slot: str
    messages: int
    characters: int
    first_at: float | None
    last_at: float | None


Marker: TypeAlias = Callable[[Cut], str]


@dataclass(frozen=True, slots=True)
class Recap:
    """What stands in front of a conversation that has moved: the standing wishes of the user, and
    a summary as the text that is shown.

    The summary tells of all before the position `until`, and of the messages there up to the item
    `item`; without one the text is empty.
    """

    text: str
    until: float
    item: int = 0
    standing: str = ""

    @property
    def place(self) -> tuple[float, int]:
        """Where it ends."""
        return self.until, self.item

    @property
    def message(self) -> Message:
        """The wishes and the summary as a message that stands where the past begins."""
        return Message("user", "\n\n".join(filter(None, (self.standing, self.text))))


@dataclass(frozen=True, slots=True)
class Size:
    """How much a slot may take at most, and should have at least."""

    max_ratio: float = 1.0
    min_ratio: float = 0.0
    min_tokens: int = 0
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Trim:
    """How a slot becomes smaller.

    `frame` is how a text begins and ends; it stays whole when the text between is cut. With
    `recovery` the agent has tools that read what was cut, and the lines about it name them.
    """

    behavior: TrimBehavior = "message"
    keep: Keep = "tail"
    marker: Marker | None = None
    frame: tuple[str, str] | None = None
    trimming: Trimming = EXACT
    results: Results | None = None
    ladder: Ladder | None = None
    recovery: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """Where a slot stands, and what a provider's cache may expect of it.

    `lasting` content is expected in the next window too, unless `changes` says that it will be
    another text by then. `breakpoint` asks the provider to cache up to its end.
    """

    position: int | None = None
    tier: Tier | None = None
    group: Group | None = None
    lasting: bool = False
    breakpoint: bool = False
    changes: bool = False


@dataclass(frozen=True, slots=True)
class Slot:
    """One declared slot: its messages and its rules.

    `excluded` is why a condition left the slot out, `detail` a remark for the report. `begin` is
    the place of the provider's summary, with which its past begins. With `system_leaves`, later
    system messages are part of the turn that they stand in, and leave with it. The messages at the
    places `standing` have a lasting effect, and stay.
    """

    name: str
    index: int
    messages: Sequence[MessageLike] = ()
    kind: Kind = "list"
    priority: int = 0
    required: bool = False
    size: Size = Size()
    trim: Trim = Trim()
    place: Place = Place()
    pool: Pool | None = None
    detail: str | None = None
    excluded: str | None = None
    begin: int | None = None
    system_leaves: bool = False
    standing: tuple[int, ...] = ()

    @property
    def is_joined(self) -> bool:
        """Whether its text becomes part of a longer message."""
        return self.place.group is not None and self.place.group.join is not None

    @property
    def is_stepped(self) -> bool:
        """Whether it is a conversation that moves rarely and far."""
        return isinstance(self.trim.trimming, Stepped)

    @property
    def may_step(self) -> bool:
        """Whether whole messages of it may leave, from the oldest."""
        return (
            self.kind in ("list", "run")
            and not self.required
            and self.trim.behavior == "message"
            and not self.is_joined
        )


def in_full(slot: Slot) -> Slot:
    """Return a slot whose messages are all Messages; other libraries' forms are taken apart."""
    is_list = isinstance(slot.messages, list | tuple)
    # A timeline, which holds Messages only, is not read to its end.
    items = slot.messages if is_list else slot.messages[-1:]
    if all(item.__class__ is Message for item in items):
        return slot
    try:
        return replace(slot, messages=tuple(messages_from(slot.messages)))
    except InvalidInput as error:
        raise type(error)(f"slot {slot.name!r}, {error}") from error


_CHOICES: dict[str, tuple[object, ...]] = {
    "trim_behavior": get_args(TrimBehavior),
    "tier": (None, *TIERS),
    "keep": get_args(Keep),
    "required": (False, True),
    "breakpoint": (False, True),
    "changes": (False, True),
}


def check_slot(slot: Slot) -> Slot:
    """Return the slot, or refuse an option that is out of range, naming slot and option."""
    trim, place = slot.trim, slot.place
    _check_int(slot, "priority", slot.priority)
    if place.position is not None:
        _check_int(slot, "position", place.position)
    _check_size(slot)
    chosen = trim.behavior, place.tier, trim.keep, slot.required, place.breakpoint, place.changes
    for (option, choices), value in zip(_CHOICES.items(), chosen, strict=True):
        # By identity too: 1 is equal to True.
        if value not in choices or (value.__class__ is int):
            allowed = ", ".join(repr(choice) for choice in choices)
            raise InvalidInput(
                f"slot {slot.name!r}: {option} must be {allowed}, not {shown(value)}"
            )
    if trim.marker is not None and not callable(trim.marker):
        raise _wrong_type(slot, "marker", "a callable", trim.marker)
    if place.changes and place.breakpoint:
        raise InvalidInput(
            f"slot {slot.name!r}: breakpoint=True asks to cache it, and changes=True says that it "
            "will be another text; give one of them"
        )
    if not isinstance(trim.trimming, Exact | Stepped):
        raise _wrong_type(slot, "trimming", "Exact() or Stepped()", trim.trimming)
    if slot.is_stepped and not slot.may_step:
        raise InvalidInput(
            f"slot {slot.name!r}: trimming=Stepped() is for a list of messages that is trimmed by "
            "message; it is neither required, nor the current input, nor joined"
        )
    if slot.pool is not None and not isinstance(slot.pool, Pool):
        raise _wrong_type(slot, "pool", "a Pool", slot.pool)
    if place.group is not None:
        if not isinstance(place.group, Group):
            raise _wrong_type(slot, "group", "a Group", place.group)
        if slot.is_joined:
            _check_joined(slot)
    return slot


def _check_size(slot: Slot) -> None:
    size = slot.size
    for option in ("max_ratio", "min_ratio"):
        value = getattr(size, option)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _wrong_type(slot, option, "a number", value)
        if not 0 <= value <= 1:  # NaN is not
            raise InvalidInput(
                f"slot {slot.name!r}: {option} must be from 0 to 1, got {shown(value)}"
            )
    check_size(size.min_tokens, f"slot {slot.name!r}: min_tokens")
    if size.max_tokens is not None:
        check_size(size.max_tokens, f"slot {slot.name!r}: max_tokens")
        if size.max_tokens < size.min_tokens:
            raise InvalidInput(
                f"slot {slot.name!r}: max_tokens={size.max_tokens} is below "
                f"min_tokens={size.min_tokens}"
            )


def _check_int(slot: Slot, option: str, value: object) -> None:
    if value.__class__ is not int and (not isinstance(value, int) or isinstance(value, bool)):
        raise _wrong_type(slot, option, "an int", value)


def _wrong_type(slot: Slot, option: str, wanted: str, value: object) -> InvalidType:
    return InvalidType(f"slot {slot.name!r}: {option} must be {wanted}, not {shown(value)}")


def _check_joined(slot: Slot) -> None:
    """Check a joined slot: one text without a floor; without a marker, if it is never cut."""
    if slot.messages and slot.kind != "text":
        raise InvalidInput(
            f"slot {slot.name!r}: only a text can be joined (group={slot.place.group!r})"
        )
    size, trim = slot.size, slot.trim
    marker = None if trim.behavior == "char" else trim.marker
    for option, value in (
        ("min_tokens", size.min_tokens), ("min_ratio", size.min_ratio), ("marker", marker),
    ):  # fmt: skip
        if value:
            raise InvalidInput(f"slot {slot.name!r}: {option} does not apply to a joined slot")
