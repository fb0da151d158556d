"""Pydantic AI, with Muntin's capability and with what Pydantic AI brings itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.frameworks.stage import BUDGET, Means, Stage, lookers
from bench.runs.script import Script, Turn

LAST = 20


def agent(script: Script, url: str, capabilities: Sequence[Any]) -> Any:
    """Return the agent that a user of Pydantic AI writes."""
    model = import_module("pydantic_ai.models.openai").OpenAIChatModel
    provider = import_module("pydantic_ai.providers.openai").OpenAIProvider
    return import_module("pydantic_ai").Agent(
        model("gpt-5", provider=provider(base_url=f"{url}/v1", api_key="none")),
        instructions=script.system,
        tools=lookers(script),
        capabilities=list(capabilities),
    )


def play(stage: Stage, url: str, turns: Sequence[Turn], capabilities: Sequence[Any]) -> None:
    """Play turns in one conversation."""
    limits = import_module("pydantic_ai.usage").UsageLimits(request_limit=None)
    assistant = agent(stage.script, url, capabilities)
    history: list[Any] = []
    for turn in turns:
        try:
            said = stage.begin(turn)
            done = assistant.run_sync(said, message_history=history, usage_limits=limits)
            history = done.all_messages()
        except Exception as error:  # whatever a peer raises
            stage.failed(error)


def ours(stage: Stage, url: str) -> None:
    """Play with Muntin's capability."""
    hook = import_module("muntin.integrations.pydantic_ai").MuntinContext(BUDGET)
    hook.fitted = stage.timed(hook.fitted)
    play(stage, url, stage.script.turns, [hook])


def own(make: Callable[[], Any]) -> Means:
    """Play with a capability of Pydantic AI's."""

    def run(stage: Stage, url: str) -> None:
        play(stage, url, stage.script.turns, [make()])

    return run


def last_messages() -> Any:
    """Return the history processor of the documentation: the last so many messages."""
    factory = import_module("pydantic_ai.capabilities").ProcessHistory

    def keep(messages: list[Any]) -> list[Any]:
        return messages[-LAST:]

    return factory(keep)


def resume(script: Script, url: str, folder: Path, turns: Sequence[Turn], budget: int) -> None:
    """Play turns in a conversation that a file keeps, with Muntin."""
    form = import_module("pydantic_ai.messages").ModelMessagesTypeAdapter
    factory = import_module("muntin.integrations.pydantic_ai").MuntinContext
    file = folder / "chat.json"
    history = form.validate_json(file.read_bytes()) if file.exists() else []
    spoken = agent(script, url, [factory(budget)])
    limits = import_module("pydantic_ai.usage").UsageLimits(request_limit=None)
    for turn in turns:
        done = spoken.run_sync(turn.text, message_history=history, usage_limits=limits)
        history = done.all_messages()
        file.write_bytes(done.all_messages_json())


MEANS: dict[str, Means] = {"Muntin": ours, f"the last {LAST} messages": own(last_messages)}
