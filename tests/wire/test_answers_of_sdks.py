"""Answers of every shape that the vendors' SDKs know go back block for block: made of their types.

Each answer is decoded, stored, read again and encoded behind a question.
"""

from __future__ import annotations

import copy
import json
import random
import types
from collections.abc import Sequence
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from anthropic.types.beta import BetaContentBlock
from google.genai import types as google_types
from openai.types.responses import ResponseOutputItem
from pydantic import BaseModel

from muntin import Message, Slots, Window
from muntin.wire import anthropic, google, responses

RANDOM = 150
PLAIN = {str: "text", int: 3, float: 0.5, bool: True, bytes: b"abcd"}
ADDED = ("cache_control", "prompt_cache_breakpoint")


def values_of(kind: Any, depth: int = 0) -> list[Any]:
    """Return values of a type: of a model one with what it requires, and one with all fields."""
    origin = get_origin(kind)
    if origin is Annotated:
        return values_of(get_args(kind)[0], depth)
    if origin is Literal:
        return [get_args(kind)[0]]
    if origin in (Union, types.UnionType):
        inner = [member for member in get_args(kind) if member is not type(None)]
        return [value for member in inner for value in values_of(member, depth)]
    if origin is list:
        return [[value] for value in values_of(get_args(kind)[0], depth + 1)[:1]]
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return models_of(kind, depth)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [list(kind)[-1].value]
    return [PLAIN.get(kind, {"key": "value"})]


def models_of(kind: type[BaseModel], depth: int) -> list[dict[str, Any]]:
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    for name, field in kind.model_fields.items() if depth < 5 else ():
        value = values_of(field.annotation, depth + 1)[0]
        most[field.alias or name] = value
        if field.is_required():
            least[field.alias or name] = value
    return [least] if least == most else [least, most]


def plain(value: Any) -> Any:
    """Return a value without empty fields, and without the marks of a request."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if v is not None and k not in ADDED}
    return [plain(item) for item in value] if isinstance(value, list) else value


def shapes(blocks: Sequence[Any], beside: Sequence[Any]) -> list[list[Any]]:
    """Return answers: every block alone, before and behind others, and random ones."""
    chosen = [[block] for block in blocks]
    chosen += [pair for a in blocks for b in beside if a is not b for pair in ([a, b], [b, a])]
    draw = random.Random(20261119)
    every = [*blocks, *[block for block in beside if not any(block is b for b in blocks)]]
    sizes = [draw.randint(3, 6) for _ in range(RANDOM)]
    return [*chosen, *[draw.sample(every, min(size, len(every))) for size in sizes]]


def stored(answer: Message) -> Message:
    again = Message.from_dict(json.loads(json.dumps(answer.to_dict())))
    assert again == answer
    return again


def window_with(answer: Message, model: str, *, paused: bool = False) -> Window:
    slots = Slots(10**6, profile=model)
    results = [Message("tool", "seen", tool_call_id=call.id) for call in answer.tool_calls]
    asked = [] if paused else [Message("user", "Go on.")]
    slots.add("history", [Message("user", "q"), answer, *results, *asked])
    return slots.render()


def test_every_block_of_anthropic_goes_back_in_its_place():
    blocks = values_of(BetaContentBlock)
    ids = {"tool_use": "toolu", "server_tool_use": "srvtoolu", "mcp_tool_use": "mcptoolu"}
    for number, block in enumerate(blocks):
        if block["type"] in ids:
            block.update(id=f"{ids[block['type']]}_{number}", input={"a": 1})
    assert {"compaction", "fallback", "mcp_tool_listing"} <= {block["type"] for block in blocks}
    beside = [
        {"type": "text", "text": "Hi."},
        {"type": "text", "text": "\n\n"},
        {"type": "text", "text": ""},
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "thinking", "thinking": "", "signature": "t"},
        {"type": "redacted_thinking", "data": "zz"},
        {"type": "tool_use", "id": "toolu_a", "name": "f", "input": {"a": 1}},
    ]
    changed = []
    for shape in shapes(blocks, beside):
        for why in ("end_turn", "pause_turn"):
            answer = {"content": copy.deepcopy(shape), "stop_reason": why}
            message = stored(anthropic.decode(answer).message)
            request = window_with(message, "anthropic/claude-opus-4-6", paused=why == "pause_turn")
            turns = [m for m in request.anthropic()["messages"] if m["role"] == "assistant"]
            if [plain(turn["content"]) for turn in turns] != [plain(shape)]:
                changed.append(shape)
    assert changed == []


def test_every_item_of_responses_goes_back_in_its_place():
    items = values_of(ResponseOutputItem)
    for number, item in enumerate(items):
        item["id"] = f"{item['type']}_{number}"
        if "call_id" in item:
            item["call_id"] = f"call_{number}"
        if "status" in item:
            item["status"] = "completed"
    beside = [i for i in items if i["type"] in ("reasoning", "message", "function_call")]
    changed = []
    for shape in shapes(items, beside):
        message = stored(responses.decode({"output": copy.deepcopy(shape)}).message)
        sent = responses.encode(window_with(message, "openai/gpt-6"))["input"]
        results = [f"call_{n}" for n in range(len(items))]
        ours = [
            item
            for item in sent
            if item.get("role") != "user"
            and not (item.get("output") == "seen" and item["call_id"] in results)
        ]
        if plain(ours) != plain(shape):
            changed.append(shape)
    assert changed == []


def test_every_part_of_gemini_goes_back_in_its_place():
    good: dict[str, dict[str, Any]] = {
        "file_data": {"fileUri": "https://example.org/a.pdf", "mimeType": "application/pdf"},
        "inline_data": {"mimeType": "image/png"},
        "executable_code": {"language": "PYTHON"},
        "code_execution_result": {"outcome": "OUTCOME_OK"},
        "tool_call": {"toolType": "GOOGLE_SEARCH_WEB"},
        "tool_response": {"toolType": "GOOGLE_SEARCH_WEB"},
    }
    not_alone = ("media_resolution", "video_metadata", "part_metadata")
    called = ("function_call", "function_response")
    parts = [
        {name: values_of(field.annotation)[-1] | good.get(name, {})}
        for name, field in google_types.Part.model_fields.items()
        if name not in (*not_alone, *called) and isinstance(values_of(field.annotation)[-1], dict)
    ]  # fmt: skip
    assert {"tool_call", "audio_transcription"} <= {key for part in parts for key in part}
    call = {"function_call": {"id": "c1", "name": "f", "args": {"a": 1}}}
    beside: list[Any] = [
        {"text": "Hi."},
        {"text": "hm", "thought": True},
        {"text": "x", "thought_signature": b"signed"},
        {**call, "thought_signature": b"called"},
    ]
    changed = []
    for shape in shapes([*parts, *beside], beside):
        content = google_types.Content.model_validate({"role": "model", "parts": shape})
        answer = google_types.GenerateContentResponse(
            candidates=[google_types.Candidate(content=content)], response_id="r"
        )
        message = stored(google.decode(answer).message)
        sent = google.encode(window_with(message, "google/gemini-3-pro"))["contents"]
        turns = [google_types.Content(**turn) for turn in sent if turn["role"] == "model"]
        if turns != [content]:
            changed.append(shape)
    assert changed == []
