"""Generators: one plan a step, whatever they are made of, and exact counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from muntin import (
    App,
    BudgetExceeded,
    Stepped,
    Tool,
    ToolCall,
    config,
    context,
    generator,
    prompt,
    prompt_file,
    when,
)
from muntin.testing import ScriptedModel
from tests.plans import counted_plans
from tests.words import Answer, look

TWO = [context(id="a", system="alpha"), when(lambda: True, context(id="b", system="beta"))]


VARIANTS: dict[str, dict[str, Any]] = {
    "a text": {"prompt": "Be brief."},
    "a function": {"prompt": lambda: "Be brief."},
    "a prompt": {"prompt": prompt(system="Be brief.", use=TWO)},
    "a list": {"prompt": ["Be brief.", *TWO]},
    "contexts": {"context": [{"tag": TWO[0], "other": "x"}, TWO[1], "plain", lambda: TWO[0]]},
    "all": {"prompt": prompt(system="s", use=[TWO[0]]), "context": [TWO[1]], "history": True},
    "steps": {"prompt": "Be brief.", "history": True, "trimming": Stepped()},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_generator_plans_once_a_step(variant):
    chat = generator(name="chat", user="hi", tools=[look], **VARIANTS[variant])
    model = ScriptedModel([ToolCall("c1", "look", "{}"), "done", "again"])
    app = App("memory:", model=model)

    async def talk() -> None:
        await chat.run(app=app, session="s")
        await chat.run(app=app, session="s")

    with counted_plans() as plans:
        asyncio.run(talk())
    assert [id(each) for each in plans] == [id(each.explained) for each in model.windows]
    assert len(plans) == 3


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_window_that_is_only_looked_at_is_planned_once(variant):
    chat = generator(model=ScriptedModel([]), user="hi", **VARIANTS[variant])
    with counted_plans() as plans:
        window = asyncio.run(chat.window())
    assert [id(each) for each in plans] == [id(window.explained)]


def test_a_prompt_file_plans_once(tmp_path):
    (tmp_path / "chat.md").write_text("<system>Be brief.</system>\n<user>hi</user>\n")
    model = ScriptedModel(["done"])
    with counted_plans() as plans:
        asyncio.run(generator(prompt=prompt_file(tmp_path / "chat.md"), model=model).run())
    assert len(plans) == 1


def test_a_repair_is_one_more_plan():
    model = ScriptedModel(["not json", '{"value": 3}'])
    chat = generator(model=model, user="hi", output=Answer)
    with counted_plans() as plans:
        reply = asyncio.run(chat.run())
    assert reply.output == Answer(value=3)
    assert len(plans) == 2


def test_a_generator_counts_exactly_where_the_vocabulary_is_known():
    pytest.importorskip("tiktoken")

    def tokenizer(name: str, app: App | None = None) -> str:
        chat = generator(model=ScriptedModel(["x"], name=name), prompt="p", user="hi")
        return asyncio.run(chat.window(app=app)).report.tokenizer

    assert tokenizer("openai/gpt-4o") == "o200k_base"
    assert tokenizer("openai/gpt-4o", App("memory:", tokenizer="chars/4")) == "chars/4"
    assert tokenizer("scripted") == "estimate"
    with config.local(tokenizer="chars/3"):
        assert tokenizer("openai/gpt-4o") == "chars/3"


def test_under_pressure_history_goes_first_then_context_then_the_run():
    chat = generator(
        prompt="p",
        context=["c" * 200],
        user="hi",
        history=lambda: [{"role": "user", "content": "h" * 200}],
        tools=[Tool(lambda: "r" * 200, name="look")],
        results=None,
        recovery=False,
    )

    def kept(budget: int) -> set[str]:
        model = ScriptedModel([ToolCall("c1", "look", "{}"), "done"], budget=budget)
        asyncio.run(chat.run(app=App("memory:", tokenizer=len), model=model))
        report = model.windows[-1].report
        return {row.name for row in report.slots if row.tokens_kept} - {"prompt", "input"}

    assert kept(1_000) == {"history", "context", "run"}
    assert kept(600) == {"context", "run"}
    assert kept(400) == {"run"}
    with pytest.raises(BudgetExceeded, match="'look' 64 of 200"):
        kept(100)
