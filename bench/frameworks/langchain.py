"""LangChain's `create_agent`, with Muntin's middleware and with what LangChain brings itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.frameworks.stage import BUDGET, Means, Stage, lookers
from bench.runs.peers import clearing, room, summarising, trimming
from bench.runs.script import Script, Turn

CONFIG = {"configurable": {"thread_id": "1"}, "recursion_limit": 10_000}


def model(url: str) -> Any:
    """Return the model on this machine."""
    factory = import_module("langchain_openai").ChatOpenAI
    return factory(model="gpt-5", api_key="none", base_url=f"{url}/v1", use_responses_api=False)


def tools(script: Script) -> list[Any]:
    """Return the tools of the script."""
    factory = import_module("langchain_core.tools").StructuredTool.from_function
    return [factory(looker) for looker in lookers(script)]


def agent(script: Script, url: str, middleware: Sequence[Any], saver: Any) -> Any:
    """Return the agent that a user of LangChain writes."""
    return import_module("langchain.agents").create_agent(
        model(url),
        tools=tools(script),
        system_prompt=script.system,
        middleware=middleware,
        checkpointer=saver,
    )


def play(stage: Stage, url: str, turns: Sequence[Turn], middleware: Sequence[Any]) -> None:
    """Play turns in one conversation that is kept in memory."""
    saver = import_module("langgraph.checkpoint.memory").InMemorySaver()
    assistant = agent(stage.script, url, middleware, saver)
    for turn in turns:
        said = {"messages": [{"role": "user", "content": stage.begin(turn)}]}
        try:
            assistant.invoke(said, CONFIG)
        except Exception as error:  # whatever a peer raises
            stage.failed(error)


def ours(stage: Stage, url: str) -> None:
    """Play with Muntin's middleware."""
    middleware = import_module("muntin.integrations.langchain").MuntinMiddleware(BUDGET)
    middleware.fitted = stage.timed(middleware.fitted)
    play(stage, url, stage.script.turns, [middleware])


def own(make: Callable[..., Sequence[Any]]) -> Means:
    """Play with a middleware of LangChain's."""

    def run(stage: Stage, url: str) -> None:
        convert = import_module("langchain_core.utils.function_calling").convert_to_openai_tool
        schemas = [convert(tool) for tool in tools(stage.script)]
        room_left = room(BUDGET, stage.script.system, schemas)
        play(stage, url, stage.script.turns, make(stage, room_left, model(url)))

    return run


def resume(script: Script, url: str, folder: Path, turns: Sequence[Turn], budget: int) -> None:
    """Play turns in a conversation that a file keeps, with Muntin."""
    saved = import_module("langgraph.checkpoint.sqlite").SqliteSaver
    middleware = import_module("muntin.integrations.langchain").MuntinMiddleware(budget)
    with saved.from_conn_string(str(folder / "chat.db")) as saver:
        assistant = agent(script, url, [middleware], saver)
        for turn in turns:
            assistant.invoke({"messages": [{"role": "user", "content": turn.text}]}, CONFIG)


MEANS: dict[str, Means] = {
    "Muntin": ours,
    "trim_messages": own(trimming(("human", "ai"))),
    "trim_messages, human first": own(trimming("human")),
    "ContextEditing": own(clearing),
    "Summarization": own(summarising),
}
