"""Prompts and `generate`: one plan a window, counted exactly where the vocabulary is known."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from muntin import (
    Attachment,
    BudgetExceeded,
    Message,
    Slots,
    ToolCall,
    assistant,
    config,
    context,
    prompt,
    system,
    tool,
    user,
    when,
)
from muntin.composer import Composer
from muntin.prompts.definition import text_of
from muntin.prompts.generation import generate_sync
from muntin.settings import set_tokenizer
from muntin.testing import ScriptedModel
from tests.plans import counted_plans
from tests.words import Answer, look

BOT = prompt(
    system="own",
    use=[context(id="a", system="alpha " * 9), context(id="b", priority=10, system="beta " * 9)],
    prompt="ask",
)
CALL = ToolCall("c1", "look", "{}")


@pytest.mark.parametrize("token_budget", [None, 1_000, 60, 1])
@pytest.mark.parametrize("name", ["resolve_sync", "inspect_sync"])
def test_a_prompt_plans_once(name, token_budget):
    with counted_plans() as plans:
        getattr(BOT, name)(token_budget=token_budget, tokenizer=len)
    assert len(plans) == 1


def test_gathering_and_the_text_of_a_context_plan_nothing():
    async def both() -> tuple[Any, Any]:
        out = when(lambda: False, context(id="out", system="x"))
        one = context(id="one", system="text", use=[out], tools=[look])
        return await BOT.gather(), await text_of(one)

    with counted_plans() as plans:
        gathered, one = asyncio.run(both())
    assert plans == []
    assert (gathered.user, gathered.system) == ("ask", BOT.resolve_sync().system)
    assert (one.system, one.tools) == ("text", (look,))
    assert [source for source, _, _ in one.excluded] == ["context:out"]


def test_generate_plans_once_a_step():
    model = ScriptedModel([CALL, "not json", '{"value": 3}'])
    with counted_plans() as plans:
        reply = generate_sync(BOT, model=model, tools=[look], output=Answer, token_budget=90)
    assert reply.output == Answer(value=3)
    assert len(plans) == len(model.windows) == 3
    assert [id(each) for each in plans] == [id(each.explained) for each in model.windows]


def test_a_plain_text_that_fits_is_planned_once():
    with counted_plans() as plans:
        generate_sync("hello", model=ScriptedModel(["hi"]), token_budget=100)
    assert len(plans) == 1
    with pytest.raises(BudgetExceeded, match="10"):
        generate_sync("hello " * 99, model=ScriptedModel([]), token_budget=10)


def test_without_a_budget_the_window_has_just_the_room_it_needs():
    for made in (BOT, prompt(prompt="ask"), prompt(system="own"), prompt(), OPEN):
        window = made.resolve_sync(provider="anthropic", model_id="m").window
        assert window.report.budget == window.tokens
        assert not window.over_budget


# An answer without a question, a call without a result, a result without a call.
OPEN = prompt(
    use=[context(system="x")],
    messages=[
        tool("c0", "lost"),
        Message("assistant", "", tool_calls=(ToolCall("c9", "look", "{}"),)),
        {"role": "assistant", "content": ""},
        user("hi"),
    ],
)


@pytest.mark.parametrize("model", [None, "openai/gpt-4o", "anthropic/claude-sonnet-4-5"])
@pytest.mark.parametrize(
    "messages",
    [
        [],
        [system("a"), assistant("b")],
        [user("a"), assistant(tool_calls=[CALL]), tool("c1", "seen"), user("b")],
        [assistant(tool_calls=[CALL, ToolCall("c2", "look", "{}")]), tool("c2", "seen")],
        [tool("c1", "lost"), assistant("b"), user("")],
        [user("", attachments=[Attachment("f", "a.png", 9, "image")]), assistant("b")],
        [assistant(tool_calls=[CALL]), tool("c1", "1"), assistant(tool_calls=[CALL])],
    ],
)
def test_the_size_of_messages_is_that_of_their_window(model, messages):
    composer = Composer.of(model, budget=10_000, tokenizer="estimate")
    slots = composer.slots()
    slots.add("messages", messages)
    counts = slots.render().report.counts
    assert counts is not None
    assert composer.size_of(messages) == counts.counted


def test_a_prompt_for_a_known_model_is_counted_exactly():
    pytest.importorskip("tiktoken")
    exact = BOT.resolve_sync(provider="openai", model_id="gpt-4o").window
    assert exact.report.tokenizer == "o200k_base"
    slots = Slots(1_000, profile="openai/gpt-4o")
    for message in exact.messages:
        slots.add(message.role, message.text, role=message.role)
    assert exact.tokens == slots.render().tokens
    assert BOT.resolve_sync().window.report.tokenizer == "estimate"
    other = BOT.resolve_sync(provider="anthropic", model_id="claude-sonnet-4-5").window
    assert other.report.tokenizer == "estimate"


def test_generate_counts_exactly():
    pytest.importorskip("tiktoken")
    model = ScriptedModel(["hi"], name="openai/gpt-4o")
    reply = generate_sync(BOT, model=model)
    assert reply.window is not None
    assert reply.window.report.tokenizer == "o200k_base"


def test_a_tokenizer_of_the_call_or_of_config_wins_over_the_exact_one():
    def name(**options: Any) -> str:
        made = BOT.resolve_sync(provider="openai", model_id="gpt-4o", **options)
        return made.window.report.tokenizer

    with config.local(tokenizer="chars/4"):
        assert name() == "chars/4"
        assert name(tokenizer="chars/3") == "chars/3"
    try:
        set_tokenizer("chars/5")
        assert name() == "chars/5"
    finally:
        set_tokenizer(None)


def test_a_provider_is_asked_to_cache_only_where_a_context_says_so():
    slow = context(id="slow", system="rules " * 2_000, cache=True)
    for use, marks in ((context(system="rules " * 2_000), 0), (slow, 1)):
        made = prompt(use=[use], prompt="ask").resolve_sync(
            provider="anthropic", model_id="claude-sonnet-4-5"
        )
        assert len(made.window.breakpoints) == marks


def test_a_run_behind_a_prompt_is_planned_once_and_never_trimmed():
    made = BOT.resolve_sync(token_budget=20, tokenizer=len)
    run: list[Any] = [
        assistant(tool_calls=[CALL]),
        {"role": "tool", "tool_call_id": "c1", "content": "s"},
    ]
    with counted_plans() as plans:
        window = made.compose(run)
    assert len(plans) == 1
    assert [m.role for m in window.messages] == ["system", "user", "assistant", "tool"]
    assert window.messages[0] == made.window.messages[0]
    assert made.compose([]) is made.window
