"""Microsoft Agent Framework: a chat middleware that makes every request fit.

    Agent(client=client, instructions="…", middleware=[MuntinMiddleware(8_000)])

Hook (agent-framework 1.23): `ChatMiddleware.process(context: ChatContext, call_next)`, which sees
every call of the model with its messages, options and session. The frontier is in the state of the
session, which `AgentSession.to_dict()` keeps. The framework names answers after a run. They are
sent without this name; otherwise the beginning of the next request would change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from typing import Any

from muntin.core.message import Message as Counted
from muntin.errors import needing
from muntin.fitting import Fitted, Piece, Pieces, Placed
from muntin.integrations.shared import Hook, call, model_name, parted, rejoined
from muntin.wire.lists import piece

with needing("muntin.integrations.agent_framework needs: pip install 'muntin[agent-framework]'"):
    from agent_framework import ChatContext, ChatMiddleware, Content, Message

__all__ = ["MuntinMiddleware"]

FRONTIER = "muntin_frontier"


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
        context.messages = written(context.messages, fitted)
        await call_next()

    def fitted(self, context: ChatContext) -> Fitted:
        """Return the messages of a request that are sent."""
        options = context.options or {}
        instructions = options.get("instructions")
        session = context.session
        return self.fit(
            pieces_of(context.messages),
            options.get("tools") or (),
            context,
            system=[Counted("system", instructions)] if instructions else (),
            previous=None if session is None else session.state.get(FRONTIER),
        )


# Reading.


def pieces_of(messages: Sequence[Any]) -> Pieces:
    """Return the pieces: each result of a message is one, any other message is one.

    The reference is the message's number and its content's, None for a whole message.
    """
    return parted(messages, _count, _read)


def _count(message: Any) -> int:
    return len(_results(message)) or 1


def _results(message: Any) -> list[int]:
    """Return which contents of a message are results; either all are, or none is."""
    kinds = [content.type == "function_result" for content in message.contents]
    return list(range(len(kinds))) if kinds and all(kinds) else []


def _read(message: Any, number: int) -> Sequence[Piece]:
    results = _results(message)
    if not results:
        return [piece(_as_dict(message), (number, None))]
    pieces = []
    for at in results:
        result = message.contents[at]
        # The text that the clients send.
        text = result.result if isinstance(result.result, str) else str(result.result or "")
        data = {"role": "tool", "tool_call_id": result.call_id, "content": text}
        pieces.append(piece(data, (number, at)))
    return pieces


def _as_dict(message: Any) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for content in message.contents:
        if content.type == "function_call":
            arguments = "{}" if content.arguments is None else content.arguments
            calls.append(call(content.call_id, content.name, arguments))
        elif content.type == "text":
            parts += [{"type": "text", "text": content.text}] if content.text else []
        elif content.type in ("uri", "data") and str(content.media_type).startswith("image/"):
            parts.append({"type": "image_url", "image_url": {"url": content.uri}})
        elif content.type != "usage":
            parts.append({"type": content.type, "value": content.to_json()})
    data: dict[str, Any] = {"role": str(message.role), "content": parts or None}
    if len(parts) == 1 and parts[0]["type"] == "text":
        data["content"] = parts[0]["text"]
    return {**data, "tool_calls": calls} if calls else data


# Writing.


def written(messages: Sequence[Any], fitted: Fitted) -> list[Any]:
    """Return the messages that are sent; an unchanged message is the same object."""
    sent = rejoined(messages, fitted.placed, _count, added=_added, changed=_changed)
    for place, message in enumerate(sent):
        if message.author_name is not None and message.role == "assistant":
            sent[place] = copy(message)
            sent[place].author_name = None
    return sent


def _added(message: Counted) -> Any:
    if message.role == "tool":
        result = Content.from_function_result(message.tool_call_id, result=message.text)
        return Message("tool", [result])
    return Message(message.role, [message.text])


def _changed(message: Any, placed: Sequence[Placed]) -> list[Any]:
    """Return a message with its new texts and arguments, and only the results that are placed."""
    changed = copy(message)
    if placed[0].ref[1] is None:
        changed.contents = _contents(message, placed[0])
    else:
        changed.contents = [
            message.contents[result.ref[1]]
            if result.is_whole
            else Content.from_function_result(result.message.tool_call_id, result=result.text)
            for result in placed
        ]
    return [changed]


def _contents(message: Any, placed: Placed) -> list[Any]:
    contents: list[Any] = []
    text = placed.text
    for content in message.contents:
        if content.type == "function_call" and content.call_id in placed.arguments:
            content = copy(content)
            content.arguments = placed.arguments[content.call_id]
        elif content.type == "text" and placed.text is not None:
            content, text = Content.from_text(text or ""), None  # one text replaces all texts
        contents.append(content)
    return [content for content in contents if content.type != "text" or content.text]
