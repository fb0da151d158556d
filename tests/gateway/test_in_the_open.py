"""The gateway before clients that mean harm: other servers, parts of requests, odd bodies."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from muntin.errors import InvalidInput
from muntin.gateway.server import listen
from tests.fitting.traffic import request, talk
from tests.gateway.running import Running, receipt, running, soon
from tests.providers.servers import CHAT, Answer, serving

BUDGET = 1_200
BODIES = int(os.environ.get("MUNTIN_GATEWAY_BODIES", "400"))
# A client waits for most of a request: with several the machine is at work all the time.
CLIENTS = 8


def raw(port: int, head: str, body: bytes = b"", host: str = "127.0.0.1") -> bytes:
    """Send bytes as they are, and return the first line of the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        text = f"{head} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        connection.sendall(text.encode("latin-1") + body)
        answer = b""
        while data := connection.recv(65_536):
            answer += data
    return answer.split(b"\r\n", 1)[0]


def hostile(gate: int, other: int) -> Iterator[tuple[str, str]]:
    """Yield targets that are no path of the provider, as methods and texts."""
    for where in (f"127.0.0.1:{other}", f"localhost:{other}", f"x@127.0.0.1:{other}"):
        yield from (
            ("GET", f"{begin}{where}/x") for begin in ("@", "http://", "https://", ":", ".")
        )
        yield from (("POST", f"{begin}{where}/v1/messages") for begin in ("@", "http://", ".@"))
        yield "CONNECT", where
    for target in (".evil.example/", "evil.example/x", "9", "?x=1", "#x", "x", "..", "../x"):
        yield "GET", target
    yield from (("OPTIONS", "*"), ("GET", "*"), ("CONNECT", "/"), ("TRACE", "*"))
    dots = ("/..", "/../team-b/x", "/v1/../../team-b", "/%2e%2e/team-b", "/.%2E/team-b/x")
    yield from (("GET", each) for each in (*dots, "/v1/..%2f..%2fteam-b", "/..\\team-b", "/..%5cx"))
    yield from (("GET", each) for each in ("/a/./../../b", "/a//../../b", "/%2e%2e%2fb?x=/a/b"))


def test_targets_that_are_no_path_of_the_provider_are_refused():
    with (
        serving(Answer(body={"secret": 1})) as other,
        serving(Answer(body=CHAT.body)) as server,
        running(f"{server.url}/team-a", BUDGET) as gate,
    ):
        targets = list(hostile(gate.port, int(other.url.rpartition(":")[2])))
        assert len(targets) >= 50
        lines = [raw(gate.port, f"{method} {target}") for method, target in targets]
        assert {line.split(b" ")[1] for line in lines} == {b"400"}
        assert (other.received, server.received) == ([], [])


def test_paths_go_behind_the_path_of_the_provider_byte_for_byte():
    paths = ["//x@h/y", "/a/../b", "/a/%2e%2e/b", "/.", "/a;b=1/c?d=../../e", "/%41?x=%2F&y=a b"]
    with serving(Answer(body={})) as server, running(f"{server.url}/team-a", BUDGET) as gate:
        for path in paths[:-1]:
            assert raw(gate.port, f"GET {path}").startswith(b"HTTP/1.1 200")
        assert [each.path for each in server.received] == [f"/team-a{path}" for path in paths[:-1]]
    with serving(Answer(body={})) as server, running(server.url, BUDGET) as gate:
        assert raw(gate.port, "GET /../x").startswith(b"HTTP/1.1 200")
        assert [each.path for each in server.received] == ["/../x"], "nothing is above it"


def test_other_host_names_are_refused_unless_they_are_allowed():
    with serving(Answer(body={})) as server, running(server.url, BUDGET, hosts=["Gate"]) as gate:
        hosts = [
            "evil.example",
            f"evil.example:{gate.port}",
            "127.0.0.1.evil.example",
            "",
            "[",
            "a@b",
        ]
        lines = [raw(gate.port, "GET /v1/models", host=host) for host in hosts]
        assert {line.split(b" ")[1] for line in lines} == {b"421"}
        assert server.received == []
        for host in (
            "localhost",
            f"127.0.0.1:{gate.port}",
            "[::1]:1",
            "10.0.0.7",
            "gate",
            "GATE:80",
        ):
            assert raw(gate.port, "GET /v1/models", host=host).startswith(b"HTTP/1.1 200"), host


def test_a_token_guards_every_request_and_stays_here():
    with serving(Answer(body={})) as server, running(server.url, BUDGET, token="tök") as gate:
        url = f"{gate.url}/v1/models"
        wrong = [{}, {b"x-muntin-token": b"no"}, {b"authorization": "Bearer tök".encode()}]
        assert [httpx2.get(url, headers=each).status_code for each in wrong] == [401] * 3
        assert server.received == []
        assert httpx2.get(url, headers={b"x-muntin-token": "tök".encode()}).status_code == 200
        assert "x-muntin-token" not in server.received[0].headers


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "gateway.example"])
def test_it_does_not_listen_beyond_this_machine_without_a_token(host):
    with pytest.raises(InvalidInput, match="give a --token"):
        listen(host, 0)


def test_the_command_says_what_to_do_before_it_listens_beyond_this_machine():
    command = [sys.executable, "-m", "muntin", "gateway", "--upstream", "http://127.0.0.1:1"]
    command += ["--host", "0.0.0.0", "--port", "0", "--store", "memory:"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "give a --token, which clients send in the header x-muntin-token" in done.stderr
    with subprocess.Popen(
        [*command, "--token", "t", "--json"], stdout=subprocess.PIPE, text=True
    ) as started:
        try:
            assert started.stdout is not None
            assert json.loads(started.stdout.readline())["url"].startswith("http://0.0.0.0:")
        finally:
            started.kill()


def test_a_body_that_does_not_arrive_whole_is_not_sent_on():
    with serving(Answer(body=CHAT.body)) as server, running(server.url, BUDGET) as gate:
        assert httpx2.get(f"{gate.url}/v1/models").status_code == 200, "a connection is there now"
        begins = [
            b"Content-Length: 100\r\n\r\n" + b'{"model": "gpt-4o"',
            b"Content-Length: 100\r\n\r\n",
            b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"a":\r\n',
            b'Transfer-Encoding: chunked\r\n\r\n500\r\n{"a":',
        ]
        for number in range(40):
            path = ("threads", "chat/completions", "messages")[number % 3]
            with socket.create_connection(("127.0.0.1", gate.port), timeout=20) as connection:
                head = f"POST /v1/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode()
                connection.sendall(head + begins[number % 4])
                if number % 5:
                    time.sleep(0.02)
                if number % 2:
                    connection.shutdown(socket.SHUT_WR)
                    time.sleep(0.02)
        assert httpx2.get(f"{gate.url}/v1/models").status_code == 200
        time.sleep(0.2)
        assert [each.path for each in server.received] == ["/v1/models"] * 2


ODD: list[Any] = [None, True, 0, -1, 1.5, 10**30, "", "x", "\ud800", [], {}, [[]], [None], ["x"]]
ODD += [{"type": ["x"]}, {"type": {"a": 1}}, {"role": ["user"]}, {"text": None}, [{"type": []}]]
ODD += [{"id": {}}, {"content": {"x": [1]}}, {"name": []}, [[[[[]]]]], {"": None}, {"type": "text"}]


def mangled(value: Any, chance: random.Random) -> Any:
    """Return a JSON value with some part of it replaced, removed or repeated."""
    if chance.random() < 0.06:
        return chance.choice(ODD)
    if isinstance(value, dict):
        keys = [key for key in value if chance.random() > 0.04]
        mixed = {key: mangled(value[key], chance) for key in keys}
        return mixed | ({"type": chance.choice(ODD)} if chance.random() < 0.04 else {})
    if isinstance(value, list):
        mixed_list = [mangled(each, chance) for each in value if chance.random() > 0.04]
        return mixed_list + mixed_list[-1:] * (chance.random() < 0.04)
    return value


def fuzzed(count: int) -> Iterator[tuple[str, bytes]]:
    """Yield paths and bodies that are nearly requests."""
    paths = {"chat": "chat/completions", "responses": "responses", "anthropic": "messages"}
    good = {name: list(talk(name, 4, long=3)) for name in paths}
    chance = random.Random(7)
    for _ in range(count):
        name = chance.choice(list(paths))
        body = json.dumps(mangled(request(name, chance.choice(good[name])), chance)).encode()
        if chance.random() < 0.03:
            body = bytes(chance.choice([byte, chance.randrange(256)]) for byte in body)
        yield paths[name], body


def test_no_body_is_an_error_of_the_gateway():
    with serving(Answer(body=CHAT.body)) as server, running(server.url, 300) as gate:
        bodies = list(fuzzed(BODIES))

        def post(part: list[tuple[str, bytes]]) -> tuple[Counter[int], list[bytes]]:
            """Post bodies, and return how often each status came, and the bodies that passed."""
            statuses, passed = Counter[int](), []
            with httpx2.Client(base_url=gate.url, timeout=60) as client:
                for path, body in part:
                    answer = client.post(f"/v1/{path}", content=body)
                    statuses[answer.status_code] += 1
                    if answer.status_code == 200 and "passed" in receipt(answer.headers):
                        passed.append(body)
            return statuses, passed

        with ThreadPoolExecutor(CLIENTS) as pool:
            parts = list(pool.map(post, [bodies[at::CLIENTS] for at in range(CLIENTS)]))
        statuses = sum((each for each, _ in parts), Counter[int]())
        assert set(statuses) <= {200, 400}, statuses
        assert statuses[200] > BODIES / 2
        passed = Counter(body for _, of_part in parts for body in of_part)
        assert passed
        assert passed <= Counter(each.raw for each in server.received)


def test_an_error_of_the_provider_about_what_was_said_passes_unchanged():
    why = {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "a stale thought"},
    }
    with serving(Answer(400, body=why)) as server, running(server.url, BUDGET) as gate:
        for messages in list(talk("anthropic", 3))[-2:]:
            body = request("anthropic", messages)
            answer = httpx2.post(f"{gate.url}/v1/messages", json=body)
            assert (answer.status_code, answer.json()) == (400, why)


def sessions(gate: Running) -> int:
    return len(gate.store.sessions(limit=5_000))


def test_half_a_request_is_not_recorded_either():
    with serving(Answer(body=CHAT.body)) as server, running(server.url, BUDGET) as gate:
        body = json.dumps(request("chat", [{"role": "user", "content": "Hi"}])).encode()
        with socket.create_connection(("127.0.0.1", gate.port), timeout=20) as connection:
            head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            connection.sendall(head + b"Content-Length: %d\r\n\r\n" % (len(body) + 1) + body)
        httpx2.post(f"{gate.url}/v1/chat/completions", content=body)
        assert soon(lambda: sessions(gate)) == 1
        assert len(server.received) == 1
