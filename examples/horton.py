"""Horton, an entity of three sources: two wakes, and a fact noted in the first."""

import asyncio
from typing import Any

from muntin import App, Source, ToolCall, Wake, Window
from muntin.runtime import Ctx
from muntin.testing import ScriptedModel

DOCS = {
    "config": "thing.toml holds the settings. " * 40,
    "theme": "theme = 'dark' or 'light' in thing.toml. " * 20,
}
TOC = "# Docs\n" + "\n".join(f"- {name}: {text[:40]}" for name, text in DOCS.items())


def search(question: str) -> str:
    """Give the pages that a question names."""
    return "\n".join(DOCS[name] for name in DOCS if name in question)


def script(window: Window) -> Any:
    """Play the model: note what the user likes, else say what is to be seen."""
    if "I like" in window.messages[-1].text:
        return ToolCall("c1", "remember", '{"fact": "likes it dark"}')
    facts = [m.text for m in window.messages if m.text.startswith("<context-entry")]
    return f"(I see {len(window.messages)} messages and these facts: {facts})"


app = App("memory:", model=(model := ScriptedModel(script)))


@app.entity("horton")
async def horton(ctx: Ctx, wake: Wake) -> None:
    """Answer whoever wrote."""

    def remember(fact: str) -> str:
        """Remember a fact."""
        ctx.insert_context("taste", name="Taste", content=fact)
        return "remembered"

    sources = {
        "docs_toc": Source(TOC, max=300, cache="stable"),
        "retrieved_docs": Source(lambda: search(str(wake.payload)), max=200, cache="volatile"),
        "conversation": Source(ctx.timeline_messages, max=900, cache="volatile"),
    }
    ctx.use_context(source_budget=1_800, sources=sources)
    ctx.use_agent(system_prompt="You are a helpful assistant.", tools=[remember])
    await ctx.agent.run()


async def main() -> None:
    """Wake Horton twice, and show the last window."""
    async with app:
        for text in ("What is the theme? I like it dark.", "And where is the config?"):
            reply = await app.ask("horton/42", text)
            print(f"> {text}\n{reply.text if reply else None}\n")
    for message in model.windows[-1].messages:
        print(f"{message.role:9} | {message.text[-100:] or message.tool_calls[0].name!r}")
    print(f"\n{model.windows[-1].report}")


asyncio.run(main())
