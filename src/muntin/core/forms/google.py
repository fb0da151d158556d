"""Messages as Google writes them: contents of parts, in Python's spelling or the REST API's.

https://ai.google.dev/api/caching#Content
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from muntin.core.checks import compact_json, copy_json, digest, shown
from muntin.core.message import Message
from muntin.core.parts import Other, Part, Reasoning, Text, ToolCall, as_plain, joined, put_before
from muntin.errors import InvalidInput, InvalidType, NeedsConversation

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
        made = f"call_{digest(f'{name} {arguments}', 6)}"
        self._given[made] += 1
        if self._given[made] > 1:
            made = f"{made}_{self._given[made]}"
        self._waiting.append((name, made))
        return made

    def response(self, name: str) -> str:
        """Return the id of the call that a response answers."""
        for place, (called, made) in enumerate(self._waiting):
            if called == name:
                del self._waiting[place]
                return made
        return self.call(name, "")  # its call is not in this list


def read(data: Mapping[str, Any], ids: Ids | None) -> list[Message]:
    """Read a content; a user's content becomes one message more for each of its function responses.

    Without `ids` a call or response must have its own id.
    """
    given = data["parts"]
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise InvalidType(f"the 'parts' of a message must be a list, not {type(given).__name__}")
    parts = [_spelled(part) for part in given]
    role = data.get("role")
    if role is None:
        role = "model" if any("function_call" in part for part in parts) else "user"
    if role not in _ROLES:
        raise InvalidInput(
            f"unknown role {shown(role)} of a message with 'parts'; use user or model"
        )
    rest = {k: v for k, v in data.items() if k not in ("role", "parts", "at") and v is not None}
    known = {"at": data.get("at"), "extra": rest or None}
    if _ROLES[role] == "assistant":
        return [_model(parts, ids, known)]
    return _user(_ROLES[role], parts, ids, known)


def _spelled(part: object) -> dict[str, Any]:
    """Return a part as a dict in Python's spelling, without fields that are None."""
    if isinstance(part, str):
        return {"text": part}
    data = as_plain(part)
    if not isinstance(data, Mapping):
        raise InvalidType(f"a part must be a dict, not {type(part).__name__}")
    found = {_snake(key): value for key, value in data.items() if value is not None}
    if "type" in found:
        raise InvalidInput(f"a part of Google's has no 'type': {sorted(found)}")
    signature = found.get(SIGNATURE)
    if isinstance(signature, bytes):
        found[SIGNATURE] = b64encode(signature).decode()
    return found


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)


def _model(parts: Sequence[dict[str, Any]], ids: Ids | None, known: Mapping[str, Any]) -> Message:
    found: list[Part] = []
    calls: list[ToolCall] = []
    behind: list[int] = []
    for each in parts:
        if "function_response" in each:
            raise InvalidInput("a function response belongs to a user's message, not to a model's")
        if "function_call" not in each:
            if calls:
                behind.append(len(found))
            found.append(_part(each))
            continue
        calls.append(_call(each, ids))
        for index in behind:  # the part stood between two calls
            found[index] = put_before(found[index], calls[-1].id)
        behind = []
    return Message("assistant", joined(found), tool_calls=tuple(calls), **known)


def _user(
    role: str, parts: Sequence[dict[str, Any]], ids: Ids | None, known: Mapping[str, Any]
) -> list[Message]:
    messages: list[Message] = []
    said: list[Part] = []

    def close() -> None:
        if said:
            messages.append(Message(role, joined(said), **known))  # type: ignore[arg-type]
            said.clear()

    for each in parts:
        if "function_call" in each:
            raise InvalidInput("a function call belongs to a model's message, not to a user's")
        if "function_response" in each:
            close()
            messages.append(_response(each, ids, known["at"]))
        else:
            said.append(_part(each))
    close()
    return messages


def _part(part: dict[str, Any]) -> Part:
    rest = dict(part)
    if isinstance(rest.get("text"), str):
        text, thought = rest.pop("text"), rest.pop("thought", None)
        if not thought:
            return Text(text, extra=_beside(rest) or None)
        signature = rest.pop(SIGNATURE, None)
        return Reasoning(text, signature=signature, extra={"thought": True, **_beside(rest)})
    for kind in PARTS:
        if kind in rest:
            value = as_json(rest.pop(kind))
            rest.pop("thought", None)
            if isinstance(value, Mapping):
                value = {_snake(key): each for key, each in value.items()}
            return Other({"type": kind, kind: value, **_beside(rest)})
    raise InvalidInput(f"a part of Google's with {sorted(part)} cannot be read")


def _beside(rest: Mapping[str, Any]) -> dict[str, Any]:
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
    given = as_json(call.get("args") or {})
    arguments = compact_json(copy_json(given, f"the arguments of function call {name!r}"))
    extra = _beside(rest)
    call_id = call.get("id")
    if call_id is None:
        call_id = _ids(ids, f"function call {name!r}").call(name, arguments)
        extra["made_id"] = True
    return ToolCall(call_id, name, arguments, extra=extra or None)


def _response(part: dict[str, Any], ids: Ids | None, at: float | None) -> Message:
    given = as_plain(part["function_response"])
    name = given.get("name") if isinstance(given, Mapping) else None
    if not isinstance(name, str):
        raise InvalidInput(
            f"a function response needs a 'name': {shown(part['function_response'])}"
        )
    rest = {_snake(key): value for key, value in given.items() if value is not None}
    call_id = rest.pop("id", None)
    del rest["name"]
    response = copy_json(as_json(rest.pop("response", {})), f"the response of {name!r}")
    if not isinstance(response, Mapping):
        raise InvalidType(f"the response of {name!r} must be a dict, not {shown(response)}")
    extra = _beside({k: v for k, v in part.items() if k != "function_response"})
    if rest:
        extra["function_response"] = as_json(rest)
    text, told = compact_json(response), response.get("output") or response.get("error")
    if len(response) == 1 and isinstance(told, str):
        text = told
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
        return {str(key): as_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    return getattr(value, "value", value)
