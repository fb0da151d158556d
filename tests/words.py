"""Words that several tests use."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from muntin import Message, ToolCall, Window, config, user
from muntin.testing import ScriptedModel
from muntin.timeline.items import Draft, draft_of
from muntin.timeline.receipts import plan_of


class Tenant(BaseModel):
    org: str


class Answer(BaseModel):
    value: int


def call(name: str, id: str = "c1", **arguments: Any) -> ToolCall:
    return ToolCall(id, name, json.dumps(arguments))


def look() -> str:
    """Look."""
    return "seen"


def read_file(path: str) -> str:
    """Read a file."""
    return f"{path}: " + "".join(f"line {n} of the file {path}.\n" for n in range(30))


def texts(messages: Window | Sequence[Message]) -> list[str]:
    """Return the texts of messages, or of those of a window."""
    messages = messages.messages if isinstance(messages, Window) else messages
    return [message.text for message in messages]


def asks(text: str) -> Draft:
    """Return a user's message that is a turn of its own."""
    return draft_of(user(text), opens="turn", ends="completed")


def has_moved(window: Window) -> bool:
    """Say whether a conversation moved in this window."""
    return any(plan.has_moved for plan in plan_of(window).slots)


def scripted(reply: Callable[[Window], Any], name: str | None) -> ScriptedModel:
    """Return a model by this name, or without one."""
    return ScriptedModel(reply) if name is None else ScriptedModel(reply, name=name)


@pytest.fixture(autouse=True)
def one_token_a_character() -> Iterator[None]:
    """Count characters in every test of a module that has this fixture, to keep sums easy."""
    with config.local(tokenizer=len):
        yield
