"""Contexts under pressure: what is dropped, what is excluded, and what a provider changes."""

import asyncio

from pydantic import BaseModel

from muntin import config, context, prompt


class Research(BaseModel):
    synthesis: str = ""


class Brand(BaseModel):
    org_id: str


async def fetch_brand_profile(org_id: str) -> str:
    """Stand in for something slow."""
    print(f"  (fetching the brand of {org_id})")
    return f"## Brand\nWrite as {org_id} does: plainly."


critical = context(id="critical", priority=100, system="## Critical Rules")  # never dropped
guidelines = context(id="guidelines", priority=50, system="## Guidelines\n" + "Be kind. " * 20)
examples = context(id="examples", priority=20, system="## Examples\n" + "Q: ? A: ! " * 40)
research = context(
    id="research",
    input=Research,
    when=lambda input: bool(input.synthesis),  # excluded when no data
    priority=40,  # and droppable under pressure
    system=lambda input: f"## Research\n{input.synthesis}",
)
brand = context(
    id="brand-voice",
    input=Brand,
    system=lambda input: fetch_brand_profile(input.org_id),
    cache=300_000,  # five minutes
)
bot = prompt(
    use=[critical, examples, guidelines, research, brand],
    system="You are a helpful assistant.",
    prompt="What is a muntin?",
    adapt={
        "anthropic": {"append_system": "\nReturn raw JSON, no markdown fences."},
        "openai": {"prepend_prompt": "Think step by step.\n\n", "settings": {"temperature": 0.1}},
        "*": {"append_system": "\nRespond with valid JSON only."},
    },
)


async def main() -> None:
    """Look at the same prompt under two budgets and for two providers."""
    for provider, budget, synthesis in [("anthropic", 400, "Bars."), ("openai", 100, "")]:
        shown = await bot.inspect(
            {"org_id": "acme", "synthesis": synthesis}, provider=provider, token_budget=budget
        )
        print(f"{provider}: {shown}")
        print(f"  prompt: {shown.prompt!r}, settings: {dict(shown.settings)}\n")


with config.local(tokenizer="openai/gpt-4o"):  # or any function from text to a number
    asyncio.run(main())
