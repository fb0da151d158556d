"""The agent loop: what is recorded when, what runs beside what, and how a run goes on."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import random
import subprocess
import sys
import time
from collections import Counter as Tally
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from muntin import Message, Slots, Window, assistant, tool, user
from muntin.agent.loop import run_agent, stream_agent
from muntin.agent.tools import Tool
from muntin.errors import BudgetExceeded, InvalidInput, InvalidType, MuntinError, StepLimit
from muntin.providers.model import (
    Event,
    Finished,
    Reply,
    TextDelta,
    ToolCalled,
    ToolFinished,
    Usage,
)
from muntin.testing import ScriptedModel
from tests.words import call


def compose(messages: Sequence[Message]) -> Window:
    slots = Slots(100_000, tokenizer=len)
    slots.add("input", "go")
    slots.add("run", messages)
    return slots.render()


def echo(text: str) -> str:
    """Say it again."""
    return f"<{text}>"


def test_the_model_is_asked_until_it_calls_no_tool():
    model = ScriptedModel([call("echo", text="a"), call("echo", "c2", text="b"), "done"])
    reply = asyncio.run(run_agent(model, compose, tools=[echo]))
    assert (reply.text, reply.finish_reason) == ("done", "stop")
    assert model.windows[-1].messages[1:] == (
        assistant(tool_calls=[call("echo", text="a")]),
        tool("c1", "<a>"),
        assistant(tool_calls=[call("echo", "c2", text="b")]),
        tool("c2", "<b>"),
    )
    assert reply.window is model.windows[-1]


def test_an_answer_without_calls_is_one_step():
    assert asyncio.run(run_agent(ScriptedModel(["hi"]), compose)).text == "hi"


def test_usage_is_that_of_all_steps():
    replies = [
        Reply(assistant(tool_calls=[call("echo", text="a")]), usage=Usage(10, 2, 4, 1)),
        Reply(assistant("done"), usage=Usage(20, 3, 8)),
    ]
    reply = asyncio.run(run_agent(ScriptedModel(replies), compose, tools=[echo]))
    assert reply.usage == Usage(30, 5, 12, 1)


def test_settings_reach_the_model_at_every_step():
    model = ScriptedModel([call("echo", text="a"), "done"])
    asyncio.run(run_agent(model, compose, tools=[echo], settings={"temperature": 0}))
    assert model.settings == [{"temperature": 0}] * 2


def test_compose_and_record_may_be_async():
    kept: list[Message] = []

    async def slowly(messages: Sequence[Message]) -> Window:
        await asyncio.sleep(0)
        return compose(messages)

    async def record(messages: Sequence[Message]) -> None:
        await asyncio.sleep(0)
        kept.extend(messages)

    model = ScriptedModel([call("echo", text="a"), "done"])
    asyncio.run(run_agent(model, slowly, tools=[echo], record=record))
    assert [each.role for each in kept] == ["assistant", "tool", "assistant"]


def test_an_unknown_tool_is_told_to_the_model_with_those_there_are():
    model = ScriptedModel([call("ecko", text="a"), "sorry"])
    asyncio.run(run_agent(model, compose, tools=[echo]))
    assert model.windows[1].messages[-1].text == ("Error: there is no tool 'ecko'. Near: echo.")
    model = ScriptedModel([call("ecko"), "sorry"])
    asyncio.run(run_agent(model, compose))
    assert model.windows[1].messages[-1].text == "Error: there is no tool 'ecko'."


def test_the_same_id_in_two_steps_means_two_calls():
    model = ScriptedModel([call("echo", text="a"), call("echo", text="b"), "done"])
    asyncio.run(run_agent(model, compose, tools=[echo]))
    assert [m.text for m in model.windows[-1].messages if m.role == "tool"] == ["<a>", "<b>"]


# What is recorded, and when.


def test_an_answer_is_recorded_before_its_tools_run_and_a_result_before_the_next_step():
    log: list[str] = []

    def act() -> str:
        log.append("act")
        return "acted"

    def record(messages: Sequence[Message]) -> None:
        log.extend(f"record {each.role}" for each in messages)

    def answer(window: Window) -> Any:
        log.append("ask")
        return "done" if len(log) > 2 else call("act")

    asyncio.run(run_agent(ScriptedModel(answer), compose, tools=[act], record=record))
    assert log == ["ask", "record assistant", "act", "record tool", "ask", "record assistant"]


def test_a_result_is_recorded_while_other_calls_still_run():
    kept: list[Message] = []

    async def main() -> None:
        recorded = asyncio.Event()

        def record(messages: Sequence[Message]) -> None:
            kept.extend(messages)
            if kept[-1].tool_call_id == "fast":
                recorded.set()

        async def quick() -> str:
            return "quick"

        async def patient() -> str:
            await asyncio.wait_for(recorded.wait(), 60)  # fails if it is recorded only at the end
            return "patient"

        calls = [call("patient", "slow"), call("quick", "fast")]
        model = ScriptedModel([calls, "done"])
        await run_agent(model, compose, tools=[quick, patient], record=record)
        sent = [each.tool_call_id for each in model.windows[1].messages if each.role == "tool"]
        assert sent == ["slow", "fast"]  # to the model in the order of the calls

    asyncio.run(main())
    assert [each.tool_call_id for each in kept[1:3]] == ["fast", "slow"]
    assert kept[2].text == "patient"


def test_a_reader_that_does_not_read_on_delays_no_record():
    kept: list[Message] = []

    async def main() -> None:
        model = ScriptedModel([[call("echo", f"c{n}", text=str(n)) for n in range(5)], "done"])
        events = stream_agent(model, compose, tools=[echo], record=kept.extend)
        async for event in events:
            if isinstance(event, ToolFinished):
                break
        for _ in range(400):
            if len(kept) == 6:
                break
            await asyncio.sleep(0.01)
        assert len(kept) == 6

    asyncio.run(main())


def test_one_record_at_a_time():
    busy: list[int] = []
    most: list[int] = []

    async def record(messages: Sequence[Message]) -> None:
        busy.append(1)
        most.append(len(busy))
        await asyncio.sleep(0.005)
        busy.pop()

    model = ScriptedModel([[call("echo", f"c{n}", text="x") for n in range(6)], "done"])
    asyncio.run(run_agent(model, compose, tools=[echo], record=record))
    assert most == [1] * 8


def test_a_record_that_fails_stops_the_run_with_that_error():
    ran: list[str] = []

    def record(messages: Sequence[Message]) -> None:
        if messages[0].role == "tool":
            raise OSError("disk full")

    async def forever() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ran.append("cancelled")

    model = ScriptedModel([[call("echo", text="a"), call("forever", "c2")], "never"])
    with pytest.raises(OSError, match="disk full"):
        asyncio.run(run_agent(model, compose, tools=[echo, forever], record=record))
    assert len(model.windows) == 1
    assert ran == ["cancelled"]


def test_an_answer_that_cannot_be_recorded_runs_no_tool():
    ran: list[str] = []

    def act() -> None:
        ran.append("act")

    def record(messages: Sequence[Message]) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        asyncio.run(run_agent(ScriptedModel([call("act")]), compose, tools=[act], record=record))
    assert not ran


# What runs beside what.


def test_parallel_calls_are_bounded():
    running: list[int] = []
    most = 0

    async def work() -> None:
        nonlocal most
        running.append(1)
        most = max(most, len(running))
        await asyncio.sleep(0.01)
        running.pop()

    calls = [call("work", f"c{n}") for n in range(9)]
    asyncio.run(run_agent(ScriptedModel([calls, "done"]), compose, tools=[work], parallel=3))
    assert most == 3


def test_waiting_for_a_place_is_not_the_tools_time():
    async def work() -> str:
        await asyncio.sleep(0.5)
        return "in time"

    calls = [call("work", f"c{n}") for n in range(5)]
    model = ScriptedModel([calls, "done"])
    asyncio.run(run_agent(model, compose, tools=[Tool(work, timeout=2)], parallel=1))
    assert [each.text for each in model.windows[1].messages[2:]] == ["in time"] * 5


# How a run ends.


def test_a_run_that_takes_too_many_steps_stops_before_the_tools_of_the_last():
    kept: list[Message] = []
    ran: list[str] = []

    def act(n: int) -> None:
        ran.append(str(n))

    script = [call("act", f"c{n}", n=n) for n in range(9)]
    with pytest.raises(StepLimit, match=r"no answer after 3 steps; the model still calls act") as e:
        asyncio.run(
            run_agent(ScriptedModel(script), compose, tools=[act], record=kept.extend, max_steps=3)
        )
    assert ran == ["0", "1"]
    assert list(e.value.messages) == kept
    assert e.value.reply is not None
    assert e.value.reply.tool_calls == (script[2],)
    assert e.value.reply.usage.input > 0
    assert pickle.loads(pickle.dumps(e.value)).messages == e.value.messages

    # With more steps the run goes on where it stopped; with as many it stops again.
    with pytest.raises(StepLimit):
        asyncio.run(run_agent(ScriptedModel([]), compose, tools=[act], resume=kept, max_steps=3))
    more = run_agent(ScriptedModel(["done"]), compose, tools=[act], resume=kept, max_steps=4)
    assert asyncio.run(more).text == "done"
    assert ran == ["0", "1", "2"]


def test_the_last_step_may_be_the_answer():
    model = ScriptedModel([call("echo", text="a"), "done"])
    assert asyncio.run(run_agent(model, compose, tools=[echo], max_steps=2)).text == "done"


def test_a_window_over_budget_is_not_sent():
    def too_small(messages: Sequence[Message]) -> Window:
        slots = Slots(5, tokenizer=len)
        slots.add("system", "x" * 50)
        return slots.render()

    model = ScriptedModel(["never"])
    with pytest.raises(BudgetExceeded):
        asyncio.run(run_agent(model, too_small))
    assert not model.windows


def test_an_error_of_the_model_comes_through_and_what_was_done_is_recorded():
    kept: list[Message] = []
    model = ScriptedModel([call("echo", text="a"), ConnectionError("gone")])
    with pytest.raises(ConnectionError, match="gone"):
        asyncio.run(run_agent(model, compose, tools=[echo], record=kept.extend))
    assert [each.role for each in kept] == ["assistant", "tool"]


def test_a_call_of_a_tool_with_only_a_schema_is_the_callers():
    schema = {"type": "function", "function": {"name": "ask_user", "parameters": {}}}
    kept: list[Message] = []
    calls = [call("echo", text="a"), call("ask_user", "c2")]
    model = ScriptedModel([calls, "done"])
    first = run_agent(model, compose, tools=[echo, schema], record=kept.extend)
    reply = asyncio.run(first)
    assert reply.tool_calls == tuple(calls)
    assert [each.tool_call_id for each in kept[1:]] == ["c1"]
    past = [*kept, tool("c2", "yes")]
    reply = asyncio.run(run_agent(model, compose, tools=[echo, schema], resume=past))
    assert reply.text == "done"
    assert model.windows[1].messages[-2:] == (tool("c1", "<a>"), tool("c2", "yes"))


@pytest.mark.parametrize("option", ["max_steps", "parallel"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_a_limit_is_a_number_from_one(option, value):
    with pytest.raises(InvalidInput, match=option):
        asyncio.run(run_agent(ScriptedModel([]), compose, **{option: value}))


def test_compose_must_give_a_window():
    with pytest.raises(InvalidType, match="compose must return a Window"):
        asyncio.run(run_agent(ScriptedModel(["x"]), lambda messages: None))  # type: ignore[arg-type, return-value]


def test_a_stream_that_does_not_finish_is_an_error():
    class Broken:
        name = "broken"

        async def complete(self, window: Window, *, settings: Mapping[str, Any]) -> Reply:
            raise NotImplementedError

        async def stream(
            self, window: Window, *, settings: Mapping[str, Any]
        ) -> AsyncIterator[Event]:
            yield TextDelta("half")

    async def read() -> None:
        async for _ in stream_agent(Broken(), compose):
            pass

    with pytest.raises(MuntinError, match="the stream of 'broken' ended without Finished"):
        asyncio.run(read())


# Streaming.


def events_of(events: AsyncIterator[Event]) -> list[Event]:
    async def read() -> list[Event]:
        return [event async for event in events]

    return asyncio.run(read())


def test_the_stream_tells_what_happens_and_ends_with_the_same_reply():
    script = [assistant("let me see", tool_calls=[call("echo", text="a")]), "all done"]
    got = events_of(stream_agent(ScriptedModel(script), compose, tools=[echo]))
    assert got[:-1] == [
        TextDelta("let "),
        TextDelta("me "),
        TextDelta("see"),
        ToolCalled(call("echo", text="a")),
        ToolFinished(call("echo", text="a"), tool("c1", "<a>")),
        TextDelta("all "),
        TextDelta("done"),
    ]
    assert isinstance(got[-1], Finished)
    assert got[-1].reply == asyncio.run(run_agent(ScriptedModel(script), compose, tools=[echo]))


def test_run_asks_for_whole_answers_and_stream_for_streams():
    asked: list[str] = []

    class Both(ScriptedModel):
        async def complete(self, *args: Any, **kwargs: Any) -> Reply:
            asked.append("complete")
            return await super().complete(*args, **kwargs)

        async def stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[Event]:
            asked.append("stream")
            async for event in super().stream(*args, **kwargs):
                yield event

    asyncio.run(run_agent(Both(["hi"]), compose))
    events_of(stream_agent(Both(["hi"]), compose))
    assert asked == ["complete", "stream"]


def test_a_stream_that_is_closed_cancels_what_runs():
    ended: list[str] = []
    kept: list[Message] = []

    async def forever() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")

    async def main() -> None:
        model = ScriptedModel([[call("echo", text="a"), call("forever", "c2")], "never"])
        events = stream_agent(model, compose, tools=[echo, forever], record=kept.extend)
        async with aclosing(events):
            async for event in events:
                if isinstance(event, ToolFinished):
                    break

    asyncio.run(main())
    assert ended == ["cancelled"]
    assert [each.role for each in kept] == ["assistant", "tool"]


def test_closing_the_stream_closes_the_models_stream():
    closed: list[bool] = []

    class Slow:
        name = "slow"

        async def complete(self, window: Window, *, settings: Mapping[str, Any]) -> Reply:
            raise NotImplementedError

        async def stream(
            self, window: Window, *, settings: Mapping[str, Any]
        ) -> AsyncIterator[Event]:
            try:
                yield TextDelta("a")
                await asyncio.sleep(60)
            finally:
                closed.append(True)

    async def main() -> None:
        events = stream_agent(Slow(), compose)
        async with aclosing(events):
            async for _ in events:
                break
        assert closed == [True]

    asyncio.run(main())


# Cancellation.


def test_cancelling_leaves_finished_calls_recorded_and_the_others_cancelled():
    kept: list[Message] = []
    ended: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)  # it may take its time to end, and is waited for
            ended.append("cancelled")

    async def main() -> None:
        model = ScriptedModel([[call("echo", text="a"), call("forever", "c2")], "never"])
        task = asyncio.create_task(
            run_agent(model, compose, tools=[echo, forever], record=kept.extend)
        )
        while len(kept) < 2:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["cancelled"]

    asyncio.run(main())
    assert kept[1:] == [tool("c1", "<a>")]


@pytest.mark.parametrize("role", ["assistant", "tool"])
def test_a_record_under_way_is_finished_before_a_cancellation_is_heard(role):
    kept: list[Message] = []

    async def main() -> None:
        begun = asyncio.Event()

        async def record(messages: Sequence[Message]) -> None:
            if messages[0].role == role:
                begun.set()
                await asyncio.sleep(0.03)
            kept.extend(messages)

        model = ScriptedModel([call("echo", text="a"), "never"])
        task = asyncio.create_task(run_agent(model, compose, tools=[echo], record=record))
        await begun.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()  # impatience does not help
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert kept[-1].role == role


def test_results_that_wait_to_be_recorded_are_recorded_though_cancelled():
    kept: list[Message] = []

    async def main() -> None:
        begun = asyncio.Event()

        async def record(messages: Sequence[Message]) -> None:
            if messages[0].role == "tool":
                begun.set()
                await asyncio.sleep(0.02)
            kept.extend(messages)

        async def now(n: int) -> int:
            return n

        calls = [call("now", f"c{n}", n=n) for n in range(4)]
        model = ScriptedModel([calls, "never"])
        task = asyncio.create_task(run_agent(model, compose, tools=[now], record=record))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert [each.text for each in kept[1:]] == ["0", "1", "2", "3"]


def test_a_timeout_around_a_run_works():
    async def main() -> None:
        async def forever() -> None:
            await asyncio.sleep(60)

        async with asyncio.timeout(0.05):
            await run_agent(ScriptedModel([call("forever")]), compose, tools=[forever])

    with pytest.raises(TimeoutError):
        asyncio.run(main())


# Going on from what was recorded.


def resumed(past: Iterable[Message], *replies: Any) -> tuple[list[str], ScriptedModel, Reply]:
    ran: list[str] = []

    def act(n: int) -> str:
        ran.append(str(n))
        return f"did {n}"

    model = ScriptedModel(replies)
    reply = asyncio.run(run_agent(model, compose, tools=[act], resume=past))
    return ran, model, reply


CALLS = [call("act", f"c{n}", n=n) for n in range(3)]
ASKED = assistant(tool_calls=CALLS)


def test_calls_without_a_result_are_run_and_no_others():
    ran, model, reply = resumed([ASKED, tool("c1", "did 1")], "done")
    assert sorted(ran) == ["0", "2"]
    assert reply.text == "done"
    sent = [each.text for each in model.windows[0].messages[2:]]
    assert sent == ["did 0", "did 1", "did 2"]


def test_with_all_results_there_the_model_is_asked_next():
    ran, model, _ = resumed([ASKED, *(tool(f"c{n}", "x") for n in (2, 0, 1))], "done")
    assert not ran
    assert [each.tool_call_id for each in model.windows[0].messages[2:]] == ["c0", "c1", "c2"]


def test_a_run_that_was_finished_is_not_asked_again():
    ran, model, reply = resumed([ASKED, *(tool(f"c{n}", "x") for n in range(3)), assistant("end")])
    assert (ran, model.windows, reply.text) == ([], [], "end")


def test_an_id_that_was_used_before_is_a_new_call():
    first = assistant(tool_calls=[call("act", n=1)])
    again = assistant(tool_calls=[call("act", n=2)])
    ran, _, _ = resumed([first, tool("c1", "did 1"), again], "done")
    assert ran == ["2"]


def test_a_message_of_the_user_after_the_answer_is_answered():
    _, model, reply = resumed([assistant("end"), user("and then?")], "more")
    assert reply.text == "more"
    assert model.windows[0].messages[-1] == user("and then?")


def test_the_past_may_be_dicts_and_is_not_recorded_again():
    kept: list[Message] = []
    past = [each.to_dict() for each in (ASKED, tool("c1", "did 1"))]
    run = run_agent(
        ScriptedModel(["done"]), compose, tools=[Tool(lambda: 0, name="act")],
        resume=past, record=kept.extend,
    )  # fmt: skip
    asyncio.run(run)
    assert [each.tool_call_id for each in kept] == ["c0", "c2", None]


# A crash at any moment loses nothing that was recorded and repeats nothing that was.

WORKER = """
import asyncio, json, os, sys, time
from muntin import Message, Slots, ToolCall, assistant
from muntin.agent.loop import run_agent
from muntin.testing import ScriptedModel

folder, steps = sys.argv[1], int(sys.argv[2])

def append(name, data):
    with open(os.path.join(folder, name), "a") as file:
        file.write(json.dumps(data) + "\\n")
        file.flush()
        os.fsync(file.fileno())

def read(name):
    try:
        lines = open(os.path.join(folder, name)).read().split("\\n")
    except FileNotFoundError:
        return []
    # The last line may be torn: it was never recorded.
    if lines[-1]:
        with open(os.path.join(folder, name), "r+") as file:
            file.truncate(sum(len(line.encode()) + 1 for line in lines[:-1]))
    return [json.loads(line) for line in lines[:-1]]

def act(step: int, part: int) -> str:
    append("effects", [step, part])
    time.sleep(0.004 * part)
    return f"did {step}.{part}"

async def act_later(step: int, part: int) -> str:
    append("effects", [step, part])
    await asyncio.sleep(0.004 * part)
    return f"did {step}.{part}"

def record(messages):
    for message in messages:
        append("log", message.to_dict())

def compose(messages):
    slots = Slots(1_000_000, tokenizer=len)
    slots.add("input", "go")
    slots.add("run", messages)
    return slots.render()

def answer(window):
    step = sum(m.role == "assistant" for m in window.messages)
    assert all(m.text.startswith("did ") for m in window.messages if m.role == "tool")
    if step == steps:
        return "done"
    names = ["act", "act_later", "act"]
    return [ToolCall(f"c{n}", name, {"step": step, "part": n}) for n, name in enumerate(names)]

past = [Message.from_dict(each) for each in read("log")]
run = run_agent(ScriptedModel(answer), compose, tools=[act, act_later], record=record, resume=past,
                max_steps=steps + 1)
print(asyncio.run(run).text)
"""


def test_a_run_killed_at_any_moment_repeats_and_loses_nothing_recorded(tmp_path: Path):
    kills = int(os.environ.get("MUNTIN_KILLS", "3"))
    rolled = random.Random(7)
    folders = (tmp_path / str(number) for number in count())
    run = KilledRun(next(folders))
    while kills:
        if run.work(until=lambda: rolled.uniform(0, 0.25)):
            run = KilledRun(next(folders))
        else:
            kills -= 1
    while not run.work(until=None):
        pass


class KilledRun:
    """One run of an agent, in as many processes as it takes."""

    steps = 30

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.final: dict[tuple[int, int], int] = {}  # how often a recorded call had happened

    def work(self, until: Callable[[], float] | None) -> bool:
        """Go on with the run, kill it a while after its next record, and say whether it ended."""
        log = self.folder / "log"
        before = log.stat().st_size if log.exists() else 0
        command = [sys.executable, "-c", WORKER, str(self.folder), str(self.steps)]
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if until is not None:
            while worker.poll() is None and (not log.exists() or log.stat().st_size == before):
                time.sleep(0.001)
            time.sleep(until())
            worker.kill()
        output = worker.communicate()[0]
        assert worker.returncode == 0 or until is not None
        ended = output == "done\n"
        self.check(ended=ended)
        return ended

    def check(self, *, ended: bool) -> None:
        results = self.results()
        happened = Tally((step, part) for step, part in self.lines("effects"))
        assert len(set(results)) == len(results)  # each is recorded once
        assert set(self.final) <= set(results)  # none is lost
        for each in results:
            # Between its effect and its record a call may be killed, and is then run again; once
            # it is recorded, never.
            assert happened[each] == self.final.setdefault(each, happened[each]) >= 1
        if ended:
            expected = {(step, part) for step in range(self.steps) for part in range(3)}
            assert set(results) == set(happened) == expected

    def lines(self, name: str) -> list[Any]:
        """Return the whole lines of a file; one that is torn was never recorded."""
        path = self.folder / name
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.split("\n")[:-1]]

    def results(self) -> list[tuple[int, int]]:
        """Return (step, part) of every recorded result, in the order of recording."""
        found = []
        step = -1
        for message in self.lines("log"):
            if message["role"] == "assistant":
                step += 1
            else:
                found.append((step, int(message["tool_call_id"][1:])))
        return found
