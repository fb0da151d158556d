"""Pydantic AI: a capability that makes every request of an agent fit.

    Agent("openai:gpt-5", capabilities=[MuntinContext(8_000)])

Hook (pydantic-ai 2.66): `AbstractCapability.prepare_model_request(ctx: RunContext,
request_context: ModelRequestContext) -> ModelRequestContext`, which sees the model of the request.
The frontier is in the `metadata` of each request of the history, which Pydantic AI keeps with the
messages and does not send.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from muntin.core.message import Message
from muntin.core.parts import Other, Text
from muntin.errors import needing
from muntin.fitting import Fitted, Piece, Pieces, Placed
from muntin.integrations.shared import (
    FRONTIER,
    Hook,
    call,
    chat_message,
    model_name,
    put_together,
    rewritten,
    split,
)
from muntin.wire.lists import piece

with needing("muntin.integrations.pydantic_ai needs: pip install 'muntin[pydantic-ai]'"):
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import (
        BinaryContent,
        FileUrl,
        ImageUrl,
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        TextContent,
        TextPart,
        ToolReturnPart,
        UserPromptPart,
    )

__all__ = ["MuntinContext"]


class MuntinContext(Hook, AbstractCapability[Any]):
    """Fits every request of an agent; the message history stays whole.

    `budget` is the tokens of a request, instructions and tools included, or a `Fitter` with more
    settings. `model` names the model for counting; without it the request's model is used, if its
    maker is known. `on_fit` is called with every fitted request.
    """

    @staticmethod
    def schema(tool: Any) -> Mapping[str, Any]:
        """Describe a tool as OpenAI does."""
        function = {"name": tool.name, "parameters": tool.parameters_json_schema}
        if tool.description:
            function["description"] = tool.description
        if tool.strict is not None:
            function["strict"] = tool.strict
        return {"type": "function", "function": function}

    @staticmethod
    def name_of(model: Any) -> str | None:
        """Return the name of a model."""
        return model_name(str(model.system), model.model_name)

    async def prepare_model_request(self, ctx: Any, request_context: Any) -> Any:
        """Send the messages that fit; keep the frontier with the newest request of the history."""
        conversation = ctx.conversation_id
        sent, frontier = await self.recorded(lambda: self.fitted(request_context, conversation))
        newest = ctx.messages[-1] if ctx.messages else None
        if isinstance(newest, ModelRequest):
            newest.metadata = {**(newest.metadata or {}), FRONTIER: frontier}
        return sent

    def fitted(self, request: Any, conversation: str | None = None) -> tuple[Any, dict[str, Any]]:
        """Return the request with the messages that fit, and its frontier."""
        parameters = request.model.customize_request_parameters(request.model_request_parameters)
        messages = request.messages
        fitted = self.fit(
            pieces_of(messages),
            [*parameters.function_tools, *parameters.output_tools],
            request.model,
            settings=getattr(request, "model_settings", None),
            system=_instructions(messages, parameters),
            previous=_previous(messages),
            conversation=conversation,
        )
        return replace(request, messages=_write_messages(messages, fitted)), fitted.frontier


def _instructions(messages: Sequence[Any], parameters: Any) -> list[Message]:
    """Return the instructions, which are sent before all messages."""
    parts = parameters.instruction_parts
    if parts is not None:
        text = "\n\n".join(part.content for part in parts if part.content)
    else:
        requests = [message for message in reversed(messages) if isinstance(message, ModelRequest)]
        text = next((request.instructions for request in requests if request.instructions), "")
    return [Message("system", text)] if text else []


def _previous(messages: Sequence[Any]) -> Mapping[str, Any] | None:
    """Return the frontier of the newest request that has one."""
    for message in reversed(messages):
        if isinstance(message, ModelRequest) and FRONTIER in (message.metadata or {}):
            frontier: Mapping[str, Any] = message.metadata[FRONTIER]
            return frontier
    return None


# Reading: each part of a request is a piece, an answer is one piece.


def pieces_of(messages: Sequence[Any]) -> Pieces:
    """Return the pieces of messages.

    The reference is the numbers of the message and of the part; None for an answer's part.
    """
    return split(messages, _count, _read)


def _count(message: Any) -> int:
    return len(message.parts) if isinstance(message, ModelRequest) else 1


def _read(message: Any, number: int) -> Sequence[Piece]:
    if isinstance(message, ModelRequest):
        return [_request_part(part, (number, at)) for at, part in enumerate(message.parts)]
    return [_answer(message, (number, None))]


def _request_part(part: Any, ref: Any) -> Piece:
    kind = part.part_kind
    if kind == "system-prompt":
        return piece({"role": "system", "content": part.content}, ref)
    if kind == "user-prompt":
        content = part.content
        if not isinstance(content, str):
            content = [_content(item) for item in content]
        return piece({"role": "user", "content": content}, ref)
    if kind == "tool-return":
        text, files = part.model_response_str(), part.files
        content = [{"type": "text", "text": text}, *map(_content, files)] if files else text
        return piece({"role": "tool", "tool_call_id": part.tool_call_id, "content": content}, ref)
    if kind == "retry-prompt" and part.tool_name is not None:
        text = part.model_response()
        return piece({"role": "tool", "tool_call_id": part.tool_call_id, "content": text}, ref)
    if hasattr(part, "model_response"):
        return piece({"role": "user", "content": part.model_response()}, ref)
    return _opaque(part, ref)


def _opaque(part: Any, ref: Any) -> Piece:
    part_text = Other({"type": part.part_kind, "value": repr(part)})
    return Piece(Message("user", (part_text,)), ref, opaque=f"a part of kind {part.part_kind!r}")


def _content(item: Any) -> dict[str, Any]:
    """Return an item of a user's content in the form of Chat Completions."""
    if isinstance(item, str | TextContent):
        return {"type": "text", "text": item if isinstance(item, str) else item.content}
    if isinstance(item, ImageUrl):
        return {"type": "image_url", "image_url": {"url": item.url}}
    if isinstance(item, BinaryContent):
        url = f"data:{item.media_type};base64,{b64encode(item.data).decode()}"
        if item.is_image:
            return {"type": "image_url", "image_url": {"url": url}}
        return {"type": "file", "file": {"file_data": url}}
    if isinstance(item, FileUrl):
        return {"type": "file", "file": {"file_data": item.url}}
    return {"type": "unread", "value": repr(item)}


def _answer(message: ModelResponse, ref: Any) -> Piece:
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for part in message.parts:
        if part.part_kind == "text":
            parts += [{"type": "text", "text": part.content}] if part.content else []
        elif part.part_kind == "tool-call":
            calls.append(call(part.tool_call_id, part.tool_name, part.args_as_json_str()))
        elif _is_thought(part):
            parts.append(_thought(part))
        else:
            parts.append({"type": part.part_kind, "value": _value(part)})
    return piece(chat_message("assistant", parts, calls, joint=None), ref)


def _is_thought(part: Any) -> bool:
    """Say whether a part is a thought of Claude's."""
    is_signed = part.part_kind == "thinking" and part.signature
    return bool(is_signed) and getattr(part, "provider_name", None) == "anthropic"


def _thought(part: Any) -> dict[str, Any]:
    if part.id == "redacted_thinking":
        return {"type": "redacted_thinking", "data": part.signature}
    return {"type": "thinking", "thinking": part.content, "signature": part.signature}


def _value(part: Any) -> str:
    content = getattr(part, "content", None)
    return content if isinstance(content, str) else repr(part)


# Writing.


def _write_messages(messages: Sequence[Any], fitted: Fitted) -> list[Any]:
    """Return the messages that are sent; an unchanged message is the same object."""
    names = {call.id: call.name for part in fitted.placed for call in part.message.tool_calls}
    return put_together(
        messages,
        fitted.placed,
        _count,
        added=lambda message: _make_message(message, names),
        changed=_change_message,
    )


def _make_message(message: Message, names: Mapping[str, str]) -> Any:
    if message.role == "assistant":
        return ModelResponse([TextPart(message.text)])
    if message.role == "tool":
        called = message.tool_call_id or ""
        part: Any = ToolReturnPart(names.get(called, "tool"), message.text, called)
    elif message.role == "system":
        part = SystemPromptPart(message.text)
    else:
        part = UserPromptPart(message.text)
    return ModelRequest([part])


def _change_message(message: Any, placed: Sequence[Placed]) -> list[Any]:
    if isinstance(message, ModelRequest):
        parts = [_changed_part(message.parts[part.ref[1]], part) for part in placed]
    else:
        parts = rewritten(
            message.parts,
            placed[0],
            is_text=lambda part: part.part_kind == "text",
            with_text=lambda part, text: replace(part, content=text),
            call_id=lambda part: part.tool_call_id if part.part_kind == "tool-call" else None,
            with_arguments=lambda part, arguments: replace(part, args=arguments),
            is_thought=_is_thought,
        )
    return [replace(message, parts=parts)]


def _changed_part(part: Any, placed: Placed) -> Any:
    if placed.is_whole:
        return part
    text = placed.text or ""
    if isinstance(part, ToolReturnPart):  # the model reads the text, errors included
        return replace(part, content=text, outcome="success")
    # A retry part would add its own words to a text that already has them.
    if placed.message.role == "tool":
        return ToolReturnPart(part.tool_name, text, part.tool_call_id)
    if hasattr(part, "model_response"):
        return UserPromptPart(text)
    return replace(part, content=_changed_content(part.content, placed))


def _changed_content(content: Any, placed: Placed) -> Any:
    """Return the content of a prompt with its new texts; pictures and files stay."""
    content_now = placed.message.content
    if isinstance(content, str) or not isinstance(content_now, tuple):
        return placed.text
    texts = iter([part.text for part in content_now if isinstance(part, Text)])
    changed: list[Any] = []
    for item in content:
        if isinstance(item, str):
            changed.append(next(texts, ""))
        elif isinstance(item, TextContent):
            changed.append(replace(item, content=next(texts, "")))
        else:
            changed.append(item)
    return changed
