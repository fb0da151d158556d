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

    from muntin.runtime import active_turn, wakes
    from muntin.runtime.app import App
    from muntin.runtime.ctx import Ctx, Wake
    from muntin.testing import ScriptedModel
    from muntin.timeline import owner, session

    for module in (active_turn, wakes, session):
        module.LEASE = timedelta(seconds=lease)  # type: ignore[attr-defined]
    if foreign:
        machine = f"another-{os.getpid()}"
        owner._machine = lambda: machine  # type: ignore[assignment]

    async def work() -> None:
        app = App(url, model=ScriptedModel(lambda window: f"answered by {os.getpid()}"))

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Wake) -> None:
            note(log, f"begin {ctx.session.id} {wake.payload} {os.getpid()} {time.monotonic()}")
            if die and wake.payload == "poison":
                os.kill(os.getpid(), signal.SIGKILL)
            await asyncio.sleep(takes)
            ctx.use_agent()
            await ctx.agent.run()
            note(log, f"end {ctx.session.id} {wake.payload} {os.getpid()} {time.monotonic()}")

        async with app:
            say("ready")
            await asyncio.to_thread(sys.stdin.read)

    asyncio.run(work())


if __name__ == "__main__":
    globals()[sys.argv[1]](**json.loads(sys.argv[2]))
