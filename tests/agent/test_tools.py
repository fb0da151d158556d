"""Tools given as functions: how they are described, called, and what goes back to the model."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from muntin.agent.tools import (
    DONE,
    Tool,
    ToolLike,
    as_tools,
    call_tool,
    merge_tools,
    tool_name,
    tool_schema,
)
from muntin.core.counting.counter import Counter
from muntin.core.parts import ToolCall
from muntin.errors import InvalidInput, InvalidType


def called(tool: ToolLike, arguments: Any = "{}") -> str:
    """Return what the model reads after calling the tool; a token is a character."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return asyncio.run(call_tool(tool, ToolCall("c1", tool_name(tool), text), Counter(len)))


class Odd:
    """A class that no JSON can describe."""


def test_a_typed_function_is_described_by_its_signature():
    def find(text: str, limit: int = 3) -> None:
        """Find a text."""

    assert tool_schema(find) == {
        "type": "function",
        "function": {
            "name": "find",
            "description": "Find a text.",
            "parameters": {
                "type": "object",
                "properties": {
                    "text": {"title": "Text", "type": "string"},
                    "limit": {"title": "Limit", "type": "integer", "default": 3},
                },
                "required": ["text"],
            },
        },
    }


def test_a_parameter_may_have_any_name():
    def query(schema: str, model_config: int, model_name: str, _x: int) -> None: ...

    parameters = tool_schema(query)["function"]["parameters"]
    assert parameters["required"] == ["schema", "model_config", "model_name", "_x"]
    assert list(parameters["properties"]) == parameters["required"]


def args(first: int, *args: int) -> None: ...
def kwargs(first: int, **kwargs: str) -> None: ...
def bare(first: int, second) -> None: ...
def unknown(first: int, second: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def broken(first: int, second: 1 / 0) -> None: ...  # type: ignore[valid-type]
def odd(first: int, second: Odd) -> None: ...
def function(first: int, second: Callable[[], int]) -> None: ...


@pytest.mark.parametrize(
    ("tool", "named"),
    [
        (args, "parameter 'args': a tool cannot take *args or **kwargs"),
        (kwargs, "parameter 'kwargs': a tool cannot take *args or **kwargs"),
        (bare, "parameter 'second' has no type annotation; write its type, such as second: str"),
        (unknown, "parameter 'second': name 'Missing' is not defined"),
        (broken, "parameter 'second': division by zero"),
        (odd, "parameter 'second': Unable to generate"),
        (function, "parameter 'second': Cannot generate a JsonSchema"),
    ],
)
def test_a_parameter_that_cannot_be_described_is_an_error_naming_it(tool, named):
    with pytest.raises(InvalidInput) as caught:
        tool_schema(tool)
    assert str(caught.value).startswith(f"tool {tool.__name__!r}: {named}")


def test_a_function_whose_signature_cannot_be_read_is_an_error_naming_it():
    with pytest.raises(InvalidInput, match="tool 'dict': its signature cannot be read"):
        tool_schema(dict)


@pytest.mark.parametrize("name", ["<lambda>", "größe", "a b", "x" * 65])
def test_a_name_that_no_provider_takes_is_an_error(name):
    with pytest.raises(InvalidInput, match=r"1 to 64 letters.*Tool\(fn, name="):
        tool_schema(Tool(lambda: None, name=name))


def test_a_lambda_and_a_partial_are_tools_with_a_name_of_their_own():
    def add(left: int, right: int) -> int:
        """Add two numbers."""
        return left + right

    assert tool_schema(Tool(partial(add, 10), name="x"))["function"]["description"] == (
        "Add two numbers."
    )
    ten = Tool(partial(add, 10), name="add_ten", description="Add ten.")
    assert tool_schema(ten)["function"]["name"] == "add_ten"
    assert tool_schema(ten)["function"]["description"] == "Add ten."
    assert list(tool_schema(ten)["function"]["parameters"]["properties"]) == ["right"]
    assert called(ten, {"right": 5}) == "15"
    assert called(Tool(lambda: 3, name="three")) == "3"
    with pytest.raises(InvalidInput, match="a tool needs a name"):
        tool_schema(partial(add, 10))


def test_an_object_that_can_be_called_is_described_by_its_call():
    class Adder:
        """Makes no sense to a model."""

        async def __call__(self, number: int) -> int:
            """Add one."""
            return number + 1

    tool = Tool(Adder(), name="add")
    assert tool_schema(tool)["function"]["description"] == "Add one."
    assert called(tool, {"number": 1}) == "2"


def test_a_function_without_a_docstring_has_no_description():
    def silent() -> None: ...

    assert "description" not in tool_schema(silent)["function"]
    assert "description" not in tool_schema(Tool(lambda: None, name="silent"))["function"]


def test_parameters_are_described_by_their_annotation_or_the_docstring():
    def book(
        place: Annotated[str, Field(description="where to")],
        nights: int = 1,
        when: date | None = None,
    ) -> None:
        """Book a room.

        One room only.

        Args:
            place: is described already
            nights (int): how many,
                at most thirty
            nobody: is no parameter

        Returns:
            A number.
        """

    function = tool_schema(book)["function"]
    properties = function["parameters"]["properties"]
    assert function["description"] == "Book a room.\n\nOne room only.\n\nReturns:\n    A number."
    assert properties["place"]["description"] == "where to"
    assert properties["nights"]["description"] == "how many, at most thirty"
    assert "description" not in properties["when"]


def test_an_args_section_that_cannot_be_read_stays_in_the_description():
    def odd(text: str) -> None:
        """Do it.

        Args:
            see the manual
        """

    assert tool_schema(odd)["function"]["description"].endswith("see the manual")


def test_a_schema_may_be_changed_without_changing_the_tool():
    def find(text: str) -> None: ...

    tool_schema(find)["function"]["parameters"]["properties"]["text"]["type"] = "number"
    assert tool_schema(find)["function"]["parameters"]["properties"]["text"]["type"] == "string"


def test_two_tools_of_one_name_are_an_error_naming_both():
    def find() -> None: ...

    with pytest.raises(InvalidInput, match=r"tools\[0\] and tools\[1\] both have the name 'find'"):
        as_tools([find, Tool(find)], "agent")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": "1"}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"max_result_tokens": 0}, "max_result_tokens"),
        ({"max_result_tokens": 1.5}, "max_result_tokens"),
        ({"name": 7}, "name"),
        ({"name": ""}, "name"),
        ({"description": 7}, "description"),
    ],
)
def test_a_wrong_option_is_an_error_naming_it(options, named):
    with pytest.raises(InvalidInput, match=named):
        Tool(print, **options)


def test_a_tool_is_made_of_a_function():
    with pytest.raises(InvalidType, match="must be a function"):
        Tool("find")  # type: ignore[arg-type]


class Point(BaseModel):
    x: int
    y: int = 0


def test_arguments_are_validated_and_become_what_was_declared():
    seen: list[Any] = []

    def mark(
        point: Point, day: date, /, times: int = 2, *, labels: list[str] | None = None
    ) -> None:
        seen.extend([point, day, times, labels])

    assert called(mark, {"point": {"x": "3"}, "day": "2026-01-02", "labels": ["a"]}) == DONE
    assert seen == [Point(x=3), date(2026, 1, 2), 2, ["a"]]


@pytest.mark.parametrize("arguments", ["", "  ", "{}"])
def test_a_tool_without_arguments_needs_none(arguments):
    def now() -> str:
        return "noon"

    assert called(now, arguments) == "noon"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('{"x": ', "Invalid JSON"),
        ("[1]", "object"),
        ("null", "object"),
        ("{}", "x: Field required"),
        ('{"x": "three"}', "x: Input should be a valid integer"),
        ('{"x": 1, "z": 2}', "z: Extra inputs are not permitted"),
    ],
)
def test_wrong_arguments_are_told_to_the_model_and_the_tool_is_not_run(arguments, said):
    ran: list[int] = []

    def mark(x: int) -> None:
        ran.append(x)

    text = called(mark, arguments)
    assert text.startswith("Error: invalid arguments for tool 'mark': ")
    assert said in text
    assert not ran


def test_what_a_tool_raises_is_told_to_the_model_without_a_traceback(caplog):
    def fail(how: str) -> None:
        raise {"value": ValueError("bad\nday"), "exit": SystemExit(3), "stop": StopIteration()}[how]

    async def fail_later() -> None:
        raise KeyError("gone")

    with caplog.at_level(logging.INFO, "muntin.agent.tools"):
        assert called(fail, {"how": "value"}) == "Error: tool 'fail' failed: ValueError: bad\nday"
    assert "Traceback" in caplog.text  # for those who wrote the tool
    assert called(fail, {"how": "exit"}) == "Error: tool 'fail' failed: SystemExit: 3"
    assert called(fail, {"how": "stop"}).startswith("Error: tool 'fail' failed: ")
    assert called(fail_later) == "Error: tool 'fail_later' failed: KeyError: 'gone'"


def test_a_tool_that_cancels_itself_has_failed_and_the_run_goes_on():
    async def give_up() -> None:
        raise asyncio.CancelledError

    assert called(give_up) == "Error: tool 'give_up' was cancelled."


@dataclass
class Row:
    name: str
    at: date


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        ("", ""),
        (None, DONE),
        (3.5, "3.5"),
        (True, "true"),
        ({"b": [1, "ü"], "a": None}, '{"a":null,"b":[1,"ü"]}'),
        (Point(x=1), '{"x":1,"y":0}'),
        ([Row("n", date(2026, 1, 2))], '[{"at":"2026-01-02","name":"n"}]'),
        ({1: {2}}, '{"1":[2]}'),
        ("lone \ud800 surrogate", "lone ? surrogate"),
    ],
)
def test_results_are_text_or_compact_json(value, text):
    assert called(Tool(lambda: value, name="give")) == text


def _itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "kind"),
    [(threading.Lock(), "lock"), (Odd(), "Odd"), (b"\xff", "bytes"), (_itself(), "list")],
)
def test_a_result_that_cannot_be_written_is_told_to_the_model_by_tool_and_type(value, kind):
    text = called(Tool(lambda: value, name="give"))
    assert text.startswith(f"Error: tool 'give' returned a {kind} that cannot be written as JSON: ")
    assert "\n" not in text


def test_a_result_too_large_is_cut_with_a_marker_and_fits():
    tool = Tool(_repeat, name="give", max_result_tokens=100)
    assert called(tool, {"times": 100}) == "x" * 100
    text = called(tool, {"times": 5_000})
    assert len(text) == 100
    kept, marker = text.split("\n")
    assert marker == f"[cut: {5_000 - len(kept):,} of 5,000 characters left out]"
    assert set(kept) == {"x"}


def test_where_not_even_the_marker_fits_it_stands_alone():
    tool = Tool(_repeat, name="give", max_result_tokens=3)
    assert called(tool, {"times": 50}) == "[cut: 50 of 50 characters left out]"


def _repeat(times: int) -> str:
    return "x" * times


def test_an_error_is_cut_as_a_result_is():
    def fail() -> None:
        raise ValueError("x" * 5_000)

    assert len(called(Tool(fail, max_result_tokens=100))) == 100


def test_a_sync_tool_does_not_block_the_loop_and_sees_the_context():
    tenant = contextvars.ContextVar("tenant", default="nobody")
    loop_thread = threading.get_ident()

    def who() -> list[Any]:
        time.sleep(0.3)
        return [tenant.get(), threading.get_ident() != loop_thread]

    async def main() -> tuple[str, int]:
        tenant.set("acme")
        ticks = 0
        call = asyncio.create_task(call_tool(who, ToolCall("c", "who"), Counter(len)))
        while not call.done():
            ticks += 1
            await asyncio.sleep(0.005)
        return await call, ticks

    said, ticks = asyncio.run(main())
    assert said == '["acme",true]'
    assert ticks > 3


def test_a_timeout_is_told_to_the_model_and_an_async_tool_is_cancelled():
    ended: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            ended.append("cancelled")

    assert called(Tool(wait, timeout=0.02)) == "Error: tool 'wait' gave no result within 0.02 s."
    assert ended == ["cancelled"]


def test_a_sync_tool_that_hangs_keeps_neither_the_loop_nor_the_program():
    release = threading.Event()

    def hang() -> None:
        release.wait(60)

    start = time.monotonic()
    assert "within 0.02 s" in called(Tool(hang, timeout=0.02))
    assert time.monotonic() - start < 30  # asyncio.run would wait for a thread of its pool
    release.set()


def test_a_program_ends_though_a_tool_hangs():
    program = """
import asyncio, time
from muntin.core.parts import ToolCall
from muntin.core.counting.counter import Counter
from muntin.agent.tools import Tool, call_tool

def hang() -> None:
    time.sleep(60)

print(asyncio.run(call_tool(Tool(hang, timeout=0.05), ToolCall("c", "hang"), Counter(len))))
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30
    )
    assert run.stdout == "Error: tool 'hang' gave no result within 0.05 s.\n"


def test_a_timeout_of_its_own_is_not_ours():
    def fetch() -> None:
        raise TimeoutError("the server is slow")

    text = called(Tool(fetch, timeout=5))
    assert text == "Error: tool 'fetch' failed: TimeoutError: the server is slow"


def test_a_tool_with_only_a_schema_cannot_be_called():
    with pytest.raises(InvalidType, match="no function"):
        called({"type": "function", "function": {"name": "find"}})


def test_many_sync_tools_run_beside_each_other():
    barrier = threading.Barrier(12, timeout=10)

    def meet() -> int:
        return barrier.wait() * 0

    async def main() -> list[str]:
        calls = [call_tool(meet, ToolCall(f"c{n}", "meet"), Counter(len)) for n in range(12)]
        return await asyncio.gather(*calls)

    assert asyncio.run(main()) == ["0"] * 12


def test_tools_of_several_sources_come_together_each_name_once():
    schemas: list[dict[str, Any]] = [{"name": name} for name in ("one", "two", "two")]
    one, two, other = schemas
    assert merge_tools([("a", [one]), ("b", [two])]) == (one, two)
    assert merge_tools([("a", [one, two])], winners=[other]) == (one, other)
    assert merge_tools([("a", [one]), ("a", [one])]) == (one,)  # one context in two places
    for offers in ([("a", [two]), ("b", [other])], [("a", [two]), ("b", [two])]):
        with pytest.raises(InvalidInput, match=r"^x: tool 'two' is contributed by a and by b$"):
            merge_tools(offers, what="x: ")
