"""Rules as they were published, and conversations of equal turns."""

from __future__ import annotations

from muntin import Message, assistant, system, user
from muntin.core.profile import Caching
from muntin.simulator import Block, simulate_trace

# https://platform.claude.com/docs/en/build-with-claude/prompt-caching: Sonnet 4.5
CLAUDE = Caching(1_024, 1.25, 0.1, breakpoints=4, lookback=20, ttl=300)


# https://developers.openai.com/api/docs/guides/prompt-caching: before and since GPT-5.6
GPT_5 = Caching(1_024, 1.0, 0.1, granularity=128, ttl=300)


GPT_56 = Caching(1_024, 1.25, 0.1, breakpoints=4, ttl=1_800)


def blocks(*sizes: int, start: int = 0) -> tuple[Block, ...]:
    return tuple(Block(start + number, size) for number, size in enumerate(sizes))


def chat(turns: int, size: int = 100) -> list[Message]:
    """A conversation of equal turns, system text in front."""
    messages = [system("s" * 1_024)]
    for turn in range(turns):
        messages += [user(f"{turn:>{size}}"), assistant(f"{turn:<{size}}")]
    return messages


def replayed(messages, budget=2_500, **options):
    options = {"caching": CLAUDE, "tokenizer": len, "policies": ("exact", "full"), **options}
    return simulate_trace(messages, budget=budget, model="anthropic/claude-sonnet-4-5", **options)
