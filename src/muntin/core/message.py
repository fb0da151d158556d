"""Messages: the frozen values that everything else passes around.

Owns what a message is, how it is written as an OpenAI-style dict, and that an invalid one
cannot exist. Knows nothing of tokens, slots or providers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias, cast

from muntin.errors import InvalidInput, InvalidType

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
Modality: TypeAlias = Literal["document", "image", "audio", "video"]
Extra: TypeAlias = Mapping[str, Any]

ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")
MODALITIES: tuple[Modality, ...] = ("document", "image", "audio", "video")

# What stands in the place of a result that was never recorded: providers refuse a call
# without one.
NO_RESULT = "(no result was recorded)"


def check_text(value: object, what: str) -> str:
    """Return `value` if it is text that UTF-8 can carry; raise an error naming `what` if not."""
    if not isinstance(value, str):
        raise InvalidType(f"{what} must be a str, not {type(value).__name__}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(
                f"{what} has a lone surrogate (U+{ord(value[error.start]):04X}) at character "
                f"{error.start}, which no provider can carry; clean the text first, for example "
                'with text.encode("utf-8", "replace").decode()'
            ) from None
    return value


def check_size(value: object, what: str) -> int:
    """Return `value` if it is an integer of at least 0; raise an error naming `what` if not."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidType(f"{what} must be an int, not {value!r}")
    if value < 0:
        raise InvalidInput(f"{what} must not be negative, got {value}")
    return value


def _check_optional_text(value: object, what: str) -> None:
    if value is not None:
        check_text(value, what)


def _check_extra(value: object, what: str) -> None:
    if value is not None and not isinstance(value, Mapping):
        raise InvalidType(f"{what} must be a mapping or None, not {type(value).__name__}")


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of text inside a message."""

    text: str
    extra: Extra | None = field(default=None, kw_only=True, hash=False)

    def __post_init__(self) -> None:
        check_text(self.text, "Text.text")
        _check_extra(self.extra, "Text.extra")


@dataclass(frozen=True, slots=True)
class Image:
    """An image by address or data URL; with its size known, it is counted by the vendor's rule."""

    url: str
    detail: str | None = field(default=None, kw_only=True)
    width: int | None = field(default=None, kw_only=True)
    height: int | None = field(default=None, kw_only=True)
    extra: Extra | None = field(default=None, kw_only=True, hash=False)

    def __post_init__(self) -> None:
        check_text(self.url, "Image.url")
        _check_optional_text(self.detail, "Image.detail")
        for name in ("width", "height"):
            size = getattr(self, name)
            if size is not None and check_size(size, f"Image.{name}") == 0:
                raise InvalidInput(f"Image.{name} must be positive, got 0")
        _check_extra(self.extra, "Image.extra")


@dataclass(frozen=True, slots=True)
class File:
    """A file inside a message, by provider file id or as inline data."""

    id: str | None = None
    name: str | None = field(default=None, kw_only=True)
    data: str | None = field(default=None, kw_only=True)
    extra: Extra | None = field(default=None, kw_only=True, hash=False)

    def __post_init__(self) -> None:
        for name in ("id", "name", "data"):
            _check_optional_text(getattr(self, name), f"File.{name}")
        _check_extra(self.extra, "File.extra")


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A model's own reasoning; it is never cut, because its signature covers every byte."""

    text: str = ""
    signature: str | None = field(default=None, kw_only=True)
    extra: Extra | None = field(default=None, kw_only=True, hash=False)

    def __post_init__(self) -> None:
        check_text(self.text, "Reasoning.text")
        _check_optional_text(self.signature, "Reasoning.signature")
        _check_extra(self.extra, "Reasoning.extra")


@dataclass(frozen=True, slots=True)
class Other:
    """A part of a type Muntin does not know, carried through unchanged."""

    data: Mapping[str, Any] = field(hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.data, Mapping) or not isinstance(self.data.get("type"), str):
            raise InvalidType(f'a content part must be a mapping with a "type", got {self.data!r}')


Part: TypeAlias = Text | Image | File | Reasoning | Other
_PARTS = (Text, Image, File, Reasoning, Other)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool; `arguments` is JSON text (a mapping is written as compact JSON)."""

    id: str
    name: str
    arguments: str = "{}"
    extra: Extra | None = field(default=None, kw_only=True, hash=False)

    def __post_init__(self) -> None:
        if not check_text(self.id, "ToolCall.id"):
            raise InvalidInput(f"ToolCall.id must not be empty (tool {self.name!r})")
        if not check_text(self.name, "ToolCall.name"):
            raise InvalidInput(f"ToolCall.name must not be empty (call {self.id!r})")
        arguments: object = self.arguments
        if isinstance(arguments, Mapping):
            object.__setattr__(self, "arguments", compact_json(arguments))
        check_text(self.arguments, f"the arguments of tool call {self.id!r}")
        _check_extra(self.extra, "ToolCall.extra")


@dataclass(frozen=True, slots=True)
class Attachment:
    """A reference to a stored file: what it is, not what is in it."""

    id: str
    name: str
    size: int
    modality: Modality
    mime_type: str | None = None

    def __post_init__(self) -> None:
        check_text(self.id, "Attachment.id")
        check_text(self.name, "Attachment.name")
        check_size(self.size, f"the size of attachment {self.name!r}")
        if self.modality not in MODALITIES:
            raise InvalidInput(
                f"the modality of attachment {self.name!r} is {self.modality!r}; "
                f"use one of {', '.join(MODALITIES)}"
            )
        _check_optional_text(self.mime_type, "Attachment.mime_type")


@dataclass(frozen=True, slots=True)
class Input:
    """What the user says in the current turn."""

    text: str
    attachments: tuple[Attachment, ...] = ()

    def __post_init__(self) -> None:
        check_text(self.text, "Input.text")
        object.__setattr__(self, "attachments", _attachments(self.attachments, "Input"))


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    `at` is its position on the timeline's scale. `extra` holds the fields Muntin does not know
    (signatures, provider metadata) and comes back unchanged from `to_dict`.
    """

    role: Role
    content: str | tuple[Part, ...] | None = None
    attachments: tuple[Attachment, ...] = field(default=(), kw_only=True)
    tool_calls: tuple[ToolCall, ...] = field(default=(), kw_only=True)
    tool_call_id: str | None = field(default=None, kw_only=True)
    name: str | None = field(default=None, kw_only=True)
    at: float | None = field(default=None, kw_only=True)
    extra: Extra | None = field(default=None, kw_only=True, hash=False)

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise InvalidInput(f"unknown role {self.role!r}; use one of {', '.join(ROLES)}")
        what = f"the content of a {self.role} message"
        if isinstance(self.content, str):
            check_text(self.content, what)
        elif self.content is not None:
            object.__setattr__(self, "content", _parts(self.content, what))
        if self.attachments != ():
            object.__setattr__(self, "attachments", _attachments(self.attachments, "Message"))
        if self.tool_calls != ():
            object.__setattr__(self, "tool_calls", _tool_calls(self.tool_calls, self.role))
        if self.tool_call_id is not None:
            check_text(self.tool_call_id, "Message.tool_call_id")
            if self.role != "tool":
                raise InvalidInput(f"tool_call_id belongs to role 'tool', not {self.role!r}")
        _check_optional_text(self.name, "Message.name")
        if self.at is not None and (
            not isinstance(self.at, int | float)
            or isinstance(self.at, bool)
            or not math.isfinite(self.at)
        ):
            raise InvalidInput(f"Message.at must be a finite number or None, got {self.at!r}")
        _check_extra(self.extra, "Message.extra")

    def __repr__(self) -> str:
        shown = [repr(self.role), repr(self.content)]
        for each in fields(self)[2:]:
            value = getattr(self, each.name)
            if value != each.default:
                shown.append(f"{each.name}={value!r}")
        return f"Message({', '.join(shown)})"

    @property
    def text(self) -> str:
        """The text of the message, its text parts put together."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content or () if isinstance(part, Text))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Message:
        """Read an OpenAI-style dict; fields Muntin does not know ride along in `extra`.

        A Pydantic model, such as the message an SDK returned, is read as the dict it dumps.
        """
        if not isinstance(data, Mapping) and hasattr(data, "model_dump"):
            data = data.model_dump(exclude_unset=True)
        if not isinstance(data, Mapping):
            raise InvalidType(f"a message must be a Message or a dict, not {type(data).__name__}")
        if "role" not in data:
            raise InvalidInput(f"a message dict needs a 'role'; its keys are {sorted(data)}")
        known = dict(data)
        role = known.pop("role")
        content = known.pop("content", None)
        if isinstance(content, Sequence) and not isinstance(content, str | bytes):
            content = tuple(part_from_dict(part) for part in content)
        given: dict[str, Any] = {}
        if known.get("tool_calls") is not None:
            calls = known.pop("tool_calls")
            if not isinstance(calls, Sequence) or isinstance(calls, str):
                raise InvalidType(f"tool_calls must be a list, not {type(calls).__name__}")
            given["tool_calls"] = tuple(_call_from_dict(call) for call in calls)
        if known.get("attachments"):
            given["attachments"] = tuple(_attachment_from(a) for a in known.pop("attachments"))
        for key in ("tool_call_id", "name", "at"):
            if known.get(key) is not None:
                given[key] = known.pop(key)
        if role == "developer":  # OpenAI's newer word for system; `extra` keeps the spelling
            role, known["role"] = "system", "developer"
        return cls(role, content, **given, extra=deepcopy(known) or None)

    def to_dict(self) -> dict[str, Any]:
        """Write the message as an OpenAI-style dict, unknown fields included."""
        content: Any = self.content
        if isinstance(content, tuple):
            content = [part_to_dict(part) for part in content]
        data: dict[str, Any] = {"role": self.role, "content": content}
        if self.tool_calls:
            data["tool_calls"] = [_call_to_dict(call) for call in self.tool_calls]
        if self.attachments:
            data["attachments"] = [_attachment_to_dict(a) for a in self.attachments]
        for key in ("tool_call_id", "name", "at"):
            value = getattr(self, key)
            if value is not None:
                data[key] = value
        if self.extra:
            data.update(deepcopy(dict(self.extra)))
        return data


def system(text: str) -> Message:
    """Make a system message."""
    return Message("system", text)


def user(text: str, *, attachments: Iterable[Attachment] = ()) -> Message:
    """Make a user message."""
    return Message("user", text, attachments=tuple(attachments))


def assistant(text: str | None = None, *, tool_calls: Iterable[ToolCall] = ()) -> Message:
    """Make an assistant message, with the tools it calls."""
    return Message("assistant", text, tool_calls=tuple(tool_calls))


def tool(call_id: str, text: str) -> Message:
    """Make the result of the tool call `call_id`."""
    return Message("tool", text, tool_call_id=call_id)


def as_message(value: Message | Mapping[str, Any]) -> Message:
    """Return `value` as a Message, reading it as an OpenAI-style dict if it is one."""
    return value if isinstance(value, Message) else Message.from_dict(value)


def compact_json(value: object) -> str:
    """Write `value` as JSON with sorted keys and no spaces: the same value, the same bytes."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _attachments(value: object, owner: str) -> tuple[Attachment, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise InvalidType(
            f"{owner}.attachments must be a list of Attachment, not {type(value).__name__}"
        )
    for item in value:
        if not isinstance(item, Attachment):
            raise InvalidType(f"{owner}.attachments holds a {type(item).__name__}: {item!r}")
    return tuple(value)


def _parts(value: object, what: str) -> tuple[Part, ...]:
    if not isinstance(value, Sequence) or isinstance(value, bytes):
        raise InvalidType(f"{what} must be str, parts or None, not {type(value).__name__}")
    return tuple(part if isinstance(part, _PARTS) else part_from_dict(part) for part in value)


def _tool_calls(value: object, role: str) -> tuple[ToolCall, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise InvalidType(f"tool_calls must be a list of ToolCall, not {type(value).__name__}")
    if value and role != "assistant":
        raise InvalidInput(f"tool_calls belong to role 'assistant', not {role!r}")
    calls = tuple(c if isinstance(c, ToolCall) else _call_from_dict(c) for c in value)
    seen: set[str] = set()
    for call in calls:
        if call.id in seen:
            raise InvalidInput(f"duplicate tool call id {call.id!r} in one message")
        seen.add(call.id)
    return calls


def part_from_dict(data: Part | Mapping[str, Any]) -> Part:
    """Read one OpenAI- or Anthropic-style content part; unknown types become `Other`."""
    if isinstance(data, _PARTS):
        return data
    if not isinstance(data, Mapping):
        raise InvalidType(f"a content part must be a mapping, not {type(data).__name__}: {data!r}")
    rest = deepcopy(dict(data))
    kind = rest.pop("type", None)
    if kind == "text" and isinstance(rest.get("text"), str):
        return Text(rest.pop("text"), extra=rest or None)
    if kind == "thinking" and isinstance(rest.get("thinking"), str):
        text, signature = rest.pop("thinking"), rest.pop("signature", None)
        return Reasoning(text, signature=signature, extra=rest or None)
    if kind == "image_url" and isinstance(rest.get("image_url"), dict):
        inner = rest["image_url"]
        if isinstance(inner.get("url"), str):
            known = {k: inner.pop(k, None) for k in ("url", "detail", "width", "height")}
            return Image(known.pop("url"), **known, extra=_drop_empty(rest, "image_url"))
    if kind == "file" and isinstance(rest.get("file"), dict):
        inner = rest["file"]
        return File(
            inner.pop("file_id", None),
            name=inner.pop("filename", None),
            data=inner.pop("file_data", None),
            extra=_drop_empty(rest, "file"),
        )
    return Other(deepcopy(dict(data)))


def _drop_empty(rest: dict[str, Any], key: str) -> dict[str, Any] | None:
    if not rest[key]:
        del rest[key]
    return rest or None


def part_to_dict(part: Part) -> dict[str, Any]:
    """Write one content part as an OpenAI-style dict, unknown fields included."""
    if isinstance(part, Other):
        return deepcopy(dict(part.data))
    extra = deepcopy(dict(part.extra)) if part.extra else {}
    if isinstance(part, Text):
        return {"type": "text", "text": part.text, **extra}
    if isinstance(part, Reasoning):
        signed = {"signature": part.signature} if part.signature is not None else {}
        return {"type": "thinking", "thinking": part.text, **signed, **extra}
    if isinstance(part, Image):
        known = {k: getattr(part, k) for k in ("url", "detail", "width", "height")}
        key = "image_url"
    else:
        known = {"file_id": part.id, "filename": part.name, "file_data": part.data}
        key = "file"
    inner = {k: v for k, v in known.items() if v is not None}
    inner.update(extra.pop(key, {}))
    return {"type": key, key: inner, **extra}


def _call_from_dict(data: object) -> ToolCall:
    if isinstance(data, ToolCall):
        return data
    if not isinstance(data, Mapping):
        raise InvalidType(f"a tool call must be a ToolCall or a dict, not {data!r}")
    rest = deepcopy(dict(data))
    kind = rest.pop("type", "function")
    key, body = ("custom", "input") if kind == "custom" else ("function", "arguments")
    inner = rest.get(key)
    if not isinstance(inner, dict) or "name" not in inner or "id" not in rest:
        raise InvalidInput(f"a tool call dict needs 'id' and {key!r} with a 'name', got {data!r}")
    call_id, name, arguments = rest.pop("id"), inner.pop("name"), inner.pop(body, "{}")
    extra = _drop_empty(rest, key) or {}
    if kind != "function":
        extra["type"] = kind
    return ToolCall(call_id, name, arguments, extra=extra or None)


def _call_to_dict(call: ToolCall) -> dict[str, Any]:
    extra = deepcopy(dict(call.extra)) if call.extra else {}
    kind = extra.pop("type", "function")
    key, body = ("custom", "input") if kind == "custom" else ("function", "arguments")
    inner = {"name": call.name, body: call.arguments, **extra.pop(key, {})}
    return {"id": call.id, "type": kind, key: inner, **extra}


def _attachment_from(data: object) -> Attachment:
    if isinstance(data, Attachment):
        return data
    if not isinstance(data, Mapping):
        raise InvalidType(f"an attachment must be an Attachment or a dict, not {data!r}")
    missing = {"id", "name", "size", "modality"} - set(data)
    unknown = set(data) - {"id", "name", "size", "modality", "mime_type"}
    if missing or unknown:
        raise InvalidInput(
            f"attachment {data.get('name')!r}: "
            + "; ".join(
                [f"missing {key!r}" for key in sorted(missing)]
                + [f"unknown {key!r}" for key in sorted(unknown)]
            )
        )
    return Attachment(**cast("dict[str, Any]", dict(data)))


def _attachment_to_dict(item: Attachment) -> dict[str, Any]:
    data: dict[str, Any] = {
        "id": item.id,
        "name": item.name,
        "size": item.size,
        "modality": item.modality,
    }
    if item.mime_type is not None:
        data["mime_type"] = item.mime_type
    return data
