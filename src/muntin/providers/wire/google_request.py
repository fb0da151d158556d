"""Google generate_content: a window as the arguments of the official call.

https://ai.google.dev/api/generate-content
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from muntin.core.accepted import NameRule
from muntin.core.caching.wire_order import Answer, arrange
from muntin.core.composed import Composed
from muntin.core.forms.google import FIELDS, PARTS, SIGNATURE
from muntin.core.message import Message
from muntin.core.parts import Other, Reasoning, Text, ToolCall
from muntin.core.profile import OMITTED
from muntin.providers.wire.common import (
    Files,
    arguments,
    check,
    function_of,
    is_text,
    known_extra,
    made_by,
    result_text,
)
from muntin.providers.wire.encoder import Encoder, led_by_user
from muntin.providers.wire.media import (
    Content,
    Media,
    contents,
    hinted,
    miss_detail,
    stands_before,
    wrong_address,
)
from muntin.providers.wire.names import ToolNames, schema_of, tools_of

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


def names_of(window: Composed | None) -> ToolNames:
    """Return the names of a window's tools as the API takes them."""
    return ToolNames(_NAMES, tools_of(window))


def encode(window: Composed, *, strict: bool = True, files: Files | None = None) -> dict[str, Any]:
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

    def request(self, window: Composed) -> dict[str, Any]:
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
            else:  # later system text becomes the user's: the API has no place for it
                self._add("model" if role == "assistant" else "user", parts)
        return self._finish(window)

    def _finish(self, window: Composed) -> dict[str, Any]:
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
        parts = []
        for each in self._contents(index, message):
            part = self._part(index, each, role)
            if part is not None:
                parts.append(part)
        return parts

    def _contents(self, index: int, message: Message) -> Iterator[Content]:
        return contents(message, index, self.files, self.ledger, own=PARTS, addresses=_ADDRESSES)

    def _part(self, index: int, part: Content, role: str) -> dict[str, Any] | None:
        if isinstance(part, Text):
            extra = self._signed(index, part.extra, FIELDS)
            return {"text": part.text, **extra} if part.text or SIGNATURE in extra else None
        if isinstance(part, Reasoning):
            if role == "model" and made_by(part) == "google":
                given = {SIGNATURE: part.signature} if part.signature is not None else {}
                signed = self._signed(index, given)
                thought = {"text": part.text, "thought": True, **signed}
                return thought if part.text or signed else None
            self.ledger.miss(index, "reasoning", "it is not a thought of Gemini's")
        elif isinstance(part, Other):
            kind = part.data["type"]
            if kind == "refusal" and isinstance(part.data.get("refusal"), str):
                return {"text": part.data["refusal"]} if part.data["refusal"] else None
            if kind in PARTS and isinstance(part.data.get(kind), Mapping):
                return self._native(index, part)
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
            for each in self._contents(index, message):
                part = self._part(index, each, "model")
                if part is not None:
                    before = stands_before(each, calls)
                    (parts if before is None else between.setdefault(before, [])).append(part)
        results: list[dict[str, Any]] = []
        for number, (call, result, at) in enumerate(answers):
            name, call_id = self.called(index, call), self.ids(call.id)
            if between:
                parts += between.get(call.id, ())
            parts.append(self._call(index, call, name, call_id, first=number == 0))
            results += self._result(at, call, result, name, call_id)
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
                part.update(self._told(index, result.extra, response, text or ""))
        return [part, *media]

    def _told(
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
                made = self._function(function)
                declared += [made] if made is not None else []
            elif tool and _TOOLS.issuperset(tool):
                for given in tool.get("function_declarations") or ():
                    name = self.declare(given.get("name"))
                    declared += [{**given, "name": name}] if name is not None else []
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
        made: dict[str, Any] = {"name": name}
        if function.get("description"):
            made["description"] = function["description"]
        if function.get("parameters"):
            made["parameters_json_schema"] = schema_of(function["parameters"])
        return made


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
