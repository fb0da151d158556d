"""A window as an OpenAI Chat Completions request."""

import json

import pytest

from muntin import (
    Attachment,
    Message,
    Reasoning,
    Slots,
    Text,
    ToolCall,
    assistant,
    system,
    tool,
    user,
)
from tests.paths import TRACES

SCHEMA = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def request(*messages, **options):
    slots = Slots(100_000, tokenizer=len, **options)
    slots.add("history", list(messages))
    return slots.render().openai()


def call(*ids):
    return assistant("", tool_calls=[ToolCall(call_id, "f", "{}") for call_id in ids])


def test_messages_and_tools_are_the_arguments_of_the_call():
    assert request(system("s"), user("u"), tools=[SCHEMA]) == {
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        "tools": [SCHEMA],
    }


def test_results_stand_right_after_their_call():
    sent = request(call("a", "b"), user("wait"), tool("b", "2"), tool("a", "1"))["messages"]
    assert [m.get("tool_call_id") or m["role"] for m in sent] == ["assistant", "a", "b", "user"]


def test_a_call_without_a_result_gets_the_fixed_one():
    sent = request(call("a"), user("well?"))["messages"]
    assert sent[1] == {"role": "tool", "content": "(no result was recorded)", "tool_call_id": "a"}


def test_an_id_used_twice_keeps_each_result_with_its_own_call():
    sent = request(call("a"), tool("a", "1"), call("a"), tool("a", "2"))["messages"]
    assert [m["content"] for m in sent] == ["", "1", "", "2"]


def test_attachments_are_named_and_positions_are_not_sent():
    report = Attachment("1", "report.pdf", 9, "document")
    parts = Message("user", (Text("see"),), attachments=(report,))
    sent = request(user("see", attachments=[report]), user("", attachments=[report]), parts)
    assert [m["content"] for m in sent["messages"]] == [
        "see\nFile: report.pdf",
        "File: report.pdf",
        [{"type": "text", "text": "see"}, {"type": "text", "text": "File: report.pdf"}],
    ]
    assert request(Message("user", "x", at=7))["messages"] == [{"role": "user", "content": "x"}]


def test_a_result_of_nothing_is_sent_as_user_text():
    assert request(Message("tool", "42"))["messages"] == [{"role": "user", "content": "42"}]


def test_reasoning_parts_are_not_sent():
    thought = Message("assistant", (Reasoning("hm", signature="s"), Text("yes")))
    assert request(thought)["messages"][0]["content"] == [{"type": "text", "text": "yes"}]


def test_no_message_is_sent_with_nothing_in_it():
    thought = Message("assistant", (Reasoning("hm"),))
    calling = Message("assistant", (Reasoning("hm"),), tool_calls=(ToolCall("c", "f", "{}"),))
    sent = request(user("q"), thought, assistant("a"), calling, tool("c", ""))["messages"]
    assert [m["content"] for m in sent] == ["q", "a", None, ""]


@pytest.mark.parametrize("budget", [0, 50, 400, 1_500, 2_500, 5_000, 100_000])
def test_real_conversations_at_any_budget_keep_calls_and_results_together(budget):
    for line in TRACES.read_text(encoding="utf-8").splitlines()[::5]:
        slots = Slots(budget, tokenizer="o200k_base")
        slots.add("history", json.loads(line)["messages"], priority=1)
        sent = slots.render().openai(strict=False)["messages"]
        waiting: list[str] = []
        for message in sent:
            if message["role"] == "tool":
                assert message["tool_call_id"] == waiting.pop(0)
            else:
                assert not waiting
                waiting = [c["id"] for c in message.get("tool_calls", [])]
        assert not waiting
