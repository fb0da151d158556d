"""Items that must change are copied in their own form; the rest of them is as it was."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel

from muntin import Message, ToolCall, assistant, tool, user
from muntin.core.parts import Text
from muntin.fitting import Placed, fit
from muntin.wire.blocks import Ref
from muntin.wire.lists import write_items
from tests.fitting.shapes import AIMessage, Call, Plain
from tests.fitting.talks import chat_call, words

REF = Ref(0, 1)
CALL = assistant(tool_calls=[ToolCall("a", "look", "{}")])


def put(item: Any, placed: Placed) -> Any:
    (found,) = write_items([item], [placed])
    return found


class Model(BaseModel):
    role: str
    content: Any
    tool_call_id: str | None = None
    artifact: Any = None


@dataclass(frozen=True)
class Data:
    role: str
    content: str
    meta: dict[str, int] = field(default_factory=dict)


SHORT = Placed(REF, tool("a", "short"), "short")


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (
            {"role": "tool", "tool_call_id": "a", "content": "long", "artifact": 7},
            {"role": "tool", "tool_call_id": "a", "content": "short", "artifact": 7},
        ),
        (
            {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "long"}]},
            {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "short"}]},
        ),
        (
            Model(role="tool", content="long", tool_call_id="a", artifact=7),
            Model(role="tool", content="short", tool_call_id="a", artifact=7),
        ),
        (Data("tool", "long", {"n": 1}), Data("tool", "short", {"n": 1})),
        (tool("a", "long"), tool("a", "short")),
        (
            {"type": "function_call_output", "call_id": "a", "output": "long", "status": "x"},
            {"type": "function_call_output", "call_id": "a", "output": "short", "status": "x"},
        ),
        (
            {"type": "shell_call_output", "call_id": "a", "output": "long"},
            {"type": "shell_call_output", "call_id": "a", "output": "short"},
        ),
        (
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "x": 1}]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "x": 1, "content": "short"}
                ],
            },
        ),
        (
            {"role": "user", "parts": [{"function_response": {"name": "look", "response": {}}}]},
            {
                "role": "user",
                "parts": [{"function_response": {"name": "look", "response": {"output": "short"}}}],
            },
        ),
    ],
)
def test_a_result_gets_another_text(item: Any, expected: Any) -> None:
    assert put(item, SHORT) == expected


def test_an_object_of_any_class_is_copied() -> None:
    item = Plain("tool", "long")
    found = put(item, SHORT)
    assert (type(found), found.content, item.content) == (Plain, "short", "long")


NEW = Placed(REF, assistant(tool_calls=[ToolCall("a", "look", '{"n":2}')]), None, {"a": '{"n":2}'})


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (chat_call("a"), chat_call("a", '{"n":2}')),
        (
            {"role": "assistant", "function_call": {"name": "look", "arguments": "{}"}},
            {"role": "assistant", "function_call": {"name": "look", "arguments": '{"n":2}'}},
        ),
        (
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "input": {}}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "input": {"n": 2}}]},
        ),
        (
            {"role": "model", "parts": [{"function_call": {"name": "look", "args": {}}}]},
            {"role": "model", "parts": [{"function_call": {"name": "look", "args": {"n": 2}}}]},
        ),
        (
            {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
            {"type": "function_call", "call_id": "a", "name": "look", "arguments": '{"n":2}'},
        ),
        (
            {"type": "custom_tool_call", "call_id": "a", "name": "look", "input": "long"},
            {"type": "custom_tool_call", "call_id": "a", "name": "look", "input": '{"n":2}'},
        ),
        (
            AIMessage(content="", tool_calls=[Call(id="a", name="look", args={})]),
            AIMessage(content="", tool_calls=[Call(id="a", name="look", args={"n": 2})]),
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "l", "arguments": {}}}]},
            {
                "role": "assistant",
                "tool_calls": [{"function": {"name": "l", "arguments": {"n": 2}}}],
            },
        ),
    ],
)
def test_a_call_gets_other_arguments(item: Any, expected: Any) -> None:
    assert put(item, NEW) == expected


def test_items_of_one_answer_stay_together() -> None:
    items = [
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
    ]
    found = write_items(items, [Placed(Ref(0, 2), NEW.message, None, NEW.arguments)])
    assert found[0] is items[0]
    assert found[1]["arguments"] == '{"n":2}'


def test_a_question_that_is_cut_keeps_its_image() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    item = {"role": "user", "content": [{"type": "text", "text": words(3_000)}, image]}
    (kept,) = fit([item], 2_500, model="openai/gpt-4o", previous={}).kept
    assert kept["content"][1] is image
    assert "left out" in kept["content"][0]["text"]
    (kept,) = fit([("user", words(3_000))], 800, previous={}).kept
    assert kept[0] == "user"
    assert "left out" in kept[1]


def test_texts_are_replaced_in_their_order() -> None:
    item = {"role": "user", "content": ["one", {"type": "text", "text": "two", "mark": 1}]}
    message = Message("user", (Text("one"), Text("2")))
    assert put(item, Placed(REF, message, "one2")) == {
        "role": "user",
        "content": ["one", {"type": "text", "text": "2", "mark": 1}],
    }


RESULT = Placed(None, tool("a", "none"), "none")


@pytest.mark.parametrize(
    ("caller", "expected"),
    [
        (chat_call("a"), {"role": "tool", "tool_call_id": "a", "content": "none"}),
        (
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "a", "content": "none"}],
            },
        ),
        (
            {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "none"},
        ),
        (
            {"role": "model", "parts": [{"function_call": {"id": "a", "name": "look"}}]},
            {
                "role": "user",
                "parts": [
                    {
                        "function_response": {
                            "id": "a",
                            "name": "look",
                            "response": {"output": "none"},
                        }
                    }
                ],
            },
        ),
    ],
)
def test_a_result_that_is_added_has_the_form_of_its_call(caller: Any, expected: Any) -> None:
    assert write_items([caller], [Placed(REF, CALL), RESULT])[1] == expected


def test_a_result_is_one_short_line_in_a_console() -> None:
    fitted = fit([user("Tell me a long story. " * 500)], 8_000)
    assert repr(fitted) == f"<FittedMessages kept=1 tokens={fitted.tokens}>"
    assert repr(fitted.fitted) == f"<Fitted placed=1 tokens={fitted.tokens}>"
    assert repr(fitted.window) == f"<Window messages=1 tokens={fitted.tokens}>"


def test_a_line_that_is_added_has_the_form_of_the_list() -> None:
    line = Placed(None, user("gone"), "gone")
    chat = write_items([chat_call("a")], [line, Placed(REF, CALL)])
    assert chat[0] == {"role": "user", "content": "gone"}
    google = write_items([{"role": "user", "parts": []}], [line, Placed(REF, user("x"))])
    assert google[0] == {"role": "user", "parts": [{"text": "gone"}]}


THOUGHT = {"type": "reasoning", "id": "r", "summary": []}


@pytest.mark.parametrize("kind", ["function_call", "custom_tool_call"])
def test_a_result_that_is_added_is_an_item_also_where_reasoning_comes_first(kind: str) -> None:
    key = {"function_call": "arguments", "custom_tool_call": "input"}[kind]
    items = [
        {"role": "user", "content": "Look."},
        THOUGHT,
        {"type": kind, "call_id": "a", "name": "look", key: "{}"},
        {"role": "user", "content": "And?"},
    ]
    kept = fit(items, 1_000, model="openai/gpt-5", previous={}).kept
    result = {"type": f"{kind}_output", "call_id": "a", "output": "(no result was recorded)"}
    assert kept == [*items[:3], result, items[3]]


def test_an_input_of_a_custom_tool_is_shortened_as_it_was_counted() -> None:
    items: list[Any] = []
    for number in range(12):
        call = {"type": "custom_tool_call", "call_id": f"c{number}", "name": "patch"}
        items += [
            {"role": "user", "content": f"Question {number}"},
            {**call, "input": words(300, number)},
            {"type": "custom_tool_call_output", "call_id": f"c{number}", "output": "done"},
        ]
    items.append({"role": "user", "content": "Is it done?"})
    fitted = fit(items, 2_000, model="openai/gpt-4o", previous={})
    again = fit(fitted.kept, 1_000_000, model="openai/gpt-4o", previous={})
    assert again.tokens == fitted.tokens <= 2_000
    assert "left_out" in fitted.kept[1]["input"]


def google_content(*names: str, responses: bool = False) -> dict[str, Any]:
    if responses:
        told = [{"id": name, "name": "look", "response": {"output": name}} for name in names]
        return {"role": "user", "parts": [{"functionResponse": each} for each in told]}
    calls = [{"id": name, "name": "look", "args": {}} for name in names]
    return {"role": "model", "parts": [{"functionCall": each} for each in calls]}


@pytest.mark.parametrize("missing", ["a", "b", "c"])
def test_a_response_that_is_added_stands_in_the_content_of_the_others(missing: str) -> None:
    answered = [name for name in "abc" if name != missing]
    contents = [
        {"role": "user", "parts": [{"text": "Look."}]},
        google_content("a", "b", "c"),
        google_content(*answered, responses=True),
    ]
    kept = fit(contents, 1_000, model="google/gemini-2.5-pro", previous={}).kept
    assert [each["role"] for each in kept] == ["user", "model", "user"]
    told = [part.get("functionResponse") or part["function_response"] for part in kept[2]["parts"]]
    assert [each["id"] for each in told] == ["a", "b", "c"]


def test_a_response_to_a_call_without_an_id_has_none() -> None:
    call = {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]}
    asked = {"role": "user", "parts": [{"text": "Look."}]}
    kept = fit([asked, call, asked], 1_000, model="google/gemini-2.5-pro", previous={}).kept
    told = {"name": "look", "response": {"output": "(no result was recorded)"}}
    assert kept[2] == {"role": "user", "parts": [{"functionResponse": told}]}


def test_calls_of_one_id_keep_their_own_arguments() -> None:
    calls = [chat_call(name, "long")["tool_calls"][0] for name in ("x", "x", "y")]
    read = [ToolCall(name, "look", f'"{name}"') for name in ("x", "y")]
    new = {call.id: call.arguments for call in read}
    item = {"role": "assistant", "content": None, "tool_calls": calls}
    made = put(item, Placed(REF, assistant(tool_calls=read), None, new))
    assert [call["function"]["arguments"] for call in made["tool_calls"]] == ['"x"', "long", '"y"']
