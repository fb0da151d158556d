"""Interfaces of apps that hold their messages and their loop themselves: what passes goes by HTTP.

Each asks a local server with a vendor's client, through an adapter or the gateway. The server shows
the model the request as it came, decoded, so that a rule over interfaces looks at what was sent.
The server of the Model Context Protocol is no interface: it composes no request.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import anthropic
import httpx2
import openai

from muntin import App, Message, Slots, Window
from muntin.agent import ToolLike, tool_schema
from muntin.fitting import Fitter, fit_client
from muntin.fitting.requests import form_of
from muntin.integrations.anthropic import MuntinMiddleware
from muntin.integrations.transport import FitTransport
from muntin.testing import ScriptedModel
from tests.gateway.running import running
from tests.providers.servers import Answer, Received, serving

SYSTEM = "You are a helpful clerk."
# Sends a conversation in the form of an API, and returns the answer in that form.
Ask: TypeAlias = Callable[[list[Any], list[Any]], Awaitable[Any]]


def shown(model: ScriptedModel, received: Received) -> Window:
    """Return a request that came as a window, whole."""
    form = form_of(received.path)
    assert form is not None
    request = form.read(received.body)
    pieces = [piece.message for piece in request.pieces if piece.message is not None]
    slots = Slots(10_000_000, profile=model.name, tools=request.tools)
    slots.add("request", [*request.system, *pieces], required=True)
    return slots.render()


def provider(model: ScriptedModel) -> Callable[[Received], Answer]:
    """Return what answers requests as the model says, in the form of their API."""

    def answer(received: Received) -> Answer:
        reply = asyncio.run(model.complete(shown(model, received)))
        encode = _anthropic_reply if "messages" in received.path else _chat_reply
        return Answer(body=encode(reply.message))

    return answer


def _chat_reply(message: Message) -> dict[str, Any]:
    choice = {"index": 0, "message": message.to_dict(), "finish_reason": "stop"}
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {**head, "choices": [choice], "usage": usage}


def _anthropic_reply(message: Message) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": message.text}] if message.text else []
    for call in message.tool_calls:
        made = {"type": "tool_use", "id": call.id, "name": call.name}
        blocks.append({**made, "input": json.loads(call.arguments)})
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": blocks}
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {**head, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}


def _run(tools: Sequence[ToolLike], name: str, arguments: str) -> str:
    """Run a tool as an app does."""
    found: Any = next(tool for tool in tools if getattr(tool, "__name__", "") == name)
    return str(found(**json.loads(arguments)))


async def _chat_app(ask: Ask, text: str, tools: Sequence[ToolLike]) -> None:
    """Ask until there is an answer, in the form of Chat Completions."""
    said: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
    offered = [dict(tool_schema(tool)) for tool in tools]
    while True:
        answer = (await ask(said, offered)).choices[0].message
        said.append(answer.model_dump(exclude_none=True))
        if not answer.tool_calls:
            return
        for call in answer.tool_calls:
            result = _run(tools, call.function.name, call.function.arguments)
            said.append({"role": "tool", "tool_call_id": call.id, "content": result})


async def _anthropic_app(ask: Ask, text: str, tools: Sequence[ToolLike]) -> None:
    """Do the same in the form of Anthropic's Messages."""
    said: list[Any] = [{"role": "user", "content": text}]
    schemas: list[Any] = [tool_schema(tool)["function"] for tool in tools]
    offered = [
        {"name": e["name"], "description": e["description"], "input_schema": e["parameters"]}
        for e in schemas
    ]
    while True:
        answer = await ask(said, offered)
        blocks = [block.model_dump(exclude_none=True) for block in answer.content]
        said.append({"role": "assistant", "content": blocks})
        calls = [block for block in blocks if block["type"] == "tool_use"]
        if not calls:
            return
        results = [
            (call["id"], _run(tools, call["name"], json.dumps(call["input"]))) for call in calls
        ]
        content = [
            {"type": "tool_result", "tool_use_id": name, "content": told} for name, told in results
        ]
        said.append({"role": "user", "content": content})


def _fitter(app: App, model: ScriptedModel, **given: Any) -> Fitter:
    """Return the Fitter with the settings that an app has."""
    results, ladder = app.rules.shapes
    budget = app.budget or model.budget or 8_000
    return Fitter(budget, tokenizer=app.tokenizer, results=results, ladder=ladder, **given)


def _asks(client: openai.AsyncOpenAI, model: ScriptedModel) -> Ask:
    async def ask(said: list[Any], offered: list[Any]) -> Any:
        tools: Any = offered or openai.omit
        name = model.name.partition("/")[2] or model.name
        return await client.chat.completions.create(model=name, messages=said, tools=tools)

    return ask


def _openai(url: str, **given: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0, **given)


async def by_fit_client(
    app: App, model: ScriptedModel, text: str, tools: Sequence[ToolLike] = ()
) -> None:
    """OpenAI's client, made to fit."""
    fitter = _fitter(app, model, store=app.store)
    with serving(provider(model)) as server:
        async with _openai(server.url) as client:
            await _chat_app(_asks(fit_client(client, fitter=fitter), model), text, tools)


async def by_transport(
    app: App, model: ScriptedModel, text: str, tools: Sequence[ToolLike] = ()
) -> None:
    """OpenAI's client over a transport that fits."""
    fitter = _fitter(app, model, store=app.store)
    transport: Any = FitTransport(httpx2.AsyncHTTPTransport(), fitter=fitter)
    http = httpx2.AsyncClient(transport=transport, timeout=60)
    with serving(provider(model)) as server:
        async with _openai(server.url, http_client=http) as client:
            await _chat_app(_asks(client, model), text, tools)


async def by_middleware(
    app: App, model: ScriptedModel, text: str, tools: Sequence[ToolLike] = ()
) -> None:
    """Anthropic's client with the middleware."""
    fits = MuntinMiddleware(fitter=_fitter(app, model, store=app.store))
    with serving(provider(model)) as server:
        async with anthropic.AsyncAnthropic(
            api_key="k", base_url=server.url, max_retries=0, middleware=[fits]
        ) as client:

            async def ask(said: list[Any], offered: list[Any]) -> Any:
                tools: Any = offered or anthropic.omit
                name = model.name.partition("/")[2] or model.name
                given: Any = {"model": name, "max_tokens": 99, "system": SYSTEM, "tools": tools}
                return await client.messages.create(messages=said, **given)

            await _anthropic_app(ask, text, tools)


async def by_gateway(
    app: App, model: ScriptedModel, text: str, tools: Sequence[ToolLike] = ()
) -> None:
    """OpenAI's client through the gateway, which records itself."""
    with (
        serving(provider(model)) as server,
        running(server.url, 8_000, fitter=_fitter(app, model)) as gate,
    ):
        async with _openai(gate.url) as client:
            await _chat_app(_asks(client, model), text, tools)


WIRED: dict[str, Callable[[App, ScriptedModel, str, Sequence[ToolLike]], Awaitable[Any]]] = {
    name.removeprefix("by_"): interface
    for name, interface in list(globals().items())
    if name[:3] == "by_"
}

__all__ = ["WIRED"]
