"""Measure the shape of a checkout: its size, its knots, and how far a call walks through it.

    python -m tools.shape [ROOT] [--json FILE]

Calls are counted differently by other versions of Python: compare what one version measured.
Needs the extras `openai`, `prompts` and `tokens`, but no key and no network.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, pairwise
from pathlib import Path
from statistics import median
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

from tools.tree import FUNCTIONS, ROOT, File, graph, knots, places, read

# Where a tree decides what goes into a window. Where none of these is there, `plans` is 0.
PLANNERS = (
    "core/planning/planner.py:plan_window",
    "core/planning/decide.py:decide",
    "core/planning/decide.py:plan",
    "core/plan.py:plan",
)
ANSWER = b"""{"id": "1", "object": "chat.completion", "created": 1, "model": "gpt-4o",
"choices": [{"index": 0, "message": {"role": "assistant", "content": "It rains."}}],
"usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}}"""


def spread(numbers: Iterable[int]) -> dict[str, float]:
    """Return count, median, 95th percentile and maximum."""
    ranked = sorted(numbers)
    p95 = ranked[-(-len(ranked) * 95 // 100) - 1]
    return {"count": len(ranked), "median": median(ranked), "p95": p95, "max": ranked[-1]}


def size(files: dict[str, File]) -> dict[str, Any]:
    """Return how many files and lines there are, and how long files and functions are."""
    lines = {file.path: len(file.text.splitlines()) for file in files.values()}
    functions = [n for file in files.values() for n in file.nodes if isinstance(n, FUNCTIONS)]
    return {
        "files": len(lines),
        "lines": sum(lines.values()),
        "largest": dict(sorted(lines.items(), key=lambda each: -each[1])[:5]),
        "file lines": spread(lines.values()),
        "function lines": spread((f.end_lineno or f.lineno) - f.lineno + 1 for f in functions),
        "fan-out": spread(map(len, graph(files, late=True).values())),
    }


class Watch:
    """Notes the calls into a package, and the transactions of SQLite."""

    def __init__(self, package: Path) -> None:
        self.package, self.on = f"{package}{os.sep}", False
        self.codes: list[CodeType] = []
        self.statements: list[str] = []

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call; a coroutine or generator that goes on counts as a call."""
        if self.on and event == "call" and frame.f_code.co_filename.startswith(self.package):
            self.codes.append(frame.f_code)

    def connect(self, *args: Any, **options: Any) -> sqlite3.Connection:
        """Open a connection, and note the first statement of each of its transactions."""
        connection = sqlite3.Connection(*args, **options)

        def note(statement: str) -> None:
            if self.on and not connection.in_transaction and not statement.startswith("PRAGMA"):
                self.statements.append(statement)

        connection.set_trace_callback(note)
        return connection

    async def walk(self, call: Callable[[], Awaitable[object]], runs: int = 2) -> dict[str, int]:
        """Call so many times, and return what happened in the last; the others warm up."""
        for _ in range(runs):
            self.codes, self.statements, self.on = [], [], True
            await call()
            self.on = False
        files = [code.co_filename.removeprefix(self.package) for code in self.codes]
        names = [f"{file}:{code.co_qualname}" for file, code in zip(files, self.codes, strict=True)]
        return {
            "calls": len(files),
            "functions": len(set(names)),
            "files": len(set(files)),
            "file changes": sum(before != after for before, after in pairwise(files)),
            "plans": max(map(names.count, PLANNERS)),
            "transactions": len(self.statements),
            "writes": sum(statement.startswith("BEGIN IMMEDIATE") for statement in self.statements),
        }


class OpenAI(BaseHTTPRequestHandler):
    """Answers every request as OpenAI would."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer; the body comes after the head, so that a client always waits twice."""
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response_only(200)  # says nothing on the terminal
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(ANSWER)))
        self.end_headers()
        time.sleep(0.05)
        self.wfile.write(ANSWER)


async def walks(watch: Watch, folder: str) -> dict[str, dict[str, int]]:
    """Walk through every door; what is asked was never counted before."""
    from muntin import App, Slots, Source, Turns, assistant, context, generator, prompt, user
    from muntin.testing import ScriptedModel

    asked = (f"How is the weather in city number {number} today?" for number in count())
    talk = [each for n in range(10) for each in (user(f"Is it {n}?"), assistant(f"It is {n}."))]
    model = ScriptedModel(lambda window: "Hi.")
    brief, tags = "You are brief.", {"documents": lambda: "Some text.", "tone": "Kind."}
    rules = [context(id="rules", system=lambda: "No guesses."), context(id="tone", system="Kind.")]
    bot = prompt(id="bot", system=brief, prompt=lambda i: f"Say {i.word}.", use=rules)

    def declare(slots: Any, history: object, said: object) -> Any:
        slots.add("system", brief, role="system", priority=100)
        slots.add("history", history, max_ratio=0.5)
        slots.add("input", said)
        return slots.render()

    async def render() -> None:
        declare(Slots(200), talk, "And now?")

    class Strategy:
        def on_context_build(self, ctx: Any) -> Any:
            return declare(ctx.slots, ctx.history.recent(10), ctx.input)

    async def converse(name: str, strategy: object) -> dict[str, int]:
        async with App(f"sqlite:///{folder}/{name}.db", model="openai/gpt-4o") as app:
            chat = app.conversation(name, strategy=strategy)
            return await watch.walk(lambda: chat.send(next(asked)), runs=3)

    async def generate(**options: Any) -> dict[str, int]:
        made = generator(history=Turns(8), user=lambda text: text, **options)
        async with App("memory:", model=model) as app:
            return await watch.walk(lambda: made.run(next(asked), app=app, session="s"))

    async def wake() -> dict[str, int]:
        async with App("memory:", model=model) as app:

            @app.entity("horton")
            async def handle(ctx: Any, wake: object) -> None:
                docs = Source("Some text.", cache="stable", max=100)
                sources = {"docs": docs, "timeline": Source(ctx.timeline_messages)}
                ctx.use_context(source_budget=5_000, sources=sources)
                ctx.use_agent(system_prompt=brief)
                await ctx.agent.run()

            return await watch.walk(lambda: app.ask("horton/1", next(asked)))

    return {
        "Slots.add x3 + render": await watch.walk(render),
        "prompt.resolve": await watch.walk(lambda: bot.resolve({"word": "x"}, token_budget=500)),
        "conversation.send, SQLite, OpenAI": await converse("plain", None),
        "the same with a strategy": await converse("strategy", Strategy()),
        "generator.run, a text, in memory": await generate(prompt=brief, context=tags),
        "generator.run, prompt=prompt(...)": await generate(prompt=prompt(system=brief)),
        "generator.run, two context()": await generate(prompt=brief, context=rules),
        "use_context + agent.run, in memory": await wake(),
    }


def measure_walks(package: Path) -> dict[str, dict[str, int]]:
    """Walk with a watch on all threads, and a server in the place of OpenAI's."""
    watch = Watch(package)
    server = ThreadingHTTPServer(("127.0.0.1", 0), OpenAI)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["OPENAI_BASE_URL"] = f"http://127.0.0.1:{server.server_port}/v1"
    os.environ.update(OPENAI_API_KEY="none", NO_PROXY="127.0.0.1")
    for module in (sqlite3, sqlite3.dbapi2):
        patch.object(module, "connect", watch.connect).start()
    threading.setprofile(watch.profile)
    sys.setprofile(watch.profile)
    gc.disable()  # whatever is collected may call something
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(walks(watch, folder))


def main() -> None:
    """Measure a checkout, print what was found, and write it down."""
    parser = argparse.ArgumentParser()
    parser.add_argument("root", nargs="?", type=Path, default=ROOT)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there")
    options = parser.parse_args()
    package = options.root.resolve() / "src" / "muntin"
    sys.path.insert(0, str(package.parent))
    files = read(package)
    shape: dict[str, Any] = {
        "size": size(files),
        "knots": knots(graph(files, late=True)),
        "knots without late imports": knots(graph(files, late=False)),
        **places(files),
        "walks": measure_walks(package),
    }
    if options.json:
        options.json.write_text(json.dumps(shape, indent=2) + "\n", "utf-8")
    for title, rows in shape.items():
        print(f"\n{title}: {len(rows)}")
        for row in rows.items() if isinstance(rows, dict) else rows:
            shown = [len(row), *row] if isinstance(row, list) else row
            print(" ", json.dumps(shown).translate(str.maketrans("", "", '"[]{}')))


if __name__ == "__main__":
    main()
