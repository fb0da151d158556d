"""A provider that has too much to do: its wakes are handled later, by every engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from muntin import App, assistant
from muntin.core.parts import ToolCall
from muntin.errors import ProviderError, ProviderUnavailable, RateLimited
from muntin.providers.client import Client
from muntin.runtime.ctx import Ctx, Wake
from muntin.testing import ScriptedModel
from muntin.timeline.items import Item
from tests.providers.servers import CHAT, PROTOCOLS, Answer, Protocol, Received, Server, serving
from tests.runtime.conftest import run, statuses
from tests.runtime.engine.conftest import Make, settled, until, working

# What the providers answer: a status, and what stands in its body.
BUSY = {
    "chat-429": ("chat", 429, {"error": {"message": "Slow down.", "code": "rate_limit_exceeded"}}),
    "responses-503": ("responses", 503, {"error": {"message": "The engine is overloaded."}}),
    "messages-529": (
        "messages",
        529,
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    ),
    "google-503": ("generate_content", 503, PROTOCOLS["generate_content"].errors[500]),
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muntin.runtime.entity_runner.BACK_OFF_SECONDS", 0.02)


def client(protocol: Protocol, server: Server, **options: Any) -> Client:
    address = server.url + protocol.base
    return Client(protocol.model, api=protocol.api, base_url=address, api_key="k", **options)


def busy_at_first(protocol: Protocol, times: int, refusal: Answer) -> Callable[[Received], Answer]:
    """Refuse so many requests, then answer; a refusal says nothing of when to come back."""
    left = [refusal] * times
    return lambda received: left.pop() if left else Answer(body=protocol.body)


def made(make: Make, model: Any) -> App:
    app = make(model=model)

    @app.entity("e")
    async def handler(ctx: Ctx, wake: Wake) -> None:
        ctx.use_agent()
        await ctx.agent.run()

    return app


def kinds(items: list[Item]) -> list[str]:
    return [item.kind if item.role is None else str(item.role) for item in items]


@pytest.mark.parametrize("what", BUSY)
def test_a_wake_is_handled_when_its_provider_has_time_and_nothing_is_there_twice(
    make: Make, what: str
):
    """The third request is answered; the SDK, which would have sent others, has sent none."""
    name, status, body = BUSY[what]
    protocol = PROTOCOLS[name]

    async def work(server: Server) -> None:
        app = made(make, client(protocol, server, max_retries=4))
        async with working(app):
            reply = await app.ask("e/1", "hello")
        assert reply is not None
        assert reply.text == "Hello, world"
        assert kinds(app.store.read("e/1")) == ["user", "run", "assistant"]
        (turn,) = app.store.turns("e/1")
        assert (turn.status, turn.attempt, turn.tries) == ("completed", 3, 0)

    with serving(busy_at_first(protocol, 2, Answer(status, body))) as server:
        run(work(server))
    assert len(server.received) == 3


def test_a_stream_in_which_the_provider_gives_up_is_handled_later(make: Make):
    protocol = PROTOCOLS["messages"]
    answers = [protocol.pieces, (*protocol.pieces[:3], protocol.in_stream)]

    async def work(server: Server) -> None:
        app = make(model=client(protocol, server))

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Wake) -> None:
            ctx.use_agent()
            async for _ in ctx.agent.stream():
                pass

        async with working(app):
            await app.ask("e/1", "hello")
        assert kinds(app.store.read("e/1")) == ["user", "run", "assistant"]

    with serving(lambda received: Answer(pieces=answers.pop())) as server:
        run(work(server))
    assert len(server.received) == 2


def test_a_tool_that_has_its_result_is_not_run_again(make: Make):
    ran: list[str] = []
    later = RateLimited("openai", "m", 429, "Slow down.")
    model = ScriptedModel([assistant(tool_calls=[ToolCall("1", "look", "{}")]), later, later, "ok"])

    def look() -> str:
        """Look."""
        ran.append("look")
        return "seen"

    async def work() -> None:
        app = make(model=model)

        @app.entity("e")
        async def handler(ctx: Ctx, wake: Wake) -> None:
            ctx.use_agent(tools=[look])
            await ctx.agent.run()

        async with working(app):
            await app.ask("e/1", "hello")
        items = app.store.read("e/1")
        assert kinds(items) == ["user", "run", "assistant", "tool", "assistant"]

    run(work())
    assert ran == ["look"]


def test_the_time_that_the_provider_asks_for_is_waited_and_nobody_else_waits(make: Make):
    """Also in another process: the time is in the store."""
    at: list[tuple[str, float]] = []

    def answer(received: Received) -> Answer:
        said = [text for text in ("first", "second", "other") if text in received.raw.decode()][-1]
        at.append((said, time.monotonic()))
        if len(at) == 1:
            return Answer(429, CHAT.errors[429], headers={"retry-after": "5"})
        return Answer(body=CHAT.body)

    async def work(server: Server) -> None:
        one, two = (made(make, client(CHAT, server)) for _ in range(2))
        async with working(one), working(two):
            await one.send("e/1", "first")
            await until(lambda: at)
            await asyncio.sleep(0.2)
            await two.send("e/1", "second")
            await two.ask("e/2", "other")
            await until(lambda: settled(one, "e/1"))
        assert statuses(one, "e/1") == ["completed", "completed"]

    with serving(answer) as server:
        run(work(server))
    assert [said for said, _ in at] == ["first", "other", "first", "second"]
    assert at[1][1] - at[0][1] < 5
    assert 5 <= at[2][1] - at[0][1] < 30


def test_a_provider_that_never_has_time_is_given_up_and_the_entity_goes_on(
    make: Make, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("muntin.runtime.entity_runner.MAX_BUSY", 4)

    async def work(server: Server) -> None:
        app = made(make, client(CHAT, server))
        async with working(app):
            with pytest.raises(RateLimited, match="try again later"):
                await app.ask("e/1", "hello")
            (turn,) = app.store.turns("e/1")
            assert (turn.status, turn.reason, turn.attempt) == ("failed", "gave_up", 4)
            assert [info.id for info in app.store.sessions(gave_up=True)] == ["e/1"]
            *_, told = app.store.read("e/1")
            assert told.kind == "error"
            assert str(told.payload).startswith(
                "gave_up: the turn was taken 4 times, at last: Rate"
            )
            assert len(server.received) == 4
            server.answer = Answer(body=CHAT.body)
            await app.ask("e/1", "again")
        assert statuses(app, "e/1") == ["failed", "completed"]

    with serving(Answer(429, CHAT.errors[429])) as server:
        run(work(server))


def test_what_waits_behind_a_turn_that_is_cancelled_by_hand_waits_no_longer(make: Make):
    def answer(received: Received) -> Answer:
        if len(server.received) == 1:
            return Answer(429, CHAT.errors[429], headers={"retry-after": "60"})
        return Answer(body=CHAT.body)

    async def work(server: Server) -> None:
        app = made(make, client(CHAT, server))
        async with working(app):
            item = await app.send("e/1", "first")
            await until(lambda: app.store.turns("e/1")[0].returned == 1)
            await app.send("e/1", "second")
            await asyncio.sleep(0.1)
            assert await app.cancel("e/1", item.turn)
            await until(lambda: settled(app, "e/1"))
        assert statuses(app, "e/1") == ["failed", "completed"]

    with serving(answer) as server:
        run(work(server))


@pytest.mark.parametrize(
    ("status", "code", "sent", "kind"),
    [(500, None, 3, ProviderUnavailable), (429, "insufficient_quota", 1, RateLimited)],
)
def test_what_does_not_pass_by_itself_fails_the_turn(
    make: Make, status: int, code: str | None, sent: int, kind: type[ProviderError]
):
    """A failure is tried again by the SDK alone, and no credit is not tried again at all."""
    body = {"error": {"message": "No.", "code": code}}

    async def work(server: Server) -> None:
        app = made(make, client(CHAT, server))
        async with working(app):
            with pytest.raises(kind) as told:
                await app.ask("e/1", "hello")
        assert not told.value.passing
        assert statuses(app, "e/1") == ["failed"]
        assert app.store.turns("e/1")[0].attempt == 1

    with serving(Answer(status, body, headers={"retry-after-ms": "1"})) as server:
        run(work(server))
    assert len(server.received) == sent


def test_a_conversation_says_that_it_may_be_tried_again_and_keeps_what_was_said(make: Make):
    """Nobody comes back for it, so the SDK tries again, and who sent hears of it."""

    async def work(server: Server) -> None:
        app = make(model=client(CHAT, server))
        chat = app.conversation("c")
        with pytest.raises(RateLimited, match=r"Slow down; try again in 0\.001 s") as told:
            await chat.send("hello")
        assert told.value.passing
        assert told.value.retry_after == 0.001
        assert len(server.received) == 3
        assert kinds(app.store.read("c")) == ["user", "run", "error"]
        assert statuses(app, "c") == ["failed"]
        server.answer = Answer(body=CHAT.body)
        assert (await chat.send("again")).text == "Hello, world"
        sent = [each["content"] for each in server.received[-1].body["messages"]]
        assert (sent[0], sent[-1]) == ("hello", "again")
        await app.close()

    refused = Answer(429, CHAT.errors[429], headers={"retry-after-ms": "1"})
    with serving(refused) as server:
        run(work(server))
