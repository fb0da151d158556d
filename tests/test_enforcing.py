"""The enforcing provider of the tests: what it accepts and what it refuses."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.enforcing import CLEAR_AT, THOUGHTS, EnforcingProvider
from tests.providers.servers import Received

MODEL = "claude-fable-5-1"


def ask(
    provider: EnforcingProvider, body: dict[str, Any], path: str = "/v1/messages", **headers: str
) -> Any:
    received = Received(path, headers, json.dumps(body).encode())
    return provider.answer(received)


def a_talk(provider: EnforcingProvider, steps: int = 3, model: str = MODEL) -> dict[str, Any]:
    """Return the request behind so many answers, with all of their thoughts."""
    body: dict[str, Any] = {
        "model": model, "system": "Be brief.", "tools": [{"name": "read"}, {"name": "look"}],
        "messages": [{"role": "user", "content": "Begin."}],
    }  # fmt: skip
    for _ in range(steps):
        answer = ask(provider, body)
        assert answer.status == 200, answer.body
        blocks = answer.body["content"]
        results = [{"type": "tool_result", "tool_use_id": block["id"], "content": "42 lines"}
                   for block in blocks if block["type"] == "tool_use"]  # fmt: skip
        body["messages"] += [{"role": "assistant", "content": blocks}]
        body["messages"] += [{"role": "user", "content": results}]
    return body


def without_thoughts(body: dict[str, Any], *places: int) -> None:
    """Take the thoughts out of the messages at these places."""
    for place in places:
        message = body["messages"][place]
        message["content"] = [b for b in message["content"] if b["type"] not in THOUGHTS]


def shorten_first(body: dict[str, Any]) -> None:
    body["messages"][2]["content"][0]["content"] = "short"


def without_second(body: dict[str, Any]) -> None:
    without_thoughts(body, 3)


def forged(body: dict[str, Any]) -> None:
    body["messages"][1]["content"][0]["thinking"] += "!"


def another_system(body: dict[str, Any]) -> None:
    body["system"] = "Be long."


def another_tool(body: dict[str, Any]) -> None:
    body["tools"].append({"name": "write"})


def no_result(body: dict[str, Any]) -> None:
    body["messages"].pop()


def summary_behind(body: dict[str, Any]) -> None:
    block = {"type": "compaction", "content": "Much was said.", "signature": "C1"}
    body["messages"][1:1] = [{"role": "assistant", "content": [block]}]


def system_first(body: dict[str, Any]) -> None:
    body["messages"].insert(0, {"role": "system", "content": "Today is Monday."})


def cleared_unasked(body: dict[str, Any]) -> None:
    body["messages"].append({"role": "system", "content": "Now.", "clear_at": "next_user_message"})


def five_marks(body: dict[str, Any]) -> None:
    body["cache_control"] = mark = {"type": "ephemeral"}
    for message in body["messages"][0::2]:
        message["content"] = (
            [{"type": "text", "text": "Begin."}]
            if isinstance(message["content"], str)
            else message["content"]
        )
        message["content"][-1]["cache_control"] = mark


def marked_thought(body: dict[str, Any]) -> None:
    body["messages"][1]["content"][0]["cache_control"] = {"type": "ephemeral"}


def prefilled(body: dict[str, Any]) -> None:
    body["messages"].append({"role": "assistant", "content": "I"})


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (shorten_first, "thinking binding"),
        (another_system, "thinking binding"),
        (another_tool, "thinking binding"),
        (without_second, "unbroken thoughts"),
        (forged, "thinking signature"),
        (no_result, "pairs"),
        (summary_behind, "compaction placement"),
        (system_first, "mid system placement"),
        (cleared_unasked, "mid system"),
        (five_marks, "marks"),
        (marked_thought, "marks"),
        (prefilled, "prefill"),
    ],
)  # fmt: skip
def test_a_request_that_breaks_a_rule_is_refused_by_its_name(
    change: Callable[[dict[str, Any]], None], rule: str
) -> None:
    provider = EnforcingProvider(period=99)
    body = a_talk(provider)
    change(body)
    answer = ask(provider, body)
    assert answer.status == 400
    assert answer.body["error"]["message"].startswith(f"{rule}:")
    assert len(provider.refused) == 1


def test_thoughts_may_leave_from_the_beginning_or_all_and_do_not_come_back() -> None:
    provider = EnforcingProvider(period=99)
    body = a_talk(provider)
    for places in ((1,), (1, 3), (1, 3, 5)):
        shorter = copy.deepcopy(body)
        without_thoughts(shorter, *places)
        assert ask(provider, shorter).status == 200
    answer = ask(provider, shorter)  # made without the thoughts before it
    call = next(block for block in answer.body["content"] if block["type"] == "tool_use")
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "done"}
    later = [{"role": "assistant", "content": answer.body["content"]},
             {"role": "user", "content": [result]}]  # fmt: skip
    assert ask(provider, {**shorter, "messages": [*shorter["messages"], *later]}).status == 200
    again = ask(provider, {**body, "messages": [*body["messages"], *later]})
    assert again.body["error"]["message"].startswith("unbroken thoughts:")


def test_marks_and_the_order_of_tools_are_no_change() -> None:
    provider = EnforcingProvider(period=99)
    body = a_talk(provider)
    body["tools"].reverse()
    body["tools"].append({"name": "later", "defer_loading": True})
    body["messages"][2]["content"][0]["cache_control"] = {"type": "ephemeral"}
    body["system"] = [{"type": "text", "text": "Be brief."}]
    assert ask(provider, body).status == 200


def test_a_cleared_text_behind_the_newest_result_is_accepted_with_its_header() -> None:
    provider = EnforcingProvider(period=99)
    body = a_talk(provider)
    cleared_unasked(body)
    assert ask(provider, body, **{"anthropic-beta": CLEAR_AT}).status == 200


def test_models_that_are_not_bound_take_a_changed_past() -> None:
    for model in ("claude-opus-4-6", "claude-sonnet-5", "claude-opus-5", "claude-haiku-4-5"):
        provider = EnforcingProvider(period=99)
        body = a_talk(provider, model=model)
        shorten_first(body)
        assert ask(provider, body).status == 200, model
    for model in ("claude-opus-5-5", "claude-sonnet-5.5", "claude-mythos-5-2", "claude-nova-7"):
        assert provider.binds(model), model
    assert EnforcingProvider(strict=True).binds("claude-opus-4-6")


@pytest.mark.parametrize(
    ("path", "field", "items", "rule"),
    [
        ("/v1/responses", "input", [{"type": "function_call_output", "call_id": "a"}], "pairs"),
        ("/v1/responses", "input",
         [{"type": "reasoning", "id": "r"}, {"role": "user", "content": "Hi"}], "reasoning item"),
        ("/v1/responses", "input",
         [{"type": "compaction_trigger"}, {"role": "user", "content": "Hi"}],
         "compaction placement"),
        ("/v1/chat/completions", "messages",
         [{"role": "user", "content": "Hi"}, {"role": "tool", "tool_call_id": "a"}], "pairs"),
        ("/v1/chat/completions", "messages",
         [{"role": "assistant", "tool_calls": [{"id": "a"}]}, {"role": "user", "content": "Hi"}],
         "pairs"),
    ],
)  # fmt: skip
def test_openai_s_rules(path: str, field: str, items: list[Any], rule: str) -> None:
    provider = EnforcingProvider()
    answer = ask(provider, {"model": "gpt-5", field: items}, path)
    assert answer.status == 400
    assert answer.body["error"]["message"].startswith(f"{rule}:")
