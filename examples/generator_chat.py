"""A chat agent and a worker: generators, a capability, and a flow that remembers."""

import asyncio
from typing import Any

from pydantic import BaseModel

from muntin import Action, App, Turns, Window, capability, flow, generator
from muntin.testing import ScriptedModel


class Chat(BaseModel):
    message: str


def answer(window: Window) -> str:
    return f"(an answer to {window.messages[-1].text.splitlines()[0]!r})"


# What `functions` returns is `ctx.cap.workspace`, once a turn.
workspace = capability("workspace", functions=lambda ctx: f"notes of {ctx.session.id}")

# The worker: told only what it is to do. The client sees its answer, later turns do not.
worker = generator(
    name="worker",
    prompt="Execute the assigned task.",
    uses=[workspace],
    visibility={"client": True, "history": False},
    user=lambda task, ctx: f"Task: {task}\nWorkspace: {ctx.cap.workspace}",
)


async def research(given: Chat, ctx: Any) -> str:
    return str((await ctx.run(worker, f"look up {given.message!r}")).text)


# The chat agent: `user` here and `user_message` below say the same; the model hears it once.
chat = generator(
    name="chat",
    prompt="You are a helpful assistant.",
    context={"research": research},
    input=Chat,
    history=Turns(8),
    user=lambda given: given.message,
)
app_flow = flow(
    "chat-app",
    actions={"chat": Action(block=chat, input=Chat, user_message=lambda given: given.message)},
)


async def main() -> None:
    async with App("memory:", model=ScriptedModel(answer)) as app:
        for text in ("Which lamps do you sell?", "And candles?"):
            reply = await app_flow.run("chat", {"message": text}, session="s1", app=app)
            print(f"--- {reply.text}, from this window:")
            for message in reply.window.messages:
                print(f"{message.role:9} | {message.text.replace(chr(10), chr(10) + ' ' * 12)}")
        print("\n--- what the client sees of session s1:")
        for item in app.session("s1").items.client():
            if item.message:
                print(f"{item.message.role:9} | {item.message.text}")


asyncio.run(main())
