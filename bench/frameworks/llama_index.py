"""LlamaIndex's function agent, with Muntin's memory and with its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.frameworks.stage import BUDGET, Means, Stage, lookers
from bench.runs.peers import room
from bench.runs.script import Script, Turn


def model(url: str) -> Any:
    """Return the model on this machine."""
    factory = import_module("llama_index.llms.openai").OpenAI
    given = {"timeout": 600.0, "max_retries": 0}  # a request that is sent again is another one
    return factory(model="gpt-4.1", api_key="none", api_base=f"{url}/v1", **given)


def agent(script: Script, url: str, *, ours: bool) -> Any:
    """Return the agent that a user of LlamaIndex writes."""
    where, name = ("muntin.integrations.llama_index", "MuntinAgent")
    if not ours:
        where, name = ("llama_index.core.agent.workflow", "FunctionAgent")
    return getattr(import_module(where), name)(
        name="clerk",
        llm=model(url),
        system_prompt=script.system,
        tools=tools(script),
        timeout=None,
        streaming=False,
    )


def tools(script: Script) -> list[Any]:
    """Return the tools of the script."""
    factory = import_module("llama_index.core.tools").FunctionTool
    return [factory.from_defaults(looker, name=looker.__name__) for looker in lookers(script)]


async def play(stage: Stage, url: str, memory: Any, *, ours: bool = False) -> None:
    """Play all turns with one memory."""
    assistant = agent(stage.script, url, ours=ours)
    for turn in stage.script.turns:
        try:
            await assistant.run(stage.begin(turn), memory=memory, max_iterations=10_000)
        except Exception as error:  # whatever a peer raises
            stage.failed(error)


def ours(stage: Stage, url: str) -> None:
    """Play with Muntin's memory and agent."""
    factory = import_module("muntin.integrations.llama_index").MuntinMemory
    memory = factory.from_defaults(token_limit=BUDGET, model="openai/gpt-4.1")
    object.__setattr__(memory, "fitted", stage.timed(memory.fitted))
    asyncio.run(play(stage, url, memory, ours=True))


def own(make: Callable[[Any, int], Any]) -> Means:
    """Play with a memory of LlamaIndex's, given the room that text and tools leave."""

    def run(stage: Stage, url: str) -> None:
        schemas = [tool.metadata.to_openai_tool() for tool in tools(stage.script)]
        room_left = room(BUDGET, stage.script.system, schemas)
        memory = make(import_module("llama_index.core.memory"), room_left)
        asyncio.run(play(stage, url, memory))

    return run


def buffer(memories: Any, room_left: int) -> Any:
    """Return the buffer of messages."""
    return memories.ChatMemoryBuffer.from_defaults(token_limit=room_left)


def memory(memories: Any, room_left: int) -> Any:
    """Return the newer memory, all of it for messages."""
    return memories.Memory.from_defaults(
        session_id="ada", token_limit=room_left, chat_history_token_ratio=1.0
    )


def resume(script: Script, url: str, folder: Path, turns: Sequence[Turn], budget: int) -> None:
    """Play turns with a chat store that a file keeps, with Muntin."""
    stores = import_module("llama_index.core.storage.chat_store").SimpleChatStore
    factory = import_module("muntin.integrations.llama_index").MuntinMemory
    file = str(folder / "chat.json")

    async def run() -> None:
        spoken = agent(script, url, ours=True)
        store = stores.from_persist_path(file)
        kept = factory.from_defaults(token_limit=budget, llm=model(url), chat_store=store)
        for turn in turns:
            await spoken.run(turn.text, memory=kept, max_iterations=10_000)
            store.persist(file)

    asyncio.run(run())


MEANS: dict[str, Means] = {
    "Muntin": ours,
    "ChatMemoryBuffer": own(buffer),
    "Memory": own(memory),
}
