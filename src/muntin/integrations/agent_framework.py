"""Microsoft Agent Framework: a chat middleware that makes every request fit.

    Agent(client=client, instructions="…", middleware=[MuntinMiddleware(8_000)])

Hook (agent-framework 1.23): `ChatMiddleware.process(context: ChatContext, call_next)`, which sees
every call of the model with its messages, options and session. The frontier is in the state of the
session, which `AgentSession.to_dict()` keeps. The framework names answers after a run. They are
sent without this name; otherwise the beginning of the next request would change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from muntin.core.message import Message as Counted
from muntin.errors import needing
from muntin.fitting import Fitted, Placed
from muntin.integrations.shared import (
    FRONTIER,
    BlockForm,
    Hook,
    call,
    chat_message,
    model_name,
    rewritten,
)
from muntin.wire.common import with_fields

with needing("muntin.integrations.agent_framework needs: pip install 'muntin[agent-framework]'"):
    from agent_framework import ChatContext, ChatMiddleware, Content, Message

__all__ = ["MuntinMiddleware"]


class MuntinMiddleware(Hook, ChatMiddleware):
    """Fits every request of an agent; the session keeps all messages.

    `budget` is the tokens of a request, instructions and tools included, or a `Fitter` with more
    settings. `model` names the model for counting; without it the client's model is used, if its
    maker is known. `on_fit` is called with every fitted request.
    """

    @staticmethod
    def schema(tool: Any) -> Mapping[str, Any]:
        """Describe a tool as OpenAI does."""
        if isinstance(tool, Mapping):
            return tool
        schema: Mapping[str, Any] = tool.to_json_schema_spec()
        return schema

    @staticmethod
    def name_of(model: Any) -> str | None:
        """Return the name of the model that a context is for."""
        client, options = model.client, model.options or {}
        name = options.get("model") or getattr(client, "model", None)
        return model_name(type(client).__module__.partition(".")[0], name)

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """Send the messages that fit."""
        fitted = await self.recorded(lambda: self.fitted(context))
        if context.session is not None:
            context.session.state[FRONTIER] = fitted.frontier
        context.messages = _write_messages(context.messages, fitted)
        await call_next()

    def fitted(self, context: ChatContext) -> Fitted:
        """Return the messages of a request that are sent."""
        options = context.options or {}
        instructions = options.get("instructions")
        session = context.session
        return self.fit(
            _FORM.pieces(context.messages),
            options.get("tools") or (),
            context,
            settings=options,
            system=[Counted("system", instructions)] if instructions else (),
            previous=None if session is None else session.state.get(FRONTIER),
            conversation=None if session is None else session.session_id,
        )


def _read_result(content: Any, _number: int, _place: int) -> dict[str, Any]:
    # The text that the clients send.
    text = content.result if isinstance(content.result, str) else str(content.result or "")
    return {"role": "tool", "tool_call_id": content.call_id, "content": text}


def _read_rest(message: Any, contents: Sequence[Any], _number: int) -> dict[str, Any]:
    calls = [
        call(content.call_id, content.name, content.arguments or "{}")
        for content in contents
        if content.type == "function_call"
    ]
    parts = [part for content in contents for part in _parts(content)]
    return chat_message(str(message.role), parts, calls, joint=None)


def _parts(content: Any) -> Sequence[dict[str, Any]]:
    """Return what a content is in the form of Chat Completions; calls stand beside it."""
    if content.type == "text":
        return [{"type": "text", "text": content.text}] if content.text else []
    if content.type in ("uri", "data") and str(content.media_type).startswith("image/"):
        return [{"type": "image_url", "image_url": {"url": content.uri}}]
    if content.type in ("function_call", "usage"):
        return []
    return [{"type": content.type, "value": content.to_json()}]


def _rewrite(contents: Sequence[Any], placed: Placed) -> list[Any]:
    return rewritten(
        contents,
        placed,
        is_text=lambda content: content.type == "text",
        with_text=lambda _, text: Content.from_text(text),
        call_id=lambda content: content.call_id if content.type == "function_call" else None,
        with_arguments=lambda content, text: with_fields(content, arguments=text),
    )


def _make_message(message: Counted) -> Any:
    if message.role == "tool":
        result = Content.from_function_result(message.tool_call_id, result=message.text)
        return Message("tool", [result])
    return Message(message.role, [message.text])


_FORM = BlockForm(
    blocks=lambda message: message.contents,
    is_result=lambda content: content.type == "function_result",
    read_result=_read_result,
    read_rest=_read_rest,
    with_blocks=lambda message, contents: with_fields(message, contents=contents),
    with_result=lambda content, text: Content.from_function_result(content.call_id, result=text),
    rewrite=_rewrite,
    added=_make_message,
)


def _write_messages(messages: Sequence[Any], fitted: Fitted) -> list[Any]:
    """Return the messages that are sent; an unchanged message is the same object."""
    return [
        with_fields(message, author_name=None)
        if message.author_name is not None and message.role == "assistant"
        else message
        for message in _FORM.written(messages, fitted.placed)
    ]
