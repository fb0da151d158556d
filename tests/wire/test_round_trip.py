"""Answers go back as they came: block for block to the same vendor, and nothing is lost unnamed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import Message, Slots, Window, fit
from muntin.wire import anthropic, chat, google, responses

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
    sent = [each for each in window.anthropic()["messages"] if each["role"] == "assistant"]
    assert sent == [{"role": "assistant", "content": blocks}]
    assert window.report.not_carried == ()


said_text = st.text("ab \u00e9", min_size=1, max_size=9).map(lambda text: f"{text}.")
given_arguments = st.dictionaries(st.sampled_from("xyz"), st.integers(), max_size=2)


@st.composite
def outputs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Items of an answer of Responses, in any order."""
    items: list[dict[str, Any]] = []
    kinds = st.sampled_from(["reasoning", "message", "call", "custom", "native", "tomorrow"])
    for number, kind in enumerate(draw(st.lists(kinds, min_size=1, max_size=6))):
        key = f"{kind}_{number}"
        status = draw(st.sampled_from([{}, {"status": "completed"}]))
        if kind == "reasoning":
            thought: dict[str, Any] = {"type": kind, "id": key, **status}
            thought["summary"] = [{"type": "summary_text", "text": draw(said_text)}]
            items.append({**thought, **draw(st.sampled_from([{}, {"encrypted_content": "enc"}]))})
        elif kind == "message":
            parts: list[dict[str, Any]] = [
                {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
                for text in draw(st.lists(said_text, min_size=1, max_size=2))
            ]
            if draw(st.booleans()):
                parts.append({"type": "refusal", "refusal": "I will not."})
            whole: dict[str, Any] = {
                "type": kind,
                "id": key,
                "role": "assistant",
                "status": "completed",
            }
            if draw(st.booleans()):
                whole["phase"] = "commentary"
            items.append({**whole, "content": parts})
        elif kind == "call":
            call = {"type": "function_call", "id": key, "call_id": key, "name": "look"}
            items.append({**call, "arguments": json.dumps(draw(given_arguments)), **status})
        elif kind == "custom":
            call = {"type": "custom_tool_call", "id": key, "call_id": key, "name": "patch"}
            items.append({**call, "input": draw(said_text)})
        elif kind == "native":
            items.append({"type": "mcp_call", "id": key, "name": "n", "output": "1", **status})
        else:
            items.append({"type": "of_tomorrow", "id": key, "value": number})
    return items


@st.composite
def blocks(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Blocks of an answer of Anthropic, in any order."""
    found: list[dict[str, Any]] = []
    kinds = st.sampled_from(["text", "thinking", "redacted", "call", "server", "mcp", "tomorrow"])
    for number, kind in enumerate(draw(st.lists(kinds, min_size=1, max_size=6))):
        key = f"{kind}_{number}"
        if kind == "text":
            found.append({"type": "text", "text": draw(said_text)})
        elif kind == "thinking":
            found.append({"type": kind, "thinking": draw(said_text), "signature": key})
        elif kind == "redacted":
            found.append({"type": "redacted_thinking", "data": key})
        elif kind == "call":
            arguments = draw(given_arguments)
            found.append({"type": "tool_use", "id": key, "name": "look", "input": arguments})
        elif kind == "server":
            found += [{**SEARCH, "id": key}, {**FOUND, "tool_use_id": key}]
        elif kind == "mcp":
            found += [{**MCP_CALL, "id": key}, {**MCP_RESULT, "tool_use_id": key}]
        else:
            found.append({"type": "of_tomorrow", "value": number})
    return found


@st.composite
def google_parts(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Parts of an answer of Gemini, in any order; its first call is signed."""
    found: list[dict[str, Any]] = []
    kinds = st.sampled_from(["text", "thought", "call", "code", "tomorrow"])
    for number, kind in enumerate(draw(st.lists(kinds, min_size=1, max_size=6))):
        signed = draw(st.sampled_from([{}, {"thought_signature": b"signed"}]))
        if kind == "text":
            found.append({"text": draw(said_text), **signed})
        elif kind == "thought":
            found.append({"text": draw(said_text), "thought": True, **signed})
        elif kind == "call":
            call = {"id": f"call_{number}", "name": "look", "args": draw(given_arguments)}
            found.append({"function_call": call, "thought_signature": b"signed"})
        elif kind == "code":
            found.append({"executable_code": {"language": "PYTHON", "code": "1"}})
        else:
            found.append({"of_tomorrow": {"value": number}})
    return found


@st.composite
def chat_messages(draw: st.DrawFn) -> dict[str, Any]:
    """An answer of Chat Completions."""
    text = draw(st.none() | said_text)
    message: dict[str, Any] = {"role": "assistant", "content": text}
    calls = [
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": "look", "arguments": json.dumps(arguments)},
        }
        for number, arguments in enumerate(draw(st.lists(given_arguments, max_size=3)))
    ]
    if calls or text is None:
        message["tool_calls"] = calls or [
            {"id": "call_0", "type": "custom", "custom": {"name": "patch", "input": "x"}}
        ]
    beside: list[dict[str, Any]] = [{}, {"audio": {"id": "a1"}}, {"reasoning_content": "hm"}]
    return {**message, **draw(st.sampled_from(beside))}


def sent_again(answer: Message) -> Window:
    """Return the window of the next request, after the answer was stored and its calls answered."""
    stored = Message.from_dict(json.loads(json.dumps(answer.to_dict())))
    results = [Message("tool", "seen", tool_call_id=call.id) for call in answer.tool_calls]
    return window_of(Message("user", "q"), stored, *results, Message("user", "go on"))


@given(outputs())
def test_any_answer_of_responses_goes_back_item_for_item(output):
    window = sent_again(responses.decode({"output": output}).message)
    items = window.openai(api="responses")["input"]
    assert items[1 : len(output) + 1] == output
    assert window.report.not_carried == ()


@given(blocks())
def test_any_answer_of_anthropic_goes_back_block_for_block(content):
    window = sent_again(anthropic.decode({"content": content, "stop_reason": "x"}).message)
    assert window.anthropic()["messages"][1]["content"] == content
    assert window.report.not_carried == ()


@given(google_parts())
def test_any_answer_of_google_goes_back_part_for_part(parts):
    candidate = {"content": {"role": "model", "parts": parts}, "finish_reason": "STOP"}
    window = sent_again(google.decode({"candidates": [candidate]}).message)
    assert window.google()["contents"][1]["parts"] == parts
    assert window.report.not_carried == ()


@given(chat_messages())
def test_any_answer_of_chat_completions_goes_back_as_it_came(message):
    whole = {"choices": [{"message": message, "finish_reason": "stop"}]}
    window = sent_again(chat.decode(whole).message)
    assert window.openai()["messages"][1] == message
    assert window.report.not_carried == ()


def test_ids_that_need_their_reasoning_leave_with_it():
    """The API refuses an item with an id whose reasoning is not sent."""
    output = [
        {"type": "reasoning", "id": "rs", "summary": []},
        {"type": "function_call", "id": "fc", "call_id": "a", "name": "f", "arguments": "{}"},
    ]
    answer = responses.decode({"output": output}).message
    bare = Message("assistant", None, tool_calls=answer.tool_calls)
    (call,) = sent_again(bare).openai(api="responses")["input"][1:2]
    assert call == {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}


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
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
    output = [call, {**message, "content": [said]}]
    answer = responses.decode({"output": output}).message
    window = window_of(Message("user", "q"), answer, Message("tool", "1", tool_call_id="a"))
    assert window.openai(api="responses")["input"][1:3] == output


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
