"""A ctx whose turn has ended cannot write: the attempt is an error that says so, changes nothing
and wakes nobody."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import App, MuntinError, Tool, generator
from muntin.runtime import Ctx
from muntin.runtime.engine import embedded
from muntin.testing import MemoryStore, ScriptedModel
from tests.interfaces import LOOKING
from tests.products import PRICED, sample
from tests.runtime.conftest import call, run

Make: TypeAlias = Callable[[], App]
WORKER = generator(
    name="worker", model=ScriptedModel(lambda window: "worked", name=PRICED), user="go"
)


@pytest.fixture(params=["memory", "sqlite"])
def make(request: Any, tmp_path: Path) -> Make:
    """Return what opens an app on an empty store."""
    model = ScriptedModel(lambda window: "ok", name=PRICED)
    if request.param == "memory":
        store = MemoryStore()
        return lambda: App(store, model=model)
    return lambda: App(f"sqlite:///{tmp_path / 'store.db'}", model=model)


@pytest.fixture(autouse=True)
def swept_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for entities that wait every few milliseconds."""
    monkeypatch.setattr(embedded, "POLL_SECONDS", 0.02)


def note(ctx: Ctx) -> None:
    ctx.insert_context("kept", name="Kept", content="before")


async def left_by(interface: str, app: App) -> Ctx:
    """Return the ctx of a turn that has ended, in which an entry was inserted."""

    def look(ctx: Ctx) -> Ctx:
        note(ctx)
        if interface == "entity":
            ctx.use_agent()
        return ctx

    return cast(Ctx, await LOOKING[interface](app, look))


# The writing methods.


def insert(ctx: Ctx) -> Any:
    return ctx.insert_context("late", name="Late", content="too late")


def replace(ctx: Ctx) -> Any:
    return ctx.insert_context("kept", name="Kept", content="too late")


def remove(ctx: Ctx) -> Any:
    return ctx.remove_context("kept")


def run_generator(ctx: Ctx) -> Any:
    return ctx.run(WORKER)


def run_agent(ctx: Ctx) -> Any:
    return ctx.agent.run()


WRITES = [insert, replace, remove, run_generator]


# The ways to call them.


async def on_the_loop(write: Callable[[Ctx], Any], ctx: Ctx) -> None:
    result = write(ctx)
    if isinstance(result, Awaitable) and write in (run_generator, run_agent):
        await result


async def awaited(write: Callable[[Ctx], Any], ctx: Ctx) -> None:
    result = write(ctx)
    if isinstance(result, Awaitable):
        await result


async def in_a_thread(write: Callable[[Ctx], Any], ctx: Ctx) -> None:
    def work() -> None:
        result = write(ctx)
        if asyncio.iscoroutine(result):
            asyncio.run(result)

    await asyncio.to_thread(work)


WAYS = [on_the_loop, awaited, in_a_thread]


def snapshot(app: App, session: str) -> Any:
    """Return all that a store knows of a session."""
    store = app.store
    entries = [item.payload for item in store.read(session, live=True)]
    return store.read(session), store.turns(session), entries, len(store.reports(session))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("interface", sample(LOOKING, "entity", "strategy", "flow"))
def test_a_kept_ctx_writes_nothing_and_wakes_nobody(make, interface, write, way):
    async def work() -> None:
        async with make() as app:
            ctx = await left_by(interface, app)
            before = snapshot(app, ctx.session.id)
            with pytest.raises(MuntinError, match=rf"turn 1 of '{ctx.session.id}' is over"):
                await way(write, ctx)
            await asyncio.sleep(0.08)  # several sweeps
            assert snapshot(app, ctx.session.id) == before
            assert [turn.status for turn in app.store.turns(ctx.session.id)] == ["completed"]

    run(work())


@pytest.mark.parametrize("way", WAYS)
def test_a_kept_ctx_runs_no_agent(make, way):
    async def work() -> None:
        async with make() as app:
            ctx = await left_by("entity", app)
            before = snapshot(app, "s/1")
            with pytest.raises(MuntinError, match="turn 1 of 's/1' is over"):
                await way(run_agent, ctx)
            assert snapshot(app, "s/1") == before
            assert isinstance(app.model, ScriptedModel)
            assert app.model.windows == []

    run(work())


def test_the_handler_does_not_run_again_because_of_a_late_write(make):
    handled: list[Ctx] = []

    async def work() -> None:
        async with make() as app:
            assert isinstance(app, App)

            @app.entity("e")
            async def handler(ctx: Ctx, wake: object) -> None:
                handled.append(ctx)

            await app.ask("e/1", "hi")
            with pytest.raises(MuntinError):
                insert(handled[0])
            await asyncio.sleep(0.2)

    run(work())
    assert len(handled) == 1


def test_a_tool_that_outran_its_time_out_cannot_write_into_a_later_turn(make):
    told: list[str] = []

    async def work() -> None:
        model = ScriptedModel([call("slow"), "gave up", "hello again"], name=PRICED)
        async with make() as app:
            assert isinstance(app, App)

            @app.entity("e")
            async def handler(ctx: Ctx, wake: object) -> None:
                def slow() -> str:
                    """Take long."""
                    time.sleep(0.4)
                    try:
                        insert(ctx)
                    except MuntinError as error:
                        told.append(str(error))
                    return "done"

                ctx.use_agent(model=model, tools=[Tool(slow, timeout=0.05)])
                await ctx.agent.run()

            await app.ask("e/1", "one")
            await app.ask("e/1", "two")
            before = snapshot(app, "e/1")
            async with asyncio.timeout(60):
                while not told:
                    await asyncio.sleep(0.05)
            assert snapshot(app, "e/1") == before
            assert [turn.status for turn in app.store.turns("e/1")] == ["completed"] * 2

    run(work())
    assert len(told) == 1
    assert "turn 1 of 'e/1' is over" in told[0]


def test_a_task_that_outlives_the_handler_is_told(make):
    tasks: list[asyncio.Task[None]] = []

    async def work() -> None:
        async with make() as app:
            assert isinstance(app, App)

            @app.entity("e")
            async def handler(ctx: Ctx, wake: object) -> None:
                async def later() -> None:
                    await asyncio.sleep(0.1)
                    await insert(ctx)

                tasks.append(asyncio.create_task(later()))

            await app.ask("e/1", "hi")
            with pytest.raises(MuntinError, match="is over"):
                await tasks[0]
            assert app.store.read("e/1", live=True) == []

    run(work())


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
def test_a_turn_that_did_not_complete_has_ended_too(make, how):
    left: list[Ctx] = []

    async def work() -> None:
        async with make() as app:

            class Strategy:
                async def on_context_build(self, ctx: Ctx) -> None:
                    left.append(ctx)
                    if how == "fails":
                        raise ValueError("no")
                    await asyncio.sleep(30)

            sending = asyncio.create_task(app.conversation("c", strategy=Strategy()).send("hi"))
            while not left:
                await asyncio.sleep(0.01)
            if how == "is cancelled":
                sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            before = snapshot(app, "c")
            with pytest.raises(MuntinError, match="turn 1 of 'c' is over"):
                insert(left[0])
            assert snapshot(app, "c") == before

    run(work())


def test_what_on_error_writes_belongs_to_the_turn_that_failed(make):
    class Strategy:
        def on_context_build(self, ctx: Ctx) -> None:
            raise ValueError("no")

        async def on_error(self, ctx: Ctx, error: Exception) -> None:
            ctx.insert_context("failure", name="Failure", content=str(error))

    async def work() -> None:
        async with make() as app:
            with pytest.raises(MuntinError) as caught:
                await app.conversation("c", strategy=Strategy()).send("hi")
            assert not getattr(caught.value, "__notes__", [])
            (entry,) = app.session("c").list_context()
            assert "ValueError: no" in entry.content
            assert [turn.status for turn in app.store.turns("c")] == ["failed"]

    run(work())


def test_a_preview_of_a_window_writes_nothing(make):
    async def context(given: object, ctx: Ctx) -> str:
        insert(ctx)
        return "text"

    async def work() -> None:
        async with make() as app:
            made = generator(prompt="p", user="hi", context=[context])
            with pytest.raises(MuntinError, match="nothing can be recorded"):
                await made.window(app=app, session="g")

    run(work())


@given(
    late=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([insert, replace, remove])), max_size=6
    )
)
def test_no_late_write_ever_changes_a_timeline(late):
    left: list[Ctx] = []

    async def work() -> None:
        app = App(MemoryStore(), model=ScriptedModel(lambda window: "ok", name=PRICED))

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Any) -> None:
            note(ctx)
            left.append(ctx)
            for index, write in late:
                if index < len(left) - 1:
                    with pytest.raises(MuntinError, match="is over"):
                        write(left[index])

        for text in ("one", "two", "three"):
            await app.ask("e/1", text)
        before = snapshot(app, "e/1")
        for index, write in late:
            with pytest.raises(MuntinError, match="is over"):
                write(left[index])
        assert snapshot(app, "e/1") == before
        kinds = [item.kind for item in app.store.read("e/1")]
        assert kinds == ["message", "context_inserted"] * 3
        await app.close()

    run(work())
