"""Wakes at a time: durable, once for each due time, and again and again."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from muntin import InvalidInput
from muntin.runtime.ctx import Ctx, Wake
from muntin.timeline.timers import Timer
from tests.runtime.conftest import run
from tests.runtime.engine.conftest import Make, until, working


def noting(woken: list[Any]) -> Any:
    async def handler(ctx: Ctx, wake: Wake) -> None:
        woken.extend(item.content for item in ctx.events)

    return handler


def test_a_wake_comes_at_its_time_and_once(make: Make):
    woken: list[Any] = []

    async def work() -> None:
        app, other = make(), make()
        for each in (app, other):
            each.entity("e")(noting(woken))
        async with working(app), working(other):
            began = datetime.now(UTC)
            soon = await app.wake("e/1", "soon", after=0.3)
            late = await app.wake("e/2", "late", at=began + timedelta(seconds=0.5), sender="ada")
            assert await app.timers("e/1") == [soon]
            assert woken == []
            await until(lambda: len(woken) == 2)
            assert datetime.now(UTC) - began > timedelta(seconds=0.5)
            await asyncio.sleep(1.2)
        assert sorted(woken) == ["late", "soon"]
        assert await app.timers("e/1") == []
        (item,) = (each for each in app.store.read("e/2") if each.kind == "wake")
        assert item.meta == {"sender": "ada", "timer": late.id, "due": late.due.isoformat()}

    run(work())


def test_a_wake_outlives_the_process_that_asked_for_it(make: Make):
    woken: list[Any] = []

    async def work() -> None:
        app = make()
        await app.close()
        asked = make()
        asked.entity("e")(noting(woken))
        await asked.wake("e/1", "later", after=0.05)
        await asked.close()
        await asyncio.sleep(0.2)
        later = make()
        later.entity("e")(noting(woken))
        async with working(later):
            await until(lambda: woken)
        assert woken == ["later"]

    run(work())


def test_a_wake_can_be_cancelled_or_put_off_by_its_id(make: Make):
    woken: list[Any] = []

    async def work() -> None:
        app = make()
        app.entity("e")(noting(woken))
        async with working(app):
            timer = await app.wake("e/1", "never", after=0.4)
            assert await app.drop_timer("e/1", timer.id)
            assert not await app.drop_timer("e/1", timer.id)
            await app.wake("e/2", "first", after=0.3, id="reminder")
            await app.wake("e/2", "second", after=0.6, id="reminder")
            await app.wake("e/3", "deleted", after=0.3)
            app.store.delete("e/3")
            await until(lambda: woken)
            await asyncio.sleep(0.3)
        assert woken == ["second"]

    run(work())


def test_an_entity_is_woken_again_and_again_from_its_first_message_on(make: Make):
    woken: list[Any] = []

    async def work() -> None:
        app, other = make(), make()
        for each in (app, other):
            each.entity("e", every="1s")(noting(woken))
        async with working(app), working(other):
            await app.send("e/1", "hello")
            await until(lambda: len(woken) >= 4)
        ((timer,),) = [await app.timers("e/1")]
        assert timer.every == "1s"
        assert woken[0] == "hello"
        due = [datetime.fromisoformat(each["due"]) for each in woken[1:]]
        assert len(set(due)) == len(due)  # two workers, each due time once
        spans = [later - first for first, later in pairwise(due)]
        assert all(span % timedelta(seconds=1) == timedelta(0) for span in spans)

    run(work())


def test_what_was_missed_comes_once_and_a_schedule_that_is_gone_no_more(make: Make):
    woken: list[Any] = []

    async def work() -> None:
        app = make()
        app.entity("e", every="5m")(noting(woken))
        app.entity("gone")(noting(woken))
        past = datetime.now(UTC) - timedelta(minutes=17)
        app.store.put_timer(Timer("e/1", "every", past, every="5m"))
        app.store.put_timer(Timer("gone/1", "every", past, every="5m"))
        async with working(app):
            await until(lambda: woken)
            await asyncio.sleep(0.3)
        assert woken == [{"every": "5m", "due": past.isoformat()}]
        (timer,) = await app.timers("e/1")
        assert timer.due == past + timedelta(minutes=20)
        assert await app.timers("gone/1") == []

    run(work())


def test_a_timer_of_a_type_that_is_not_known_waits_for_who_knows_it(make: Make):
    woken: list[Any] = []

    async def work() -> None:
        app, new = make(), make()
        app.entity("old")(noting(woken))
        app.store.put_timer(Timer("new/1", "t", datetime.now(UTC), "hello"))
        async with working(app):
            await asyncio.sleep(0.3)
            assert [each.id for each in await app.timers("new/1")] == ["t"]
            new.entity("new")(noting(woken))
            async with working(new):
                await until(lambda: woken)
        assert woken == ["hello"]

    run(work())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"at": datetime(2030, 1, 1)}, "at must be a datetime with a time zone"),
        ({"at": "tomorrow"}, "at must be a datetime with a time zone"),
        ({"after": 0}, "after must be a number of seconds above 0"),
        ({"after": timedelta(seconds=-1)}, "after must be a number of seconds above 0"),
        ({"after": 1, "at": datetime(2030, 1, 1, tzinfo=UTC)}, "give one of them"),
        ({"after": 1, "id": "every"}, "the id 'every' is that of the wakes which"),
        ({"id": "mine"}, "give at= or after= too"),
    ],
)
def test_what_is_no_time_is_refused(make: Make, given, told):
    app = make()
    app.entity("e")(noting([]))
    with pytest.raises(InvalidInput, match=told):
        run(app.wake("e/1", "hello", **given))
