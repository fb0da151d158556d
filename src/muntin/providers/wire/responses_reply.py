"""OpenAI Responses: an answer as a Reply, whole or from a stream.

https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from muntin.core.checks import shown
from muntin.core.forms.responses import answer, call
from muntin.core.message import Message
from muntin.core.window import Window
from muntin.errors import InvalidInput, MuntinError
from muntin.providers.model import Event, ReasoningDelta, Reply, TextDelta, ToolCalled, Usage
from muntin.providers.wire.chat_request import names_of
from muntin.providers.wire.common import as_mapping, count, get

RESPONSE = "a response of the Responses API"


def decode(response: Any, window: Window | None = None) -> Reply:
    """Read a response, the SDK's object or its dict, as a Reply.

    A response that failed has the finish reason `failed` and its error in `message.extra`. With
    the window that was sent, calls have the names of its tools. Raises `InvalidInput`, naming
    the expected form, if the value is something else.
    """
    data = as_mapping(response, RESPONSE, "output")
    items = data["output"]
    if not isinstance(items, Sequence) or not all(isinstance(item, Mapping) for item in items):
        raise InvalidInput(
            f"expected {RESPONSE}, whose 'output' is a list of items; got {shown(items)}"
        )
    try:
        message = answer(items, data.get("error"))
    except (MuntinError, KeyError, TypeError) as error:
        raise InvalidInput(
            f"expected {RESPONSE}; its output cannot be read: {shown(error)}"
        ) from error
    usage = data.get("usage")
    details = get(usage, "input_tokens_details") if usage is not None else None
    return Reply(
        names_of(window).read(message),
        usage=Usage(
            count(usage, "input_tokens"),
            count(usage, "output_tokens"),
            count(details, "cached_tokens"),
            count(details, "cache_write_tokens"),
        ),
        finish_reason=_finish(data, message),
        window=window,
    )


_INCOMPLETE = {"max_output_tokens": "length"}


def _finish(data: Mapping[str, Any], message: Message) -> str:
    status = data.get("status") or "completed"
    if status == "incomplete":
        reason = (data.get("incomplete_details") or {}).get("reason") or status
        return _INCOMPLETE.get(reason, str(reason))
    if status != "completed":
        return str(status)
    return "tool_calls" if message.tool_calls else "stop"


_REASONING_EVENTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_TEXT_EVENTS = ("response.output_text.delta", "response.refusal.delta")
_LAST_EVENTS = ("response.completed", "response.incomplete", "response.failed")


class Assembler:
    """Puts a streamed answer together from its events; see `wire.chat.Assembler`.

    The last event holds the whole response, so only that event is kept.
    """

    def __init__(self, window: Window | None = None) -> None:
        self._names = names_of(window)
        self._response: Any = None
        self._error: Any = None
        self._named = False

    @property
    def finished(self) -> bool:
        """Whether the provider has said that the answer is complete."""
        return self._response is not None

    def feed(self, chunk: Any) -> list[Event]:
        """Take the next event of the stream; return its new events."""
        kind = get(chunk, "type")
        if kind in _TEXT_EVENTS:
            return [TextDelta(get(chunk, "delta"))]
        if kind in _REASONING_EVENTS:
            return [ReasoningDelta(get(chunk, "delta"))]
        if kind == "response.output_item.done":
            item = get(chunk, "item")
            self._named = self._named or get(item, "type") == "reasoning"
            if get(item, "type") in ("function_call", "custom_tool_call"):
                data = as_mapping(item, "a tool call of the Responses API", "call_id")
                return [ToolCalled(self._names.called(call(data, self._named)))]
        elif kind in _LAST_EVENTS:
            self._response = get(chunk, "response")
        elif kind == "error":
            self._error = get(chunk, "message")
        return []

    def reply(self, window: Window | None = None) -> Reply:
        """Return the whole answer.

        Raises `InvalidInput` if the stream has not ended.
        """
        if self._response is None:
            why = f": {self._error}" if self._error else ""
            raise InvalidInput(f"the stream of Responses broke off before its last event{why}")
        reply = decode(self._response, window)
        if window is not None:
            return reply
        return replace(reply, message=self._names.read(reply.message))
