"""Reading the answers of Chat Completions: a response, or the chunks of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muntin.core.checks import shown
from muntin.core.message import Message
from muntin.core.parts import ToolCall
from muntin.core.window import Window
from muntin.errors import InvalidInput, MuntinError
from muntin.providers.model import Event, ReasoningDelta, Reply, TextDelta, ToolCalled, Usage
from muntin.providers.wire.chat_request import names_of
from muntin.providers.wire.common import as_mapping, count, get

RESPONSE = "a Chat Completions response"

_FINISH = {"function_call": "tool_calls"}


def decode(response: Any, window: Window | None = None) -> Reply:
    """Read a response, the SDK's object or its dict, as a Reply.

    With the window that was sent, calls have the names of its tools. Raises `InvalidInput`,
    naming the expected form, if the value is something else.
    """
    data = as_mapping(response, RESPONSE, "choices")
    choices = data["choices"]
    message = choices[0].get("message") if choices and isinstance(choices[0], Mapping) else None
    if not isinstance(message, Mapping):
        raise InvalidInput(
            f"expected {RESPONSE}, whose 'choices' have a 'message'; got {shown(choices)}"
        )
    finish = choices[0].get("finish_reason") or "stop"
    return Reply(
        names_of(window).read(_message(message)),
        usage=usage_of(data.get("usage")),
        finish_reason=_FINISH.get(finish, finish),
        window=window,
    )


def _message(data: Mapping[str, Any]) -> Message:
    known = {k: v for k, v in data.items() if v not in (None, [], {})}
    content: Any = known.pop("content", None)
    refusal = known.pop("refusal", None)
    if refusal:  # a text of the model, so it belongs to the content
        said = {"type": "refusal", "refusal": refusal}
        content = [{"type": "text", "text": content}, said] if content else [said]
    audio = known.get("audio")
    if content is None and isinstance(audio, Mapping) and isinstance(audio.get("transcript"), str):
        content = audio["transcript"]
    try:
        return Message.from_dict({**known, "role": "assistant", "content": content})
    except MuntinError as error:
        raise InvalidInput(f"expected {RESPONSE}; its message cannot be read: {error}") from error


def usage_of(usage: Any) -> Usage:
    """Read the billed tokens."""
    details = get(usage, "prompt_tokens_details") if usage is not None else None
    return Usage(
        count(usage, "prompt_tokens"),
        count(usage, "completion_tokens"),
        count(details, "cached_tokens"),
        count(details, "cache_write_tokens"),
    )


class Assembler:
    """Puts a streamed answer together from its chunks.

    `feed` returns the events of a chunk, `reply` the whole when the stream has ended. Pieces are
    kept in lists and joined once. With the window that was sent, calls have the names of its
    tools, as they have in `decode`.
    """

    def __init__(self, window: Window | None = None) -> None:
        self._names = names_of(window)
        self._pieces: dict[str, list[str]] = {}
        self._calls: dict[int, dict[str, Any]] = {}
        self._finish: str | None = None
        self._usage: Any = None
        self._done: tuple[ToolCall, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether the provider has said that the answer is complete."""
        return self._finish is not None

    def feed(self, chunk: Any) -> list[Event]:
        """Take the next chunk of the stream; return its new events."""
        events: list[Event] = []
        usage = get(chunk, "usage")
        if usage is not None:
            self._usage = usage
        for choice in get(chunk, "choices") or ():
            if get(choice, "index"):
                continue  # only the first answer is read
            delta = get(choice, "delta")
            if delta is not None:
                self._delta(delta, events)
            finish = get(choice, "finish_reason")
            if finish is not None:
                self._finish = finish
                events += self._called()
        return events

    def _delta(self, delta: Any, events: list[Event]) -> None:
        text = get(delta, "content")
        if text:
            self._pieces.setdefault("content", []).append(text)
            events.append(TextDelta(text))
        for key in ("reasoning_content", "reasoning", "refusal"):
            piece = get(delta, key)
            if piece and isinstance(piece, str):
                self._pieces.setdefault(key, []).append(piece)
                events.append(TextDelta(piece) if key == "refusal" else ReasoningDelta(piece))
        for part in get(delta, "tool_calls") or ():
            call = self._call(get(part, "index") or 0, get(part, "id"))
            function = get(part, "function")
            call["name"] = get(function, "name") or call["name"]
            call["pieces"].append(get(function, "arguments") or "")

    def _call(self, index: int, call_id: str | None) -> dict[str, Any]:
        """Return the call a piece belongs to.

        Some compatible servers give every call the index 0: a new id is a new call.
        """
        call = self._calls.get(index)
        if call is not None and call_id and call["id"] not in ("", call_id):
            same = [key for key, each in self._calls.items() if each["id"] == call_id]
            index = same[0] if same else max(self._calls) + 1
        call = self._calls.setdefault(index, {"id": "", "name": "", "pieces": []})
        call["id"] = call_id or call["id"]
        return call

    def _called(self) -> list[Event]:
        if self._done or not self._calls:
            return []
        self._done = tuple(_tool_call(self._calls[index], index) for index in sorted(self._calls))
        return [ToolCalled(self._names.called(call)) for call in self._done]

    def reply(self, window: Window | None = None) -> Reply:
        """Return the whole answer.

        Raises `InvalidInput` if the stream has not ended.
        """
        if self._finish is None:
            raise InvalidInput("the stream of Chat Completions broke off: no finish_reason came")
        whole: dict[str, Any] = {key: "".join(found) for key, found in self._pieces.items()}
        if self._done:
            whole["tool_calls"] = list(self._done)
        names = self._names if window is None else names_of(window)
        return Reply(
            names.read(_message(whole)),
            usage=usage_of(self._usage),
            finish_reason=_FINISH.get(self._finish, self._finish),
            window=window,
        )


def _tool_call(call: Mapping[str, Any], index: int) -> ToolCall:
    if not call["name"]:
        raise InvalidInput(f"expected {RESPONSE}; streamed tool call {index} has no name")
    return ToolCall(call["id"] or f"call_{index}", call["name"], "".join(call["pieces"]) or "{}")
