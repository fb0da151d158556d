"""Answers come back as messages and usage, whole or streamed, from the SDK's objects or dicts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from google.genai.types import GenerateContentResponse
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from muntin import Message, Reasoning, Slots, Text, ToolCall, user
from muntin.core.message import tool
from muntin.core.parts import Other
from muntin.errors import InvalidInput
from muntin.providers.model import Reply, Usage
from muntin.wire import anthropic, google, responses
from muntin.wire import chat as openai
from tests.wire.windows import PROVIDERS, SIGNATURE, encode

MODULES: dict[str, Any] = {
    "chat": openai,
    "responses": responses,
    "anthropic": anthropic,
    "google": google,
}
MODELS: dict[str, Any] = {
    "chat": ChatCompletion,
    "responses": Response,
    "anthropic": AnthropicMessage,
    "google": GenerateContentResponse,
}


# -- responses, as the providers send them --------------------------------------------------------


def chat_response(message: dict[str, Any], finish: str = "stop") -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-5",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": 100,
            "completion_tokens": 20,
            "total_tokens": 120,
            "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
        },
    }


def responses_response(output: list[Any], **fields: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5",
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "status": "completed",
        "usage": {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
            "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 5},
            "total_tokens": 120,
        },
        **fields,
    }


def anthropic_response(content: list[Any], stop: str = "end_turn") -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": content,
        "stop_reason": stop,
        "usage": {
            "input_tokens": 10,
            "cache_read_input_tokens": 60,
            "cache_creation_input_tokens": 30,
            "output_tokens": 20,
        },
    }


def google_response(parts: list[Any], finish: str = "STOP") -> dict[str, Any]:
    return {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finish_reason": finish}],
        "response_id": "r1",
        "usage_metadata": {
            "prompt_token_count": 100,
            "candidates_token_count": 15,
            "thoughts_token_count": 5,
            "cached_content_token_count": 60,
        },
    }


def output_message(text: str, item_id: str = "msg_1", **fields: Any) -> dict[str, Any]:
    said = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": item_id, "role": "assistant", "status": "completed",
            "content": [said], **fields}  # fmt: skip


REASONING = {"chat": 0, "responses": 5, "anthropic": 0, "google": 5}

HELLO: dict[str, dict[str, Any]] = {
    "chat": chat_response({"role": "assistant", "content": "Hello"}),
    "responses": responses_response([output_message("Hello")]),
    "anthropic": anthropic_response([{"type": "text", "text": "Hello"}]),
    "google": google_response([{"text": "Hello"}]),
}


@pytest.mark.parametrize("form", ["object", "dict"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_response_is_read_from_the_object_and_from_its_dict(provider, form):
    given_response = HELLO[provider]
    if form == "object":
        given_response = MODELS[provider].model_validate(given_response)
    reply = MODULES[provider].decode(given_response)
    written = 0 if provider == "google" else 30
    named = (Text("Hello", extra={"own_id": "msg_1"}),)
    message = Message("assistant", named if provider == "responses" else "Hello")
    assert reply == Reply(message, usage=Usage(100, 20, 60, written, REASONING[provider]))


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    "response", [None, 3, "text", {}, {"error": "x"}, [], {"choices": []}, {"content": 3},
                 {"output": [1]}, {"candidates": [3]}, {"choices": [{"message": 3}]},
                 {"content": [{"type": "tool_use"}]}, {"output": [{"type": "function_call"}]},
                 {"candidates": [{"content": {"parts": [{"function_call": {}}]}}]},
                 {"choices": [{"message": {"tool_calls": [{}]}}]}],
)  # fmt: skip
def test_what_is_no_response_is_an_error_that_says_what_was_expected(provider, response):
    with pytest.raises(InvalidInput, match="expected"):
        MODULES[provider].decode(response)


CALL = ToolCall("call_1", "f", '{"x":1}')
CALLING: dict[str, dict[str, Any]] = {
    "chat": chat_response(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "f", "arguments": '{"x":1}'},
                }
            ],
        },
        "tool_calls",
    ),
    "responses": responses_response(
        [{"type": "function_call", "id": "fc", "call_id": "call_1", "name": "f",
          "arguments": '{"x":1}', "status": "completed"}]
    ),
    "anthropic": anthropic_response(
        [{"type": "tool_use", "id": "call_1", "name": "f", "input": {"x": 1}}], "tool_use"
    ),
    "google": google_response([{"function_call": {"id": "call_1", "name": "f", "args": {"x": 1}}}]),
}  # fmt: skip


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_call_is_read(provider):
    reply = MODULES[provider].decode(MODELS[provider].model_validate(CALLING[provider]))
    extra = {"own_id": "fc", "status": "completed"} if provider == "responses" else None
    assert reply.message == Message("assistant", None, tool_calls=(replace(CALL, extra=extra),))
    assert reply.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("provider", "response", "reason"),
    [
        ("chat", chat_response({"content": "x"}, "length"), "length"),
        ("chat", chat_response({"content": "x"}, "content_filter"), "content_filter"),
        ("anthropic", anthropic_response([], "max_tokens"), "length"),
        ("anthropic", anthropic_response([], "refusal"), "content_filter"),
        ("anthropic", anthropic_response([], "pause_turn"), "pause_turn"),
        ("google", google_response([], "MAX_TOKENS"), "length"),
        ("google", google_response([], "PROHIBITED_CONTENT"), "content_filter"),
        ("google", google_response([], "MALFORMED_FUNCTION_CALL"), "malformed_function_call"),
        ("google", {"prompt_feedback": {"block_reason": "SAFETY"}}, "content_filter"),
        (
            "responses",
            responses_response(
                [], status="incomplete", incomplete_details={"reason": "max_output_tokens"}
            ),
            "length",
        ),
        ("responses", responses_response([], status="failed", error={"code": "x"}), "failed"),
    ],
)
def test_why_a_model_stopped_is_told_in_one_vocabulary(provider, response, reason):
    assert MODULES[provider].decode(response).finish_reason == reason


def test_a_failed_response_keeps_its_error():
    error = {"code": "server_error", "message": "sorry"}
    reply = responses.decode(responses_response([], status="failed", error=error))
    assert reply.message.extra == {"error": error}


def test_a_refusal_is_part_of_what_was_said():
    reply = openai.decode(chat_response({"role": "assistant", "refusal": "No."}))
    assert reply.message.content == (Other({"type": "refusal", "refusal": "No."}),)


def test_the_rest_spelling_of_google_is_read_too():
    part = {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": SIGNATURE}
    reply = google.decode(
        {
            "candidates": [{"content": {"parts": [part]}, "finishReason": "STOP"}],
            "responseId": "r1",
            "usageMetadata": {"promptTokenCount": 7},
        }
    )
    call = ToolCall("r1_0", "f", "{}", extra={"thought_signature": SIGNATURE})
    assert reply.tool_calls == (call,)
    assert reply.usage.input == 7


def test_reasoning_between_two_calls_goes_back_to_its_place():
    output = [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "reasoning", "id": "rs_2", "summary": []},
        {"type": "function_call", "id": "fc_2", "call_id": "b", "name": "f", "arguments": "{}"},
    ]
    assert sent_back("responses", responses.decode(responses_response(output)).message) == output


# -- decode(encode(x)) is x -----------------------------------------------------------------------


def sent_back(provider: str, message: Message) -> Any:
    """Return what a request says for the assistant's message, in the form of a response."""
    slots = Slots(1_000_000, tokenizer=len)
    results = [tool(call.id, "done") for call in message.tool_calls]
    slots.add("history", [user("q"), message, *results])
    request = encode(slots.render(), provider)
    if provider == "chat":
        return request["messages"][1]
    if provider == "anthropic":
        return request["messages"][1]["content"]
    if provider == "google":
        return request["contents"][1]["parts"]
    return request["input"][1 : len(request["input"]) - len(results)]


FORMS: dict[str, Any] = {
    "chat": chat_response,
    "responses": responses_response,
    "anthropic": anthropic_response,
    "google": google_response,
}
said_texts = st.text("ab é漢😀\n", min_size=1, max_size=9).filter(lambda text: text.strip() != "")
bodies = st.dictionaries(st.text("xyz", max_size=3), st.integers() | st.text("ab", max_size=3))


@st.composite
def answers(draw: Any, provider: str) -> Message:
    """Messages as this provider's decode makes them."""
    thinks = draw(st.booleans()) if provider != "chat" else False
    parts: list[Any] = []
    if thinks:
        marks: dict[str, dict[str, Any]] = {
            "responses": {"id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
            "google": {"thought": True},
        }
        parts.append(Reasoning("hm", signature=SIGNATURE, extra=marks.get(provider)))
    count = draw(st.integers(0, 3))
    calls = []
    for number in range(count):
        kept = {}
        if provider == "google" and number == 0:
            kept = {"thought_signature": SIGNATURE}
        if provider == "responses":
            kept = {"item_id" if thinks else "own_id": f"fc_{number}"}
        calls.append(ToolCall(f"call_{number}", "f", draw(bodies), extra=kept or None))
    if not count or draw(st.booleans()):
        item = {"item_id" if thinks else "own_id": "msg_1"}
        parts.append(Text(draw(said_texts), extra=item if provider == "responses" else None))
    extra = {"reasoning_content": "hm"} if provider == "chat" and draw(st.booleans()) else None
    plain = len(parts) == 1 and isinstance(parts[0], Text)
    content = parts[0].text if plain and not parts[0].extra else tuple(parts) or None
    return Message("assistant", content, tool_calls=tuple(calls), extra=extra)


@pytest.mark.parametrize("form", ["object", "dict"])
@pytest.mark.parametrize("provider", PROVIDERS)
@given(data=st.data())
def test_an_answer_that_was_sent_back_and_read_again_is_the_same(provider, form, data):
    message = data.draw(answers(provider))
    response = FORMS[provider](sent_back(provider, trailing(provider, message)))
    if form == "object":
        response = MODELS[provider].model_validate(response)
    assert MODULES[provider].decode(response).message == trailing(provider, message)


def trailing(provider: str, message: Message) -> Message:
    """Anthropic takes no white space at the end of the last message: leave that case out."""
    if provider != "anthropic" or message.tool_calls:
        return message
    content: Any = message.content
    if isinstance(content, str):
        return Message("assistant", content.rstrip())
    return Message("assistant", (*content[:-1], Text(content[-1].text.rstrip())))
