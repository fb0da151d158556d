"""What a prompt of 50 contexts costs under a budget that drops 20 of them.

    python bench/prompts.py [--short] [--out FILE]

Two ratios are of times; all else is counted.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import process_time

from pydantic import BaseModel

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.measure import Figure, in_turns, run
from muntin import config, context, prompt
from muntin.core.counting.exact import openai_tokenizer
from muntin.prompts.contexts import Context
from muntin.prompts.definition import Prompt
from muntin.resolver_cache import ResolverCache

TEXT = Path(__file__).parent.parent / "tests" / "data" / "scripts" / "english.txt"
CONTEXTS, DROPPED, CHARACTERS = 50, 20, 800


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


def budget_for(bot: Prompt, dropped: int) -> int:
    """Return the largest budget that drops so many contexts."""
    low, high = 0, bot.inspect_sync(tokenizer="o200k_base").total_tokens
    while high - low > 1:
        middle = (low + high) // 2
        shown = bot.inspect_sync(tokenizer="o200k_base", token_budget=middle)
        low, high = (middle, high) if len(shown.dropped_contexts) >= dropped else (low, middle)
    return low


def counted(work: str, peer: str, ours: float, theirs: float, at_most: float = 1) -> Figure:
    """State how often something was done."""
    return Figure(work=work, peer=peer, ours=ours, theirs=theirs, unit="times", at_most=at_most)


def planning(rounds: int) -> Iterator[Figure]:
    """Measure the search for the cut, and a second resolve against counting once."""
    bot, spy = many(), Spy()
    budget = budget_for(bot, DROPPED)
    shown = bot.inspect_sync(tokenizer=spy, token_budget=budget)
    assert len(shown.dropped_contexts) == DROPPED
    joined = sum("\n\n" in text for text in spy.asked)
    first = len(spy.asked)
    what = f"a prompt of {CONTEXTS} contexts, {DROPPED} dropped"
    with asyncio.Runner() as runner:
        loop = runner.get_loop()

        def resolve() -> object:
            # Not `runner.run`, which writes out its task each time, and so the prompt.
            return loop.run_until_complete(bot.resolve(tokenizer=spy, token_budget=budget))

        resolve()
        again = len(spy.asked) - first
        whole = "\n\n".join(part.text for part in shown.system.parts)
        works: dict[str, Callable[[], object]] = {
            "ours": resolve,
            "all": partial(spy.count_exactly, whole),
            "sent": partial(spy.count_exactly, shown.system.text),
        }
        taken = in_turns(works, rounds, clock=process_time)
    bisection = 2 + math.ceil(math.log2(CONTEXTS))
    yield counted(f"{what}: counts of joined text", "2 + ⌈log2 n⌉", joined, bisection)
    yield counted(f"{what}, again: counts of any text", "the first time", again, first, 0)
    for peer, name, most in (
        ("tiktoken, counting all its text once", "all", 1),
        ("tiktoken, counting the text sent once", "sent", None),
    ):
        yield Figure(
            work=f"{what}, again",
            peer=peer,
            ours=taken["ours"].seconds,
            theirs=taken[name].seconds,
            at_most=most,
        )


async def crowds(crowd: int) -> tuple[int, int]:
    """Count the calls of a cached resolver: warm, ten times; and cold, with a crowd waiting."""
    warm, cold = Slow(), Slow()
    bot, crowded = many(warm), many(cold)
    with config.local(cache=ResolverCache()):
        await bot.resolve({"org": "acme"})
        before = warm.calls
        for _ in range(10):
            await bot.resolve({"org": "acme"})
        await asyncio.gather(*(crowded.resolve({"org": "acme"}) for _ in range(crowd)))
    return warm.calls - before, cold.calls


def measure(short: bool) -> Iterator[Figure]:
    """Measure everything."""
    yield from planning(5 if short else 60)
    crowd = 50 if short else 1_000
    warm, cold = asyncio.run(crowds(crowd))
    yield counted("calls of a resolver whose text is cached", "resolves", warm, 10, 0)
    yield counted("calls of a cold cached resolver", "resolves at once", cold, crowd, 1 / crowd)


if __name__ == "__main__":
    run(__doc__, measure)
