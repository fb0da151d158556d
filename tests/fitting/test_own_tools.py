"""Calls of OpenAI's own tools that an app runs, and their outputs: both are sent, or neither."""

from __future__ import annotations

from typing import Any

import pytest

from muntin.fitting import Fitter, fit
from muntin.fitting.requests import FORMS, fit_request
from tests.fitting.talks import words

SHOT = {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{'A' * 40_000}"}


def called(kind: str, call_id: str) -> list[dict[str, Any]]:
    """Return a call of one of the tools, and its output."""
    call: dict[str, Any] = {"type": kind, "id": f"i_{call_id}", "call_id": call_id}
    result: dict[str, Any] = {"type": f"{kind}_output", "call_id": call_id}
    if kind == "shell_call":
        exited = {"type": "exit", "exit_code": 0}
        result["output"] = [{"stdout": words(200), "stderr": "none", "outcome": exited}]
        return [{**call, "action": {"commands": ["ls"]}}, result]
    if kind == "apply_patch_call":
        changes = {"type": "update_file", "path": "a.py", "diff": words(80)}
        done = {"status": "completed", "output": words(200)}
        return [{**call, "status": "completed", "operation": changes}, {**result, **done}]
    if kind == "local_shell_call":
        return [{**call, "action": {"command": ["ls"]}}, {**result, "output": words(200)}]
    return [{**call, "action": {"type": "wait"}}, {**result, "output": SHOT}]


KINDS = ["shell_call", "apply_patch_call", "local_shell_call", "computer_call"]


def talk(kind: str, turns: int = 12) -> list[dict[str, Any]]:
    """Return a conversation that ends inside of a run."""
    items: list[dict[str, Any]] = []
    for turn in range(turns):
        items.append({"role": "user", "content": f"Question {turn}: {words(20)}"})
        for step in range(4):
            name = f"c{turn}_{step}"
            items.append({"type": "reasoning", "id": f"rs_{name}", "summary": []})
            items += called(kind, name)
        said = {"type": "output_text", "text": f"Answer {turn}", "annotations": []}
        items.append({"type": "message", "role": "assistant", "content": [said]})
    return items[:-1]


def check_pairs(sent: list[dict[str, Any]]) -> None:
    waiting: list[str] = []
    for item in sent:
        kind = item.get("type", "message")
        if kind.endswith("_call"):
            waiting.append(item["call_id"])
        elif kind.endswith("_call_output"):
            waiting.remove(item["call_id"])
    assert not waiting


@pytest.mark.parametrize("budget", [3_000, 4_000, 8_000])
@pytest.mark.parametrize("kind", KINDS)
def test_a_call_and_its_output_stay_together_and_the_question_stays(kind, budget):
    items = talk(kind)
    listed = fit(items, budget, model="openai/gpt-5", previous={})
    body = {"model": "gpt-5", "input": items}
    asked = fit_request(Fitter(budget), FORMS["responses"], body).body["input"]
    for sent in (listed.kept, asked):
        check_pairs(sent)
        assert sent != items
        assert any(item is items[-13] for item in sent), "the question"
        assert sent[-1]["call_id"] == items[-1]["call_id"]
        again = fit(sent, 1_000_000, model="openai/gpt-5", previous={}, results=None)
        assert again.tokens == listed.tokens <= budget
    assert not listed.unread


def test_a_shortened_output_has_the_form_of_its_tool():
    for kind in KINDS[:3]:
        kept = fit(talk(kind), 4_000, model="openai/gpt-5", previous={}).kept
        outputs = [item["output"] for item in kept if item.get("type") == f"{kind}_output"]
        if kind == "shell_call":
            assert {len(each) for each in outputs} == {1}
            assert all(each[0]["outcome"]["type"] == "exit" for each in outputs)
            outputs = [each[0]["stdout"] for each in outputs]
        assert any("left out" in each for each in outputs)


def test_a_call_that_nothing_answers_is_left_alone():
    items = [{"role": "user", "content": "Look."}, *called("shell_call", "c1")[:1]]
    items.append({"role": "user", "content": "And?"})
    assert fit(items, 4_000, model="openai/gpt-5", previous={}).kept == items
