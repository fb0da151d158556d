"""Microsoft Agent Framework, with Muntin's middleware and with the framework's own compaction."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.frameworks.stage import BUDGET, Means, Stage
from bench.runs.ours import about
from bench.runs.peers import room
from bench.runs.script import Script, Turn
from bench.runs.wire import count

STEPS = 10_000


class Tokenizer:
    """The exact tokenizer in the form that the framework asks for."""

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text."""
        return count(text)


def tools(script: Script) -> list[Any]:
    """Return the tools of the script."""
    factory = import_module("agent_framework").FunctionTool
    results = script.results

    def look(step: str, arguments: dict[str, Any]) -> str:
        return results[step]

    return [factory(name=name, description=about(name), func=look) for name in script.names]


def agent(script: Script, url: str, **options: Any) -> Any:
    """Return the agent that a user of the framework writes."""
    os.environ.setdefault("OTEL_SDK_DISABLED", "true")
    logging.getLogger("agent_framework").setLevel(logging.ERROR)
    factory = import_module("agent_framework_openai").OpenAIChatCompletionClient
    client = factory(model="gpt-5", api_key="none", base_url=f"{url}/v1")
    client.function_invocation_configuration["max_iterations"] = STEPS
    return import_module("agent_framework").Agent(
        client=client, name="clerk", instructions=script.system, tools=tools(script), **options
    )


async def play(stage: Stage, url: str, turns: Sequence[Turn], **options: Any) -> None:
    """Play turns in one session."""
    assistant = agent(stage.script, url, **options)
    session = assistant.create_session()
    for turn in turns:
        try:
            await assistant.run(stage.begin(turn), session=session)
        except Exception as error:  # whatever a peer raises
            stage.failed(error)


def ours(stage: Stage, url: str) -> None:
    """Play with Muntin's middleware."""
    hook = import_module("muntin.integrations.agent_framework").MuntinMiddleware(BUDGET)
    hook.fitted = stage.timed(hook.fitted)
    asyncio.run(play(stage, url, stage.script.turns, middleware=[hook]))


def own(make: Callable[[Any, int], Any]) -> Means:
    """Play with a strategy of the framework's, given the room that text and tools leave."""

    def run(stage: Stage, url: str) -> None:
        schemas = [tool.to_json_schema_spec() for tool in tools(stage.script)]
        room_left = room(BUDGET, stage.script.system, schemas)
        strategy = make(import_module("agent_framework"), room_left)
        asyncio.run(play(stage, url, stage.script.turns, compaction_strategy=strategy))

    return run


def context_window(framework: Any, room_left: int) -> Any:
    """Return the strategy that goes by a context window."""
    return framework.ContextWindowCompactionStrategy(
        max_context_window_tokens=room_left, max_output_tokens=0, tokenizer=Tokenizer()
    )


def resume(script: Script, url: str, folder: Path, turns: Sequence[Turn], budget: int) -> None:
    """Play turns in a session that a file keeps, with Muntin."""
    sessions = import_module("agent_framework").AgentSession
    middleware = import_module("muntin.integrations.agent_framework").MuntinMiddleware(budget)
    file = folder / "session.json"

    async def run() -> None:
        assistant = agent(script, url, middleware=[middleware])
        session = (
            sessions.from_dict(json.loads(file.read_text()))
            if file.exists()
            else assistant.create_session()
        )
        for turn in turns:
            await assistant.run(turn.text, session=session)
            file.write_text(json.dumps(session.to_dict()))

    asyncio.run(run())


MEANS: dict[str, Means] = {"Muntin": ours, "ContextWindowCompaction": own(context_window)}
