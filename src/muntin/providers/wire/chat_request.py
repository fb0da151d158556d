"""OpenAI Chat Completions: a window as the arguments of the official call, and its answer.

https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from muntin.core.accepted import OPENAI, NameRule
from muntin.core.caching.wire_order import Answer, arrange
from muntin.core.composed import Breakpoint, Composed
from muntin.core.message import NO_RESULT, Message
from muntin.core.parts import Other, Reasoning, Text, ToolCall
from muntin.providers.wire.common import Files, check, ends, function_of, is_text, known_extra
from muntin.providers.wire.encoder import Encoder
from muntin.providers.wire.media import Content, Media, contents, hinted
from muntin.providers.wire.names import ToolNames, schema_of, tools_of

RESPONSE = "a Chat Completions response"

# The API refuses longer ids.
_IDS = NameRule(40)
_PARTICIPANT = re.compile(r"[^\s<|\\/>]{1,64}")

# A request may have four marks: https://developers.openai.com/api/docs/guides/prompt-caching
MARKS = 4
MARK = "prompt_cache_breakpoint"
TTLS = ("30m", "12h")

# Reasoning in the open, as compatible servers (DeepSeek, vLLM, OpenRouter) return it and want it
# back; OpenAI's own models have none of it.
_REASONING = ("reasoning_content", "reasoning", "reasoning_details")
_ASSISTANT_FIELDS = ("refusal", "audio", "function_call", *_REASONING)

_FINISH = {"function_call": "tool_calls"}


def encode(window: Composed, *, strict: bool = True, files: Files | None = None) -> dict[str, Any]:
    """Return `messages` (and `tools`, if any) for `client.chat.completions.create(...)`."""
    return _Encoder(check(window, strict, files), names_of(window)).request(window)


class _Encoder(Encoder):
    """One encoding: the messages so far, and the state for the next."""

    def __init__(self, files: Files, names: ToolNames) -> None:
        super().__init__("openai", files, names, _IDS, "a result has no name")
        self.sent: list[dict[str, Any]] = []
        self.order: list[int] = []

    def request(self, window: Composed) -> dict[str, Any]:
        sent, order = self.sent, self.order
        for index, message, answers in arrange(window.messages):
            content = message.content
            if content and not answers and message.role != "tool" and is_text(message):
                sent.append({"role": message.role, "content": content})
                order.append(index)
            else:
                self._message(index, message, answers)
        request: dict[str, Any] = {"messages": sent, **cache_options(window)}
        tools = [tool for tool in map(self._tool, window.tools) if tool is not None]
        if tools:
            request["tools"] = tools
        if window.breakpoints:
            self._mark(window)
        self.ledger.enter(window)
        return request

    def _message(self, index: int, message: Message, answers: Sequence[Answer]) -> None:
        # A result without a call is sent as the user's text: the API would refuse it.
        role = "user" if message.role == "tool" else message.role
        data: dict[str, Any] = {"role": role, "content": self._content(index, message, role)}
        calls, results = [], []
        for call, result, at in answers:
            call_id = self.ids(call.id)
            calls.append(self._call(index, call, call_id))
            results.append(self._result(at, call, result, call_id))
        if calls:
            data["tool_calls"] = calls
        elif not data["content"]:
            return
        if message.name is not None:
            if _PARTICIPANT.fullmatch(message.name):
                data["name"] = message.name
            else:
                self.ledger.miss(index, f"name {message.name!r}", "the API refuses such a name")
        if message.extra:
            self._extra(index, message.extra, role, data)
        self.sent.append(data)
        self.order.append(index)
        for at, answer in results:
            self.sent.append(answer)
            self.order.append(at)

    def _extra(self, index: int, extra: Mapping[str, Any], role: str, data: dict[str, Any]) -> None:
        """Add the fields that the API knows."""
        known: tuple[str, ...] = _ASSISTANT_FIELDS if role == "assistant" else ()
        if role == "system" and extra.get("role") == "developer":
            data["role"] = "developer"
            known = ("role",)
        self.ledger.miss_fields(index, extra, known)
        for key in known:
            if key != "role" and extra.get(key):
                data[key] = deepcopy(extra[key])
        if isinstance(data.get("audio"), dict):  # an earlier spoken answer is named, not sent
            data["audio"] = {"id": data["audio"].get("id")}

    def _call(self, index: int, call: ToolCall, call_id: str) -> dict[str, Any]:
        name = self.called(index, call)
        extra = call.extra or {}
        self.ledger.miss_fields(index, extra, ("type",))
        if extra.get("type") == "custom":
            return {
                "id": call_id,
                "type": "custom",
                "custom": {"name": name, "input": call.arguments},
            }
        return {
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": call.arguments},
        }

    def _result(
        self, index: int, call: ToolCall, result: Message | None, call_id: str
    ) -> tuple[int, dict[str, Any]]:
        content: Any = NO_RESULT
        if result is not None:
            content = self._content(index, result, "tool")
            self.miss_name(index, result, call)
            self.ledger.miss_fields(index, result.extra or {})
        return index, {"role": "tool", "content": content or "", "tool_call_id": call_id}

    def _content(self, index: int, message: Message, role: str) -> Any:
        """Return a text, a list of parts, or, if nothing is left, an empty value."""
        text = hinted(message, index, self.files, self.ledger)
        if text is not None:
            return message.content if text == "" else text
        parts = []
        held = list(contents(message, index, self.files, self.ledger))
        if not any(isinstance(each, Media) for each in held):
            held = _merge_hints(held, len(message.attachments))
        for each in held:
            part = self._part(index, each, role)
            if part is not None:
                parts.append(part)
        if parts:
            return parts
        return None if message.tool_calls else ""

    def _part(self, index: int, part: Content, role: str) -> dict[str, Any] | None:
        if isinstance(part, Text):
            extra = known_extra(part.extra, (MARK,), index, self.ledger)
            return {"type": "text", "text": part.text, **extra} if part.text else None
        if isinstance(part, Reasoning):
            self.ledger.miss(index, "reasoning", "Chat Completions takes none back")
        elif isinstance(part, Other):
            if role == "assistant" and part.data["type"] == "refusal":
                refusal = str(part.data.get("refusal") or "")
                return {"type": "refusal", "refusal": refusal} if refusal else None
            self.ledger.miss(index, f"part of type {part.data['type']!r}", "the API has none")
        elif role != "user":
            self.ledger.miss(index, part.label, f"{role} messages hold text only")
        else:
            sent = _media(part)
            if sent is not None:
                return {**sent, **known_extra(part.extra, (MARK,), index, self.ledger)}
            self.ledger.miss(index, part.label, _WHY[part.modality])
        return None

    def _tool(self, tool: Mapping[str, Any]) -> dict[str, Any] | None:
        kind, held = "function", function_of(tool)
        if held is None and isinstance(tool.get("custom"), Mapping):
            kind, held = "custom", tool["custom"]
        if held is None:
            self.miss_tool(tool)
            return None
        name = self.declare(held.get("name"))
        if name is None:
            return None
        rest = tool if kind in tool else {}
        if kind not in tool:
            known = ("name", "description", "parameters", "strict")
            self.ledger.miss_fields(None, held, known)
            held = {key: held[key] for key in known if key in held}
        made = {**held, "name": name}
        if "parameters" in made:
            made["parameters"] = schema_of(made["parameters"])
        return {"type": kind, **rest, kind: made}

    def _mark(self, window: Composed) -> None:
        trail = []
        for at, data in zip(self.order, self.sent, strict=True):
            content = data["content"]
            if content and (isinstance(content, str) or content[-1]["type"] != "refusal"):
                trail.append((at, data))
        taken = sum(
            MARK in part
            for data in self.sent
            if isinstance(data["content"], list)
            for part in data["content"]
        )
        for data, point in ends(trail, window, MARKS - taken):
            if isinstance(data["content"], str):
                data["content"] = [{"type": "text", "text": data["content"]}]
            data["content"][-1].setdefault(MARK, mark(point))


def cache_options(window: Composed) -> dict[str, Any]:
    """Return the option that keeps OpenAI from setting a breakpoint of its own at the newest
    message: it would charge for text that changes.

    https://developers.openai.com/api/docs/guides/prompt-caching. Only models that match exactly at
    a breakpoint know this option.
    """
    rules = window.caching
    exact = rules is not None and rules.breakpoints > 0 and rules.lookback is None
    return {"prompt_cache_options": {"mode": "explicit"}} if exact else {}


def mark(point: Breakpoint) -> dict[str, Any]:
    """Return a breakpoint as OpenAI writes it."""
    return {"mode": "explicit", **({"ttl": point.ttl} if point.ttl in TTLS else {})}


def _merge_hints(held: list[Content], hints: int) -> list[Content]:
    """Write the last `hints` texts, which name files, as one text."""
    if hints < 2:
        return held
    lines = [each.text for each in held[-hints:] if isinstance(each, Text)]
    return [*held[:-hints], Text("\n".join(lines))]


_WHY = {
    "image": "Chat Completions takes images by URL or data only",
    "document": "Chat Completions takes documents by file id or data only",
    "audio": "Chat Completions takes sound as wav or mp3 data only",
    "video": "Chat Completions takes no video",
}
_SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}


def _media(media: Media) -> dict[str, Any] | None:
    """Return an image, a file or a sound as a part of a user message; None if the API has none."""
    if media.modality == "image" and media.url is not None:
        detail = {"detail": media.detail} if media.detail else {}
        return {"type": "image_url", "image_url": {"url": media.url, **detail}}
    if media.modality == "audio" and media.inline and media.mime in _SOUNDS:
        sound = {"data": media.base64, "format": _SOUNDS[media.mime]}
        return {"type": "input_audio", "input_audio": sound}
    if media.modality == "document" and media.id is not None:
        return {"type": "file", "file": {"file_id": media.id}}
    if media.modality == "document" and media.inline:
        return {"type": "file", "file": {"file_data": media.url, "filename": media.name or "file"}}
    return None


def names_of(window: Composed | None) -> ToolNames:
    """Return the names of a window's tools as the API takes them."""
    return ToolNames(OPENAI, tools_of(window))
