"""Processes that the tests of the engines start, kill, stop and follow. Each says what it does.

What happens to entities is noted in a file that all share, one line each, in the order of time.
"""

import asyncio
import json
import os
import sys
import time
from typing import Any

import psycopg

from muntin.runtime.app import App
from muntin.runtime.ctx import Ctx, Wake
from muntin.runtime.engine import Embedded, worker
from muntin.timeline.store import open_store


def say(*words: object) -> None:
    print(*words, flush=True)


def note(log: str, *words: object) -> None:
    """Write a line for all processes to see, at once."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{' '.join(map(str, words))}\n".encode())
    os.close(file)


def made(url: str, engine: str, log: str, name: str, seconds: float) -> App:
    """Return an app whose entities note when they begin and when they are done."""
    app = App(url, engine=engine)

    @app.entity("e")
    async def handler(ctx: Ctx, wake: Wake) -> None:
        id, turn = ctx.session.id, ctx.turn.number
        note(log, "begins", time.time(), id, turn, name)
        await asyncio.sleep(seconds)
        ctx.insert_context("seen", name="Seen", content=str(ctx.events[-1].content))
        note(log, "ends", time.time(), id, turn, name, json.dumps([e.content for e in ctx.events]))

    return app


def work(
    url: str, engine: str, log: str, name: str, seconds: float = 0.05, silent: float | None = None
) -> None:
    """Be a worker."""
    if silent is not None:  # a hung worker is noticed sooner
        for name, part in (("SILENT", 1), ("HEARTBEAT", 4)):
            setattr(worker, f"{name}_SECONDS", silent / part)

    async def run() -> None:
        app = made(url, engine, log, name, seconds)
        async with app:
            say("ready", os.getpid())
            await app.work(concurrency=10)

    asyncio.run(run())


def send(url: str, engine: str, entities: int, messages: int, pause: float = 0.0) -> None:
    """Send numbers to entities; what the store refuses is sent again."""

    async def run() -> None:
        app = App(url, engine=Elsewhere() if engine == "embedded" else engine)
        app.entity("e")(_nothing)
        for number in range(messages):
            for entity in range(entities):
                await sent(app, f"e/{entity}", number)
            await asyncio.sleep(pause)
        await app.close()
        say("sent")

    asyncio.run(run())


async def sent(app: App, entity: str, number: int) -> None:
    while True:
        try:
            await app.send(entity, number)
            return
        except Exception as error:
            say("refused", entity, number, type(error).__name__)
            await asyncio.sleep(0.1)


def timers(url: str, engine: str, log: str, name: str) -> None:
    """Be a worker, and nothing else: timers are released by it."""
    work(url, engine, log, name, seconds=0.0)


def die(url: str) -> None:
    """Send to an entity in many children, and let each die before another statement."""
    with open_store(url):
        pass  # the tables are there
    asyncio.run(App(url, engine="procrastinate")._wakes.engine.ready())
    for number in range(60):
        child = os.fork()
        if not child:
            _send_and_die(url, number)
        _, status = os.waitpid(child, 0)
        say("child", number, os.waitstatus_to_exitcode(status))
        if status == 0:
            return


def _send_and_die(url: str, number: int) -> None:
    left = number
    execute, executemany = psycopg.Cursor.execute, psycopg.Cursor.executemany

    def counted(do: Any) -> Any:
        def run(*given: Any, **named: Any) -> Any:
            nonlocal left
            if left == 0:
                os._exit(9)
            left -= 1
            return do(*given, **named)

        return run

    async def run() -> None:
        app = App(url, engine="procrastinate")
        app.entity("e")(_nothing)
        await app._wakes.engine.ready()
        psycopg.Cursor.execute = counted(execute)  # type: ignore[method-assign]
        psycopg.Cursor.executemany = counted(executemany)  # type: ignore[method-assign]
        await app.send(f"e/{number}", "hello")
        os._exit(0)

    asyncio.run(run())


class Elsewhere(Embedded):
    """The engine of a process that sends, and leaves handling to others."""

    def start(self) -> None:
        pass

    def stored(self, session: str, turn: int) -> None:
        pass


async def _nothing(ctx: Ctx, wake: Wake) -> None:
    pass


if __name__ == "__main__":
    {each.__name__: each for each in (work, send, timers, die)}[sys.argv[1]](
        **json.loads(sys.argv[2])
    )
