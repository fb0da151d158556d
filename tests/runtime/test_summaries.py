"""Summaries: made in the background, put in front of the history when it steps."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, Literal

import pytest

from muntin import (
    Action,
    App,
    Exact,
    InvalidInput,
    Message,
    Source,
    Summary,
    ToolCall,
    flow,
    generator,
)
from muntin.runtime import Ctx
from muntin.runtime.run_rules import INSTRUCTION
from muntin.runtime.summaries import HOURLY, State
from muntin.testing import ScriptedModel
from muntin.timeline.store import open_store
from muntin.wire import anthropic, chat
from tests.interfaces import Whole
from tests.products import sample
from tests.workers import Start

NAME = "anthropic/claude-sonnet-4-5"
TEXT = "What about the flight to Oslo on day {}? " + "Please tell me everything. " * 12
ANSWER = "Here is all I know. " * 15


def model(budget: int = 4_000) -> ScriptedModel:
    return ScriptedModel(lambda window: ANSWER, name=NAME, budget=budget)


def writer() -> ScriptedModel:
    """A summariser that says how often it was asked, and for which days."""
    made = ScriptedModel(lambda window: f"Summary {len(made.windows)} of {days(window)}.")
    return made


def days(window: Any) -> str:
    """Return the days that a request speaks of, as first and last."""
    text = "".join(message.text for message in window.messages)
    found = [int(each.split("?")[0]) for each in text.split("on day ")[1:]]
    return f"days {found[0]}-{found[-1]}" if found else "no days"


async def settle() -> None:
    """Let the background come to an end."""
    for _ in range(500):
        tasks = [each for each in asyncio.all_tasks() if "Job.make" in repr(each)]
        if not tasks:
            return
        await asyncio.sleep(0.002)


def told(window: Any) -> str | None:
    """Return the summary that a window begins with, behind the system's messages."""
    spoken = [each for each in window.messages if each.role != "system"]
    return spoken[0].text if spoken[0].text.startswith("<summary") else None


def first_day(window: Any) -> int:
    text = next(m.text for m in window.messages if m.role == "user" and "on day" in m.text)
    return int(text.split("on day ")[1].split("?")[0])


# Doors: each says one thing to the same session.
Talk = Callable[[App, int], Awaitable[Any]]


async def by_conversation(app: App, day: int) -> None:
    await app.conversation("s").send(TEXT.format(day))


class Rendering:
    async def on_context_build(self, ctx: Ctx) -> Any:
        ctx.slots.add("system", "You are a clerk.", priority=9)
        ctx.slots.add("history", ctx.history.recent(500))
        ctx.slots.add("input", ctx.message)
        return ctx.slots.render()


async def by_strategy(app: App, day: int) -> None:
    await app.conversation("s", strategy=Rendering()).send(TEXT.format(day))


async def by_timeline(app: App, day: int) -> None:
    await app.conversation("s", strategy=Whole()).send(TEXT.format(day))


async def by_entity(app: App, day: int) -> None:
    async def handle(ctx: Ctx, wake: Any) -> None:
        ctx.use_agent(system_prompt="You are a clerk.")
        await ctx.agent.run()

    if day == 0:
        app.entity("e")(handle)
    await app.ask("e/s", TEXT.format(day))


async def by_sources(app: App, day: int) -> None:
    async def handle(ctx: Ctx, wake: Any) -> None:
        ctx.use_context(
            source_budget=3_400,
            sources={
                "rules": Source("Be brief.", max=100, cache="stable"),
                "talk": Source(ctx.timeline_messages, max=3_000),
            },
        )
        ctx.use_agent(system_prompt="You are a clerk.")
        await ctx.agent.run()

    if day == 0:
        app.entity("e")(handle)
    await app.ask("e/s", TEXT.format(day))


async def by_generator(app: App, day: int) -> None:
    made = generator(prompt="You are a clerk.", history=True, user=lambda given: given)
    await made.run(TEXT.format(day), app=app, session="s")


async def by_flow(app: App, day: int) -> None:
    made = generator(prompt="You are a clerk.", history=True)
    desk = flow("desk", actions={"ask": Action(made, user_message=lambda given: given)})
    await desk.run("ask", TEXT.format(day), app=app, session="s")


INTERFACES: dict[str, Talk] = {
    name.removeprefix("by_"): door for name, door in list(globals().items()) if name[:3] == "by_"
}
SOME = ("conversation", "entity", "flow")


async def talk(app: App, turns: int, door: Talk = by_conversation, first: int = 0) -> None:
    for day in range(first, first + turns):
        await door(app, day)
        await settle()


def session_of(app: App) -> str:
    return next(info.id for info in app.store.sessions())


def kept(app: App) -> list[Any]:
    return [item for item in app.store.read(session_of(app)) if item.kind == "summary"]


@pytest.mark.parametrize("door", [INTERFACES[name] for name in sample(INTERFACES, *SOME)])
def test_what_leaves_is_summarised_and_stands_in_front_from_the_step_on(door: Talk) -> None:
    async def main() -> None:
        asked, summariser = model(), writer()
        async with App("memory:", model=asked, summary=Summary(summariser)) as app:
            await talk(app, 30, door)
            made = kept(app)
        seen = [told(window) for window in asked.windows]
        begins = [first_day(window) for window in asked.windows]
        moves = [n for n in range(1, 30) if begins[n] != begins[n - 1]]
        assert moves
        # Nothing before the first step; from there on, all that came before the first day shown.
        # A little more may be told: room was left for a summary of the longest kind.
        assert seen[: moves[0]] == [None] * moves[0]
        assert seen[moves[0]] is not None
        last = int((seen[moves[0]] or "").partition("Summary 1 of days 0-")[2].partition(".")[0])
        assert begins[moves[0]] - 1 <= last < begins[moves[0]] + 6
        # Between two steps nothing of it changes.
        for n in range(moves[0] + 1, 30):
            assert seen[n] == seen[n - 1] or n in moves
        assert made[0].payload["until"] == max(made[0].payload["items"])
        assert made[0].visibility.history is made[0].visibility.client is False
        assert made[0].payload["usage"]["input"] == summariser.windows[0].tokens
        assert all(window.tokens <= window.report.budget for window in asked.windows)

    asyncio.run(main())


_MARKS = ("cache_control", "prompt_cache_breakpoint")


def encoded(window: Any, wire: Any, until: str | None = None) -> str:
    """Return a request as it is sent, the messages last, without the cache marks; up to the first
    message that says `until`."""
    request = _unmarked(wire.encode(window))
    messages = request.pop("messages")
    if until is not None:
        messages = takewhile(lambda each: until not in json.dumps(each), messages)
    return json.dumps([request, *[_as_parts(each) for each in messages]])[:-1]


def _as_parts(message: dict[str, Any]) -> dict[str, Any]:
    """A mark makes parts of what was a text."""
    content = message.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {**message, "content": parts}


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unmarked(each) for key, each in value.items() if key not in _MARKS}
    return [_unmarked(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("wire", [anthropic, chat], ids=["anthropic", "chat"])
@pytest.mark.parametrize("door", sample([*SOME, "strategy", "generator"], *SOME))
def test_between_two_steps_each_request_begins_with_the_one_before_up_to_its_excerpts(
    door: str, wire: Any
) -> None:
    async def main() -> None:
        asked = model()
        async with App("memory:", model=asked, summary=Summary(writer())) as app:
            await talk(app, 30, INTERFACES[door])
        requests = [encoded(window, wire) for window in asked.windows]
        lasting = [encoded(window, wire, "<recalled ") for window in asked.windows]
        broken = [n for n in range(1, 30) if not requests[n].startswith(lasting[n - 1])]
        begins = [first_day(window) for window in asked.windows]
        assert broken == [n for n in range(1, 30) if begins[n] != begins[n - 1]]
        assert broken
        for n in range(1, 30):
            assert (told(asked.windows[n]) == told(asked.windows[n - 1])) or n in broken

    asyncio.run(main())


def test_a_restart_between_any_two_turns_changes_no_byte(tmp_path: Any) -> None:
    async def main(url: str, restart: bool) -> list[Any]:
        asked, summariser = model(), writer()
        app = App(url, model=asked, summary=Summary(summariser))
        for day in range(30):
            await talk(app, 1, first=day)
            if restart:
                await app.close()
                app = App(url, model=asked, summary=Summary(summariser))
        await app.close()
        return [encoded(window, anthropic) for window in asked.windows]

    through = asyncio.run(main(f"sqlite:///{tmp_path / 'a.db'}", False))
    again = asyncio.run(main(f"sqlite:///{tmp_path / 'b.db'}", True))
    assert through == again


def test_the_summary_so_far_goes_into_the_next_and_nothing_is_told_twice() -> None:
    async def main() -> None:
        asked, summariser = model(), writer()
        async with App("memory:", model=asked, summary=Summary(summariser)) as app:
            await talk(app, 50)
            made = kept(app)
        assert len(made) >= 3
        items = [position for each in made for position in each.payload["items"]]
        assert len(items) == len(set(items))
        second = "".join(message.text for message in summariser.windows[1].messages)
        assert f"<summary-so-far>{made[0].payload['text']}</summary-so-far>" in second
        assert summariser.windows[0].messages[0].text == INSTRUCTION

    asyncio.run(main())


def test_the_answer_never_waits_for_a_summary() -> None:
    async def main() -> None:
        async def hangs(window: Any) -> str:
            await asyncio.sleep(3_600)
            return "never"

        asked = model()
        app = App("memory:", model=asked, summary=Summary(ScriptedModel(hangs)))
        async with asyncio.timeout(20):
            for day in range(30):
                await by_conversation(app, day)
        assert all(told(window) is None for window in asked.windows)
        assert len(asked.windows) == 30

    asyncio.run(main())


async def _hangs(window: Any) -> str:
    await asyncio.sleep(3_600)
    return "never"


BAD = {
    "hangs": _hangs,
    "raises": lambda window: ValueError("no summary today"),
    "is empty": lambda window: "  \n ",
    "has no text": lambda window: ToolCall("c", "search", "{}"),
}
SAID = {
    "hangs": "TimedOut",
    "raises": "ValueError: no summary today",
    "is empty": "was empty",
    "has no text": "was empty",
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("door", sample([*SOME, "strategy", "sources"], *SOME))
def test_a_summary_that_fails_changes_nothing_and_is_in_the_report(door: str, bad: str) -> None:
    async def main(summary: Summary | None) -> tuple[list[Any], list[Any], list[Any]]:
        asked = model()
        async with App("memory:", model=asked, summary=summary) as app:
            await talk(app, 24, INTERFACES[door])
            items = app.store.read(session_of(app))
        return asked.windows, items, kept(app)

    summariser = ScriptedModel(BAD[bad])
    windows, items, made = asyncio.run(main(Summary(summariser, timeout=0.02)))
    plain, same_items, _ = asyncio.run(main(None))
    assert made == []
    assert [window.messages for window in windows] == [window.messages for window in plain]
    assert [(i.position, i.kind, i.content) for i in items] == [
        (i.position, i.kind, i.content) for i in same_items
    ]
    failed = [
        row.detail for window in windows for row in window.report.slots if row.name == "summary"
    ]
    assert failed
    assert all(SAID[bad] in detail for detail in failed)
    # Asked again after 1, 2, 4 and so on turns.
    assert 3 <= len(summariser.windows) <= HOURLY
    asked = [n for n in range(1, len(failed)) if failed[n] != failed[n - 1]]
    assert [later - sooner for sooner, later in zip([0, *asked], asked, strict=False)][:2] == [1, 2]


@pytest.mark.parametrize("door", [INTERFACES[name] for name in sample(INTERFACES, *SOME)])
def test_its_cost_is_in_the_usage_of_the_session_told_apart(door: Talk, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"

    async def main() -> None:
        asked, summariser = model(), writer()
        async with App(url, model=asked, summary=Summary(summariser)) as app:
            await talk(app, 24, door)
            used = app.session(session_of(app)).usage()
        assert summariser.windows
        assert used.answers.input == sum(window.tokens for window in asked.windows)
        assert used.answers.output > 0
        assert used.summaries.input == sum(window.tokens for window in summariser.windows)
        assert used.total == used.answers + used.summaries
        async with App(url) as again:  # after a restart
            assert again.session(session_of(again)).usage() == used

    asyncio.run(main())


@pytest.mark.parametrize("bad", ["is empty", "has no text"])
def test_one_that_came_to_nothing_was_paid_for(bad: str, store_url: str) -> None:
    async def main() -> None:
        summariser = ScriptedModel(BAD[bad])
        async with App(store_url, model=model(), summary=Summary(summariser)) as app:
            await talk(app, 24)
            used = app.session("s").usage()
            assert kept(app) == []
        assert len(summariser.windows) >= 3
        assert used.summaries.input == sum(window.tokens for window in summariser.windows)

    asyncio.run(main())


def test_a_summary_that_failed_is_tried_again_in_the_next_turn() -> None:
    async def main() -> None:
        answers = iter([ValueError("busy"), ValueError("busy"), *["Better late."] * 9])
        summariser = ScriptedModel(lambda window: next(answers))
        asked = model()
        async with App("memory:", model=asked, summary=Summary(summariser)) as app:
            await talk(app, 24)
            assert [item.payload["text"] for item in kept(app)][:1] == ["Better late."]
        assert told(asked.windows[-1]) is not None
        rows = [[r.detail for r in w.report.slots if r.name == "summary"] for w in asked.windows]
        first = next(n for n, row in enumerate(rows) if row)
        busy = "ValueError: busy"
        assert rows[first : first + 4] == [
            [f"failed 1x: {busy}"],
            [f"failed 2x: {busy}"],
            [f"failed 2x: {busy}"],
            [],
        ]

    asyncio.run(main())


def test_a_summariser_that_always_fails_is_asked_five_times_an_hour(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is asked again after one turn at the least, then after two, four and eight."""
    turns: list[int] = []

    async def main() -> None:
        asked = model()

        def fail(window: Any) -> str:
            turns.append(len(asked.windows))
            raise ValueError("busy")

        async with App("memory:", model=asked, summary=Summary(ScriptedModel(fail))) as app:
            await talk(app, 60)

    with caplog.at_level(logging.WARNING, "muntin"):
        asyncio.run(main())
    assert len(turns) == 5
    gaps = [later - earlier for earlier, later in pairwise(turns)]
    # Not in each turn a summary is wanted.
    assert all(gap >= least for gap, least in zip(gaps, (1, 2, 4, 8), strict=True)), gaps
    records = [record for record in caplog.records if record.exc_info]
    assert len(records) == 5
    assert "in fail" in caplog.text  # the traceback


def test_a_huge_summary_is_cut_to_its_tokens_and_says_so() -> None:
    async def main() -> None:
        asked = model()
        huge = ScriptedModel(lambda window: "Much was said. " * 30_000)
        async with App("memory:", model=asked, summary=Summary(huge, max_tokens=200)) as app:
            await talk(app, 24)
            text = kept(app)[0].payload["text"]
        assert "tokens left out]" in text
        assert len(text) < 2_000
        assert told(asked.windows[-1]) is not None
        assert all(window.tokens <= 4_000 for window in asked.windows)
        assert huge.settings[0] == {"max_tokens": 200}

    asyncio.run(main())


def test_a_summary_too_large_for_the_window_is_left_out() -> None:
    async def main() -> None:
        asked = model(1_000)
        long = ScriptedModel(lambda window: "word " * 2_000)
        async with App("memory:", model=asked, summary=Summary(long)) as app:
            await talk(app, 12)
        assert all(told(window) is None for window in asked.windows)
        assert all(window.tokens <= 1_000 for window in asked.windows)

    asyncio.run(main())


def test_if_it_is_not_ready_the_step_goes_on_and_the_next_one_covers_what_was_dropped() -> None:
    async def main() -> None:
        ready = asyncio.Event()

        async def slow(window: Any) -> str:
            await ready.wait()
            return f"Summary of {days(window)}."

        asked = model()
        app = App("memory:", model=asked, summary=Summary(ScriptedModel(slow)))
        day = 0
        while not day or first_day(asked.windows[-1]) == 0:
            await by_conversation(app, day)
            day += 1
        assert told(asked.windows[-1]) is None
        ready.set()
        await settle()
        begins = first_day(asked.windows[-1])
        while first_day(asked.windows[-1]) == begins:
            await talk(app, 1, first=day)
            day += 1
        assert told(asked.windows[-1]) is not None
        assert kept(app)[0].payload["text"].startswith("Summary of days 0-")
        # What was dropped meanwhile is in the one after that, from the store.
        until = kept(app)[0].payload["until"]
        while len(kept(app)) < 2:
            await talk(app, 1, first=day)
            day += 1
        assert min(kept(app)[1].payload["items"]) > until
        items = [m.item[1] for m in app.session("s").messages() if m.item]
        gone = {at for at in items if at <= kept(app)[1].payload["until"]}
        assert gone == {p for item in kept(app) for p in item.payload["items"]}
        await app.close()

    asyncio.run(main())


def test_what_a_projection_hides_is_not_summarised_nor_what_is_hidden() -> None:
    class Hiding:
        async def on_context_build(self, ctx: Ctx) -> None:
            def projection(item: Any) -> list[Message] | None:
                return [] if item.message and "secret" in item.message.text else None

            ctx.slots.add("timeline", ctx.timeline_messages(projection=projection))

    async def main() -> None:
        asked, summariser = model(), writer()
        async with App("memory:", model=asked, summary=Summary(summariser)) as app:
            chat = app.conversation("s", strategy=Hiding())
            for day in range(30):
                mark = "secret 4711. " if day == 3 else ""
                await chat.send(mark + TEXT.format(day))
                await settle()
            assert kept(app)
        sent = [m.text for window in summariser.windows for m in window.messages]
        assert any("day 2?" in text for text in sent)
        assert not any("secret" in text for text in sent)
        assert not any("secret" in m.text for w in asked.windows[4:] for m in w.messages)

    asyncio.run(main())


def test_a_generator_summarises_completed_turns_only() -> None:
    async def main() -> None:
        answers = iter([ANSWER, RuntimeError("down"), *[ANSWER] * 40])
        asked = ScriptedModel(lambda window: next(answers), name=NAME, budget=4_000)
        summariser = writer()
        made = generator(
            prompt="You are a clerk.",
            history=True,
            user=lambda given: given,
            summary=Summary(summariser),
        )
        async with App("memory:", model=asked) as app:
            for day in range(30):
                try:
                    await made.run(TEXT.format(day), app=app, session="s")
                except RuntimeError:
                    assert day == 1
                await settle()
            assert kept(app)
        sent = "".join(m.text for window in summariser.windows for m in window.messages)
        assert "day 0?" in sent
        assert "day 1?" not in sent
        assert "day 2?" in sent

    asyncio.run(main())


def test_tool_calls_and_results_are_in_the_record_results_cut() -> None:
    async def search(text: str) -> str:
        """Search."""
        return "found 4711 " + "x" * 6_000

    def answers(window: Any) -> Any:
        last = window.messages[-1]
        return (
            ANSWER
            if last.role == "tool"
            else ToolCall(f"c{len(asked.windows)}", "search", '{"text": "Oslo"}')
        )

    asked = ScriptedModel(answers, name=NAME, budget=4_000)

    async def main() -> None:
        summariser = writer()
        async with App("memory:", model=asked) as app:
            chat = app.conversation("s", tools=[search], summary=Summary(summariser))
            for day in range(30):
                await chat.send(TEXT.format(day))
                await settle()
        assert summariser.windows
        text = summariser.windows[0].messages[-1].text
        assert '<call tool="search">{"text": "Oslo"}</call>' in text
        assert '<result tool="search">found 4711' in text
        assert not any(w.over_budget or w.input_cut for w in summariser.windows)

    asyncio.run(main())


def test_a_past_larger_than_the_window_of_the_summariser_takes_several_requests() -> None:
    async def main() -> None:
        small = ScriptedModel(lambda window: f"Summary of {days(window)}.", budget=1_500)
        asked = model()
        async with App("memory:", model=asked, summary=Summary(small, max_tokens=100)) as app:
            await talk(app, 24)
            (made, *_) = kept(app)
        assert len(small.windows) >= 3
        assert all(window.tokens <= 1_500 and not window.input_cut for window in small.windows)
        told_days = [
            n
            for n in range(made.payload["until"])
            if any(f"day {n}?" in m.text for w in small.windows for m in w.messages)
        ]
        assert told_days[:10] == [*range(10)]
        assert made.payload["usage"]["input"] >= sum(w.tokens for w in small.windows[:3])

    asyncio.run(main())


def test_closing_waits_for_a_summary_or_gives_it_up(tmp_path: Any, monkeypatch: Any) -> None:
    async def main(seconds: float) -> list[Any]:
        async def slow(window: Any) -> str:
            await asyncio.sleep(seconds)
            return "Done in time."

        app = App(
            f"sqlite:///{tmp_path / f'{seconds}.db'}",
            model=model(),
            summary=Summary(ScriptedModel(slow)),
        )
        for day in range(20):
            await by_conversation(app, day)
        await app.close()
        assert not [task for task in asyncio.all_tasks() if "_make" in repr(task)]
        return kept(App(f"sqlite:///{tmp_path / f'{seconds}.db'}"))

    monkeypatch.setattr("muntin.runtime.summaries.CLOSE_SECONDS", 1.0)
    assert [item.payload["text"] for item in asyncio.run(main(0.3))] == ["Done in time."]
    assert asyncio.run(main(3_600)) == []


def test_two_apps_on_one_store_make_one_summary(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"

    async def main() -> None:
        begun = 0

        async def slow(window: Any) -> str:
            nonlocal begun
            begun += 1
            await asyncio.sleep(0.2)
            return "One."

        asked, summary = model(), Summary(ScriptedModel(slow))
        one = App(url, model=asked, summary=summary)
        async with one, App(url, model=asked, summary=summary) as other:
            for day in range(20):
                await by_conversation(one if day % 2 else other, day)
            await settle()
            assert [item.payload["text"] for item in kept(one)] == ["One."]
        assert begun == 1

    asyncio.run(main())


@pytest.mark.parametrize("off", [False, None])
def test_each_door_may_have_its_own_or_none(off: Literal[False] | None) -> None:
    async def main() -> None:
        theirs, own = writer(), writer()
        async with App("memory:", model=model(), summary=Summary(theirs)) as app:
            for day in range(20):
                await app.conversation("a", summary=off).send(TEXT.format(day))
                await app.conversation("b", summary=Summary(own)).send(TEXT.format(day))
                await settle()
        assert theirs.windows == []
        assert own.windows

    asyncio.run(main())


def test_without_prices_a_summarised_history_steps_too() -> None:
    async def main() -> None:
        asked = ScriptedModel(lambda window: ANSWER, budget=4_000)
        async with App("memory:", model=asked, summary=Summary(writer())) as app:
            await talk(app, 30)
        assert told(asked.windows[-1]) is not None
        assert len({first_day(window) for window in asked.windows}) < 10

    asyncio.run(main())


def test_the_prompt_replaces_the_instruction() -> None:
    async def main() -> None:
        summariser = writer()
        summary = Summary(summariser, prompt="Only the dates.", max_tokens=50)
        async with App("memory:", model=model(), summary=summary) as app:
            await talk(app, 20)
        assert summariser.windows[0].messages[0].text == "Only the dates."

    asyncio.run(main())


def test_wrong_summaries_are_refused_by_name() -> None:
    for wrong in (7, None, object()):
        with pytest.raises(InvalidInput, match=r"Summary\.model"):
            Summary(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"Summary\.prompt is blank"):
        Summary("x/y", prompt="  ")
    with pytest.raises(InvalidInput, match=r"Summary\.max_tokens"):
        Summary("x/y", max_tokens=0)
    with pytest.raises(InvalidInput, match=r"Summary\.timeout"):
        Summary("x/y", timeout=-1)
    with pytest.raises(InvalidInput, match="App: summary must be Summary"):
        App("memory:", summary="x/y")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="generator 'generator': summary"):
        generator(prompt="x", summary=True)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"never does with trimming=Exact\(\)"):
        App("memory:", model=model()).conversation("s", trimming=Exact(), summary=Summary("x/y"))


def test_a_summariser_without_room_is_a_failure_that_says_what_to_do() -> None:
    async def main() -> None:
        asked = model()
        tiny = ScriptedModel(lambda window: "no", budget=200)
        async with App("memory:", model=asked, summary=Summary(tiny)) as app:
            await talk(app, 21)
        details = [r.detail for w in asked.windows for r in w.report.slots if r.name == "summary"]
        assert any("has no room for a summary of 800 tokens" in (each or "") for each in details)
        assert tiny.windows == []

    asyncio.run(main())


def test_what_another_version_kept_is_as_if_it_were_not_there() -> None:
    from muntin.timeline.items import SideWrites

    app = App("memory:")
    app.session("s").append(Message("user", "hello"))
    for text in ("[", "[]", '{"other": 1}'):
        app.store.put("s", SideWrites(notes={("summary", "window"): text}))
        assert State.load(app.session("s"), "window") == State()


def read_kept(url: str) -> list[Any]:
    with open_store(url) as store:
        return [item for item in store.read("c") if item.kind == "summary"]


def asked_for(log: Path) -> int:
    return len(log.read_text(encoding="utf-8").splitlines()) if log.exists() else 0


def test_a_summary_whose_process_was_killed_is_made_again(
    start: Start, lasting_url: str, tmp_path: Path
) -> None:
    url, log = lasting_url, tmp_path / "log"
    first = start("summarise", url=url, log=str(log), turns=12, stop=True)
    assert first.stdout is not None
    assert first.stdout.readline().strip() == "making"
    first.kill()
    first.wait()
    assert (read_kept(url), asked_for(log)) == ([], 1)
    second = start("summarise", url=url, log=str(log), turns=3)
    assert second.wait(30) == 0
    made = read_kept(url)
    assert [item.payload["text"] for item in made][:1] == ["What was said."]
    assert min(made[0].payload["items"]) == 1
    with open_store(url) as store:
        assert all(turn.status in ("completed", "failed") for turn in store.turns("c"))


def test_several_processes_make_one_summary(start: Start, lasting_url: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with open_store(lasting_url):
        pass  # the tables are made
    processes = [start("summarise", url=lasting_url, log=str(log), turns=4) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    made = read_kept(lasting_url)
    assert made
    assert asked_for(log) == len(made)
    items = [position for each in made for position in each.payload["items"]]
    assert len(items) == len(set(items))
