"""A process that finds unfinished work says so; `await app.resume()` returns when it is done."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

from muntin import App, Session, ToolCall, generator, user
from muntin.runtime import Ctx
from muntin.runtime.engine import Resumed
from muntin.testing import ScriptedModel
from muntin.timeline.items import Draft
from muntin.timeline.store import open_store
from tests.products import NAMES, PRICED
from tests.runtime.conftest import run, statuses


def leave(url: str, *entities: str) -> None:
    """Leave messages that nobody has handled."""
    for entity in entities:
        session = Session(entity, store=url)
        session.store.append(entity, [Draft("message", message=user("left"), opens="inbox")])
        session.store.close()


def test_resume_takes_up_what_waits_and_returns_when_it_is_done(tmp_path, caplog):
    url = f"sqlite:///{tmp_path / 'm.db'}"
    leave(url, "e/1", "e/2", "other/1")
    handled: list[str] = []

    async def work() -> None:
        app = App(url, model=ScriptedModel([], name=PRICED))

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Any) -> None:
            await asyncio.sleep(0.1)
            handled.append(ctx.session.id)

        with caplog.at_level(logging.WARNING, "muntin"):
            assert await app.resume() == Resumed(("e/1", "e/2"))
        assert sorted(handled) == ["e/1", "e/2"]
        assert (statuses(app, "e/1"), statuses(app, "other/1")) == (["completed"], ["pending"])
        assert await app.resume() == Resumed()
        await app.close()

    run(work())
    assert "resumed unfinished work: turn 1 of 'e/1'" in caplog.text


def test_resume_says_what_it_left_and_why(tmp_path):
    url = f"sqlite:///{tmp_path / 'm.db'}"
    gone, lease = timedelta(seconds=-1), timedelta(minutes=1)
    leave(url, "e/done", "e/busy", "e/paused", "e/poison")
    with open_store(url) as store:
        store.take("e/busy", "another-machine:1:1:x", lease, resumable=True)
        for entity, tries in (("e/done", 1), ("e/poison", 5), ("e/paused", 4)):
            for _ in range(tries):
                store.database.transact(lambda tx: tx.run("UPDATE muntin_turns SET after = 0"))
                assert store.take(entity, "dead", gone, resumable=True)

    async def work() -> None:
        app = App(url, model=ScriptedModel([], name=PRICED))

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Any) -> None:
            await app.send("next/1", "go on")

        @app.entity("next")
        async def next_one(ctx: Ctx, wake: Any) -> None:
            await asyncio.sleep(0.1)

        resumed = await app.resume()
        assert resumed.handled == ("e/done", "next/1")
        assert sorted(resumed.left) == ["e/busy", "e/paused", "e/poison"]
        assert resumed.left["e/busy"] == "turn 1 is handled by another process"
        assert resumed.left["e/paused"].startswith("turn 1 is tried again after 20")
        assert resumed.left["e/poison"].startswith("turn 1 was given up")
        assert statuses(app, "next/1") == ["completed"]
        assert "e/poison" not in (await app.resume()).left
        await app.close()

    run(work())


def test_turns_that_a_process_died_with_are_all_tried_by_one_resume(tmp_path):
    url = f"sqlite:///{tmp_path / 'm.db'}"
    entities = [f"e/{number}" for number in range(4)]
    leave(url, *entities)
    with open_store(url) as store:
        for entity in entities:
            store.take(entity, "dead", timedelta(seconds=-1), resumable=True)
    at_once: list[int] = []

    async def work() -> None:
        app = App(url, model=ScriptedModel([], name=PRICED))
        running: set[str] = set()

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Any) -> None:
            running.add(ctx.session.id)
            at_once.append(len(running))
            await asyncio.sleep(0.1)
            running.remove(ctx.session.id)

        assert await app.resume() == Resumed(tuple(entities))
        await app.close()

    run(work())
    assert at_once == [1, 1, 1, 1]


def test_a_suspected_turn_that_asks_another_one_does_not_hinder_it(tmp_path):
    url = f"sqlite:///{tmp_path / 'm.db'}"
    leave(url, "e/1", "other/1")
    with open_store(url) as store:
        for entity in ("e/1", "other/1"):
            store.take(entity, "dead", timedelta(seconds=-1), resumable=True)

    async def work() -> None:
        app = App(url, model=ScriptedModel(["done"], name=PRICED))

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Any) -> None:
            await app.ask("other/1", "well?")

        @app.entity("other")
        async def other(ctx: Ctx, wake: Any) -> None:
            pass

        resumed = await asyncio.wait_for(app.resume(), 20)
        assert resumed == Resumed(("e/1", "other/1"))
        await app.close()

    run(work())


def test_resume_is_not_stopped_by_a_wake_that_fails(tmp_path):
    url = f"sqlite:///{tmp_path / 'm.db'}"
    leave(url, "e/1", "e/2")

    async def work() -> None:
        app = App(url, model=ScriptedModel([], name=PRICED))

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Any) -> None:
            if ctx.session.id == "e/1":
                raise ValueError("no")

        assert await app.resume() == Resumed(("e/1", "e/2"))
        assert (statuses(app, "e/1"), statuses(app, "e/2")) == (["failed"], ["completed"])
        await app.close()

    run(work())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("side_by_side", [False, True])
def test_after_a_restart_each_run_inside_has_the_answer_to_its_own_question(
    tmp_path, name, side_by_side
):
    url = f"sqlite:///{tmp_path / 'm.db'}"
    places = ["France", "Peru", "Chad"]
    answered: list[str] = []

    async def work(hangs: str | None) -> None:
        hanging = asyncio.Event()

        async def reply(window: Any) -> Any:
            if window.messages[0].text == "You answer.":
                question = window.messages[-1].text
                if question == hangs:
                    hanging.set()
                    await asyncio.sleep(60)
                return f"answer to {question}"
            done = sum(message.role == "tool" for message in window.messages)
            if side_by_side or done == len(places):
                return "done"
            return ToolCall("c", "look", f'{{"place": "{places[done]}"}}')  # one id for all

        sub = generator(prompt="You answer.", user=lambda question: question)
        app = App(url, model=ScriptedModel(reply, name=name))

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Any) -> None:
            async def look(place: str) -> str:
                """Look up."""
                answered.append((await ctx.run(sub, place)).text)
                return answered[-1]

            if side_by_side:
                answered[:] = await asyncio.gather(*map(look, reversed(places)))
            ctx.use_agent(tools=[look])
            await ctx.agent.run()

        app._wakes.engine.start()
        await hanging.wait() if hangs else await app.resume()
        await app.close(timeout=0.01)

    leave(url, "e/1")
    run(work("Peru"))
    run(work(None))
    assert sorted(answered) == sorted(f"answer to {place}" for place in places)
    if side_by_side:
        assert answered == [f"answer to {place}" for place in reversed(places)]
    with open_store(url) as store:
        results = [item for item in store.read("e/1") if item.kind == "tool_result"]
        texts = [item.message.text for item in results if item.message]
    assert texts == ([] if side_by_side else [f"answer to {place}" for place in places])


def test_the_sweep_says_what_it_found(tmp_path, caplog):
    url = f"sqlite:///{tmp_path / 'm.db'}"
    leave(url, "e/1")
    handled = asyncio.Event()

    async def work() -> None:
        async with App(url, model=ScriptedModel([], name=PRICED)) as app:

            @app.entity("e")
            async def handler(ctx: Ctx, wake: Any) -> None:
                handled.set()

            await handled.wait()

    with caplog.at_level(logging.WARNING, "muntin"):
        run(work())
    assert "resumed unfinished work: turn 1 of 'e/1'" in caplog.text


def test_a_turn_that_a_dead_process_left_is_named_when_it_is_marked_failed(tmp_path, caplog):
    url = f"sqlite:///{tmp_path / 'm.db'}"
    session = Session("c", store=url)
    turn = session.turn()
    opened = turn.__enter__()
    opened.append(user("hi"))
    opened.release()  # as if the process had died
    with caplog.at_level(logging.WARNING, "muntin"):
        Session("c", store=url).messages()
    assert "turn 1 of session 'c' was left unfinished" in caplog.text


def test_what_this_process_sent_is_not_called_unfinished(caplog):
    async def work() -> None:
        async with App("memory:", model=ScriptedModel([], name=PRICED)) as app:

            @app.entity("e")
            async def handler(ctx: Ctx, wake: Any) -> None:
                return None

            await app.ask("e/1", "hi")

    with caplog.at_level(logging.WARNING, "muntin"):
        run(work())
    assert caplog.text == ""
