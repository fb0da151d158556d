"""Messages are frozen, validated, and survive a round trip through dicts."""

import copy
import json
import pickle
from dataclasses import FrozenInstanceError, replace
from threading import Lock
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from muntin import (
    Attachment,
    File,
    Image,
    Input,
    InvalidInput,
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
from muntin.core.message import at_position, counted
from muntin.core.parts import Other
from tests.paths import TRACES

REPORT = Attachment("f1", "report.pdf", 12, "document", "application/pdf")


def test_helpers_make_the_four_roles():
    assert [system("s"), user("u"), assistant("a"), tool("c1", "t")] == [
        Message("system", "s"),
        Message("user", "u"),
        Message("assistant", "a"),
        Message("tool", "t", tool_call_id="c1"),
    ]


def test_a_message_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        user("hi").content = "other"  # type: ignore[misc]


def test_a_message_shows_only_what_it_has():
    assert repr(tool("c1", "42")) == "Message('tool', '42', tool_call_id='c1')"
    assert repr(user("hi")) == "Message('user', 'hi')"


def test_a_message_can_be_hashed_copied_and_pickled():
    message = Message("user", (Text("hi"), Image("https://x/y.png")), extra={"k": ["v"]})
    assert hash(message) == hash(copy.deepcopy(message))
    assert pickle.loads(pickle.dumps(message)) == message


DICTS: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"role": "developer", "content": "be brief"},
    {"role": "user", "content": "hi", "name": "bob", "at": 7},
    {"role": "assistant", "content": None, "refusal": None, "annotations": []},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "f", "arguments": '{"a":1}', "strict": True},
                "extra_content": {"google": {"thought_signature": "abc"}},
            },
            {"id": "c2", "type": "custom", "custom": {"name": "g", "input": "free text"}},
        ],
        "reasoning_content": "because",
    },
    {"role": "tool", "tool_call_id": "c1", "content": "ok", "is_error": False},
    {"role": "tool", "content": "a result of nothing"},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "look", "cache_control": {"type": "ephemeral"}},
            {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
            {"type": "image_url", "image_url": {"url": "data:,", "width": 640, "height": 480}},
            {"type": "file", "file": {"file_id": "f1", "filename": "a.pdf"}, "note": 1},
            {"type": "input_audio", "input_audio": {"data": "…", "format": "wav"}},
        ],
    },
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s1g"},
            {"type": "redacted_thinking", "data": "xx"},
            {"type": "text", "text": "yes"},
        ],
    },
    {
        "role": "user",
        "content": "see this",
        "attachments": [
            {"id": "f1", "name": "report.pdf", "size": 12, "modality": "document"},
        ],
    },
]


@pytest.mark.parametrize("data", DICTS, ids=lambda data: data["role"])
def test_a_dict_comes_back_as_it_was_with_all_unknown_fields(data):
    before = copy.deepcopy(data)
    message = Message.from_dict(data)
    assert message.to_dict() == data == before
    assert Message.from_dict(message.to_dict()) == message


def test_real_conversations_come_back_as_they_were():
    for line in TRACES.read_text(encoding="utf-8").splitlines():
        for data in json.loads(line)["messages"]:
            assert Message.from_dict(data).to_dict() == data


def test_what_an_sdk_returned_can_be_used_as_it_is():
    class Reply(BaseModel):
        role: str
        content: str | None
        refusal: str | None = None

    assert Message.from_dict(Reply(role="assistant", content="hi")) == assistant("hi")  # type: ignore[arg-type]
    slots = Slots(100, tokenizer=len)
    slots.add("history", [Reply(role="assistant", content="hi")])  # type: ignore[arg-type]
    assert slots.render().messages == (assistant("hi"),)


def test_what_to_dict_returns_is_not_tied_to_the_message():
    message = Message.from_dict({"role": "user", "content": "hi", "meta": {"tags": ["a"]}})
    message.to_dict()["meta"]["tags"].append("b")
    assert message.extra == {"meta": {"tags": ["a"]}}


def test_parts_become_values():
    message = Message.from_dict(DICTS[7])
    assert [type(part) for part in message.content or ()] == [Text, Image, Image, File, Other]
    assert message.text == "look"
    assert Message.from_dict(DICTS[8]).content[0] == Reasoning("hm", signature="s1g")  # type: ignore[index]


def test_arguments_given_as_a_mapping_are_written_as_compact_json():
    assert ToolCall("c", "f", {"b": 1, "a": "é"}).arguments == '{"a":"é","b":1}'  # type: ignore[arg-type]


BAD = [
    (lambda: Message("robot", "x"), "unknown role 'robot'"),  # type: ignore[arg-type]
    (lambda: Message("user", 5), "content of a user message"),  # type: ignore[arg-type]
    (lambda: Message("user", b"x"), "content of a user message"),  # type: ignore[arg-type]
    (lambda: Message("user", [5]), "content part"),  # type: ignore[arg-type]
    (lambda: user("a\ud800b"), r"lone surrogate \(U\+D800\) at character 1"),
    (lambda: Input("\udfff"), "Input.text has a lone surrogate"),
    (lambda: ToolCall("c", "f", "\ud83d"), "arguments of tool call 'c'"),
    (lambda: ToolCall("", "f"), "ToolCall.id must not be empty"),
    (lambda: ToolCall("c", ""), "ToolCall.name must not be empty"),
    (lambda: assistant(tool_calls=[ToolCall("c", "f"), ToolCall("c", "g")]), "duplicate tool call"),
    (lambda: Message("user", "x", tool_calls=(ToolCall("c", "f"),)), "belong to role 'assistant'"),
    (lambda: Message("user", "x", tool_call_id="c"), "belongs to role 'tool'"),
    (lambda: Message("user", "x", at=float("nan")), "Message.at must be a finite number"),
    (lambda: Message("user", "x", at=True), "Message.at must be a finite number"),
    (lambda: Message("user", "x", extra="y"), "Message.extra must be a mapping"),  # type: ignore[arg-type]
    (lambda: Message("user", "x", attachments=(1,)), "holds a int"),  # type: ignore[arg-type]
    (lambda: Message("user", "x", name=3), "Message.name must be a str"),  # type: ignore[arg-type]
    (lambda: Attachment("i", "n", -1, "image"), "size of attachment 'n' must not be negative"),
    (lambda: Attachment("i", "n", 1, "smell"), "modality of attachment 'n' is 'smell'"),  # type: ignore[arg-type]
    (lambda: Image("u", width=0), "Image.width must be positive"),
    (lambda: Image("u", height=1.5), "Image.height must be an int"),  # type: ignore[arg-type]
    (lambda: Message.from_dict({"content": "x"}), "needs a 'role'"),
    (lambda: Message.from_dict(["role"]), "must be a Message or a dict"),  # type: ignore[arg-type]
    (lambda: Message.from_dict({"role": "assistant", "tool_calls": [{"id": "c"}]}), "needs 'id'"),
    (lambda: Message.from_dict({"role": "assistant", "tool_calls": "c"}), "must be a list"),
    (
        lambda: Message.from_dict({"role": "user", "content": "", "attachments": [{"id": "x"}]}),
        "missing 'modality'",
    ),
]


@pytest.mark.parametrize(("make", "words"), BAD)
def test_an_invalid_value_cannot_exist_and_the_error_names_it(make, words):
    with pytest.raises(InvalidInput, match=words):
        make()


def test_a_wrong_type_is_also_a_type_error():
    with pytest.raises(TypeError):
        Message("user", 5)  # type: ignore[arg-type]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
KNOWN = {"role", "content", "tool_calls", "attachments", "tool_call_id", "name", "at"}


@given(
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=texts | st.none(),
    unknown=st.dictionaries(texts.filter(lambda key: key not in KNOWN), jsons, max_size=4),
)
def test_any_unknown_fields_survive_a_round_trip(role, content, unknown):
    data = {"role": role, "content": content, **unknown}
    assert Message.from_dict(data).to_dict() == data


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("make", "given", "options", "words"),
    [
        (Message.from_dict, {1: 2, "a": 3}, {}, r"needs a 'role'; its keys are \['1', 'a'\]"),
        (Message.from_dict, {"role": "user", "attachments": 5}, {}, "attachments must be a list"),
        (Message.from_dict, {"role": "user", "x": Lock()}, {}, r"extra\['x'\] cannot be copied"),
        (Message.from_dict, {"role": "user", "x": nested(5000)}, {}, r"extra\['x'\] cannot be"),
        (Message, "user", {"at": 10**400}, r"Message\.at is larger than any float"),
        (Message, "user", {"at": 10**5000}, r"Message\.at is larger than any float"),
        (user, "", {"attachments": None}, "attachments must be a list, not NoneType"),
        (assistant, "", {"tool_calls": None}, "tool_calls must be a list, not NoneType"),
        (assistant, "", {"tool_calls": ToolCall("1", "f")}, "tool_calls must be a list, not Tool"),
        (
            ToolCall,
            "1",
            {"name": "f", "arguments": {"a": {1}}},
            "arguments of tool call '1' of 'f' cannot",
        ),
        (Image, "u", {"detail": "weird"}, r"unknown Image\.detail 'weird'; use auto, low"),
        (Other, {"type": "x", "y": {1}}, {}, "type 'x' cannot be written as JSON: it holds a set"),
        (Other, {"type": "x", "y": nested(5000)}, {}, "type 'x' cannot be .* too deeply"),
        (Other, {"type": "x", 1: 2}, {}, "type 'x' cannot be .* its key 1"),
    ],
)
def test_what_cannot_be_a_message_is_refused_by_name(make, given, options, words):
    with pytest.raises(InvalidInput, match=words):
        make(given, **options)


def test_a_message_does_not_change_with_the_dict_it_was_made_from():
    given: dict[str, Any] = {"type": "x", "a": [1]}
    made = [
        Message("user", "", extra=given),
        Message("user", (Other(given), Text("t", extra=given))),
        Message.from_dict({"role": "user", "content": [given], "extra": given}),
        assistant(tool_calls=[ToolCall("1", "f", extra=given)]),
    ]
    before = [message.to_dict() for message in made]
    given["a"].append(2)
    given["b"] = 3
    assert [message.to_dict() for message in made] == before


def test_reading_a_dict_leaves_it_as_it_was():
    data: dict[str, Any] = {
        "role": "assistant",
        "content": [
            {"type": "image_url", "image_url": {"url": "u", "detail": "low", "more": 1}},
            {"type": "file", "file": {"file_id": "f"}},
        ],
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "more": [1]}}],
    }
    before = copy.deepcopy(data)
    Message.from_dict(data)
    assert data == before


@pytest.mark.parametrize(
    "message",
    [
        user("hi", attachments=[REPORT]),
        assistant(tool_calls=[ToolCall("c1", "f", "{}")]),
        Message("tool", "42", tool_call_id="c1", name="f", at=3),
        Message("assistant", (Reasoning("hm", signature="s"), Text("so")), extra={"x": [1]}),
    ],
)
def test_a_placed_message_is_the_message_with_its_position(message):
    assert at_position(message, 7) == replace(message, at=7)
    assert at_position(counted(message, "t", 5), 7).known_tokens is None
