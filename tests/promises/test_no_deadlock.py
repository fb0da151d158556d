"""Nothing waits for itself without end: a turn that would is an error with the cycle, a handler has
its time-out, and `close` waits for a bounded time and says what it left."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import Any

import pytest

from muntin import App, MuntinError, capability, flow, generator
from muntin.runtime import Action, Ctx
from muntin.testing import MemoryStore, ScriptedModel
from muntin.timeline.store import open_store
from tests.products import PRICED
from tests.runtime.conftest import call, run

NEVER = "waiting would never end"


def memory(model: ScriptedModel | None = None) -> App:
    return App(MemoryStore(), model=model or ScriptedModel(lambda window: "ok", name=PRICED))


def asking(app: App, kind: str, *others: str) -> None:
    """Register a handler that asks others."""

    @app.entity(kind)
    async def handler(ctx: Ctx, wake: Any) -> None:
        for other in others:
            await app.ask(other, "and you?")


# Entities that ask.


@pytest.mark.parametrize("url", ["memory:", "sqlite"])
def test_an_entity_that_asks_itself_is_an_error_with_the_cycle(url, tmp_path):
    url = f"sqlite:///{tmp_path / 'm.db'}" if url == "sqlite" else url

    async def work() -> None:
        async with App(url, model=ScriptedModel([], name=PRICED)) as app:
            asking(app, "a", "a/1")
            with pytest.raises(MuntinError, match=f"{NEVER}: a/1 → a/1"):
                await app.ask("a/1", "hi")
            items = app.store.read("a/1")
            assert [item.kind for item in items] == ["message", "error"], "nothing was sent"

    run(work(), within=10)


def test_a_cycle_through_others_is_named():
    async def work() -> None:
        app = memory()
        asking(app, "a", "b/1")
        asking(app, "b", "c/1")
        asking(app, "c", "a/1")
        with pytest.raises(MuntinError, match=f"{NEVER}: a/1 → b/1 → c/1 → a/1"):
            await app.ask("a/1", "hi")
        await app.close()

    run(work(), within=10)


def test_two_that_ask_each_other_at_once_do_not_wait_for_ever():
    """Neither was asked by the other: only who waits for whom tells."""
    both = asyncio.Event()
    arrived: list[str] = []

    async def work() -> None:
        app = memory()
        for kind, other in (("a", "b/1"), ("b", "a/1")):

            @app.entity(kind)
            async def handler(ctx: Ctx, wake: Any, other: str = other) -> None:
                arrived.append(other)
                if len(arrived) == 2:
                    both.set()
                await both.wait()
                if wake.payload == "go":
                    await app.ask(other, "and you?")

        results = await asyncio.gather(
            app.ask("a/1", "go"), app.ask("b/1", "go"), return_exceptions=True
        )
        told = [str(result) for result in results if isinstance(result, MuntinError)]
        assert len(told) == 1
        assert NEVER in told[0]
        await app.close()

    run(work(), within=10)


@pytest.mark.parametrize("way", ["async tool", "sync tool", "task", "thread"])
def test_asking_oneself_is_found_wherever_the_handler_does_it(way):
    told: list[str] = []

    async def work() -> None:
        app = memory(ScriptedModel([call("ask_me"), "done"], name=PRICED))

        async def attempt() -> str:
            try:
                await app.ask("a/1", "again")
            except MuntinError as error:
                told.append(str(error))
            return "tried"

        async def ask_me() -> str:
            """Ask."""
            return await attempt()

        def ask_in_thread() -> str:
            """Ask."""
            return asyncio.run(attempt())

        ask_in_thread.__name__ = "ask_me"

        @app.entity("a")
        async def handler(ctx: Ctx, wake: Any) -> None:
            if way == "task":
                await asyncio.create_task(attempt())
            elif way == "thread":
                await asyncio.to_thread(ask_in_thread)
            else:
                ctx.use_agent(tools=[ask_me if way == "async tool" else ask_in_thread])
                await ctx.agent.run()

        await app.ask("a/1", "hi")
        await app.close()

    run(work(), within=10)
    assert len(told) == 1
    assert f"{NEVER}: a/1 → a/1" in told[0]


# The other interfaces.


def test_a_tool_that_sends_to_its_own_conversation_is_told():
    async def work() -> list[str]:
        model = ScriptedModel([call("more"), "done"], name=PRICED)
        app = memory(model)

        async def more() -> str:
            """Say more."""
            return (await app.conversation("c").send("more")).text

        reply = await app.conversation("c", tools=[more]).send("hi")
        assert reply.text == "done"
        assert [turn.status for turn in app.store.turns("c")] == ["completed"]
        return [message.text for message in model.windows[-1].messages]

    assert any(f"{NEVER}: c → c" in text for text in run(work(), within=10))


@pytest.mark.parametrize("hook", ["on_init", "on_context_build", "on_turn_end"])
def test_a_strategy_that_sends_to_its_own_conversation_is_told(hook):
    async def work() -> None:
        app = memory()

        class Strategy:
            async def on_context_build(self, ctx: Ctx) -> None:
                return None

        async def more(ctx: Ctx) -> None:
            await app.conversation("c").send("more")

        strategy = Strategy()
        setattr(strategy, hook, more)
        with pytest.raises(MuntinError, match=f"{NEVER}: c → c"):
            await app.conversation("c", strategy=strategy).send("hi")

    run(work(), within=10)


def test_a_handler_that_sends_to_its_own_timeline_is_told():
    async def work() -> None:
        app = memory()

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Any) -> None:
            await app.conversation("e/1").send("more")

        with pytest.raises(MuntinError, match=f"{NEVER}: e/1 → e/1"):
            await app.ask("e/1", "hi")
        await app.close()

    run(work(), within=10)


@pytest.mark.parametrize("part", ["context", "capability", "flow"])
def test_a_generator_that_runs_in_its_own_session_is_told(part):
    async def work() -> None:
        app = memory()
        inner = generator(name="inner", user="hi")

        async def again() -> str:
            return (await inner.run(app=app, session="s")).text

        async def block(given: object, ctx: Ctx) -> None:
            await again()

        in_flow = flow("f", actions={"do": Action(block)})
        uses = [capability("x", functions=again)]
        parts: dict[str, Any] = {
            "context": generator(user="hi", context={"x": again}).run,
            "capability": generator(user="hi", uses=uses).run,
            "flow": partial(in_flow.run, "do"),
        }
        with pytest.raises(MuntinError, match=f"{NEVER}: s → s"):
            await parts[part](app=app, session="s")

    run(work(), within=10)


def test_a_cycle_of_a_conversation_and_an_entity_is_named():
    async def work() -> None:
        app = memory()

        class Strategy:
            async def on_context_build(self, ctx: Ctx) -> None:
                await app.ask("e/1", "who?")

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Any) -> None:
            await app.conversation("c", strategy=Strategy()).send("hi")

        with pytest.raises(MuntinError, match=f"{NEVER}: e/1 → c → e/1"):
            await app.ask("e/1", "hi")
        await app.close()

    run(work(), within=10)


# What is no cycle.


def test_asking_others_and_sending_to_oneself_are_no_cycles():
    async def work() -> None:
        app = memory()
        handled: list[str] = []

        @app.entity("a")
        async def first(ctx: Ctx, wake: Any) -> None:
            handled.append(f"a {wake.payload}")
            if wake.payload == "hi":
                await asyncio.gather(app.ask("b/1", "one"), app.ask("b/2", "two"))
                await app.send("a/1", "later")

        @app.entity("b")
        async def second(ctx: Ctx, wake: Any) -> None:
            handled.append(f"b {wake.payload}")
            await app.ask("c/1", wake.payload)

        asking(app, "c")
        await app.ask("a/1", "hi")
        await app.close()
        assert sorted(handled) == ["a hi", "a later", "b one", "b two"]

    run(work(), within=10)


def test_a_task_that_outlives_its_turn_may_ask():
    tasks: list[asyncio.Task[Any]] = []

    async def work() -> None:
        app = memory()

        @app.entity("a")
        async def handler(ctx: Ctx, wake: Any) -> None:
            async def later() -> None:
                await asyncio.sleep(0.1)
                await app.ask("a/1", "later")

            if wake.payload == "hi":
                tasks.append(asyncio.create_task(later()))

        await app.ask("a/1", "hi")
        await tasks[0]
        await app.close()

    run(work(), within=10)


def test_who_reads_a_stream_is_not_inside_of_its_turn():
    async def work() -> None:
        app = memory()
        chat = app.conversation("c")
        async for _ in chat.stream("hi"):
            break
        assert (await chat.send("again")).text == "ok"

    run(work(), within=10)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_who_asked_is_told_when_a_handler_ends_the_program(error):
    async def work() -> None:
        app = memory()

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Any) -> None:
            raise error

        with pytest.raises(MuntinError, match="the handler of 'e/1' ended by"):
            await app.ask("e/1", "hi")
        assert [turn.status for turn in app.store.turns("e/1")] == ["failed"]

    if isinstance(error, SystemExit):
        run(work(), within=10)
    else:
        with pytest.raises(KeyboardInterrupt):
            run(work(), within=10)


# Time-outs.


def test_a_handler_has_its_time_out():
    async def work() -> None:
        app = memory()

        @app.entity("slow", timeout=1)
        async def handler(ctx: Ctx, wake: Any) -> None:
            if wake.payload == "hang":
                await asyncio.Event().wait()

        with pytest.raises(MuntinError, match=r"the handler of 'slow/1' took longer than 1 s"):
            await app.ask("slow/1", "hang")
        await app.ask("slow/1", "go on")
        assert [turn.status for turn in app.store.turns("slow/1")] == ["completed", "failed"]
        (error,) = [item for item in app.store.read("slow/1") if item.kind == "error"]
        assert "took longer than 1 s" in error.payload
        await app.close()

    run(work(), within=10)


def test_a_time_out_of_the_handlers_own_is_not_taken_for_its_limit():
    async def work() -> None:
        app = memory()

        @app.entity("e", timeout=5)
        async def handler(ctx: Ctx, wake: Any) -> None:
            raise TimeoutError("the service was slow")

        with pytest.raises(TimeoutError, match="the service was slow"):
            await app.ask("e/1", "hi")
        await app.close()

    run(work(), within=10)


@pytest.mark.parametrize("timeout", [0, -1, "5", True, float("nan"), float("inf")])
def test_a_time_out_is_a_number_of_seconds(timeout):
    with pytest.raises(MuntinError, match="timeout must be a number of seconds"):
        memory().entity("e", timeout=timeout)
    with pytest.raises(MuntinError, match="timeout must be a number of seconds"):
        memory().conversation("c", timeout=timeout)
    with pytest.raises(MuntinError, match="timeout must be a number of seconds"):
        generator(timeout=timeout)
    with pytest.raises(MuntinError, match="timeout must be a number of seconds"):
        run(memory().close(timeout))


@pytest.mark.parametrize("stubborn", [False, True])
def test_close_waits_for_a_bounded_time_and_says_what_it_left(stubborn, tmp_path, caplog):
    url = f"sqlite:///{tmp_path / 'm.db'}"
    handled: list[str] = []

    async def work() -> None:
        app = App(url, model=ScriptedModel([], name=PRICED))
        begun, free = asyncio.Event(), asyncio.Event()

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Any) -> None:
            begun.set()
            while True:
                try:
                    await free.wait()
                    return
                except asyncio.CancelledError:
                    if not stubborn:
                        raise

        await app.send("e/1", "hang")
        await begun.wait()
        start = time.monotonic()
        left = await app.close(0.2)
        assert left == ("e/1",)
        assert 0.2 <= time.monotonic() - start < 30
        free.set()
        await asyncio.sleep(0.05)

    async def again() -> None:
        async with App(url, model=ScriptedModel([], name=PRICED)) as app:

            @app.entity("e")
            async def handler(ctx: Ctx, wake: Any) -> None:
                handled.append(wake.payload)

            assert (await app.resume()).handled == ("e/1",)

    with caplog.at_level(logging.WARNING, "muntin"):
        run(work(), within=10)
    assert "closed while 'e/1' was being handled" in caplog.text
    if not stubborn:
        with open_store(url) as store:
            assert [turn.status for turn in store.turns("e/1")] == ["open"]
        run(again(), within=10)
        assert handled == ["hang"], "what was left is not lost"
