"""No request of a prompt is larger than its budget: the model's window, or the one asked for."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from muntin import (
    App,
    Budget,
    BudgetExceeded,
    InvalidInput,
    ToolCall,
    config,
    context,
    flow,
    generate,
    generate_sync,
    generator,
    prompt,
    system,
    user,
)
from muntin.prompts import stream_generate
from muntin.runtime import Action, Ctx
from muntin.testing import ScriptedModel
from tests.products import PRICED, UNKNOWN

SCHEMA = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
LONG = "word " * 400_000


def look() -> str:
    """Look."""
    return "r" * 500


# Literal cases: one token a character, where nothing else is said.


def test_a_prompt_of_400_000_tokens_is_not_sent_whatever_the_token_budget():
    model = ScriptedModel(["never"], name="openai/gpt-4o")
    bot = prompt(system="You are an assistant.", prompt=LONG)
    with pytest.raises(BudgetExceeded) as caught:
        generate_sync(bot, model=model, token_budget=100)
    assert caught.value.available == 128_000
    assert caught.value.needed > 400_000
    assert "'user'" in str(caught.value)
    assert not model.windows


@pytest.mark.parametrize("asked", [LONG, prompt(messages=[user(LONG)]), prompt(prompt=LONG)])
def test_the_models_own_budget_holds_in_every_form(asked):
    model = ScriptedModel(["never"], budget=1_000, name=PRICED)
    with pytest.raises(BudgetExceeded) as caught:
        generate_sync(asked, model=model)
    assert caught.value.available == 1_000
    assert not model.windows


def test_a_model_that_nothing_is_known_of_has_the_budget_of_all_interfaces():
    model = ScriptedModel(["never"], name=UNKNOWN)
    with pytest.raises(BudgetExceeded) as caught:
        generate_sync(LONG, model=model, tokenizer=len)
    assert (caught.value.needed, caught.value.available) == (2_000_000, 128_000)


def test_a_budget_that_is_asked_for_wins_over_the_models():
    model = ScriptedModel(["yes"], budget=9, name=PRICED)
    assert generate_sync("0123456789", model=model, budget=10, tokenizer=len).text == "yes"
    for budget in (9, Budget(10, reserved_tokens=1)):
        with pytest.raises(BudgetExceeded) as caught:
            generate_sync("0123456789", model=model, budget=budget, tokenizer=len)
        assert (caught.value.needed, caught.value.available) == (10, 9)
    assert len(model.windows) == 1


def test_under_the_budget_of_the_request_contexts_go_by_priority():
    bot = prompt(
        use=[context(id=c, system=c * 10, priority=n) for n, c in enumerate("abc")],
        system="own",
        prompt="p" * 20,
    )
    model = ScriptedModel(["yes"] * 2, name=PRICED)
    generate_sync(bot, model=model, budget=47, tokenizer=len)
    generate_sync(bot, model=model, budget=46, token_budget=1_000, tokenizer=len)
    texts = [window.messages[0].text for window in model.windows]
    assert texts == ["own\n\n" + "b" * 10 + "\n\n" + "c" * 10, "own\n\n" + "c" * 10]
    assert all(window.messages[1] == user("p" * 20) for window in model.windows)
    shown = bot.inspect_sync(budget=46, token_budget=1_000, tokenizer=len)
    assert [each.source for each in shown.dropped_contexts] == ["context:a", "context:b"]
    assert not shown.over_budget


def test_pinned_text_beyond_the_token_budget_is_flagged_whatever_the_budget():
    bot = prompt(system="s" * 50, prompt="p" * 300)
    assert bot.inspect_sync(token_budget=40, budget=350, tokenizer=len).over_budget
    assert bot.inspect_sync(token_budget=40, budget=349, tokenizer=len).over_budget
    assert not bot.inspect_sync(token_budget=50, budget=350, tokenizer=len).over_budget


def test_tools_are_part_of_the_request():
    bot = prompt(prompt="p" * 20, tools=[SCHEMA])
    whole = bot.resolve_sync(tokenizer=len).window.tokens
    assert whole > 20
    model = ScriptedModel(["yes"], name=PRICED)
    generate_sync(bot, model=model, budget=whole, tokenizer=len)
    with pytest.raises(BudgetExceeded, match="the tools"):
        generate_sync(bot, model=model, budget=whole - 1, tokenizer=len)
    assert len(model.windows) == 1


def test_a_run_that_grows_beyond_the_budget_ends_before_it_is_sent():
    model = ScriptedModel([ToolCall("c1", "look", "{}"), "never"], name=PRICED)
    with pytest.raises(BudgetExceeded, match=r"'run'.*'look' 64 of 500"):
        generate_sync("go", model=model, tools=[look], budget=160, tokenizer=len)
    assert len(model.windows) == 1
    # A little more room, and the beginning and the end of the result are shown.
    model = ScriptedModel([ToolCall("c1", "look", "{}"), "done"], name=PRICED)
    generate_sync("go", model=model, tools=[look], budget=400, tokenizer=len)
    assert "tokens left out" in model.windows[1].messages[-1].text


def test_resolve_and_inspect_know_the_window_of_the_model_they_are_told():
    bot = prompt(prompt=LONG)
    known: dict[str, Any] = {"provider": "anthropic", "model_id": "claude-sonnet-4-5"}
    assert bot.inspect_sync(**known).over_budget
    with pytest.raises(BudgetExceeded):
        bot.resolve_sync(**known).window.anthropic()
    assert not bot.inspect_sync(provider="anthropic").over_budget  # no model, no window
    assert not bot.inspect_sync().over_budget


@pytest.mark.parametrize("budget", [-1, 1.5, "many", True])
def test_a_budget_that_is_none_is_refused(budget):
    model = ScriptedModel(["never"], name=PRICED)
    with pytest.raises(InvalidInput, match=r"budget|Budget"):
        generate_sync("go", model=model, budget=budget)
    with pytest.raises(InvalidInput, match=r"budget|Budget"):
        prompt(prompt="go").inspect_sync(budget=budget)


class City(BaseModel):
    """A city."""

    name: str = Field(description="as the people there say " * 20)


FORM = len(json.dumps(City.model_json_schema(), separators=(",", ":")))


def test_the_schema_of_an_answer_is_part_of_the_request():
    bot = prompt(use=[context(id="notes", system="n" * 300)], system="s" * 20, prompt="q" * 10)
    for budget, status in ((FORM + 332, "kept"), (FORM + 331, "dropped")):
        model = ScriptedModel(['{"name": "Bonn"}'], budget=budget, name=PRICED)
        reply = generate_sync(bot, model=model, output=City, tokenizer=len)
        assert reply.window is not None
        assert reply.window.report["context:notes"].status == status
        assert reply.window.tokens + FORM <= budget
    with pytest.raises(BudgetExceeded) as caught:
        generate_sync(
            "q" * 10, model=ScriptedModel([], budget=FORM, name=PRICED), output=City, tokenizer=len
        )
    assert (caught.value.needed, caught.value.available) == (FORM + 10, FORM)


def test_the_schema_of_an_answer_counts_in_a_generator_too():
    model = ScriptedModel(['{"name": "Bonn"}'], budget=FORM + 100, name=PRICED)
    notes = {"notes": "n" * 90}
    made = generator(name="g", prompt="s", context=notes, user=lambda i: i, output=City)

    async def run() -> None:
        async with App("memory:", model=model, tokenizer=len) as app:
            await made.run("q" * 10, app=app)

    asyncio.run(run())
    assert model.windows[0].report["context"].status == "dropped"
    assert model.windows[0].report.answer_tokens == FORM
    assert model.windows[0].tokens <= FORM + 100


def test_the_stream_holds_the_same_budget():
    async def main() -> None:
        async for _ in stream_generate(
            LONG, model=ScriptedModel(["never"], name=PRICED), budget=100
        ):
            raise AssertionError("nothing may be sent")

    with pytest.raises(BudgetExceeded):
        asyncio.run(main())


# A prompt() in a generator, alone and in a flow, is held to the same budget.


async def by_generate(bot: Any, model: ScriptedModel) -> None:
    await generate(bot, model=model)


async def by_generator(bot: Any, model: ScriptedModel) -> None:
    await generator(model=model, prompt=bot).run({}, app=App("memory:"), session="g")


async def by_flow(bot: Any, model: ScriptedModel) -> None:
    made = generator(model=model, prompt=bot)

    async def block(given: Any, ctx: Ctx) -> Any:
        return await ctx.run(made, given)

    await flow("desk", actions={"ask": Action(block)}).run(
        "ask", {}, app=App("memory:"), session="f"
    )


@pytest.mark.parametrize("interface", [by_generate, by_generator, by_flow])
def test_a_prompt_holds_the_models_budget_in_every_interface_that_takes_one(interface):
    bot = prompt(
        use=[context(system="c" * 30, priority=20), context(system="d" * 30, priority=10)],
        system="s" * 50,
        prompt="p" * 50,
    )
    model = ScriptedModel(["yes"], budget=140, name=PRICED)
    asyncio.run(_with_characters(interface(bot, model)))
    assert model.windows[0].messages == (system("s" * 50 + "\n\n" + "c" * 30), user("p" * 50))
    assert model.windows[0].tokens == 132
    model = ScriptedModel(["never"], budget=99, name=PRICED)
    with pytest.raises(BudgetExceeded) as caught:
        asyncio.run(_with_characters(interface(bot, model)))
    assert (caught.value.needed, caught.value.available) == (100, 99)
    assert not model.windows


async def _with_characters(work: Any) -> None:
    with config.local(tokenizer=len):
        await work


# The law.

TEXTS = st.integers(0, 60)
CONTEXTS = st.lists(st.tuples(TEXTS, st.integers(0, 110), st.booleans()), max_size=6)


@given(CONTEXTS, TEXTS, TEXTS, st.integers(0, 250), st.none() | st.integers(0, 200), st.booleans())
def test_a_request_fits_its_budget_or_is_not_sent(contexts, own, said, budget, token_budget, tools):
    assume(said or own)
    uses = [
        context(id=str(n), system=str(n)[-1] * size, priority=priority, required=required)
        for n, (size, priority, required) in enumerate(contexts)
    ]
    bot = prompt(
        use=uses,
        system="s" * own,
        prompt="p" * said if said else None,
        tools=[SCHEMA] if tools else [],
    )
    model = ScriptedModel(["yes"], budget=budget, name=PRICED)
    pinned = [each.system for each in uses if each.is_pinned and each.system]
    least = "\n\n".join(text for text in ["s" * own, *map(str, pinned)] if text)
    beside = said + bot.inspect_sync(tokenizer=len).tool_tokens
    fits = len(least) + beside <= budget and (token_budget is None or len(least) <= token_budget)
    if not fits:
        with pytest.raises(BudgetExceeded) as caught:
            generate_sync(bot, model=model, token_budget=token_budget, tokenizer=len)
        assert caught.value.needed > caught.value.available
        assert not model.windows
        return
    generate_sync(bot, model=model, token_budget=token_budget, tokenizer=len)
    (window,) = model.windows
    assert window.tokens <= budget
    assert not window.over_budget
    sent = window.openai()["messages"]
    assert sum(len(each["content"]) for each in sent) + window.report.tools_tokens == window.tokens
    if token_budget is not None:
        texts = [each["content"] for each in sent if each["role"] == "system"]
        assert len("".join(texts)) <= token_budget
    if said:
        assert sent[-1] == {"role": "user", "content": "p" * said}
