"""Anthropic Messages: an answer as a Reply, whole or from a stream.

https://platform.claude.com/docs/en/api/messages/create
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from muntin.core.checks import shown
from muntin.core.forms.anthropic import assistant_message
from muntin.core.window import Window
from muntin.errors import InvalidInput, MuntinError
from muntin.providers.model import Event, ReasoningDelta, Reply, TextDelta, ToolCalled, Usage
from muntin.providers.wire.anthropic_request import names_of
from muntin.providers.wire.common import as_mapping, count, get

RESPONSE = "an Anthropic message"

_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


def decode(response: Any, window: Window | None = None) -> Reply:
    """Read a response, the SDK's object or its dict, as a Reply.

    With the window that was sent, calls have the names of its tools. Raises `InvalidInput`,
    naming the expected form, if the value is something else.
    """
    data = as_mapping(response, RESPONSE, "content")
    blocks = data["content"]
    if not isinstance(blocks, Sequence) or not all(isinstance(each, Mapping) for each in blocks):
        raise InvalidInput(
            f"expected {RESPONSE}, whose 'content' is a list of blocks; got {shown(blocks)}"
        )
    try:
        message = assistant_message(blocks)
    except (MuntinError, KeyError, TypeError, ValueError) as error:
        raise InvalidInput(
            f"expected {RESPONSE}; its content cannot be read: {shown(error)}"
        ) from error
    finish = data.get("stop_reason") or "stop"
    return Reply(
        names_of(window).read(message),
        usage=_usage(data.get("usage")),
        finish_reason=_FINISH.get(finish, finish),
        window=window,
    )


def _usage(usage: Any) -> Usage:
    """Read the billed tokens; Anthropic counts uncached input apart from cached input."""
    read, written = count(usage, "cache_read_input_tokens"), count(usage, _WRITTEN)
    fresh = count(usage, "input_tokens")
    return Usage(fresh + read + written, count(usage, "output_tokens"), read, written)


_WRITTEN = "cache_creation_input_tokens"
_USAGE = ("input_tokens", "output_tokens", "cache_read_input_tokens", _WRITTEN)


class Assembler:
    """Puts a streamed answer together from its events; see `wire.chat.Assembler`."""

    def __init__(self, window: Window | None = None) -> None:
        self._names = names_of(window)
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[int, dict[str, list[str]]] = {}
        self._usage: dict[str, int] = {}
        self._stop: str | None = None

    @property
    def finished(self) -> bool:
        """Whether the provider has said that the answer is complete."""
        return self._stop is not None

    def feed(self, chunk: Any) -> list[Event]:
        """Take the next event of the stream; return its new events."""
        kind = get(chunk, "type")
        if kind == "content_block_delta":
            return self._delta(get(chunk, "index"), get(chunk, "delta"))
        if kind == "content_block_start":
            block = as_mapping(get(chunk, "content_block"), "a content block", "type")
            self._blocks[get(chunk, "index")] = dict(block)
        elif kind == "content_block_stop":
            block = self._close(get(chunk, "index"))
            if block.get("type") == "tool_use":
                called = assistant_message([block]).tool_calls[0]
                return [ToolCalled(self._names.called(called))]
        elif kind == "message_start":
            self._count(get(get(chunk, "message"), "usage"))
        elif kind == "message_delta":
            self._stop = get(get(chunk, "delta"), "stop_reason") or "end_turn"
            self._count(get(chunk, "usage"))
        return []

    def _count(self, usage: Any) -> None:
        """Take over the counts; they are cumulative."""
        for name in _USAGE if usage is not None else ():
            value = get(usage, name)
            if value is not None:
                self._usage[name] = value

    def _delta(self, index: int, delta: Any) -> list[Event]:
        kind = get(delta, "type")
        if kind == "citations_delta":
            citation = get(delta, "citation")
            block = self._blocks[index]
            block["citations"] = block.get("citations") or []
            block["citations"].append(dict(as_mapping(citation, "a citation", "type")))
            return []
        field, key = _DELTAS.get(kind, (None, None))
        if field is None or key is None:
            return []
        piece = get(delta, field)
        self._pieces.setdefault(index, {}).setdefault(key, []).append(piece)
        if kind == "text_delta":
            return [TextDelta(piece)]
        return [ReasoningDelta(piece)] if kind == "thinking_delta" else []

    def _close(self, index: int) -> dict[str, Any]:
        """Put the pieces of a block together."""
        block = self._blocks.get(index, {})
        for key, pieces in self._pieces.pop(index, {}).items():
            whole = "".join(pieces)
            if key == "input":
                try:
                    block[key] = json.loads(whole) if whole else {}
                except ValueError:  # broken off at max_tokens: kept as text
                    block[key] = whole
            else:
                block[key] = (block.get(key) or "") + whole
        return block

    def reply(self, window: Window | None = None) -> Reply:
        """Return the whole answer.

        Raises `InvalidInput` if the stream has not ended.
        """
        if self._stop is None:
            raise InvalidInput("the stream of Anthropic broke off: no stop_reason came")
        for index in list(self._pieces):
            self._close(index)
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        whole = {"content": blocks, "stop_reason": self._stop, "usage": self._usage}
        reply = decode(whole, window)
        if window is not None:
            return reply
        return replace(reply, message=self._names.read(reply.message))


_DELTAS: Mapping[Any, tuple[str | None, str | None]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("partial_json", "input"),
}
