"""What frameworks really send: each shape as a list, and how many of its items answer a call.

A shape that cannot be read is told apart: it is carried as it is.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, NamedTuple

from pydantic import BaseModel

from tests.fitting.talks import chat_call, chat_result


class Shape(NamedTuple):
    items: list[Any]
    # How many of the messages that are read call a tool, and how many are results of a call.
    calls: int = 0
    results: int = 0
    # Where a message stands that cannot be read.
    opaque: int | None = None
    # Whether all items come back.
    whole: bool = True


class Call(BaseModel):
    id: str
    name: str
    args: dict[str, Any]


class AIMessage(BaseModel):
    content: str
    tool_calls: list[Call] = []


class HumanMessage(BaseModel):
    content: Any


class ToolMessage(BaseModel):
    content: str
    tool_call_id: str


class Plain:
    """An object that is no model of Pydantic's."""

    def __init__(self, role: str, content: str) -> None:
        self.role, self.content = role, content


def ask(text: Any = "Where is it?") -> dict[str, Any]:
    return {"role": "user", "content": text}


def called(**call: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [call]}


FUNCTION = {"name": "look", "arguments": '{"n": 1}'}
USE = {"type": "tool_use", "id": "t1", "name": "look", "input": {"n": 1}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "seen"}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAoAAAAHgCAIAAAC6s0uz"

SHAPES: dict[str, Shape] = {
    "plain": Shape([ask(), {"role": "assistant", "content": "Here."}, ask()]),
    "a call and its result": Shape([ask(), chat_call("a"), chat_result("a", "seen")], 1, 1),
    "a call without an id": Shape(
        [ask(), called(type="function", function=FUNCTION), {"role": "tool", "content": "seen"}],
        1,
        1,
    ),
    "two calls without ids": Shape(
        [
            ask(),
            {"role": "assistant", "tool_calls": [{"function": FUNCTION}, {"function": FUNCTION}]},
            {"role": "tool", "content": "seen"},
            {"role": "tool", "content": "seen again"},
        ],
        1,
        2,
    ),
    "arguments that are None": Shape(
        [
            ask(),
            called(id="a", type="function", function={"name": "look", "arguments": None}),
            chat_result("a", "seen"),
        ],
        1,
        1,
    ),
    "arguments that are an object": Shape(
        [
            ask(),
            called(id="a", function={"name": "look", "arguments": {"n": 1}}),
            chat_result("a", "seen"),
        ],
        1,
        1,
    ),
    "two results of one call": Shape(
        [ask(), chat_call("a"), chat_result("a", "seen"), chat_result("a", "again")],
        1,
        2,
        whole=False,
    ),
    "the same call twice": Shape(
        [
            ask(),
            {"role": "assistant", "tool_calls": chat_call("a")["tool_calls"] * 2},
            chat_result("a", "seen"),
        ],
        1,
        1,
    ),
    "a result of no call": Shape([ask(), chat_result("a", "seen")], 0, 1, whole=False),
    "function_call and role function": Shape(
        [
            ask(),
            {"role": "assistant", "content": None, "function_call": FUNCTION},
            {"role": "function", "name": "look", "content": "seen"},
        ],
        1,
        1,
    ),
    "role developer": Shape([{"role": "developer", "content": "Be brief."}, ask()]),
    "half a character": Shape([ask("broken \ud83d smile")], whole=False),
    "Anthropic's blocks": Shape(
        [ask(), {"role": "assistant", "content": [USE]}, {"role": "user", "content": [RESULT]}],
        1,
        1,
    ),
    "Anthropic's result with a text": Shape(
        [
            ask(),
            {"role": "assistant", "content": [{"type": "text", "text": "I look."}, USE]},
            {"role": "user", "content": [RESULT, {"type": "text", "text": "Go on."}]},
        ],
        1,
        1,
    ),
    "an image": Shape(
        [
            ask(
                [
                    {"type": "text", "text": "What is it?"},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
                ]
            )
        ]
    ),
    "an image whose URL is a str": Shape(
        [ask([{"type": "image_url", "image_url": "https://example.org/a.png"}])]
    ),
    "texts without a type": Shape([ask(["What", {"text": "is it?"}])]),
    "LangChain's dicts": Shape(
        [
            {"type": "human", "content": "Where?"},
            {"type": "ai", "content": "", "tool_calls": [{"id": "a", "name": "look", "args": {}}]},
            {"type": "tool", "content": "seen", "tool_call_id": "a"},
        ],
        1,
        1,
    ),
    "LangChain's stored dicts": Shape(
        [
            {"type": "human", "data": {"content": "Where?", "type": "human"}},
            {
                "lc": 1,
                "type": "constructor",
                "id": ["langchain", "schema", "messages", "AIMessage"],
                "kwargs": {"content": "Here."},
            },
            {"type": "human", "data": {"content": "And now?"}},
        ]
    ),
    "LangChain's shorthand": Shape([("system", "Be brief."), ("human", "Where?"), "And now?"]),
    "objects of a model": Shape(
        [
            HumanMessage(content="Where?"),
            AIMessage(content="", tool_calls=[Call(id="a", name="look", args={"n": 1})]),
            ToolMessage(content="seen", tool_call_id="a"),
        ],
        1,
        1,
    ),
    "objects with a role": Shape([Plain("system", "Be brief."), Plain("user", "Where?")]),
    "a result that is an object": Shape(
        [ask(), chat_call("a"), {"role": "tool", "tool_call_id": "a", "content": {"found": [1]}}],
        1,
        1,
    ),
    "no content at all": Shape(
        [{"role": "assistant"}, {"role": "user", "content": ""}, ask()], whole=False
    ),
    "calls that are None": Shape(
        [ask(), {"role": "assistant", "content": "Here.", "tool_calls": None, "refusal": None}]
    ),
    "items of the Responses API": Shape(
        [
            ask(),
            {"type": "reasoning", "id": "r1", "summary": []},
            {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
            {"type": "function_call", "call_id": "b", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "seen"},
            {"type": "function_call_output", "call_id": "b", "output": "seen too"},
        ],
        1,
        2,
    ),
    "Google's contents": Shape(
        [
            {"role": "user", "parts": [{"text": "Where?"}]},
            {
                "role": "model",
                "parts": [{"function_call": {"name": "look", "id": "a"}}],
            },
            {
                "role": "user",
                "parts": [
                    {
                        "function_response": {
                            "name": "look",
                            "id": "a",
                            "response": {"output": "seen"},
                        }
                    }
                ],
            },
        ],
        1,
        1,
    ),
    "a role nobody knows": Shape([ask(), {"role": "critic", "content": "Bad."}, ask()], opaque=1),
    "no message": Shape([ask(), {"event": "ping"}, 42, None, ask()], opaque=1),
    "a field that cannot be copied": Shape([{**ask(), "lock": Lock()}]),
    "a call that is no call": Shape(
        [ask(), {"role": "assistant", "content": "x", "tool_calls": ["look"]}], opaque=1
    ),
}
