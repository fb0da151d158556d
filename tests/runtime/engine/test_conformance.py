"""What every engine promises, asked of each of them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from muntin import InvalidInput, user
from muntin.errors import Overloaded, StoreError
from muntin.runtime.app import App
from muntin.runtime.ctx import Ctx, Wake
from muntin.runtime.engine import Embedded, Engine, EngineState, as_engine
from muntin.runtime.engine import worker as workers
from muntin.timeline.items import Draft
from tests.runtime.conftest import run, statuses
from tests.runtime.engine.conftest import Make, settled, until, working


class Told:
    """An engine that notes what it is told of, and may refuse it."""

    def __init__(self, engine: Engine, refuses: bool = False) -> None:
        self._engine = engine
        self._refuses = refuses
        self.waiting: list[tuple[str, int]] = []

    def waits(self, tx: Any, session: str, turn: int, *, priority: int = 0) -> None:
        self.waiting.append((session, turn))
        self._engine.waits(tx, session, turn, priority=priority)
        if self._refuses:
            raise StoreError("the engine has no room")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def told(make: Make, refuses: bool = False) -> tuple[App, Told]:
    name = "procrastinate" if make().store.name.startswith("postgresql") else "embedded"
    engine = Told(as_engine(name), refuses)
    return make(engine=engine), engine


# One at a time, in order.


def test_one_handler_at_a_time_for_each_entity_and_in_order(make: Make):
    working_on: set[str] = set()
    handled: dict[str, list[Any]] = {f"e/{n}": [] for n in range(5)}

    async def work() -> None:
        app = make()

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Wake) -> None:
            id = ctx.session.id
            assert id not in working_on
            working_on.add(id)
            await asyncio.sleep(0.005)
            handled[id].extend(item.content for item in ctx.events)
            working_on.discard(id)

        async with working(app):
            for number in range(15):
                await asyncio.gather(*(app.send(entity, number) for entity in handled))
            await until(lambda: settled(app, *handled))
            assert all(found == list(range(15)) for found in handled.values())
            assert {status for each in handled for status in statuses(app, each)} == {"completed"}

    run(work())


def test_two_workers_never_handle_one_entity_at_once(make: Make):
    at_work = 0
    handled: list[Any] = []

    async def handler(ctx: Ctx, wake: Wake) -> None:
        nonlocal at_work
        at_work += 1
        assert at_work == 1
        await asyncio.sleep(0.01)
        handled.extend(item.content for item in ctx.events)
        at_work -= 1

    async def work() -> None:
        one, two = make(), make()
        for app in (one, two):
            app.entity("e")(handler)
        async with working(one), working(two):
            for number in range(20):
                await (one, two)[number % 2].send("e/1", number)
                await asyncio.sleep(0.005)
            await until(lambda: settled(one, "e/1"))
        assert handled == list(range(20))

    run(work())


def test_what_comes_during_a_wake_is_one_wake_and_the_engine_is_told_once(make: Make):
    seen: list[list[Any]] = []

    async def work() -> None:
        app, engine = told(make)
        go = asyncio.Event()

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Wake) -> None:
            seen.append([item.content for item in ctx.events])
            await go.wait()

        async with working(app):
            await app.send("e/1", 0)
            await until(lambda: seen)
            for number in range(1, 11):
                await app.send("e/1", number)
            go.set()
            await until(lambda: settled(app, "e/1"))
        assert seen == [[0], list(range(1, 11))]
        assert engine.waiting == [("e/1", 1), ("e/1", 2)]

    run(work())


def test_an_append_that_the_engine_refuses_is_not_there(make: Make):
    async def work() -> None:
        app, engine = told(make, refuses=True)
        app.entity("e")(_nothing)
        with pytest.raises(StoreError, match="no room"):
            await app.send("e/1", "hello")
        assert engine.waiting == [("e/1", 1)]
        assert app.store.sessions(id="e/1") == []
        assert (await app.state()).waiting == 0
        await app.close()

    run(work())


# Ends.


def test_a_handler_that_raises_fails_its_turn_and_is_not_called_again(make: Make):
    called: list[Any] = []

    async def work() -> None:
        app = make()

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Wake) -> None:
            called.append(wake.payload)
            if wake.payload == "bad":
                raise ZeroDivisionError("by zero")

        async with working(app):
            with pytest.raises(ZeroDivisionError):
                await app.ask("e/1", "bad")
            await app.ask("e/1", "good")
            await asyncio.sleep(1.2)  # longer than a poll
        assert called == ["bad", "good"]
        assert statuses(app, "e/1") == ["failed", "completed"]
        assert (await app.state()) == EngineState()

    run(work())


def test_a_wake_that_waits_can_be_cancelled(make: Make):
    handled: list[Any] = []

    async def work() -> None:
        app = make()
        app.entity("e")(_noting(handled))
        item = await make_only_sends(make, "e/1", "first")
        assert await app.cancel("e/1", item.turn)
        assert not await app.cancel("e/1", item.turn)
        assert not await app.cancel("e/1", 77)
        async with working(app):
            await app.ask("e/1", "second")
        assert handled == ["second"]
        assert statuses(app, "e/1") == ["failed", "completed"]

    run(work())


def test_a_wake_that_runs_is_cancelled_where_it_runs(make: Make):
    ended: list[Any] = []

    async def work() -> None:
        app, sender = make(), make()
        begun = asyncio.Event()

        async def handler(ctx: Ctx, wake: Wake) -> None:
            begun.set()
            try:
                await asyncio.sleep(0 if wake.payload == "quick" else 60)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise
            ended.append(wake.payload)

        app.entity("e")(handler)
        sender.entity("e")(handler)
        # The embedded engine stops what runs in its own process.
        asks = sender if app.store.name.startswith("postgresql") else app
        async with working(app):
            item = await app.send("e/1", "long")
            await begun.wait()
            assert await asks.cancel("e/1", item.turn)
            await until(lambda: ended)
            await app.ask("e/1", "quick")
        assert ended == ["cancelled", "quick"]
        assert statuses(app, "e/1") == ["failed", "completed"]
        assert app.store.turns("e/1")[-1].reason == "cancelled"

    run(work())


def test_stopping_begins_nothing_and_leaves_the_rest_to_others(make: Make):
    begun: list[Any] = []

    async def work() -> None:
        app = make()
        go = asyncio.Event()

        async def handler(ctx: Ctx, wake: Wake) -> None:
            begun.append(ctx.session.id)
            await go.wait()

        app.entity("e")(handler)
        stop = asyncio.Event()
        task = asyncio.create_task(app.work(concurrency=1, stop=stop, timeout=0.1))
        await app.send("e/1", "runs")
        await until(lambda: begun)
        await app.send("e/2", "waits")
        stop.set()
        assert await task == ("e/1",)
        assert begun == ["e/1"]
        assert statuses(app, "e/1") == ["open"]
        assert statuses(app, "e/2") == ["pending"]
        go.set()
        other = make()
        other.entity("e")(handler)
        async with working(other):
            await until(lambda: settled(other, "e/1", "e/2"))
        assert sorted(begun) == ["e/1", "e/1", "e/2"]
        assert statuses(other, "e/1") == statuses(other, "e/2") == ["completed"]
        await app.close()

    run(work())


# How many, and who comes first.


def test_no_more_run_at_once_than_the_worker_and_the_type_may(make: Make):
    running: dict[str, int] = {"e": 0, "few": 0}
    most: dict[str, int] = {"all": 0, "few": 0}

    async def work() -> None:
        app = make()

        async def handler(ctx: Ctx, wake: Wake) -> None:
            kind = ctx.session.id.partition("/")[0]
            running[kind] += 1
            most["all"] = max(most["all"], sum(running.values()))
            most["few"] = max(most["few"], running["few"])
            await asyncio.sleep(0.2)
            running[kind] -= 1

        app.entity("e")(handler)
        app.entity("few", at_once=1)(handler)
        names = [f"{kind}/{n}" for n in range(6) for kind in ("few", "e")]
        for name in names:
            await make_only_sends(make, name, "go", kinds=("e", "few"))
        async with working(app, concurrency=3):
            await until(lambda: settled(app, *names))
        assert most == {"all": 3, "few": 1}

    run(work())


def test_the_type_with_the_higher_priority_comes_first(make: Make):
    handled: list[str] = []

    async def work() -> None:
        app = make()
        go = asyncio.Event()

        async def handler(ctx: Ctx, wake: Wake) -> None:
            handled.append(ctx.session.id)
            await go.wait()

        app.entity("low", priority=-5)(handler)
        app.entity("e")(handler)
        app.entity("high", priority=5)(handler)
        async with working(app, concurrency=1):
            await app.send("e/first", "go")
            await until(lambda: handled)
            for name in ("low/1", "e/1", "high/1", "e/2", "high/2"):
                await app.send(name, "go")
            go.set()
            await until(lambda: settled(app, "low/1"))
        assert handled == ["e/first", "high/1", "high/2", "e/1", "e/2", "low/1"]

    run(work())


def test_more_than_may_wait_for_an_entity_is_refused_by_name(make: Make):
    async def work() -> None:
        app = make(engine=_Idle.of(make))
        app.entity("e", max_pending=2)(_nothing)
        await app.send("e/1", 1)
        await app.send("e/1", 2)
        with pytest.raises(Overloaded, match=r"'e/1' has 2 waiting.*max_pending"):
            await app.send("e/1", 3)
        await app.send("e/2", 1)
        assert [item.content for item in app.store.read("e/1")] == [1, 2]

    run(work())


def test_more_than_may_wait_for_an_app_is_refused(make: Make, monkeypatch):
    monkeypatch.setattr("muntin.runtime.inbox.LOOK_SECONDS", 0.0)

    async def work() -> None:
        app = make(engine=_Idle.of(make), max_pending=2)
        app.entity("e")(_nothing)
        await app.send("e/1", 1)
        await app.send("e/2", 1)
        with pytest.raises(Overloaded, match="2 wakes wait, and no more than 2 may"):
            await app.send("e/3", 1)
        assert app.store.sessions(id="e/3") == []
        assert (await app.state()).waiting == 2
        assert (await app.state()).since is not None

    run(work())


# Who is busy, and who is unknown.


def test_a_wake_waits_for_a_conversation_that_holds_the_session(make: Make):
    handled: list[Any] = []

    async def work() -> None:
        app = make()
        app.entity("e")(_noting(handled))
        async with working(app):
            with app.session("e/1").turn() as turn:
                turn.append(user("hold on"))
                await app.send("e/1", "hello")
                await asyncio.sleep(0.5)
                assert handled == []
            await until(lambda: handled)
        assert handled == ["hello"]

    run(work())


def test_a_worker_leaves_types_that_it_does_not_know_to_others(make: Make):
    handled: list[Any] = []

    async def work() -> None:
        await make_only_sends(make, "new/1", "new", kinds=("old", "new"))
        await make_only_sends(make, "old/1", "old", kinds=("old", "new"))
        old, new = make(), make()
        old.entity("old")(_noting(handled))
        async with working(old):
            await until(lambda: handled)
            await asyncio.sleep(0.2)
            assert handled == ["old"]
            assert statuses(old, "new/1") == ["pending"]
            new.entity("new")(_noting(handled))
            async with working(new):
                await until(lambda: len(handled) == 2)
        assert handled == ["old", "new"]

    run(work())


def test_what_was_sent_past_the_engine_is_found(make: Make, monkeypatch):
    """Under another engine, by a program that has none, or by hand."""
    monkeypatch.setattr("muntin.runtime.engine.procrastinate.ADOPT_SECONDS", 0.2)
    handled: list[Any] = []

    async def work() -> None:
        app = make()
        app.store.append("e/1", [Draft("message", message=user("hi"), opens="inbox")])
        app.entity("e")(_noting(handled))
        async with working(app):
            await until(lambda: handled)
            app.store.append("e/2", [Draft("message", message=user("ho"), opens="inbox")])
            await until(lambda: len(handled) == 2)
        assert handled == ["hi", "ho"]

    run(work())


def test_a_store_that_was_away_is_tried_again(make: Make, monkeypatch, caplog):
    caplog.set_level(logging.CRITICAL)
    monkeypatch.setattr(workers, "BACK_OFF_SECONDS", 0.05)
    monkeypatch.setattr("muntin.runtime.engine.embedded.POLL_SECONDS", 0.05)
    handled: list[Any] = []

    async def work() -> None:
        app = make()
        app.entity("e")(_noting(handled))
        take, failures = app.store.take, [StoreError("away"), StoreError("away")]

        def away(*given: Any, **named: Any) -> Any:
            if failures:
                raise failures.pop()
            return take(*given, **named)

        monkeypatch.setattr(app.store, "take", away)
        async with working(app):
            await app.ask("e/1", "hello")
        assert handled == ["hello"]
        assert failures == []
        assert statuses(app, "e/1") == ["completed"]

    run(work())


def test_an_engine_is_named_or_given():
    with pytest.raises(InvalidInput, match=r"no engine 'celery'.*'procrastinate'"):
        App("memory:", engine="celery")
    with pytest.raises(InvalidInput, match="must be an Engine"):
        App("memory:", engine=5)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"needs a store in PostgreSQL, not 'memory:'"):
        App("memory:", engine="procrastinate")
    with pytest.raises(InvalidInput, match="at_once must be at least 1"):
        Embedded(at_once=0)
    engine = Embedded()
    App("memory:", engine=engine)
    with pytest.raises(InvalidInput, match="an engine belongs to one app"):
        App("memory:", engine=engine)


# Words.


async def _nothing(ctx: Ctx, wake: Wake) -> None:
    pass


def _noting(handled: list[Any]) -> Any:
    async def handler(ctx: Ctx, wake: Wake) -> None:
        handled.append(wake.payload)

    return handler


class _Idle:
    """Tells an engine of what waits, and has nothing run."""

    @staticmethod
    def of(make: Make) -> Engine:
        if make().store.name.startswith("postgresql"):
            return as_engine("procrastinate")
        engine = Embedded()
        engine.start = lambda: None  # type: ignore[method-assign]
        engine.stored = lambda session, turn: None  # type: ignore[method-assign]
        return engine


async def make_only_sends(make: Make, entity: str, payload: Any, kinds: tuple[str, ...] = ("e",)):
    """Send from an app that handles nothing."""
    app = make(engine=_Idle.of(make))
    for kind in kinds:
        app.entity(kind)(_nothing)
    return await app.send(entity, payload)
