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
from muntin.fitting import Fitted, Piece, Placed
from muntin.integrations.shared import Hook, call, model_name, parted, rejoined
from muntin.wire.lists import answered_together, piece

with needing("muntin.integrations.strands needs: pip install 'muntin[strands]'"):
    from strands.middleware import InvokeModelStage
    from strands.plugins import Plugin

__all__ = ["MuntinPlugin"]

FRONTIER = "muntin_frontier"


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
        messages = context.messages
        return context.replace(messages=written(messages, fitted))

    def fitted(self, context: Any, previous: Mapping[str, Any] | None) -> Fitted:
        """Return the messages of a request that are sent."""
        return self.fit(
            parted(context.messages, _count, _read),
            context.tool_specs,
            context.model,
            system=_system(context.system_prompt),
            previous=previous,
        )


def _system(prompt: Any) -> list[Message]:
    blocks = [{"text": prompt}] if isinstance(prompt, str) else prompt or ()
    return [Message("system", block["text"]) for block in blocks if block.get("text")]


# Reading: each result of a message is a piece, and the blocks beside the results are one piece.


def _results(message: Any) -> list[int]:
    return [at for at, block in enumerate(message["content"]) if "toolResult" in block]


def _rest(message: Any) -> list[Any]:
    return [block for block in message["content"] if "toolResult" not in block]


def _count(message: Any) -> int:
    results = len(_results(message))
    return results + bool(results and _rest(message)) or 1


def _read(message: Any, number: int) -> Sequence[Piece]:
    found = []
    for at in _results(message):
        result = message["content"][at]["toolResult"]
        data = {"role": "tool", "tool_call_id": result["toolUseId"]}
        found.append(piece({**data, "content": _content(result["content"])}, (number, at)))
    if not found or _rest(message):
        rest = _rest(message)
        uses = [block["toolUse"] for block in rest if "toolUse" in block]
        content = _content([block for block in rest if "toolUse" not in block])
        said: dict[str, Any] = {"role": message["role"], "content": content}
        if uses:
            calls = [call(each["toolUseId"], each["name"], each["input"]) for each in uses]
            said = {**said, "content": content or None, "tool_calls": calls}
        found.append(piece(said, (number, None)))
    return found


def _content(blocks: Sequence[Any]) -> Any:
    """Return blocks in the form of Chat Completions: one text, or parts."""
    parts = [_part(block) for block in blocks if "cachePoint" not in block]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _part(block: Any) -> dict[str, Any]:
    ((kind, value), *_) = block.items()
    if kind == "text":
        return {"type": "text", "text": value}
    if kind == "json":
        return {"type": "text", "text": json.dumps(value, ensure_ascii=False)}
    data = value.get("source", {}).get("bytes") if isinstance(value, Mapping) else None
    if isinstance(data, bytes):
        encoded = b64encode(data).decode()
        if kind == "image":
            url = f"data:image/{value.get('format')};base64,{encoded}"
            return {"type": "image_url", "image_url": {"url": url}}
        return {"type": "file", "file": {"file_data": encoded}}
    return {"type": kind, "value": repr(value)}


# Writing.


def written(messages: Sequence[Any], fitted: Fitted) -> list[Any]:
    """Return the messages that are sent."""
    sent = rejoined(messages, fitted.placed, _count, added=_added, changed=_changed)
    return answered_together(sent, messages, lambda each: bool(_results(each)), _joined)


def _joined(one: Any, other: Any) -> Any:
    return {**one, "content": [*one["content"], *other["content"]]}


def _added(message: Message) -> Any:
    if message.role == "tool":
        content = [{"text": message.text}]
        result = {"toolUseId": message.tool_call_id, "status": "success", "content": content}
        return {"role": "user", "content": [{"toolResult": result}]}
    role = "assistant" if message.role == "assistant" else "user"
    return {"role": role, "content": [{"text": message.text}]}


def _changed(message: Any, placed: Sequence[Placed]) -> list[Any]:
    """Return a message with its new texts and arguments, and only its placed parts."""
    blocks: list[Any] = []
    for each in placed:
        at = each.ref[1]
        if at is None:
            blocks += _changed_rest(message, each)
        elif each.text is None:
            blocks.append(message["content"][at])
        else:
            result = {**message["content"][at]["toolResult"], "content": [{"text": each.text}]}
            blocks.append({"toolResult": result})
    return [{**message, "content": blocks}]


def _changed_rest(message: Any, placed: Placed) -> list[Any]:
    blocks: list[Any] = []
    text = placed.text
    for block in _rest(message):
        use = block.get("toolUse")
        if use is not None and use["toolUseId"] in placed.arguments:
            told = json.loads(placed.arguments[use["toolUseId"]])
            block = {"toolUse": {**use, "input": told}}
        elif "text" in block and placed.text is not None:
            if not text:
                continue
            block, text = {"text": text}, None  # one text replaces all texts
        blocks.append(block)
    return blocks
