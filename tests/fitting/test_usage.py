"""`usage=`: the next request is counted by what the provider reported of the last."""

from __future__ import annotations

import json
import random
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest

from muntin import fit
from muntin.core.counting.counter import Counter
from muntin.core.message import Message
from muntin.core.usage import Usage
from muntin.errors import InvalidType
from muntin.fitting import Fitter
from muntin.wire.usage import as_usage

MODEL = "anthropic/claude-opus-4-6"
TOOLS = [{"name": "look", "input_schema": {"type": "object", "properties": {}}}]


class Run:
    """A tool loop on Claude whose provider reports its own counts."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._plain = Counter("estimate")
        self._hidden: dict[str, int] = {}
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": "Look at every ship."}]

    def reported(self, kept: list[dict[str, Any]]) -> int:
        ours, hidden = self._plain.tools(TOOLS), 0
        for message in kept:
            blocks = message["content"]
            for block in [blocks] if isinstance(blocks, str) else blocks:
                if isinstance(block, str):
                    ours += self._plain.text(block) + 4
                elif block["type"] == "thinking":
                    hidden += self._hidden[block["signature"]]
                elif block["type"] == "tool_use":
                    ours += self._plain.text(json.dumps(block["input"])) + 6
                else:
                    ours += self._plain.text(block["content"]) + 4
        return round(520 + 1.22 * ours) + hidden

    def step(self, number: int) -> dict[str, Any]:
        """Answer, and give the result of the call; return the usage of the answer."""
        hidden = self._hidden[f"s{number}"] = self._random.randint(150, 900)
        blocks = [
            {"type": "thinking", "thinking": "", "signature": f"s{number}"},
            {"type": "tool_use", "id": f"c{number}", "name": "look", "input": {"at": number}},
        ]
        text = " ".join(["harbour"] * self._random.randint(20, 400))
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": text}
        self.messages += [
            {"role": "assistant", "content": blocks},
            {"role": "user", "content": [result]},
        ]
        output = round(1.22 * 12) + hidden
        return {"output_tokens": output, "output_tokens_details": {"thinking_tokens": hidden}}


@pytest.mark.parametrize("stored", [True, False])
def test_two_hundred_requests_stay_within_the_budget(stored: bool) -> None:
    run, fitter = Run(3), Fitter(20_000, model=MODEL)
    usage: dict[str, Any] | None = None
    previous: dict[str, Any] | None = {} if stored else None
    over, errors, largest = 0, list[int](), 0
    for number in range(200):
        options: dict[str, Any] = {"model": MODEL, "tools": TOOLS, "usage": usage}
        if stored:
            fitted = fit(run.messages, 20_000, previous=previous, **options)
            previous = json.loads(json.dumps(fitted.frontier))
            assert len(json.dumps(fitted.frontier)) < 2_048
        else:
            fitted = fit(run.messages, 20_000, conversation="ships", **options)
        reported = run.reported(fitted.kept)
        over += reported > 20_000
        largest = max(largest, reported)
        errors.append(abs(reported - fitted.tokens))
        usage = {"input_tokens": reported, **run.step(number)}
    assert over == 0
    assert largest > 15_000
    assert median(errors[2:]) <= 15
    assert fitter.counts.to_dict()["models"] == {}  # another Fitter learned nothing


def test_without_usage_nothing_changes() -> None:
    messages = [{"role": "user", "content": "Hello."}]
    plain = fit(messages, 1_000, previous={})
    assert fit(messages, 1_000, previous={}, usage=None).frontier == plain.frontier


def test_a_list_that_is_sent_again_is_no_answer() -> None:
    """A client retries with the list it has: the usage is of the request before."""
    messages: list[Any] = [{"role": "user", "content": "Hello."}]
    first = fit(messages, 5_000, previous={}, model="openai/gpt-5")
    messages += [
        {"role": "assistant", "content": "Good day."},
        {"role": "user", "content": "words " * 500},
    ]
    usage = Usage(first.tokens, 5)
    once = fit(messages, 5_000, previous=first.frontier, usage=usage, model="openai/gpt-5")
    again = fit(messages, 5_000, previous=once.frontier, usage=usage, model="openai/gpt-5")
    assert again.tokens == once.tokens


@pytest.mark.parametrize(
    "given",
    [
        {"prompt_tokens": 90, "completion_tokens": 20,
         "completion_tokens_details": {"reasoning_tokens": 5}},
        {"input_tokens": 90, "output_tokens": 20, "input_tokens_details": {"cached_tokens": 0},
         "output_tokens_details": {"reasoning_tokens": 5}},
        {"input_tokens": 30, "output_tokens": 20, "cache_read_input_tokens": 60,
         "output_tokens_details": {"thinking_tokens": 5}},
        SimpleNamespace(input_tokens=90, output_tokens=20,
                        output_tokens_details=SimpleNamespace(thinking_tokens=5)),
        {"prompt_token_count": 90, "candidates_token_count": 15, "thoughts_token_count": 5},
        {"input": 90, "output": 20, "reasoning": 5},
        Usage(90, 20, reasoning=5),
    ],
)  # fmt: skip
def test_usage_is_read_in_every_form(given: Any) -> None:
    usage = as_usage(given)
    assert usage is not None
    assert (usage.input, usage.output, usage.reasoning) == (90, 20, 5)


@pytest.mark.parametrize("given", [{}, {"tokens": 3}, "90", 90, []])
def test_other_values_are_refused(given: Any) -> None:
    with pytest.raises(InvalidType, match="usage must be what a provider reports"):
        fit([{"role": "user", "content": "Hello."}], 1_000, usage=given)


def test_a_usage_told_to_a_fitter_counts_for_the_next_request() -> None:
    fitter = Fitter(5_000, model="ollama/qwen3")
    messages: list[Any] = [{"role": "user", "content": "Hello."}]
    from muntin.wire.lists import pieces_of

    first = fitter.fit(pieces_of(messages))
    fitter.enter_usage(first, {"prompt_tokens": 400, "completion_tokens": 30})
    messages += [
        {"role": "assistant", "content": "Good day, and welcome to the harbour of Hamburg."},
        {"role": "user", "content": "Thank you."},
    ]
    second = fitter.fit(pieces_of(messages))
    new = Counter("estimate").message(Message("user", "Thank you."))
    assert second.window.tokens == 400 + 30 + new
