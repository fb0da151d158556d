"""The middleware of Anthropic's SDK, as users of that SDK give it."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic

from muntin.integrations.anthropic import MuntinMiddleware
from tests.fitting.traffic import questions, request, talk, traffic
from tests.providers.servers import Answer, Received, serving

BUDGET, TURNS = 1_200, 10


def test_a_middleware_fits_the_requests_of_a_client():
    with traffic(BUDGET) as (server, seen):
        client = anthropic.Anthropic(
            api_key="k", base_url=server.url, middleware=[MuntinMiddleware(BUDGET)]
        )
        for messages in talk("anthropic", TURNS):
            client.messages.create(**request("anthropic", messages))
        assert seen.wrong == []
        assert len(questions(seen.bodies[-1])) < TURNS


def test_a_middleware_fits_the_requests_of_an_async_client():
    async def run(url: str) -> None:
        middleware = [MuntinMiddleware(BUDGET)]
        async with anthropic.AsyncAnthropic(
            api_key="k", base_url=url, middleware=middleware
        ) as client:
            for messages in talk("anthropic", TURNS):
                stream = await client.messages.create(**request("anthropic", messages, stream=True))
                assert [event.type async for event in stream][-1] == "message_stop"

    with traffic(BUDGET) as (server, seen):
        asyncio.run(run(server.url))
        assert seen.wrong == []
        assert len(questions(seen.bodies[-1])) < TURNS


def test_what_the_provider_reports_counts_for_the_next_request():
    answer = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-5",
        "content": [{"type": "text", "text": "Good day."}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1_150, "output_tokens": 10},
    }
    numbers: list[int] = []

    def reply(received: Received) -> Answer:
        numbers.append(len(received.body["messages"]))
        return Answer(body=answer)

    messages: list[Any] = [
        {"role": "user" if n % 2 == 0 else "assistant", "content": f"Message {n}. " + "word " * 60}
        for n in range(9)
    ]
    with serving(reply) as server:
        client = anthropic.Anthropic(
            api_key="k", base_url=server.url, middleware=[MuntinMiddleware(BUDGET)]
        )
        ask: dict[str, Any] = {"model": "claude-opus-5", "max_tokens": 50}
        client.messages.create(messages=messages, **ask)
        messages += [
            {"role": "assistant", "content": "Good day."},
            {"role": "user", "content": "Go on. " + "word " * 60},
        ]
        client.messages.create(messages=messages, **ask)
    assert numbers[0] == 9
    assert numbers[1] < 11
