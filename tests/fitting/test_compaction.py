"""What a provider compacts itself: its summary is the beginning of the past, and is never lost."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from muntin import BudgetExceeded, Input, Slots, fit, fit_client
from muntin.fitting import Fitter
from muntin.fitting.requests import FORMS, fit_request, form_of
from tests.gateway.running import receipt, running
from tests.providers.servers import MESSAGES, RESPONSES, Answer, serving

MODELS = [
    "anthropic/claude-fable-5-1",
    "anthropic/claude-opus-4-6",
    "ollama/llama3.3",
    "somewhere/unknown",
    None,
]
SIGNED = {"type": "compaction", "content": "The locker is QX7731.", "signature": "C1"}
TRIGGER = {"type": "compaction_trigger"}


def answer_of(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def ask(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def talk(turns: int, words: int = 40) -> list[dict[str, Any]]:
    """Return questions and answers, the last a question."""
    messages: list[dict[str, Any]] = []
    for number in range(turns):
        messages.append(ask(f"question {number} " + "word " * words))
        messages.append({"role": "assistant", "content": f"answer {number} " + "fact " * words})
    return [*messages, ask("And now?")]


def anthropic_body(messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"model": "claude-fable-5-1", "max_tokens": 9, "messages": messages, **more}


# A request that asks for compaction is sent as it is.


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("/v1/messages", anthropic_body(talk(30), compaction={"type": "summarize"}), "compaction"),
        ("/v1/responses", {"model": "gpt-6", "input": [*talk(30), TRIGGER]}, "compaction_trigger"),
        ("/v1/responses/compact", {"model": "gpt-6", "input": talk(30)}, "/responses/compact"),
    ],
)
def test_a_request_that_asks_for_compaction_goes_whole_through_every_interface(path, body, named):
    form = form_of(path)
    assert form is not None
    outcome = fit_request(Fitter(2_000), form, body)
    assert outcome.body is body
    assert named in str(outcome.passes)
    raw = json.dumps(body).encode()
    with serving(Answer(body={})) as server, running(server.url, 2_000) as gate:
        sent = httpx2.post(f"{gate.url}{path}", content=raw)
        assert server.received[0].raw == raw
    assert named in receipt(sent.headers)["passed"]


def test_the_clients_of_both_vendors_send_a_request_for_compaction_whole():
    with serving(Answer(body=MESSAGES.body)) as server:
        client = anthropic.Anthropic(api_key="k", base_url=server.url, max_retries=0)
        beta = fit_client(client, 2_000).beta.messages
        beta.create(**anthropic_body(talk(30), compaction={"type": "summarize"}))
        assert len(server.received[0].body["messages"]) == 61
    with serving(Answer(body=RESPONSES.body)) as server:
        vendor = openai.OpenAI(api_key="k", base_url=f"{server.url}/v1", max_retries=0)
        responses = fit_client(vendor, 2_000).responses
        responses.create(model="gpt-6", input=[*talk(30), TRIGGER])  # type: ignore[list-item]
        assert server.received[0].body["input"] == [*talk(30), TRIGGER]


def test_a_list_that_asks_for_compaction_stays_whole_and_the_report_says_why():
    messages = [*talk(30), TRIGGER]
    fitted = fit(messages, 2_000, model="openai/gpt-6")
    assert all(one is other for one, other in zip(fitted.kept, messages, strict=True))
    assert "compaction_trigger" in str(fitted.report)
    later = fit(talk(31), 2_000, model="openai/gpt-6")
    assert len(later.kept) < 61


# A signed block is the first block of the request.


@pytest.mark.parametrize("model", MODELS)
def test_nothing_is_put_before_a_signed_block(model):
    messages = [answer_of(SIGNED), ask("What is my locker?")]
    for budget in (100_000, 90):
        fitted = fit(messages, budget, model=model, previous={})
        assert fitted.kept == messages
    body = anthropic_body(messages)
    assert fit_request(Fitter(100_000, model=model), FORMS["anthropic"], body).body is body


def test_a_signed_block_without_room_is_named():
    messages = [answer_of({**SIGNED, "content": "fact " * 1_500}), ask("What is my locker?")]
    with pytest.raises(BudgetExceeded, match=r"the provider's summary 1,5\d\d tokens"):
        fit(messages, 600, model="anthropic/claude-fable-5-1")


# The newest block or item with content is the beginning of the past.


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("budget", [4_000, 2_000, 700])
def test_a_block_of_anthropic_begins_the_past_at_every_budget(model, budget):
    block = {"type": "compaction", "content": "fact " * 300}
    failed = answer_of({"type": "compaction", "content": None}, {"type": "text", "text": "Well."})
    earlier = [*talk(10), answer_of({**block, "content": "old"}), *talk(9)]
    messages = [*earlier, answer_of(block, {"type": "text", "text": "Go on."}), *talk(4), failed]
    messages.append(ask("And now?"))
    fitted = fit(messages, budget, model=model, previous={}, tokenizer="chars/4")
    assert fitted.kept[0] is messages[41]
    assert fitted.tokens <= budget
    assert fitted.kept[-1] is messages[-1]
    assert fitted.report["history"].detail is not None
    assert "41 messages stand before the provider's summary" in fitted.report["history"].detail
    body = {"model": "claude-opus-4-6", "messages": messages}
    outcome = fit_request(Fitter(budget, model=model), FORMS["anthropic"], body)
    assert outcome.body["messages"][0] == messages[41]
    assert outcome.body["messages"][-1] == messages[-1]


def test_what_stands_before_a_block_is_not_counted():
    block = answer_of({"type": "compaction", "content": "Much was said."})
    with_past = fit([*talk(200), block, ask("And now?")], 10_000, model="anthropic/claude-opus-4-6")
    without = fit([block, ask("And now?")], 10_000, model="anthropic/claude-opus-4-6")
    assert with_past.kept == without.kept
    assert with_past.tokens == without.tokens < 70


def test_an_item_of_openai_begins_the_past_and_splits_its_answer():
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "x" * 100}
    said = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    said["content"] = [{"type": "output_text", "text": "Go on.", "annotations": []}]  # type: ignore[assignment]
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "y"}
    messages = [*talk(20), reasoning, item, said, *talk(3)]
    for budget in (3_000, 500):
        body = {"model": "gpt-6", "input": messages}
        outcome = fit_request(Fitter(budget), FORMS["responses"], body)
        assert outcome.body["input"][:2] == [item, said]
        assert outcome.body["input"][-1] == messages[-1]
        assert outcome.fitted is not None
        assert outcome.fitted.window.tokens <= budget


def test_behind_responses_compact_the_oldest_messages_of_the_user_leave_first():
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "x" * 100}
    asked = [ask(f"question {number} " + "word " * 60) for number in range(21)]
    messages = [*asked, item, ask("And now?")]
    for budget, least in ((10_000, 21), (1_300, 4), (800, 1)):
        kept = fit(messages, budget, model="openai/gpt-6", previous={}).kept
        assert kept[-2:] == messages[-2:]
        assert len(kept) - 2 >= least
        assert kept == messages[len(messages) - len(kept) :]
    whole = fit(messages, 10_000, model="openai/gpt-6", previous={})
    assert whole.tokens > 1_200


def test_calls_behind_a_block_keep_their_results_and_become_short():
    call = {"type": "tool_use", "id": "t1", "name": "read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "line " * 3_000}
    block = {"type": "compaction", "content": "Much was said."}
    messages = [*talk(5), answer_of(block, call), {"role": "user", "content": [result]}, *talk(12)]
    body = {"model": "claude-opus-4-6", "messages": messages}
    sent = fit_request(Fitter(1_500), FORMS["anthropic"], body).body["messages"]
    assert sent[0] == messages[11]
    shorter = sent[1]["content"][0]
    assert shorter["tool_use_id"] == "t1"
    assert len(shorter["content"]) < 2_000


@pytest.mark.parametrize("profile", ["anthropic/claude-fable-5-1", "anthropic/claude-opus-4-6"])
def test_slots_put_nothing_but_system_text_before_a_block(profile):
    slots = Slots(2_000, profile=profile)
    slots.add("system", "Be brief.", required=True)
    slots.add("documents", "The manual.", role="user", priority=50)
    slots.add("history", [*talk(8), answer_of(SIGNED), *talk(2)[:-1]])
    slots.add("input", Input("And now?"))
    window = slots.render()
    request = window.anthropic()
    assert request["messages"][0] == answer_of(SIGNED)
    assert request["messages"][1]["content"][0]["text"] == "The manual."
    assert len(request["messages"]) == 6
    again = Slots(2_000, profile="openai/gpt-6")  # it does not read the block
    again.add("history", [*talk(8), answer_of(SIGNED), *talk(2)[:-1]])
    assert len(again.render().messages) == 22
