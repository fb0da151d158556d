"""`max_cost`: what a conversation and each of its turns may cost, in every interface that asks."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from muntin import App, assistant, generator
from muntin.core.parts import ToolCall
from muntin.core.usage import Usage
from muntin.errors import CostLimit, InvalidInput, InvalidType
from muntin.providers.model import Reply
from muntin.providers.names import cost_of
from muntin.runtime import MaxCost
from muntin.testing import ScriptedModel

PRICED = "openai/gpt-4o"  # 2.50 dollars a million tokens in, 10 out
EACH = Usage(20_000, 1_000)


def priced(*, calls: int = 0, name: str = PRICED) -> ScriptedModel:
    """Return a model whose every answer costs 6 cents, and that calls a tool first."""
    left = [calls]

    def answer(window: Any) -> Reply:
        left[0] -= 1
        if left[0] >= 0:
            call = ToolCall(f"c{left[0]}", "look", "{}")
            return Reply(assistant(tool_calls=[call]), usage=EACH, finish_reason="tool_calls")
        return Reply(assistant("Yes."), usage=EACH)

    return ScriptedModel(answer, name=name, budget=8_000)


def look() -> str:
    """Look."""
    return "Nothing."


def test_the_price_of_one_answer() -> None:
    assert cost_of(PRICED, EACH) == Decimal("0.06")


def test_a_conversation_ends_at_its_limit_after_restarts_too(tmp_path) -> None:
    url, model = f"sqlite:///{tmp_path}/a.db", priced()

    async def send(session: str) -> str:
        async with App(url, model=model, max_cost=0.17) as app:
            return (await app.conversation(session).send("Hello?")).text

    for _ in range(3):
        assert asyncio.run(send("c")) == "Yes."
    with pytest.raises(CostLimit) as caught:
        asyncio.run(send("c"))
    assert "this conversation of 'c' may cost $0.17: $0.1800 are spent" in str(caught.value)
    assert "begin a new conversation" in str(caught.value)
    assert len(model.windows) == 3
    assert asyncio.run(send("d")) == "Yes."


def test_a_turn_ends_at_its_limit() -> None:
    async def run() -> tuple[str, int]:
        model = priced(calls=9)
        async with App("memory:", model=model, max_cost=MaxCost(turn=0.15)) as app:
            talk = app.conversation("c", tools=[look])
            with pytest.raises(CostLimit) as caught:
                await talk.send("Look nine times.")
            asked = len(model.windows)
        return str(caught.value), asked

    why, asked = asyncio.run(run())
    assert "this turn of 'c' may cost $0.15: $0.1200 are spent" in why
    assert "the input of the next request costs $0.05" in why
    assert asked == 2


def test_generators_and_entities_keep_to_it_too() -> None:
    async def run() -> None:
        async with App("memory:", model=priced(), max_cost=0.05) as app:
            made = generator(name="g", prompt="Say yes.")
            await made.run("Hello?", app=app, session="s")
            with pytest.raises(CostLimit, match="'s'"):
                await made.run("Hello?", app=app, session="s")
            usage = app.session("s").usage()
            assert usage.by_agent["g"].cost == usage.cost == Decimal("0.06")
            assert "price of the answers: $0.0600" in list(usage.words())

    asyncio.run(run())


@pytest.mark.parametrize("name", ["ollama/llama3", "nobody/unknown-model"])
def test_a_model_without_a_price_is_refused_unless_it_is_free(name: str) -> None:
    async def run() -> None:
        model = priced(name=name)
        async with App("memory:", model=model, max_cost=1) as app:
            with pytest.raises(CostLimit, match="is not known, so max_cost cannot hold"):
                await app.conversation("c").send("Hello?")
        assert not model.windows
        async with App("memory:", model=model, max_cost=MaxCost(1, unpriced_is_free=True)) as app:
            assert (await app.conversation("c").send("Hello?")).text == "Yes."

    asyncio.run(run())


def test_without_a_limit_nothing_is_refused_and_the_price_is_recorded() -> None:
    async def run() -> None:
        async with App("memory:", model=priced()) as app:
            for _ in range(3):
                await app.conversation("c").send("Hello?")
            assert app.session("c").usage().cost == Decimal("0.18")

    asyncio.run(run())


WRONG: list[Any] = [("5", InvalidType), (True, InvalidType), (-1, InvalidInput)]


@pytest.mark.parametrize(("value", "error"), [*WRONG, (float("nan"), InvalidInput)])
def test_a_wrong_limit_is_refused(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="max_cost"):
        App("memory:", max_cost=value)
