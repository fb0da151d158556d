"""A slot: one named place in the window with its rules, and the values those rules use.

A wrong rule is an error naming slot and option, so an invalid slot cannot exist.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from muntin.core.cut import Keep
from muntin.core.message import Attachment, Input, Message, Role, check_size, check_text
from muntin.errors import InvalidInput, InvalidType

MessageLike: TypeAlias = Message | Mapping[str, Any]
Content: TypeAlias = (
    str | MessageLike | Input | Attachment | Sequence[MessageLike] | Sequence[Attachment] | None
)
TrimBehavior: TypeAlias = Literal["message", "char", "slot"]
Tier: TypeAlias = Literal["pinned", "stable", "slow-changing", "volatile"]
TIERS: tuple[Tier, ...] = get_args(Tier)


@dataclass(frozen=True, slots=True)
class Exact:
    """Trim just enough, every turn."""


@dataclass(frozen=True, slots=True)
class Group:
    """Slots that act together; all slots given an equal Group belong to it.

    `join`: their texts become one message, put together with this separator.
    `interleave`: their messages are merged by `at`.
    `share`: what they may have together is divided max-min fairly, in proportion to each slot's
    `max_tokens` (without one, to all there is).
    """

    name: str
    join: str | None = field(default=None, kw_only=True)
    interleave: bool = field(default=False, kw_only=True)
    share: bool = field(default=False, kw_only=True)

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
class Slot:
    """One declared slot: its messages and its rules, all checked.

    `made` says that the one message was made here, from a text, an Input or attachments.
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
    excluded: str | None = None
    detail: str | None = None

    def __post_init__(self) -> None:
        _check_options(self)


def _check_options(slot: Slot) -> None:
    """Refuse any option that is out of range, naming slot and option."""
    for option in ("priority", "position"):
        value = getattr(slot, option)
        if (not isinstance(value, int) or isinstance(value, bool)) and not (
            value is None and option == "position"
        ):
            raise InvalidType(f"slot {slot.name!r}: {option} must be an int, not {value!r}")
    for option in ("max_ratio", "min_ratio"):
        value = getattr(slot, option)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise InvalidType(f"slot {slot.name!r}: {option} must be a number, not {value!r}")
        if math.isnan(value) or not 0 <= value <= 1:
            raise InvalidInput(f"slot {slot.name!r}: {option} must be from 0 to 1, got {value!r}")
    check_size(slot.min_tokens, f"slot {slot.name!r}: min_tokens")
    if slot.max_tokens is not None:
        check_size(slot.max_tokens, f"slot {slot.name!r}: max_tokens")
        if slot.max_tokens < slot.min_tokens:
            raise InvalidInput(
                f"slot {slot.name!r}: max_tokens={slot.max_tokens} is below "
                f"min_tokens={slot.min_tokens}"
            )
    for option, allowed in (
        ("trim_behavior", get_args(TrimBehavior)),
        ("tier", (None, *TIERS)),
        ("keep", get_args(Keep)),
        ("required", (False, True)),
    ):
        value = getattr(slot, option)
        if not any(
            value is choice or (value == choice and type(value) is str) for choice in allowed
        ):
            choices = ", ".join(repr(choice) for choice in allowed)
            raise InvalidInput(f"slot {slot.name!r}: {option} must be {choices}, not {value!r}")
    if slot.group is not None and not isinstance(slot.group, Group):
        raise InvalidType(f"slot {slot.name!r}: group must be a Group, not {slot.group!r}")
    if slot.marker is not None and not callable(slot.marker):
        raise InvalidType(f"slot {slot.name!r}: marker must be a callable, not {slot.marker!r}")
    if slot.group is not None and slot.group.join is not None:
        _check_joined(slot)


def _check_joined(slot: Slot) -> None:
    """A joined slot is one text, kept or dropped: floors and markers have no meaning there."""
    if slot.messages and not slot.made:
        raise InvalidInput(f"slot {slot.name!r}: only a text can be joined (group={slot.group!r})")
    for option, unset in (("min_tokens", 0), ("min_ratio", 0), ("marker", None)):
        if getattr(slot, option) != unset:
            raise InvalidInput(f"slot {slot.name!r}: {option} does not apply to a joined slot")
