"""What a provider cannot carry stands in the report; wrong options are errors that say so."""

from __future__ import annotations

import json
import pickle

import pytest

from muntin import (
    Attachment,
    BudgetExceeded,
    File,
    Image,
    Message,
    Reasoning,
    Slots,
    Text,
    ToolCall,
    Window,
    tool,
    user,
)
from muntin.core.report import NotCarried
from muntin.errors import InvalidInput, InvalidType
from tests.wire.windows import PROVIDERS, encode

REPORT = Attachment("1", "report.pdf", 9, "document")


def window(*messages: Message, budget: int = 100_000) -> Window:
    slots = Slots(budget, tokenizer=len)
    slots.add("history", list(messages), required=True)
    return slots.render()


def test_an_entry_names_provider_message_thing_and_reason():
    made = window(user("q"), Message("assistant", (Reasoning("hm"), Text("yes"))))
    made.anthropic()
    [entry] = made.report.not_carried
    assert entry == NotCarried("anthropic", 1, "reasoning", "it has no signature of Anthropic's")
    assert made.report.to_dict()["not_carried"] == (
        {
            "provider": "anthropic",
            "message": 1,
            "what": "reasoning",
            "reason": "it has no signature of Anthropic's",
        },
    )
    assert json.dumps(made.report.to_dict())
    assert str(made.report).endswith(
        "not carried\n  anthropic: message 1: reasoning: it has no signature of Anthropic's"
    )


def test_a_second_encoding_replaces_what_its_provider_said_and_leaves_the_others():
    made = window(user("see", attachments=[REPORT]))
    made.anthropic()
    made.openai()
    assert [entry.provider for entry in made.report.not_carried] == ["anthropic", "openai"]
    made.anthropic(files={"1": File("file-1")})
    assert [entry.provider for entry in made.report.not_carried] == ["openai"]
    made.openai(api="responses", files={"1": File("file-1")})
    assert made.report.not_carried == ()


def test_the_list_outlives_a_pickle_and_is_still_replaced():
    made = window(user("see", attachments=[REPORT]))
    made.google()
    again = pickle.loads(pickle.dumps(made))
    assert again.report.not_carried == made.report.not_carried != ()
    again.google(files={"1": File("files/1")})
    assert again.report.not_carried == ()


@pytest.mark.parametrize("provider", PROVIDERS)
def test_encoding_what_loses_nothing_makes_no_report(provider):
    made = window(user("q"), Message("assistant", "a"))
    encode(made, provider)
    assert "_report" not in vars(made.explained)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_window_over_budget_is_refused_unless_it_is_asked_for(provider):
    made = window(user("too long for this"), budget=5)
    with pytest.raises(BudgetExceeded):
        encode(made, provider)
    assert encode(made, provider, strict=False)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("files", [3, [File("x")], {"1": "file-1"}])
def test_files_that_are_none_are_an_error(provider, files):
    with pytest.raises(InvalidType, match="files"):
        encode(window(user("q")), provider, files=files)


def test_an_unknown_api_is_an_error():
    with pytest.raises(InvalidInput, match="unknown api 'batch'; use chat, responses"):
        window(user("q")).openai(api="batch")  # type: ignore[arg-type]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_is_changed_in_a_request_changes_no_message(provider):
    part = Text("a", extra={"cache_control": {"type": "ephemeral"}, "citations": [{"x": 1}]})
    call = ToolCall("c", "f", '{"x": {"y": 1}}')
    made = window(
        Message("user", (part, Image("https://example.org/a.png"))),
        Message("assistant", "b", tool_calls=(call,)),
        tool("c", "1"),
    )
    before = repr(made.messages)
    spoil(encode(made, provider))
    assert repr(made.messages) == before


def spoil(value: object) -> None:
    for inner in value.values() if isinstance(value, dict) else value:  # type: ignore[attr-defined]
        if isinstance(inner, dict | list):
            spoil(inner)
    if isinstance(value, dict | list):
        value.clear()
