"""What a provider compacts itself: its summary is the beginning of the past, and is never lost."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from muntin import fit, fit_client
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
    for budget in (100_000, 60):
        fitted = fit(messages, budget, model=model, previous={})
        assert fitted.kept == messages
    body = anthropic_body(messages)
    assert fit_request(Fitter(100_000, model=model), FORMS["anthropic"], body).body is body
