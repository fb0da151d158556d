"""The middleware of Anthropic's SDK, as users of that SDK give it."""

from __future__ import annotations

import asyncio

import anthropic

from muntin.integrations.anthropic import MuntinMiddleware
from tests.fitting.traffic import questions, request, talk, traffic

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
