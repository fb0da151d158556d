"""Haystack's agent, with Muntin's hooks and with its own compaction."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.frameworks.stage import BUDGET, Means, Stage, lookers
from bench.runs.script import Script, Turn

MODEL = "openai/gpt-5"


def agent(script: Script, url: str, hooks: Mapping[str, Any]) -> Any:
    """Return the agent that a user of Haystack writes."""
    os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "False")
    generator = import_module("haystack.components.generators.chat").OpenAIChatGenerator(
        model="gpt-5",
        api_key=import_module("haystack.utils").Secret.from_token("none"),
        api_base_url=f"{url}/v1",
    )
    tool = import_module("haystack.tools").create_tool_from_function
    return import_module("haystack.components.agents").Agent(
        chat_generator=generator,
        system_prompt=script.system,
        tools=[tool(looker) for looker in lookers(script)],
        hooks=dict(hooks),
        max_agent_steps=10_000,
    )


def say(assistant: Any, past: Sequence[Any], text: str) -> list[Any]:
    """Let the agent answer once, and return all messages but its system prompt."""
    message = import_module("haystack.dataclasses").ChatMessage
    done = assistant.run(messages=[*past, message.from_user(text)])
    return [message for message in done["messages"] if not message.is_from("system")]


def play(stage: Stage, url: str, hooks: Mapping[str, Any]) -> None:
    """Play all turns in one conversation."""
    assistant = agent(stage.script, url, hooks)
    past: list[Any] = []
    for turn in stage.script.turns:
        try:
            past = say(assistant, past, stage.begin(turn))
        except Exception as error:  # whatever a peer raises
            stage.failed(error)


def ours(stage: Stage, url: str) -> None:
    """Play with Muntin's hooks."""
    hook = import_module("muntin.integrations.haystack").MuntinHook(BUDGET, model=MODEL)
    hook.fitted = stage.timed(hook.fitted)
    play(stage, url, hook.hooks)


def compacting(at: float, to: float) -> Means:
    """Play with Haystack's compaction, by its sliding window."""

    def run(stage: Stage, url: str) -> None:
        warnings.filterwarnings("ignore", message=".*experimental.*")
        found = import_module("haystack.hooks.compaction")
        hook = found.CompactionHook(
            compactor=found.SlidingWindowCompactor(),
            context_window=BUDGET,
            compact_at=at,
            compact_to=to,
        )
        play(stage, url, {"before_llm": [hook]})

    return run


def resume(script: Script, url: str, folder: Path, turns: Sequence[Turn], budget: int) -> None:
    """Play turns of a conversation that a file keeps, with Muntin."""
    message = import_module("haystack.dataclasses").ChatMessage
    hook = import_module("muntin.integrations.haystack").MuntinHook(budget, model=MODEL)
    assistant = agent(script, url, hook.hooks)
    file = folder / "chat.json"
    past = (
        [message.from_dict(data) for data in json.loads(file.read_text())] if file.exists() else []
    )
    for turn in turns:
        past = say(assistant, past, turn.text)
        file.write_text(json.dumps([each.to_dict() for each in past]))


MEANS: dict[str, Means] = {
    "Muntin": ours,
    "Compaction": compacting(0.7, 0.4),
    "Compaction, late": compacting(0.95, 0.6),
}
