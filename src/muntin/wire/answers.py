"""The order of an answer: its parts go back to their places before, between and behind its calls.

A message holds its parts apart from its calls, so a part that stood behind a call notes the call
before which it stood. Knows no vendor's format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from muntin.core.message import Message
from muntin.core.parts import Other, Part, Reasoning, Text, ToolCall, joined

# What a part stands before that stood behind the last call; no call has this id.
END = ""


class AnswerParts:
    """The parts and calls of an answer while it is read."""

    def __init__(self, calls: Sequence[ToolCall] = ()) -> None:
        self.parts: list[Part] = []
        self.calls = list(calls)
        # How many of the last parts stand behind the last call.
        self._behind = 0

    def add(self, *parts: Part) -> None:
        """Add parts behind all others."""
        self.parts += parts
        if self.calls:
            self._behind += len(parts)

    def call(self, call: ToolCall) -> None:
        """Add a call."""
        self._put_before(call.id)
        self.calls.append(call)

    def message(
        self,
        maker: str,
        *,
        as_made: bool = False,
        extra: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Message:
        """Return the answer. It goes back to its maker block for block if `as_made` says so, or if
        something stands behind its last call."""
        if self._behind or as_made:
            self._put_before(END)
            extra = {**(extra or {}), "as_made": maker}
        calls = tuple(self.calls)
        return Message(
            "assistant", joined(self.parts), tool_calls=calls, extra=extra or None, **fields
        )

    def _put_before(self, place: str) -> None:
        if self._behind:
            first = len(self.parts) - self._behind
            self.parts[first:] = [_put_before(part, place) for part in self.parts[first:]]
            self._behind = 0


def _put_before(part: Part, place: str) -> Part:
    if isinstance(part, Text | Reasoning):
        return replace(part, extra={**(part.extra or {}), "before": place})
    return Other({**part.data, "before": place}) if isinstance(part, Other) else part
