"""A process that is killed in the middle of a wake: another finishes it, and repeats nothing."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from muntin.runtime.app import App
from muntin.runtime.ctx import Ctx, Wake
from muntin.testing import ScriptedModel
from muntin.timeline.store import open_store
from tests.products import sample
from tests.runtime.conftest import run
from tests.workers import Start

# Where to kill, and which tools have finished (and are recorded) by then.
POINTS: dict[str, set[str]] = {
    "handler": set(),  # before anything
    "model 0": set(),  # the run has begun, no answer yet
    "before second": {"first"},  # an answer with two calls; one has its result, the other not
    "inside first": {"second"},  # begun but not finished: it may be run again
    "model 1": {"first", "second"},  # both results are there
    "before third": {"first", "second"},
    "model 2": {"first", "second", "third"},
    "end": {"first", "second", "third"},  # the answer is there, the turn is not ended
}


def kill_at(start: Start, url: str, log: Path, point: str, **given: Any) -> None:
    process = start("wake", url=url, log=str(log), stop=point, send=True, **given)
    wait_for(process, f"at {point}")
    if point in ("before second", "inside first"):
        # The other one runs beside it: let it finish and be recorded.
        with open_store(url) as store:
            deadline = time.monotonic() + 30
            while not any(item.kind == "tool_result" for item in store.read("e/1")):
                assert time.monotonic() < deadline, "the other call was never recorded"
                time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL


def wait_for(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    for said in process.stdout:
        if said.strip() == line:
            return
    raise AssertionError(f"the process ended before it said {line!r}")


def lines(log: Path, word: str) -> list[str]:
    if not log.exists():
        return []
    found = log.read_text(encoding="utf-8").splitlines()
    return [line.partition(" ")[2] for line in found if line.startswith(f"{word} ")]


CASES = sample(
    [(point, store) for point in POINTS for store in ("sqlite", "postgresql")],
    *((point, "sqlite") for point in POINTS),
    ("inside first", "postgresql"),
    ("model 2", "postgresql"),
)


@pytest.mark.parametrize(("point", "lasting_url"), CASES, indirect=["lasting_url"])
def test_another_process_finishes_the_wake_and_repeats_no_finished_call(
    point, lasting_url, start, tmp_path
):
    log = tmp_path / "log"
    sources = lasting_url.startswith("sqlite")  # the default assembly on the other
    kill_at(start, lasting_url, log, point, sources=sources)
    finished = POINTS[point]
    process = start("wake", url=lasting_url, log=str(log), stop=None, sources=sources)
    wait_for(process, "done")
    runs = Counter(lines(log, "tool"))
    for name in ("first", "second", "third"):
        may_be_twice = name not in finished and name in point
        assert runs[name] in ((1, 2) if may_be_twice else (1,)), (name, runs)
    with open_store(lasting_url) as store:
        items = store.read("e/1")
        messages = [item.message for item in items if item.message is not None]
        results = [message.text for message in messages if message.role == "tool"]
        assert sorted(results) == ["first result", "second result", "third result"]
        assert messages[-1].text == "All done."
        assert sum(item.kind == "run" for item in items) == 1
        assert [turn.status for turn in store.turns("e/1")] == ["completed"]
        assert [item.payload["content"] for item in store.read("e/1", live=True)] == ["job"]
    check_windows(log)


def check_windows(log: Path) -> None:
    """Nothing stands twice in any window, and every call has its result right behind it."""
    for line in lines(log, "window"):
        shown = [tuple(each) for each in json.loads(line)]
        asked = [text for role, text, _ in shown if role == "user"]
        assert asked == ["job"]
        results = [text for role, text, _ in shown if role == "tool"]
        assert len(results) == len(set(results)), shown
        calls = sum(count for role, _, count in shown if role == "assistant")
        assert calls == len(results), shown


def test_a_wake_killed_again_and_again_is_finished_in_the_end(lasting_url, start, tmp_path):
    log = tmp_path / "log"
    kill_at(start, lasting_url, log, "model 0")
    for point in ("model 1", "model 2"):
        process = start("wake", url=lasting_url, log=str(log), stop=point)
        wait_for(process, f"at {point}")
        process.kill()
        process.wait()
    process = start("wake", url=lasting_url, log=str(log), stop=None)
    wait_for(process, "done")
    with open_store(lasting_url) as store:
        handled = [
            item.payload or item.message for item in store.read("e/1") if item.kind == "message"
        ]
        assert {turn.status for turn in store.turns("e/1")} == {"completed"}
        assert len(handled) >= 2


def test_a_wake_is_resumed_before_messages_that_came_later(tmp_path, start):
    url = f"sqlite:///{tmp_path / 'm.db'}"
    log = tmp_path / "log"
    kill_at(start, url, log, "handler")
    seen: list[Any] = []

    async def work() -> None:
        async with App(url) as app:

            @app.entity("e")
            async def handler(ctx: Ctx, wake: Wake) -> None:
                seen.append(wake.payload)

            await app.ask("e/1", "later")

    run(work())
    assert seen == ["job", "later"]


def test_a_conversation_whose_process_was_killed_is_failed_and_the_next_turn_shows_it(tmp_path):
    """Only wakes are run again: a user who was not answered asks once more."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    code = f"""
import asyncio, os, signal
from muntin.runtime.app import App
from muntin.testing import ScriptedModel
def die(window):
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(App({url!r}, model=ScriptedModel(die)).conversation("c").send("lost?"))
"""
    import sys

    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    model = ScriptedModel(["here"])

    async def work() -> None:
        async with App(url, model=model) as app:
            await app.conversation("c").send("hello?")
            assert [turn.status for turn in app.store.turns("c")] == ["completed", "failed"]

    run(work())
    assert [m.text for m in model.windows[0].messages] == ["lost?", "hello?"]


def test_ask_is_answered_by_another_process(lasting_url, start):
    async def work() -> None:
        app = App(lasting_url, model=ScriptedModel(["from the other process"]))

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Wake) -> None:
            ctx.use_agent()
            await ctx.agent.run()

        async with app:
            process = start("ask_only", url=lasting_url)
            assert process.stdout is not None
            said = await asyncio.to_thread(process.stdout.readline)
            assert said == "reply from the other process\n"

    run(work())
