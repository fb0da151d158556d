"""OpenAI Chat Completions: messages, requests, replies and streams, each read and written here.

https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any

from muntin.core.accepted import OPENAI, NameRule
from muntin.core.caching.wire_order import Answer, arrange
from muntin.core.checks import shown
from muntin.core.message import NO_RESULT, ROLES, Message, Role, role_of, speaks_beside
from muntin.core.parts import Other, Reasoning, Text, ToolCall
from muntin.core.window import Breakpoint, Window
from muntin.errors import InvalidInput, MuntinError
from muntin.wire.common import (
    Files,
    as_mapping,
    check,
    count,
    ends,
    function_of,
    get,
    is_text,
    known_extra,
)
from muntin.wire.encoder import Encoder
from muntin.wire.media import Content, Media, contents, hinted
from muntin.wire.names import ToolNames, declared_tools, schema_of
from muntin.wire.pieces import Fitted, Piece, Pieces, Placed
from muntin.wire.reply import Event, ReasoningDelta, Reply, TextDelta, ToolCalled, Usage
from muntin.wire.requests import (
    Body,
    Key,
    Request,
    as_text,
    body_tools,
    breakpoints,
    count_marks,
    inside,
    is_refusal,
    key_of,
    last_marks,
    listed,
    named,
    read_piece,
    recall,
    text_of,
    with_texts,
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
        self.sent: list[dict[str, Any]] = []
        self.order: list[int] = []

    def request(self, window: Window) -> dict[str, Any]:
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
        elif not data["content"] and not speaks_beside(message):
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

    def _mark(self, window: Window) -> None:
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
    known = {k: v for k, v in data.items() if v not in (None, [], {})}
    content: Any = known.pop("content", None)
    refusal = known.pop("refusal", None)
    if refusal:  # a text of the model, so it belongs to the content
        said = {"type": "refusal", "refusal": refusal}
        text = [{"type": "text", "text": content}] if isinstance(content, str) else content
        content = [*(text or ()), said] if content else [said]
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


# requests read

# A list of up to this many messages is read at once: reading each when needed is slower.
_FEW = 500


def read_request(body: Body) -> Request:
    """Read the body of a request."""
    messages = listed(body, "messages", "a request of Chat Completions")
    legacy = cache(lambda: _legacy_ids(messages))  # few requests have any

    def read_one(item: Any, number: int) -> Piece:
        key = _key(item)
        known = None if key is None else recall(key)
        if known is not None:
            # Most messages: they were in the request before.
            return Piece(known, number)
        data = _repaired(item, number, legacy)
        if data is not item:
            key = _key(data)
        role: Role = "assistant" if role_of(data) == "assistant" else "user"
        return read_piece(Message.from_dict, data, number, role, _simpler, key)

    found: Sequence[Piece]
    if len(messages) <= _FEW:
        found = [read_one(item, number) for number, item in enumerate(messages)]
    else:
        found = Pieces(messages, lambda item, number: (read_one(item, number),), role=_role)
    return Request(
        found,
        tools=(*body_tools(body), *_functions(body)),
        model=named("openai", body.get("model")),
        user=text_of(body.get("safety_identifier")) or text_of(body.get("user")),
        output=inside(body, "response_format", "json_schema"),
    )


def write_request(body: Body, fitted: Fitted) -> dict[str, Any]:
    """Return the request with the kept messages, marked where it may be cached."""
    given = body["messages"]
    messages: list[Any] = [
        given[each.ref] if each.is_whole else _written(given, each) for each in fitted.placed
    ]
    options = _mark(messages, fitted, "content", _part)
    return {**body, **{k: v for k, v in options.items() if k not in body}, "messages": messages}


def _key(item: Any) -> Key | None:
    """Return the key of a message; for most messages by the quickest way."""
    calls = None
    if item.__class__ is dict:
        size, role, content = len(item), item.get("role"), item.get("content")
        if size == 2 and role.__class__ is content.__class__ is str:
            return "chat", role, content
        if size == 3:
            called, calls = item.get("tool_call_id"), item.get("tool_calls")
            if called.__class__ is role.__class__ is content.__class__ is str:
                return "chat", role, content, called
    if calls.__class__ is not list:
        return key_of("chat", item)
    key = ["calls", item.get("role"), item.get("content", item)]
    try:
        for call in calls:
            function = call["function"]
            if len(call) != 3 or call["type"] != "function" or len(function) != 2:
                return key_of("chat", item)
            key += call["id"], function["name"], function["arguments"]
    except (KeyError, TypeError):
        return key_of("chat", item)
    return tuple(key) if {*map(type, key)} <= _TEXTS else None


_TEXTS = {str, type(None)}


def _role(item: Any) -> Role | None:
    role = role_of(item) if isinstance(item, Mapping) else None
    return role if role in ROLES else None


def _functions(body: Body) -> tuple[Mapping[str, Any], ...]:
    """Return tools in the older form, `functions`."""
    found = body.get("functions")
    given = found if isinstance(found, list | tuple) else ()
    return tuple(
        {"type": "function", "function": each} for each in given if isinstance(each, Mapping)
    )


def _legacy_ids(messages: Sequence[Any]) -> dict[int, str]:
    """Return ids for results of functions, which have none: made from the call before them."""
    found: dict[int, str] = {}
    called: int | None = None
    for number, item in enumerate(messages):
        if not isinstance(item, dict):
            continue
        if item.get("function_call"):
            called = number
        elif item.get("role") == "function":
            found[number] = f"function_{called if called is not None else number}"
            called = None
    return found


def _repaired(item: Any, number: int, legacy: Callable[[], Mapping[int, str]]) -> Any:
    """Return a message in the form that is read: lax servers take messages that OpenAI refuses."""
    if not isinstance(item, dict) or len(item) == 2:
        return item
    if item.get("role") == "function":
        return {"role": "tool", "content": item.get("content"), "tool_call_id": legacy()[number]}
    calls = item.get("tool_calls")
    call = item.get("function_call")
    if isinstance(calls, list | tuple) and calls:
        made = [_call(each, f"{number}_{n}") for n, each in enumerate(calls)]
        same = all(one is other for one, other in zip(made, calls, strict=True))
        return item if same else {**item, "tool_calls": made}
    if isinstance(call, Mapping) and item.get("role") == "assistant":
        rest = {key: value for key, value in item.items() if key != "function_call"}
        one = {"id": f"function_{number}", "type": "function", "function": call}
        return {**rest, "tool_calls": [_call(one, "")]}
    return item


def _simpler(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return only the call or the result of a message, with the rest as a text."""
    rest = {key: value for key, value in data.items() if key not in _GROUPED}
    if not data.get("tool_calls") and not isinstance(data.get("tool_call_id"), str):
        raise InvalidInput("it is neither a call nor a result")
    kept = {key: data[key] for key in _GROUPED if data.get(key)}
    return {**kept, "content": as_text(rest)}


_GROUPED = ("role", "tool_calls", "tool_call_id")


def _call(call: Any, made: str) -> Any:
    if not isinstance(call, Mapping):
        return call
    function = call.get("function")
    if isinstance(function, Mapping) and not isinstance(function.get("arguments"), str):
        call = {**call, "function": {**function, "arguments": function.get("arguments") or "{}"}}
    return call if isinstance(call.get("id"), str) else {**call, "id": f"call_{made}"}


def _written(messages: Sequence[Any], placed: Placed) -> Any:
    message = placed.message
    if placed.ref is None:
        told = {} if message.tool_call_id is None else {"tool_call_id": message.tool_call_id}
        return {"role": message.role, "content": message.text, **told}
    item = messages[placed.ref]
    data = dict(item)
    if placed.text is not None:
        data["content"] = with_parts(item.get("content"), placed, _text, _part)
    if placed.arguments and isinstance(item.get("function_call"), Mapping):
        data["function_call"] = _shorter(item["function_call"], message.tool_calls[0].arguments)
    elif placed.arguments:
        calls = zip(item["tool_calls"], message.tool_calls, strict=True)
        data["tool_calls"] = [_with_arguments(given, call.arguments) for given, call in calls]
    return data


def with_parts(
    content: Any,
    placed: Placed,
    text: Callable[[Any], str | None],
    made: Callable[[str], dict[str, Any]],
) -> Any:
    """Return the content of a message with its new text, in the form of the old content."""
    if not isinstance(content, list | tuple):
        return placed.text
    return with_texts(content, placed, text, is_refusal, made) or placed.text


def _with_arguments(call: Mapping[str, Any], arguments: str) -> dict[str, Any]:
    key = "custom" if "custom" in call else "function"
    return {**call, key: _shorter(call[key], arguments)}


def _shorter(call: Mapping[str, Any], arguments: str) -> dict[str, Any]:
    return {**call, "input" if "input" in call else "arguments": arguments}


def _text(part: Any) -> str | None:
    text = part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None
    return text if isinstance(text, str) else None


def _part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _mark(
    messages: list[Any], fitted: Fitted, key: str, made: Callable[[str], dict[str, Any]]
) -> dict[str, Any]:
    """Mark the messages behind which to cache; return the options that belong to marks."""
    points = breakpoints(fitted)
    if not points:
        return {}
    for place, point in last_marks(points, MARKS - count_marks(messages, MARK)):
        at = next((n for n in range(place, -1, -1) if _markable(messages[n], key)), None)
        if at is not None:
            content = messages[at][key]
            parts = [made(content)] if isinstance(content, str) else list(content)
            if MARK not in parts[-1]:
                parts[-1] = {**parts[-1], MARK: mark(point)}
                messages[at] = {**messages[at], key: parts}
    return cache_options(fitted.window)


def _markable(message: Any, key: str) -> bool:
    content = message.get(key) if isinstance(message, Mapping) else None
    if not content or message.get("role") == "assistant":
        return False
    return isinstance(content, str) or (
        isinstance(content[-1], Mapping) and content[-1].get("type") != "refusal"
    )
