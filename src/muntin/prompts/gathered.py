"""What a prompt gathers: texts, messages, tools and settings, and the slots they become.

Nothing is counted and nothing is planned here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from muntin.agent.tools import ToolLike
from muntin.core.message import Message
from muntin.core.planning.slot import INPUT, SYSTEM, Group
from muntin.core.planning.slots import Slots
from muntin.core.report import Status

# The parts of a system text become one message.
_SEPARATOR = "\n\n"
SYSTEM_TEXT = Group("system", join=_SEPARATOR)

# A context that was left out: its source, why in one word, and what exactly failed.
Excluded: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class SystemPart:
    """One part of the system text.

    With `breakpoint`, providers are asked to cache up to its end. `cache` says whether the text
    came from the cache, and `age` how many seconds ago it was made. `tokens` and `status` are
    what the plan made of the part; an inspection fills them in.
    """

    source: str
    text: str
    priority: int = SYSTEM
    required: bool = True
    breakpoint: bool = False
    cache: str | None = None
    age: float | None = None
    tokens: int = 0
    status: Status = "kept"


@dataclass(frozen=True, slots=True)
class Gathered:
    """A prompt for one input, before anything is counted; made by `Prompt.gather`.

    `user` is the text of the prompt, None if it has none; `excluded` are the contexts that a
    condition left out.
    """

    parts: tuple[SystemPart, ...]
    user: str | None
    messages: tuple[Message, ...]
    tools: tuple[ToolLike, ...]
    settings: Mapping[str, Any]
    excluded: tuple[Excluded, ...]

    @property
    def system(self) -> str:
        """The whole system text, nothing dropped."""
        return _SEPARATOR.join(part.text for part in self.parts if part.text)


def declare(slots: Slots, gathered: Gathered) -> None:
    """Declare the slots of a prompt; only contexts can be dropped."""
    declare_parts(slots, gathered.parts)
    declare_excluded(slots, gathered.excluded)
    slots.add("user", gathered.user or None, role="user", required=True, priority=INPUT)
    slots.add("messages", gathered.messages, required=True, priority=INPUT)


def declare_parts(slots: Slots, parts: Sequence[SystemPart]) -> None:
    """Declare the parts of a system text: joined, each kept whole or dropped."""
    for part in parts:
        slots.add(
            part.source,
            part.text,
            role="system",
            priority=part.priority,
            required=part.required,
            trim_behavior="slot",
            group=SYSTEM_TEXT,
            breakpoint=part.breakpoint,
        )


def declare_excluded(slots: Slots, excluded: Sequence[Excluded]) -> None:
    """Declare the contexts that were left out, for the report."""
    for source, reason, detail in excluded:
        slots.exclude(source, reason=reason, detail=detail)
