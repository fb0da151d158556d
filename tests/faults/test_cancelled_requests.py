"""Requests that are cut off, wherever they wait: through the gateway, and by async clients.

Nothing is half written, the conversation goes on, and no task is left.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from muntin.fitting import Fitter, fit_client
from muntin.gateway import Gateway
from muntin.integrations.anthropic import MuntinMiddleware
from muntin.integrations.transport import FitTransport
from muntin.timeline.store import Store, open_store
from tests.faults.steps import CancelledAt
from tests.providers.servers import CHAT, PROTOCOLS, Answer, Received, serving

# How many seconds a request may take before it is taken for stuck.
ENOUGH = 30.0
BUDGET = 1_200
SAID = "Hello, world"


def talk(step: int) -> list[list[dict[str, Any]]]:
    """Return two requests of a conversation of its own."""
    first = [{"role": "user", "content": f"Question {step} " + "word " * 50}]
    answer = {"role": "assistant", "content": SAID}
    return [first, [*first, answer, {"role": "user", "content": f"And then, {step}?"}]]


def check(store: Store, session: str, step: int) -> None:
    """Check that all that was asked is there once, in order, answered, and nothing is open."""
    items = store.read(session)
    said = [item.message.text for item in items if item.role == "user" and item.message]
    assert said == [each["content"] for each in talk(step)[1] if each["role"] == "user"]
    assert [item.role for item in items[:3]] == ["user", "assistant", "user"]
    assert {turn.status for turn in store.turns(session)} == {"completed"}
    steps = [(record.turn, record.step) for record in store.reports(session)]
    assert len(steps) == len(set(steps)), "two windows have one report"


def left() -> set[Any]:
    """Return the tasks that are there beside this one."""
    return asyncio.all_tasks() - {asyncio.current_task()}


class Client:
    """Speaks to the gateway as a server does, without one; it can hang up."""

    def __init__(self, messages: list[dict[str, Any]], session: str, stream: bool) -> None:
        body = {"model": "gpt-4o", "messages": messages, "stream": stream}
        self._body: bytes | None = json.dumps(body).encode()
        self.gone = asyncio.Event()
        self.got: list[dict[str, Any]] = []
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/chat/completions",
            "query_string": b"",
            "headers": [(b"host", b"127.0.0.1"), (b"x-muntin-session", session.encode())],
        }

    async def receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        self.got.append(message)

    @property
    def whole(self) -> bool:
        return bool(self.got) and self.got[-1].get("more_body") is False


async def cut_everywhere(
    gateway: Gateway, store: Store, stream: bool, cut: Callable[[Client, Any], object]
) -> int:
    """Cut the second request of a conversation off at every step; ask again behind each."""

    async def ask(messages: list[dict[str, Any]], name: str) -> None:
        client = Client(messages, name, stream)
        async with asyncio.timeout(ENOUGH):
            await gateway(client.scope, client.receive, client.send)
        assert client.whole
        assert client.got[0]["status"] == 200

    answered = gateway._answered
    for step in range(1, 1_000):
        first, second = talk(step)
        await ask(first, f"c{step}")
        client = Client(second, f"c{step}", stream)
        task: Any = None
        stepped: list[CancelledAt] = []

        async def passing(*given: Any, now: Client = client, at: int = step) -> None:
            act = lambda: cut(now, task)  # noqa: E731, B023 - the task of this step
            stepped.append(CancelledAt(answered(*given), at, act=act))  # noqa: B023
            await stepped[-1]  # noqa: B023

        gateway._answered = passing  # type: ignore[method-assign, assignment]
        task = asyncio.ensure_future(gateway(client.scope, client.receive, client.send))
        await asyncio.wait([task], timeout=ENOUGH)
        gateway._answered = answered  # type: ignore[method-assign]
        assert task.done(), f"stuck when it was cut off at step {step}"
        assert task.cancelled() or task.exception() is None
        await ask(second, f"c{step}")
        await gateway._recording.close()
        assert left() == set()
        (session,) = [each.id for each in store.sessions() if f"/c{step}/" in each.id]
        check(store, session, step)
        if not stepped[0].cancelled:
            return step
    raise AssertionError("it has too many steps")


def hang_up(client: Client, _: Any) -> None:
    client.gone.set()


def shut_down(_: Client, task: Any) -> None:
    task.cancel()


@pytest.mark.parametrize("cut", [hang_up, shut_down])
@pytest.mark.parametrize("stream", [True, False])
def test_a_request_to_the_gateway_may_be_cut_off_anywhere(
    stream: bool, cut: Callable[[Client, Any], object], tmp_path: Path
) -> None:
    answer = Answer(pieces=CHAT.pieces) if stream else Answer(body=CHAT.body)

    async def work() -> int:
        with open_store(f"sqlite:///{tmp_path}/s.db") as store:
            gateway = Gateway(server.url, BUDGET, store=store)
            try:
                return await cut_everywhere(gateway, store, stream, cut)
            finally:
                await gateway.close()

    with serving(answer) as server:
        assert asyncio.run(work()) > 3


# Async clients.

Ask = Callable[[list[dict[str, Any]]], Coroutine[Any, Any, None]]


def by_fit_client(url: str, fitter: Fitter) -> Ask:
    client = fit_client(
        openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0), fitter=fitter
    )

    async def ask(messages: list[dict[str, Any]]) -> None:
        given: Any = messages
        await client.chat.completions.create(model="gpt-4o", messages=given)

    return ask


def by_transport(url: str, fitter: Fitter) -> Ask:
    async def ask(messages: list[dict[str, Any]]) -> None:
        transport: Any = FitTransport(httpx2.AsyncHTTPTransport(), fitter=fitter)
        async with httpx2.AsyncClient(transport=transport) as client:
            body = {"model": "gpt-4o", "messages": messages}
            answer = await client.post(f"{url}/v1/chat/completions", json=body)
            assert answer.status_code == 200

    return ask


def by_middleware(url: str, fitter: Fitter) -> Ask:
    client = anthropic.AsyncAnthropic(
        api_key="k", base_url=url, max_retries=0, middleware=[MuntinMiddleware(fitter=fitter)]
    )

    async def ask(messages: list[dict[str, Any]]) -> None:
        given: Any = messages
        await client.messages.create(model="claude-opus-5", max_tokens=9, messages=given)

    return ask


@pytest.mark.parametrize("made", [by_fit_client, by_transport, by_middleware])
def test_a_request_of_an_async_client_may_be_cancelled_anywhere(
    made: Callable[[str, Fitter], Ask], tmp_path: Path
) -> None:
    def answer(received: Received) -> Answer:
        return Answer(body=PROTOCOLS["messages" if "messages" in received.path else "chat"].body)

    async def work(url: str, store: Store) -> int:
        fitter = Fitter(BUDGET, store=store)
        ask = made(url, fitter)
        for step in range(1, 1_000):
            first, second = talk(step)
            await ask(first)
            cancelled = CancelledAt(ask(second), step)

            async def run(each: CancelledAt = cancelled) -> None:
                await each

            task = asyncio.create_task(run())
            await asyncio.wait([task], timeout=ENOUGH)
            assert task.done(), f"stuck when cancelled at step {step}"
            async with asyncio.timeout(ENOUGH):
                await ask(second)
            assert left() == set()
            sessions = [each.id for each in store.sessions(limit=9_999)]
            (session,) = [
                each for each in sessions if f"Question {step} " in str(store.read(each, oldest=1))
            ]
            check(store, session, step)
            if not cancelled.cancelled:
                return step
        raise AssertionError("it has too many steps")

    with serving(answer) as server, open_store(f"sqlite:///{tmp_path}/s.db") as store:
        assert asyncio.run(work(server.url, store)) > 3
