"""Toolboxes: what requests say of tools, replayed by several policies.

    python -m bench.toolboxes [--catalogue FILE] [--tasks FILE] [--talk TOKENS] [--budget TOKENS]

Each task is a question and the tools that were called for it, with the words by which each was
looked for. Every policy makes the requests of the same tasks; Muntin's are those that it encodes
for three vendors. The others follow what their pages say: `grown` puts the three best tools of each
search into `tools`, `best 20` chooses tools for each request anew, `all` declares everything.

Tokens that a request shares with the beginning of the one before cost 0.1, the rest 1.25. Figures
are for each task; `cost behind talk` is with so many tokens of an earlier conversation, cached.
Fetches nothing. A larger catalogue and other tasks are read from files of the same form.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from muntin import App, Tool, Toolbox, ToolCall
from muntin.core.checks import compact_json
from muntin.core.counting.counter import Counter
from muntin.core.toolboxes.catalogue import Catalogue
from muntin.core.toolboxes.rungs import BoxedTool, as_boxed_tool
from muntin.core.window import Window
from muntin.testing import ScriptedModel

HERE = Path(__file__).parent
READ, WRITE = 0.1, 1.25
MODELS = {
    "Muntin, Anthropic": "anthropic/claude-sonnet-5",
    "Muntin, Responses": "openai/gpt-5.6",
    "Muntin, Chat": "ollama/qwen3",
}


@dataclass(slots=True)
class Score:
    """What the requests of all tasks cost; a request is the list of its pieces, in order."""

    counter: Counter
    talk: int
    requests: int = 0
    tools: int = 0
    first: int = 0
    changed: int = 0
    cold: float = 0.0
    behind: float = 0.0
    missing: int = 0
    before: list[str] = field(default_factory=list)

    def begin(self) -> None:
        """Begin a task."""
        self.before = []

    def add(self, tools: Sequence[str], messages: Sequence[str]) -> None:
        """Add a request: tools and index, then messages."""
        sizes = [self.counter.text(piece) for piece in (*tools, *messages)]
        pieces = [*tools, *messages]
        shared = 0
        for one, other in zip(pieces, self.before, strict=False):
            if one != other:
                break
            shared += 1
        head = sum(sizes[: len(tools)])
        read, rest = sum(sizes[:shared]), sum(sizes[shared:])
        keeps = shared >= len(tools) and (shared == len(self.before) or not self.before)
        is_first = not self.before
        self.requests += 1
        self.tools += head
        self.first += head if is_first else 0
        self.changed += not is_first and shared < len(self.before)
        self.cold += READ * read + WRITE * rest
        self.behind += (
            READ * read + WRITE * rest + self.talk * (READ if keeps or is_first else WRITE)
        )
        self.before = pieces

    def row(self, tasks: int, calls: int) -> tuple[str, ...]:
        """Return the figures for each task."""
        return (
            f"{self.requests:,}",
            f"{self.tools / self.requests:,.0f}",
            f"{self.first / tasks:,.0f}",
            f"{self.changed} of {self.requests - tasks}",
            f"{self.cold / tasks:,.0f}",
            f"{self.behind / tasks:,.0f}",
            f"{self.missing} of {calls}",
        )


def read_catalogue(path: Path) -> list[dict[str, Any]]:
    """Read toolboxes: a list of objects with name, about and tools."""
    boxes: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return boxes


def tools_of(boxes: Sequence[dict[str, Any]]) -> list[BoxedTool]:
    """Return all tools."""
    return [as_boxed_tool(tool, box["name"]) for box in boxes for tool in box["tools"]]


def steps(task: dict[str, Any], *, searches: bool) -> Iterator[tuple[str, str]]:
    """Yield what the model does: ("find", words) or ("call", tool)."""
    for words, name in task["steps"]:
        if searches and words:
            yield "find", words
        yield "call", name


def message(kind: str, text: str) -> str:
    """Return a message as a piece of a request."""
    return compact_json({"role": kind, "content": text})


def play_declared(
    score: Score,
    tasks: Sequence[dict[str, Any]],
    catalogue: Catalogue,
    choose: Callable[[str, list[str]], list[str]] | None,
    *,
    keeps: bool,
) -> None:
    """Play a policy that declares tools: all of them, or those that `choose` finds for a query.
    With `keeps` the found tools stay declared, and the model searches for them."""
    every = {tool.name: compact_json(tool.at("full")) for tool in catalogue.tools}
    for task in tasks:
        score.begin()
        messages = [message("user", task["question"])]
        declared: list[str] = [] if choose else list(every)
        for kind, what in steps(task, searches=keeps):
            if choose and not keeps:
                declared = choose(f"{task['question']} {messages[-1]}", [])
            head = [every[name] for name in declared]
            score.add(head, messages)
            messages.append(message("assistant", f"{kind} {what}"))
            if kind == "find" and choose:
                found = choose(what, declared)
                declared = [*declared, *(name for name in found if name not in declared)]
                messages.append(message("tool", f"Found: {', '.join(found)}"))
            else:
                score.missing += what not in declared
                messages.append(message("tool", f"{what} ran"))
        score.add([every[name] for name in declared], messages)


async def play_muntin(
    score: Score,
    tasks: Sequence[dict[str, Any]],
    boxes: Sequence[dict[str, Any]],
    model: str,
    budget: int,
) -> None:
    """Play Muntin, and read the requests that it encodes for the vendor of a model."""
    held = [Toolbox(box["name"], functions(box), about=box.get("about", "")) for box in boxes]
    for task in tasks:
        score.begin()
        script: list[Any] = []
        for number, (kind, what) in enumerate(steps(task, searches=True)):
            name = "find_tools" if kind == "find" else what
            arguments = compact_json({"query": what}) if kind == "find" else "{}"
            script.append(ToolCall(f"c{number}", name, arguments))
        scripted = ScriptedModel([*script, "Done."], name=model, budget=budget)
        if model.startswith("openai/"):
            scripted.tool_loading = "item"  # type: ignore[attr-defined]
        async with App("memory:", model=scripted, recall=False, recovery=False) as app:
            talk = app.conversation("task", tools=held, max_steps=len(script) + 1)
            await talk.send(task["question"])
        for window in scripted.windows:
            score.add(*pieces_of(window))
        last = scripted.windows[-1].report.tools
        seen = {tool.name for tool in last if tool.status in ("declared", "found", "carried")}
        score.missing += sum(what not in seen for kind, what in steps(task, searches=False))


def functions(box: dict[str, Any]) -> list[Tool]:
    """Return the tools of a box; each says that it ran."""

    def run(called: str, **_: Any) -> str:
        return f"{called} ran"

    return [
        Tool(partial(run, tool["name"]), name=tool["name"], description=tool["description"],
             parameters={"type": "object", "properties": tool["inputSchema"].get("properties", {})})
        for tool in box["tools"]
    ]  # fmt: skip


def pieces_of(window: Window) -> tuple[list[str], list[str]]:
    """Return what a request says of tools, and its messages with what they load."""
    head = [compact_json(dict(tool)) for tool in window.tools if not tool.get("defer_loading")]
    messages: list[str] = []
    for sent in window.messages:  # as it is counted: a result with the schemas that it loads
        calls = [[call.name, call.arguments] for call in sent.tool_calls]
        piece = compact_json({"role": sent.role, "content": sent.text, "calls": calls})
        (head if sent.role == "system" else messages).append(piece)
    return head, messages


def main(given: Sequence[str] | None = None) -> None:
    """Play all policies, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--catalogue", type=Path, default=HERE / "toolboxes.json")
    parser.add_argument("--tasks", type=Path, default=HERE / "tool_tasks.json")
    parser.add_argument("--talk", type=int, default=40_000)
    parser.add_argument("--budget", type=int, default=32_000)
    options = parser.parse_args(given)
    boxes, tasks = read_catalogue(options.catalogue), json.loads(options.tasks.read_text())
    catalogue = Catalogue(tools_of(boxes), {box["name"]: box.get("about", "") for box in boxes})
    calls = sum(len(task["steps"]) for task in tasks)

    def search(most: int) -> Callable[[str, list[str]], list[str]]:
        return lambda query, loaded: [
            tool.name for tool in catalogue.search(query, most, loaded=loaded)
        ]

    plans: dict[str, Callable[[Score], None]] = {
        "all tools": lambda s: play_declared(s, tasks, catalogue, None, keeps=False),
        "best 20 a request": lambda s: play_declared(s, tasks, catalogue, search(20), keeps=False),
        "grown, 3 a search": lambda s: play_declared(s, tasks, catalogue, search(3), keeps=True),
    }
    for name, model in MODELS.items():
        plans[name] = lambda s, model=model: asyncio.run(  # type: ignore[misc]
            play_muntin(s, tasks, boxes, model, options.budget)
        )
    columns = ("policy", "requests", "tools a request", "first", "beginnings changed", "cost",
               "cost behind talk", "calls of tools not loaded")  # fmt: skip
    rows: list[tuple[str, ...]] = [columns]
    for name, play in plans.items():
        score = Score(Counter(), options.talk)
        play(score)
        rows.append((name, *score.row(len(tasks), calls)))
    widths = [max(len(row[n]) for row in rows) for n in range(len(columns))]
    for row in rows:
        cells = [
            row[0].ljust(widths[0]),
            *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)),
        ]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
    sys.stdout.write(f"{len(catalogue.tools)} tools, {len(tasks)} tasks, counted by estimate\n")


if __name__ == "__main__":
    main()
