"""Messages: the frozen values that everything else passes around.

Owns what a message is, how it is written as an OpenAI-style dict, and that an invalid one
cannot exist. Knows nothing of tokens, slots or providers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Literal, TypeAlias, cast

from muntin.core.checks import check_text, copy_extra, refuse_surrogates, shown
from muntin.core.parts import (
    PARTS,
    Attachment,
    Extra,
    Other,
    Part,
    Reasoning,
    Text,
    ToolCall,
    as_plain,
    attachment_from_dict,
    attachment_to_dict,
    call_from_dict,
    call_to_dict,
    part_from_dict,
    part_to_dict,
)
from muntin.core.usage import AnswerTokens
from muntin.errors import InvalidInput, InvalidType

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]

ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")

# The text in the place of a result that was never recorded: providers refuse a call without one.
NO_RESULT = "(no result was recorded)"


@dataclass(frozen=True, slots=True)
class Input:
    """What the user says in the current turn."""

    text: str
    attachments: tuple[Attachment, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or not self.text.isascii():
            check_text(self.text, "Input.text")
        object.__setattr__(self, "attachments", _attachments(self.attachments, "Input"))


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    `at` is its position on the timeline's scale. `extra` holds the fields Muntin does not know
    (signatures, provider metadata) and comes back unchanged from `to_dict`. `item` is set by a
    timeline: the session and the position of the item that the message shows.
    """

    role: Role
    content: str | tuple[Part, ...] | None = None
    attachments: tuple[Attachment, ...] = field(default=(), kw_only=True)
    tool_calls: tuple[ToolCall, ...] = field(default=(), kw_only=True)
    tool_call_id: str | None = field(default=None, kw_only=True)
    name: str | None = field(default=None, kw_only=True)
    at: float | None = field(default=None, kw_only=True)
    extra: Extra | None = field(default=None, kw_only=True, hash=False)
    item: tuple[str, int] | None = field(default=None, kw_only=True, repr=False, compare=False)
    # The text of the message, its text parts put together.
    text: str = field(init=False, repr=False, compare=False)
    # The count that `counted` noted; a changed copy does not inherit it.
    known_tokens: tuple[str, int] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    # What the provider reported of this answer; a changed copy does not inherit it.
    answer_tokens: AnswerTokens | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise InvalidInput(f"unknown role {shown(self.role)}; use one of {', '.join(ROLES)}")
        what = f"the content of a {self.role} message"
        content = self.content
        if isinstance(content, str):
            if not content.isascii():
                refuse_surrogates(content, what)
        elif content is not None:
            content = _parts(content, what)
            object.__setattr__(self, "content", content)
            content = "".join([part.text for part in content if isinstance(part, Text)])
        object.__setattr__(self, "text", content or "")
        if self.attachments != ():
            object.__setattr__(self, "attachments", _attachments(self.attachments, "Message"))
        if self.tool_calls != ():
            object.__setattr__(self, "tool_calls", _tool_calls(self.tool_calls, self.role))
        if self.tool_call_id is not None:
            check_text(self.tool_call_id, "Message.tool_call_id")
            if self.role != "tool":
                raise InvalidInput(f"tool_call_id belongs to role 'tool', not {shown(self.role)}")
        if self.name is not None:
            check_text(self.name, "Message.name")
        if self.at is not None:
            _check_at(self.at)
        if self.extra is not None:
            object.__setattr__(self, "extra", copy_extra(self.extra, "Message.extra"))

    def __repr__(self) -> str:
        arguments = [repr(self.role), repr(self.content)]
        for spec in fields(self)[2:]:
            value = getattr(self, spec.name)
            if spec.repr and value != spec.default:
                arguments.append(f"{spec.name}={value!r}")
        return f"Message({', '.join(arguments)})"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Message:
        """Read an OpenAI-style dict; fields Muntin does not know are kept in `extra`.

        A message in the form of Anthropic, of Google or of the Responses API is read too, and so is
        an SDK's object. A value that means several messages is refused; `messages_from` reads it.
        """
        if type(data) is dict and len(data) == 2 and data.get("role") in ROLES:
            content = data.get("content")
            if type(content) is str:  # most messages: nothing else is in them
                return cls(cast("Role", data["role"]), content)
        if data.__class__ is not dict:
            data = as_plain(data)
        if not _is_openai_style(data):
            from muntin.core.forms import one_message  # late: that module makes Messages

            return one_message(data)
        values = dict(data)
        role = values.pop("role")
        content = values.pop("content", None)
        if isinstance(content, Sequence) and not isinstance(content, str | bytes):
            content = tuple(part_from_dict(part) for part in content)
        read: dict[str, Any] = {}
        if values.get("tool_calls") is not None:
            calls = values.pop("tool_calls")
            if not isinstance(calls, Sequence) or isinstance(calls, str):
                raise InvalidType(f"tool_calls must be a list, not {type(calls).__name__}")
            read["tool_calls"] = tuple(call_from_dict(call) for call in calls)
        if values.get("attachments"):
            files = _tuple(values.pop("attachments"), "attachments")
            read["attachments"] = tuple(attachment_from_dict(file) for file in files)
        for key in ("tool_call_id", "name", "at"):
            if values.get(key) is not None:
                read[key] = values.pop(key)
        if role == "developer":  # OpenAI's newer word for system; `extra` keeps the spelling
            role, values["role"] = "system", "developer"
        return cls(role, content, **read, extra=values or None)

    def to_dict(self) -> dict[str, Any]:
        """Write the message as an OpenAI-style dict, unknown fields included."""
        content: Any = self.content
        if isinstance(content, tuple):
            content = [part_to_dict(part) for part in content]
        data: dict[str, Any] = {"role": self.role, "content": content}
        if self.tool_calls:
            data["tool_calls"] = [call_to_dict(call) for call in self.tool_calls]
        if self.attachments:
            data["attachments"] = [attachment_to_dict(a) for a in self.attachments]
        for key in ("tool_call_id", "name", "at"):
            value = getattr(self, key)
            if value is not None:
                data[key] = value
        if self.extra:
            data.update(deepcopy(dict(self.extra)))
        return data


def _is_openai_style(data: object) -> bool:
    """Say whether a value is a dict in the form of Chat Completions."""
    if not isinstance(data, Mapping) or "role" not in data or "parts" in data:
        return False
    content = data.get("content")
    if content.__class__ is str or content is None:
        return data.get("type") != "message"
    if data.get("type") == "message" or "stop_reason" in data:
        return False
    # Anthropic's blocks for a call and for a result.
    for part in content if isinstance(content, list | tuple) else ():
        is_mapping = part.__class__ is dict or isinstance(part, Mapping)
        kind = part.get("type") if is_mapping else getattr(part, "type", None)
        if kind in ("tool_use", "tool_result"):
            return False
    return True


MessageLike: TypeAlias = Message | Mapping[str, Any]


def system(text: str) -> Message:
    """Make a system message."""
    return Message("system", text)


def user(text: str, *, attachments: Iterable[Attachment] = (), at: float | None = None) -> Message:
    """Make a user message."""
    return Message("user", text, attachments=_tuple(attachments, "attachments"), at=at)


def assistant(
    text: str | None = None, *, tool_calls: Iterable[ToolCall] = (), at: float | None = None
) -> Message:
    """Make an assistant message, with the tools it calls."""
    return Message("assistant", text, tool_calls=_tuple(tool_calls, "tool_calls"), at=at)


def tool(call_id: str, text: str) -> Message:
    """Make the result of the tool call `call_id`."""
    return Message("tool", text, tool_call_id=call_id)


def as_message(value: MessageLike) -> Message:
    """Return `value` as a Message, reading it as an OpenAI-style dict if it is one."""
    return value if isinstance(value, Message) else Message.from_dict(value)


def role_of(item: MessageLike) -> Any:
    """Return the role of a message or message dict; read nothing else of it."""
    if item.__class__ is Message:
        return item.role
    role = item.get("role") if isinstance(item, Mapping) else getattr(item, "role", None)
    return _ROLES_ELSEWHERE.get(role, role) if isinstance(role, str) else role


# OpenAI's newer word for system, and Google's for assistant.
_ROLES_ELSEWHERE = {"developer": "system", "model": "assistant"}


def at_of(item: MessageLike) -> float | None:
    """Return the position of a message or message dict, if it has one."""
    at = item.get("at") if isinstance(item, Mapping) else getattr(item, "at", None)
    return at if isinstance(at, int | float) else None


def opens_turn(items: Sequence[MessageLike], index: int) -> bool:
    """Say whether a turn begins at `index`: at a user's message that follows no other user's."""
    return role_of(items[index]) == "user" and (index == 0 or role_of(items[index - 1]) != "user")


def counted(message: Message, key: str, tokens: int) -> Message:
    """Note the tokens of a message under the key of its counter, so that it is counted once."""
    object.__setattr__(message, "known_tokens", (key, tokens))
    return message


def answered(message: Message, tokens: AnswerTokens | None) -> Message:
    """Return an answer with what the provider reported of it."""
    if tokens is None or not tokens.output or message.answer_tokens == tokens:
        return message
    return at_position(message, message.at, message.known_tokens, message.item, tokens)


def has_thought(message: Message) -> bool:
    """Say whether a message holds reasoning that is sent back with it."""
    content, extra = message.content, message.extra
    if isinstance(content, tuple):
        for part in content:
            if isinstance(part, Reasoning):
                return True
            if isinstance(part, Other) and part.data["type"] in _THOUGHTS:
                return True
    return bool(extra) and any(extra.get(name) for name in _THOUGHT_FIELDS)  # type: ignore[union-attr]


_THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning"})
# The fields in which Chat Completions servers put reasoning that they take back.
_THOUGHT_FIELDS = ("reasoning_content", "reasoning", "reasoning_details")


def has_refusal_or_audio(message: Message) -> bool:
    """Say whether an answer has a refusal or a sound beside its content, which may be empty."""
    extra = message.extra
    return bool(
        extra and message.role == "assistant" and (extra.get("refusal") or extra.get("audio"))
    )


def characters_of(message: Message) -> int | None:
    """Return how many characters a message of texts and calls has; None for any other message.

    A message of texts and calls cannot change, so equal messages may share one result.
    """
    if message.attachments or message.extra:
        return None
    size = len(message.text)
    if isinstance(message.content, tuple):
        for part in message.content:
            if not isinstance(part, Text | Reasoning) or part.extra:
                return None
            size += len(part.text)
    for call in message.tool_calls:
        if call.extra:
            return None
        size += len(call.arguments)
    return size


def at_position(
    message: Message,
    at: float | None,
    known_tokens: tuple[str, int] | None = None,
    item: tuple[str, int] | None = None,
    answer_tokens: AnswerTokens | None = None,
) -> Message:
    """Return the message at a position, as `replace` would, but without checking it again.

    `known_tokens` is what `counted` would note, `item` the item of a timeline that the message
    shows, `answer_tokens` what the provider reported of it.
    """
    copy = object.__new__(Message)
    values = (*_copied(message), at, known_tokens, item, answer_tokens)
    for set_field, value in zip(_SETTERS, values, strict=True):
        set_field(copy, value)
    return copy


def place_of(message: Message) -> tuple[float, int]:
    """Return where a message stands on its timeline, behind everything if it is of none. All
    messages of a run have the same `at`; their items tell them apart."""
    item = 0 if message.item is None else message.item[1]
    return math.inf if message.at is None else message.at, item


_SET = ("at", "known_tokens", "item", "answer_tokens")
_COPIED = [spec.name for spec in fields(Message) if spec.name not in _SET]
_copied = attrgetter(*_COPIED)
_SETTERS = [getattr(Message, name).__set__ for name in (*_COPIED, *_SET)]


def _check_at(value: object) -> None:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return
    except OverflowError:  # an int beyond every float, perhaps too long to be written out
        raise InvalidInput("Message.at is larger than any float") from None
    raise InvalidInput(f"Message.at must be a finite number or None, got {shown(value)}")


def _tuple(value: Iterable[Any], what: str) -> tuple[Any, ...]:
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
        raise InvalidType(f"{what} must be a list, not {type(value).__name__}")
    return tuple(value)


def _attachments(value: object, owner: str) -> tuple[Attachment, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise InvalidType(
            f"{owner}.attachments must be a list of Attachment, not {type(value).__name__}"
        )
    for item in value:
        if not isinstance(item, Attachment):
            raise InvalidType(f"{owner}.attachments holds a {type(item).__name__}: {shown(item)}")
    return tuple(value)


def _parts(value: object, what: str) -> tuple[Part, ...]:
    if not isinstance(value, Sequence) or isinstance(value, bytes):
        raise InvalidType(f"{what} must be str, parts or None, not {type(value).__name__}")
    return tuple(part if isinstance(part, PARTS) else part_from_dict(part) for part in value)


def _tool_calls(value: object, role: str) -> tuple[ToolCall, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise InvalidType(f"tool_calls must be a list of ToolCall, not {type(value).__name__}")
    if value and role != "assistant":
        raise InvalidInput(f"tool_calls belong to role 'assistant', not {shown(role)}")
    calls = tuple(c if isinstance(c, ToolCall) else call_from_dict(c) for c in value)
    seen: set[str] = set()
    for call in calls:
        if call.id in seen:
            raise InvalidInput(f"duplicate tool call id {call.id!r} in one message")
        seen.add(call.id)
    return calls
