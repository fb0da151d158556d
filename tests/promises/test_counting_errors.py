"""An error while counting names the message, its slot and the tokenizer; a number that cannot be
written names the tool."""

from __future__ import annotations

from typing import Any

import pytest

from muntin import InvalidInput, Slots, ToolCall, messages_from, prompt, user
from muntin.agent.tools import as_tools, tool_schema
from muntin.errors import TokenizerError

HUGE = 10**5_000


def picky(text: str) -> int:
    if "boom" in text:
        raise RuntimeError("no such byte")
    return -1 if "minus" in text else len(text)


@pytest.mark.parametrize(
    ("word", "why"), [("boom", "raised RuntimeError"), ("minus", "returned -1")]
)
@pytest.mark.parametrize("dicts", [False, True])
def test_the_message_is_named(word: str, why: str, dicts: bool) -> None:
    talk: list[Any] = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": f"{word} here"},
        {"role": "user", "content": "so?"},
    ]
    slots = Slots(1_000, tokenizer=picky)
    slots.add("history", talk if dicts else messages_from(talk))
    with pytest.raises(TokenizerError) as caught:
        slots.render()
    said = str(caught.value)
    for words in ("slot 'history', message 1", "'assistant'", "'picky'", why):
        assert words in said


def test_a_text_a_call_and_an_attachment_name_their_slot_too() -> None:
    for content in ("boom", user("boom"), [{"role": "user", "content": "x", "name": "boom"}]):
        slots = Slots(1_000, tokenizer=picky)
        slots.add("mine", content)
        with pytest.raises(TokenizerError, match="slot 'mine', message 0: tokenizer 'picky'"):
            slots.render()


def test_a_schema_names_its_place() -> None:
    slots = Slots(1_000, tokenizer=picky, tools=[{"name": "ok"}, {"name": "boom"}])
    with pytest.raises(TokenizerError, match=r"'picky' .*schema of tools\[1\]"):
        slots.render()


def far(limit: int = HUGE) -> str:
    """Go far."""
    return str(limit)


def odd(share: float = float("nan")) -> str:
    """Be odd."""
    return str(share)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_number_too_long_to_be_written_names_the_tool(sign: int) -> None:
    schema = {"name": "search", "parameters": {"minimum": sign * HUGE}}
    for refuse in (
        lambda: Slots(100, tools=[schema]),
        lambda: as_tools([schema], "agent"),
        lambda: prompt(system="s", tools=[schema]),
        lambda: ToolCall("c1", "search", {"n": sign * HUGE}),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidInput, match=r"'search'.* an int of more than 4,300 digits"):
            refuse()


def test_the_defaults_of_a_function_are_looked_at_too() -> None:
    with pytest.raises(InvalidInput, match=r"tool 'far': parameter 'limit'.*4,300 digits"):
        tool_schema(far)
    with pytest.raises(InvalidInput, match=r"tool 'odd': parameter 'share'.*nan"):
        tool_schema(odd)


def test_a_negative_number_is_a_number() -> None:
    schema = {"name": "search", "parameters": {"minimum": -5, "default": -0.5}}
    assert Slots(100, tools=[schema]).tools == (schema,)
