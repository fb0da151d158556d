"""Tools as they are counted, whatever a framework gives for them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from muntin import InvalidInput
from muntin.fitting import fit
from muntin.fitting.schemas import schemas

LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


class Model(BaseModel):
    name: str
    input_schema: dict[str, Any]


def look(n: int) -> str:
    """Look something up."""
    return str(n)


def test_dicts_functions_and_objects_are_read() -> None:
    found, unread = schemas([LOOK, look, Model(name="find", input_schema={"type": "object"})])
    assert not unread
    assert found[0] == LOOK
    assert "look" in str(found[1])
    assert found[2] == {"name": "find", "input_schema": {"type": "object"}}


def test_what_cannot_be_read_counts_as_its_text_and_is_named() -> None:
    ask = [{"role": "user", "content": "x"}]
    fitted = fit(ask, 900, tools=[42], previous={})  # type: ignore[list-item]
    assert fitted.unread[0].startswith("tools[0]: ")
    with pytest.raises(InvalidInput, match=r"tools\[0\]"):
        fit(ask, 900, tools=[42], strict=True)  # type: ignore[list-item]
