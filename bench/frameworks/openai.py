"""The `openai` client in an agent loop written by hand, with `muntin.fit` and with a slice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import muntin
from bench.frameworks.litellm import schemas
from bench.frameworks.stage import BUDGET, Means, Stage
from bench.runs.script import Turn

LAST = 20
Keep = Callable[[list[Any]], list[Any]]


def play(stage: Stage, url: str, turns: Sequence[Turn], keep: Keep) -> None:
    """Play turns in one list of messages."""
    client = import_module("openai").OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    messages: list[Any] = [{"role": "system", "content": stage.script.system}]
    for turn in turns:
        messages.append({"role": "user", "content": stage.begin(turn)})
        try:
            answer(stage, client, messages, keep)
        except Exception as error:  # whatever the client raises
            stage.failed(error)


def answer(stage: Stage, client: Any, messages: list[Any], keep: Keep) -> None:
    """Ask until there is an answer; all that is said is appended."""
    results, tools = stage.script.results, schemas(stage.script)
    while True:
        made = client.chat.completions.create(model="gpt-5", messages=keep(messages), tools=tools)
        reply = made.choices[0].message
        messages.append(reply.model_dump(exclude_none=True))
        if not reply.tool_calls:
            return
        messages += [
            {"role": "tool", "tool_call_id": call.id,
             "content": results[call.id.removeprefix("call_")]}
            for call in reply.tool_calls
        ]  # fmt: skip


def ours(stage: Stage, url: str) -> None:
    """Play with `muntin.fit`."""
    tools = schemas(stage.script)
    left: list[dict[str, Any] | None] = [None]

    def keep(messages: list[Any]) -> list[Any]:
        made = muntin.fit(messages, BUDGET, model="openai/gpt-5", tools=tools, previous=left[0])
        left[0] = made.frontier
        return made.kept

    play(stage, url, stage.script.turns, stage.timed(keep))


def sliced(stage: Stage, url: str) -> None:
    """Play with the system text and the last messages, as many write it."""
    play(stage, url, stage.script.turns, lambda messages: [messages[0], *messages[1:][-LAST:]])


MEANS: dict[str, Means] = {"Muntin": ours, f"the last {LAST} messages": sliced}
