"""OpenAI Chat Completions: messages, requests, replies and streams, each read and written here.

https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from muntin.core.accepted import OPENAI, NameRule
from muntin.core.caching.wire_order import Answer
from muntin.core.checks import shown
from muntin.core.message import NO_RESULT, Message, has_refusal_or_audio
from muntin.core.parts import Other, Reasoning, Text, ToolCall
from muntin.core.window import Breakpoint, Window
from muntin.errors import InvalidInput, MuntinError
from muntin.wire.blocks import ItemFormat, new_arguments, write_items
from muntin.wire.common import (
    Files,
    Ledger,
    as_mapping,
    check,
    count,
    ends,
    function_of,
    get,
    is_text,
    known_extra,
    with_fields,
)
from muntin.wire.encoder import Encoder, arrange_as_called
from muntin.wire.media import Content, Media, contents, hinted
from muntin.wire.names import ToolNames, declared_tools, schema_of
from muntin.wire.pieces import Fitted, Placed
from muntin.wire.reply import Event, ReasoningDelta, Reply, TextDelta, ToolCalled, Usage
from muntin.wire.requests import (
    Body,
    Request,
    body_tools,
    breakpoints,
    count_marks,
    inside,
    last_marks,
    listed,
    named,
    text_of,
)

# requests

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


def encode(window: Window, *, strict: bool = True, files: Files | None = None) -> dict[str, Any]:
    """Return `messages` (and `tools`, if any) for `client.chat.completions.create(...)`."""
    return _Encoder(check(window, strict, files), names_of(window)).request(window)


class _Encoder(Encoder):
    """One encoding: the messages so far, and the state for the next."""

    def __init__(self, files: Files, names: ToolNames) -> None:
        super().__init__("openai", files, names, _IDS, "a result has no name")
        self.sent: list[tuple[int, dict[str, Any]]] = []

    def request(self, window: Window) -> dict[str, Any]:
        for index, message, answers in arrange_as_called(window):
            content = message.content
            if content and not answers and message.role != "tool" and is_text(message):
                self.sent.append((index, {"role": message.role, "content": content}))
            else:
                self._message(index, message, answers)
        tools = map(self._tool, window.tools)
        return request_of("messages", self.sent, tools, window, self.ledger, takes_mark, part_of)

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
        elif not data["content"] and not has_refusal_or_audio(message):
            return
        if message.name is not None:
            if _PARTICIPANT.fullmatch(message.name):
                data["name"] = message.name
            else:
                self.ledger.miss(index, f"name {message.name!r}", "the API refuses such a name")
        if message.extra:
            self._extra(index, message.extra, role, data)
        self.sent += [(index, data), *results]

    def _extra(self, index: int, extra: Mapping[str, Any], role: str, data: dict[str, Any]) -> None:
        """Add the fields that the API knows."""
        fields: tuple[str, ...] = _ASSISTANT_FIELDS if role == "assistant" else ()
        if role == "system" and extra.get("role") == "developer":
            data["role"] = "developer"
            fields = ("role",)
        self.ledger.miss_fields(index, extra, fields)
        for key in fields:
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
        if not any(isinstance(part, Media) for part in held):
            held = _merge_hints(held, len(message.attachments))
        for media_or_text in held:
            part = self._part(index, media_or_text, role)
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
            fields = ("name", "description", "parameters", "strict")
            self.ledger.miss_fields(None, held, fields)
            held = {key: held[key] for key in fields if key in held}
        definition = {**held, "name": name}
        if "parameters" in definition:
            definition["parameters"] = schema_of(definition["parameters"])
        return {"type": kind, **rest, kind: definition}


def request_of(
    key: str,
    sent: Sequence[tuple[int, dict[str, Any]]],
    tools: Iterable[dict[str, Any] | None],
    window: Window,
    ledger: Ledger,
    markable: Callable[[Any], str | None],
    as_part: Callable[[str], dict[str, Any]],
) -> dict[str, Any]:
    """Return a request of OpenAI's: items with the indexes of their messages, and tools.

    The items behind which to cache are marked; `markable` says which field of an item can be.
    """
    items = [item for _, item in sent]
    request: dict[str, Any] = {key: items, **cache_options(window)}
    declared = [tool for tool in tools if tool is not None]
    if declared:
        request["tools"] = declared
    trail = [(at, item) for at, item in sent if markable(item)] if window.breakpoints else []
    for item, point in ends(trail, window, MARKS - count_marks(items, MARK) if trail else 0):
        field = markable(item) or "content"
        if isinstance(item[field], str):
            item[field] = [as_part(item[field])]
        item[field][-1].setdefault(MARK, mark(point))
    ledger.enter(window)
    return request


def cache_options(window: Window) -> dict[str, Any]:
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
    lines = [part.text for part in held[-hints:] if isinstance(part, Text)]
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


def names_of(window: Window | None) -> ToolNames:
    """Return the names of a window's tools as the API takes them."""
    return ToolNames(OPENAI, declared_tools(window))


# replies


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
    fields = {k: v for k, v in data.items() if v not in (None, [], {})}
    content: Any = fields.pop("content", None)
    refusal = fields.pop("refusal", None)
    if refusal:  # a text of the model, so it belongs to the content
        refusal_part = {"type": "refusal", "refusal": refusal}
        text = [{"type": "text", "text": content}] if isinstance(content, str) else content
        content = [*(text or ()), refusal_part] if content else [refusal_part]
    audio = fields.get("audio")
    if content is None and isinstance(audio, Mapping) and isinstance(audio.get("transcript"), str):
        content = audio["transcript"]
    try:
        return Message.from_dict({**fields, "role": "assistant", "content": content})
    except MuntinError as error:
        raise InvalidInput(f"expected {RESPONSE}; its message cannot be read: {error}") from error


def usage_of(usage: Any) -> Usage:
    """Read the billed tokens."""
    details = get(usage, "prompt_tokens_details") if usage is not None else None
    made = get(usage, "completion_tokens_details") if usage is not None else None
    return Usage(
        count(usage, "prompt_tokens"),
        count(usage, "completion_tokens"),
        count(details, "cached_tokens"),
        count(details, "cache_write_tokens"),
        count(made, "reasoning_tokens"),
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
                events += self._call_events()
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
            same = [key for key, call in self._calls.items() if call["id"] == call_id]
            index = same[0] if same else max(self._calls) + 1
        call = self._calls.setdefault(index, {"id": "", "name": "", "pieces": []})
        call["id"] = call_id or call["id"]
        return call

    def _call_events(self) -> list[Event]:
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
        whole: dict[str, Any] = {key: "".join(pieces) for key, pieces in self._pieces.items()}
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


# requests read


def read_request(body: Body) -> Request:
    """Read the body of a request."""
    return Request(
        listed(body, "messages", "a request of Chat Completions"),
        tools=(*body_tools(body), *_functions(body)),
        model=named("openai", body.get("model")),
        user=text_of(body.get("safety_identifier")) or text_of(body.get("user")),
        output=inside(body, "response_format", "json_schema"),
    )


def write_request(body: Body, fitted: Fitted) -> dict[str, Any]:
    """Return the request with the kept messages, marked where it may be cached."""
    messages, ends = write_items(body["messages"], fitted.placed, lambda item: ITEM_FORMAT)
    options = mark_items(messages, ends, fitted, _markable, part_of)
    return {**body, **{k: v for k, v in options.items() if k not in body}, "messages": messages}


def _functions(body: Body) -> tuple[Mapping[str, Any], ...]:
    """Return tools in the older form, `functions`."""
    functions = body.get("functions")
    listed = functions if isinstance(functions, list | tuple) else ()
    return tuple(
        {"type": "function", "function": function}
        for function in listed
        if isinstance(function, Mapping)
    )


# items written back

_TEXTS = ("text", "input_text", "output_text")
# Calls among the blocks of a content, as frameworks write them.
_CALLS = ("tool_use", "tool_call", "tool_call_chunk", "function_call")


def text_in(block: Any) -> str | None:
    """Return the text of a block that is only text."""
    if isinstance(block, str):
        return block
    kind, text = get(block, "type"), get(block, "text")
    return text if isinstance(text, str) and (kind is None or kind in _TEXTS) else None


def is_refusal(block: Any) -> bool:
    """Say whether a block is a refusal of the model's: it stays whatever its text is."""
    return bool(get(block, "type") == "refusal")


def part_of(text: str) -> dict[str, Any]:
    """Return a text as a part of a content."""
    return {"type": "text", "text": text}


def _call_in(block: Any) -> Any:
    return block if get(block, "type") in _CALLS else None


def _new_calls(item: Any, placed: Placed) -> dict[str, Any]:
    """Return the fields of an item that hold its calls, with their new arguments."""
    if not placed.arguments:
        return {}
    new: dict[str, Any] = {}
    calls, legacy = get(item, "tool_calls") or (), get(item, "function_call")
    if calls:
        pairs = zip(calls, new_arguments(calls, placed), strict=True)
        new["tool_calls"] = [c if text is None else _with_arguments(c, text) for c, text in pairs]
    elif legacy is not None:
        (text,) = new_arguments([legacy], placed)
        new["function_call"] = legacy if text is None else with_fields(legacy, arguments=text)
    return new


def _with_arguments(call: Any, text: str) -> Any:
    """Return a call with other arguments, in whatever form it has them."""
    for key, field in (("function", "arguments"), ("custom", "input")):
        inner = get(call, key)
        if inner is not None:
            was = get(inner, field)
            now = text if isinstance(was, str) or was is None else json.loads(text)
            return with_fields(call, **{key: with_fields(inner, **{field: now})})
    fields = ("args", "input", "arguments")
    field = next((key for key in fields if get(call, key) is not None), "args")
    return with_fields(call, **{field: json.loads(text)})


def _make_item(message: Message, call: ToolCall | None, items: Sequence[Any]) -> dict[str, Any]:
    answers = {} if message.tool_call_id is None else {"tool_call_id": message.tool_call_id}
    return {"role": message.role, "content": message.text, **answers}


ITEM_FORMAT = ItemFormat(
    model="assistant",
    is_result=lambda block: False,
    call=_call_in,
    text=text_in,
    stays=lambda block: is_refusal(block) or _call_in(block) is not None,
    make_text=part_of,
    with_result_text=lambda block, text: block,
    with_arguments=_with_arguments,
    make_item=_make_item,
    beside=_new_calls,
)


def mark_items(
    items: list[Any],
    ends: Sequence[int],
    fitted: Fitted,
    markable: Callable[[Any], str | None],
    as_part: Callable[[str], dict[str, Any]],
) -> dict[str, Any]:
    """Mark the items behind which to cache; return the options that belong to marks.

    `ends` says where each placed message ends, `markable` which field of an item takes a mark.
    """
    points = breakpoints(fitted)
    if not points:
        return {}
    for place, point in last_marks(points, MARKS - count_marks(items, MARK)):
        end = ends[place] if place >= 0 else 0
        at = next((n for n in range(end - 1, -1, -1) if markable(items[n])), None)
        if at is None:
            continue
        item = {"role": "user", "content": items[at]} if isinstance(items[at], str) else items[at]
        key = markable(items[at]) or "content"
        parts = [as_part(item[key])] if isinstance(item[key], str) else list(item[key])
        if MARK not in parts[-1]:
            parts[-1] = {**parts[-1], MARK: mark(point)}
            items[at] = {**item, key: parts}
    return cache_options(fitted.window)


def _markable(message: Any) -> str | None:
    is_answer = isinstance(message, Mapping) and message.get("role") == "assistant"
    return None if is_answer else takes_mark(message)


def takes_mark(item: Any, key: str = "content") -> str | None:
    """Return the field of an item, if a mark can stand at its end."""
    content = item.get(key) if isinstance(item, Mapping) else None
    if isinstance(content, str):
        return key if content else None
    last = content[-1] if isinstance(content, list | tuple) and content else None
    return key if isinstance(last, Mapping) and not is_refusal(last) else None
