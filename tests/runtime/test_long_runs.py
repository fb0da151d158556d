"""Runs that never end: between two steps the past only grows; turns and restarts change no byte."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from muntin import App, InvalidInput, ToolCall, Window
from muntin.runtime import Ctx
from muntin.testing import ScriptedModel
from muntin.wire import anthropic, chat
from tests.paths import ROOT
from tests.products import cover, sample
from tests.words import has_moved, read_file

BUDGET = 6_000
# So small that the oldest calls of a run leave.
SMALL = 2_000
CLAUDE = "anthropic/claude-sonnet-4-5"
WIRES: dict[str, Callable[..., dict[str, Any]]] = {
    "anthropic/claude-sonnet-4-5": anthropic.encode,
    "openai/gpt-5": chat.encode,
}
RANK = {"full": 0, "short": 1, "stub": 2}


class Worker:
    """Calls a tool for so many steps a turn, then answers."""

    def __init__(self, name: str, steps: int, budget: int = BUDGET) -> None:
        self.model = ScriptedModel(self.answer, name=name, budget=budget)
        self.steps = steps
        self.calls = 0
        self.left = steps

    def answer(self, window: Window) -> Any:
        if not self.left:
            self.left = self.steps
            return "Done with all of it."
        self.left -= 1
        self.calls += 1
        return ToolCall(f"call_{self.calls}", "read_file", json.dumps({"path": f"f{self.calls}"}))


def pieces(window: Window, encode: Callable[..., dict[str, Any]]) -> list[str]:
    """Return the request, message by message, without marks for the cache."""
    request = encode(window)
    found = [request.get("tools"), request.get("system"), *request["messages"]]
    return [json.dumps(_plain(each), sort_keys=True) for each in found]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if key != "cache_control"}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def levels(window: Window) -> dict[str, int]:
    """Return the level of each call in view."""
    found = {}
    for message in window.messages:
        if message.tool_call_id is not None:
            text = message.text
            level = "stub" if text.startswith("[read_file:") else "full"
            level = "short" if level == "full" and "tokens left out" in text else level
            found[message.tool_call_id] = RANK[level]
    return found


def check(windows: list[Window], encode: Callable[..., dict[str, Any]]) -> int:
    """Check the requests of one past; return how often it stepped."""
    seen: dict[str, int] = {}
    steps = 0
    before: list[str] = []
    for window in windows:
        now = pieces(window, encode)
        if has_moved(window):
            steps += 1
        else:
            assert now[: len(before)] == before
        for call, level in levels(window).items():
            assert level >= seen.get(call, 0)
            seen[call] = level
        assert not window.over_budget
        before = now
    return steps


def conversation(
    app: App, model: ScriptedModel, text: str, tool: Callable[..., str] = read_file
) -> Any:
    return app.conversation("c", model=model, tools=[tool], max_steps=100).send(text)


def register(app: App, model: ScriptedModel, tool: Callable[..., str]) -> None:
    async def handler(ctx: Ctx, wake: Any) -> None:
        ctx.use_agent(system_prompt="Be brief.", model=model, tools=[tool], max_steps=100)
        await ctx.agent.run()

    with suppress(InvalidInput):  # it is registered
        app.entity("e")(handler)


def entity(app: App, model: ScriptedModel, text: str, tool: Callable[..., str] = read_file) -> Any:
    register(app, model, tool)
    return app.ask("e/1", text)


class Timeline:
    def on_context_build(self, ctx: Ctx) -> Any:
        ctx.slots.add("system", "Be brief.")
        ctx.slots.add("past", ctx.timeline_messages())
        return ctx.slots.render()


class Listed:
    async def on_context_build(self, ctx: Ctx) -> Any:
        return [*await ctx.timeline_messages().load()]


def strategy(app: App, model: ScriptedModel, text: str) -> Any:
    return app.conversation(
        "c", model=model, strategy=Timeline(), tools=[read_file], max_steps=100
    ).send(text)


def listed(app: App, model: ScriptedModel, text: str) -> Any:
    return app.conversation(
        "c", model=model, strategy=Listed(), tools=[read_file], max_steps=100
    ).send(text)


PASTS = sample([conversation, entity, strategy, listed], conversation, entity, listed)
INTERFACES: dict[str, Any] = {"conversation": conversation, "entity": entity}


def work(url: str, name: str, door: Any, *, turns: int, steps: int, restart: bool) -> list[Window]:
    worker = Worker(name, steps)

    async def run() -> None:
        if restart:
            for turn in range(turns):
                async with App(url) as app:
                    await door(app, worker.model, f"Please do part {turn}.")
            return
        async with App(url) as app:
            for turn in range(turns):
                await door(app, worker.model, f"Please do part {turn}.")

    asyncio.run(run())
    return worker.model.windows


@pytest.mark.parametrize(("name", "door"), cover(WIRES, PASTS))
def test_between_two_steps_each_request_begins_with_all_of_the_one_before(name, door, tmp_path):
    through = work(f"sqlite:///{tmp_path / 'a.db'}", name, door, turns=3, steps=45, restart=True)
    assert len(through) == 3 * 46
    assert 2 <= check(through, WIRES[name]) <= 45
    assert max(levels(through[-1]).values()) > 0


@pytest.mark.parametrize("door", PASTS)
def test_a_restart_between_turns_changes_no_byte(door, tmp_path):
    name = "anthropic/claude-sonnet-4-5"
    found = [
        work(
            f"sqlite:///{tmp_path / f'{restart}.db'}",
            name,
            door,
            turns=3,
            steps=25,
            restart=restart,
        )
        for restart in (False, True)
    ]
    first, again = [[pieces(window, anthropic.encode) for window in each] for each in found]
    assert first == again


KILLED = """
import asyncio, json, os, signal, sys
from tests.runtime import test_long_runs as runs

url, name, at, door, log = sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:]
worker = runs.Worker(name, 60, runs.SMALL)

def logged(window):
    with open(log, "w", encoding="utf-8") as file:
        json.dump(runs.pieces(window, runs.anthropic.encode), file)
    return worker.answer(window)

worker.model = runs.ScriptedModel(logged, name=name, budget=runs.SMALL)

def read_file(path: str) -> str:
    "Read a file."
    if path == f"f{at}":
        os.kill(os.getpid(), signal.SIGKILL)
    return runs.read_file(path)

async def main():
    async with runs.App(url) as app:
        await runs.INTERFACES[door](app, worker.model, "Please do part 0.", read_file)

asyncio.run(main())
"""


@cache
def whole_run(door: str) -> list[Window]:
    """Return the windows of a run that nobody kills."""
    worker = Worker(CLAUDE, 60, SMALL)

    async def run() -> None:
        async with App("memory:") as app:
            await INTERFACES[door](app, worker.model, "Please do part 0.")

    asyncio.run(run())
    return worker.model.windows


def first_at(windows: list[Window], level: str) -> int:
    """Return the step at which a call is at this level for the first time."""

    def reached(window: Window) -> bool:
        found = levels(window)
        if level == "gone":
            return "call_1" not in found
        return RANK[level] in found.values()

    return next(n for n, window in enumerate(windows) if n > 3 and reached(window))


def kill(url: str, door: str, at: int, log: Path) -> None:
    """Have a process work until a tool kills it."""
    process = subprocess.run(
        [sys.executable, "-c", KILLED, url, CLAUDE, str(at), door, str(log)], cwd=ROOT
    )
    assert process.returncode == -signal.SIGKILL


def places(*levels: str) -> list[tuple[str, str]]:
    """Return at which level of its newest call a run is killed, and on which store."""
    every = [(level, store) for level in levels for store in ("sqlite", "postgresql")]
    return sample(every, *((level, "sqlite") for level in levels), (levels[-1], "postgresql"))


@pytest.mark.parametrize(
    ("level", "lasting_url"), places("full", "short", "stub", "gone"), indirect=["lasting_url"]
)
def test_a_run_that_is_killed_goes_on_with_the_same_bytes(level, lasting_url, tmp_path):
    whole = whole_run("entity")
    at = first_at(whole, level) + 1
    kill(lasting_url, "entity", at, tmp_path / "log")
    worker = Worker(CLAUDE, 60, SMALL)
    worker.calls, worker.left = at, 60 - at

    async def resume() -> None:
        async with App(lasting_url) as app:
            register(app, worker.model, read_file)
            assert (await app.resume()).handled == ("e/1",)

    asyncio.run(resume())
    expected = [pieces(window, anthropic.encode) for window in whole[at:]]
    assert [pieces(window, anthropic.encode) for window in worker.model.windows] == expected


@pytest.mark.parametrize(
    ("level", "lasting_url"), places("full", "short", "stub"), indirect=["lasting_url"]
)
def test_after_a_kill_a_conversation_goes_on_behind_the_same_bytes(level, lasting_url, tmp_path):
    at = first_at(whole_run("conversation"), level) + 1
    log = tmp_path / "log"
    kill(lasting_url, "conversation", at, log)
    before = json.loads(log.read_text(encoding="utf-8"))
    worker = Worker(CLAUDE, 0, SMALL)

    async def run() -> None:
        async with App(lasting_url) as app:
            await conversation(app, worker.model, "Please continue.")

    asyncio.run(run())
    (window,) = worker.model.windows
    after = pieces(window, anthropic.encode)
    assert has_moved(window) or after[: len(before)] == before
    assert "Please continue." in after[-1]
    assert f"call_{at}" in "".join(after)
    assert not window.over_budget


class Remembering:
    def on_context_build(self, ctx: Ctx) -> None:
        ctx.slots.add("history", ctx.history.recent(50))


@pytest.mark.parametrize("door", ["conversation", "entity", "timeline", "history"])
def test_after_a_turn_that_failed_the_next_one_knows_the_task_and_what_was_done(door, tmp_path):
    def answer(window: Window) -> Any:
        if window.messages[-1].role == "tool":
            raise ConnectionError("the provider is down")
        return ToolCall("c1", "read_file", '{"path": "report.txt"}')

    failing = ScriptedModel(answer, budget=BUDGET)
    model = ScriptedModel(["Continued."], budget=BUDGET)
    given = {"timeline": Timeline(), "history": Remembering()}.get(door)

    async def say(app: App, asked: ScriptedModel, text: str) -> None:
        if door == "entity":
            await entity(app, asked, text)
        else:
            talk = app.conversation("c", model=asked, strategy=given, tools=[read_file])
            await talk.send(text)

    async def run() -> None:
        url = f"sqlite:///{tmp_path / 'a.db'}"
        async with App(url) as app:
            with pytest.raises(ConnectionError):
                await say(app, failing, "Sum up the report.")
        async with App(url) as app:
            await say(app, model, "Please continue.")

    asyncio.run(run())
    request = json.dumps(chat.encode(model.windows[0]))
    for known in ("Sum up the report.", "report.txt: line 0", '"c1"', "Please continue."):
        assert known in request
    assert request.index("Sum up") < request.index("report.txt") < request.index("Please continue")
