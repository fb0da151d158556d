"""Strands Agents, with Muntin's plugin and with its own sliding windows."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.frameworks.stage import BUDGET, Means, Stage, lookers
from bench.runs.script import Script, Turn

# How many messages the framework's own window holds unless it is told another number.
KEPT = 40


def agent(script: Script, url: str, **options: Any) -> Any:
    """Return the agent that a user of the framework writes."""
    os.environ.setdefault("OTEL_SDK_DISABLED", "true")
    logging.getLogger("strands").setLevel(logging.ERROR)
    strands = import_module("strands")
    model = import_module("strands.models.openai").OpenAIModel(
        client_args={"api_key": "none", "base_url": f"{url}/v1"},
        model_id="gpt-5",
        context_window_limit=BUDGET,
    )
    tools = [strands.tool(looker) for looker in lookers(script)]
    return strands.Agent(
        model=model, system_prompt=script.system, tools=tools, callback_handler=None, **options
    )


def play(stage: Stage, url: str, options: Mapping[str, Any]) -> None:
    """Play all turns with one agent."""
    assistant = agent(stage.script, url, **options)
    for turn in stage.script.turns:
        try:
            assistant(stage.begin(turn))
        except Exception as error:  # whatever a peer raises
            stage.failed(error)


def ours(stage: Stage, url: str) -> None:
    """Play with Muntin's plugin."""
    plugin = import_module("muntin.integrations.strands").MuntinPlugin(BUDGET)
    plugin.fitted = stage.timed(plugin.fitted)
    play(stage, url, {"plugins": [plugin], "context_manager": False})


def sliding(**options: Any) -> Means:
    """Play with the framework's window of messages."""

    def run(stage: Stage, url: str) -> None:
        factory = import_module("strands.agent").SlidingWindowConversationManager
        play(stage, url, {"conversation_manager": factory(window_size=KEPT, **options)})

    return run


def resume(script: Script, url: str, folder: Path, turns: Sequence[Turn], budget: int) -> None:
    """Play turns in a session that files keep, with Muntin."""
    factory = import_module("strands.session").FileSessionManager
    plugin = import_module("muntin.integrations.strands").MuntinPlugin(budget)
    session = factory(session_id="ada", storage_dir=str(folder))
    spoken = agent(script, url, plugins=[plugin], context_manager=False, session_manager=session)
    for turn in turns:
        spoken(turn.text)


MEANS: dict[str, Means] = {
    "Muntin": ours,
    f"SlidingWindow({KEPT})": sliding(),
    "SlidingWindow, proactive": sliding(
        per_turn=True, proactive_compression={"compression_threshold": 1.0}
    ),
}
