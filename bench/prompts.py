"""What a prompt of 50 contexts costs under a budget that drops 20 of them.

Run `python bench/prompts.py` for a Markdown table, with `--json` for the same as JSON. Times are
compared within one run, so that only their ratio counts; all else is counted, not timed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from muntin import config, context, prompt
from muntin.core.exact import openai_tokenizer
from muntin.prompts.cache import ResolverCache
from muntin.prompts.context import Context
from muntin.prompts.prompt import Prompt

TEXT = Path(__file__).parent.parent / "tests" / "data" / "scripts" / "english.txt"
CONTEXTS, DROPPED, CHARACTERS = 50, 20, 800
CONCURRENT = 1_000

T = TypeVar("T")


class Tenant(BaseModel):
    """What the cached context declares."""

    org: str


class Spy:
    """The exact tokenizer, remembering what it was asked."""

    name = "o200k_base, spied on"
    message_overhead = 0

    def __init__(self) -> None:
        self.count_exactly = openai_tokenizer("o200k_base").count
        self.asked: list[str] = []

    def count(self, text: str) -> int:
        """Count a text, and remember that it was counted."""
        self.asked.append(text)
        return self.count_exactly(text)


class Slow:
    """A resolver that lets others go first, and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, input: Tenant) -> str:
        """Return a text after a while."""
        self.calls += 1
        await asyncio.sleep(0.001)
        return f"The brand of {input.org}."


@dataclass(frozen=True)
class Row:
    """One fact: what was measured, and the bound it must keep, if any."""

    what: str
    value: float
    bound: float | None = None
    holds: bool | None = None


def texts() -> list[str]:
    """Return a text for each context, all of one length and none with a blank line in it."""
    source = " ".join(TEXT.read_text(encoding="utf-8").split())
    return [source[n * CHARACTERS : (n + 1) * CHARACTERS].strip() for n in range(CONTEXTS)]


def contexts() -> list[Context]:
    """Return the contexts, of mixed priorities."""
    return [
        context(id=f"c{n}", priority=n * 37 % 100, system=text) for n, text in enumerate(texts())
    ]


def many(resolver: Slow | None = None) -> Prompt:
    """Return the prompt; with a resolver, one more context is cached."""
    brand = resolver and context(
        id="brand", priority=100, input=Tenant, system=resolver, cache=300_000
    )
    return prompt(system="You are an assistant.", use=[*contexts(), brand])


async def budget_for(bot: Prompt, dropped: int) -> int:
    """Return the largest budget that drops so many contexts."""
    low, high = 0, (await bot.inspect(tokenizer="o200k_base")).total_tokens
    while high - low > 1:
        middle = (low + high) // 2
        shown = await bot.inspect(tokenizer="o200k_base", token_budget=middle)
        low, high = (middle, high) if len(shown.dropped_contexts) >= dropped else (low, middle)
    return low


async def best(work: Callable[[], Awaitable[T]], repeats: int = 30) -> float:
    """Return the seconds of the fastest of several runs."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        await work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def at_most(what: str, value: float, bound: float) -> Row:
    """State a fact that holds while the value is not above the bound."""
    return Row(what, value, bound, value <= bound)


async def planning() -> list[Row]:
    """Measure the search for the cut, and a second resolve against counting once."""
    bot, spy = many(), Spy()
    budget = await budget_for(bot, DROPPED)
    shown = await bot.inspect(tokenizer=spy, token_budget=budget)
    joined = sum("\n\n" in text for text in spy.asked)
    first = len(spy.asked)

    whole = "\n\n".join(part.text for part in shown.system.parts)

    async def count() -> int:
        return spy.count_exactly(whole)

    async def count_sent() -> int:
        return spy.count_exactly(shown.system.text)

    async def resolve() -> object:
        return await bot.resolve(tokenizer=spy, token_budget=budget)

    planned, counted, sent = await best(resolve), await best(count), await best(count_sent)
    return [
        at_most("contexts dropped", len(shown.dropped_contexts), DROPPED),
        at_most("counts of joined text", joined, 2 + math.ceil(math.log2(CONTEXTS))),
        at_most("counts in a second resolve", len(spy.asked) - first, 0),
        at_most("second resolve / counting all its text once", planned / counted, 1),
        Row("second resolve / counting the text sent once", planned / sent),
    ]


async def caching() -> list[Row]:
    """Count the calls of a cached resolver: warm, and cold with a crowd waiting."""
    warm, cold = Slow(), Slow()
    bot, crowded = many(warm), many(cold)
    with config(cache=ResolverCache()):
        await bot.resolve({"org": "acme"})
        before = warm.calls
        for _ in range(10):
            await bot.resolve({"org": "acme"})
        await asyncio.gather(*(crowded.resolve({"org": "acme"}) for _ in range(CONCURRENT)))
    return [
        at_most("calls of a resolver whose text is cached", warm.calls - before, 0),
        at_most(f"calls of a cold resolver, {CONCURRENT:,} at once", cold.calls, 1),
    ]


async def measure() -> list[Row]:
    """Measure everything."""
    return [*await planning(), *await caching()]


def table(rows: Sequence[Row]) -> str:
    """Render the measurement as a Markdown table."""
    lines = ["| What | Measured | At most | |", "| --- | ---: | ---: | --- |"]
    for row in rows:
        mark = {True: "pass", False: "FAIL", None: ""}[row.holds]
        bound = "-" if row.bound is None else f"{row.bound:.3g}"
        lines.append(f"| {row.what} | {row.value:.3g} | {bound} | {mark} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    rows = asyncio.run(measure())
    print(json.dumps([asdict(row) for row in rows], indent=2) if options.json else table(rows))


if __name__ == "__main__":
    main()
