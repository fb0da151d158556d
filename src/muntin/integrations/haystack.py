"""Haystack: a hook that makes every request of an agent fit.

    Agent(chat_generator=…, hooks=MuntinHook(8_000, model="openai/gpt-5").hooks)

Hooks (haystack-ai 3.4): `before_llm` and `after_run`, each an object with `run(state: State)` that
changes the state. The model is sent `state.data["messages"]`, so the first hook puts the messages
that fit there and keeps all messages in the `hook_context` of the run; the second puts them back.
The frontier is in the `meta` of the last message, which Haystack keeps with it and does not send.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from muntin.core.message import Message
from muntin.errors import InvalidInput, needing
from muntin.fitting import Fitted, Piece, Placed
from muntin.integrations.shared import (
    FRONTIER,
    Fits,
    Hook,
    Watcher,
    call,
    chat_message,
    content_of,
    conversation_in,
    put_together,
    split,
)
from muntin.wire.lenient import made_id
from muntin.wire.lists import piece

with needing("muntin.integrations.haystack needs: pip install 'muntin[haystack]'"):
    from haystack.components.agents.state.state_utils import replace_values
    from haystack.core.serialization import default_from_dict, default_to_dict
    from haystack.dataclasses import ChatMessage, FileContent, ImageContent, TextContent, ToolCall

__all__ = ["MuntinHook", "MuntinRestore"]

_RUN = "muntin_run"


@dataclass(slots=True)
class _Run:
    """All messages of a run, how many the state had at the last request, the frontier, and the
    caller's name of the conversation."""

    messages: list[Any]
    sent: int
    frontier: Mapping[str, Any] | None
    conversation: str | None

    def take(self, state: Any) -> None:
        """Take the messages that the run added to the state."""
        self.messages += state.data["messages"][self.sent :]
        self.sent = len(state.data["messages"])


class MuntinHook(Hook):
    """Fits every request of an agent; the run returns all messages. Give its `hooks` to the agent.

    `budget` is the tokens of a request, system prompt and tools included, or a `Fitter` with more
    settings. `model` names the model for counting, as in `openai/gpt-5`: the hook does not see it.
    `on_fit` is called with every fitted request. A `Fitter` with a store records a conversation
    under the `session_id` in the `hook_context` of the run.
    """

    allowed_hook_points = ("before_llm",)

    def __init__(
        self, budget: Fits = None, *, model: str | None = None, on_fit: Watcher | None = None
    ) -> None:
        super().__init__(budget, model=model, on_fit=on_fit)
        self._settings = {"budget": budget, "model": model}

    @staticmethod
    def schema(tool: Any) -> Mapping[str, Any]:
        """Describe a tool as OpenAI does."""
        return {"type": "function", "function": tool.tool_spec}

    @property
    def hooks(self) -> dict[str, list[Any]]:
        """This hook, and the hook that puts all messages back after the run."""
        return {"before_llm": [self], "after_run": [MuntinRestore()]}

    def run(self, state: Any) -> None:
        """Put the messages that fit into the state."""
        run = _run_of(state)
        self._put(state, run, self.fitted(run, state.data.get("tools") or ()))

    async def run_async(self, state: Any) -> None:
        """Put the messages that fit into the state."""
        run = _run_of(state)
        tools = state.data.get("tools") or ()
        fitted = await self.recorded(lambda: self.fitted(run, tools))
        self._put(state, run, fitted)

    def fitted(self, run: _Run, tools: Sequence[Any]) -> Fitted:
        """Return the messages of a run that are sent."""
        return self.fit(
            split(run.messages, _count, _read),
            tools,
            previous=run.frontier,
            conversation=run.conversation,
        )

    def _put(self, state: Any, run: _Run, fitted: Fitted) -> None:
        sent = put_together(
            run.messages, fitted.placed, _count, added=_make_message, changed=_change_message
        )
        state.set("messages", sent, handler_override=replace_values)
        run.sent, run.frontier = len(sent), fitted.frontier

    def to_dict(self) -> dict[str, Any]:
        """Return the hook as a dict, as Haystack writes pipelines."""
        budget = self._settings["budget"]
        if (budget is not None and not isinstance(budget, int)) or self._on_fit is not None:
            raise InvalidInput(
                "a MuntinHook with a Fitter, a Budget or on_fit cannot be written into a pipeline; "
                "give it its budget as a number"
            )
        data: dict[str, Any] = default_to_dict(self, **self._settings)
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> MuntinHook:
        """Return the hook that a dict describes."""
        hook: MuntinHook = default_from_dict(cls, data)
        return hook


class MuntinRestore:
    """Puts all messages of a run back into its state, and the frontier into the last of them."""

    allowed_hook_points = ("after_run",)

    def run(self, state: Any) -> None:
        """Put the messages and the frontier back."""
        run = (state.data.get("hook_context") or {}).get(_RUN)
        if run is None:
            return
        run.take(state)
        if run.messages:
            run.messages[-1].meta[FRONTIER] = run.frontier
        state.set("messages", run.messages, handler_override=replace_values)

    def to_dict(self) -> dict[str, Any]:
        """Return the hook as a dict, as Haystack writes pipelines."""
        data: dict[str, Any] = default_to_dict(self)
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> MuntinRestore:
        """Return the hook that a dict describes."""
        hook: MuntinRestore = default_from_dict(cls, data)
        return hook


def _run_of(state: Any) -> _Run:
    """Return the run of a state, with all its messages; a new run when it begins."""
    context = state.data.get("hook_context") or {}
    run: _Run | None = context.get(_RUN)
    if run is None:
        metas = (message.meta for message in reversed(state.data["messages"]))
        frontier = next((meta[FRONTIER] for meta in metas if meta and FRONTIER in meta), None)
        run = _Run([], 0, frontier, conversation_in(context))
        # A new dict: the caller's dict may belong to other runs too.
        state.set("hook_context", {**context, _RUN: run}, handler_override=replace_values)
    run.take(state)
    return run


# Reading: each result of a message is a piece, any other message is one piece.


def _count(message: Any) -> int:
    return len(message.tool_call_results) or 1


def _read(message: Any, number: int) -> Sequence[Piece]:
    results = message.tool_call_results
    if not results:
        return [piece(_as_dict(message), (number, None))]
    return [
        piece(
            {
                "role": "tool",
                "tool_call_id": _id(result.origin),
                "content": _content(result.result),
            },
            (number, place),
        )
        for place, result in enumerate(results)
    ]


def _as_dict(message: Any) -> dict[str, Any]:
    parts = [*message.texts, *message.images, *message.files, *message.reasonings]
    calls = [call(_id(called), called.tool_name, called.arguments) for called in message.tool_calls]
    data = chat_message(str(message.role.value), [_part(part) for part in parts], calls)
    return data if message.name is None else {**data, "name": message.name}


def _id(called: Any) -> str:
    """Return the id of a call; if it has none, a name that the call and its result share."""
    return called.id or made_id(called.tool_name, json.dumps(called.arguments), 0)


def _content(parts: Any) -> Any:
    return parts if isinstance(parts, str) else content_of([_part(part) for part in parts])


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, str | TextContent):
        return {"type": "text", "text": part if isinstance(part, str) else part.text}
    if isinstance(part, ImageContent):
        url = f"data:{part.mime_type or 'image/jpeg'};base64,{part.base64_image}"
        return {"type": "image_url", "image_url": {"url": url}}
    if isinstance(part, FileContent):
        return {"type": "file", "file": {"file_data": part.base64_data}}
    return {"type": "part", "value": json.dumps(part.to_dict(), default=str)}


# Writing.


def _make_message(message: Message) -> Any:
    if message.role == "tool":
        origin = ToolCall(message.name or "tool", {}, id=message.tool_call_id)
        return ChatMessage.from_tool(message.text, origin=origin)
    if message.role == "assistant":
        return ChatMessage.from_assistant(message.text)
    if message.role == "system":
        return ChatMessage.from_system(message.text)
    return ChatMessage.from_user(message.text)


def _change_message(message: Any, placed: Sequence[Placed]) -> list[Any]:
    """Return a message with its new texts and arguments; each kept result is a message."""
    if placed[0].ref[1] is not None:
        results = [(message.tool_call_results[part.ref[1]], part.text) for part in placed]
        return [
            ChatMessage.from_tool(
                result.result if text is None else text,
                origin=result.origin,
                error=result.error,
                meta=message.meta,
            )
            for result, text in results
        ]
    (sent,) = placed
    text = message.text if sent.text is None else sent.text
    if message.role.value == "assistant":
        calls = [_with_arguments(called, sent.arguments) for called in message.tool_calls]
        return [
            ChatMessage.from_assistant(
                text or None,
                meta=message.meta,
                name=message.name,
                tool_calls=calls or None,
                reasoning=message.reasoning,
            )
        ]
    if message.role.value == "system":
        return [ChatMessage.from_system(text, meta=message.meta, name=message.name)]
    beside = [*message.images, *message.files] if isinstance(sent.message.content, tuple) else []
    parts = [TextContent(text), *beside]
    return [ChatMessage.from_user(content_parts=parts, meta=message.meta, name=message.name)]


def _with_arguments(called: Any, arguments: Mapping[str, str]) -> Any:
    text = arguments.get(_id(called))
    return called if text is None else replace(called, arguments=json.loads(text))
