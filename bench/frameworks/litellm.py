"""LiteLLM in an agent loop written by hand, with Muntin's hook and with LiteLLM's own trimming."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.frameworks.stage import BUDGET, Means, Stage
from bench.runs.ours import about
from bench.runs.peers import room
from bench.runs.script import Script, Turn

Change = Callable[[dict[str, Any]], Mapping[str, Any]]


def schemas(script: Script) -> list[dict[str, Any]]:
    """Return the tools of the script as OpenAI has them."""
    given = {"step": {"type": "string"}, "arguments": {"type": "object"}}
    parameters = {"type": "object", "properties": given, "required": list(given)}
    return [
        {"type": "function",
         "function": {"name": name, "description": about(name), "parameters": parameters}}
        for name in script.names
    ]  # fmt: skip


def answer(script: Script, url: str, messages: list[Any], change: Change) -> None:
    """Ask until there is an answer; all that is said is appended."""
    results = script.results
    ask = import_module("litellm").completion
    while True:
        request = {"model": "openai/gpt-5", "messages": messages, "tools": schemas(script)}
        made = ask(**change(request), api_base=f"{url}/v1", api_key="none", num_retries=0)
        reply = made.choices[0].message
        messages.append({"role": "assistant", "content": reply.content})
        if reply.tool_calls:
            messages[-1]["tool_calls"] = [call.model_dump() for call in reply.tool_calls]
        if not reply.tool_calls:
            return
        messages += [
            {"role": "tool", "tool_call_id": call.id,
             "content": results[call.id.removeprefix("call_")]}
            for call in reply.tool_calls
        ]  # fmt: skip


def play(stage: Stage, url: str, turns: Sequence[Turn], change: Change) -> None:
    """Play turns in one list of messages."""
    messages: list[Any] = [{"role": "system", "content": stage.script.system}]
    for turn in turns:
        messages.append({"role": "user", "content": stage.begin(turn)})
        try:
            answer(stage.script, url, messages, change)
        except Exception as error:  # whatever a peer raises
            stage.failed(error)


def ours(stage: Stage, url: str) -> None:
    """Play with Muntin's hook."""
    hook = import_module("muntin.integrations.litellm").MuntinHook(BUDGET)
    play(stage, url, stage.script.turns, stage.timed(hook.fitted))


def trimmed(stage: Stage, url: str) -> None:
    """Play with `litellm.utils.trim_messages`, given the room that the tools leave."""
    trim = import_module("litellm.utils").trim_messages
    room_left = room(BUDGET, "", schemas(stage.script))

    def change(request: dict[str, Any]) -> dict[str, Any]:
        trimmed = trim(list(request["messages"]), "gpt-4o", max_tokens=room_left, trim_ratio=1.0)
        return {**request, "messages": trimmed}

    play(stage, url, stage.script.turns, stage.timed(change))


def resume(script: Script, url: str, folder: Path, turns: Sequence[Turn], budget: int) -> None:
    """Play turns of a conversation that files keep, with Muntin."""
    adapter = import_module("muntin.integrations.litellm")
    file, left = folder / "chat.json", folder / "frontier.json"
    messages = json.loads(file.read_text()) if file.exists() else [
        {"role": "system", "content": script.system}
    ]  # fmt: skip
    hook = adapter.MuntinHook(
        budget, on_fit=lambda fitted: left.write_text(json.dumps(fitted.frontier))
    )

    def change(request: dict[str, Any]) -> dict[str, Any]:
        kept = {adapter.FRONTIER: json.loads(left.read_text())} if left.exists() else {}
        fitted: dict[str, Any] = hook.fitted({**request, "metadata": kept})
        return {key: each for key, each in fitted.items() if key != "metadata"}

    for turn in turns:
        messages.append({"role": "user", "content": turn.text})
        answer(script, url, messages, change)
        file.write_text(json.dumps(messages))


MEANS: dict[str, Means] = {"Muntin": ours, "trim_messages": trimmed}
