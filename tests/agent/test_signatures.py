"""Functions as tools where there is no Pydantic: plain types, described to the same bytes."""

from __future__ import annotations

import asyncio
import json
import sys
from types import MethodType
from typing import Optional

import pytest

from muntin.agent.signatures import signature
from muntin.agent.tools import call_tool, tool_schema
from muntin.core.counting.counter import Counter
from muntin.core.parts import ToolCall
from muntin.errors import MissingExtra
from muntin.runtime.recovery import Reader


def nothing() -> str:
    """Take nothing."""
    return "done"


def book(flight_no: str, seats: int = 1, window: bool = False, most: float | None = None) -> str:
    """Book a flight.

    Args:
        flight_no: As printed.
    """
    return f"{flight_no} {seats} {window} {most}"


def either(size: int | float) -> str:
    """Take either number."""
    return repr(size)


def scaled(by: float = 2) -> str:
    """Take what is written, as it is written."""
    return repr(by)


def first(name: str, /, number: Optional[int] = None) -> dict[str, object]:  # noqa: UP045
    """Take one by its position."""
    return {"name": name, "number": number}


READS = (
    Reader.load_timeline_range,
    Reader.load_source_range,
    Reader.load_context_history,
    Reader.load_result,
    Reader.search_history,
)


def take_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave Python without Pydantic."""
    for name in ("pydantic", "pydantic_core"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture
def alone(monkeypatch):
    take_away(monkeypatch)


def fresh(fn):
    """The same function, not described before."""
    made = type(fn)(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    made.__annotations__, made.__doc__ = fn.__annotations__, fn.__doc__
    return MethodType(made, object()) if fn in READS else made


@pytest.mark.parametrize("fn", [nothing, book, either, first, *READS], ids=lambda fn: fn.__name__)
def test_plain_types_are_described_to_the_same_bytes_without_pydantic(fn, monkeypatch):
    with_it = json.dumps(tool_schema(fresh(fn)))
    take_away(monkeypatch)
    assert json.dumps(tool_schema(fresh(fn))) == with_it


@pytest.mark.parametrize(
    ("fn", "arguments", "answer"),
    [
        (nothing, "", "done"),
        (nothing, "{}", "done"),
        (book, '{"flight_no": "A1"}', "A1 1 False None"),
        (book, '{"flight_no": "A1", "seats": 2, "window": true, "most": 3}', "A1 2 True 3.0"),
        (either, '{"size": 3}', "3"),
        (either, '{"size": 3.5}', "3.5"),
        (scaled, "{}", "2"),
        (scaled, '{"by": 2}', "2.0"),
        (first, '{"name": "n"}', '{"name":"n","number":null}'),
        (first, '{"name": "n", "number": 4}', '{"name":"n","number":4}'),
    ],
)
def test_calls_are_answered_alike_with_and_without_pydantic(fn, arguments, answer, monkeypatch):
    def asked() -> str:
        return asyncio.run(call_tool(fresh(fn), ToolCall("c", fn.__name__, arguments), Counter()))

    assert asked() == answer
    take_away(monkeypatch)
    assert asked() == answer


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("{", "arguments: Invalid JSON: "),
        ("[1]", "arguments: Input should be an object"),
        ("{}", "flight_no: Field required"),
        ('{"flight_no": 5}', "flight_no: Input should be a valid string"),
        ('{"flight_no": "A1", "seats": true}', "seats: Input should be a valid integer"),
        ('{"flight_no": "A1", "most": "x"}', "most: Input should be a valid number or null"),
        ('{"flight_no": "A1", "row": 1}', "row: Extra inputs are not permitted"),
    ],
)
def test_wrong_arguments_are_told_to_the_model(alone, arguments, told):
    answer = asyncio.run(call_tool(fresh(book), ToolCall("c", "book", arguments), Counter()))
    assert answer.startswith(f"Error: invalid arguments for tool 'book': {told}")


def test_other_types_need_pydantic_and_the_parameter_is_named(alone):
    def tool(names: list[str]) -> str:
        """Take a list."""
        return names[0]

    with pytest.raises(MissingExtra, match=r"tool 'tool': parameter 'names' .*muntin\[prompts\]"):
        signature("tool", tool)


def test_a_result_that_json_has_no_form_for_is_told_without_pydantic(alone):
    def tool() -> object:
        """Give what cannot be written."""
        return object()

    answer = asyncio.run(call_tool(tool, ToolCall("c", "tool", ""), Counter()))
    assert answer.startswith("Error: tool 'tool' returned a object that cannot be written as JSON")
