"""The OpenAI Agents SDK, with Muntin's session and filter and with what the SDK brings itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.frameworks.stage import BUDGET, Means, Stage, lookers
from bench.runs.script import Script, Turn

STEPS, LIMIT = 10_000, 40


def agent(script: Script, url: str, *, api: str = "chat") -> Any:
    """Return the agent that a user of the SDK writes."""
    agents = import_module("agents")
    agents.set_tracing_disabled(True)
    client = import_module("openai").AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
    made = agents.OpenAIChatCompletionsModel if api == "chat" else agents.OpenAIResponsesModel
    tools = [agents.function_tool(looker, strict_mode=False) for looker in lookers(script)]
    model = made("gpt-5", openai_client=client)
    return agents.Agent("clerk", instructions=script.system, tools=tools, model=model)


async def say(assistant: Any, text: str, session: Any, config: Any) -> None:
    """Let the agent answer once."""
    runner = import_module("agents").Runner
    await runner.run(assistant, text, session=session, run_config=config, max_turns=STEPS)


async def play(
    stage: Stage, url: str, turns: Sequence[Turn], session: Any, config: Callable[[], Any]
) -> None:
    """Play turns in one session."""
    assistant = agent(stage.script, url)
    for turn in turns:
        try:
            await say(assistant, stage.begin(turn), session, config())
        except Exception as error:  # whatever a peer raises
            stage.failed(error)


def ours(stage: Stage, url: str) -> None:
    """Play with Muntin's session."""
    factory = import_module("muntin.integrations.openai_agents").MuntinSession
    session = factory(import_module("agents").SQLiteSession("1"), BUDGET)
    session.filter.fitted = stage.timed(session.filter.fitted)
    asyncio.run(play(stage, url, stage.script.turns, session, session.run_config))


def limited(stage: Stage, url: str) -> None:
    """Play with the last items of a session."""
    agents = import_module("agents")
    settings = import_module("agents.memory").SessionSettings(limit=LIMIT)
    session = agents.SQLiteSession("1", session_settings=settings)
    asyncio.run(play(stage, url, stage.script.turns, session, agents.RunConfig))


def trimmed(stage: Stage, url: str) -> None:
    """Play with the SDK's trimmer of tool outputs."""
    agents = import_module("agents")
    trimmer = import_module("agents.extensions.tool_output_trimmer").ToolOutputTrimmer()
    hook = stage.timed(trimmer.__call__)

    def config() -> Any:
        return agents.RunConfig(call_model_input_filter=hook)

    session = agents.SQLiteSession("1")
    asyncio.run(play(stage, url, stage.script.turns, session, config))


def resume(script: Script, url: str, folder: Path, turns: Sequence[Turn], budget: int) -> None:
    """Play turns in a session that a file keeps, with Muntin, on the Responses API."""
    factory = import_module("muntin.integrations.openai_agents").MuntinSession
    session = factory(import_module("agents").SQLiteSession("1", folder / "chat.db"), budget)
    spoken = agent(script, url, api="responses")

    async def run() -> None:
        for turn in turns:
            await say(spoken, turn.text, session, session.run_config())

    asyncio.run(run())


MEANS: dict[str, Means] = {
    "Muntin": ours,
    f"SessionSettings(limit={LIMIT})": limited,
    "ToolOutputTrimmer": trimmed,
}
