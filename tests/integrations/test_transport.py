"""The transport under the real SDKs, of OpenAI and of Google: their requests fit."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import openai
import pytest
from google import genai
from google.genai import types

from muntin.fitting import Fitter
from muntin.fitting.requests import FORMS, fit_request
from muntin.integrations.transport import FitTransport
from tests.fitting.traffic import WORDS, questions, request, talk, traffic
from tests.providers.servers import GENERATE_CONTENT, Answer, Received, serving

BUDGET, TURNS = 1_200, 10


def test_requests_of_a_client_without_a_hook_fit():
    transport: Any = FitTransport(httpx2.HTTPTransport(), BUDGET)
    with traffic(BUDGET) as (server, seen), httpx2.Client(transport=transport) as http:
        client = openai.OpenAI(api_key="secret", base_url=f"{server.url}/v1", http_client=http)
        for messages in talk("chat", TURNS):
            client.chat.completions.create(**request("chat", messages))
        assert seen.wrong == []
        assert len(questions(seen.bodies[-1])) < TURNS
        assert seen.headers[-1]["authorization"] == "Bearer secret"
        assert http.post(f"{server.url}/v1/files", content=b"no json").status_code == 200
        assert client.models.list().data == []


def test_async_requests_fit_and_streams_pass():
    async def run(url: str) -> None:
        transport: Any = FitTransport(httpx2.AsyncHTTPTransport(), BUDGET)
        async with httpx2.AsyncClient(transport=transport) as http:
            client = openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", http_client=http)
            for messages in talk("responses", TURNS):
                given = request("responses", messages, stream=True)
                events = [event async for event in await client.responses.create(**given)]
                assert events[-1].type == "response.completed"

    with traffic(BUDGET) as (server, seen):
        asyncio.run(run(server.url))
        assert seen.wrong == []
        assert len(questions(seen.bodies[-1])) < TURNS


@pytest.mark.parametrize("streamed", [False, True])
def test_requests_to_gemini_fit(streamed):
    bodies: list[dict[str, Any]] = []

    def answer(received: Received) -> Answer:
        bodies.append(received.body)
        if streamed:
            return Answer(pieces=GENERATE_CONTENT.pieces)
        return Answer(body=GENERATE_CONTENT.body)

    transport: Any = FitTransport(httpx2.HTTPTransport(), BUDGET)
    contents: list[Any] = []
    with serving(answer) as server, httpx2.Client(transport=transport) as http:
        options = types.HttpOptions(base_url=server.url, httpx_client=http)
        client = genai.Client(api_key="k", http_options=options)
        for number in range(20):
            said = types.Part(text=f"Question {number}: {WORDS * 12}")
            contents.append(types.Content(role="user", parts=[said]))
            ask = (
                client.models.generate_content_stream
                if streamed
                else client.models.generate_content
            )
            answered: Any = ask(model="gemini-2.5-pro", contents=contents)
            assert list(answered) if streamed else answered.text == "Hello, world"
            contents.append(types.Content(role="model", parts=[types.Part(text=WORDS)]))
    for number, body in enumerate(bodies):
        roles = [each["role"] for each in body["contents"]]
        assert roles == ["user", "model"] * (len(roles) // 2) + ["user"]
        assert str(number) in questions(body)
        whole = fit_request(Fitter(10**7), FORMS["google"], body, model="google/gemini-2.5-pro")
        assert whole.fitted is not None
        assert whole.fitted.window.tokens <= BUDGET
    assert len(questions(bodies[-1])) < 20
    assert "Question 0" not in json.dumps(bodies[-1])
