"""Google generateContent: messages, requests, replies and streams, each read and written here.

https://ai.google.dev/api/generate-content
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from muntin.core.accepted import NameRule
from muntin.core.caching.wire_order import Answer
from muntin.core.checks import compact_json, copy_json, digest, shown
from muntin.core.message import Message
from muntin.core.parts import Other, Part, Reasoning, Text, ToolCall, as_plain, joined
from muntin.core.profile import OMITTED
from muntin.core.window import Window
from muntin.errors import InvalidInput, InvalidType, MuntinError, NeedsConversation
from muntin.wire.answers import END, AnswerParts
from muntin.wire.blocks import ItemFormat, spans_of, turns, write_turns
from muntin.wire.common import (
    Files,
    arguments,
    check,
    function_of,
    get,
    is_text,
    known_extra,
    made_by,
    result_text,
    with_fields,
)
from muntin.wire.encoder import Encoder, arrange_as_called, led_by_user
from muntin.wire.media import (
    Content,
    Media,
    contents,
    hinted,
    miss_detail,
    wrong_address,
)
from muntin.wire.names import ToolNames, declared_tools, schema_of
from muntin.wire.pieces import Fitted
from muntin.wire.reply import Event, ReasoningDelta, Reply, TextDelta, ToolCalled, Usage
from muntin.wire.requests import Body, Request, holder_of, listed, named, system_message

# messages

SIGNATURE = "thought_signature"
# Parts that Muntin passes on unchanged: files, and what the model did with Google's own tools.
PARTS = (
    "executable_code",
    "code_execution_result",
    "tool_call",
    "tool_response",
    "inline_data",
    "file_data",
)
# Fields that may stand beside the content of a part.
FIELDS = (
    "video_metadata",
    "media_resolution",
    "part_metadata",
    "audio_transcription",
    "media_processing",
    "speech_metadata",
)
_ROLES = {"user": "user", "function": "user", "model": "assistant", "system": "system"}


class Ids:
    """Ids for calls that came without one, always the same for the same conversation.

    A response without an id answers the oldest unanswered call of its name.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[str, str]] = []
        self._given: Counter[str] = Counter()

    def call(self, name: str, arguments: str) -> str:
        """Return the id of a call."""
        call_id = f"call_{digest(f'{name} {arguments}', 6)}"
        self._given[call_id] += 1
        if self._given[call_id] > 1:
            call_id = f"{call_id}_{self._given[call_id]}"
        self._waiting.append((name, call_id))
        return call_id

    def response(self, name: str) -> str:
        """Return the id of the call that a response answers."""
        for place, (called, call_id) in enumerate(self._waiting):
            if called == name:
                del self._waiting[place]
                return call_id
        return self.call(name, "")  # its call is not in this list


def read_messages(data: Mapping[str, Any], ids: Ids | None) -> list[Message]:
    """Read a content; a user's content becomes one message more for each of its function responses.

    Without `ids` a call or response must have its own id.
    """
    data_parts = data["parts"]
    if isinstance(data_parts, str | bytes) or not isinstance(data_parts, Sequence):
        raise InvalidType(
            f"the 'parts' of a message must be a list, not {type(data_parts).__name__}"
        )
    parts = [_in_snake_case(part) for part in data_parts]
    role = data.get("role")
    if role is None:
        role = "model" if any("function_call" in part for part in parts) else "user"
    if role not in _ROLES:
        raise InvalidInput(
            f"unknown role {shown(role)} of a message with 'parts'; use user or model"
        )
    rest = {k: v for k, v in data.items() if k not in ("role", "parts", "at") and v is not None}
    fields = {"at": data.get("at"), "extra": rest or None}
    if _ROLES[role] == "assistant":
        return [_model(parts, ids, fields)]
    return _user(_ROLES[role], parts, ids, fields)


def _in_snake_case(part: object) -> dict[str, Any]:
    """Return a part as a dict in Python's spelling, without fields that are None."""
    if isinstance(part, str):
        return {"text": part}
    data = as_plain(part)
    if not isinstance(data, Mapping):
        raise InvalidType(f"a part must be a dict, not {type(part).__name__}")
    fields = {_snake(key): value for key, value in data.items() if value is not None}
    if "type" in fields:
        raise InvalidInput(f"a part of Google's has no 'type': {sorted(fields)}")
    signature = fields.get(SIGNATURE)
    if isinstance(signature, bytes):
        fields[SIGNATURE] = b64encode(signature).decode()
    return fields


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)


def _model(
    parts: Sequence[dict[str, Any]],
    ids: Ids | None,
    fields: Mapping[str, Any],
    *,
    answer: bool = False,
) -> Message:
    """Read the parts of a model; an `answer` may have parts of unknown types."""
    message_parts = AnswerParts()
    for part in parts:
        if "function_response" in part:
            raise InvalidInput("a function response belongs to a user's message, not to a model's")
        if "function_call" in part:
            message_parts.call(_call(part, ids))
        else:
            message_parts.add(_part(part, answer=answer))
    unknown = any(isinstance(p, Other) and p.data["type"] not in PARTS for p in message_parts.parts)
    return message_parts.message("google", as_made=unknown, **fields)


def _user(
    role: str, parts: Sequence[dict[str, Any]], ids: Ids | None, fields: Mapping[str, Any]
) -> list[Message]:
    if any("function_call" in part for part in parts):
        raise InvalidInput("a function call belongs to a model's message, not to a user's")
    messages: list[Message] = []
    for span in spans_of(parts, ITEM_FORMAT.is_result) if parts else ():
        piece = [parts[number] for number in span]
        if ITEM_FORMAT.is_result(piece[0]):
            messages.append(_response(piece[0], ids, fields["at"]))
        else:
            content = joined([_part(part) for part in piece])
            messages.append(Message(role, content, **fields))  # type: ignore[arg-type]
    return messages


def _part(part: dict[str, Any], *, answer: bool = False) -> Part:
    rest = dict(part)
    if isinstance(rest.get("text"), str):
        text, thought = rest.pop("text"), rest.pop("thought", None)
        if not thought:
            return Text(text, extra=_fields_beside(rest) or None)
        signature = rest.pop(SIGNATURE, None)
        return Reasoning(text, signature=signature, extra={"thought": True, **_fields_beside(rest)})
    unknown = [key for key in rest if key not in ("thought", SIGNATURE, *FIELDS)]
    # A field that stands alone is a part of its own.
    others = unknown or [key for key in FIELDS if key in rest][:1]
    for kind in (*PARTS, *others) if answer and len(others) == 1 else PARTS:
        if kind in rest:
            value = as_json(rest.pop(kind))
            rest.pop("thought", None)
            if isinstance(value, Mapping):
                value = {_snake(key): item for key, item in value.items()}
            return Other({"type": kind, kind: value, **_fields_beside(rest)})
    raise InvalidInput(f"a part of Google's with {sorted(part)} cannot be read")


def _fields_beside(rest: Mapping[str, Any]) -> dict[str, Any]:
    unknown = [key for key in rest if key not in (SIGNATURE, *FIELDS)]
    if unknown:
        raise InvalidInput(f"a part of Google's has the unknown fields {sorted(unknown)}")
    return {key: as_json(value) for key, value in rest.items()}


def _call(part: dict[str, Any], ids: Ids | None) -> ToolCall:
    rest = {k: v for k, v in part.items() if k not in ("function_call", "thought")}
    call = as_plain(part["function_call"])
    name = call.get("name") if isinstance(call, Mapping) else None
    if not isinstance(name, str):
        raise InvalidInput(f"a function call needs a 'name': {shown(part['function_call'])}")
    values = as_json(call.get("args") or {})
    arguments = compact_json(copy_json(values, f"the arguments of function call {name!r}"))
    extra = _fields_beside(rest)
    call_id = call.get("id")
    if call_id is None:
        call_id = _ids(ids, f"function call {name!r}").call(name, arguments)
        extra["made_id"] = True
    return ToolCall(call_id, name, arguments, extra=extra or None)


def _response(part: dict[str, Any], ids: Ids | None, at: float | None) -> Message:
    fields = as_plain(part["function_response"])
    name = fields.get("name") if isinstance(fields, Mapping) else None
    if not isinstance(name, str):
        raise InvalidInput(
            f"a function response needs a 'name': {shown(part['function_response'])}"
        )
    rest = {_snake(key): value for key, value in fields.items() if value is not None}
    call_id = rest.pop("id", None)
    del rest["name"]
    response = copy_json(as_json(rest.pop("response", {})), f"the response of {name!r}")
    if not isinstance(response, Mapping):
        raise InvalidType(f"the response of {name!r} must be a dict, not {shown(response)}")
    extra = _fields_beside({k: v for k, v in part.items() if k != "function_response"})
    if rest:
        extra["function_response"] = as_json(rest)
    text, output = compact_json(response), response.get("output") or response.get("error")
    if len(response) == 1 and isinstance(output, str):
        text = output
        if "error" in response:
            extra["is_error"] = True
    else:
        extra["as_json"] = True  # the text is the response itself
    if call_id is None:
        call_id = _ids(ids, f"function response {name!r}").response(name)
    return Message("tool", text, tool_call_id=call_id, name=name, at=at, extra=extra or None)


def response(call: ToolCall, text: str) -> dict[str, Any]:
    """Return a text as the response to a call; with an id, if the call has one."""
    named = {} if call.extra and call.extra.get("made_id") else {"id": call.id}
    return {**named, "name": call.name, "response": {"output": text}}


def _ids(ids: Ids | None, what: str) -> Ids:
    if ids is None:
        raise NeedsConversation(
            f"the {what} has no id and can be read only with its conversation; "
            "use messages_from([...])"
        )
    return ids


def as_json(value: Any) -> Any:
    """Return an SDK's value as JSON values, bytes as base64 text, an enum as its value."""
    if hasattr(value, "model_dump"):
        value = value.model_dump(exclude_none=True)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return getattr(value, "value", value)


# requests

# https://ai.google.dev/api/caching#FunctionDeclaration
_NAMES = NameRule(128, re.compile(r"[^a-zA-Z0-9_.:-]|^(?![a-zA-Z_])."))
_IDS = NameRule(64)
# Addresses from which Google reads files: https://ai.google.dev/api/files
_ADDRESSES = ("http://", "https://", "gs://")

# Gemini 3 refuses the first call of a step without the signature it gave; for a call that Gemini
# did not make, Google documents this word:
# https://ai.google.dev/gemini-api/docs/thought-signatures#faqs
_NO_SIGNATURE = b"skip_thought_signature_validator"

# Fields of a tool that is not a function: https://ai.google.dev/api/caching#Tool
_TOOLS = frozenset(
    {
        "code_execution",
        "computer_use",
        "enterprise_web_search",
        "exa_ai_search",
        "file_search",
        "function_declarations",
        "google_maps",
        "google_search",
        "google_search_retrieval",
        "mcp_servers",
        "parallel_ai_search",
        "retrieval",
        "url_context",
    }
)


def names_of(window: Window | None) -> ToolNames:
    """Return the names of a window's tools as the API takes them."""
    return ToolNames(_NAMES, declared_tools(window))


def encode(window: Window, *, strict: bool = True, files: Files | None = None) -> dict[str, Any]:
    """Return `contents` and `config` for `client.models.generate_content(...)`.

    Plain dicts, with bytes where the SDK's types have bytes.
    """
    return _Encoder(check(window, strict, files), names_of(window)).request(window)


class _Encoder(Encoder):
    """One encoding: the contents so far, of alternating roles, and the state for the next."""

    def __init__(self, files: Files, names: ToolNames) -> None:
        super().__init__("google", files, names, _IDS, "Google has no names")
        self.system: list[dict[str, Any]] = []
        self.turns: list[dict[str, Any]] = []

    def request(self, window: Window) -> dict[str, Any]:
        leading = True
        for index, message, answers in arrange_as_called(window):
            role = message.role
            leading = leading and role == "system"
            content = message.content
            if not answers and is_text(message):
                parts = [{"text": content}] if content else []
            elif role == "assistant":
                self._model(index, message, answers)
                continue
            else:
                parts = self._message(index, message)
            if leading:
                self.system += parts
            else:  # later system text becomes the user's: the API has no place for it
                self._add("model" if role == "assistant" else "user", parts)
        return self._finish(window)

    def _finish(self, window: Window) -> dict[str, Any]:
        opening = {"text": OMITTED.text}
        turns, system = led_by_user(self.turns, self.system, "parts", opening)
        config: dict[str, Any] = {}
        if system:
            config["system_instruction"] = {"parts": system}
        tools = self._tools(window.tools)
        if tools:
            config["tools"] = tools
        self.ledger.enter(window)
        return {"contents": turns, "config": config}

    def _add(self, role: str, parts: list[dict[str, Any]]) -> None:
        """Add parts to the content of this role, or begin it."""
        if parts and self.turns and self.turns[-1]["role"] == role:
            self.turns[-1]["parts"] += parts
        elif parts:
            self.turns.append({"role": role, "parts": parts})

    def _message(self, index: int, message: Message) -> list[dict[str, Any]]:
        """Return a message of the user or the system; a result without a call is the user's."""
        role = "system" if message.role == "system" else "user"
        self.miss_name(index, message)
        self.ledger.miss_fields(index, message.extra or {}, ("role",) if role == "system" else ())
        return self._parts(index, message, role)

    def _parts(self, index: int, message: Message, role: str) -> list[dict[str, Any]]:
        text = hinted(message, index, self.files, self.ledger)
        if text is not None:
            return [{"text": text}] if text else []
        return self._encoded_parts(index, self._contents(index, message), role)

    def _encoded_parts(
        self, index: int, held: Iterable[Content], role: str = "model"
    ) -> list[dict[str, Any]]:
        sent = (self._part(index, part, role) for part in held)
        return [part for part in sent if part is not None]

    def _contents(self, index: int, message: Message) -> Iterator[Content]:
        return contents(
            message, index, self.files, self.ledger, vendor_types=PARTS, addresses=_ADDRESSES
        )

    def _part(self, index: int, part: Content, role: str) -> dict[str, Any] | None:
        if isinstance(part, Text):
            extra = self._signed(index, part.extra, FIELDS)
            return {"text": part.text, **extra} if part.text or SIGNATURE in extra else None
        if isinstance(part, Reasoning):
            if role == "model" and made_by(part) == "google":
                fields = {SIGNATURE: part.signature} if part.signature is not None else {}
                signed = self._signed(index, fields)
                thought = {"text": part.text, "thought": True, **signed}
                return thought if part.text or signed else None
            self.ledger.miss(index, "reasoning", "it is not a thought of Gemini's")
        elif isinstance(part, Other):
            kind = part.data["type"]
            if kind == "refusal" and isinstance(part.data.get("refusal"), str):
                return {"text": part.data["refusal"]} if part.data["refusal"] else None
            if kind in PARTS and isinstance(part.data.get(kind), Mapping):
                return self._native(index, part)
            if index in self.as_made:
                return {kind: deepcopy(part.data[kind])} if kind in part.data else None
            self.ledger.miss(index, f"part of type {kind!r}", "the API has none")
        elif role == "system":
            self.ledger.miss(index, part.label, "the system instruction holds text only")
        else:
            self.ledger.miss_fields(index, part.extra or {})
            miss_detail(part, index, self.ledger)
            return _media(part)
        return None

    def _native(self, index: int, part: Other) -> dict[str, Any] | None:
        kind = part.data["type"]
        inner = deepcopy(dict(part.data[kind]))
        if kind == "inline_data":
            inner["data"] = _bytes(inner.get("data"))
        fault = "its data is no base64" if kind == "inline_data" and not inner["data"] else None
        if kind == "file_data":
            fault = wrong_address(str(inner.get("file_uri")), _ADDRESSES)
        if fault is not None:
            self.ledger.miss(index, f"part of type {kind!r}", fault)
            return None
        return {kind: inner, **self._signed(index, _rest(part.data, kind), FIELDS)}

    def _signed(
        self, index: int, extra: Mapping[str, Any] | None, fields: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Return the signature of a part, as the bytes that the SDK wants, and these fields."""
        signed = known_extra(extra, (SIGNATURE, *fields), index, self.ledger)
        if SIGNATURE in signed:
            signed[SIGNATURE] = _bytes(signed[SIGNATURE])
            if not signed[SIGNATURE]:
                del signed[SIGNATURE]
                self.ledger.miss(index, "a thought signature", "it is no base64")
        return signed

    def _model(self, index: int, message: Message, answers: Sequence[Answer]) -> None:
        content = message.content
        is_text_alone = content.__class__ is str and not message.attachments
        held = () if is_text_alone else self._contents(index, message)
        places = self.by_place(index, message, answers, held)
        parts: list[dict[str, Any]] = [{"text": content}] if is_text_alone and content else []
        parts += self._encoded_parts(index, places.get(None, ()))
        results: list[dict[str, Any]] = []
        for number, (call, result, at) in enumerate(answers):
            name, call_id = self.called(index, call), self.ids(call.id)
            parts += self._encoded_parts(index, places.get(call.id, ()))
            parts.append(self._call(index, call, name, call_id, first=number == 0))
            results += self._result(at, call, result, name, call_id)
        parts += self._encoded_parts(index, places.get(END, ()))
        self.miss_name(index, message)
        if message.extra:
            self.ledger.miss_fields(index, message.extra)
        self._add("model", parts)
        if len(results) > len(answers):  # all responses stand before the other parts of results
            results.sort(key=lambda part: "function_response" not in part)
        self._add("user", results)

    def _call(
        self, index: int, call: ToolCall, name: str, call_id: str, *, first: bool
    ) -> dict[str, Any]:
        args = arguments(call, index, self.ledger)
        part: dict[str, Any] = {"function_call": {**_id(call, call_id), "name": name, "args": args}}
        if first:
            part[SIGNATURE] = _NO_SIGNATURE
        if call.extra:
            part.update(self._signed(index, call.extra, FIELDS))
        return part

    def _result(
        self, index: int, call: ToolCall, result: Message | None, name: str, call_id: str
    ) -> list[dict[str, Any]]:
        """Return the response, and behind it the images and files of the result."""
        text = result_text(result)
        media: list[dict[str, Any]] = []
        if text is None and result is not None:
            parts = self._parts(index, result, "user")
            text = "\n".join(part["text"] for part in parts if "text" in part)
            media = [part for part in parts if "text" not in part]
        response = {**_id(call, call_id), "name": name, "response": {"output": text or ""}}
        part: dict[str, Any] = {"function_response": response}
        if result is not None:
            self.miss_name(index, result, call)
            if result.extra:
                part.update(self._result_fields(index, result.extra, response, text or ""))
        return [part, *media]

    def _result_fields(
        self, index: int, extra: Mapping[str, Any], response: dict[str, Any], text: str
    ) -> dict[str, Any]:
        """Put the fields of a result into its response; return the fields beside the response."""
        self.ledger.miss_fields(index, extra, ("is_error", "function_response", SIGNATURE, *FIELDS))
        if extra.get("is_error") is True:
            response["response"] = {"error": text}
        if extra.get("as_json"):  # unless it was cut, the text is the response itself
            response["response"] = _object(text) or response["response"]
        response.update(deepcopy(extra.get("function_response") or {}))
        return self._signed(index, {k: extra[k] for k in (SIGNATURE, *FIELDS) if k in extra})

    def _tools(self, tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        declared: list[dict[str, Any]] = []
        native: list[dict[str, Any]] = []
        for tool in tools:
            function = function_of(tool)
            if function is not None:
                declaration = self._function(function)
                declared += [declaration] if declaration is not None else []
            elif tool and _TOOLS.issuperset(tool):
                for declaration in tool.get("function_declarations") or ():
                    name = self.declare(declaration.get("name"))
                    declared += [{**declaration, "name": name}] if name is not None else []
                rest = {k: v for k, v in tool.items() if k != "function_declarations"}
                native += [rest] if rest else []
            else:
                self.miss_tool(tool)
        return [{"function_declarations": declared}, *native] if declared else native

    def _function(self, function: Mapping[str, Any]) -> dict[str, Any] | None:
        name = self.declare(function.get("name"))
        if name is None:
            return None
        self.ledger.miss_fields(None, function, ("name", "description", "parameters"))
        declaration: dict[str, Any] = {"name": name}
        if function.get("description"):
            declaration["description"] = function["description"]
        if function.get("parameters"):
            declaration["parameters_json_schema"] = schema_of(function["parameters"])
        return declaration


def _id(call: ToolCall, call_id: str) -> dict[str, str]:
    """Return the id of a call, unless the call came without one: Vertex AI takes no ids."""
    return {} if call.extra and call.extra.get("made_id") else {"id": call_id}


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _rest(data: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in ("type", "before", kind)}


def _bytes(text: Any) -> bytes | None:
    """Return the bytes that base64 text stands for; None if it is no base64."""
    try:
        plain = text.translate(_URL_SAFE)
        return b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError, AttributeError):
        return None


_URL_SAFE = str.maketrans("-_", "+/")


def _media(media: Media) -> dict[str, Any]:
    """Return an image, a document, a sound or a film as a part."""
    if media.inline:
        return {"inline_data": {"mime_type": media.mime, "data": b64decode(media.base64)}}
    return {"file_data": {"file_uri": media.id or media.url, "mime_type": media.mime}}


# replies

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
        kind = sorted(map(str, response)) if isinstance(response, Mapping) else type(response)
        raise InvalidInput(f"expected {RESPONSE}, which has 'candidates'; got {shown(kind)}")
    try:
        candidates = _field(response, "candidates") or ()
        for candidate in candidates:
            if _field(candidate, "content") is None and _field(candidate, "finish_reason") is None:
                raise InvalidInput(
                    f"a candidate has neither content nor finish_reason: {shown(candidate)}"
                )
        content = _field(candidates[0], "content") if candidates else None
        named = _CallIds(_field(response, "response_id"))
        parts = [named(_in_snake_case(part)) for part in _field(content, "parts") or ()]
        finish = _finish(response, candidates) or "STOP"
        return _reply(parts, finish, _field(response, "usage_metadata"), names_of(window), window)
    except (MuntinError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise InvalidInput(f"expected {RESPONSE}; it cannot be read: {shown(error)}") from error


def _reply(
    parts: Sequence[dict[str, Any]],
    finish: str,
    usage: Any,
    names: ToolNames,
    window: Window | None,
) -> Reply:
    parts = [part for part in parts if part.get("text") != "" or SIGNATURE in part]
    message = names.read(_model(parts, None, {}, answer=True))
    reason = _FINISH.get(finish, finish.lower())
    return Reply(
        message,
        usage=usage_of(usage),
        finish_reason="tool_calls" if reason == "stop" and message.tool_calls else reason,
        window=window,
    )


def usage_of(usage: Any) -> Usage:
    """Read the billed tokens."""
    return Usage(
        _tokens(usage, "prompt_token_count", "tool_use_prompt_token_count"),
        _tokens(usage, "candidates_token_count", "thoughts_token_count"),
        _tokens(usage, "cached_content_token_count"),
        reasoning=_tokens(usage, "thoughts_token_count"),
    )


def _finish(chunk: Any, candidates: Sequence[Any]) -> str | None:
    """Return why an answer ended, None if it has not."""
    if candidates:
        finish = _field(candidates[0], "finish_reason")
        return None if finish is None else str(getattr(finish, "value", finish))
    blocked = _field(_field(chunk, "prompt_feedback"), "block_reason") is not None
    return "SAFETY" if blocked else None


class _CallIds:
    """Gives an id to each call of an answer that has none, as the calls of older models."""

    def __init__(self, response_id: Any) -> None:
        self._response_id = response_id
        self._count = 0

    def __call__(self, part: dict[str, Any]) -> dict[str, Any]:
        """Return a part; a call with its id, which the id of the response makes unique."""
        if "function_call" not in part:
            return part
        call = as_plain(part["function_call"])
        call_id = f"{self._response_id or 'call'}_{self._count}"
        self._count += 1
        return {**part, "function_call": {**call, "id": call.get("id") or call_id}}


def _field(value: Any, name: str) -> Any:
    """Return a field of an SDK's object or of a dict, in Python's or the REST API's spelling."""
    value_found = get(value, name)
    if value_found is None and isinstance(value, dict) and "_" in name:
        first, *words = name.split("_")
        value_found = value.get(first + "".join(word.title() for word in words))
    return value_found


class Assembler:
    """Puts a streamed answer together from its chunks; see `wire.chat.Assembler`.

    Texts that follow each other become one, except texts with a signature: Google wants these
    back unchanged.
    """

    def __init__(self, window: Window | None = None) -> None:
        self._names = names_of(window)
        self._parts: list[dict[str, Any]] = []
        # Pieces of the text that is still growing, and whether it is a thought.
        self._pieces: list[str] = []
        self._thought = False
        self._ids: _CallIds | None = None
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
        candidates = _field(chunk, "candidates") or ()
        content = _field(candidates[0], "content") if candidates else None
        if self._ids is None:
            self._ids = _CallIds(_field(chunk, "response_id"))
        for part in _field(content, "parts") or () if content is not None else ():
            events += self._part(self._ids(_in_snake_case(part)))
        self._finish = _finish(chunk, candidates) or self._finish
        return events

    def _part(self, part: dict[str, Any]) -> list[Event]:
        text, thought = part.get("text"), bool(part.get("thought"))
        if not isinstance(text, str) or SIGNATURE in part:
            self._close()
            self._parts.append(part)
        elif text:
            if thought != self._thought:
                self._close()
            self._thought = thought
            self._pieces.append(text)
        if "function_call" in part:
            return [ToolCalled(self._names.called(_call(part, None)))]
        return [ReasoningDelta(text) if thought else TextDelta(text)] if text else []

    def _close(self) -> None:
        """Join the pieces of the growing text."""
        if self._pieces:
            thought = {"thought": True} if self._thought else {}
            self._parts.append({"text": "".join(self._pieces), **thought})
            self._pieces = []

    def reply(self, window: Window | None = None) -> Reply:
        """Return the whole answer.

        Raises `InvalidInput` if the stream has not ended.
        """
        if self._finish is None:
            raise InvalidInput("the stream of generate_content broke off: no finish_reason came")
        self._close()
        names = self._names if window is None else names_of(window)
        return _reply(self._parts, self._finish, self._usage, names, window)


def _tokens(usage: Any, *names: str) -> int:
    counts = [_field(usage, name) for name in names] if usage is not None else []
    return sum(count for count in counts if isinstance(count, int))


# requests read


def read_request(body: Body) -> Request:
    """Read the body of a request."""
    beside = body.get("config")
    beside = beside if isinstance(beside, Mapping) else body
    settings = _either(body, "generationConfig", "generation_config") or beside
    system = _either(beside, "systemInstruction", "system_instruction")
    if isinstance(system, str):
        system = {"parts": [{"text": system}]}
    system_parts = isinstance(system, Mapping) and system.get("parts")
    model = body.get("model")
    return Request(
        listed(body, "contents", "a request of Gemini's"),
        system=system_message(_system, system_parts) if system_parts else (),
        tools=tuple(_tools(beside)),
        model=named("google", model.removeprefix("models/") if isinstance(model, str) else None),
        held=holder_of(body),
        output=_form(settings),
    )


def write_request(body: Body, fitted: Fitted) -> dict[str, Any]:
    """Return the request with the kept messages; Gemini caches without marks."""
    contents = body["contents"]
    new_turns = turns(contents, fitted.placed, ITEM_FORMAT)
    return {**body, "contents": write_turns(contents, new_turns, ITEM_FORMAT)}


def _system(parts: Any) -> Message:
    return read_messages({"role": "system", "parts": parts}, None)[0]


def _either(data: Mapping[str, Any], *names: str) -> Any:
    return next((data[name] for name in names if data.get(name) is not None), None)


def _form(settings: Any) -> Mapping[str, Any] | None:
    """Return the schema of the answer."""
    fields = settings if isinstance(settings, Mapping) else {}
    names = ("responseJsonSchema", "response_json_schema", "responseSchema", "response_schema")
    form = as_plain(_either(fields, *names))
    return form if isinstance(form, Mapping) else None


def _tools(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the functions that are declared, each as a tool of its own, and Google's own tools."""
    tools: list[Mapping[str, Any]] = []
    for tool in body.get("tools") or ():
        if not isinstance(tool, Mapping):
            continue
        declared = _either(tool, "functionDeclarations", "function_declarations")
        if not isinstance(declared, list | tuple):
            tools.append(tool)
            continue
        for function in declared:
            if isinstance(function, Mapping):
                schema = _either(
                    function, "parametersJsonSchema", "parameters_json_schema", "parameters"
                )
                fields = {key: function[key] for key in ("name", "description") if key in function}
                parameters = {} if schema is None else {"parameters": schema}
                tools.append({"type": "function", "function": {**fields, **parameters}})
    return tools


def known_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message whose parts have only the fields that Muntin knows."""
    parts = data["parts"]
    if not isinstance(parts, list | tuple):
        return dict(data)
    return {**data, "parts": [_known_fields(part) for part in parts]}


def _known_fields(part: Any) -> Any:
    if not isinstance(part, Mapping):
        return part
    return {key: value for key, value in part.items() if _snake(key) in _FIELDS}


_FIELDS = frozenset(
    {"text", "thought", "function_call", "function_response", *PARTS, *FIELDS} | {SIGNATURE}
)


# items written back

_RESPONSES = ("function_response", "functionResponse")
_CALLS = ("function_call", "functionCall")


def _held(part: Any, names: tuple[str, str]) -> Any:
    """Return what a part holds under one of its two spellings."""
    held = get(part, names[0])
    return get(part, names[1]) if held is None else held


def _with_held(part: Any, names: tuple[str, str], **new: Any) -> Any:
    key = names[0] if get(part, names[0]) is not None else names[1]
    return with_fields(part, **{key: with_fields(get(part, key), **new)})


def _text(part: Any) -> str | None:
    text = get(part, "text")
    return text if isinstance(text, str) and not get(part, "thought") else None


def _with_result_text(part: Any, text: str) -> Any:
    held = _held(part, _RESPONSES)
    response = get(held, "response")
    failed = isinstance(response, Mapping) and set(response) == {"error"}
    # Other parts of a response, such as pictures, are left out with its text.
    rest = {"parts": None} if get(held, "parts") else {}
    return _with_held(part, _RESPONSES, response={"error" if failed else "output": text}, **rest)


def _make_item(message: Message, call: ToolCall | None, items: Sequence[Any]) -> dict[str, Any]:
    if call is None:
        return {"role": "user", "parts": [{"text": message.text}]}
    parts = (part for item in items for part in get(item, "parts") or ())
    key = _RESPONSES[any(get(part, _CALLS[1]) is not None for part in parts)]
    return {"role": "user", "parts": [{key: response(call, message.text)}]}


ITEM_FORMAT = ItemFormat(
    model="model",
    is_result=lambda part: _held(part, _RESPONSES) is not None,
    call=lambda part: _held(part, _CALLS),
    text=_text,
    stays=lambda part: _held(part, _CALLS) is not None or bool(get(part, "thought")),
    make_text=lambda text: {"text": text},
    with_result_text=_with_result_text,
    with_arguments=lambda part, text: _with_held(part, _CALLS, args=json.loads(text)),
    make_item=_make_item,
    key=lambda item: "parts",
)
