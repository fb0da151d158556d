"""Processes that the tests of faults start, stop, pause and kill.

What happens is said on standard output at once, one line each.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from typing import Any


def say(*words: object) -> None:
    print(*words, flush=True)


def note(log: str, line: str) -> None:
    """Write a line for all processes to see, at once."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def skew(seconds: float) -> None:
    """Have every wall clock of this process go wrong by so many seconds."""
    import datetime as module

    real, now, now_ns = module.datetime, time.time, time.time_ns

    class Skewed(real):  # type: ignore[valid-type, misc]
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return real.now(tz) + module.timedelta(seconds=seconds)

    module.datetime = Skewed  # type: ignore[misc]
    time.time = lambda: now() + seconds
    time.time_ns = lambda: now_ns() + int(seconds * 1e9)


def take(url: str, skewed: float) -> None:
    """Try to take the turns of two sessions by a clock that is wrong."""
    skew(skewed)
    from datetime import timedelta

    from muntin.timeline.store import open_store

    with open_store(url) as store:
        for session in ("s", "t"):
            say(session, store.take(session, "me", timedelta(seconds=60), resumable=True))


def handle(
    url: str,
    log: str,
    lease: float = 60,
    takes: float = 0,
    skewed: float = 0,
    die: bool = False,
    foreign: bool = False,
) -> None:
    """Handle the entities of type "e" until standard input is closed.

    `takes` is how long a wake takes, `die` kills the process in the middle of one. A `foreign`
    process looks as if it were on another machine.
    """
    if skewed:
        skew(skewed)
    from datetime import timedelta

    from muntin.runtime import entity_runner, turn
    from muntin.runtime.app import App
    from muntin.runtime.ctx import Ctx, Wake
    from muntin.testing import ScriptedModel
    from muntin.timeline import owner, session

    for module in (turn, entity_runner, session):
        module.LEASE = timedelta(seconds=lease)  # type: ignore[attr-defined]
    if foreign:
        machine = f"another-{os.getpid()}"
        owner._machine = lambda: machine  # type: ignore[assignment]

    async def work() -> None:
        app = App(url, model=ScriptedModel(lambda window: f"answered by {os.getpid()}"))
        at_work: set[str] = set()

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Wake) -> None:
            note(log, f"begin {ctx.session.id} {wake.payload} {os.getpid()} {time.monotonic()}")
            if die and wake.payload == "poison":
                # What the process does beside it is done, or it would be given up as well.
                while at_work:
                    await asyncio.sleep(0.05)
                await asyncio.sleep(0.2)
                os.kill(os.getpid(), signal.SIGKILL)
            at_work.add(ctx.session.id)
            await asyncio.sleep(takes)
            ctx.use_agent()
            await ctx.agent.run()
            note(log, f"end {ctx.session.id} {wake.payload} {os.getpid()} {time.monotonic()}")
            at_work.discard(ctx.session.id)

        async with app:
            say("ready")
            await asyncio.to_thread(sys.stdin.read)

    asyncio.run(work())


def send_as_nobody(url: str) -> None:
    """Try to send, through every interface, as a user whom permissions bind, which root is not."""
    from muntin.errors import StoreError
    from muntin.runtime.app import App
    from muntin.runtime.ctx import Ctx, Wake
    from muntin.testing import ScriptedModel

    async def run() -> None:
        app = App(url, model=ScriptedModel(lambda window: "Yes."))

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Wake) -> None:
            pass

        calls = {
            "send": lambda: app.conversation("c").send("hello"),
            "app.send": lambda: app.send("e/1", "hello"),
            "ask": lambda: app.ask("e/1", "hello"),
            "wake": lambda: app.wake("e/1", "hello", after=1),
        }
        for name, call in calls.items():
            began = time.monotonic()
            try:
                await call()
                say(name, "went through")
            except StoreError as error:
                say(name, f"{time.monotonic() - began < 30}", error)
        await app.close()

    import tempfile

    if os.geteuid() == 0:
        with tempfile.TemporaryDirectory() as folder:  # imports what nobody may read
            warm = App(f"sqlite:///{folder}/s.db", model=ScriptedModel(lambda window: "Yes."))
            asyncio.run(warm.conversation("c").send("hello"))
        os.seteuid(65534)
    asyncio.run(run())


def send_to_a_slow_disk(
    url: str, name: str, senders: int, messages: int, commit: float, sent: str
) -> None:
    """Send from many tasks at once, and handle it all, to a store whose commits take so long.

    The file `sent` grows by a byte with every message that any process has sent. Says how many
    were sent during the slowest call.
    """
    from muntin.runtime.app import App
    from muntin.runtime.ctx import Ctx, Wake
    from muntin.timeline.store.sql.database import Database
    from muntin.timeline.store.sql.transaction import Transaction

    transact = Database.transact

    def slow(self: Database, work: Any) -> Any:
        def held(tx: Transaction) -> Any:
            done = work(tx)
            time.sleep(commit)
            return done

        return transact(self, held)

    async def run() -> None:
        app = App(url)
        file = os.open(sent, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Wake) -> None:
            pass

        slowest = 0

        async def sends(entity: str) -> None:
            nonlocal slowest
            for number in range(messages):
                before = os.fstat(file).st_size
                await app.send(entity, number)
                slowest = max(slowest, os.fstat(file).st_size - before)
                os.write(file, b".")

        say("ready")
        sys.stdin.readline()
        await asyncio.gather(*(sends(f"e/{name}-{number}") for number in range(senders)))
        say(slowest)
        while app.store.backlog() != Backlog():
            await asyncio.sleep(0.1)
        await app.close()

    from muntin.timeline.items import Backlog

    Database.transact = slow  # type: ignore[method-assign]
    asyncio.run(run())


if __name__ == "__main__":
    globals()[sys.argv[1]](**json.loads(sys.argv[2]))
