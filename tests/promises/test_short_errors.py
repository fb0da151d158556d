"""An error never repeats a whole value: not a text of a megabyte, nor a nested one."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import muntin
from muntin import (
    App,
    Budget,
    CacheOptions,
    Image,
    InvalidInput,
    Message,
    MuntinError,
    Session,
    Slots,
    ToolCall,
    Turns,
    capability,
    config,
    context,
    flow,
    generator,
    match,
    messages_from,
    prompt,
    prompt_file,
    when,
)
from muntin.core.checks import shown
from muntin.errors import PromptFileError
from muntin.providers.names import as_model
from muntin.timeline.items import Draft
from muntin.timeline.store.memory import MemoryStore
from tests.products import sample


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


BIG: dict[str, Callable[[], Any]] = {
    "text": lambda: "<secret>" * 125_000,
    "bytes": lambda: b"x" * 1_000_000,
    "list": lambda: ["<secret>"] * 100_000,
    "mapping": lambda: {f"key {n}": "<secret>" * 10 for n in range(10_000)},
    "nested": lambda: {"type": {"type": [{"role": "<secret>" * 100_000}]}},
    "set": lambda: set(range(100_000)),
    "int": lambda: [10**100_000],
    "deep": deep,
    "unshowable": Unshowable,
}

INTERFACES: dict[str, Callable[[Any], Any]] = {
    "Slots": lambda value: Slots(value),
    "Slots.add role": lambda value: Slots(10).add("a", "x", role=value),
    "Slots.add priority": lambda value: Slots(10).add("a", "x", priority=value),
    "Slots tokenizer": lambda value: Slots(10, tokenizer=value),
    "Message role": lambda value: Message(value, "x"),
    "Message content": lambda value: Message("user", {"no": value}),  # type: ignore[arg-type]
    "Message.from_dict": lambda value: Message.from_dict({"role": value}),
    "messages_from": lambda value: messages_from([value, {"role": value}]),
    "messages_from one": lambda value: messages_from({"no": value}),
    "ToolCall": lambda value: ToolCall(5, value, {}),  # type: ignore[arg-type]
    "Image": lambda value: Image("http://x", detail=value),
    "Budget": lambda value: Budget(value),
    "Turns": lambda value: Turns(value),
    "CacheOptions": lambda value: CacheOptions(ttl=value, provider=value),
    "config": lambda value: config(cache=[value], settings=[value]),  # type: ignore[arg-type]
    "context": lambda value: context(id="x", system=[value], cache=[value]),  # type: ignore[arg-type]
    "when": lambda value: when([value], [value]),  # type: ignore[arg-type]
    "match": lambda value: match(on=[value], cases={}),  # type: ignore[arg-type]
    "prompt": lambda value: prompt(prompt=[value], use=[value]),  # type: ignore[arg-type]
    "prompt input": lambda value: prompt(prompt="a", input=value),
    "prompt_file": lambda value: prompt_file([value]),  # type: ignore[arg-type]
    "generator": lambda value: generator(model=[value], prompt="x"),  # type: ignore[arg-type]
    "generator place": lambda value: generator(prompt="x", place=value),
    "capability": lambda value: capability("c", presets={"p": [value]}),  # type: ignore[dict-item]
    "flow": lambda value: flow("f", actions={"a": value}),
    "model": lambda value: as_model([value]),  # type: ignore[arg-type]
    "App": lambda value: App("memory:", model=[value]),  # type: ignore[arg-type]
    "entity": lambda value: App("memory:").entity([value]),  # type: ignore[arg-type]
    "strategy": lambda value: App("memory:").conversation("c", strategy=[value], model="x/y"),
    "Session": lambda value: Session([value], store=MemoryStore()),  # type: ignore[arg-type]
    "attrs": lambda value: Session("s", store=MemoryStore()).insert_context(
        "e",
        name="n",
        content="c",
        attrs=[value],  # type: ignore[arg-type]
    ),
    "Draft": lambda value: Draft([value], payload=1),  # type: ignore[arg-type]
    "Draft time": lambda value: Draft("wake", payload=1, time=value),
}


@pytest.mark.parametrize("value", sample(BIG, "text", "deep", "unshowable"))
def test_an_error_shows_a_little_of_a_value(value):
    given = BIG[value]()
    for name, interface in INTERFACES.items():
        with pytest.raises((MuntinError, RecursionError)) as refused:
            interface(given)
        assert len(str(refused.value)) < 1_500, name
        assert len(repr(refused.value)) < 3_000, name


@pytest.mark.parametrize("value", BIG.values(), ids=BIG)
def test_what_is_shown_of_a_value_is_bounded(value):
    assert len(shown(value())) <= 101


@pytest.mark.parametrize("value", ["a", "", 5, None, [1, 2], {"a": 1}, 0.5, b"x"], ids=repr)
def test_a_small_value_is_shown_as_it_is(value):
    assert shown(value) == repr(value)


def test_a_long_name_is_cut():
    with pytest.raises(InvalidInput) as refused:
        Slots(10).add("n" * 1_000_000, 5)  # type: ignore[arg-type]
    assert len(str(refused.value)) < 4_100


def test_a_long_error_keeps_its_beginning_and_its_end():
    error = InvalidInput(f"what is wrong {'x' * 1_000_000} what to do")
    assert str(error).startswith("what is wrong")
    assert str(error).endswith("what to do")
    assert len(str(error)) < 4_100


def test_a_prompt_file_tells_little_of_a_value(tmp_path):
    file = tmp_path / "chat.md"
    for line in (f"max_tokens: {'x' * 10**6}", f"{'x' * 10**6}: 1", f"name: !!int {'x' * 10**6}"):
        file.write_text(f"---\n{line}\n---\n<system>a</system>")
        with pytest.raises(PromptFileError) as refused:
            prompt_file(file)
        assert len(refused.value.reason) < 500


def test_no_error_text_writes_out_what_a_caller_gave():
    """Values are shown by the one helper that shortens; names may be written out."""
    source = Path(inspect.getfile(muntin)).parent
    written = re.compile(r"\b(?:not|got) \{[^{}!]+!r\}")
    found = [str(each) for each in source.rglob("*.py") if written.search(each.read_text())]
    assert found == []
