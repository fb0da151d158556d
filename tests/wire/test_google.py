"""Google's parts: spellings, ids that are made, responses that are JSON."""

from __future__ import annotations

from typing import Any

import pytest

from muntin import Message, Slots, messages_from
from muntin.core.parts import Other, Reasoning
from muntin.wire import google


def call(name: str, **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {}, **more}}


def response(name: str, **more: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"output": name}, **more}}


def test_responses_without_ids_answer_the_calls_of_their_name_in_order() -> None:
    talk = [
        {"role": "model", "parts": [call("f"), call("g"), call("f")]},
        {"role": "user", "parts": [response("f"), response("f"), response("g")]},
        {"role": "model", "parts": [call("f")]},
        {"role": "user", "parts": [response("f")]},
    ]
    first, *rest = messages_from(talk)
    ids = [each.id for each in first.tool_calls]
    assert len(set(ids)) == 3
    assert [each.tool_call_id for each in rest[:3]] == [ids[0], ids[2], ids[1]]
    assert rest[4].tool_call_id == rest[3].tool_calls[0].id not in ids


def test_a_call_with_an_id_can_be_read_alone() -> None:
    message = Message.from_dict({"role": "model", "parts": [call("f", id="c1")]})
    assert message.tool_calls[0].id == "c1"
    result = Message.from_dict({"role": "user", "parts": [response("f", id="c1")]})
    assert (result.tool_call_id, result.text) == ("c1", "f")


def test_a_response_whose_call_is_not_there_is_left_out_and_told() -> None:
    slots = Slots(1_000)
    slots.add("history", [{"role": "user", "parts": [response("f"), {"text": "hi"}]}])
    window = slots.render()
    assert [each.text for each in window.messages] == ["hi"]
    assert "orphaned" in str(window.report.to_dict())


@pytest.mark.parametrize("spelling", ["inlineData", "inline_data"])
def test_both_spellings_and_bytes_are_read(spelling: str) -> None:
    blob = {"mimeType" if spelling == "inlineData" else "mime_type": "image/png", "data": b"hi"}
    message = Message.from_dict({"role": "user", "parts": [{spelling: blob}]})
    data = {"type": "inline_data", "inline_data": {"mime_type": "image/png", "data": "aGk="}}
    assert message.content == (Other(data),)


def test_a_thought_is_reasoning_and_keeps_its_signature() -> None:
    part = {"text": "hm", "thought": True, "thoughtSignature": b"sig"}
    message = Message.from_dict({"role": "model", "parts": [part]})
    assert message.content == (Reasoning("hm", signature="c2ln", extra={"thought": True}),)


def test_a_response_that_was_cut_is_sent_as_text() -> None:
    talk = [
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [call("f")]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"a": "b"}}}]},
    ]
    read = messages_from(talk)
    cut = Message("tool", '{"a":', tool_call_id=read[2].tool_call_id, extra=read[2].extra)
    slots = Slots(1_000)
    slots.add("history", [*read[:2], cut])
    sent = google.encode(slots.render())["contents"][-1]["parts"][0]["function_response"]
    assert sent == {"name": "f", "response": {"output": '{"a":'}}
