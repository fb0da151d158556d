"""Recall over a list: the fact of turn 3 stands before the question of turn 55."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muntin import Recall, fit, fit_client
from muntin.core.message import assistant
from muntin.errors import InvalidInput, InvalidType
from muntin.fitting import Fitter
from muntin.integrations.transport import FitTransport
from muntin.testing import ScriptedModel
from tests.gateway.running import running
from tests.providers.servers import serving
from tests.wired import provider

FACT = "My locker is number QX7731, in the east hall."
QUESTION = "What is the number of my locker?"
NAMES = ("anthropic/claude-sonnet-4-6", "anthropic/claude-opus-5-5", "openai/gpt-5.2", "ollama/x")


def said(turn: int) -> str:
    """Return what the user says in a turn."""
    known = {3: FACT, 55: QUESTION}
    return known.get(turn, f"What is the weather on day {turn}? " + "Please say more. " * 6)


def in_form(form: str, role: str, text: str) -> dict[str, Any]:
    content: Any = [{"type": "text", "text": text}] if form == "anthropic" else text
    return {"role": role, "content": content}


def excerpts(messages: list[Any]) -> list[str]:
    return [text for m in messages if "<recalled " in (text := json.dumps(m, ensure_ascii=False))]


@pytest.mark.parametrize("form", ["chat", "anthropic"])
@pytest.mark.parametrize("name", [*NAMES, None])
def test_a_list_gets_back_what_left_its_window(name, form):
    fitter, messages, frontier = {"model": name, "recall": True}, [], None
    for turn in range(56):
        messages.append(in_form(form, "user", said(turn)))
        fitted = fit(messages, 2_000, previous=frontier, **fitter)
        frontier = json.loads(json.dumps(fitted.frontier))  # as a program that restarts has it
        assert fitted.tokens <= 2_000
        assert len(excerpts(fitted.kept)) <= 1
        assert fitted.kept[-1] is messages[-1]
        messages.append(in_form(form, "assistant", "It will be fine. " * 10))
    (recalled,) = excerpts(fitted.kept)
    assert FACT in recalled
    assert excerpts([fitted.kept[-2]]) == [recalled]
    assert str(fitted.report["recalled"].detail).startswith("6 (locker, number;")
    kept = [json.dumps(m) for m in fitted.kept[:-2]]
    assert not any(QUESTION in text or FACT in text for text in kept)


def test_the_excerpts_stay_the_same_during_a_run_and_repeat_nothing():
    messages: list[Any] = []
    for turn in range(56):
        messages.append(in_form("chat", "user", said(turn)))
        if turn < 55:
            messages.append(in_form("chat", "assistant", f"It will be fine {turn}. " * 10))
    seen = set()
    for step in range(4):
        fitted = fit(messages, 3_000, model=NAMES[0], recall=True)
        (recalled,) = excerpts(fitted.kept)
        seen.add(recalled)
        shown = [m["content"] for m in fitted.kept if "<recalled" not in str(m["content"])]
        lines = [line.partition(": ")[2] for line in json.loads(recalled)["content"].splitlines()]
        assert not {line for line in lines if len(line) > 20} & set(shown)
        call = {"name": "look", "arguments": f'{{"n": {step}}}'}
        messages += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{step}", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": f"c{step}", "content": "nothing"},
        ]
    assert len(seen) == 1


def test_nothing_is_recalled_without_the_argument_or_while_everything_is_shown():
    messages = [in_form("chat", "user", FACT), in_form("chat", "assistant", "Noted.")]
    assert fit([*messages, in_form("chat", "user", QUESTION)], 2_000, recall=True).kept[:2] == (
        messages
    )
    long = [*messages, *([in_form("chat", "assistant", "Well. " * 300)] * 9)]
    asked = in_form("chat", "user", QUESTION)
    assert not excerpts(fit([*long, asked], 1_500).kept)
    assert excerpts(fit([*long, asked], 1_500, recall=Recall(tokens=200)).kept)


def test_results_are_left_out_where_that_is_said_and_wrong_settings_are_refused():
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        in_form("chat", "user", "Look for the locker."),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "The locker is QX7731."},
        *([in_form("chat", "assistant", "Well. " * 300)] * 9),
        in_form("chat", "user", QUESTION),
    ]
    (with_results,) = excerpts(fit(messages, 1_500, recall=Recall(tokens=200)).kept)
    assert "QX7731" in with_results
    without = excerpts(fit(messages, 1_500, recall=Recall(tokens=200, results=False)).kept)
    assert "QX7731" not in str(without)
    with pytest.raises(InvalidInput, match="needs a session"):
        Fitter(1_000, recall=Recall(embed=lambda texts: texts))
    with pytest.raises(InvalidType, match="fit: recall must be Recall"):
        Fitter(1_000, recall=3)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="give recall or a fitter"):
        fit_client(object(), fitter=Fitter(1_000), recall=True)


@pytest.mark.parametrize("way", ["client", "transport", "gateway"])
def test_an_app_with_a_vendors_client_answers_with_a_fact_that_left_the_window(way):
    import httpx2
    import openai

    def answer(window: Any) -> Any:
        known = any("QX7731" in message.text for message in window.messages)
        return assistant("QX7731." if known else "I do not know. " * 8)

    model = ScriptedModel(answer, name="openai/gpt-5.2")
    fitter = Fitter(2_000, recall=True)
    with serving(provider(model)) as server, running(server.url, 2_000, fitter=fitter) as gate:
        url = gate.url if way == "gateway" else server.url
        wrapped: Any = FitTransport(httpx2.HTTPTransport(), fitter=fitter)
        http = httpx2.Client(transport=wrapped, timeout=60) if way == "transport" else None
        made = openai.OpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0, http_client=http)
        client = fit_client(made, 2_000, recall=True) if way == "client" else made
        messages: list[Any] = []
        for turn in range(56):
            messages.append(in_form("chat", "user", said(turn)))
            if turn in (54, 55):
                reply = client.chat.completions.create(model="gpt-5.2", messages=messages)
                text = reply.choices[0].message.content
            else:
                text = "It will be fine. " * 10
            messages.append(in_form("chat", "assistant", text or ""))
    assert messages[-3]["content"] == "I do not know. " * 8
    assert messages[-1]["content"] == "QX7731."
