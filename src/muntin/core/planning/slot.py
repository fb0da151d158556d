"""A slot: one named place in the window with its rules, and the values that the rules use.

A wrong rule is an error naming slot and option, so an invalid slot cannot exist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Literal, TypeAlias, get_args

from muntin.core.checks import check_size, check_text, shown
from muntin.core.forms import messages_from
from muntin.core.message import Input, Message, Role
from muntin.core.message import MessageLike as MessageLike
from muntin.core.parts import Attachment
from muntin.core.planning.cut import Keep
from muntin.core.planning.shapes import Ladder, Results
from muntin.errors import InvalidInput, InvalidType

Content: TypeAlias = (
    str | MessageLike | Input | Attachment | Sequence[MessageLike] | Sequence[Attachment] | None
)
TrimBehavior: TypeAlias = Literal["message", "char", "slot"]
Tier: TypeAlias = Literal["pinned", "stable", "slow-changing", "volatile"]
TIERS: tuple[Tier, ...] = get_args(Tier)
VOLATILE: Tier = "volatile"

# The priorities that the doors give. When room is short the lowest goes first; the current input
# has none and goes last.
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
    """Trim rarely and far, so that the cached beginning of the window stays the same.

    When a history passes its high level it is cut to a low level, at the beginning of a turn, and
    then stays. `low` fixes the low level as a share of the high one; without it, the cheapest is
    chosen that keeps, on average, `retain` of the high level.
    """

    low: float | None = None
    retain: float = 0.75

    def __post_init__(self) -> None:
        for name, most in (("low", "below 1"), ("retain", "to 1")):
            value = getattr(self, name)
            if value is None and name == "low":
                continue
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise InvalidType(f"Stepped.{name} must be a number, not {shown(value)}")
            if not 0 <= value <= 1 or (name == "low" and value == 1):  # NaN is not
                raise InvalidInput(f"Stepped.{name} must be from 0 {most}, got {shown(value)}")


Trimming: TypeAlias = Exact | Stepped
EXACT = Exact()


@dataclass(frozen=True, slots=True)
class Group:
    """Slots that act together; all slots given an equal Group belong to it.

    `join`: their texts become one message, put together with this separator.
    `interleave`: their messages are merged by `at`.
    `share`: their common room is divided in proportion to each slot's `max_tokens` (without one,
    to all the room); what one slot does not need goes to the others.
    `chain`: they are one conversation; where one slot is dropped, so are the slots before it.
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
    """A summary of a history up to the position `until`, as the text that is shown."""

    text: str
    until: float

    @property
    def message(self) -> Message:
        """The summary as a message that stands first in the history."""
        return Message("user", self.text)


@dataclass(frozen=True, slots=True)
class Slot:
    """One declared slot: its messages and its rules, all checked.

    `made` says that the one message was made here, from a text, an Input or attachments. `lasting`
    says that the content is expected to stand in the next turn's window too, unless `changes` says
    that it will be another text by then. A slot with `trimming=Stepped()` is a history;
    `breakpoint` asks a provider to cache up to its end. `frame` is how a text begins and ends; it
    stays whole when the text between is cut. `run` is the agent's work in this turn; with
    `recovery` the agent has tools that read the parts that were cut. `recap` is the newest summary
    of a history: it is shown from the next step on. `asks` says that the list ends with the
    question of this turn and the work done since.
    """

    name: str
    index: int
    messages: Sequence[MessageLike] = ()
    made: bool = False
    is_input: bool = False
    priority: int = 0
    max_ratio: float = 1.0
    min_ratio: float = 0.0
    min_tokens: int = 0
    position: int | None = None
    role: Role | None = None
    trim_behavior: TrimBehavior = "message"
    max_tokens: int | None = None
    tier: Tier | None = None
    keep: Keep = "tail"
    required: bool = False
    group: Group | None = None
    marker: Marker | None = None
    frame: tuple[str, str] | None = None
    trimming: Trimming = EXACT
    lasting: bool = False
    breakpoint: bool = False
    changes: bool = False
    excluded: str | None = None
    detail: str | None = None
    results: Results | None = None
    ladder: Ladder | None = None
    recovery: bool = False
    run: bool = False
    recap: Recap | None = None
    asks: bool = False

    def __post_init__(self) -> None:
        _check_options(self)


def changed(slot: Slot, **values: Any) -> Slot:
    """Return a slot with other values; `replace` without checking the slot again."""
    copy = object.__new__(Slot)
    for set_field, value in zip(_SETTERS, _all_of(slot), strict=True):
        set_field(copy, value)
    for name, value in values.items():
        object.__setattr__(copy, name, value)  # refuses names that a slot does not have
    return copy


_NAMES = [each.name for each in fields(Slot)]
_all_of = attrgetter(*_NAMES)
_SETTERS = [getattr(Slot, name).__set__ for name in _NAMES]


def in_full(slot: Slot) -> Slot:
    """Return a slot whose messages are all Messages; other makers' forms are taken apart."""
    own = isinstance(slot.messages, list | tuple)
    # A timeline, which holds Messages only, is not read to its end.
    items = slot.messages if own else slot.messages[-1:]
    if all(item.__class__ is Message for item in items):
        return slot
    try:
        return changed(slot, messages=tuple(messages_from(slot.messages)))
    except InvalidInput as error:
        raise type(error)(f"slot {slot.name!r}, {error}") from error


_TRIM_BEHAVIORS = get_args(TrimBehavior)
_KEEPS = get_args(Keep)


def _check_options(slot: Slot) -> None:
    """Refuse any option that is out of range, naming slot and option."""
    # Code without loops: prompts declare dozens of slots a turn.
    if not isinstance(slot.priority, int) or isinstance(slot.priority, bool):
        raise _wrong_type(slot, "priority", "an int")
    if slot.position is not None and (
        not isinstance(slot.position, int) or isinstance(slot.position, bool)
    ):
        raise _wrong_type(slot, "position", "an int")
    if slot.max_ratio != 1.0 or type(slot.max_ratio) is not float:
        _check_ratio(slot, "max_ratio")
    if slot.min_ratio != 0.0 or type(slot.min_ratio) is not float:
        _check_ratio(slot, "min_ratio")
    if type(slot.min_tokens) is not int or slot.min_tokens < 0:
        check_size(slot.min_tokens, f"slot {slot.name!r}: min_tokens")
    if slot.max_tokens is not None:
        if type(slot.max_tokens) is not int or slot.max_tokens < 0:
            check_size(slot.max_tokens, f"slot {slot.name!r}: max_tokens")
        if slot.max_tokens < slot.min_tokens:
            raise InvalidInput(
                f"slot {slot.name!r}: max_tokens={slot.max_tokens} is below "
                f"min_tokens={slot.min_tokens}"
            )
    if slot.trim_behavior not in _TRIM_BEHAVIORS:
        raise _wrong_choice(slot, "trim_behavior", _TRIM_BEHAVIORS)
    if slot.tier is not None and slot.tier not in TIERS:
        raise _wrong_choice(slot, "tier", (None, *TIERS))
    if slot.keep not in _KEEPS:
        raise _wrong_choice(slot, "keep", _KEEPS)
    if slot.required is not True and slot.required is not False:
        raise _wrong_choice(slot, "required", (False, True))
    if slot.marker is not None and not callable(slot.marker):
        raise _wrong_type(slot, "marker", "a callable")
    if slot.breakpoint is not True and slot.breakpoint is not False:
        raise _wrong_choice(slot, "breakpoint", (False, True))
    if slot.changes is not True and slot.changes is not False:
        raise _wrong_choice(slot, "changes", (False, True))
    if slot.changes and slot.breakpoint:
        raise InvalidInput(
            f"slot {slot.name!r}: breakpoint=True asks to cache it, and changes=True says that it "
            "will be another text; give one of them"
        )
    if slot.trimming is not EXACT:
        _check_trimming(slot)
    if slot.group is not None:
        if not isinstance(slot.group, Group):
            raise _wrong_type(slot, "group", "a Group")
        if slot.group.join is not None:
            _check_joined(slot)


def _check_trimming(slot: Slot) -> None:
    if not isinstance(slot.trimming, Exact | Stepped):
        raise _wrong_type(slot, "trimming", "Exact() or Stepped()")
    if isinstance(slot.trimming, Stepped) and not may_step(slot):
        raise InvalidInput(
            f"slot {slot.name!r}: trimming=Stepped() is for a list of messages that is trimmed by "
            "message; it is neither required, nor the current input, nor joined"
        )


def may_step(slot: Slot) -> bool:
    """Say whether whole messages of this slot may go, from the oldest."""
    return (
        not slot.made
        and not slot.required
        and not slot.is_input
        and slot.trim_behavior == "message"
        and (slot.group is None or slot.group.join is None)
    )


def _check_ratio(slot: Slot, option: str) -> None:
    value = getattr(slot, option)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _wrong_type(slot, option, "a number")
    if not 0 <= value <= 1:  # NaN is not
        raise InvalidInput(f"slot {slot.name!r}: {option} must be from 0 to 1, got {shown(value)}")


def _wrong_type(slot: Slot, option: str, wanted: str) -> InvalidType:
    value = getattr(slot, option)
    return InvalidType(f"slot {slot.name!r}: {option} must be {wanted}, not {shown(value)}")


def _wrong_choice(slot: Slot, option: str, choices: tuple[object, ...]) -> InvalidInput:
    allowed = ", ".join(repr(choice) for choice in choices)
    value = getattr(slot, option)
    return InvalidInput(f"slot {slot.name!r}: {option} must be {allowed}, not {shown(value)}")


def _check_joined(slot: Slot) -> None:
    """Check a joined slot: one text without a floor; without a marker, if it is never cut."""
    if slot.messages and not slot.made:
        raise InvalidInput(f"slot {slot.name!r}: only a text can be joined (group={slot.group!r})")
    for option, unset in (("min_tokens", 0), ("min_ratio", 0), ("marker", None)):
        if option == "marker" and slot.trim_behavior == "char":
            continue
        if getattr(slot, option) != unset:
            raise InvalidInput(f"slot {slot.name!r}: {option} does not apply to a joined slot")
