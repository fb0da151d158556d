"""Requests of Gemini's generateContent: read as pieces, written with the kept pieces.

The body is the REST API's, or the arguments of the official SDK. https://ai.google.dev/api
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from muntin.core.forms import google as form
from muntin.core.message import Message
from muntin.core.parts import ToolCall, as_plain
from muntin.fitting.pieces import Fitted
from muntin.fitting.requests.common import Body, Request, listed, named, read_piece
from muntin.fitting.requests.turns import Block, Spelling, pieces, turns, written


def read(body: Body) -> Request:
    """Read the body of a request."""
    contents = listed(body, "contents", "a request of Gemini's")
    beside = body.get("config")
    beside = beside if isinstance(beside, Mapping) else body
    settings = _either(body, "generationConfig", "generation_config") or beside
    model = body.get("model")
    cached = _either(beside, "cachedContent", "cached_content")
    return Request(
        pieces(contents, replace(_SPELLING, read=_reader(form.Ids()))),
        system=_system(_either(beside, "systemInstruction", "system_instruction")),
        tools=tuple(_tools(beside)),
        model=named("google", model.removeprefix("models/") if isinstance(model, str) else None),
        passes="its beginning is cached at Google" if cached else None,
        output=_form(settings),
    )


def write(body: Body, fitted: Fitted) -> dict[str, Any]:
    """Return the request with the kept messages; Gemini caches without marks."""
    contents = body["contents"]
    made = turns(contents, fitted.placed, _SPELLING)
    return {**body, "contents": written(contents, made, _SPELLING)}


def _either(data: Mapping[str, Any], *names: str) -> Any:
    return next((data[name] for name in names if data.get(name) is not None), None)


def _form(settings: Any) -> Mapping[str, Any] | None:
    """Return the schema of the answer."""
    given = settings if isinstance(settings, Mapping) else {}
    names = ("responseJsonSchema", "response_json_schema", "responseSchema", "response_schema")
    found = as_plain(_either(given, *names))
    return found if isinstance(found, Mapping) else None


def _system(given: Any) -> tuple[Message, ...]:
    if isinstance(given, str):
        given = {"parts": [{"text": given}]}
    if not isinstance(given, Mapping) or not given.get("parts"):
        return ()
    message = read_piece(_system_message, given, None, "system").message
    return () if message is None else (message,)


def _system_message(given: Mapping[str, Any]) -> Message:
    return form.read({"role": "system", "parts": given["parts"]}, None)[0]


def _tools(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the functions that are declared, each as a tool of its own, and Google's own tools."""
    found: list[Mapping[str, Any]] = []
    for tool in body.get("tools") or ():
        if not isinstance(tool, Mapping):
            continue
        declared = _either(tool, "functionDeclarations", "function_declarations")
        if not isinstance(declared, list | tuple):
            found.append(tool)
            continue
        for each in declared:
            if isinstance(each, Mapping):
                schema = _either(
                    each, "parametersJsonSchema", "parameters_json_schema", "parameters"
                )
                known = {key: each[key] for key in ("name", "description") if key in each}
                parameters = {} if schema is None else {"parameters": schema}
                found.append({"type": "function", "function": {**known, **parameters}})
    return found


def _reader(ids: form.Ids) -> Callable[[Mapping[str, Any]], Message]:
    def read(data: Mapping[str, Any]) -> Message:
        parts = [_known(part) for part in data["parts"]]
        found = form.read({"role": data.get("role"), "parts": parts}, ids)
        return found[0] if found else Message("user", None)

    return read


def _known(part: Any) -> Any:
    """Return a part without the fields that Muntin does not know."""
    if not isinstance(part, Mapping):
        return part
    return {key: value for key, value in part.items() if _snake(key) in _FIELDS}


def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


_FIELDS = frozenset(
    {"text", "thought", "function_call", "function_response", *form.PARTS, *form.FIELDS}
    | {form.SIGNATURE}
)


def _has(*names: str) -> Callable[[Block], bool]:
    return lambda block: any(block.get(name) is not None for name in names)


_RESPONSES = ("functionResponse", "function_response")
_CALLS = ("functionCall", "function_call")


def _text(block: Block) -> str | None:
    text = block.get("text")
    return text if isinstance(text, str) and not block.get("thought") else None


def _inside(block: Block, names: tuple[str, str]) -> tuple[str, dict[str, Any]]:
    key = next(name for name in names if block.get(name) is not None)
    return key, dict(as_plain(block[key]))


def _answered(block: Block, text: str) -> dict[str, Any]:
    key, given = _inside(block, _RESPONSES)
    # Other parts of a response, such as pictures, are left out with its text.
    failed = isinstance(given.get("response"), Mapping) and set(given["response"]) == {"error"}
    rest = {name: each for name, each in given.items() if name != "parts"}
    return {**block, key: {**rest, "response": {"error" if failed else "output": text}}}


def _called(block: Block, call: ToolCall) -> dict[str, Any]:
    key, given = _inside(block, _CALLS)
    return {**block, key: {**given, "args": json.loads(call.arguments)}}


def _result(message: Message, call: ToolCall) -> dict[str, Any]:
    return {"functionResponse": form.response(call, message.text)}


_SPELLING = Spelling(
    name=None,  # calls without an id get one from their place
    key="parts",
    model="model",
    is_result=_has(*_RESPONSES),
    is_call=_has(*_CALLS),
    made=lambda block: _has(*_CALLS)(block) or bool(block.get("thought")),
    text=_text,
    said=lambda text: {"text": text},
    answered=_answered,
    called=_called,
    result=_result,
    read=_reader(form.Ids()),
)
