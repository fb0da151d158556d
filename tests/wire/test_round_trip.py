"""Answers go back as they came: block for block to the same vendor, and nothing is lost unnamed."""

from __future__ import annotations

from typing import Any

import pytest

from muntin import Message, Slots, Window, fit
from muntin.wire import anthropic, google, responses

TEXT = {"type": "text", "text": "Let me look."}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s1"}
LATER = {"type": "thinking", "thinking": "now", "signature": "s2"}
CALL = {"type": "tool_use", "id": "a", "name": "look", "input": {"n": 1}}
OTHER_CALL = {"type": "tool_use", "id": "b", "name": "look", "input": {"n": 2}}
SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
MCP_CALL = {"type": "mcp_tool_use", "id": "m", "name": "n", "server_name": "s", "input": {}}
MCP_RESULT = {"type": "mcp_tool_result", "tool_use_id": "m", "content": []}
ANSWERS: dict[str, list[dict[str, Any]]] = {
    "thoughts behind a text": [TEXT, THOUGHT, TEXT],
    "a blank text before thoughts": [{"type": "text", "text": "\n\n"}, THOUGHT, TEXT],
    "thoughts behind a search": [SEARCH, FOUND, THOUGHT, TEXT],
    "a text behind the last call": [THOUGHT, TEXT, CALL, TEXT],
    "thoughts at the end": [TEXT, THOUGHT],
    "thoughts between calls": [THOUGHT, CALL, LATER, OTHER_CALL],
    "a compaction": [{"type": "compaction", "content": "so far"}, TEXT],
    "a call over MCP": [MCP_CALL, MCP_RESULT, TEXT],
    "a fallback": [{"type": "fallback", "model": "x"}, THOUGHT, TEXT],
    "a type of tomorrow": [{"type": "of_tomorrow", "value": 1}, CALL],
}


def window_of(*messages: Message) -> Window:
    slots = Slots(100_000, tokenizer="chars/4")
    slots.add("history", messages)
    return slots.render()


@pytest.mark.parametrize("blocks", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_of_anthropic_goes_back_block_for_block(blocks):
    answer = anthropic.decode({"content": blocks, "stop_reason": "end_turn"}).message
    stored = Message.from_dict(answer.to_dict())
    results = [Message("tool", "seen", tool_call_id=call.id) for call in answer.tool_calls]
    window = window_of(Message("user", "q"), stored, *results, Message("user", "go on"))
    assert window.anthropic()["messages"][1] == {"role": "assistant", "content": blocks}
    assert window.report.not_carried == ()


def test_a_text_behind_a_call_goes_back_behind_it():
    parts = [{"function_call": {"id": "a", "name": "f", "args": {}}}, {"text": "So."}]
    whole: dict[str, Any] = {"candidates": [{"content": {"role": "model", "parts": parts}}]}
    whole["candidates"][0]["finish_reason"] = "STOP"
    answer = google.decode(whole).message
    window = window_of(Message("user", "q"), answer, Message("tool", "1", tool_call_id="a"))
    assert [next(iter(part)) for part in window.google()["contents"][1]["parts"]] == [
        "function_call",
        "text",
    ]
    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
    said = {"type": "output_text", "text": "So.", "annotations": []}
    output = [call, {"type": "message", "id": "m", "role": "assistant", "content": [said]}]
    answer = responses.decode({"output": output}).message
    window = window_of(Message("user", "q"), answer, Message("tool", "1", tool_call_id="a"))
    items = window.openai(api="responses")["input"]
    assert items[1:3] == [call, {"role": "assistant", "content": "So."}]


def test_blocks_that_another_vendor_does_not_know_are_named():
    blocks = [{"type": "of_tomorrow", "value": 1}, TEXT]
    answer = anthropic.decode({"content": blocks, "stop_reason": "end_turn"}).message
    window = window_of(Message("user", "q"), answer, Message("user", "go on"))
    window.openai()
    assert [entry.what for entry in window.report.not_carried] == ["part of type 'of_tomorrow'"]


STANDING: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "f"}]},
    {"type": "configuration_update", "reasoning": {"effort": "low"}},
    {"role": "user", "content": "q"},
]


def test_items_of_responses_with_standing_effect_survive():
    slots = Slots(1_000, tokenizer="chars/4")
    slots.add("history", STANDING)
    window = slots.render()
    assert window.openai(api="responses")["input"] == STANDING
    assert window.report.not_carried == ()
    fitted = fit(STANDING, 1_000, tokenizer="chars/4")
    assert (fitted.kept, fitted.unread) == (STANDING, ())
    reply = responses.decode({"output": STANDING[1:3]})
    again = window_of(Message("user", "hi"), reply.message, Message("user", "q"))
    assert again.openai(api="responses")["input"] == STANDING


@pytest.mark.parametrize(("field", "value"), [("refusal", "no"), ("audio", {"id": "a1"})])
def test_an_answer_without_content_keeps_what_stands_beside_it(field, value):
    talk = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, field: value},
        {"role": "user", "content": "go on"},
    ]
    assert fit(talk, 1_000, tokenizer="chars/4").kept == talk
    window = window_of(*map(Message.from_dict, talk))
    assert window.openai()["messages"] == talk
    window.anthropic()
    assert [entry.what for entry in window.report.not_carried] == [f"field {field!r}"]


def test_a_refusal_stays_when_the_text_before_it_is_cut():
    text = {"type": "text", "text": "word " * 4_000}
    refusal = {"type": "refusal", "refusal": "I will not."}
    talk = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [text, refusal]},
        {"role": "user", "content": "go on"},
    ]
    kept = fit(talk, 2_500, tokenizer="chars/4").kept
    answers = [message for message in kept if message["role"] == "assistant"]
    assert all(refusal in answer["content"] for answer in answers)
