"""The gateway with the real clients of both vendors, curl and Node: valid, recorded, unchanged."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import socket
import subprocess
import threading
import time
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from muntin.errors import InvalidInput
from muntin.gateway import Gateway
from muntin.timeline import Session
from muntin.timeline.store import open_store
from tests.fitting.test_client import budget, client_of, resource, said
from tests.fitting.traffic import WORDS, kept_prefix, questions, request, talk, traffic
from tests.gateway.running import TOKEN, receipt, running, served, soon
from tests.providers.servers import CHAT, PROTOCOLS, Answer, serving

BUDGET, TURNS = 1_200, 10
NAMES = ["chat", "responses", "anthropic"]
KEY = "sk-very-secret-key"


@pytest.mark.parametrize("name", NAMES)
def test_a_conversation_of_a_real_client_fits_and_is_recorded(name):
    most = budget(name)
    with traffic(most) as (server, seen), running(server.url, most) as gate:
        client = client_of(name, gate.url)
        for messages in talk(name, TURNS):
            raw = resource(client, name).with_raw_response.create(**request(name, messages))
            assert said(name, raw.parse()) == "Hello, world"
            assert raw.headers["x-request-id"] == "req_1"
        told = receipt(raw.headers)
        assert seen.wrong == []
        assert len(questions(seen.bodies[-1])) < TURNS
        assert told["tokens"] <= most
        assert told["left_out"].startswith("0-")
        pairs = list(zip(seen.bodies[1:], seen.bodies, strict=False))
        assert sum(kept_prefix(*pair) for pair in pairs) / len(pairs) > 0.6
        store = gate.store
        soon(lambda: len(store.reports(told["session"])) == 2 * TURNS)
        reports = store.reports(told["session"])
        items = store.read(told["session"])
    assert len(reports) == 2 * TURNS
    assert json.loads(reports[-1].report)["budget"] == most
    assert [item.message.text[:10] for item in items if item.message and item.role == "user"] == [
        f"Question {number}"[:10] for number in range(TURNS)
    ]
    assert sum(item.kind == "tool_result" for item in items) == TURNS
    assert items[-1].meta["usage"]["input"] == 11


@pytest.mark.parametrize("name", NAMES)
def test_streams_come_back_as_they_were_sent(name):
    protocol = PROTOCOLS["messages" if name == "anthropic" else name]
    with traffic(BUDGET) as (server, seen), running(server.url, BUDGET) as gate:
        messages = list(talk(name, TURNS))[-1]
        body = request(name, messages, stream=True)
        url = f"{gate.url}{protocol.path}"
        sent = {"authorization": f"Bearer {KEY}", "x-custom": "1"}
        with httpx2.stream("POST", url, json=body, headers=sent) as response:
            assert response.read().decode() == "".join(protocol.pieces)
        headers = seen.headers[-1]
        assert (headers["authorization"], headers["x-custom"]) == (f"Bearer {KEY}", "1")
        assert seen.wrong == []


def test_what_fits_and_what_cannot_be_read_goes_byte_for_byte():
    bodies = [
        b'{ "model":"gpt-4o",  "messages":[{"role":"user","content":"Hi \\u00e9"}] }',
        b'{"messages": "none"}',
        b"no json at all",
        b'{"model": "gpt-4o", "input": "Hi", "previous_response_id": "resp_1"}',
    ]
    with serving(Answer(body=CHAT.body)) as server, running(server.url, BUDGET) as gate:
        told = []
        for body in bodies:
            path = "responses" if b"input" in body else "chat/completions"
            answer = httpx2.post(f"{gate.url}/v1/{path}", content=body)
            told.append(receipt(answer.headers))
        assert [each.raw for each in server.received] == bodies
    assert "left_out" not in told[0]
    assert "cannot be read" in told[1]["passed"]
    assert "cannot be read" in told[2]["passed"]
    assert "previous_response_id" in told[3]["passed"]


def test_other_paths_and_errors_of_the_provider_pass():
    def answer(received: Any) -> Answer:
        if received.path == "/v1/models?limit=3":
            return Answer(body={"object": "list", "data": []})
        return Answer(429, body={"error": {"message": "Slow down."}}, headers={"retry-after": "7"})

    with serving(answer) as server, running(server.url, BUDGET) as gate:
        assert httpx2.get(f"{gate.url}/v1/models?limit=3").json() == {"object": "list", "data": []}
        body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi"}]}
        refused = httpx2.post(f"{gate.url}/v1/chat/completions", json=body)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "7")
        assert refused.json() == {"error": {"message": "Slow down."}}


def test_a_provider_that_is_away_is_a_502_with_a_clear_body():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with running(f"http://127.0.0.1:{port}", BUDGET) as gate:
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
        answer = httpx2.post(f"{gate.url}/v1/messages", json=body, headers={"x-api-key": KEY})
        assert answer.status_code == 502
        assert answer.json()["type"] == "error"
        assert "cannot be reached" in answer.json()["error"]["message"]
        with pytest.raises(openai.InternalServerError, match="cannot be reached"):
            client_of("chat", gate.url).chat.completions.create(model="m", messages=[])


def test_a_budget_that_is_too_small_and_a_body_that_is_too_large_are_refused():
    with serving(Answer(body=CHAT.body)) as server, running(server.url, 20, most=9_000) as gate:
        url = f"{gate.url}/v1/chat/completions"
        long = {"model": "gpt-4o", "messages": [{"role": "system", "content": WORDS * 9}]}
        answer = httpx2.post(url, json=long)
        assert answer.status_code == 400
        assert "tokens" in answer.json()["error"]["message"]
        assert httpx2.post(url, content=b"x" * 9_001).status_code == 413

        def pieces() -> Any:
            yield from [b"x" * 5_000] * 3

        assert httpx2.post(url, content=pieces()).status_code == 413
        assert server.received == []


def test_a_client_that_leaves_ends_the_request_to_the_provider():
    pieces = CHAT.pieces[:1]
    for answer in (Answer(pieces=pieces, hang=True), Answer(body=CHAT.body, delay=60.0)):
        with serving(answer) as server, running(server.url, BUDGET) as gate:
            began = time.monotonic()
            body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi"}]}
            given = {**body, "stream": answer.hang}
            with httpx2.Client(timeout=2.0) as client, pytest.raises(httpx2.ReadTimeout):
                client.post(f"{gate.url}/v1/chat/completions", json=given)
            assert server.client_left.wait(30.0)
            assert time.monotonic() - began < 40.0


def test_an_answer_that_breaks_off_breaks_off_at_the_client_too():
    answer = Answer(pieces=CHAT.pieces[:2], cut="dirty")
    with serving(answer) as server, running(server.url, BUDGET) as gate:
        body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
        with pytest.raises(httpx2.RemoteProtocolError):
            httpx2.post(f"{gate.url}/v1/chat/completions", json=body)


def test_no_key_is_logged_or_stored(caplog, tmp_path):
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "gate.db"
    with traffic(BUDGET) as (server, _):
        with running(server.url, BUDGET, f"sqlite:///{file}") as gate:
            client = openai.OpenAI(api_key=KEY, base_url=f"{gate.url}/v1")
            for messages in talk("chat", 3):
                client.chat.completions.create(**request("chat", messages))
        quiet = [
            each for each in caplog.records if each.name.split(".")[0] in ("muntin", "uvicorn")
        ]
        assert not [each for each in quiet if KEY in each.getMessage()]
    assert all(KEY.encode() not in path.read_bytes() for path in tmp_path.iterdir())


def test_the_inspector_shows_what_passed_to_who_has_the_token():
    with traffic(BUDGET) as (server, _), running(server.url, BUDGET) as gate:
        client = client_of("chat", gate.url)
        for messages in talk("chat", 2):
            client.chat.completions.create(**request("chat", messages))
        assert httpx2.get(f"{gate.url}/muntin/").status_code == 401
        moved = httpx2.get(f"{gate.url}/muntin?token={TOKEN}")
        assert moved.headers["location"] == f"/muntin/?token={TOKEN}"
        with httpx2.Client(base_url=gate.url) as browser:
            page = browser.get(f"/muntin/?token={TOKEN}")
            assert 'src="static/app.js"' in page.text
            assert "Path=/muntin/" in page.headers["set-cookie"]
            assert browser.get("/muntin/static/app.js").status_code == 200

            def shown() -> Any:
                found = browser.get("/muntin/api/sessions").json()["sessions"]
                return found if found and found[0].get("items", 0) else None

            (session,) = soon(shown)
            assert session["id"].startswith("gateway/")
        assert not [each for each in server.received if "muntin" in each.path]


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
def test_curl_goes_through(tmp_path):
    file = tmp_path / "body.json"
    with traffic(BUDGET) as (server, seen), running(server.url, BUDGET) as gate:
        file.write_text(json.dumps(request("chat", list(talk("chat", TURNS))[-1], stream=True)))
        url = f"{gate.url}/v1/chat/completions"
        command = ["curl", "-sSN", "-D", "-", "-H", "content-type: application/json"]
        done = subprocess.run(
            [*command, "-d", f"@{file}", url],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    head, _, body = done.stdout.replace("\r\n", "\n").partition("\n\n")
    assert "x-muntin-receipt:" in head
    assert body == "".join(CHAT.pieces)
    assert seen.wrong == []


def test_200_streams_at_once_hold():
    open_streams = most = 0

    async def provider(scope: Any, receive: Any, send: Any) -> None:
        nonlocal open_streams, most
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        open_streams += 1
        most = max(most, open_streams)
        for piece in CHAT.pieces:
            await asyncio.sleep(2.0 if most < 200 else 0.05)
            await send({"type": "http.response.body", "body": piece.encode(), "more_body": True})
        open_streams -= 1
        await send({"type": "http.response.body", "body": b""})

    async def one(client: httpx2.AsyncClient, url: str, number: int) -> bytes:
        body = request("chat", [{"role": "user", "content": f"Question {number}"}], stream=True)
        async with client.stream("POST", url, json=body) as response:
            return await response.aread()

    async def run(url: str) -> list[bytes]:
        limits = httpx2.Limits(max_connections=None)
        async with httpx2.AsyncClient(timeout=120, limits=limits) as client:
            return await asyncio.gather(*[one(client, url, number) for number in range(200)])

    with served(provider) as upstream, running(upstream, BUDGET) as gate:
        answers = asyncio.run(run(f"{gate.url}/v1/chat/completions"))
    assert set(answers) == {"".join(CHAT.pieces).encode()}
    assert most == 200


@pytest.mark.parametrize(
    "url", ["api.openai.com", "ftp://x", "https://user:pw@host", "https://h/?a=1"]
)
def test_what_is_no_upstream_is_refused(url):
    with open_store("memory:") as store, pytest.raises(InvalidInput, match="an upstream"):
        Gateway(url, 1_000, store=store)


def test_a_store_that_fails_costs_the_record_and_not_the_request(tmp_path):
    file = tmp_path / "gate.db"
    with (
        traffic(BUDGET) as (server, seen),
        running(server.url, BUDGET, f"sqlite:///{file}") as gate,
    ):
        client = client_of("chat", gate.url)
        for number, messages in enumerate(talk("chat", TURNS)):
            client.chat.completions.create(**request("chat", messages))
            if number == 6:
                gate.store.close()
                # Another file in its place: who still has the old one open keeps that.
                for path in tmp_path.iterdir():
                    path.unlink()
                file.write_bytes(b"this is no database" * 999)
        assert seen.wrong == []
        assert len(questions(seen.bodies[-1])) < TURNS
        pairs = list(zip(seen.bodies[1:], seen.bodies, strict=False))
        assert sum(kept_prefix(*pair) for pair in pairs) / len(pairs) > 0.6


def test_a_slow_store_keeps_no_answer_and_the_order_of_what_was_said():
    """The next request comes before the answer to the last is stored."""
    with traffic(BUDGET) as (server, _), running(server.url, BUDGET) as gate:
        append, client = gate.store.append, client_of("chat", gate.url)
        answered = threading.Event()

        def slow(*given: Any, **named: Any) -> Any:
            assert answered.wait(30), "an answer waits for the store"
            return append(*given, **named)

        gate.store.append = slow  # type: ignore[method-assign]
        for messages in talk("chat", 3):
            client.chat.completions.create(**request("chat", messages))
        answered.set()
        (info,) = soon(lambda: gate.store.sessions())
        soon(lambda: len(gate.store.reports(info.id)) == 6)
        items = gate.store.read(info.id)
        reports = [(r.turn, r.step) for r in gate.store.reports(info.id)]
    assert [item.role for item in items] == ["user", "assistant", "tool", "assistant"] * 3
    answers = [item.meta for item in items if item.role == "assistant"]
    assert [(meta["usage"]["input"], meta["step"]) for meta in answers] == [(11, 1), (11, 2)] * 3
    assert reports == [(turn, step) for turn in (1, 2, 3) for step in (1, 2)]


def test_a_request_is_recorded_while_its_answer_is_awaited():
    gates: list[Any] = []
    stored: list[Any] = []

    def answer(received: Any) -> Answer:
        stored.append(soon(lambda: gates[0].store.sessions()))
        return Answer(body=CHAT.body)

    with serving(answer) as server, running(server.url, BUDGET) as gate:
        gates.append(gate)
        client_of("chat", gate.url).chat.completions.create(
            **request("chat", [{"role": "user", "content": "Hi"}])
        )
    assert [info.items for info in stored[0]] == [1], "the request, and no answer yet"


def test_history_of_a_session_is_what_was_said():
    with traffic(BUDGET) as (server, _), running(server.url, BUDGET) as gate:
        client = anthropic.Anthropic(api_key="k", base_url=gate.url)
        for messages in talk("anthropic", 3):
            client.messages.create(
                **request("anthropic", messages), extra_headers={"x-muntin-session": "my chat"}
            )
        (info,) = soon(lambda: gate.store.sessions())
        assert info.id.startswith("gateway/my chat/")
        soon(lambda: len(gate.store.reports(info.id)) == 6)
        session = Session(info.id, store=gate.store)
        roles = [item.role for item in session.items.all()]
    assert roles == ["user", "assistant", "tool", "assistant"] * 3
