"""The parts of messages: texts, images, files, reasoning, tool calls, attachments.

Frozen values that cannot be invalid, and how each is written in an OpenAI-style dict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from muntin.core.checks import (
    check_optional_text,
    check_size,
    check_text,
    compact_json,
    copy_extra,
    copy_json,
    shown,
)
from muntin.errors import InvalidInput, InvalidType

Modality: TypeAlias = Literal["document", "image", "audio", "video"]
Extra: TypeAlias = Mapping[str, Any]

MODALITIES: tuple[Modality, ...] = ("document", "image", "audio", "video")


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of text inside a message."""

    text: str
    extra: Extra | None = field(default=None, kw_only=True, hash=False)

    def __post_init__(self) -> None:
        check_text(self.text, "Text.text")
        if self.extra is not None:
            object.__setattr__(self, "extra", copy_extra(self.extra, "Text.extra"))


DETAILS = ("auto", "low", "high", "original")


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
        if self.detail is not None and self.detail not in DETAILS:
            raise InvalidInput(
                f"unknown Image.detail {shown(self.detail)}; use {', '.join(DETAILS)}"
            )
        for name in ("width", "height"):
            size = getattr(self, name)
            if size is not None and check_size(size, f"Image.{name}") == 0:
                raise InvalidInput(f"Image.{name} must be positive, got 0")
        if self.extra is not None:
            object.__setattr__(self, "extra", copy_extra(self.extra, "Image.extra"))


@dataclass(frozen=True, slots=True)
class File:
    """A file inside a message, by provider file id or as inline data."""

    id: str | None = None
    name: str | None = field(default=None, kw_only=True)
    data: str | None = field(default=None, kw_only=True)
    extra: Extra | None = field(default=None, kw_only=True, hash=False)

    def __post_init__(self) -> None:
        for name in ("id", "name", "data"):
            check_optional_text(getattr(self, name), f"File.{name}")
        if self.extra is not None:
            object.__setattr__(self, "extra", copy_extra(self.extra, "File.extra"))


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A model's own reasoning; it is never cut, because its signature covers every byte."""

    text: str = ""
    signature: str | None = field(default=None, kw_only=True)
    extra: Extra | None = field(default=None, kw_only=True, hash=False)

    def __post_init__(self) -> None:
        check_text(self.text, "Reasoning.text")
        check_optional_text(self.signature, "Reasoning.signature")
        if self.extra is not None:
            object.__setattr__(self, "extra", copy_extra(self.extra, "Reasoning.extra"))


@dataclass(frozen=True, slots=True)
class Other:
    """A part of a type Muntin does not know, carried through unchanged."""

    data: Mapping[str, Any] = field(hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.data, Mapping) or not isinstance(self.data.get("type"), str):
            raise InvalidType(
                f'a content part must be a mapping with a "type", got {shown(self.data)}'
            )
        copied = copy_json(self.data, f"a content part of type {self.data['type']!r}")
        object.__setattr__(self, "data", copied)


Part: TypeAlias = Text | Image | File | Reasoning | Other
PARTS = (Text, Image, File, Reasoning, Other)


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
            what = f"the arguments of tool call {self.id!r} of {self.name!r}"
            object.__setattr__(self, "arguments", compact_json(copy_json(arguments, what)))
        check_text(self.arguments, f"the arguments of tool call {self.id!r}")
        if self.extra is not None:
            object.__setattr__(self, "extra", copy_extra(self.extra, "ToolCall.extra"))


@dataclass(frozen=True, slots=True)
class Attachment:
    """A reference to a stored file: its facts, not its contents."""

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
        check_optional_text(self.mime_type, "Attachment.mime_type")


def as_plain(value: Any) -> Any:
    """Return an SDK's object (a Pydantic model) as a dict; any other value unchanged."""
    if isinstance(value, Mapping) or not hasattr(value, "model_dump"):
        return value
    return value.model_dump(by_alias=True, exclude_unset=True, warnings=False)


def joined(parts: Sequence[Part]) -> str | tuple[Part, ...] | None:
    """Return parts as a message's content: plain text as a str, no parts as None."""
    if not parts:
        return None
    if len(parts) == 1 and isinstance(parts[0], Text) and not parts[0].extra:
        return parts[0].text
    return tuple(parts)


def is_thought(part: Part) -> bool:
    """Say whether a part is a thought of Claude's, signed or encrypted."""
    if isinstance(part, Reasoning):
        extra = part.extra or {}
        return part.signature is not None and "summary" not in extra and "thought" not in extra
    return isinstance(part, Other) and part.data["type"] == "redacted_thinking"


def part_from_dict(data: Part | Mapping[str, Any]) -> Part:
    """Read one OpenAI- or Anthropic-style content part; unknown types become `Other`."""
    if isinstance(data, PARTS):
        return data
    if data.__class__ is not dict:
        data = as_plain(data)
    if not isinstance(data, Mapping):
        raise InvalidType(
            f"a content part must be a mapping, not {type(data).__name__}: {shown(data)}"
        )
    rest = dict(data)  # the part copies the remaining fields itself
    kind = rest.pop("type", None)
    if kind == "text" and isinstance(rest.get("text"), str):
        return Text(rest.pop("text"), extra=rest or None)
    if kind in _RESPONSES_PARTS:
        return _responses_part(kind, rest) or Other(data)
    if kind == "thinking" and isinstance(rest.get("thinking"), str):
        text, signature = rest.pop("thinking"), rest.pop("signature", None)
        return Reasoning(text, signature=signature, extra=rest or None)
    if kind == "image_url" and isinstance(rest.get("image_url"), dict):
        inner = rest["image_url"] = dict(rest["image_url"])
        if isinstance(inner.get("url"), str):
            fields = {k: inner.pop(k, None) for k in ("url", "detail", "width", "height")}
            return Image(fields.pop("url"), **fields, extra=_drop_empty(rest, "image_url"))
    if kind == "file" and isinstance(rest.get("file"), dict):
        inner = rest["file"] = dict(rest["file"])
        return File(
            inner.pop("file_id", None),
            name=inner.pop("filename", None),
            data=inner.pop("file_data", None),
            extra=_drop_empty(rest, "file"),
        )
    return Other(data)


# The names in the Responses API for text, image_url and file of Chat Completions.
_RESPONSES_PARTS = ("input_text", "output_text", "input_image", "input_file")


def _responses_part(kind: str, rest: dict[str, Any]) -> Part | None:
    rest = {key: value for key, value in rest.items() if value not in (None, [])}
    if kind in ("input_text", "output_text") and isinstance(rest.get("text"), str):
        return Text(rest.pop("text"), extra=rest or None)
    if kind == "input_image" and isinstance(rest.get("image_url"), str) and "file_id" not in rest:
        return Image(rest.pop("image_url"), detail=rest.pop("detail", None), extra=rest or None)
    if kind == "input_file" and "file_url" not in rest:
        id, name, data = (rest.pop(key, None) for key in ("file_id", "filename", "file_data"))
        return File(id, name=name, data=data, extra=rest or None)
    return None


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
        fields = {k: getattr(part, k) for k in ("url", "detail", "width", "height")}
        key = "image_url"
    else:
        fields = {"file_id": part.id, "filename": part.name, "file_data": part.data}
        key = "file"
    inner = {k: v for k, v in fields.items() if v is not None}
    inner.update(extra.pop(key, {}))
    return {"type": key, key: inner, **extra}


def call_from_dict(data: object) -> ToolCall:
    """Read one OpenAI-style tool call."""
    if isinstance(data, ToolCall):
        return data
    if data.__class__ is not dict:
        data = as_plain(data)
    if not isinstance(data, Mapping):
        raise InvalidType(f"a tool call must be a ToolCall or a dict, not {shown(data)}")
    rest = dict(data)
    kind = rest.pop("type", "function")
    key, body = ("custom", "input") if kind == "custom" else ("function", "arguments")
    inner = rest.get(key)
    if not isinstance(inner, dict) or "name" not in inner or "id" not in rest:
        raise InvalidInput(
            f"a tool call dict needs 'id' and {key!r} with a 'name', got {shown(data)}"
        )
    inner = rest[key] = dict(inner)
    call_id, name, arguments = rest.pop("id"), inner.pop("name"), inner.pop(body, "{}")
    extra = _drop_empty(rest, key) or {}
    if kind != "function":
        extra["type"] = kind
    return ToolCall(call_id, name, arguments, extra=extra or None)


def call_to_dict(call: ToolCall) -> dict[str, Any]:
    """Write one tool call as an OpenAI-style dict."""
    extra = deepcopy(dict(call.extra)) if call.extra else {}
    kind = extra.pop("type", "function")
    key, body = ("custom", "input") if kind == "custom" else ("function", "arguments")
    inner = {"name": call.name, body: call.arguments, **extra.pop(key, {})}
    return {"id": call.id, "type": kind, key: inner, **extra}


def attachment_from_dict(data: object) -> Attachment:
    """Read an attachment from a dict of its fields."""
    if isinstance(data, Attachment):
        return data
    if not isinstance(data, Mapping):
        raise InvalidType(f"an attachment must be an Attachment or a dict, not {shown(data)}")
    missing = {"id", "name", "size", "modality"} - set(data)
    unknown = set(data) - {"id", "name", "size", "modality", "mime_type"}
    if missing or unknown:
        raise InvalidInput(
            f"attachment {data.get('name')!r}: "
            + "; ".join(
                [f"missing {key!r}" for key in sorted(missing)]
                + [f"unknown {key}" for key in sorted(map(repr, unknown))]
            )
        )
    return Attachment(**cast("dict[str, Any]", dict(data)))


def attachment_to_dict(item: Attachment) -> dict[str, Any]:
    """Write an attachment as a dict of its fields."""
    data: dict[str, Any] = {
        "id": item.id,
        "name": item.name,
        "size": item.size,
        "modality": item.modality,
    }
    if item.mime_type is not None:
        data["mime_type"] = item.mime_type
    return data
