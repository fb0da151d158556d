"""What was handed over does not change when the caller's own dicts do, and they are not changed."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from muntin import History, Message, generate_sync, messages_from, prompt
from muntin.testing import ScriptedModel
from tests.products import PRICED


def talk() -> list[dict[str, Any]]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return [
        {"role": "user", "content": [{"type": "text", "text": "first", "note": {"kept": [1]}}]},
        {"role": "assistant", "content": None, "tool_calls": [call], "meta": {"deep": ["a"]}},
        {"role": "tool", "tool_call_id": "c", "content": "result"},
        {"role": "user", "content": "last"},
    ]


def spoil(given: list[dict[str, Any]]) -> None:
    given[0]["content"][0]["text"] = "changed"
    given[0]["content"][0]["note"]["kept"].append(2)
    given[1]["tool_calls"][0]["function"]["name"] = "changed"
    given[1]["meta"]["deep"].append("changed")
    given[3]["content"] = "changed"
    given.append({"role": "user", "content": "changed"})


def test_history_keeps_what_it_was_given() -> None:
    given = talk()
    wanted = [Message.from_dict(each) for each in deepcopy(given)]
    history = History(given)
    spoil(given)
    assert list(history) == wanted
    assert history.recent_text(1) == "User: last"
    assert history.by_tokens(10_000) == wanted


def test_the_messages_of_a_prompt_are_those_it_was_defined_with() -> None:
    given = talk()
    wanted = [Message.from_dict(each) for each in deepcopy(given)]
    made = prompt(messages=given)
    spoil(given)
    model = ScriptedModel(["ok"], name=PRICED)
    generate_sync(made, model=model)
    assert [*model.windows[0].messages] == wanted


@pytest.mark.parametrize("read", [History, messages_from, lambda given: [prompt(messages=given)]])
def test_reading_changes_nothing(read: Any) -> None:
    given = talk()
    before = deepcopy(given)
    assert list(read(given))
    assert given == before
