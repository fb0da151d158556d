"""The prefix through the doors: what reports claim is what the requests share, and where the
marks stand."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from muntin import (
    App,
    CacheOptions,
    Profile,
    Source,
    Tool,
    ToolCall,
    Window,
    context,
    generator,
    prompt,
)
from muntin.core.message import assistant
from muntin.core.report import Reported, reported_words
from muntin.providers.model import Reply, Usage
from muntin.runtime import Ctx
from muntin.testing import ScriptedModel
from tests.interfaces import DURABLE
from tests.products import THREE, sample
from tests.wire.test_shared import MODELS, check, size
from tests.wire.windows import encode
from tests.words import texts

CLAUDE = "anthropic/claude-sonnet-4-5"
RULES = "Answer in one short sentence, and be kind. " * 150
FOUND = "Found for {}: the paper says so. " + "It says more. " * 60


def look(place: str) -> str:
    """Look at a place."""
    return f"All about {place}. " * 120


def script() -> Any:
    """Answer every turn with two calls one after another, then with a text."""
    step = 0

    def answer(window: Window) -> Any:
        nonlocal step
        step += 1
        if step % 3:  # written as the encoders write it: the measure counts characters
            return ToolCall(f"c{step}", "look", f'{{"place":"p{step}"}}')
        return f"Answer {step}. " * 30

    return answer


@pytest.mark.parametrize("door", sample(DURABLE, *THREE))
@pytest.mark.parametrize("provider", MODELS)
def test_reports_claim_what_the_requests_of_a_door_share(
    door: str, provider: str, tmp_path: Path
) -> None:
    name = MODELS[provider][-1]
    asked = ScriptedModel(script(), name=name, budget=60_000)

    async def run() -> None:
        for turn in range(3):
            # A new process every turn: what is known of the window before comes from the store.
            async with App(f"sqlite:///{tmp_path}/a.db", model=asked, tokenizer=size) as app:
                await DURABLE[door](app, asked, f"Question {turn}? " * 60, [Tool(look)])

    asyncio.run(run())
    caching = Profile.for_model(name).caching
    assert caching is not None
    assert len(asked.windows) == 9
    pairs = list(zip(asked.windows, asked.windows[1:], strict=False))
    for previous, window in pairs:
        check(window, previous, provider, caching)
    claims = [window.report.prefix for _, window in pairs]
    assert any(claim is not None and claim.tokens for claim in claims)


def marked(window: Window) -> list[str]:
    """Return the texts that carry a mark on Anthropic, in the order they are sent."""
    request = encode(window, "anthropic")
    found = [*request.get("system", ())]
    found += [block for message in request["messages"] for block in message["content"]]
    return [str(block.get("text")) for block in found if "cache_control" in block]


def ask(made: Any, turns: int = 3, *, name: str = CLAUDE) -> list[Window]:
    asked = ScriptedModel(lambda _: "It is so. " * 20, name=name, budget=20_000)

    async def run() -> None:
        async with App("memory:", model=asked) as app:
            for turn in range(turns):
                await made(app, f"{turn}: what is said of it?")

    asyncio.run(run())
    return asked.windows


@pytest.mark.parametrize("role", ["system", "user"])
def test_retrieved_text_stands_behind_the_mark_in_a_strategy(role: str) -> None:
    class Retrieving:
        async def on_context_build(self, ctx: Ctx) -> None:
            slots: Any = ctx.slots
            slots.add("rules", RULES, role="system", priority=100)
            slots.add("history", ctx.timeline_messages())
            slots.add("found", FOUND.format(ctx.message), role=role)
            slots.add("input", ctx.message)

    async def send(app: App, text: str) -> None:
        await app.conversation("c", strategy=Retrieving()).send(text)

    for window in ask(send):
        assert marked(window)
        assert not any(text.startswith(("Found", "2:")) for text in marked(window))


def test_retrieved_text_stands_behind_the_mark_among_sources() -> None:
    async def send(app: App, text: str) -> None:
        kind = f"e{text[0]}"

        @app.entity(kind)
        async def handler(ctx: Ctx, wake: Any) -> None:
            ctx.use_context(
                source_budget=8_000,
                sources={
                    "listed": Source(lambda: [{"role": "user", "content": FOUND.format(text)}]),
                    "found": Source(lambda: FOUND.format(text)),
                    "rules": Source(RULES, max=3_000, cache="stable"),
                },
            )
            ctx.use_agent()
            await ctx.agent.run()

        await app.ask(f"{kind}/1", text)

    for window in ask(send):
        assert marked(window) == [RULES]


MOVE_IT = (
    "slot 'context' changes from request to request and stands before content that could be "
    "cached; move it behind the history if you can"
)


def changing(place: Any, name: str) -> list[Window]:
    made = generator(
        prompt="Be brief.",
        context=[
            {"found": lambda given: FOUND.format(given), "rules": RULES},
            lambda given: f"Now: {given}",
            "This stays.",
        ],
        history=True,
        user=lambda given: given,
        place=place,
    )

    async def send(app: App, text: str) -> None:
        await made.run(text, app=app, session="s")

    return ask(send, name=name)


@pytest.mark.parametrize("name", [CLAUDE, "openai/gpt-5", "some/unknown", "scripted"])
def test_the_context_of_a_generator_stands_in_the_authors_order_on_every_model(name: str) -> None:
    for turn, window in enumerate(changing("front", name)):
        text = f"{turn}: what is said of it?"
        found, rules = (f"<{tag}>\n{{}}\n</{tag}>" for tag in ("found", "rules"))
        block = f"Be brief.\n\n{found.format(FOUND.format(text))}\n{rules.format(RULES)}"
        assert texts(window)[:3] == [block, f"Now: {text}", "This stays."]
        is_cached = name in (CLAUDE, "openai/gpt-5")
        assert window.report.warnings == ((MOVE_IT,) if is_cached else ())
        if name == CLAUDE:
            assert marked(window) == []  # nothing stands before what changes


@pytest.mark.parametrize("name", [CLAUDE, "openai/gpt-5", "some/unknown"])
def test_a_generator_may_put_what_changes_behind_the_history(name: str) -> None:
    windows = changing("behind", name)
    for turn, window in enumerate(windows):
        said = texts(window)
        assert said[0].startswith("Be brief.\n\n<rules>")
        assert said[1] == "This stays."
        place = next(n for n, text in enumerate(said) if text.startswith("<found>"))
        assert said[place + 1].startswith("Now:")
        assert place == 2 + 2 * turn
        assert window.report.warnings == ()
        if name == CLAUDE:
            assert "This stays." in marked(window)
            assert not any(text.startswith(("<found>", "Now:")) for text in marked(window))
    assert name != CLAUDE or len(marked(windows[-1])) == 2


def test_the_place_of_what_changes_is_front_or_behind() -> None:
    with pytest.raises(Exception, match="place must be 'front' or 'behind', not 'top'"):
        generator(prompt="x", place="top")  # type: ignore[arg-type]


def test_cached_contexts_of_a_prompt_are_a_block_with_the_others_behind_it() -> None:
    """What changes stands last; the mark stands at the end of what is to be cached."""
    made = prompt(
        system="Be brief.",
        use=[
            context(id="found", system=lambda: FOUND.format("it")),
            context(id="rules", system=lambda: RULES, cache=CacheOptions()),
            context(id="tone", system="Be kind."),
        ],
        prompt="What is said of it?",
    )
    both = made.resolve_sync(provider="anthropic", model_id="claude-sonnet-4-5")
    cached, others = f"Be brief.\n\n{RULES}", f"Be kind.\n\n{FOUND.format('it')}"
    assert texts(both.window) == [cached, others, "What is said of it?"]
    assert marked(both.window) == [cached]
    assert both.system == f"{cached}\n\n{others}"
    assert not both.window.over_budget
    # One message where no mark can be set, in the same order.
    openai = made.resolve_sync(provider="openai", model_id="gpt-5")
    assert openai.system == both.system
    assert texts(openai.window) == [both.system, "What is said of it?"]


def test_what_the_provider_read_stands_beside_the_claim_and_is_kept() -> None:
    asked = ScriptedModel(
        lambda window: Reply(
            assistant("Yes. " * 300),
            usage=Usage(input=window.tokens, output=3, cache_read=7, cache_write=5),
            window=window,
        ),
        name=CLAUDE,
        budget=20_000,
    )

    async def run() -> list[dict[str, Any]]:
        async with App("memory:", model=asked) as app:
            chat = app.conversation("c")
            for _ in range(3):
                await chat.send("So? " * 600)
            return [json.loads(each.report)["prefix"] for each in app.store.reports("c")]

    kept = asyncio.run(run())
    last = asked.windows[-1]
    assert last.report.prefix is not None
    assert last.report.prefix.reported == Reported(last.tokens, 7, 5)
    assert kept[-1]["reported"] == {"input": last.tokens, "read": 7, "written": 5}
    assert kept[-1]["tokens"] == last.report.prefix.tokens > 1_000
    told = str(last.report)
    missing = last.report.prefix.tokens - 7
    assert f"{missing:,} that are shared with the request before were not read" in told


def test_the_difference_is_told_in_words_only_where_there_is_one() -> None:
    assert reported_words(4_000, Reported(4_100, 3_950)) == (
        "the provider read 3,950 of 4,100 tokens from its cache"
    )
    assert reported_words(4_000, Reported(4_100, 0)).endswith(
        ": 4,000 that are shared with the request before were not read"
    )
    assert reported_words(1_000, Reported(4_100, 3_000)).endswith(
        ", 2,000 more than are shared with the request before"
    )
