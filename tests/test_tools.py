"""Tools given as functions: how they are described, and what cannot be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from muntin.errors import InvalidInput
from muntin.tools import tool_schema


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
        (bare, "parameter 'second' has no type annotation"),
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
