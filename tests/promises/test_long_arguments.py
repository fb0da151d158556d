"""Long arguments of calls: they become smaller as results do, and what is sent stays an object.

An agent that writes files puts their text into the arguments of its calls.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
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

BUDGET, CALLS, SIZE = 40_000, 6, 60_000


def content(number: int, size: int = SIZE) -> str:
    return "".join(f"line {n} of file {number}\n" for n in range(size // 20))


def write(number: int, size: int = SIZE) -> ToolCall:
    arguments = {"path": f"src/{number}.py", "text": content(number, size)}
    return ToolCall(f"c{number}", "write_file", json.dumps(arguments))


def working(calls: Sequence[ToolCall]) -> list[Message]:
    """Return the run of an agent that writes files."""
    return [each for call in calls for each in (assistant(tool_calls=[call]), tool(call.id, "ok"))]


def inputs(window: Window) -> dict[str, list[Any]]:
    """Return the arguments of all calls as each wire has them, in order."""
    chat: Any = window.openai(strict=False)
    claude: Any = window.anthropic(strict=False)
    responses: Any = window.openai(api="responses", strict=False)
    google: Any = window.google(strict=False)
    return {
        "chat": [
            json.loads(call["function"]["arguments"])
            for message in chat["messages"]
            for call in message.get("tool_calls") or ()
        ],
        "anthropic": [
            block["input"]
            for message in claude["messages"]
            for block in message["content"]
            if isinstance(block, dict) and block["type"] == "tool_use"
        ],
        "responses": [
            json.loads(item["arguments"])
            for item in responses["input"]
            if item.get("type") == "function_call"
        ],
        "google": [
            part["function_call"]["args"]
            for message in google["contents"]
            for part in message["parts"]
            if "function_call" in part
        ],
    }


def check(window: Window, shown: int = CALLS, least: float = 0.5) -> None:
    """Fail unless the newest calls of six are there with their results, and the window is used."""
    assert not window.over_budget
    assert window.tokens <= BUDGET
    assert window.tokens >= least * BUDGET
    check_requests(window)
    for wire, arguments in inputs(window).items():
        assert len(arguments) == shown, wire
        first = CALLS - shown
        for number, given in enumerate(arguments, first):
            assert given["path"] == f"src/{number}.py", wire
            assert given["text"].startswith("line 0 of file"), wire
            assert "characters left out]" in given["text"], wire
        newest = arguments[-1]["text"]
        assert len(newest) > SIZE // 4, wire
        assert newest.rstrip().endswith(f"of file {CALLS - 1}"), wire


# One window.


@pytest.mark.parametrize("profile", [*NAMES, None])
@pytest.mark.parametrize("trimming", [None, Stepped()])
def test_six_calls_with_long_arguments_leave_the_window_well_filled(profile, trimming) -> None:
    slots = Slots(BUDGET, profile=profile, trimming=trimming, ladder=True)
    slots.add("input", "Write the files.")
    slots.add("run", working([write(number) for number in range(CALLS)]), run=True)
    check(slots.render())


@pytest.mark.parametrize("model", [*NAMES, None])
def test_fit_shows_six_calls_with_long_arguments(model) -> None:
    run = working([write(number) for number in range(CALLS)])
    messages = [message.to_dict() for message in [user("Write the files."), *run]]
    fitted = fit(messages, BUDGET, model=model)
    check(fitted.window)
    assert fitted.kept[0] == messages[0]
    calls = [call for message in fitted.kept for call in message.get("tool_calls") or ()]
    assert [json.loads(call["function"]["arguments"])["path"] for call in calls] == [
        f"src/{number}.py" for number in range(CALLS)
    ]


@pytest.mark.parametrize("profile", NAMES)
def test_one_call_larger_than_the_window_is_cut(profile) -> None:
    slots = Slots(BUDGET, profile=profile, trimming=Stepped(), ladder=True)
    slots.add("input", "Write the file.")
    slots.add("run", working([write(0, 400_000)]), run=True)
    window = slots.render()
    assert not window.over_budget
    for given in (arguments for (arguments,) in inputs(window).values()):
        assert given["text"].startswith("line 0 of file 0\n")
        assert given["text"].endswith("of file 0\n")
        assert 20_000 < len(given["text"]) < 60_000


def test_parallel_calls_with_long_arguments_share_what_is_left() -> None:
    calls = [write(number) for number in range(CALLS)]
    slots = Slots(BUDGET, tokenizer="chars/4", profile=PRICED, trimming=Stepped(), ladder=True)
    slots.add("input", "Write the files.")
    run = [assistant(tool_calls=calls), *[tool(call.id, "ok") for call in calls]]
    slots.add("run", run, run=True)
    window = slots.render()
    assert BUDGET // 2 < window.tokens <= BUDGET
    sizes = [len(given["text"]) for given in inputs(window)["anthropic"]]
    assert len(sizes) == CALLS
    assert max(sizes) < 1.2 * min(sizes)


# The steps of the ladder.


def edit(number: int) -> ToolCall:
    edits = [{"old": "x" * 300, "new": content(number, 400)}]
    return ToolCall(f"e{number}", "edit", json.dumps({"path": "a.py", "edits": edits, "all": True}))


def test_texts_of_more_than_200_characters_keep_head_and_tail_in_a_short_call() -> None:
    window = history_of([edit(number) for number in range(6)], 4_000)
    assert len(window.messages) == 15
    short = json.loads(window.messages[1].tool_calls[0].arguments)
    assert (short["path"], short["all"]) == ("a.py", True)
    (texts,) = short["edits"]
    assert texts["old"].startswith("x" * 80)
    assert texts["old"].endswith("x" * 80)
    assert "characters left out]" in texts["old"]
    assert texts["new"].startswith("line 0 of file 0\n")
    assert texts["new"].endswith("of file 0\n")
    assert max(map(len, texts.values())) <= 200
    assert window.report["history"].status == "short"


def test_a_stub_keeps_the_names_of_the_keys() -> None:
    window = history_of([edit(number) for number in range(12)], 4_000)
    assert len(window.messages) == 27
    stub = json.loads(window.messages[1].tool_calls[0].arguments)
    assert list(stub) == ["all", "edits", "path"]
    assert (stub["path"], stub["all"]) == ("a.py", True)
    assert "characters left out]" in stub["edits"]
    assert window.report["history"].status == "stubbed"


def history_of(calls: Sequence[ToolCall], budget: int) -> Window:
    """Return a window of one past turn with these calls; a character is a token."""
    slots = Slots(budget, tokenizer=len, ladder=True)
    slots.add("history", [user("Edit it."), *working(calls), assistant("Done.")])
    slots.add("input", "Thanks.")
    return slots.render()


def test_a_short_text_that_is_no_json_object_is_left_alone_and_a_long_one_is_named() -> None:
    for text, shown in (("[1, 2]", "[1, 2]"), ("x" * 400_000, None), ("[1]" * 90_000, None)):
        slots = Slots(BUDGET, profile=PRICED, trimming=Stepped(), ladder=True)
        slots.add("input", "Go on.")
        slots.add("run", working([ToolCall("c", "look", text)]), run=True)
        window = slots.render()
        assert not window.over_budget
        arguments = window.messages[1].tool_calls[0].arguments
        assert arguments == shown or list(json.loads(arguments)) == ["left_out"]


# Several steps and turns.


def test_between_moves_and_after_a_restart_long_arguments_have_the_same_bytes() -> None:
    history: list[Message] = []
    before: list[Message] = []
    moves = 0
    frontier: Frontier | None = None
    for turn in range(12):
        question, work = user(f"Write {turn}."), list[Message]()
        for step in range(3):
            slots = Slots(
                12_000, profile=PRICED, trimming=Stepped(), ladder=True, previous=frontier
            )
            slots.add("history", history)
            slots.add("input", [question])
            slots.add("run", work, run=True)
            window = slots.render()
            same = list(window.messages[: len(before)]) == before
            prefix = window.report.prefix
            assert same or (prefix is not None and prefix.moved is not None)
            moves += not same
            before = [*window.messages]
            stored = json.loads(json.dumps(window.frontier.to_dict()))
            frontier = Frontier.from_dict(stored)  # as another process reads it
            work += working([write(10 * turn + step, 6_000)])
        history += [question, *work, assistant("Done.")]
    assert 1 < moves < 16


# Every interface.


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "interface",
    sample([*INTERFACES, *WIRED], "slots", "fit", "conversation", "entity", "gateway"),
)
def test_an_agent_that_writes_long_files_goes_on_in_every_interface(interface, name) -> None:
    ask: Interface = {**INTERFACES, **WIRED}[interface]
    model = ScriptedModel([*[write(n) for n in range(CALLS)], "Done."], name=name, budget=BUDGET)
    files = dict[str, str]()

    def write_file(path: str, text: str) -> str:
        """Write a file."""
        files[path] = text
        return "ok"

    async def work() -> None:
        async with App("memory:", budget=BUDGET) as app:
            await ask(app, model, "Write the files.", [write_file])

    run(work(), within=60)
    assert files == {f"src/{number}.py": content(number) for number in range(CALLS)}
    assert len(model.windows) == CALLS + 1
    for window in model.windows:
        check_requests(window)
    last = inputs(model.windows[-1])
    for wire, arguments in last.items():
        assert [given["path"] for given in arguments] == [f"src/{n}.py" for n in range(CALLS)], wire
        assert len(arguments[-1]["text"]) > SIZE // 10, wire
