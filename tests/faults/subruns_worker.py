"""A worker whose agent asks another generator in its tools, and in `gather` before that."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
from typing import Any

from pydantic import BaseModel

from muntin.core.parts import ToolCall
from muntin.core.window import Window
from muntin.runtime.app import App
from muntin.runtime.ctx import Ctx, Wake
from muntin.runtime.generators.definition import generator
from muntin.testing import ScriptedModel

PLACES = ["Peru", "Chad", "Laos", "Fiji", "Mali", "Cuba"]


class Question(BaseModel):
    """What the other generator is asked."""

    text: str


def work(url: str, name: str, slow: float = 0.3) -> None:
    """Handle `research` until SIGTERM, which ends it at once, as a deploy does."""
    sub = generator(name="sub", prompt="You answer.", input=Question, user=lambda q: q.text)

    async def reply(window: Window) -> Any:
        if window.messages[0].text == "You answer.":
            await asyncio.sleep(random.uniform(0, slow))
            return f"answer to {window.messages[-1].text}"
        done = sum(message.role == "tool" for message in window.messages)
        if done == len(PLACES):
            return "All are known."
        # Two at once; the ids come again with every answer.
        both = enumerate(PLACES[done : done + 2])
        return [ToolCall(f"call-{n}", "look", json.dumps({"of": place})) for n, place in both]

    app = App(url, model=ScriptedModel(reply, name=name))

    @app.entity("research")
    async def research(ctx: Ctx, wake: Wake) -> None:
        async def look(of: str) -> str:
            """Look up the capital."""
            answer: str = (await ctx.run(sub, Question(text=f"capital of {of}?"))).text
            return answer

        asked = [ctx.run(sub, {"text": f"flag of {place}?"}) for place in PLACES]
        answers = [reply.text for reply in await asyncio.gather(*asked)]
        ctx.insert_context("flags", name="Flags", content=json.dumps(answers))
        ctx.use_agent(tools=[look])
        await ctx.agent.run()

    async def run() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        async with app:
            looking = asyncio.create_task(app.resume())
            print("ready", flush=True)
            await app.work(stop=stop, timeout=0.01)
            looking.cancel()

    asyncio.run(run())


if __name__ == "__main__":
    globals()[sys.argv[1]](**json.loads(sys.argv[2]))
