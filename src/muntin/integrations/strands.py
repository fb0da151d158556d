"""Strands Agents: a plugin that makes every request of an agent fit.

    Agent(model=model, context_manager=False, plugins=[MuntinPlugin(8_000)])

Hook (strands-agents 1.62): `agent.add_middleware(InvokeModelStage.Input, handler)`, where `handler`
takes an `InvokeModelContext` with copies of messages, system prompt and tools, and returns the
context that is sent. The frontier is in the state of the agent, which session managers keep.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from muntin.core.message import Message
from muntin.errors import needing
from muntin.fitting import Fitted, Placed
from muntin.integrations.shared import (
    FRONTIER,
    BlockForm,
    Hook,
    call,
    chat_message,
    content_of,
    model_name,
    rewritten,
)

with needing("muntin.integrations.strands needs: pip install 'muntin[strands]'"):
    from strands.middleware import InvokeModelStage
    from strands.plugins import Plugin

__all__ = ["MuntinPlugin"]

# The id of an agent that was given none.
_DEFAULT_AGENT = "default"


class MuntinPlugin(Hook, Plugin):
    """Fits every request of an agent; its messages stay whole.

    Give the agent `context_manager=False`, so that nothing else removes messages. `budget` is the
    tokens of a request, system prompt and tools included, or a `Fitter` with more settings. `model`
    names the model for counting; without it the request's model is used, if its maker is known.
    `on_fit` is called with every fitted request.
    """

    name = "muntin"

    @staticmethod
    def schema(tool: Any) -> Mapping[str, Any]:
        """Describe a tool as OpenAI does."""
        function = {
            "name": tool["name"],
            "description": tool["description"],
            "parameters": tool["inputSchema"]["json"],
        }
        return {"type": "function", "function": function}

    @staticmethod
    def name_of(model: Any) -> str | None:
        """Return a model's name: Bedrock's and LiteLLM's names begin with the maker."""
        name = model.get_config().get("model_id")
        if not isinstance(name, str):
            return None
        maker = f"{type(model).__module__} {name}".replace("gemini", "google")
        return model_name(maker, name.rpartition("/")[2].rpartition("anthropic.")[2])

    def init_agent(self, agent: Any) -> None:
        """Add the middleware to an agent."""
        agent.add_middleware(InvokeModelStage.Input, self.process)

    async def process(self, context: Any) -> Any:
        """Send the messages that fit."""
        state = context.agent.state
        previous = state.get(FRONTIER)
        fitted = await self.recorded(lambda: self.fitted(context, previous))
        state.set(FRONTIER, fitted.frontier)
        sent = _FORM.written(context.messages, fitted.placed)
        return context.replace(messages=sent)

    def fitted(self, context: Any, previous: Mapping[str, Any] | None) -> Fitted:
        """Return the messages of a request that are sent."""
        return self.fit(
            _FORM.pieces(context.messages),
            context.tool_specs,
            context.model,
            system=_system(context.system_prompt),
            previous=previous,
            conversation=_session_of(context.agent),
        )


def _session_of(agent: Any) -> str | None:
    """Return the session that a session manager keeps an agent in; several agents may share it."""
    session = getattr(getattr(agent, "_session_manager", None), "session_id", None)
    if session is None or agent.agent_id == _DEFAULT_AGENT:
        return session
    return f"{session}/{agent.agent_id}"


def _system(prompt: Any) -> list[Message]:
    blocks = [{"text": prompt}] if isinstance(prompt, str) else prompt or ()
    return [Message("system", block["text"]) for block in blocks if block.get("text")]


def _read_result(block: Any, _number: int, _place: int) -> dict[str, Any]:
    result = block["toolResult"]
    content = content_of(_parts(result["content"]))
    return {"role": "tool", "tool_call_id": result["toolUseId"], "content": content}


def _read_rest(message: Any, blocks: Sequence[Any], _number: int) -> dict[str, Any]:
    uses = [block["toolUse"] for block in blocks if "toolUse" in block]
    parts = _parts([block for block in blocks if "toolUse" not in block])
    calls = [call(use["toolUseId"], use["name"], use["input"]) for use in uses]
    return chat_message(message["role"], parts, calls)


def _parts(blocks: Sequence[Any]) -> list[dict[str, Any]]:
    return [_part(block) for block in blocks if "cachePoint" not in block]


def _part(block: Any) -> dict[str, Any]:
    ((kind, value), *_) = block.items()
    if kind == "text":
        return {"type": "text", "text": value}
    if kind == "json":
        return {"type": "text", "text": json.dumps(value, ensure_ascii=False)}
    data = value.get("source", {}).get("bytes") if isinstance(value, Mapping) else None
    if not isinstance(data, bytes):
        return {"type": kind, "value": repr(value)}
    encoded = b64encode(data).decode()
    if kind == "image":
        url = f"data:image/{value.get('format')};base64,{encoded}"
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"file_data": encoded}}


def _rewrite(blocks: Sequence[Any], placed: Placed) -> list[Any]:
    return rewritten(
        blocks,
        placed,
        is_text=lambda block: "text" in block,
        with_text=lambda _, text: {"text": text},
        call_id=lambda block: block.get("toolUse", {}).get("toolUseId"),
        with_arguments=lambda block, arguments: {
            "toolUse": {**block["toolUse"], "input": json.loads(arguments)}
        },
    )


def _make_message(message: Message) -> Any:
    content = [{"text": message.text}]
    if message.role == "tool":
        result = {"toolUseId": message.tool_call_id, "status": "success", "content": content}
        return {"role": "user", "content": [{"toolResult": result}]}
    return {"role": "assistant" if message.role == "assistant" else "user", "content": content}


_FORM = BlockForm(
    blocks=lambda message: message["content"],
    is_result=lambda block: "toolResult" in block,
    read_result=_read_result,
    read_rest=_read_rest,
    with_blocks=lambda message, blocks: {**message, "content": blocks},
    with_result=lambda block, text: {
        "toolResult": {**block["toolResult"], "content": [{"text": text}]}
    },
    rewrite=_rewrite,
    added=_make_message,
)
