"""Google's Agent Development Kit, with Muntin's plugin and with its own filter of contexts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.frameworks.stage import BUDGET, Means, Stage, lookers
from bench.runs.script import Script, Turn

APP, KEPT = "app", 4
GIVEN = {"app_name": APP, "user_id": "ada", "session_id": "1"}


def runner(script: Script, url: str, plugins: Sequence[Any], service: Any) -> Any:
    """Return the agent that a user of the kit writes, with what runs it."""
    logging.getLogger("google_adk").setLevel(logging.ERROR)
    model = import_module("google.adk.models.lite_llm").LiteLlm
    agent = import_module("google.adk.agents").LlmAgent(
        name="clerk",
        model=model("openai/gpt-5", api_base=f"{url}/v1", api_key="none"),
        instruction=lambda context: script.system,
        tools=lookers(script),
    )
    factory = import_module("google.adk.runners").Runner
    return factory(agent=agent, app_name=APP, session_service=service, plugins=list(plugins))


async def say(assistant: Any, text: str, config: Any = None) -> None:
    """Let the agent answer once."""
    types = import_module("google.genai.types")
    config = config or import_module("google.adk.agents.run_config").RunConfig(max_llm_calls=10_000)
    said = types.Content(role="user", parts=[types.Part(text=text)])
    given = {key: GIVEN[key] for key in ("user_id", "session_id")}
    async for _ in assistant.run_async(new_message=said, run_config=config, **given):
        pass


async def play(stage: Stage, url: str, turns: Sequence[Turn], plugins: Sequence[Any]) -> None:
    """Play turns in one session."""
    service = import_module("google.adk.sessions").InMemorySessionService()
    await service.create_session(**GIVEN)
    assistant = runner(stage.script, url, plugins, service)
    for turn in turns:
        try:
            await say(assistant, stage.begin(turn))
        except Exception as error:  # whatever a peer raises
            stage.failed(error)


def ours(stage: Stage, url: str) -> None:
    """Play with Muntin's plugin."""
    plugin = import_module("muntin.integrations.google_adk").MuntinPlugin(BUDGET)
    plugin.fitted = stage.timed(plugin.fitted)
    asyncio.run(play(stage, url, stage.script.turns, [plugin]))


def filtered(stage: Stage, url: str) -> None:
    """Play with the last invocations."""
    factory = import_module("google.adk.plugins.context_filter_plugin").ContextFilterPlugin
    plugin = factory(num_invocations_to_keep=KEPT)
    asyncio.run(play(stage, url, stage.script.turns, [plugin]))


def resume(script: Script, url: str, folder: Path, turns: Sequence[Turn], budget: int) -> None:
    """Play turns in a session that a file keeps, with Muntin."""
    factory = import_module("google.adk.sessions.sqlite_session_service").SqliteSessionService
    plugin = import_module("muntin.integrations.google_adk").MuntinPlugin(budget)

    async def run() -> None:
        service = factory(str(folder / "chat.db"))
        if await service.get_session(**GIVEN) is None:
            await service.create_session(**GIVEN)
        spoken = runner(script, url, [plugin], service)
        for turn in turns:
            await say(spoken, turn.text)

    asyncio.run(run())


MEANS: dict[str, Means] = {"Muntin": ours, f"ContextFilter({KEPT})": filtered}
