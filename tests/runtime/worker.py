"""Processes that the tests of the runtime start, and some of which they kill.

What happens is said on standard output at once, one line each.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from muntin.core.parts import ToolCall
from muntin.runtime.app import App
from muntin.runtime.ctx import Ctx, Wake
from muntin.runtime.engine import Embedded
from muntin.runtime.run_rules import Summary
from muntin.runtime.sources import Source
from muntin.testing import ScriptedModel


class Elsewhere(Embedded):
    """The engine of an app that sends, and leaves handling to others."""

    def start(self) -> None:
        pass

    def stored(self, session: str, turn: int) -> None:
        pass


def say(*words: object) -> None:
    print(*words, flush=True)


def note(log: str, line: str) -> None:
    """Write a line for all processes to see, at once."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def stop_here(point: str, wanted: str | None) -> None:
    """At the point that was asked for: tell the parent, and wait to be killed."""
    if point == wanted:
        say("at", point)
        time.sleep(60)


def wake(
    url: str, log: str, stop: str | None = None, sources: bool = True, send: bool = False
) -> None:
    """Handle what waits for "e/1": two steps with tools, then an answer."""
    steps = {
        0: [ToolCall("c1", "first", "{}"), ToolCall("c2", "second", "{}")],
        1: [ToolCall("c3", "third", "{}")],
        2: "All done.",
    }

    def answer(window: Any) -> Any:
        step = sum(message.role == "assistant" for message in window.messages)
        shown = [[each.role, each.text, len(each.tool_calls)] for each in window.messages]
        note(log, f"window {json.dumps(shown)}")
        stop_here(f"model {step}", stop)
        return steps[step]

    def made(name: str) -> Any:
        def tool() -> str:
            stop_here(f"before {name}", stop)
            note(log, f"tool {name}")
            if stop == f"inside {name}":
                say("at", stop)
                time.sleep(60)
            return f"{name} result"

        tool.__name__ = name
        tool.__doc__ = f"The {name} tool."
        return tool

    async def work() -> None:
        app = App(url, model=ScriptedModel(answer))

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Wake) -> None:
            note(log, f"handler {wake.payload}")
            stop_here("handler", stop)
            if sources:
                chat = Source(ctx.timeline_messages, max=4_000)
                ctx.use_context(source_budget=5_000, sources={"chat": chat})
            ctx.insert_context("seen", name="Seen", content=str(wake.payload))
            ctx.use_agent(tools=[made("first"), made("second"), made("third")])
            reply = await ctx.agent.run()
            stop_here("end", stop)
            say("reply", reply.text)

        async with app:
            say("ready")
            if send:
                await app.send("e/1", "job")
            while any(turn.status != "completed" for turn in app.store.turns("e/1")):
                await asyncio.sleep(0.02)
        say("done")

    asyncio.run(work())


def entities(url: str, log: str, sender: int, entities: int, messages: int, senders: int) -> None:
    """Send this process's share of all messages, and handle until everything is handled."""

    async def work() -> None:
        app = App(url)

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Wake) -> None:
            id = ctx.session.id
            note(log, f"begin {id} {os.getpid()}")
            await asyncio.sleep(0.002)
            for item in ctx.events:
                note(log, f"handle {id} {os.getpid()} {item.position} {item.payload}")
            note(log, f"end {id} {os.getpid()}")

        async def send(entity: int) -> None:
            for number in range(messages):
                if (entity + number) % senders == sender:
                    item = await app.send(f"e/{entity}", number)
                    note(log, f"sent e/{entity} {item.position} {number}")

        async with app:
            say("ready")
            await asyncio.gather(*(send(entity) for entity in range(entities)))
            say("sent")
            while not Path(f"{log}.stop").exists():
                await asyncio.sleep(0.05)
        say("done")

    asyncio.run(work())


def ask_only(url: str) -> None:
    """Ask an entity that another process handles."""

    async def work() -> None:
        app = App(url, model=ScriptedModel([]), engine=Elsewhere())

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Wake) -> None:
            raise AssertionError("not here")

        reply = await app.ask("e/1", "question")
        say("reply", reply.text if reply else None)

    asyncio.run(work())


def summarise(url: str, log: str, turns: int, stop: bool = False) -> None:
    """Talk until a summary is made; with `stop`, wait to be killed while it is in the making."""

    async def writer(window: Any) -> str:
        note(log, f"summary {os.getpid()}")
        if stop:
            say("making")
            await asyncio.sleep(60)
        await asyncio.sleep(0.3)  # so that others come while it is made
        return "What was said."

    async def work() -> None:
        model = ScriptedModel(lambda window: "I know. " * 40, budget=2_000)
        async with App(url, model=model, summary=Summary(ScriptedModel(writer))) as app:
            for _ in range(turns):
                await app.conversation("c").send("Tell me everything. " * 20)
                await asyncio.sleep(0.02)
        say("done")

    asyncio.run(work())


WORK = {work.__name__: work for work in (wake, entities, ask_only, summarise)}

if __name__ == "__main__":
    given: dict[str, Any] = json.loads(sys.argv[2])
    WORK[sys.argv[1]](**given)
