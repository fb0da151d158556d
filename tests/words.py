"""Words that several tests use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from muntin import ToolCall, config


class Tenant(BaseModel):
    org: str


class Answer(BaseModel):
    value: int


def call(name: str, id: str = "c1", **arguments: Any) -> ToolCall:
    return ToolCall(id, name, json.dumps(arguments))


def look() -> str:
    """Look."""
    return "seen"


@pytest.fixture(autouse=True)
def one_token_a_character() -> Iterator[None]:
    """Count characters in every test of a module that has this fixture, to keep sums easy."""
    with config.local(tokenizer=len):
        yield
