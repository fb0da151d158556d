"""A run with toolboxes, in processes that end without warning: once before each answer is recorded,
and once between the answer and the result of each search.

Started with a folder and a model; writes each request, with the number of its step.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import muntin.agent.loop as loop
from muntin import App, ToolCall
from muntin.core.toolboxes import finding
from muntin.core.window import Window
from muntin.testing import ScriptedModel
from muntin.timeline.store.sql import leases
from tests.toolboxes import toolboxes

STEPS = 24
FINDS = {1: "convert_to_pdf, forecast", 6: "who is free next week", 20: "warnings of storms"}
CALLS = {3: ("convert_to_pdf", {"path": "a"}), 15: ("convert_to_pdf", {"path": "b"}),
         9: ("set_topic", {"channel": "c", "topic": "t"}), 17: ("forecast", {})}  # fmt: skip


def read(path: str) -> str:
    """Read a page."""
    return f"{path} lorem ipsum dolor" * 40


def reply(step: int) -> Any:
    """Return what the model says at a step."""
    if step in FINDS:
        return ToolCall(f"f{step}", "find_tools", json.dumps({"query": FINDS[step]}))
    if step in CALLS:
        name, arguments = CALLS[step]
        return ToolCall(f"c{step}", name, json.dumps(arguments))
    if step < STEPS:
        return ToolCall(f"c{step}", "read", json.dumps({"path": f"page {step}"}))
    return "done"


def encoded(window: Window, model: str) -> str:
    """Return the request in the form of its vendor."""
    if model.startswith("anthropic/"):
        return json.dumps(window.anthropic())
    return json.dumps(window.openai(api="responses" if "gpt" in model else "chat"))


def work(folder: Path, name: str, may_die: bool) -> None:
    """Go on with the run until it ends, or until this process does."""

    def die_once(point: str) -> None:
        if may_die and not (folder / point).exists():
            (folder / point).touch()
            os._exit(9)

    def answer(window: Window) -> Any:
        count = folder / "answers"
        step = int(count.read_text()) if count.exists() else 0
        with (folder / "requests").open("a") as log:
            log.write(f"{step} {encoded(window, name)}\n")
        die_once(f"ask-{step}")
        count.write_text(str(step + 1))
        return reply(step)

    searching = finding.answer_search

    def search(call: ToolCall, *rest: Any) -> Any:
        die_once(f"search-{call.id}")
        return searching(call, *rest)

    vars(loop)["answer_search"] = search
    vars(leases)["pause"] = lambda tries: timedelta(0)  # the next process begins at once
    model = ScriptedModel(answer, name=name, budget=4_000)
    if "gpt" in name:
        model.tool_loading = "item"  # type: ignore[attr-defined]

    async def go() -> None:
        async with App(f"sqlite:///{folder / 'store.db'}", model=model, recall=False) as app:

            @app.entity("agent")
            async def handle(ctx: Any, wake: Any) -> None:
                tools = [read, *toolboxes()]
                ctx.use_agent(system_prompt="Work.", tools=tools, max_steps=40)
                await ctx.agent.run()

            if not (folder / "sent").exists():
                (folder / "sent").touch()
                await app.send("agent/1", "Do it all")
            await app.resume()

    asyncio.run(go())


def main() -> None:
    """Run processes one behind the other until one ends by itself."""
    folder, name, may_die = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "die"
    for _ in range(3 * STEPS):
        child = os.fork()
        if not child:
            work(folder, name, may_die)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.waitstatus_to_exitcode(status):
            return
    raise SystemExit("the run did not end")


if __name__ == "__main__":
    main()
