"""Many authors, one block: a generator and its capabilities write into the same tags."""

import asyncio
from typing import Any

from muntin import capability, generator, when
from muntin import context as make_context
from muntin.testing import ScriptedModel

BOOKS = {"lamps": ["Edison, 1880", "Swan <sic>, 1881"], "candles": ["Faraday, 1861"]}


async def search(topic: str) -> dict[str, Any]:
    """Stand in for a search engine."""
    await asyncio.sleep(0.01)
    return {"documents": BOOKS[topic]}


library = capability("library", presets={"defaults": {"context": search}})
memory = capability(
    "memory",
    presets={
        "recent": {"context": {"memory": {"shortTerm": lambda topic: f"asked about {topic}"}}},
        "facts": {"context": {"memory": {"long_term": ["Ann likes short answers."]}}},
    },
    uses=[library],  # stands before it, and is there once
)
archive = capability("archive", presets={"defaults": {"context": {"documents": "Sealed."}}})
rules = make_context(id="rules", priority=100, system="Quote titles exactly.")

assistant = generator(
    name="assistant",
    prompt="You are a research assistant.",
    context=[
        {"memory": None, "documents": "The house catalogue."},  # memory stands first
        when(lambda: True, rules),
        "Plain texts follow the block, <as they are>.",
    ],
    uses=[memory, library, lambda ctx: [archive] if ctx.input == "lamps" else []],
    user=lambda topic: f"What do we have on {topic}?",
)


async def main() -> None:
    model = ScriptedModel(lambda window: "Two books.")
    window = await assistant.window("lamps", model=model)
    for message in window.messages:
        print(f"--- {message.role}\n{message.text}")
    print("\nwithout the facts, and on another topic:\n")
    smaller = generator(uses=[memory.presets(facts=False)], context={"documents": "Catalogue."})
    print((await smaller.window("candles", model=model)).messages[0].text)
    print(f"\n{window.report}")
    try:
        generator(name="wrong", context={"role": "Analyst"})
    except ValueError as error:
        print(f"\n{error}")


asyncio.run(main())
