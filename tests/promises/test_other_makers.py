"""Messages in the forms of Anthropic, Google and OpenAI's Responses are read without loss, or
refused by name; nothing of them is dropped silently."""

from __future__ import annotations

from copy import deepcopy
from math import nan
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion
from openai.types.responses import Response, ResponseFunctionToolCall
from pydantic import TypeAdapter

from muntin import History, InvalidInput, Message, Slots, generate_sync, messages_from, prompt
from muntin.errors import NeedsConversation
from muntin.testing import ScriptedModel
from muntin.timeline import Session
from muntin.timeline.store.memory import MemoryStore
from muntin.wire import anthropic, chat, google, responses

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}
THOUGHT = {"type": "thinking", "thinking": "Look it up.", "signature": "c2ln"}
HIDDEN = {"type": "redacted_thinking", "data": "ZW5j"}

ANTHROPIC: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "text", "text": "What is this?"}, IMAGE]},
    {
        "role": "assistant",
        "content": [
            THOUGHT,
            HIDDEN,
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "a1", "name": "find", "input": {"q": "x", "n": None}},
            {"type": "text", "text": "And there."},
            {"type": "tool_use", "id": "a2", "name": "find", "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "a1", "content": "one", "is_error": True},
            {
                "type": "tool_result",
                "tool_use_id": "a2",
                "content": [{"type": "text", "text": "two"}, IMAGE],
            },
            {"type": "text", "text": "Well?", "cache_control": {"type": "ephemeral"}},
        ],
    },
]
GOOGLE: list[dict[str, Any]] = [
    {
        "role": "user",
        "parts": [
            {"text": "a"},
            {"text": "b"},
            {"inlineData": {"mimeType": "image/png", "data": "aGk="}},
        ],
    },
    {
        "role": "model",
        "parts": [
            {"text": "Hm.", "thought": True},
            {"text": "I look.", "thoughtSignature": "c2ln"},
            {"functionCall": {"name": "find", "args": {"q": "x"}}, "thoughtSignature": "c2lx"},
            {"functionCall": {"name": "find", "args": {"q": "x"}}},
        ],
    },
    {
        "role": "user",
        "parts": [
            {"functionResponse": {"name": "find", "response": {"temperature": 22, "unit": "C"}}},
            {"functionResponse": {"name": "find", "response": {"output": "two"}}},
            {"text": "Well?"},
        ],
    },
]
RESPONSES: list[dict[str, Any]] = [
    {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "What is this?"},
            {"type": "input_image", "image_url": "https://x.test/a.png", "detail": "low"},
        ],
    },
    {"type": "reasoning", "id": "r1", "summary": [], "encrypted_content": "ZW5j"},
    {
        "type": "message",
        "id": "m1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
    },
    {"type": "function_call", "id": "f1", "call_id": "c1", "name": "find", "arguments": '{"q":1}'},
    {"type": "function_call", "id": "f2", "call_id": "c2", "name": "find", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "one"},
    {
        "type": "function_call_output",
        "call_id": "c2",
        "output": [{"type": "input_text", "text": "2"}],
    },
]


def window_of(messages: list[Any]) -> Any:
    slots = Slots(100_000)
    slots.add("history", messages)
    return slots.render()


def test_an_anthropic_conversation_comes_back_block_by_block() -> None:
    before = deepcopy(ANTHROPIC)
    window = window_of(ANTHROPIC)
    assert before == ANTHROPIC
    assert [m.role for m in window.messages] == ["user", "assistant", "tool", "tool", "user"]
    assert anthropic.encode(window)["messages"] == ANTHROPIC
    assert window.report.not_carried == ()


def snake(value: Any) -> Any:
    """Write what Google's SDK makes of a content, to compare."""
    made = types.Content.model_validate(value)
    return made.model_dump(exclude_none=True)


def test_a_google_conversation_comes_back_part_by_part() -> None:
    window = window_of(GOOGLE)
    assert [m.role for m in window.messages] == ["user", "assistant", "tool", "tool", "user"]
    assert [snake(each) for each in google.encode(window)["contents"]] == list(map(snake, GOOGLE))
    assert window.report.not_carried == ()


def test_items_of_the_responses_api_come_back_item_by_item() -> None:
    window = window_of(RESPONSES)
    assert [m.role for m in window.messages] == ["user", "assistant", "tool", "tool"]
    assert responses.encode(window)["input"] == RESPONSES
    assert window.report.not_carried == ()


@pytest.mark.parametrize(
    "given", [ANTHROPIC, GOOGLE, RESPONSES], ids=["anthropic", "google", "items"]
)
@pytest.mark.parametrize("wire", [anthropic, chat, google, responses])
def test_every_wire_carries_calls_results_and_texts_of_all_of_them(given: Any, wire: Any) -> None:
    sent = repr(wire.encode(window_of(given)))
    for word in ("find", "I look."):
        assert word in sent
    assert len(window_of(given).messages[1].tool_calls) == 2
    results = [m for m in window_of(given).messages if m.role == "tool"]
    calls = [call.id for call in window_of(given).messages[1].tool_calls]
    assert [m.tool_call_id for m in results] == calls


ANSWER = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5",
    "content": ANTHROPIC[1]["content"],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 2},
}
CHAT = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-4o",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "a1",
                        "type": "function",
                        "function": {"name": "find", "arguments": "{}"},
                    }
                ],
            },
        }
    ],
}


def objects() -> dict[str, Any]:
    whole = AnthropicMessage.model_validate(ANSWER)
    completion = ChatCompletion.model_validate(CHAT)
    content = types.Content.model_validate(GOOGLE[1])
    response = types.GenerateContentResponse(candidates=[types.Candidate(content=content)])
    item = ResponseFunctionToolCall.model_validate(RESPONSES[3])
    return {
        "anthropic message": whole,
        "anthropic dict with SDK blocks": {"role": "assistant", "content": whole.content},
        "chat completion": completion,
        "chat message": completion.choices[0].message,
        "chat dict with SDK calls": {
            "role": "assistant",
            "tool_calls": completion.choices[0].message.tool_calls,
        },
        "google content": content,
        "google parts": {"role": "model", "parts": content.parts},
        "google response": response,
        "responses item": item,
    }


@pytest.mark.parametrize("name", list(objects()))
@pytest.mark.parametrize("listed", [False, True])
def test_the_objects_of_the_sdks_are_read(name: str, listed: bool) -> None:
    value = objects()[name]
    (message,) = messages_from([value] if listed else value)
    assert message.role == "assistant"
    assert {call.name for call in message.tool_calls} == {"find"}
    assert window_of([value]).messages == (message,)
    slots = Slots(10_000)
    slots.add("said", value)
    assert slots.render().messages == (message,)


def test_a_whole_response_of_the_responses_api_is_read() -> None:
    whole = TypeAdapter(Response).validate_python(
        {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "model": "gpt-5",
            "output": RESPONSES[1:5],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }
    )
    items = [RESPONSES[0], whole, *RESPONSES[5:]]
    assert responses.encode(window_of(items))["input"] == RESPONSES
    assert (
        responses.encode(window_of([RESPONSES[0], *whole.output, *RESPONSES[5:]]))["input"]
        == RESPONSES
    )


def test_one_that_means_several_is_refused_alone_and_says_what_to_use() -> None:
    with pytest.raises(
        NeedsConversation, match=r"means 3 messages \(tool, tool, user\).*messages_from"
    ):
        Message.from_dict(ANTHROPIC[2])
    with pytest.raises(NeedsConversation, match=r"function call 'find' has no id.*messages_from"):
        Message.from_dict(GOOGLE[1])
    assert Message.from_dict(ANTHROPIC[1]).tool_calls[0].arguments == '{"n":null,"q":"x"}'


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"type": "tool_use", "id": "a", "name": "f", "input": {}}, "block of type 'tool_use'"),
        ({"type": "item_reference", "id": "m1"}, "type 'item_reference'"),
        ({"type": "computer_call_output", "call_id": "c"}, "type 'computer_call_output'"),
        ({"role": "model", "parts": [{"hologram": {}}]}, "'hologram'"),
        ({"role": "robot", "parts": [{"text": "x"}]}, "unknown role 'robot'"),
        (
            {"role": "user", "parts": [{"functionCall": {"name": "f"}}]},
            "function call belongs to a model",
        ),
        (
            {
                "role": "user",
                "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}],
            },
            "tool_use belongs to an assistant",
        ),
        (
            {"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "a"}]},
            "tool_result belongs to a user",
        ),
        ({"role": "user", "content": [{"type": "tool_result"}]}, "needs a 'tool_use_id'"),
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "needs 'call_id'"),
        ({"choices": []}, "0 choices"),
        ({"text": "hi"}, r"needs a 'role'; its keys are \['text'\]"),
        ({"role": "assistant", "content": [{"type": "text"}], "stop_reason": "x"}, "lacks 'text'"),
        ({"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"x": nan}}}]}, "nan"),
        ({"role": "user", "parts": [{"functionResponse": {"name": "f", "response": 5}}]}, "dict"),
        ({"role": ["x"], "parts": []}, "cannot be read as a message"),
        ({"type": ["x"]}, "cannot be read as a message|needs a 'role'"),
        ({"type": "message", "role": "assistant", "content": 5}, "cannot be read as a message"),
        ({"type": "message", "role": "assistant", "content": [5]}, "part must be a mapping"),
        ({"type": "reasoning", "id": "r", "summary": [{"a": 1}]}, "lacks 'text'"),
        ({"candidates": ["x"]}, "cannot be read as a message"),
        ({"candidates": [{"content": None}]}, "not NoneType"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(given: Any, named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        messages_from(given)
    with pytest.raises(InvalidInput, match=named):
        window_of([{"role": "user", "content": "hi"}, given])


@pytest.mark.parametrize(
    "given", [ANTHROPIC, GOOGLE, RESPONSES], ids=["anthropic", "google", "items"]
)
def test_every_place_that_takes_a_list_reads_them(given: Any) -> None:
    read = messages_from(given)
    assert list(History(given)) == read
    model = ScriptedModel(["ok"], name="openai/gpt-4o")
    generate_sync(prompt(messages=given), model=model)
    assert [*model.windows[0].messages] == read
    added = Session("s", store=MemoryStore()).append(*given)
    assert [item.message for item in added] == read


texts = st.text("abc é", min_size=1, max_size=8).filter(lambda text: text.strip())
inputs = st.dictionaries(texts, st.none() | st.integers() | texts, max_size=3)


@st.composite
def anthropic_talk(draw: st.DrawFn) -> list[dict[str, Any]]:
    talk: list[dict[str, Any]] = []
    number = 0
    for _ in range(draw(st.integers(1, 4))):
        ids = [f"t{number + n}" for n in range(draw(st.integers(0, 3)))]
        number += len(ids)
        blocks: list[dict[str, Any]] = [{"type": "text", "text": draw(texts)}]
        if draw(st.booleans()):
            blocks.insert(0, {"type": "thinking", "thinking": draw(texts), "signature": "c2ln"})
        blocks += [
            {"type": "tool_use", "id": each, "name": "f", "input": draw(inputs)} for each in ids
        ]
        results = [
            {"type": "tool_result", "tool_use_id": each, "content": draw(texts)} for each in ids
        ]
        said = [{"type": "text", "text": draw(texts)}]
        talk += [
            {"role": "assistant", "content": blocks},
            {"role": "user", "content": results + said},
        ]
    return [{"role": "user", "content": [{"type": "text", "text": "go"}]}, *talk]


@given(anthropic_talk())
def test_any_anthropic_conversation_comes_back_as_it_was(talk: list[dict[str, Any]]) -> None:
    before = deepcopy(talk)
    assert anthropic.encode(window_of(talk))["messages"] == before
    assert talk == before


@st.composite
def google_talk(draw: st.DrawFn) -> list[dict[str, Any]]:
    talk: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": "go"}]}]
    for _ in range(draw(st.integers(1, 4))):
        names = draw(st.lists(st.sampled_from(["f", "g"]), max_size=3))
        calls: list[dict[str, Any]] = [
            {"function_call": {"name": name, "args": draw(inputs)}} for name in names
        ]
        if calls:
            calls[0]["thought_signature"] = b"sig"
        responses_ = [
            {"function_response": {"name": name, "response": draw(inputs) or {"output": "x"}}}
            for name in names
        ]
        talk.append({"role": "model", "parts": [{"text": draw(texts)}, *calls]})
        talk.append({"role": "user", "parts": [*responses_, {"text": draw(texts)}]})
    return talk


@given(google_talk())
def test_any_google_conversation_comes_back_as_it_was(talk: list[dict[str, Any]]) -> None:
    assert google.encode(window_of(talk))["contents"] == talk
