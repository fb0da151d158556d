"""A store as an agent leaves it: recorded conversations, lived again by an App in small windows."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from muntin import Exact, Message
from muntin.core.message import as_message
from muntin.core.planning.slot import Group
from muntin.runtime.app import App
from muntin.testing import ScriptedModel
from muntin.timeline.store import Store, open_store
from tests.paths import TRACES

GUIDE = "Write short sentences. Offer at most three options at a time. " * 12
CABINS = Group("rules", join="\n\n")
LONG = "support/mia-4711"


def traces(count: int) -> list[list[Message]]:
    with TRACES.open(encoding="utf-8") as file:
        found = [json.loads(line)["messages"] for line, _ in zip(file, range(count), strict=False)]
    return [[as_message(each) for each in messages] for messages in found]


class Agent:
    """A strategy with everything a window can show: joined, cut, dropped, excluded, tools."""

    def __init__(self, policy: str) -> None:
        self.policy = policy

    def on_context_build(self, ctx: Any) -> None:
        asked = len(ctx.message.text)
        ctx.slots.add("system", self.policy, priority=100, tier="pinned")
        ctx.slots.add(
            "cabin rules",
            "Basic economy cannot be changed.",
            role="system",
            group=CABINS,
            priority=50,
            tier="stable",
        )
        ctx.slots.add("style guide", GUIDE, role="system", group=CABINS, priority=-1, tier="stable")
        if asked % 3:
            ctx.slots.exclude(
                "vouchers", reason="condition_false", detail="no voucher is asked for"
            )
        else:
            ctx.slots.add("vouchers", "A voucher is worth 50 dollars.", role="system", priority=5)
        found = f"Search results for {ctx.message.text[:60]!r}: " + self.policy[asked * 3 :][:6_000]
        # A larger budget would bring back what left: Exact() begins where it must.
        ctx.slots.add(
            "history", ctx.timeline_messages(), max_ratio=0.55, min_tokens=300, trimming=Exact()
        )
        ctx.slots.add(
            "search", found, priority=3, max_ratio=0.12, trim_behavior="char", keep="head"
        )
        ctx.slots.add("input", ctx.message)


def tools(messages: Sequence[Message]) -> list[Callable[..., str]]:
    """Return functions with the names of the recorded tools, that answer what was recorded."""
    results: Iterator[str] = iter([each.text for each in messages if each.role == "tool"])
    names: dict[str, dict[str, None]] = {}
    for each in messages:
        for call in each.tool_calls:
            names.setdefault(call.name, {}).update(dict.fromkeys(json.loads(call.arguments)))
    return [_tool(name, list(arguments), results) for name, arguments in sorted(names.items())]


def _tool(name: str, arguments: list[str], results: Iterator[str]) -> Callable[..., str]:
    def recorded(**given: Any) -> str:
        return next(results, "done")

    recorded.__name__ = name
    recorded.__doc__ = f"{name.replace('_', ' ').capitalize()}."
    kind = inspect.Parameter.KEYWORD_ONLY
    recorded.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(each, kind, default=None, annotation=Any) for each in arguments]
    )
    return recorded


async def live(
    store: Store, session: str, messages: Sequence[Message], *, budget: int, model: str
) -> None:
    """Have an App live a conversation again."""
    policy, rest = messages[0].text, messages[1:]
    answered = max(n for n, each in enumerate(rest) if each.role == "assistant")
    questions = [each.text for each in rest[:answered] if each.role == "user"]
    answers = iter([each for each in rest if each.role == "assistant"])
    scripted = ScriptedModel(lambda _: next(answers, "Goodbye."), name=model, budget=budget)
    async with App(store, model=scripted, tokenizer="openai/gpt-4o") as app:
        chat = app.conversation(session, strategy=Agent(policy), tools=tools(rest))
        for question in questions:
            await chat.send(question)


def build(url: str) -> str:
    """Fill a store, and return its address."""
    recorded = traces(9)
    long = [recorded[0][0], *(each for trace in recorded[:5] for each in _whole(trace))]
    with open_store(url) as store:
        asyncio.run(live(store, LONG, long, budget=5_000, model="anthropic/claude-sonnet-4-5"))
        for number, trace in enumerate(recorded[5:]):
            budget = (2_600, 4_000, 9_000, 24_000)[number]
            name = ("trips/oslo", "trips/lima", "café/ünïcode ✈", "agent/night-shift")[number]
            model = ("openai/gpt-4o", "scripted", "openai/gpt-4o", "google/gemini-2.5-pro")[number]
            asyncio.run(live(store, name, trace, budget=budget, model=model))
    return url


def _whole(trace: Sequence[Message]) -> Sequence[Message]:
    """Return a trace without its rules, up to its last answer."""
    answered = max(n for n, each in enumerate(trace) if each.role == "assistant")
    return trace[1 : answered + 1]


if __name__ == "__main__":
    import sys

    print(build(sys.argv[1]))
