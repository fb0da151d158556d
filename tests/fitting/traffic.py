"""An agent's conversation by HTTP: a server that checks every request by the wire rules.

It answers each question with a call of a tool, then with a text, whole or streamed, as the
provider does. What a request holds is checked with rules that know nothing of how it was made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from muntin.fitting import Fitter
from muntin.fitting.requests import FORMS, fit_request, form_of
from tests.providers.servers import PROTOCOLS, Answer, Received, Server, serving
from tests.wire.rules import CHECKS

NAMES = {"chat": "chat", "responses": "responses", "anthropic": "messages"}
MODELS = {"chat": "gpt-4o", "responses": "gpt-4o", "anthropic": "claude-opus-5"}
# What is no part of what the rules are about.
_BESIDE = ("model", "stream", "stream_options", "max_tokens", "user", "metadata", "instructions")
WORDS = "lorem ipsum dolor sit amet "


@dataclass
class Traffic:
    """What a server saw: the requests that came, and what was wrong with them."""

    url: str
    budget: int
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def look(self, received: Received) -> None:
        """Check a request."""
        form = form_of(received.path)
        if form is None:
            return
        body = received.body
        self.bodies.append(body)
        self.headers.append(received.headers)
        try:
            check(form.name, body)
        except Exception as error:
            self.wrong.append(f"{type(error).__name__}: {error}")
        tokens = tokens_of(form.name, body)
        if tokens > self.budget:
            self.wrong.append(f"{tokens} tokens are over {self.budget}")


def check(name: str, body: Mapping[str, Any]) -> None:
    """Check a request by the wire rules; texts are blocks there."""
    request = {key: value for key, value in body.items() if key not in _BESIDE}
    if name == "anthropic":
        request["messages"] = [
            {**each, "content": _blocks(each["content"])} for each in body["messages"]
        ]
        if isinstance(body.get("system"), str):
            request["system"] = _blocks(body["system"])
    CHECKS[name](request)


def _blocks(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def tokens_of(name: str, body: Mapping[str, Any]) -> int:
    """Count a request that came, by itself."""
    outcome = fit_request(Fitter(10_000_000), FORMS[name], body)
    assert outcome.fitted is not None
    return outcome.fitted.window.tokens


@contextmanager
def traffic(budget: int, **answers: Any) -> Iterator[tuple[Server, Traffic]]:
    """Serve all three APIs."""
    seen = Traffic("", budget)

    def answer(received: Received) -> Answer:
        seen.look(received)
        form = form_of(received.path)
        if form is None:
            return Answer(body={"path": received.path, "object": "list", "data": []})
        protocol = PROTOCOLS[NAMES[form.name]]
        streamed = received.body.get("stream")
        return Answer(
            body=None if streamed else protocol.body,
            pieces=protocol.pieces if streamed else None,
            headers={"x-request-id": "req_1"},
            **answers,
        )

    with serving(answer) as server:
        seen.url = server.url
        yield server, seen


def talk(name: str, turns: int, long: int = 40) -> Iterator[list[Any]]:
    """Yield the messages of each request of a conversation with tools."""
    said: list[Any] = []
    for number in range(turns):
        said.append({"role": "user", "content": f"Question {number}: {WORDS * 6}"})
        yield list(said)
        said += called(name, number, f"result {number} {WORDS * long}")
        yield list(said)
        said.append({"role": "assistant", "content": f"Answer {number}: {WORDS * 4}"})


def called(name: str, number: int, result: str) -> list[Any]:
    """Return a call of a tool and its result."""
    key, arguments = f"call_{number}", json.dumps({"city": f"City {number}"})
    if name == "chat":
        function = {"name": "weather", "arguments": arguments}
        call = {"id": key, "type": "function", "function": function}
        return [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": key, "content": result},
        ]
    if name == "responses":
        made = {"type": "function_call", "call_id": key, "name": "weather", "arguments": arguments}
        return [made, {"type": "function_call_output", "call_id": key, "output": result}]
    use = {"type": "tool_use", "id": key, "name": "weather", "input": json.loads(arguments)}
    thought = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    return [
        {"role": "assistant", "content": [thought, use]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": key, "content": result}],
        },
    ]


def tools(name: str) -> list[dict[str, Any]]:
    """Return the tool that is called."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    if name == "anthropic":
        return [{"name": "weather", "description": "The weather.", "input_schema": schema}]
    function = {"name": "weather", "description": "The weather.", "parameters": schema}
    if name == "responses":
        return [{"type": "function", "strict": False, **function}]
    return [{"type": "function", "function": function}]


def questions(body: Mapping[str, Any]) -> list[str]:
    """Return the questions in a request, by their numbers."""
    text = json.dumps(body)
    return [part.partition(":")[0] for part in text.split("Question ")[1:]]


def request(name: str, messages: list[Any], *, stream: bool = False) -> dict[str, Any]:
    """Return the arguments of a call of the SDK."""
    given: dict[str, Any] = {"model": MODELS[name], "tools": tools(name), "stream": stream}
    given["input" if name == "responses" else "messages"] = messages
    if name == "anthropic":
        given |= {"max_tokens": 100, "system": "You are brief."}
    return given


def kept_prefix(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Return how much of a request begins like the one before it."""
    first, second = (json.dumps(each.get("messages") or each.get("input")) for each in (one, other))
    shared = next(
        (n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )
    return shared / max(1, len(first))
