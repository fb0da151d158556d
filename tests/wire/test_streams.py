"""A streamed answer, put together, is the answer that comes in one piece."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic.types import RawMessageStreamEvent
from google.genai.types import GenerateContentResponse
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from muntin import Message, Reasoning, Text, ToolCall
from muntin.errors import InvalidInput
from muntin.providers.model import ReasoningDelta, TextDelta, ToolCalled, Usage
from tests.wire.test_decode import MODULES, output_message, responses_response
from tests.wire.windows import PROVIDERS, SIGNATURE

CHUNKS: dict[str, TypeAdapter[Any]] = {
    "chat": TypeAdapter(ChatCompletionChunk),
    "responses": TypeAdapter(ResponseStreamEvent),
    "anthropic": TypeAdapter(RawMessageStreamEvent),
    "google": TypeAdapter(GenerateContentResponse),
}


def chat() -> Iterator[dict[str, Any]]:
    def chunk(delta: dict[str, Any], **choice: Any) -> dict[str, Any]:
        return {"id": "c", "created": 1, "model": "m", "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": delta, **choice}]}  # fmt: skip

    yield chunk({"role": "assistant", "content": "", "reasoning_content": "h"})
    yield chunk({"reasoning_content": "m"})
    yield chunk({"content": "Look"})
    yield chunk({"content": "ing"})
    yield chunk({"tool_calls": [{"index": 0, "id": "a", "type": "function",
                                 "function": {"name": "f", "arguments": ""}}]})  # fmt: skip
    yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"x"'}}]})
    yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]})
    yield chunk({"tool_calls": [{"index": 1, "id": "b", "type": "function",
                                 "function": {"name": "g", "arguments": "{}"}}]})  # fmt: skip
    yield chunk({}, finish_reason="tool_calls")
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
    yield {**chunk({}), "choices": [], "usage": usage}


def responses() -> Iterator[dict[str, Any]]:
    thought = {"type": "reasoning", "id": "rs", "encrypted_content": SIGNATURE,
               "summary": [{"type": "summary_text", "text": "hm"}]}  # fmt: skip
    calls = [
        {"type": "function_call", "id": "fc_a", "call_id": "a", "name": "f",
         "arguments": '{"x":1}', "status": "completed"},
        {"type": "function_call", "id": "fc_b", "call_id": "b", "name": "g",
         "arguments": "{}", "status": "completed"},
    ]  # fmt: skip
    output = [thought, output_message("Looking"), *calls]
    base = {"output_index": 0, "item_id": "i", "content_index": 0}
    for number, piece in enumerate("hm"):
        yield {"type": "response.reasoning_summary_text.delta", "delta": piece,
               "summary_index": 0, "sequence_number": number, **base}  # fmt: skip
    for piece in ("Look", "ing"):
        yield {"type": "response.output_text.delta", "delta": piece, "logprobs": [],
               "sequence_number": 3, **base}  # fmt: skip
    for number, item in enumerate(output):
        yield {"type": "response.output_item.done", "item": item, "output_index": number,
               "sequence_number": 5}  # fmt: skip
    usage = {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 0,
             "cache_write_tokens": 0}, "output_tokens": 5,
             "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 14}  # fmt: skip
    whole = responses_response(output, usage=usage)
    yield {"type": "response.completed", "response": whole, "sequence_number": 9}


def anthropic() -> Iterator[dict[str, Any]]:
    start = {"id": "m", "type": "message", "role": "assistant", "model": "m",
             "usage": {"input_tokens": 9, "output_tokens": 1},
             "content": list[Any](), "stop_reason": None}  # fmt: skip
    yield {"type": "message_start", "message": start}
    blocks = [
        ({"type": "thinking", "thinking": "", "signature": ""},
         [{"type": "thinking_delta", "thinking": "h"}, {"type": "thinking_delta", "thinking": "m"},
          {"type": "signature_delta", "signature": SIGNATURE}]),
        ({"type": "text", "text": ""},
         [{"type": "text_delta", "text": "Look"}, {"type": "text_delta", "text": "ing"}]),
        ({"type": "tool_use", "id": "a", "name": "f", "input": {}},
         [{"type": "input_json_delta", "partial_json": ""},
          {"type": "input_json_delta", "partial_json": '{"x"'},
          {"type": "input_json_delta", "partial_json": ": 1}"}]),
        ({"type": "tool_use", "id": "b", "name": "g", "input": {}}, []),
    ]  # fmt: skip
    for index, (block, deltas) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": "tool_use"},
           "usage": {"output_tokens": 5}}  # fmt: skip
    yield {"type": "message_stop"}


def google() -> Iterator[dict[str, Any]]:
    def chunk(*parts: Any, **fields: Any) -> dict[str, Any]:
        content = {"role": "model", "parts": list(parts)}
        return {"response_id": "r", "candidates": [{"content": content, **fields}]}

    yield chunk({"text": "h", "thought": True})
    yield chunk({"text": "m", "thought": True})
    yield chunk({"text": "Look"})
    yield chunk({"text": "ing"})
    signed = {"thought_signature": b"signed"}
    yield chunk({"function_call": {"id": "a", "name": "f", "args": {"x": 1}}, **signed})
    last = chunk({"function_call": {"id": "b", "name": "g", "args": {}}}, finish_reason="STOP")
    yield {
        **last,
        "usage_metadata": {"prompt_token_count": 9, "candidates_token_count": 5},
    }


STREAMS: dict[str, Any] = {
    "chat": chat,
    "responses": responses,
    "anthropic": anthropic,
    "google": google,
}


def calls(provider: str) -> tuple[ToolCall, ...]:
    done = {"status": "completed"}
    first = {"google": {"thought_signature": SIGNATURE}, "responses": {"item_id": "fc_a", **done}}
    second = {"responses": {"item_id": "fc_b", **done}}
    return (
        ToolCall("a", "f", '{"x":1}', extra=first.get(provider)),
        ToolCall("b", "g", "{}", extra=second.get(provider)),
    )


def whole(provider: str) -> Message:
    if provider == "chat":
        extra = {"reasoning_content": "hm"}
        return Message("assistant", "Looking", tool_calls=calls(provider), extra=extra)
    summary = [{"type": "summary_text", "text": "hm"}]
    reasoning, text = {
        "responses": (
            Reasoning("hm", signature=SIGNATURE, extra={"id": "rs", "summary": summary}),
            Text("Looking", extra={"item_id": "msg_1"}),
        ),
        "anthropic": (Reasoning("hm", signature=SIGNATURE), Text("Looking")),
        "google": (Reasoning("hm", extra={"thought": True}), Text("Looking")),
    }[provider]
    return Message("assistant", (reasoning, text), tool_calls=calls(provider))


@pytest.mark.parametrize("form", ["object", "dict"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_stream_becomes_events_and_then_the_same_reply(provider, form):
    assembler, events = MODULES[provider].Assembler(), []
    for chunk in STREAMS[provider]():
        made = CHUNKS[provider].validate_python(chunk) if form == "object" else chunk
        events += assembler.feed(made)
    reply = assembler.reply()
    assert reply.message == whole(provider)
    assert reply.usage == Usage(9, 5)
    assert reply.finish_reason == "tool_calls"
    assert assembler.finished
    assert [e.text for e in events if isinstance(e, ReasoningDelta)] == ["h", "m"]
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["Look", "ing"]
    assert tuple(e.call for e in events if isinstance(e, ToolCalled)) == reply.tool_calls


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_stream_that_broke_off_is_no_reply(provider):
    assembler = MODULES[provider].Assembler()
    for chunk in list(STREAMS[provider]())[:3]:
        assembler.feed(chunk)
    assert not assembler.finished
    with pytest.raises(InvalidInput, match="broke off"):
        assembler.reply()


def test_calls_of_servers_that_number_them_all_alike_are_told_apart_by_id():
    assembler = MODULES["chat"].Assembler()
    for call_id, name, arguments in (("a", "f", '{"x"'), ("a", "", ":1}"), ("b", "g", "{}")):
        function = {"name": name, "arguments": arguments}
        delta = {"tool_calls": [{"index": 0, "id": call_id, "function": function}]}
        assembler.feed({"choices": [{"index": 0, "delta": delta}]})
    assembler.feed({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    assert assembler.reply().tool_calls == calls("chat")


def test_a_signed_text_of_google_is_kept_apart():
    assembler = MODULES["google"].Assembler()
    for part in ({"text": "a"}, {"text": "b"}, {"text": "", "thought_signature": SIGNATURE}):
        assembler.feed({"candidates": [{"content": {"parts": [part]}}]})
    assembler.feed({"candidates": [{"finish_reason": "STOP"}]})
    assert assembler.reply().message.content == (
        Text("ab"),
        Text("", extra={"thought_signature": SIGNATURE}),
    )


def test_a_call_cut_short_keeps_the_arguments_that_came():
    assembler = MODULES["anthropic"].Assembler()
    block = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    assembler.feed({"type": "content_block_start", "index": 0, "content_block": block})
    delta = {"type": "input_json_delta", "partial_json": '{"x": "lo'}
    assembler.feed({"type": "content_block_delta", "index": 0, "delta": delta})
    assembler.feed({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}})
    reply = assembler.reply()
    assert reply.tool_calls == (ToolCall("a", "f", '{"x": "lo'),)
    assert reply.finish_reason == "length"


def piece(provider: str, text: str) -> dict[str, Any]:
    forms: dict[str, dict[str, Any]] = {
        "chat": {"choices": [{"index": 0, "delta": {"content": text}}]},
        "responses": {"type": "response.output_text.delta", "delta": text},
        "anthropic": {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": text},
        },
        "google": {"candidates": [{"content": {"parts": [{"text": text}]}}]},
    }
    return forms[provider]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_piece_costs_the_same_work_however_long_the_reply_is(provider):
    """Counted in lines run; a copy of what came before is one line, so sizes are looked at too."""
    assembler = MODULES[provider].Assembler()

    def lines() -> int:
        count = 0

        def trace(frame: Any, event: str, argument: Any) -> Any:
            nonlocal count
            count += event == "line"
            texts = [v for v in frame.f_locals.values() if isinstance(v, str)]
            assert max(map(len, texts), default=0) < 1_000, "nothing is joined on the way"
            return trace

        sys.settrace(trace)
        try:
            assembler.feed(piece(provider, "word "))
        finally:
            sys.settrace(None)
        return count

    assembler.feed(piece(provider, "word "))
    early = lines()
    for _ in range(5_000):
        assembler.feed(piece(provider, "word "))
    assert lines() == early
