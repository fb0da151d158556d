"""A model on this machine that speaks OpenAI Chat Completions, Responses and Anthropic Messages.

It answers whole or streamed, as it is asked, and Gemini's generateContent whole. What it says comes
from a function that is given the name of the API and the request; whether the request is valid is
for that function to say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from tests.providers.servers import Answer, Received, Server, serving


@dataclass(frozen=True)
class Called:
    """A call of a tool."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Said:
    """What the model says: a text, or calls; `read` are the tokens it was billed for."""

    text: str = ""
    calls: tuple[Called, ...] = ()
    read: int = 0


Speaker = Callable[[str, dict[str, Any]], Said]
"""Is given the API (`chat`, `responses`, `anthropic`, `google`) and the request; returns what is
said."""

_APIS = {
    "/chat/completions": "chat",
    "/responses": "responses",
    "/messages": "anthropic",
    ":generateContent": "google",
}


@contextmanager
def speaking(speaker: Speaker) -> Iterator[Server]:
    """Run a model that says what the function returns; an error of the function is a status 400."""
    numbers = count(1)

    def answer(received: Received) -> Answer:
        api = next((api for path, api in _APIS.items() if received.path.endswith(path)), None)
        if api is None:
            return Answer(404, {"error": {"message": f"nothing is at {received.path}"}})
        try:
            said = speaker(api, received.body)
        except Exception as error:
            return Answer(400, _refusal(api, f"{type(error).__name__}: {error}"))
        number = next(numbers)
        if received.body.get("stream"):
            return Answer(pieces=tuple(_STREAMS[api](said, number)))
        return Answer(body=_BODIES[api](said, number))

    with serving(answer) as server:
        yield server


def _refusal(api: str, words: str) -> dict[str, Any]:
    error = {"type": "invalid_request_error", "message": words}
    return {"type": "error", "error": error} if api == "anthropic" else {"error": error}


def _events(events: Sequence[Mapping[str, Any]], *, named: bool) -> Iterator[str]:
    for event in events:
        name = f"event: {event['type']}\n" if named else ""
        yield f"{name}data: {json.dumps(event)}\n\n"


def _halves(text: str) -> tuple[str, ...]:
    """Cut a text in two, as a stream does."""
    middle = len(text) // 2
    return tuple(filter(None, (text[:middle], text[middle:])))


# Chat Completions.


def _chat_usage(said: Said) -> dict[str, int]:
    return {"prompt_tokens": said.read, "completion_tokens": 5, "total_tokens": said.read + 5}


def _chat_calls(said: Said) -> list[dict[str, Any]]:
    return [
        {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
        for c in said.calls
    ]


def _chat(said: Said, number: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said.text or None, "refusal": None}
    if said.calls:
        message["tool_calls"] = _chat_calls(said)
    finish = "tool_calls" if said.calls else "stop"
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-5",
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": _chat_usage(said),
    }


def _chat_stream(said: Said, number: int) -> Iterator[str]:
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1}
    head["model"] = "gpt-5"

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    chunks = [chunk({"role": "assistant", "content": ""})]
    chunks += [chunk({"content": piece}) for piece in _halves(said.text)]
    for index, call in enumerate(_chat_calls(said)):
        opened = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
        chunks.append(chunk({"tool_calls": [opened]}))
        chunks += [
            chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
            for piece in _halves(call["function"]["arguments"])
        ]
    chunks.append(chunk({}, "tool_calls" if said.calls else "stop"))
    chunks.append({**head, "choices": [], "usage": _chat_usage(said)})
    yield from _events(chunks, named=False)
    yield "data: [DONE]\n\n"


# Responses.


def _items(said: Said, number: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if said.text:
        part = {"type": "output_text", "text": said.text, "annotations": [], "logprobs": []}
        items.append({"id": f"msg_{number}", "type": "message", "role": "assistant",
                      "status": "completed", "content": [part]})  # fmt: skip
    items += [
        {"id": f"fc_{number}_{at}", "type": "function_call", "call_id": call.id, "name": call.name,
         "arguments": call.arguments, "status": "completed"}
        for at, call in enumerate(said.calls)
    ]  # fmt: skip
    return items


def _response(said: Said, number: int, status: str = "completed") -> dict[str, Any]:
    usage = {
        "input_tokens": said.read,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": said.read + 5,
    }
    done = status == "completed"
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "gpt-5",
        "output": _items(said, number) if done else [],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage if done else None,
    }


def _response_stream(said: Said, number: int) -> Iterator[str]:
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": _response(said, number, "in_progress")}
    ]
    for at, item in enumerate(_items(said, number)):
        place = {"item_id": item["id"], "output_index": at}
        opened = {**item, "status": "in_progress"}
        if item["type"] == "message":
            opened["content"] = []
        else:
            opened["arguments"] = ""
        events.append({"type": "response.output_item.added", "output_index": at, "item": opened})
        if item["type"] == "message":
            events += _said_events(item["content"][0], {**place, "content_index": 0})
        else:
            kind = "response.function_call_arguments"
            pieces = _halves(item["arguments"])
            events += [{"type": f"{kind}.delta", **place, "delta": piece} for piece in pieces]
            whole = {"arguments": item["arguments"], "name": item["name"]}
            events.append({"type": f"{kind}.done", **place, **whole})
        events.append({"type": "response.output_item.done", "output_index": at, "item": item})
    events.append({"type": "response.completed", "response": _response(said, number)})
    numbered = [{**event, "sequence_number": at} for at, event in enumerate(events)]
    yield from _events(numbered, named=True)


def _said_events(part: dict[str, Any], place: dict[str, Any]) -> list[dict[str, Any]]:
    kind = "response.output_text"
    return [
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        *(
            {"type": f"{kind}.delta", **place, "delta": piece, "logprobs": []}
            for piece in _halves(part["text"])
        ),
        {"type": f"{kind}.done", **place, "text": part["text"], "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
    ]


# Anthropic's Messages.


def _blocks(said: Said) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": said.text}] if said.text else []
    return blocks + [
        {"type": "tool_use", "id": c.id, "name": c.name, "input": json.loads(c.arguments)}
        for c in said.calls
    ]


def _message(said: Said, number: int) -> dict[str, Any]:
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": _blocks(said),
        "stop_reason": "tool_use" if said.calls else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": said.read,
            "output_tokens": 5,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        },
    }


def _message_stream(said: Said, number: int) -> Iterator[str]:
    whole = _message(said, number)
    opened = {**whole, "content": [], "stop_reason": None}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": opened}]
    for index, block in enumerate(whole["content"]):
        is_text = block["type"] == "text"
        empty = {**block, "text": ""} if is_text else {**block, "input": {}}
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        kind, key = ("text_delta", "text") if is_text else ("input_json_delta", "partial_json")
        text = block["text"] if is_text else json.dumps(block["input"])
        events += [
            {"type": "content_block_delta", "index": index, "delta": {"type": kind, key: piece}}
            for piece in _halves(text)
        ]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}})
    events.append({"type": "message_stop"})
    yield from _events(events, named=True)


# Gemini's generateContent.


def _content(said: Said, number: int) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"text": said.text}] if said.text else []
    parts += [
        {"functionCall": {"name": call.name, "args": json.loads(call.arguments)}}
        for call in said.calls
    ]
    answer = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": said.read, "candidatesTokenCount": 5}
    return {"candidates": [answer], "usageMetadata": usage, "responseId": str(number)}


_BODIES: Mapping[str, Callable[[Said, int], dict[str, Any]]] = {
    "chat": _chat,
    "responses": _response,
    "anthropic": _message,
    "google": _content,
}
_STREAMS: Mapping[str, Callable[[Said, int], Iterator[str]]] = {
    "chat": _chat_stream,
    "responses": _response_stream,
    "anthropic": _message_stream,
}
