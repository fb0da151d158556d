"""Connections that are dropped, also in the middle of a commit: nothing fails, nothing is twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from muntin import App
from muntin.errors import StoreError
from muntin.providers.model import TextDelta
from muntin.runtime.ctx import Ctx, Wake
from muntin.testing import ScriptedModel
from muntin.timeline.store import Store, as_store, open_store
from tests.faults.conftest import times
from tests.faults.proxy import Proxy, When, proxy_of
from tests.reliability.server import Server

ROUNDS = times("DROPS", 8)


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with proxy_of(server) as running:
        yield running


def app_on(url: Store | str) -> App:
    app = App(url, model=ScriptedModel(lambda window: "Yes."))

    @app.entity("e")
    async def handler(ctx: Ctx, wake: Wake) -> None:
        ctx.use_agent()
        await ctx.agent.run()

    return app


async def talks(app: App, text: str) -> str:
    return (await app.conversation("c").send(text)).text


async def streams(app: App, text: str) -> str:
    events = [event async for event in app.conversation("c").stream(text)]
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def asks(app: App, text: str) -> str:
    reply = await app.ask("e/1", text)
    return "" if reply is None else reply.text


async def sends(app: App, text: str) -> str:
    item = await app.send("e/1", text)
    async with asyncio.timeout(60):
        while True:
            try:
                (turn,) = await asyncio.to_thread(app.store.turns, "e/1", number=item.turn)
            except StoreError:
                continue
            if turn is not None and turn.status == "completed":
                return "Yes."
            await asyncio.sleep(0.02)


INTERFACES: dict[str, tuple[str, Callable[[App, str], Awaitable[str]]]] = {
    "send": ("c", talks),
    "stream": ("c", streams),
    "ask": ("e/1", asks),
    "app.send": ("e/1", sends),
}


def check(url: Store | str, session: str, asked: list[str]) -> None:
    """Check that each question is there once, in order, and each turn has one answer."""
    with as_store(url) as store:
        items = store.read(session)
        assert [item.position for item in items] == list(range(1, len(items) + 1))
        said = [item.message.text for item in items if item.role == "user" and item.message]
        assert said == asked
        turns = store.turns(session)
        assert {turn.status for turn in turns} == {"completed"}, turns
        answered = [item.turn for item in items if item.role == "assistant"]
        assert sorted(answered) == sorted(turn.number for turn in turns)


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_call_does_not_hear_of_connections_that_are_dropped_all_the_time(
    server: Server, proxy: Proxy, interface: str
) -> None:
    """Most are dropped in the first transaction, many in a row; some are while it is committed."""
    database = server.new_database()
    session, use = INTERFACES[interface]
    asked = [f"question {number}" for number in range(ROUNDS)]
    open_store(server.url(database)).close()  # making the tables takes longer than any span

    async def work() -> None:
        async with app_on(proxy.url(database)) as app:
            proxy.spans = [*range(1, 30), 60]
            for text in asked:
                async with asyncio.timeout(90):
                    assert await use(app, text) == "Yes."
            proxy.spans = ()

    asyncio.run(work())
    assert proxy.dropped > ROUNDS // 2  # each call sends some dozen times: on average twice a call
    check(server.url(database), session, asked)


@pytest.mark.parametrize("when", ["before", "behind"])
@pytest.mark.parametrize("interface", INTERFACES)
def test_a_commit_in_doubt_is_looked_for_whichever_it_is(
    server: Server, proxy: Proxy, interface: str, when: When
) -> None:
    """The first commit of a call is cut off, then the second and so on, then two in a row."""
    database = server.new_database()
    session, use = INTERFACES[interface]
    cuts: list[dict[int, When]] = [{number: when} for number in range(1, 4)]
    cuts += [{1: when, 2: when}, {1: "before", 2: "behind"}, {1: "behind", 2: "before"}]
    asked = [f"question {number}" for number in range(len(cuts) + 1)]

    async def work() -> None:
        async with app_on(proxy.url(database)) as app:
            assert await use(app, asked[0]) == "Yes."
            for text, cut in zip(asked[1:], cuts, strict=True):
                proxy.cut(cut)
                async with asyncio.timeout(60):
                    assert await use(app, text) == "Yes."
                proxy.cut({})

    asyncio.run(work())
    assert proxy.dropped >= len(cuts)
    check(server.url(database), session, asked)


def test_a_timer_whose_commit_was_in_doubt_comes_once(server: Server, proxy: Proxy) -> None:
    database = server.new_database()
    came: list[Any] = []

    async def work() -> None:
        app = App(proxy.url(database))

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Wake) -> None:
            came.extend(item.payload for item in ctx.events)

        async with app, asyncio.timeout(60):
            await app.send("e/1", "begin")
            whens: tuple[When, ...] = ("before", "behind")
            for number, when in enumerate(whens):
                proxy.cut({1: when})
                await app.wake("e/1", number, after=timedelta(seconds=0.2))
            while {0, 1} - set(filter(lambda each: each in (0, 1), came)):
                await asyncio.sleep(0.05)
            await asyncio.sleep(1.5)

    asyncio.run(work())
    assert sorted(each for each in came if each in (0, 1)) == [0, 1]


def test_a_server_that_is_away_for_a_moment_is_waited_for(
    own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muntin.runtime.store_thread.BEGIN_SECONDS", 60)  # it may start slowly
    url = own_server.url(own_server.new_database())

    async def work() -> None:
        async with app_on(url) as app:
            await talks(app, "first")
            own_server.stop("immediate")
            talking = asyncio.create_task(talks(app, "second"))
            asking = asyncio.create_task(asks(app, "third"))
            await asyncio.sleep(1)
            await asyncio.to_thread(own_server.start)
            assert await asyncio.wait_for(talking, 60) == "Yes."
            assert await asyncio.wait_for(asking, 60) == "Yes."

    asyncio.run(work())
    check(url, "c", ["first", "second"])
    check(url, "e/1", ["third"])


def test_a_server_that_stays_away_is_an_error_in_time_and_nothing_is_stored(
    own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muntin.runtime.store_thread.BEGIN_SECONDS", 0.5)
    url = own_server.url(own_server.new_database())

    async def work() -> None:
        async with app_on(url) as app:
            await talks(app, "first")
            own_server.stop("immediate")
            for use in (talks, asks):
                with pytest.raises(StoreError, match="is the server running") as told:
                    await asyncio.wait_for(use(app, "refused"), 30)
                assert told.value.passing
                assert told.value.away
                assert not told.value.in_doubt
            await asyncio.to_thread(own_server.start)
            await talks(app, "second")

    asyncio.run(work())
    check(url, "c", ["first", "second"])
    with open_store(url) as store:
        assert store.read("e/1") == []
