"""Anthropic's blocks: order, calls that are known twice, fields of their own."""

from __future__ import annotations

from muntin import Message, Text, ToolCall, messages_from


def test_a_call_that_is_in_the_content_and_in_tool_calls_is_one_call() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    block = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    message = Message.from_dict({"role": "assistant", "content": [block], "tool_calls": [call]})
    assert message == Message("assistant", None, tool_calls=(ToolCall("a", "f"),))


def test_a_text_between_two_calls_remembers_its_place() -> None:
    blocks = [
        {"type": "tool_use", "id": "a", "name": "f", "input": {}},
        {"type": "text", "text": "then"},
        {"type": "tool_use", "id": "b", "name": "f", "input": {"x": 1}},
    ]
    message = Message.from_dict({"role": "assistant", "content": blocks})
    assert message.content == (Text("then", extra={"before": "b"}),)
    assert message.tool_calls[1].arguments == '{"x":1}'


def test_one_result_alone_is_one_message_with_its_fields() -> None:
    block = {"type": "tool_result", "tool_use_id": "a", "is_error": True, "content": None}
    message = Message.from_dict({"role": "user", "content": [block], "at": 3, "mine": 1})
    assert message == Message(
        "tool", None, tool_call_id="a", at=3, extra={"mine": 1, "is_error": True}
    )


def test_texts_around_a_result_stay_around_it() -> None:
    result = {"type": "tool_result", "tool_use_id": "a", "content": "r"}
    said = {"type": "text", "text": "x"}
    found = messages_from({"role": "user", "content": [said, result, said]})
    assert [each.role for each in found] == ["user", "tool", "user"]
