"""A long run through the real SDKs: every request that arrives keeps the vendor's rules."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest

from muntin import App, Ladder, ToolCall
from muntin.providers.client import Client
from tests.providers.servers import PROTOCOLS, Answer, Received, serving
from tests.wire.rules import check_anthropic, check_chat, check_google, check_responses

pytest.importorskip("openai")
pytest.importorskip("anthropic")
pytest.importorskip("google.genai")

STEPS = 45
BUDGET = 6_000
RESULT = "".join(f"line {n} of the file, rather long, as lines are.\n" for n in range(40))
# What the SDK adds to a request, or Muntin's settings do; no part of the window.
SETTINGS = ("model", "max_tokens", "stream", "metadata")


def read_file(path: str) -> str:
    """Read a file."""
    return f"{path}: {RESULT}"


def chat(call: ToolCall | None, body: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {"role": "assistant", "content": None if call else "Done."}
    if call:
        function = {"name": call.name, "arguments": call.arguments}
        said["tool_calls"] = [{"id": call.id, "type": "function", "function": function}]
    choice = {**body["choices"][0], "message": said}
    return {**body, "choices": [{**choice, "finish_reason": "tool_calls" if call else "stop"}]}


def responses(call: ToolCall | None, body: dict[str, Any]) -> dict[str, Any]:
    if call is None:
        return body
    item = {"id": f"fc_{call.id}", "type": "function_call", "status": "completed"}
    item |= {"call_id": call.id, "name": call.name, "arguments": call.arguments}
    return {**body, "output": [item]}


def messages(call: ToolCall | None, body: dict[str, Any]) -> dict[str, Any]:
    if call is None:
        return body
    block = {"type": "tool_use", "id": call.id, "name": call.name}
    content = [{**block, "input": json.loads(call.arguments)}]
    return {**body, "content": content, "stop_reason": "tool_use"}


def generate_content(call: ToolCall | None, body: dict[str, Any]) -> dict[str, Any]:
    if call is None:
        return body
    function = {"id": call.id, "name": call.name, "args": json.loads(call.arguments)}
    part = {"functionCall": function, "thoughtSignature": "c2lnbmVk"}
    content = {"role": "model", "parts": [part]}
    return {**body, "candidates": [{**body["candidates"][0], "content": content}]}


Answering = Callable[[ToolCall | None, dict[str, Any]], dict[str, Any]]
ANSWERS: dict[str, Answering] = {
    "chat": chat,
    "responses": responses,
    "messages": messages,
    "generate_content": generate_content,
}


def snake(value: Any) -> Any:
    """Return a request to Google as the SDK was given it: other names, signatures as bytes."""
    if isinstance(value, list):
        return [snake(each) for each in value]
    if not isinstance(value, dict):
        return value
    names = {"functionCall": "function_call", "functionResponse": "function_response"}
    found = {names.get(key, key): snake(each) for key, each in value.items()}
    if "thoughtSignature" in found:
        found["thought_signature"] = b64decode(found.pop("thoughtSignature"))
    return found


def check(name: str, body: Mapping[str, Any]) -> None:
    if name == "generate_content":
        check_google({"contents": snake(body["contents"]), "config": {}})
        return
    rules = {"chat": check_chat, "responses": check_responses, "messages": check_anthropic}
    rules[name]({key: value for key, value in body.items() if key not in SETTINGS})


def past(name: str, body: Mapping[str, Any]) -> list[str]:
    """Return what is said in a request, without marks for the cache."""
    key = {"responses": "input", "generate_content": "contents"}.get(name, "messages")
    return [json.dumps(_plain(each), sort_keys=True) for each in body[key]]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        marks = ("cache_control", "prompt_cache_breakpoint")
        return {key: _plain(each) for key, each in value.items() if key not in marks}
    return [_plain(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_long_run_keeps_every_rule_of_the_wire_and_most_of_the_prefix(name, tmp_path):
    protocol = PROTOCOLS[name]
    wrong: list[str] = []

    def answer(received: Received) -> Answer:
        try:
            check(name, received.body)
        except Exception as error:
            wrong.append(f"request {len(server.received)}: {error!r}"[:500])
        number = len(server.received)
        arguments = json.dumps({"path": f"f{number}"})
        call = None if number > STEPS else ToolCall(f"call_{number}", "read_file", arguments)
        return Answer(body=ANSWERS[name](call, protocol.body))

    async def run() -> Any:
        model = Client(
            protocol.model,
            api=protocol.api,
            base_url=server.url + protocol.base,
            api_key="none",
            max_retries=0,
        )
        url = f"sqlite:///{tmp_path / 'a.db'}"
        async with App(url, model=model, budget=BUDGET, ladder=Ladder(keep_groups=2)) as app:
            talk = app.conversation("c", tools=[read_file], max_steps=100)
            return await talk.send("Please read all of the files.")

    with serving(answer) as server:
        reply = asyncio.run(run())
    assert wrong == []
    assert len(server.received) == STEPS + 1
    assert reply.text in ("Done.", "Hello, world")
    sent = [past(name, request.body) for request in server.received]
    kept = [now[: len(before)] == before for before, now in pairwise(sent)]
    steps = kept.count(False)
    assert 1 <= steps <= STEPS // 4, steps
    last = json.dumps(sent[-1])
    assert "Please read all of the files." in last
    assert "read_file: " in last  # one line for a result
    assert f"call_{STEPS}" in last
