"""`fit_client` with the real SDKs, sync and async, whole and streamed: every request is valid."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
import openai
import pytest

from muntin import BudgetExceeded, fit_client
from muntin.errors import InvalidInput, InvalidType
from muntin.fitting import Fitter
from tests.fitting.traffic import Traffic, kept_prefix, questions, request, talk, traffic
from tests.providers.servers import CHAT, Answer, Received, serving

BUDGET = 1_200
TURNS = 14
NAMES = ["chat", "responses", "anthropic"]


def budget(name: str) -> int:
    """Claude adds a prompt of its own to a request with tools."""
    return BUDGET + 520 * (name == "anthropic")


def client_of(name: str, url: str, *, asynchronous: bool = False) -> Any:
    if name == "anthropic":
        kind: Any = anthropic.AsyncAnthropic if asynchronous else anthropic.Anthropic
        return kind(api_key="k", base_url=url, max_retries=0)
    kind = openai.AsyncOpenAI if asynchronous else openai.OpenAI
    return kind(api_key="k", base_url=f"{url}/v1", max_retries=0)


def resource(client: Any, name: str) -> Any:
    if name == "chat":
        return client.chat.completions
    return client.responses if name == "responses" else client.messages


def said(name: str, answer: Any) -> str:
    if name == "chat":
        return str(answer.choices[0].message.content)
    return str(answer.output_text if name == "responses" else answer.content[0].text)


def check(seen: Traffic, requests: int) -> None:
    assert seen.wrong == []
    assert len(seen.bodies) == requests
    assert len(questions(seen.bodies[-1])) < TURNS, "something was left out"
    for number, body in enumerate(seen.bodies):
        assert str(number // 2) in questions(body), "the question is there"
    pairs = zip(seen.bodies[1:], seen.bodies, strict=False)
    kept = [kept_prefix(one, other) for one, other in pairs]
    assert sum(kept) / len(kept) > 0.6


@pytest.mark.parametrize("name", NAMES)
def test_every_request_of_a_long_conversation_is_valid_and_fits(name):
    with traffic(budget(name)) as (server, seen), client_of(name, server.url) as client:
        fitting = fit_client(client, budget(name))
        for messages in talk(name, TURNS):
            given = list(messages)
            answer = resource(fitting, name).create(**request(name, messages))
            assert said(name, answer) == "Hello, world"
            assert messages == given, "the caller's list is left alone"
        check(seen, 2 * TURNS)
        assert isinstance(fitting, type(client))


@pytest.mark.parametrize("name", NAMES)
def test_streams_of_async_clients_pass_as_they_are(name):
    async def run(url: str) -> None:
        client = fit_client(client_of(name, url, asynchronous=True), budget(name))
        async with client:
            for messages in talk(name, TURNS):
                stream = await resource(client, name).create(**request(name, messages, stream=True))
                assert [event async for event in stream]

    with traffic(budget(name)) as (server, seen):
        asyncio.run(run(server.url))
        check(seen, 2 * TURNS)


@pytest.mark.parametrize("name", NAMES)
def test_other_ways_to_call_fit_too(name):
    messages = list(talk(name, TURNS))[-1]
    with traffic(BUDGET) as (server, seen), client_of(name, server.url) as client:
        fitting = fit_client(client, BUDGET)
        given = request(name, messages)
        raw = resource(fitting, name).with_raw_response.create(**given)
        assert raw.headers["x-request-id"] == "req_1"
        assert said(name, raw.parse()) == "Hello, world"
        resource(fitting.with_options(timeout=5), name).create(**given)
        with resource(fitting, name).with_streaming_response.create(**given) as response:
            response.read()
        assert seen.wrong == []
        assert len(seen.bodies) == 3
        resource(client, name).create(**given)
        assert "tokens are over" in seen.wrong[0], "the client that was given is as it was"


def test_streams_of_the_helpers_fit_too():
    messages = list(talk("anthropic", TURNS))[-1]
    given = {k: v for k, v in request("anthropic", messages).items() if k != "stream"}
    with traffic(BUDGET) as (server, seen):
        client = fit_client(client_of("anthropic", server.url), BUDGET)
        with client.messages.stream(**given) as stream:
            assert stream.get_final_text() == "Hello, world"
        chat = fit_client(client_of("chat", server.url), BUDGET)
        messages = list(talk("chat", TURNS))[-1]
        given = {k: v for k, v in request("chat", messages).items() if k != "stream"}
        with chat.chat.completions.stream(**given) as events:
            assert list(events)
        assert (len(seen.bodies), seen.wrong) == (2, [])


def test_what_fits_is_sent_as_it_is_and_other_calls_pass():
    with traffic(BUDGET) as (server, seen):
        client = fit_client(client_of("chat", server.url), BUDGET)
        messages = [{"role": "user", "content": "Hi", "x": 1}]
        client.chat.completions.create(model="gpt-4o", messages=messages)
        assert seen.bodies[0]["messages"] == messages
        assert client.models.list().data == []


def test_a_retry_sends_the_same_request():
    bodies: list[bytes] = []

    def answer(received: Received) -> Answer:
        bodies.append(received.raw)
        return Answer(500, body={}) if len(bodies) == 1 else Answer(body=CHAT.body)

    with serving(answer) as server:
        plain = openai.OpenAI(api_key="k", base_url=f"{server.url}/v1", max_retries=1)
        messages = list(talk("chat", TURNS))[-1]
        fit_client(plain, BUDGET).chat.completions.create(**request("chat", messages))
    assert bodies[0] == bodies[1]


def test_a_budget_that_is_too_small_is_an_error_and_nothing_is_sent():
    with traffic(BUDGET) as (server, seen):
        client = fit_client(client_of("chat", server.url), 10)
        with pytest.raises(BudgetExceeded):
            client.chat.completions.create(**request("chat", next(iter(talk("chat", 1)))))
        assert seen.bodies == []


def test_what_is_no_client_is_refused():
    with pytest.raises(InvalidType, match="FitTransport"):
        fit_client(object(), 1_000)
    with pytest.raises(InvalidInput, match="not both"):
        fit_client(openai.OpenAI(api_key="k"), 1_000, fitter=Fitter(1_000))
