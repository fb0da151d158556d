"""Items with a standing effect stay at every budget, and programs stay with their outputs."""

from __future__ import annotations

from typing import Any

import pytest

from muntin import Slots, fit
from muntin.fitting import Fitter
from muntin.fitting.requests import FORMS, fit_request
from muntin.wire import responses

TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
ADDED = {"type": "additional_tools", "role": "developer", "tools": [TOOL]}
EFFORT = {"type": "configuration_update", "reasoning": {"effort": "high"}}
FORMAT = {"type": "configuration_update", "text": {"format": {"type": "text"}}}
SEARCH = {"type": "tool_search_call", "id": "ts_1", "call_id": "s1", "execution": "server"}
FOUND = {"type": "tool_search_output", "id": "to_1", "call_id": "s1", "tools": [TOOL]}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "seen"}


def ask(number: int) -> dict[str, Any]:
    return {"role": "user", "content": f"question {number} " + "word " * 40}


def say(number: int) -> dict[str, Any]:
    part = {"type": "output_text", "text": f"answer {number} " + "fact " * 40, "annotations": []}
    return {
        "type": "message",
        "id": f"msg_{number}",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }


def talk(first: int, count: int) -> list[dict[str, Any]]:
    return [item for n in range(first, first + count) for item in (ask(n), say(n))]


LATER = [*talk(1, 20), ask(99)]


@pytest.mark.parametrize("budget", [4_000, 1_000, 500])
@pytest.mark.parametrize(
    ("early", "stays"),
    [
        ([ask(0), ADDED, say(0)], [ADDED]),
        ([ask(0), SEARCH, FOUND, CALL, RESULT], [SEARCH, FOUND, CALL, RESULT]),
        ([EFFORT, ask(0), FORMAT, say(0)], [EFFORT, FORMAT]),
        ([EFFORT, ask(0), say(0), {**EFFORT, "id": "newer"}, ask(1)], [{**EFFORT, "id": "newer"}]),
        ([ask(0), SEARCH, FOUND, say(0)], []),  # what was found is not called
    ],
    ids=["added", "found", "two settings", "replaced", "not called"],
)
def test_what_holds_stays_and_the_rest_leaves(early, stays, budget):
    body = {"model": "gpt-6", "input": [*early, *LATER]}
    outcome = fit_request(Fitter(budget), FORMS["responses"], body)
    sent = outcome.body["input"]
    assert all(item in sent for item in stays)
    assert outcome.fitted is not None
    assert outcome.fitted.window.tokens <= budget
    if budget < 4_000:
        assert [item for item in sent if item in early] == stays
    kept = fit([*early, *LATER], budget, model="openai/gpt-6", previous={}).kept
    assert all(item in kept for item in stays)
    assert kept[-1] == LATER[-1]


def test_slots_keep_them_too():
    slots = Slots(700, profile="openai/gpt-6")
    slots.add("history", [ask(0), ADDED, say(0), *LATER[:-1]])
    slots.add("input", "And now?")
    sent = responses.encode(slots.render())["input"]
    assert ADDED in sent
    assert len(sent) < 20


PROGRAM = {"type": "program", "id": "p_1", "call_id": "p1", "code": "look()", "fingerprint": "f"}
OUTPUT = {
    "type": "program_output",
    "id": "po_1",
    "call_id": "p1",
    "result": "done " * 50,
    "status": "completed",
}
CALLED = {**CALL, "caller": {"type": "program", "caller_id": "p1"}}


@pytest.mark.parametrize(
    "run",
    [[PROGRAM, CALLED, RESULT, OUTPUT], [PROGRAM, OUTPUT]],
    ids=["in two answers", "in one answer"],
)
def test_a_program_its_calls_and_its_output_are_whole_or_gone(run):
    messages = [ask(0), *run, say(0), *talk(1, 8), ask(99)]
    counts = set()
    for budget in range(200, 2_400, 75):
        kept = fit(messages, budget, model="openai/gpt-6", previous={}).kept
        held = [item for item in kept if item.get("type") in {part["type"] for part in run}]
        ids = [item.get("call_id") for item in held]
        assert ids in ([], [item["call_id"] for item in run])
        assert not ids or OUTPUT in kept
        counts.add(len(ids))
    assert counts == {0, len(run)}
    assert fit(messages, 100_000, model="openai/gpt-6").kept == messages
