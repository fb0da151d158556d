"""A gateway that is killed in the middle of a stream, and begun again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from tests.fitting.traffic import kept_prefix, questions, request, talk, traffic
from tests.gateway.running import receipt
from tests.providers.servers import CHAT, Answer, Received, serving

BUDGET, TURNS = 1_200, 12


@contextmanager
def process(upstream: str, store: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Run `muntin gateway` in a process of its own."""
    command = [sys.executable, "-m", "muntin", "gateway", "--json", "--port", "0"]
    command += ["--upstream", upstream, "--budget", str(BUDGET), "--store", store]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        try:
            assert started.stdout is not None
            yield started, json.loads(started.stdout.readline())
        finally:
            started.kill()


def test_a_gateway_killed_in_mid_stream_goes_on_with_the_same_bytes(tmp_path):
    store = f"sqlite:///{tmp_path}/gate.db"
    bodies: list[dict[str, Any]] = []
    requests = list(talk("chat", TURNS))
    broken = len(requests) - 4

    def answer(received: Received) -> Answer:
        bodies.append(received.body)
        if len(bodies) == broken + 1:
            return Answer(pieces=CHAT.pieces[:2], hang=True)
        return Answer(pieces=CHAT.pieces)

    def ask(url: str, messages: list[Any]) -> Any:
        return httpx2.stream(
            "POST",
            f"{url}/v1/chat/completions",
            json=request("chat", messages, stream=True),
            timeout=60,
        )

    with serving(answer) as server:
        with process(server.url, store) as (started, told):
            for messages in requests[:broken]:
                with ask(told["url"], messages) as response:
                    response.read()
            with ask(told["url"], requests[broken]) as response:
                stream = response.iter_bytes()
                assert next(stream)
                started.kill()
                with pytest.raises(httpx2.TransportError):
                    list(stream)
        with process(server.url, store) as (_, told):
            for messages in requests[broken:]:
                with ask(told["url"], messages) as response:
                    assert response.read().decode() == "".join(CHAT.pieces)
                    session = receipt(response.headers)["session"]
    assert bodies[broken] == bodies[broken + 1], "the same request, once more"
    assert len(questions(bodies[-1])) < TURNS
    pairs = list(zip(bodies[1:], bodies, strict=False))
    assert sum(kept_prefix(*pair) for pair in pairs) / len(pairs) > 0.6
    assert session.startswith("gateway/")


def test_the_command_says_where_it_listens_and_refuses_what_is_no_address(tmp_path):
    with traffic(BUDGET) as (server, seen):
        with process(server.url, f"sqlite:///{tmp_path}/a.db") as (_, told):
            assert told["inspector"].startswith(f"{told['url']}/muntin/?token=")
            assert httpx2.get(told["inspector"]).status_code == 200
            body = request("chat", [{"role": "user", "content": "Hi"}])
            url = f"{told['url']}/v1/chat/completions"
            assert httpx2.post(url, json=body, timeout=60).status_code == 200
        assert seen.wrong == []
    command = [sys.executable, "-m", "muntin", "gateway", "--upstream", "nowhere", "--port", "0"]
    done = subprocess.run(
        [*command, "--store", "memory:"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert "--upstream is an address" in done.stderr
