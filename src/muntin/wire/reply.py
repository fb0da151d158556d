"""The results of a model: a reply with its usage, and the events of a stream; values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from muntin.core.message import Message
from muntin.core.parts import ToolCall
from muntin.core.usage import Usage as Usage
from muntin.core.window import Window

# Why a provider ends an answer that goes on when it is sent back as it is.
BROKEN_OFF = ("pause_turn", "compaction")


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer.

    `finish_reason` is `stop`, `length`, `tool_calls`, `content_filter`, or the provider's own
    word if it is none of these. `output` is the parsed answer, if one was asked for.
    """

    message: Message
    usage: Usage = field(default_factory=Usage, kw_only=True)
    finish_reason: str = field(default="stop", kw_only=True)
    window: Window | None = field(default=None, kw_only=True, repr=False)
    output: Any = field(default=None, kw_only=True)

    @property
    def text(self) -> str:
        """The text of the answer."""
        return self.message.text

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of the answer."""
        return self.message.tool_calls


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """The model calls a tool; its arguments are complete."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool was run; `result` is the message for the model."""

    call: ToolCall
    result: Message


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a stream: the same Reply that `complete` would have returned."""

    reply: Reply


Event: TypeAlias = TextDelta | ReasoningDelta | ToolCalled | ToolFinished | Finished
