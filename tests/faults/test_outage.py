"""While the store is away nothing fails, and when it is back everything goes on by itself."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from muntin import App
from muntin.errors import MuntinError, StoreError
from muntin.providers.model import Reply
from muntin.runtime.ctx import Ctx, Wake
from muntin.runtime.store_thread import store_away
from muntin.testing import ScriptedModel
from muntin.timeline.store import Store, open_store
from muntin.timeline.store.sql import database
from tests.faults.checks import check_entity, settled
from tests.faults.conftest import times
from tests.reliability.server import Server

ENTITIES = times("ENTITIES", 5)
ENOUGH = 60.0


def app_on(url: str, handled: dict[str, int]) -> App:
    """Return an app whose handlers are never two at once for an entity, or they say so."""
    app = App(url, model=ScriptedModel(lambda window: "Yes."))

    @app.entity("e")
    async def handler(ctx: Ctx, wake: Wake) -> None:
        entity = ctx.session.id
        assert handled.get(entity) != 1, f"{entity} is handled twice at once"
        handled[entity] = 1
        try:
            await asyncio.sleep(random.uniform(0, 0.3))
            ctx.use_agent()
            await ctx.agent.run()
        finally:
            handled[entity] = 0

    return app


async def until_stored(send: Callable[[], Any]) -> None:
    """Send again what was refused; a commit in doubt is looked for by its sender, as documented."""
    while True:
        try:
            await send()
            return
        except StoreError:
            await asyncio.sleep(0.1)


def stored(store: Store, session: str, text: str) -> bool:
    return any(item.message and item.message.text == text for item in store.read(session))


async def keeps_sending(app: App, entity: str, sent: list[str], rounds: int) -> None:
    for number in range(rounds):
        text = f"{entity} {number}"

        async def send(text: str = text) -> None:
            if not await asyncio.to_thread(stored, app.store, entity, text):
                await app.send(entity, text)

        await until_stored(send)
        sent.append(text)
        await asyncio.sleep(random.uniform(0, 0.2))


async def all_settled(app: App, sessions: list[str]) -> None:
    async with asyncio.timeout(ENOUGH):
        while True:
            try:
                if await asyncio.to_thread(settled, app.store, sessions):
                    return
            except StoreError:
                pass
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_server_that_is_restarted_under_an_app_fails_no_wake(
    own_server: Server, mode: str
) -> None:
    database = own_server.new_database()
    url = own_server.url(database)
    entities = [f"e/{number}" for number in range(ENTITIES)]
    sent: dict[str, list[str]] = {entity: [] for entity in entities}

    async def restarts() -> None:
        for _ in range(times("RESTARTS", 2)):
            await asyncio.sleep(random.uniform(0.2, 0.8))
            await asyncio.to_thread(own_server.stop, mode)
            await asyncio.sleep(random.uniform(0, 1))
            await asyncio.to_thread(own_server.start)

    async def work() -> None:
        async with app_on(url, {}) as app:
            senders = [keeps_sending(app, entity, sent[entity], 8) for entity in entities]
            await asyncio.gather(restarts(), *senders)
            await all_settled(app, entities)

    asyncio.run(work())
    with open_store(url) as store:
        for entity in entities:
            check_entity(store, entity, sent[entity])


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_wakes_whose_server_is_restarted_in_the_middle_go_on(own_server: Server, mode: str) -> None:
    """All of them are at work when it stops, and have something to write before it is back."""
    url = own_server.url(own_server.new_database())
    entities = [f"e/{number}" for number in range(ENTITIES)]
    begun: list[str] = []

    async def work() -> None:
        gone = asyncio.Event()
        async with App(url, model=ScriptedModel(lambda window: "Yes.")) as app:

            @app.entity("e")
            async def handler(ctx: Ctx, wake: Wake) -> None:
                begun.append(ctx.session.id)
                await gone.wait()
                ctx.use_agent()
                await ctx.agent.run()

            for entity in entities:
                await app.send(entity, "hello")
            while len(begun) < len(entities):
                await asyncio.sleep(0.01)
            await asyncio.to_thread(own_server.stop, mode)
            gone.set()
            await asyncio.sleep(1)
            await asyncio.to_thread(own_server.start)
            await all_settled(app, entities)

    asyncio.run(work())
    assert sorted(begun) == sorted(entities), "each was handled once: its turn was kept"
    with open_store(url) as store:
        for entity in entities:
            check_entity(store, entity, ["hello"])


def test_connections_that_are_dropped_fail_no_wake_and_no_conversation(server: Server) -> None:
    database = server.new_database()
    url = server.url(database)
    drop = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"
    entities = [f"e/{number}" for number in range(ENTITIES)]
    sent: dict[str, list[str]] = {entity: [] for entity in entities}
    asked = [f"{number}?" for number in range(10)]
    answers: list[str] = []

    async def drops(over: asyncio.Event) -> None:
        while not over.is_set():
            await asyncio.to_thread(server.ask, drop)
            await asyncio.sleep(random.uniform(0.05, 0.3))

    async def talks(app: App) -> None:
        chat = app.conversation("c")
        answers.extend([(await chat.send(text)).text for text in asked])

    async def sends(app: App, entity: str) -> None:
        for number in range(8):
            sent[entity].append(f"{entity} {number}")
            await app.send(entity, sent[entity][-1])
            await asyncio.sleep(random.uniform(0, 0.2))

    async def work() -> None:
        over = asyncio.Event()
        async with app_on(url, {}) as app:
            dropping = asyncio.create_task(drops(over))
            await asyncio.gather(talks(app), *(sends(app, entity) for entity in entities))
            over.set()
            await dropping
            await all_settled(app, [*entities, "c"])

    asyncio.run(work())
    assert answers == ["Yes."] * len(asked)
    with open_store(url) as store:
        for entity in entities:
            check_entity(store, entity, sent[entity])
        check_entity(store, "c", asked)


@asynccontextmanager
async def locked(path: Path) -> AsyncIterator[None]:
    """Have another process hold the file, for longer than a writer waits for it."""
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "SECONDS", 0.05)


@pytest.mark.usefixtures("impatient")
def test_a_store_that_refuses_while_an_error_is_recorded_leaves_no_entity_stuck(
    tmp_path: Path,
) -> None:
    """The handler fails of its own, and the store is away: when it is back, the turn is ended."""
    path = tmp_path / "s.db"
    begun = asyncio.Event()
    away = asyncio.Event()
    called: list[str] = []

    async def work() -> None:
        async with App(f"sqlite:///{path}") as app:

            @app.entity("e")
            async def handler(ctx: Ctx, wake: Wake) -> None:
                called.append(str(wake.payload))
                begun.set()
                await away.wait()
                raise ValueError("my own fault")

            await app.send("e/1", "hello")
            await begun.wait()
            async with locked(path):
                away.set()
                await asyncio.sleep(1)
            await all_settled(app, ["e/1"])
            (turn,) = app.store.turns("e/1")
            assert (turn.status, turn.owner) == ("failed", None)
            errors = [item.payload for item in app.store.read("e/1") if item.kind == "error"]
            assert errors == ["ValueError: my own fault"]
            assert called == ["hello"]  # it failed, and is not handled again

    asyncio.run(work())


@pytest.mark.usefixtures("impatient")
def test_an_ask_and_a_send_get_their_answers_though_the_store_was_away(tmp_path: Path) -> None:
    path = tmp_path / "s.db"

    async def work() -> None:
        asked = asyncio.Event()
        away = asyncio.Event()

        async def answers(window: Any) -> Any:
            asked.set()
            await away.wait()
            return "Yes."

        async with App(f"sqlite:///{path}", model=ScriptedModel(answers)) as app:

            @app.entity("e")
            async def handler(ctx: Ctx, wake: Wake) -> None:
                ctx.use_agent()
                await ctx.agent.run()

            for interface in (
                lambda: app.ask("e/1", "so?"),
                lambda: app.conversation("c").send("so?"),
            ):
                asked.clear()
                away.clear()
                asking: asyncio.Task[Reply | None] = asyncio.ensure_future(interface())
                await asked.wait()
                async with locked(path):
                    away.set()
                    await asyncio.sleep(1)
                reply = await asyncio.wait_for(asking, ENOUGH)
                assert reply is not None
                assert reply.text == "Yes."
            for session in ("e/1", "c"):
                (turn,) = app.store.turns(session)
                assert (turn.status, turn.attempt) == ("completed", 1)

    asyncio.run(work())


@pytest.mark.usefixtures("impatient")
def test_a_wake_whose_store_stays_away_is_left_to_who_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the lease has ended the turn is given up, not failed; the app takes it up again."""
    from datetime import timedelta

    for module in ("runtime.turn", "runtime.entity_runner", "timeline.session"):
        monkeypatch.setattr(f"muntin.{module}.LEASE", timedelta(seconds=1))
    path = tmp_path / "s.db"
    began: list[str] = []

    async def work() -> None:
        away = asyncio.Event()

        async def answers(window: Any) -> Any:
            await away.wait()
            return "Yes."

        async with App(f"sqlite:///{path}", model=ScriptedModel(answers)) as app:

            @app.entity("e")
            async def handler(ctx: Ctx, wake: Wake) -> None:
                began.append(str(wake.payload))
                ctx.use_agent()
                await ctx.agent.run()

            asking = asyncio.create_task(app.ask("e/1", "hello"))
            while not began:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
            async with locked(path):
                away.set()
                await asyncio.sleep(4)
            reply = await asyncio.wait_for(asking, ENOUGH)
            assert reply is not None
            assert reply.text == "Yes."
            check_entity(app.store, "e/1", ["hello"])

    asyncio.run(work())
    assert 2 <= len(began) <= 4


def test_a_full_disk_is_waited_for(tmp_path: Path) -> None:
    """SQLite says that the disk is full: it may have as many pages as it has."""
    path = tmp_path / "s.db"
    big = "x" * 200_000

    async def work() -> None:
        asked = asyncio.Event()
        full = asyncio.Event()

        async def answers(window: Any) -> Any:
            asked.set()
            await full.wait()
            return big

        async with App(f"sqlite:///{path}", model=ScriptedModel(answers)) as app:

            @app.entity("e")
            async def handler(ctx: Ctx, wake: Wake) -> None:
                ctx.use_agent()
                await ctx.agent.run()

            asking = asyncio.create_task(app.ask("e/1", "hello"))
            await asked.wait()
            limit_pages(app, 1)
            full.set()
            await asyncio.sleep(1)
            with pytest.raises(StoreError, match="full") as told:
                await app.send("e/2", big)
            assert told.value.passing
            limit_pages(app, 1 << 30)
            reply = await asyncio.wait_for(asking, ENOUGH)
            assert reply is not None
            check_entity(app.store, "e/1", ["hello"])
            (turn,) = app.store.turns("e/1")
            assert turn.attempt == 1

    asyncio.run(work())


def limit_pages(app: App, pages: int) -> None:
    """Have every connection of the store, also those to come, end at so many pages."""
    connections: Any = app.store.database.connections
    set_up = type(connections)._set_up

    def limited(connection: Any) -> None:
        set_up(connections, connection)
        connection.execute(f"PRAGMA max_page_count = {pages}")

    connections._set_up = limited
    connections.close()


def test_what_came_of_a_store_that_was_away_is_the_stores_fault() -> None:
    away = StoreError("gone")
    away.passing = True
    came_of = RuntimeError("while saving")
    came_of.__cause__ = away
    assert store_away(came_of)
    assert store_away(ExceptionGroup("two", [ValueError(), came_of]))
    assert not store_away(StoreError("damaged"))
    assert not store_away(MuntinError("other"))
