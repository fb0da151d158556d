"""The question of a run stays as long as a call of the run is in view: in every interface, over
turns and restarts, and in the request as it is sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from muntin import App, Ladder, Message, Slots, Stepped, ToolCall, Window, assistant, tool, user
from muntin.core.caching.frontier import Frontier
from muntin.testing import ScriptedModel
from muntin.timeline import past
from muntin.wire import anthropic, chat
from tests.interfaces import DURABLE
from tests.products import THREE, cover, sample
from tests.wired import WIRED
from tests.words import has_moved

WIRES: dict[str, Callable[..., dict[str, Any]]] = {
    "anthropic/claude-sonnet-4-6": anthropic.encode,
    "openai/gpt-5": chat.encode,
}
STEPS, CALLS = 18, 1
# So small that the first calls of a run leave before it ends.
BUDGET = {"sources": 5_000, **dict.fromkeys(WIRED, 600)}
LADDERS = {"ladder": Ladder(), "no ladder": None}
# Interfaces that show what was done in turns before.
PASTS = ("conversation", "instructed", "timeline", "entity", "returned", "sources", "strategy")
# Interfaces whose handler is registered once.
ENTITIES = {"entity": "plain/1", "returned": "returned/1", "sources": "sourced/1"}


def look(n: int) -> str:
    """Look something up."""
    return f"seen {n}: " + "what was found there, in many words. " * 12


class Worker:
    """Calls a tool for so many steps in the first turn, and for two in those that follow."""

    def __init__(self, name: str, budget: int) -> None:
        self.model = ScriptedModel(self.answer, name=name, budget=budget)
        self.left = STEPS
        self.calls = 0

    def answer(self, window: Window) -> Any:
        if not self.left:
            self.left = 2
            return "Done with all of it."
        self.left -= 1
        made = range(self.calls, self.calls + CALLS)
        self.calls += CALLS
        return [ToolCall(f"call_{n}", "look", json.dumps({"n": n})) for n in made]


def question(turn: int) -> str:
    return f"QUESTION {turn}: look everything up."


def work(
    interface: str, url: str, name: str, *, restart: bool, ladder: Ladder | None
) -> list[Window]:
    added = 520 if name.startswith("anthropic/") else 0  # by Claude, to a request with tools
    worker = Worker(name, BUDGET.get(interface, 700) + added)
    tools = [look]

    async def run() -> None:
        app = App(url, ladder=ladder, trimming=Stepped())
        for turn in range(3):
            if restart and turn:
                await app.close()
                app = App(url, ladder=ladder, trimming=Stepped())
            if interface in ENTITIES and turn and not restart:
                await app.ask(ENTITIES[interface], question(turn))
            else:
                await (DURABLE | WIRED)[interface](app, worker.model, question(turn), tools)
        await app.close()

    asyncio.run(run())
    return worker.model.windows


def called(window: Window) -> list[int]:
    """Return which calls are in view."""
    ids = [call.id for message in window.messages for call in message.tool_calls]
    return [int(id.removeprefix("call_")) for id in ids if id.startswith("call_")]


def strip(messages: Any) -> Any:
    """Return messages without marks for the cache."""
    if isinstance(messages, dict):
        return {key: strip(each) for key, each in messages.items() if key != "cache_control"}
    return [strip(each) for each in messages] if isinstance(messages, list) else messages


def turn_of(call: int) -> int:
    step = call // CALLS
    return 0 if step < STEPS else 1 + (step - STEPS) // 2


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize("ladder", LADDERS)
@pytest.mark.parametrize("interface", sample([*DURABLE, *WIRED], *THREE, "gateway"))
def test_a_run_in_view_has_its_question(interface, ladder, name, tmp_path):
    windows = work(
        interface, f"sqlite:///{tmp_path / 'a.db'}", name, restart=False, ladder=LADDERS[ladder]
    )
    assert len(windows) == STEPS + 1 + 3 + 3
    if interface != "sources":  # its budget has room for all calls
        assert 0 not in called(windows[STEPS])  # its beginning has left
    for window in windows:
        sent = json.dumps(WIRES[name](window)["messages"])
        for turn in {turn_of(call) for call in called(window)}:
            assert sent.count(question(turn)) == 1
    if interface in PASTS:  # the next turn shows the run too
        assert called(windows[STEPS + 1])[-1] == STEPS * CALLS - 1
        moved = interface in ("entity", "returned")  # its entry is another one now
        moved = moved or interface == "sources"  # its past has a limit, which the run had not
        moved = moved or has_moved(windows[STEPS + 1])
        before, after = (WIRES[name](window)["messages"] for window in windows[STEPS : STEPS + 2])
        assert moved or strip(after[: len(before)]) == strip(before)


@pytest.mark.parametrize("ladder", LADDERS)
@pytest.mark.parametrize("interface", sample(PASTS, "conversation", "entity", "sources"))
def test_a_run_too_long_to_be_read_whole_has_its_question(interface, ladder, tmp_path, monkeypatch):
    monkeypatch.setattr(past, "_LONG_RUN", 4)
    test_a_run_in_view_has_its_question(interface, ladder, "openai/gpt-5", tmp_path)


@pytest.mark.parametrize(("ladder", "interface"), cover(LADDERS, sample(DURABLE, *THREE)))
def test_a_restart_changes_no_byte(interface, ladder, tmp_path):
    name = "anthropic/claude-sonnet-4-6"
    through, again = [
        [
            json.dumps(anthropic.encode(window))
            for window in work(
                interface,
                f"sqlite:///{tmp_path / f'{restart}.db'}",
                name,
                restart=restart,
                ladder=LADDERS[ladder],
            )
        ]
        for restart in (False, True)
    ]
    assert through == again


# The whole request in one list, as a framework has it.


def step(number: int, size: int) -> list[Message]:
    call = ToolCall(f"call_{number}", "look", "{}")
    return [assistant(tool_calls=[call]), tool(call.id, f"{number} ".ljust(size, "r"))]


def compose(
    messages: Sequence[Message | dict[str, Any]],
    budget: int,
    previous: Window | Frontier | None,
    **options: Any,
) -> Window:
    slots = Slots(
        budget, tokenizer=len, trimming=Stepped(), previous=previous, profile=None, **options
    )
    slots.add("system", "s" * 20)
    slots.add("messages", messages)
    return slots.render()


def one_list(turns: int, steps: int) -> Iterator[tuple[int, list[Message]]]:
    said: list[Message] = []
    for turn in range(turns):
        said.append(user(question(turn)))
        yield turn, said
        for number in range(steps):
            said += step(turn * steps + number, 150)
            yield turn, said
        said.append(assistant("Done."))


def again_from(window: Window) -> Frontier:
    return Frontier.from_dict(json.loads(json.dumps(window.frontier.to_dict())))


@pytest.mark.parametrize("dicts", [False, True])
@pytest.mark.parametrize("ladder", [None, Ladder(64)], ids=["no ladder", "ladder"])
def test_the_question_is_held_inside_one_list(ladder, dicts):
    windows: list[Window | None] = [None, None]
    lost, steps = 0, 40
    for turn, said in one_list(3, steps):
        given: list[Any] = [message.to_dict() for message in said] if dicts else said
        stored = windows[1] and again_from(windows[1])
        windows = [compose(given, 2_000, before, ladder=ladder) for before in (windows[0], stored)]
        first, again = windows
        assert first is not None
        assert again is not None
        assert first.messages == again.messages
        assert first.tokens <= 2_000
        assert first.messages[-1].text[:20] == said[-1].text[:20]
        texts = [message.text for message in first.messages]
        lost += question(turn) not in texts
        for each in {call // steps for call in called(first)}:
            assert texts.count(question(each)) == 1
    assert lost == 0


@pytest.mark.parametrize("ladder", [None, Ladder(64)], ids=["no ladder", "ladder"])
def test_a_question_too_long_for_the_window_is_cut_in_one_list(ladder):
    asked = user("BEGIN " + "why " * 1_000 + "END")
    window = None
    said: list[Message] = [asked]
    for number in range(12):
        window = compose(said, 1_500, window, ladder=ladder)
        assert window.tokens <= 1_500
        assert not window.over_budget
        shown = window.messages[1].text
        assert shown.startswith("BEGIN")
        assert shown.endswith("END")
        assert number == 0 or window.messages[-1].role == "tool"
        said += step(number, 150)


def test_a_question_leaves_with_the_last_call_of_its_run():
    said = [user("old"), *step(0, 100), *step(1, 100), assistant("Done."), user("new")]
    window = compose(said, 200, None)
    texts = [message.text for message in window.messages]
    assert texts[-1] == "new"
    assert ("old" in texts) == any(message.tool_calls for message in window.messages)


def test_a_list_of_which_the_question_is_missing_is_shown_without_it():
    said = [user(question(0)), *[each for n in range(30) for each in step(n, 100)]]
    window = compose([*said, user("next")], 1_000, None)
    following = compose([*said[20:], user("next")], 1_000, window)
    assert following.messages[1].tool_calls
    assert not following.over_budget
