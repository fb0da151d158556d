"""A result that comes again, byte for byte, is one line that names the later one, from a move on.

An agent reads a file again after each edit that changed nothing of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from muntin import (
    App,
    Frontier,
    Message,
    Slots,
    Stepped,
    ToolCall,
    Window,
    assistant,
    fit,
    tool,
    user,
)
from muntin.testing import ScriptedModel
from tests.core.planning.scenes import check_requests
from tests.interfaces import INTERFACES, Interface
from tests.products import NAMES, PRICED, sample
from tests.runtime.conftest import run
from tests.wired import WIRED

FILE = "".join(f"{n}: def function_{n}(): return {n}\n" for n in range(150))
SAME = "left out; the later result of"


def read(number: int, text: str = FILE, name: str = "read_file") -> list[Message]:
    call = ToolCall(f"c{number}", name, json.dumps({"path": "a.py", "n": number}))
    return [assistant(tool_calls=[call]), tool(call.id, text)]


def steps(count: int) -> list[Message]:
    """Return a run that reads the same file again and again, and something else in between."""
    run: list[Message] = []
    for number in range(count):
        run += read(2 * number)
        run += read(2 * number + 1, f"listing {number}: " + "x" * 400, "list_files")
    return run


def texts(window: Window) -> dict[str, list[str]]:
    """Return all results as each wire has them, in order."""
    chat: Any = window.openai(strict=False)
    claude: Any = window.anthropic(strict=False)
    responses: Any = window.openai(api="responses", strict=False)
    google: Any = window.google(strict=False)
    results: dict[str, list[Any]] = {
        "chat": [m["content"] for m in chat["messages"] if m["role"] == "tool"],
        "anthropic": [
            block["content"]
            for message in claude["messages"]
            for block in message["content"]
            if isinstance(block, dict) and block["type"] == "tool_result"
        ],
        "responses": [
            item["output"]
            for item in responses["input"]
            if item.get("type") == "function_call_output"
        ],
        "google": [
            part["function_response"]["response"]
            for message in google["contents"]
            for part in message["parts"]
            if "function_response" in part
        ],
    }
    return {wire: [json.dumps(result) for result in found] for wire, found in results.items()}


@pytest.mark.parametrize("profile", NAMES)
@pytest.mark.parametrize("trimming", [None, Stepped()])
def test_a_file_read_twelve_times_is_shown_once(profile, trimming) -> None:
    """Twelve copies are more than the window; one is a fifth of it, and then nothing else gives."""
    work = [message for number in range(12) for message in read(number)]
    slots = Slots(8_000, profile=profile, tokenizer="chars/4", trimming=trimming, ladder=True)
    slots.add("input", "Check the file.")
    slots.add("run", work, run=True)
    window = slots.render()
    check_requests(window)
    for wire, results in texts(window).items():
        assert len(results) == 12, wire
        *older, newest = results
        assert all(f"{SAME} 'c11' is the same" in text for text in older), wire
        assert "function_0()" in newest, wire
        assert "function_149()" in newest, wire
    assert window.report["run"].decisions[0].status == "short"


def test_fit_shows_a_file_once_that_was_read_again() -> None:
    messages = [user("Check the file.").to_dict()]
    messages += [m.to_dict() for number in range(12) for m in read(number)]
    for name in NAMES:
        fitted = fit(messages, 8_000, model=name, tokenizer="chars/4")
        results = [m["content"] for m in fitted.kept if m["role"] == "tool"]
        assert [SAME in text for text in results] == [True] * 11 + [False]
        assert results[-1] == FILE


def test_nothing_is_left_out_while_everything_fits() -> None:
    slots = Slots(100_000, profile=PRICED, trimming=Stepped(), ladder=True)
    slots.add("input", "Check the file.")
    slots.add("run", steps(6), run=True)
    assert all(SAME not in message.text for message in slots.render().messages)


def test_what_differs_by_a_byte_does_not_come_again() -> None:
    work = [m for number in range(12) for m in read(number, FILE + " " * number)]
    slots = Slots(8_000, profile=PRICED, tokenizer="chars/4", trimming=Stepped(), ladder=True)
    slots.add("input", "Check the file.")
    slots.add("run", work, run=True)
    assert all(SAME not in message.text for message in slots.render().messages)


def test_a_short_result_that_comes_again_stays() -> None:
    work = [m for number in range(40) for m in read(number, "ok" if number % 2 else "x" * 1_000)]
    slots = Slots(4_000, profile=PRICED, tokenizer="chars/4", trimming=Stepped(), ladder=True)
    slots.add("input", "Go on.")
    slots.add("run", work, run=True)
    shown = [m.text for m in slots.render().messages if m.tool_call_id]
    assert "ok" in shown
    assert any(SAME in text or "left out]" in text for text in shown)


def turns(count: int) -> Iterator[tuple[list[Message], Message, list[Message]]]:
    """Yield history, question and run of every request of some turns that read the same file."""
    history: list[Message] = []
    for turn in range(count):
        question, work = user(f"Check it again, {turn}."), list[Message]()
        for step in range(3):
            yield history, question, work
            work = [*work, *read(10 * turn + step)]
        history = [*history, question, *work, assistant("It is right.")]


@pytest.mark.parametrize("profile", NAMES)
def test_a_repeated_result_becomes_a_line_only_when_the_conversation_moves(profile) -> None:
    before: Sequence[Message] = ()
    frontier: Frontier | None = None
    moves = named = 0
    for history, question, work in turns(14):
        slots = Slots(
            20_000,
            profile=profile,
            tokenizer="chars/4",
            trimming=Stepped(),
            ladder=True,
            previous=frontier,
        )
        slots.add("history", history)
        slots.add("input", [question])
        slots.add("run", work, run=True)
        window = slots.render()
        check_requests(window)
        same = window.messages[: len(before)] == before
        assert same or (window.report.prefix is not None and window.report.prefix.moved)
        moves += not same
        before = window.messages
        named += any(SAME in message.text for message in window.messages)
        if work:
            assert window.messages[-1].text == FILE
        stored = json.loads(json.dumps(window.frontier.to_dict()))
        frontier = Frontier.from_dict(stored)  # as another process reads it
    assert 1 < moves < 12
    assert named > 14


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "interface", sample([*INTERFACES, *WIRED], "fit", "conversation", "entity", "gateway")
)
def test_an_agent_that_reads_a_file_again_sees_it_once_in_every_interface(interface, name) -> None:
    ask: Interface = {**INTERFACES, **WIRED}[interface]
    calls = [
        ToolCall(f"c{n}", "read_file", json.dumps({"path": "a.py", "n": n})) for n in range(12)
    ]
    model = ScriptedModel([*calls, "It is right."], name=name, budget=8_000)

    def read_file(path: str, n: int) -> str:
        """Read a file."""
        return FILE

    async def work() -> None:
        async with App("memory:", tokenizer="chars/4", budget=8_000) as app:
            await ask(app, model, "Check the file.", [read_file])

    run(work(), within=60)
    assert len(model.windows) == 13
    for window in model.windows:
        check_requests(window)
    results = [m.text for m in model.windows[-1].messages if m.tool_call_id is not None]
    assert len(results) == 12
    assert results[-1] == FILE
    assert sum(SAME in text for text in results) > 5
