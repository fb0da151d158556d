"""A window is never counted below what OpenAI's published formula gives for its request.

https://cookbook.openai.com/examples/how_to_count_tokens_with_tiktoken
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import Message, Slots, ToolCall, Window, assistant, system, tool, user
from muntin.core.counting.counter import Counter, as_tokenizer
from tests.wire.windows import ODD_TOOLS, TOOLS, conversations

pytest.importorskip("tiktoken")

ENCODINGS = {"o200k_base": 7, "cl100k_base": 10}


def published(request: dict[str, Any], encoding: str) -> int:
    """The cookbook's `num_tokens_from_messages` and `num_tokens_for_tools`."""
    size = as_tokenizer(encoding).count
    tokens = 3
    for message in request["messages"]:
        tokens += 3 + sum(size(text) for text in texts_of(message))
        tokens += "name" in message
    functions = [each["function"] for each in request.get("tools", ()) if "function" in each]
    tokens += 12 * bool(functions)
    for function in functions:
        tokens += ENCODINGS[encoding] + size(line(function["name"], function))
        properties = (function.get("parameters") or {}).get("properties") or {}
        tokens += 3 * bool(properties)
        for name, given_schema in properties.items():
            tokens += 3 + size(line(f"{name}:{given_schema.get('type', '')}", given_schema))
            if "enum" in given_schema:
                tokens += sum(3 + size(value) for value in given_schema["enum"]) - 3
    return tokens


def line(start: str, held: dict[str, Any]) -> str:
    return f"{start}:{(held.get('description') or '').removesuffix('.')}"


def texts_of(message: dict[str, Any]) -> list[str]:
    """Return every value of a message that is text: role, content, name, calls, reasoning."""
    found = [message["role"]]
    for key in ("content", "name", "refusal", "reasoning", "reasoning_content"):
        value = message.get(key)
        for part in value if isinstance(value, list) else [{"text": value}]:
            found += [part.get("text"), part.get("refusal")]
    for each in message.get("reasoning_details", ()):
        found += [each.get("text"), each.get("summary")]
    calls = [call.get("function", call.get("custom")) for call in message.get("tool_calls", ())]
    calls += [message["function_call"]] if "function_call" in message else []
    for call in calls:
        found += [call["name"], call.get("arguments", call.get("input"))]
    return [text for text in found if text]


def window(encoding: str, messages: list[Message], tools: Any = ()) -> Window:
    slots = Slots(1_000_000, tokenizer=encoding, tools=tools)
    slots.add("history", messages)
    return slots.render()


MANY = {
    "type": "function",
    "function": {
        "name": "paint",
        "description": "Paint it.",
        "parameters": {
            "type": "object",
            "properties": {"hue": {"type": "string", "enum": [f"hue {n}" for n in range(60)]}},
        },
    },
}


@given(
    messages=conversations(),
    tools=st.lists(st.sampled_from([*TOOLS, *ODD_TOOLS, MANY]), max_size=6),
    encoding=st.sampled_from(list(ENCODINGS)),
)
def test_no_window_is_counted_below_the_published_formula(messages, tools, encoding):
    made = window(encoding, messages, tools)
    request = made.openai(strict=False)
    if request["messages"]:
        assert made.tokens >= published(request, encoding)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_messages_of_text_and_names_are_counted_exactly(encoding):
    # The cookbook's own example.
    lines = [
        ("example_user", "New synergies will help drive top-line growth."),
        ("example_assistant", "Things working well together will increase revenue."),
        ("example_user", "Let's circle back when we have more bandwidth."),
        ("example_assistant", "Let's talk later when we're less busy about it."),
    ]
    messages = [Message("system", text, name=name) for name, text in lines]
    messages = [system("Translate jargon into plain English."), *messages, user("Go on.")]
    made = window(encoding, messages)
    assert made.tokens == published(made.openai(), encoding)
    assert made.report.answer_tokens == 3


def test_a_call_and_its_result_are_counted_exactly():
    call = ToolCall("1", "look_up", '{"q":"x"}')
    made = window("o200k_base", [user("q"), assistant(tool_calls=[call]), tool("1", "found")])
    assert made.tokens == published(made.openai(), "o200k_base")


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        ({"refusal": "No, I will not."}, "No, I will not."),
        ({"reasoning_details": [{"type": "reasoning.text", "text": "So it is."}]}, "So it is."),
        ({"reasoning_details": [{"type": "reasoning.summary", "summary": "So."}]}, "So."),
        ({"reasoning_details": [{"type": "reasoning.encrypted", "data": "AAAA"}]}, ""),
        ({"function_call": {"name": "f", "arguments": '{"a":1}'}}, 'f{"a":1}'),
    ],
)
def test_what_stands_beside_the_content_is_counted(extra, text):
    counter = Counter(len)
    plain = counter.message(assistant("Hm."))
    assert counter.message(Message("assistant", "Hm.", extra=extra)) == plain + len(text)


def test_a_failed_result_that_says_nothing_counts_what_is_sent_for_it():
    counter = Counter(len)
    failed = Message("tool", " ", tool_call_id="1", extra={"is_error": True})
    assert counter.message(failed) == 1 + len("(no result was recorded)")


def test_a_window_of_nothing_has_no_answer():
    made = Slots(0, tokenizer="o200k_base").render()
    assert (made.tokens, made.over_budget) == (0, False)
