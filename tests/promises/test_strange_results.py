"""Strange results, strange summaries and silly numbers: a clear error or a mark, nothing lost."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from muntin import (
    Action,
    App,
    InvalidInput,
    Ladder,
    Results,
    Slots,
    Summary,
    Tool,
    ToolCall,
    Window,
    flow,
    generator,
)
from muntin.runtime import Ctx
from muntin.testing import ScriptedModel
from tests.interfaces import DURABLE, INTERFACES
from tests.paths import ROOT
from tests.products import PRICED, THREE, sample
from tests.wire.rules import check_anthropic, check_chat
from tests.wire.windows import encode

BUDGET = 8_000


class Unprintable:
    def __str__(self) -> str:
        raise ValueError("no words")

    __repr__ = __str__


class Changing(dict[str, int]):
    """Says something else each time it is read."""

    reads = 0

    def items(self) -> Any:
        type(self).reads += 1
        return {"read": self.reads}.items()


def growing() -> Iterator[int]:
    yield from range(3)


def endless() -> Any:
    found: list[Any] = []
    found.append(found)
    return found


STRANGE: dict[str, Any] = {
    "None": lambda: None,
    "bytes": lambda: b"\xff\xfe\x00",
    "a number": lambda: float("nan"),
    "a set": lambda: {3, 1},
    "an object": object,
    "unprintable": Unprintable,
    "changing": lambda: Changing(a=1),
    "a generator": growing,
    "holds itself": endless,
    "surrogates": lambda: "a\ud800b",
    "control": lambda: "\x00\x1b[2J",
    "empty": lambda: "",
}


def called(window: Window) -> Any:
    if any(message.role == "tool" for message in window.messages):
        return "Done."
    return ToolCall("c1", "odd", "{}")


def through(
    interface: str, give: Any, *, name: str = "openai/gpt-5"
) -> tuple[list[Window], list[Any]]:
    """Return the windows of a turn whose tool gives this, and what the store kept of it."""

    def odd() -> Any:
        """Give something odd."""
        return give()

    model = ScriptedModel(called, name=name, budget=BUDGET)

    async def run() -> list[Any]:
        async with App("memory:") as app:
            await INTERFACES[interface](app, model, "Do it.", [odd])
            ids = [each.id for each in app.store.sessions()]
            return [item for id in ids for item in app.store.read(id)]

    return model.windows, asyncio.run(run())


@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.parametrize("interface", sample(INTERFACES, *THREE))
def test_a_result_that_is_no_text_is_told_as_text_once(interface, kind):
    windows, items = through(interface, STRANGE[kind])
    assert len(windows) == 2
    results = [message for message in windows[-1].messages if message.role == "tool"]
    assert [each.tool_call_id for each in results] == ["c1"]
    assert isinstance(results[0].text, str)
    check_chat(encode(windows[-1], "chat"))
    check_anthropic(encode(windows[-1], "anthropic"))
    json.dumps(encode(windows[-1], "chat")).encode()
    if interface in DURABLE:  # what was shown is what is kept
        kept = [item.message for item in items if item.kind == "tool_result"]
        assert [each.text for each in kept] == [results[0].text]


HUGE = """
import asyncio, json, resource, sys
from tests.promises import test_strange_results as strange

kind, interface, size = *sys.argv[1:3], int(sys.argv[3])
text = "a word of many, " * (size // 16)
given = {"text": lambda: text, "list": lambda: [text[: size // 4]] * 4, "bytes": text.encode}
# Counting exactly takes most of the time: it is done in two interfaces, the others estimate.
name = "openai/gpt-5" if interface in ("slots", "conversation") else strange.PRICED
strange.through(interface, lambda: "small", name=name)  # loads the vocabulary
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
windows, items = strange.through(interface, given[kind], name=name)
kept = [len(item.message.text) for item in items if item.kind == "tool_result"]
shown = next(message.text for message in windows[-1].messages if message.role == "tool")
peak = 1_024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
print(json.dumps([len(windows), windows[-1].tokens, shown, kept, peak / size]))
"""
# Copies of a result that a process may hold at once: what the tool gave, its text, the message,
# what is encoded of it for the store, and what is read back.
COPIES = 8
# `make soak` has 200 MB.
SIZE = int(os.environ.get("MUNTIN_HUGE", "8000000"))


# What is no text becomes text before most interfaces see it.
LISTS = [("slots", "list"), ("conversation", "list")]
HUGE_IN = [*((interface, "text") for interface in INTERFACES), *LISTS]


@pytest.mark.parametrize(
    ("interface", "kind"),
    sample(HUGE_IN, *((interface, "text") for interface in THREE), LISTS[0]),
)
def test_a_huge_result_is_kept_whole_and_shown_in_part(interface, kind):
    done = subprocess.run(
        [sys.executable, "-c", HUGE, kind, interface, str(SIZE)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    asked, tokens, text, kept, peak = json.loads(done.stdout)
    assert asked == 2
    assert len(text) < 40_000
    assert "tokens left out" in text
    assert tokens <= BUDGET
    assert all(size >= SIZE for size in kept)
    assert len(kept) == (interface in DURABLE)
    assert peak < COPIES


NUMBERS: list[tuple[type, str, Any]] = [
    *[(Results, "max_ratio", value) for value in (-0.1, 0, 1.5, float("nan"), float("inf"))],
    *[(Results, "max_ratio", value) for value in ("0.5", None, True)],
    *[(Results, "keep", value) for value in ((), "head", ("head", "head"), ("middle",), 7)],
    *[(Ladder, "short_tokens", value) for value in (-1, 0, 63, 2.5, "200", True, None)],
    *[(Ladder, "keep_groups", value) for value in (-1, 2.5, "3", None, True)],
    *[(Ladder, "stubs", value) for value in (1, "yes", None)],
    *[(Summary, "max_tokens", value) for value in (-1, 0, 2.5, "800", True, None)],
    *[(Summary, "timeout", value) for value in (-1, 0, float("nan"), "x", None)],
    *[(Summary, "prompt", value) for value in ("", "  ", 7, "a\ud800")],
]


@pytest.mark.parametrize(("kind", "field", "value"), NUMBERS)
def test_a_silly_number_is_refused_by_the_name_of_its_field(kind, field, value):
    given: dict[str, Any] = {"model": "x/y"} if kind is Summary else {}
    with pytest.raises(InvalidInput, match=rf"{kind.__name__}\.{field}"):
        kind(**given, **{field: value})


WRONG: dict[str, list[Any]] = {
    "results": [0.25, -1, "half", {"max_ratio": 0.2}, Ladder, Results],
    "ladder": [3, -1, "down", {"short_tokens": 9}, Ladder, Results()],
    "summary": [800, "x/y", True, {"model": "x/y"}, Summary],
    "recovery": [0, 1, "no", {}],
}


async def by_agent(**given: Any) -> None:
    async with App("memory:") as app:

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Any) -> None:
            ctx.use_agent(model=ScriptedModel(["x"], name=PRICED), **given)

        await app.ask("e/1", "hello")


def in_slots(**given: Any) -> None:
    Slots(1_000, **given)


def in_add(**given: Any) -> None:
    Slots(1_000).add("history", [{"role": "user", "content": "x"}], **given)


def in_app(**given: Any) -> None:
    App("memory:", **given)


def in_conversation(**given: Any) -> None:
    App("memory:").conversation("c", model=ScriptedModel([], name=PRICED), **given)


def in_generator(**given: Any) -> None:
    generator(prompt="x", **given)


def in_flow(**given: Any) -> None:
    flow("f", actions={"a": Action(generator(prompt="x"))}, **given)


def in_use_agent(**given: Any) -> None:
    asyncio.run(by_agent(**given))


ALL = ("results", "ladder", "summary", "recovery")
TAKES = {
    in_slots: ("results", "ladder"),
    in_add: ("results", "ladder"),
    in_app: ALL,
    in_conversation: ALL,
    in_generator: ALL,
    in_flow: ALL,
    in_use_agent: ALL,
}


@pytest.mark.parametrize(
    ("make", "option"), [(make, each) for make in TAKES for each in TAKES[make]]
)
def test_a_wrong_argument_of_any_interface_is_refused_by_its_name(make, option):
    for value in WRONG[option]:
        with pytest.raises(InvalidInput, match=option):
            make(**{option: value})


def test_a_tool_whose_ceiling_is_silly_is_refused():
    def search() -> str:
        """Search."""
        return "x"

    silly: list[Any] = [-1, 0, 1.5, "9", True]
    for value in silly:
        with pytest.raises(InvalidInput, match="max_result_tokens"):
            Tool(search, max_result_tokens=value)


# What the interfaces that register a handler ask.
ENTITIES = {"entity": "plain/1", "returned": "returned/1", "sources": "sourced/1"}


@pytest.mark.parametrize("interface", sample(DURABLE, *THREE))
def test_a_summary_of_100_000_tokens_is_cut_and_nothing_of_the_timeline_changes(interface):
    said = "Please tell me everything about it. " * 20

    async def run(summary: Summary | None) -> tuple[list[Window], list[Any], list[Any]]:
        model = ScriptedModel(
            lambda window: "All I know. " * 40, name="anthropic/claude-sonnet-4-5", budget=6_000
        )
        items: list[Any] = []
        async with App("memory:", summary=summary) as app:
            for turn in range(14):
                text = f"{turn} {said}"
                if interface in ENTITIES and turn:
                    await app.ask(ENTITIES[interface], text)
                else:
                    await INTERFACES[interface](app, model, text, ())
                while any("_make" in repr(task) for task in asyncio.all_tasks()):
                    await asyncio.sleep(0.005)
            for each in app.store.sessions():
                items += app.store.read(each.id)
        spoken = [(item.kind, item.content) for item in items if item.kind != "summary"]
        return model.windows, spoken, [item for item in items if item.kind == "summary"]

    huge = ScriptedModel(lambda window: "Much was said about it. " * 20_000, name=PRICED)
    windows, items, made = asyncio.run(run(Summary(huge, max_tokens=150)))
    _, plain, _ = asyncio.run(run(None))
    assert items == plain
    assert all(window.tokens <= 6_000 for window in windows)
    for each in made:
        assert "tokens left out" in each.payload["text"]
        assert len(each.payload["text"]) < 1_500
