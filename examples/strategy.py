"""A strategy: a module of one function decides, every turn, what the model is shown."""

import asyncio
from typing import Any

from muntin import App, ToolCall, Window
from muntin.runtime import Ctx
from muntin.testing import ScriptedModel


class Brief:
    """Rules, the recent past in half of the window at most, the question."""

    async def on_context_build(self, ctx: Ctx) -> Any:
        """Compose the window of one turn."""
        ctx.slots.add("system", "You are a helpful assistant.", role="system", priority=100)
        ctx.slots.add("history", ctx.history.recent(10), trim_behavior="message", max_ratio=0.5)
        ctx.slots.add("input", ctx.input)
        return ctx.slots.render()

    def on_turn_end(self, ctx: Ctx) -> None:
        """Remember what should outlive the history."""
        if "my name is" in ctx.message.text:
            name = ctx.message.text.rpartition(" ")[2].rstrip(".")
            ctx.insert_context("user", name="User", content=name)


def weather(city: str) -> str:
    """Look up the weather of a city."""
    return f"{city}: " + "grey, then a little less grey, " * 6


def answer(window: Window) -> Any:
    """Play the model: call a tool when asked for the weather, else count what is there."""
    if window.messages[-1].role == "user" and "weather" in window.messages[-1].text:
        return ToolCall("c1", "weather", '{"city": "Bonn"}')
    return f"I see {len(window.messages)} messages, {window.tokens} tokens."


async def main() -> None:
    """Talk for some turns, in a window that soon is too small."""
    model = ScriptedModel(answer, budget=340)
    async with App("memory:", model=model) as app:
        chat = app.conversation("c1", strategy=Brief(), tools=[weather])
        for text in (
            "Hello, my name is Ada.",
            "How is the weather in Bonn?",
            "And what should I wear?",
            "Thank you. What did we talk about?",
        ):
            reply = await chat.send(text)
            print(f"> {text}\n{reply.text}\n")
        print(f"remembered: {[entry.content for entry in chat.session.list_context()]}\n")
        print(model.windows[-1].report)


asyncio.run(main())
