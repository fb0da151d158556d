"""A process that sends, asks, sets timers, talks and handles, all at once, until it is told to end.

What it sends gets a number and is noted in a file before and after: `tries WHERE TEXT`, then `has
WHERE TEXT` or `doubts WHERE TEXT ERROR`.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from muntin.core.parts import ToolCall
from muntin.core.window import Window
from muntin.runtime.app import App
from muntin.runtime.ctx import Ctx, Wake
from muntin.runtime.flows import Action, flow
from muntin.runtime.generators import generator
from muntin.testing import ScriptedModel

ENTITIES, TALKS = 12, 3


def note(log: str, line: str) -> None:
    """Write a line for all processes to see, at once."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def reply(window: Window) -> object:
    """Call a tool for what came last, then answer it."""
    last = [message for message in window.messages if message.role == "user"][-1].text
    if window.messages[-1].role == "tool":
        return f"answer to {last}"
    return ToolCall(f"call-{last}", "look", json.dumps({"text": last}))


async def look(text: str) -> str:
    """Look something up."""
    await asyncio.sleep(random.uniform(0, 0.05))
    return f"found {text}"


def work(url: str, engine: str, slot: str, life: str, log: str, stop: str, name: str) -> None:
    """Work in a slot, which outlives this process, until the file `stop` is there."""
    app = App(url, engine=engine, model=ScriptedModel(reply, name=name))
    numbers = iter(range(10**9))
    echo = generator(
        prompt="Echo.", user=lambda text: text, history=True, tools=[look], model=app.model
    )
    support = flow("support", actions={"say": Action(echo, user_message=lambda text: text)})

    @app.entity("e")
    async def handle(ctx: Ctx, wake: Wake) -> None:
        ctx.use_agent(tools=[look])
        await ctx.agent.run()

    async def tell(where: str, send: Callable[[str], Awaitable[object]]) -> None:
        text = f"{slot}-{life}-{next(numbers)}"
        note(log, f"tries {where} {text}")
        try:
            await send(text)
        except Exception as error:
            note(log, f"doubts {where} {text} {type(error).__name__} {error}".replace("\n", " "))
            await asyncio.sleep(0.1)
        else:
            note(log, f"has {where} {text}")

    async def say(where: str) -> None:
        kind, _, _ = where.partition("/")
        if kind == "chat":
            await tell(where, app.conversation(where, tools=[look]).send)
        else:
            await tell(where, lambda text: support.run("say", text, session=where, app=app))

    async def repeat(step: Callable[[], Awaitable[None]], most: float) -> None:
        while not Path(stop).exists():
            await step()
            await asyncio.sleep(random.uniform(0, most))

    def entity() -> str:
        return f"e/{random.randrange(ENTITIES)}"

    async def send() -> None:
        where = entity()
        await tell(where, lambda text: app.send(where, text))

    async def ask() -> None:
        where = entity()
        await tell(where, lambda text: app.ask(where, text))

    async def later() -> None:
        where = entity()
        after = random.uniform(0.05, 1.5)
        await tell(where, lambda text: app.wake(where, text, after=after))

    def say_where() -> None:
        for task in asyncio.all_tasks():
            task.print_stack(file=sys.stderr)
        faulthandler.dump_traceback(all_threads=True)

    async def run() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, say_where)
        async with app:
            print("ready", flush=True)
            done = asyncio.Event()
            working = asyncio.create_task(app.work(stop=done))
            own = [f"{kind}/{slot}-{at}" for kind in ("chat", "flow") for at in range(TALKS)]
            tasks = [repeat(lambda where=where: say(where), 1.0) for where in own]  # type: ignore[misc]
            await asyncio.gather(
                *tasks, repeat(send, 0.2), repeat(ask, 0.5), repeat(later, 0.5), repeat(later, 0.5)
            )
            for where in own:  # a turn that died is settled by the next one
                await say(where)
            print("silent", flush=True)
            await asyncio.to_thread(sys.stdin.read)
            done.set()
            await working

    asyncio.run(run())


if __name__ == "__main__":
    globals()[sys.argv[1]](**json.loads(sys.argv[2]))
