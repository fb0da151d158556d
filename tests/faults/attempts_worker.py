"""A worker with agents of many steps, plain handlers, and one that ends its process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from muntin.core.parts import ToolCall
from muntin.core.window import Window
from muntin.runtime.app import App
from muntin.runtime.ctx import Ctx, Wake
from muntin.testing import ScriptedModel


def work(
    url: str, engine: str, name: str, steps: int = 0, step: float = 0.2, life: float = 0.5
) -> None:
    """Handle `job` (an agent of so many steps), `plain` (code that writes nothing before it ends)
    and `poison` (which ends the process after a `life` of some seconds)."""
    ran: list[int] = []

    async def look(number: int) -> str:
        """Look up a row."""
        await asyncio.sleep(step)
        return f"row {number} is fine"

    def reply(window: Window) -> Any:
        done = sum(message.role == "tool" for message in window.messages)
        if done == steps:
            return "All rows are fine."
        ran.append(done)
        return ToolCall(f"call-{done}", "look", json.dumps({"number": done}))

    app = App(url, engine=engine, model=ScriptedModel(reply, name=name))

    @app.entity("job")
    async def job(ctx: Ctx, wake: Wake) -> None:
        ctx.insert_context("task", name="Task", content=str(wake.payload))
        ctx.use_agent(tools=[look], max_steps=steps + 1)
        await ctx.agent.run()

    @app.entity("plain")
    async def plain(ctx: Ctx, wake: Wake) -> None:
        ctx.insert_context("task", name="Task", content=str(wake.payload))
        await ctx.insert_context("state", name="State", content="begun")
        await asyncio.sleep(3 * life)

    @app.entity("poison")
    async def poison(ctx: Ctx, wake: Wake) -> None:
        await ctx.insert_context("state", name="State", content="begun")
        await asyncio.sleep(life)
        os._exit(9)

    async def run() -> None:
        async with app:
            print("ready", flush=True)
            looking = asyncio.create_task(app.resume())
            await app.work(concurrency=20)
            await looking

    asyncio.run(run())


if __name__ == "__main__":
    globals()[sys.argv[1]](**json.loads(sys.argv[2]))
