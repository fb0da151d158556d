"""Arguments that a framework holds parsed are counted as it sends them: never over the budget."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from pydantic import BaseModel

from muntin.errors import BudgetExceeded
from muntin.fitting import fit
from muntin.fitting.messages import FittedMessages
from tests.products import NAMES


class HumanMessage(BaseModel):
    type: str = "human"
    content: str


class Call(BaseModel):
    id: str
    name: str
    args: dict[str, Any]


class AIMessage(BaseModel):
    type: str = "ai"
    content: str = ""
    tool_calls: list[Call] = []


class ToolMessage(BaseModel):
    type: str = "tool"
    content: str
    tool_call_id: str


def talk(rng: random.Random, steps: int, long: int) -> list[Any]:
    """Return a run of so many tool calls with many small arguments, and some long ones."""
    items: list[Any] = [HumanMessage(content="Find all of them.")]
    for step in range(steps):
        args: dict[str, Any] = {f"k{n}": rng.choice([n, None, "Ä", [1, 2]]) for n in range(25)}
        if step % 5 == 4:
            args["text"] = "word " * long
        items += [
            AIMessage(tool_calls=[Call(id=f"c{step}", name="look", args=args)]),
            ToolMessage(content=f"found {step}", tool_call_id=f"c{step}"),
        ]
    return [*items, AIMessage(content="There."), HumanMessage(content="And now?")]


def sent(item: Any) -> dict[str, Any]:
    """Return a message as LangChain sends it to OpenAI."""
    match item.type:
        case "human":
            return {"role": "user", "content": item.content}
        case "tool":
            return {"role": "tool", "content": item.content, "tool_call_id": item.tool_call_id}
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.args, ensure_ascii=False)},
        }
        for call in item.tool_calls
    ]
    return {
        "role": "assistant",
        "content": item.content,
        **({"tool_calls": calls} if calls else {}),
    }


def counted(fitted: FittedMessages, model: str) -> int:
    """Return the tokens of the request that LangChain sends."""
    items = [sent(AIMessage(**item) if isinstance(item, dict) else item) for item in fitted.kept]
    return fit(items, 1_000_000, model=model).tokens


@pytest.mark.parametrize("model", [*NAMES, "openai/gpt-5.2"])
@pytest.mark.parametrize("budget", [700, 1_500, 2_500, 100_000])
def test_parsed_arguments_never_make_a_request_larger_than_its_budget(
    model: str, budget: int
) -> None:
    rng = random.Random(budget)
    for steps in (2, 3, 8, 20):
        try:
            fitted = fit(talk(rng, steps, 300), budget, model=model)
        except BudgetExceeded:
            continue
        tokens = counted(fitted, model)
        assert tokens <= budget
        assert tokens == fitted.tokens
