"""Google generate_content: an answer as a Reply, whole or from a stream.

https://ai.google.dev/api/generate-content
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muntin.core.checks import compact_json, shown
from muntin.core.forms.google import PARTS, SIGNATURE, as_json
from muntin.core.message import Message
from muntin.core.parts import Other, Part, Reasoning, Text, ToolCall, joined, put_before
from muntin.core.window import Window
from muntin.errors import InvalidInput, MuntinError
from muntin.providers.model import Event, ReasoningDelta, Reply, TextDelta, ToolCalled, Usage
from muntin.providers.wire.common import get
from muntin.providers.wire.google_request import names_of

RESPONSE = "a generate_content response"


_FILTERED = (
    "SAFETY",
    "RECITATION",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
)
_FINISH = {"STOP": "stop", "MAX_TOKENS": "length", **dict.fromkeys(_FILTERED, "content_filter")}


def decode(response: Any, window: Window | None = None) -> Reply:
    """Read a response, the SDK's object or its dict, as a Reply.

    With the window that was sent, calls have the names of its tools. Raises `InvalidInput`,
    naming the expected form, if the value is something else.
    """
    if not _field(response, "candidates") and _field(response, "prompt_feedback") is None:
        found = sorted(map(str, response)) if isinstance(response, Mapping) else type(response)
        raise InvalidInput(f"expected {RESPONSE}, which has 'candidates'; got {shown(found)}")
    whole = Assembler()
    try:
        for candidate in _field(response, "candidates") or ():
            if _field(candidate, "content") is None and _field(candidate, "finish_reason") is None:
                raise InvalidInput(
                    f"a candidate has neither content nor finish_reason: {shown(candidate)}"
                )
        whole.feed(response)
        return whole.reply(window, complete=True)
    except (MuntinError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise InvalidInput(f"expected {RESPONSE}; it cannot be read: {shown(error)}") from error


def _field(value: Any, name: str) -> Any:
    """Return a field of an SDK's object or of a dict, in Python's or the REST API's spelling."""
    found = get(value, name)
    if found is None and isinstance(value, dict) and "_" in name:
        first, *others = name.split("_")
        found = value.get(first + "".join(word.title() for word in others))
    return found


class Assembler:
    """Puts a streamed answer together from its chunks; see `wire.chat.Assembler`.

    Texts that follow each other become one, except texts with a signature: Google wants these
    back unchanged.
    """

    def __init__(self, window: Window | None = None) -> None:
        self._names = names_of(window)
        self._parts: list[Part] = []
        self._calls: list[ToolCall] = []
        # Pieces of the text that is still growing, and whether it is a thought.
        self._pieces: list[str] = []
        self._thought = False
        # How many parts stand behind the last call; another call may follow.
        self._behind = 0
        self._finish: str | None = None
        self._usage: Any = None

    @property
    def finished(self) -> bool:
        """Whether the provider has said that the answer is complete."""
        return self._finish is not None

    def feed(self, chunk: Any) -> list[Event]:
        """Take the next chunk of the stream; return its new events."""
        events: list[Event] = []
        self._usage = _field(chunk, "usage_metadata") or self._usage
        candidates = _field(chunk, "candidates")
        if not candidates:
            if _field(_field(chunk, "prompt_feedback"), "block_reason") is not None:
                self._finish = "SAFETY"
            return events
        content = _field(candidates[0], "content")
        for part in _field(content, "parts") or () if content is not None else ():
            self._part(part, _field(chunk, "response_id"), events)
        finish = _field(candidates[0], "finish_reason")
        if finish is not None:
            self._finish = str(getattr(finish, "value", finish))
        return events

    def _part(self, part: Any, response_id: Any, events: list[Event]) -> None:
        signature = _field(part, SIGNATURE)
        signed = {SIGNATURE: as_json(signature)} if signature else {}
        text, call = _field(part, "text"), _field(part, "function_call")
        if call is not None:
            self._close()
            self._call(call, signed, response_id)
            events.append(ToolCalled(self._names.called(self._calls[-1])))
        elif text is not None:
            thought = bool(_field(part, "thought"))
            if text:
                events.append(ReasoningDelta(text) if thought else TextDelta(text))
            if signed:
                self._close()
                self._put(_text_part(text, thought, signed))
            elif text:
                if thought != self._thought:
                    self._close()
                self._thought = thought
                self._pieces.append(text)
        else:
            self._close()
            for kind in PARTS:
                value = _field(part, kind)
                if value is not None:
                    self._put(Other({"type": kind, kind: as_json(value), **signed}))

    def _call(self, call: Any, signed: Mapping[str, Any], response_id: Any) -> None:
        number = len(self._calls)
        # Older models give no ids; the response's id makes this id unique.
        made = f"{response_id}_{number}" if response_id else f"call_{number}"
        name, args = _field(call, "name"), _field(call, "args")
        arguments = compact_json(as_json(args or {}))
        made_call = ToolCall(_field(call, "id") or made, name, arguments, extra=signed or None)
        for index in range(len(self._parts) - self._behind, len(self._parts)):
            self._parts[index] = put_before(self._parts[index], made_call.id)
        self._behind = 0
        self._calls.append(made_call)

    def _close(self) -> None:
        """Join the pieces of the growing text."""
        if self._pieces:
            self._put(_text_part("".join(self._pieces), self._thought, {}))
            self._pieces = []

    def _put(self, part: Part) -> None:
        self._parts.append(part)
        self._behind += bool(self._calls)

    def reply(self, window: Window | None = None, *, complete: bool = False) -> Reply:
        """Return the whole answer.

        Raises `InvalidInput` if the stream has not ended, unless it is known to be `complete`.
        """
        if self._finish is None and not complete:
            raise InvalidInput("the stream of generate_content broke off: no finish_reason came")
        self._close()
        finish = _FINISH.get(self._finish or "STOP", str(self._finish).lower())
        if finish == "stop" and self._calls:
            finish = "tool_calls"
        usage = self._usage
        names = self._names if window is None else names_of(window)
        said = Message("assistant", joined(self._parts), tool_calls=tuple(self._calls))
        return Reply(
            names.read(said),
            usage=Usage(
                _tokens(usage, "prompt_token_count", "tool_use_prompt_token_count"),
                _tokens(usage, "candidates_token_count", "thoughts_token_count"),
                _tokens(usage, "cached_content_token_count"),
            ),
            finish_reason=finish,
            window=window,
        )


def _tokens(usage: Any, *names: str) -> int:
    found = [_field(usage, name) for name in names] if usage is not None else []
    return sum(each for each in found if isinstance(each, int))


def _text_part(text: str, thought: bool, signed: Mapping[str, Any]) -> Part:
    if thought:
        return Reasoning(text, signature=signed.get(SIGNATURE), extra={"thought": True})
    return Text(text, extra=signed or None)
