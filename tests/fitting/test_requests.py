"""Requests that were fitted, worked out: what stays is what came, and nothing else is touched."""

from __future__ import annotations

from typing import Any

import pytest

from muntin import BudgetExceeded, InvalidInput
from muntin.fitting import Fitter
from muntin.fitting.requests import FORMS, FittedRequest, fit_request, form_of

WORDS = "word " * 100


def fitted(name: str, body: dict[str, Any], budget: int = 400, **options: Any) -> FittedRequest:
    return fit_request(Fitter(budget, tokenizer="chars/4", **options), FORMS[name], body)


def asked(count: int, **more: Any) -> list[dict[str, Any]]:
    """Questions and answers, the last a question."""
    turns: list[dict[str, Any]] = []
    for number in range(count):
        turns += [
            {"role": "user", "content": f"{number} {WORDS}", **more},
            {"role": "assistant", "content": "yes"},
        ]
    return turns[:-1]


@pytest.mark.parametrize("name", ["chat", "anthropic"])
def test_what_stays_is_the_very_message_that_came_with_all_its_keys(name):
    messages = asked(5, x_unknown={"kept": True})
    outcome = fitted(name, {"model": "m", "messages": messages, "x_other": 1, "stream": True})
    sent = outcome.body["messages"]
    assert outcome.changed
    assert sent[-1] is messages[-1]
    assert all(any(each is given for given in messages) for each in sent[1:])
    assert (outcome.body["x_other"], outcome.body["stream"]) == (1, True)


def test_a_shortened_result_stands_in_its_own_block_of_each_form():
    long = "data " * 2_000
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}, "x": 1}
    chat = fitted(
        "chat",
        {
            "messages": [
                {"role": "user", "content": "q"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": long}]},
            ]
        },
    )
    (part,) = chat.body["messages"][2]["content"]
    assert "left out" in part["text"]
    assert chat.body["messages"][1]["tool_calls"] == [call]

    result = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": long,
        "cache_control": {"type": "ephemeral"},
    }
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    said = [thought, {"type": "tool_use", "id": "t1", "name": "f", "input": {}}]
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": said},
        {"role": "user", "content": [result, {"type": "text", "text": "and?"}]},
    ]
    body = fitted("anthropic", {"model": "claude-opus-4-6", "messages": messages}).body
    assert body["messages"][1] is messages[1]
    shown, text = body["messages"][2]["content"]
    assert "left out" in shown["content"]
    assert (shown["cache_control"], text["text"]) == ({"type": "ephemeral"}, "and?")

    items = [
        {"role": "user", "content": "q"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": long, "id": "o"},
    ]
    sent = fitted("responses", {"input": items}).body["input"]
    assert [each is given for each, given in zip(sent, items, strict=True)] == [True] * 3 + [False]
    assert sent[3]["id"] == "o"
    assert "left out" in sent[3]["output"]

    response = {"functionResponse": {"name": "f", "response": {"output": long}}, "x": 1}
    contents = [
        {"role": "user", "parts": [{"text": "q"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
        {"role": "user", "parts": [response]},
    ]
    sent = fitted("google", {"contents": contents}).body["contents"]
    assert "left out" in sent[2]["parts"][0]["functionResponse"]["response"]["output"]
    assert sent[2]["parts"][0]["x"] == 1


@pytest.mark.parametrize("place", range(3))
def test_of_parallel_results_those_that_are_too_long_are_shortened(place):
    long = "data " * 2_000
    texts = ["short"] * 3
    texts[place] = long
    ids = [f"t{number}" for number in range(3)]
    uses = [{"type": "tool_use", "id": each, "name": "f", "input": {}} for each in ids]
    results = [
        {"type": "tool_result", "tool_use_id": name, "content": text}
        for name, text in zip(ids, texts, strict=True)
    ]
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": uses},
        {"role": "user", "content": results},
    ]
    sent = fitted("anthropic", {"messages": messages}).body["messages"][2]["content"]
    assert ["left out" in each["content"] for each in sent] == [n == place for n in range(3)]

    calls = [{"functionCall": {"id": each, "name": "f", "args": {}}} for each in ids]
    told = [
        {"functionResponse": {"id": name, "name": "f", "response": {"output": text}}}
        for name, text in zip(ids, texts, strict=True)
    ]
    contents = [
        {"role": "user", "parts": [{"text": "q"}]},
        {"role": "model", "parts": calls},
        {"role": "user", "parts": told},
    ]
    parts = fitted("google", {"contents": contents}).body["contents"][2]["parts"]
    shown = [each["functionResponse"]["response"]["output"] for each in parts]
    assert ["left out" in each for each in shown] == [n == place for n in range(3)]


def test_the_user_begins_and_roles_alternate_where_messages_were_left_out():
    turns = asked(4)
    turns[0]["content"] = "first " * 400
    sent = fitted("anthropic", {"model": "claude-sonnet-4-5", "messages": turns}).body["messages"]
    assert [each["role"] for each in sent] == ["user", "assistant"] * (len(sent) // 2) + ["user"]


def test_marks_are_set_behind_what_stays_and_the_users_own_are_counted():
    mark = {"cache_control": {"type": "ephemeral"}}
    system = [{"type": "text", "text": WORDS * 20, **mark}]
    tools = [{"name": "f", "input_schema": {"type": "object"}, **mark}]
    body = {
        "model": "claude-sonnet-4-5",
        "system": system,
        "tools": tools,
        "messages": asked(40),
    }
    sent = fitted("anthropic", body, 6_000).body
    marked = [
        block
        for message in sent["messages"]
        for block in message["content"]
        if isinstance(block, dict) and "cache_control" in block
    ]
    assert 1 <= len(marked) <= 2
    assert sent["system"] is system


SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "description": WORDS}}}
FORM = {"type": "json_schema", "schema": SCHEMA}


@pytest.mark.parametrize(
    ("name", "key", "asks"),
    [
        ("chat", "messages", {"response_format": {"type": "json_schema", "json_schema": FORM}}),
        ("responses", "input", {"text": {"format": FORM}}),
        ("anthropic", "messages", {"output_config": {"format": FORM}}),
        ("google", "contents", {"generationConfig": {"responseJsonSchema": SCHEMA}}),
        ("google", "contents", {"config": {"response_schema": SCHEMA}}),
    ],
)
def test_the_schema_of_the_answer_is_counted(name, key, asks):
    said: list[Any] = asked(5)
    if name == "google":
        said = [{"role": "user", "parts": [{"text": each["content"]}]} for each in said]
    plain = fitted(name, {key: said}, 1_000).fitted
    formed = fitted(name, {key: said, **asks}, 1_000).fitted
    assert plain is not None
    assert formed is not None
    assert plain.window.report.budget == formed.window.report.budget == 1_000
    form = formed.window.report.answer_tokens - plain.window.report.answer_tokens
    assert 130 <= form <= 170
    assert formed.window.tokens <= 1_000


def test_where_the_rest_is_kept_by_the_api_the_request_passes():
    body = {"input": asked(9), "previous_response_id": "resp_1"}
    outcome = fitted("responses", body)
    assert outcome.body is body
    assert "previous_response_id" in (outcome.passes or "")


def test_an_input_that_is_one_text_stays_one():
    assert fitted("responses", {"input": "Hi"}).body == {"input": "Hi"}
    cut = fitted("responses", {"input": WORDS * 20}).body["input"]
    assert isinstance(cut, str)
    assert "left out" in cut


def test_forms_that_lax_servers_take_are_read_and_go_as_they_came():
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": None}},
        {"role": "function", "name": "f", "content": WORDS * 9},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": None}}]},
        {"role": "user", "content": "lone \ud800 half"},
        {"role": "user", "content": "go on"},
    ]
    outcome = fitted("chat", {"messages": messages}, 4_000)
    assert outcome.fitted is not None
    assert outcome.body["messages"][-2:] == messages[-2:]


def test_what_cannot_be_read_is_carried_and_named():
    items = [{"type": "mystery", "blob": "x" * 40}, {"role": "user", "content": "q"}]
    outcome = fitted("responses", {"input": items})
    assert outcome.body["input"] is items
    assert outcome.fitted is not None
    assert "mystery" in outcome.fitted.unread[0]


def test_calls_and_results_stay_together_when_the_rest_of_them_cannot_be_read():
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    odd = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [3], "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": [7]},
    ]
    assert fitted("chat", {"messages": odd}).body["messages"] is odd

    use = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    blocks = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [{"type": "text", "text": 3}, use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [7]}]},
    ]
    assert fitted("anthropic", {"messages": blocks}).body["messages"] is blocks

    items = [
        {"role": "user", "content": "q"},
        {"type": "reasoning", "summary": [], "encrypted_content": "x"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [7]},
    ]
    assert fitted("responses", {"input": items}).body["input"] is items


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("chat", {"messages": "hi"}),
        ("anthropic", {}),
        ("google", {"contents": 3}),
        ("responses", {}),
    ],
)
def test_what_is_no_request_is_refused_by_name(name, body):
    with pytest.raises(InvalidInput, match="needs a list"):
        fitted(name, body)


def test_a_budget_below_the_system_text_is_an_error():
    with pytest.raises(BudgetExceeded):
        fitted("anthropic", {"system": WORDS * 9, "messages": asked(2)}, 60)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/chat/completions", "chat"),
        ("/openai/deployments/x/chat/completions?api-version=1", "chat"),
        ("/v1/responses", "responses"),
        ("/v1/messages", "anthropic"),
        ("/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse", "google"),
        ("/v1/messages/count_tokens", None),
        ("/v1/responses/resp_1", None),
        ("/v1/models", None),
    ],
)
def test_requests_are_known_by_their_paths(path, name):
    form = form_of(path)
    assert (None if form is None else form.name) == name
