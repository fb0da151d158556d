"""Google generate_content: a window as the arguments of the official call, and its answer.

https://ai.google.dev/api/generate-content
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from muntin.core.checks import shown
from muntin.core.forms.google import FIELDS, PARTS, SIGNATURE, as_json
from muntin.core.message import Message
from muntin.core.parts import (
    Other,
    Part,
    Reasoning,
    Text,
    ToolCall,
    compact_json,
    joined,
    put_before,
)
from muntin.core.planning.window import Window
from muntin.core.planning.wire import Answer, arrange
from muntin.core.profile import OMITTED
from muntin.errors import InvalidInput, MuntinError
from muntin.providers.model import Event, ReasoningDelta, Reply, TextDelta, ToolCalled, Usage
from muntin.providers.wire.common import (
    Files,
    Ledger,
    Names,
    arguments,
    check,
    function_of,
    get,
    is_text,
    known_extra,
    made_by,
    result_text,
)
from muntin.providers.wire.media import Content, Media, contents, hinted, miss_detail, stands_before

RESPONSE = "a generate_content response"

# https://ai.google.dev/api/caching#FunctionDeclaration
_ID_LIMIT, _NAME_LIMIT, _NAME_REFUSED = 64, 128, r"[^a-zA-Z0-9_.:-]|^(?![a-zA-Z_])."

# Gemini 3 refuses the first call of a step without the signature it gave; for a call it did not
# make, Google documents this word: https://ai.google.dev/gemini-api/docs/thought-signatures#faqs
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


def encode(window: Window, *, strict: bool = True, files: Files | None = None) -> dict[str, Any]:
    """Return `contents` and `config` for `client.models.generate_content(...)`.

    Plain dicts, with bytes where the SDK's types have them.
    """
    return _Encoder(check(window, strict, files)).request(window)


class _Encoder:
    """One encoding: contents of alternating roles so far, and what is needed for the next."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.ledger = Ledger("google")
        self.ids = Names(_ID_LIMIT, unique=True)
        self.names = Names(_NAME_LIMIT, _NAME_REFUSED)
        self.system: list[dict[str, Any]] = []
        self.turns: list[dict[str, Any]] = []

    def request(self, window: Window) -> dict[str, Any]:
        leading = True
        for index, message, answers in arrange(window.messages):
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
            else:  # later system text is the user's: the API has no place for it
                self._add("model" if role == "assistant" else "user", parts)
        return self._finish(window)

    def _finish(self, window: Window) -> dict[str, Any]:
        turns, system = self.turns, self.system
        if turns and turns[0]["role"] != "user":
            turns.insert(0, {"role": "user", "parts": [{"text": OMITTED.text}]})
        if not turns and system:  # there must be a content: the system text is the only one
            turns, system = [{"role": "user", "parts": system}], []
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
        """Return a message of the user or of the system; a result of nothing is the user's."""
        role = "system" if message.role == "system" else "user"
        self._miss_name(index, message)
        self.ledger.miss_fields(index, message.extra or {}, ("role",) if role == "system" else ())
        return self._parts(index, message, role)

    def _miss_name(self, index: int, message: Message) -> None:
        if message.name is not None:
            self.ledger.miss(index, f"name {message.name!r}", "Google has no names")

    def _parts(self, index: int, message: Message, role: str) -> list[dict[str, Any]]:
        text = hinted(message, index, self.files, self.ledger)
        if text is not None:
            return [{"text": text}] if text else []
        parts = []
        for each in contents(message, index, self.files, self.ledger, own=PARTS):
            part = self._part(index, each, role)
            if part is not None:
                parts.append(part)
        return parts

    def _part(self, index: int, part: Content, role: str) -> dict[str, Any] | None:
        if isinstance(part, Text):
            extra = self._signed(index, part.extra, FIELDS)
            return {"text": part.text, **extra} if part.text or extra else None
        if isinstance(part, Reasoning):
            if role == "model" and made_by(part) == "google":
                signed = {SIGNATURE: part.signature} if part.signature is not None else {}
                return {"text": part.text, "thought": True, **self._signed(index, signed)}
            self.ledger.miss(index, "reasoning", "it is not a thought of Gemini's")
        elif isinstance(part, Other):
            kind = part.data["type"]
            if kind == "refusal" and isinstance(part.data.get("refusal"), str):
                return {"text": part.data["refusal"]}
            if kind in PARTS and isinstance(part.data.get(kind), Mapping):
                return self._native(index, part)
            self.ledger.miss(index, f"part of type {kind!r}", "the API has none")
        elif role == "system":
            self.ledger.miss(index, part.label, "the system instruction holds text only")
        else:
            sent = _media(part)
            if sent is not None:
                self.ledger.miss_fields(index, part.extra or {})
                miss_detail(part, index, self.ledger)
                return sent
            self.ledger.miss(index, part.label, "its data is no base64")
        return None

    def _native(self, index: int, part: Other) -> dict[str, Any]:
        kind = part.data["type"]
        inner = deepcopy(dict(part.data[kind]))
        if isinstance(inner.get("data"), str):
            inner["data"] = _bytes(inner["data"]) or b""
        return {kind: inner, **self._signed(index, _rest(part.data, kind), FIELDS)}

    def _signed(
        self, index: int, extra: Mapping[str, Any] | None, fields: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Return the signature a part carries, as the bytes the SDK wants, and these fields."""
        known = known_extra(extra, (SIGNATURE, *fields), index, self.ledger)
        if SIGNATURE in known:
            known[SIGNATURE] = _bytes(known[SIGNATURE])
            if not known[SIGNATURE]:
                del known[SIGNATURE]
                self.ledger.miss(index, "a thought signature", "it is no base64")
        return known

    def _model(self, index: int, message: Message, answers: Sequence[Answer]) -> None:
        parts: list[dict[str, Any]] = []
        between: dict[str, list[dict[str, Any]]] = {}
        if message.content.__class__ is str and not message.attachments:
            parts = [{"text": message.content}] if message.content else []
        else:
            calls = {call.id for call, _, _ in answers}
            for each in contents(message, index, self.files, self.ledger, own=PARTS):
                part = self._part(index, each, "model")
                if part is not None:
                    before = stands_before(each)
                    inside = before is not None and before in calls
                    (between.setdefault(before or "", []) if inside else parts).append(part)
        results: list[dict[str, Any]] = []
        for number, (call, result, at) in enumerate(answers):
            name, call_id = self.names(call.name), self.ids(call.id)
            if between:
                parts += between.get(call.id, ())
            parts.append(self._call(index, call, name, call_id, first=number == 0))
            results += self._result(at, call, result, name, call_id)
        self._miss_name(index, message)
        if message.extra:
            self.ledger.miss_fields(index, message.extra)
        self._add("model", parts)
        if len(results) > len(answers):  # all responses come before what else the results hold
            results.sort(key=lambda part: "function_response" not in part)
        self._add("user", results)

    def _call(
        self, index: int, call: ToolCall, name: str, call_id: str, *, first: bool
    ) -> dict[str, Any]:
        if name != call.name:
            self.ledger.miss(index, f"tool name {call.name!r}", f"sent as {name!r}")
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
        extra = (result.extra if result is not None else None) or {}
        if result is not None and result.name not in (None, call.name):
            self._miss_name(index, result)
        self.ledger.miss_fields(index, extra, ("is_error", "function_response", SIGNATURE, *FIELDS))
        key = "error" if extra.get("is_error") is True else "output"
        told: Any = {key: text or ""}
        if extra.get("as_json"):  # unless it was cut, the text is the response itself
            told = _object(text or "") or told
        response = {**_id(call, call_id), "name": name, "response": told}
        response.update(deepcopy(extra.get("function_response") or {}))
        beside = self._signed(index, {k: extra[k] for k in (SIGNATURE, *FIELDS) if k in extra})
        return [{"function_response": response, **beside}, *media]

    def _tools(self, tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        declared: list[dict[str, Any]] = []
        native: list[dict[str, Any]] = []
        for tool in tools:
            function = function_of(tool)
            if function is not None:
                self.ledger.miss_fields(None, function, ("name", "description", "parameters"))
                made = {k: function[k] for k in ("name", "description") if function.get(k)}
                if function.get("parameters"):
                    made["parameters_json_schema"] = function["parameters"]
                declared.append(made)
            elif tool and _TOOLS.issuperset(tool):
                native.append(dict(tool))
            else:
                name = tool.get("name") or tool.get("type")
                self.ledger.miss(None, f"tool {name!r}", "the API has none")
        return [{"function_declarations": declared}, *native] if declared else native


def _id(call: ToolCall, call_id: str) -> dict[str, str]:
    """Return the id of a call, unless it came without one: Vertex AI takes none."""
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
    """Return the bytes that base64 text stands for; None if it is none."""
    try:
        plain = text.translate(_URL_SAFE)
        return b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError, AttributeError):
        return None


_URL_SAFE = str.maketrans("-_", "+/")


def _media(media: Media) -> dict[str, Any] | None:
    """Return an image, a document, a sound or a film as a part."""
    if media.inline:
        data = _bytes(media.base64)
        return {"inline_data": {"mime_type": media.mime, "data": data}} if data else None
    return {"file_data": {"file_uri": media.id or media.url, "mime_type": media.mime}}


def decode(response: Any, window: Window | None = None) -> Reply:
    """Read a response, the SDK's object or its dict, as a Reply.

    Raises `InvalidInput`, naming what was expected, if it is something else.
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
    """Return a field of an SDK's object or of a dict, as Python or as the REST API spells it."""
    found = get(value, name)
    if found is None and isinstance(value, dict) and "_" in name:
        first, *others = name.split("_")
        found = value.get(first + "".join(word.title() for word in others))
    return found


class Assembler:
    """Puts a streamed answer together from its chunks; see `wire.chat.Assembler`.

    Texts that follow each other become one, but for those that carry a signature: Google wants
    those back as they were.
    """

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._calls: list[ToolCall] = []
        # Pieces of the text that is still growing, and whether it is a thought.
        self._pieces: list[str] = []
        self._thought = False
        # Parts that stand behind a call: if another one follows, they stood between two.
        self._behind = 0
        self._finish: str | None = None
        self._usage: Any = None

    @property
    def finished(self) -> bool:
        """Whether the provider has said that the answer is complete."""
        return self._finish is not None

    def feed(self, chunk: Any) -> list[Event]:
        """Take the next chunk of the stream; return what is new in it."""
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
            events.append(ToolCalled(self._calls[-1]))
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
        # Older models give no ids; the response's own makes this one unlike any other.
        made = f"{response_id}_{number}" if response_id else f"call_{number}"
        name, args = _field(call, "name"), _field(call, "args")
        arguments = compact_json(as_json(args or {}))
        made_call = ToolCall(_field(call, "id") or made, name, arguments, extra=signed or None)
        for index in range(len(self._parts) - self._behind, len(self._parts)):
            self._parts[index] = put_before(self._parts[index], made_call.id)
        self._behind = 0
        self._calls.append(made_call)

    def _close(self) -> None:
        """Put the text that was growing together."""
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
        return Reply(
            Message("assistant", joined(self._parts), tool_calls=tuple(self._calls)),
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
