"""Models by name: the real SDKs against loopback servers, speaking each protocol well and badly."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from muntin import BudgetExceeded, InvalidInput, MuntinError, Slots, Window
from muntin.errors import (
    AuthenticationFailed,
    BadResponse,
    ContextTooLong,
    ProviderError,
    ProviderUnavailable,
    RateLimited,
    RequestRefused,
)
from muntin.providers.client import Client
from muntin.providers.model import Finished, TextDelta, Usage
from muntin.providers.names import as_model
from tests.providers.servers import MESSAGES, PROTOCOLS, Answer, Protocol, Server, serving

pytest.importorskip("openai")
pytest.importorskip("anthropic")
pytest.importorskip("google.genai")

KEY = "sk-canary-0123456789"


@pytest.fixture(params=[False, True], ids=["complete", "stream"])
def streamed(request):
    return request.param


def window(text: str = "Greet the world.") -> Window:
    slots = Slots(1_000, tokenizer=len)
    slots.add("system", "Be brief.")
    slots.add("input", text)
    return slots.render()


def client_of(protocol: Protocol, server: Server, **options: Any) -> Client:
    given = {"api_key": KEY, "max_retries": 0, "timeout": 5.0, **options}
    return Client(protocol.model, api=protocol.api, base_url=server.url + protocol.base, **given)


def ask(client: Client, streamed: bool, sent: Window | None = None, **settings: Any) -> Any:
    """Return the reply, by way of the sync twins."""
    if not streamed:
        return client.complete_sync(sent or window(), settings=settings)
    *_, last = client.stream_sync(sent or window(), settings=settings)
    assert isinstance(last, Finished)
    return last.reply


def answer_of(protocol: Protocol, streamed: bool) -> Answer:
    return Answer(pieces=protocol.pieces) if streamed else Answer(body=protocol.body)


def encoded(protocol: Protocol) -> dict[str, Any]:
    """Return what the window's own method gives, as JSON of the wire."""
    if protocol.model.startswith("openai/"):
        return window().openai(api=protocol.api or "chat")  # type: ignore[arg-type]
    if protocol is MESSAGES:
        return window().anthropic()
    given = window().google()
    return {
        "contents": given["contents"],
        "systemInstruction": given["config"]["system_instruction"],
    }


def eventually(fact: Callable[[], bool]) -> None:
    """Wait for what a server's thread is about to notice."""
    deadline = time.monotonic() + 30
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def closed(server: Server, connections: int) -> bool:
    return len(server.closed) == connections


# --- what is sent and what comes back


def test_a_model_answers(protocol, streamed):
    with serving(answer_of(protocol, streamed)) as server:
        reply = ask(client_of(protocol, server), streamed)
    assert reply.text == "Hello, world"
    assert reply.finish_reason == "stop"
    assert reply.usage == Usage(11, 3)
    assert reply.window == window()
    [received] = server.received
    assert received.path == (protocol.stream_path if streamed else protocol.path)
    assert KEY in received.headers[protocol.key_header]


def test_the_server_receives_what_the_window_encodes(protocol, streamed):
    with serving(answer_of(protocol, streamed)) as server:
        ask(client_of(protocol, server), streamed)
    body = server.received[0].body
    expected = encoded(protocol)
    assert {name: body[name] for name in expected} == expected
    added = {"model", "stream", "stream_options", "max_tokens", "generationConfig"}
    assert body.keys() - expected.keys() <= added


def test_a_stream_yields_the_text_as_it_comes(protocol):
    with serving(Answer(pieces=protocol.pieces)) as server:
        *events, last = client_of(protocol, server).stream_sync(window())
    assert events == [TextDelta("Hello"), TextDelta(", world")]
    assert isinstance(last, Finished)


def test_the_first_piece_is_yielded_before_the_stream_ends(protocol):
    async def first() -> object:
        with serving(Answer(pieces=protocol.pieces[:-2] or protocol.pieces[:1], hang=True)) as s:
            async with client_of(protocol, s) as client:
                stream = client.stream(window())
                event = await anext(stream)
                await stream.aclose()
                return event

    assert asyncio.run(first()) == TextDelta("Hello")


def test_requests_share_a_connection_which_is_closed_with_the_event_loop(protocol):
    async def twice(client: Client) -> None:
        await client.complete(window())
        await client.complete(window())

    with serving(Answer(body=protocol.body)) as server:
        client = client_of(protocol, server)
        for runs in (1, 2):
            asyncio.run(twice(client))
            assert len(server.received) == 2 * runs
            assert len(server.opened) == runs
            eventually(partial(closed, server, runs))


def test_a_client_that_is_forgotten_is_closed(protocol):
    async def forget() -> None:
        client = client_of(protocol, server)
        await client.complete(window())
        del client
        await asyncio.to_thread(eventually, partial(closed, server, 1))

    with serving(Answer(body=protocol.body)) as server:
        asyncio.run(forget())


def test_requests_at_the_same_time_open_one_client():
    async def both() -> None:
        async with client_of(MESSAGES, server) as client:
            await asyncio.gather(*(client.complete(window()) for _ in range(5)))
            assert opened == [client]

    opened = []
    with serving(Answer(body=MESSAGES.body)) as server, pytest.MonkeyPatch.context() as patch:
        original = Client._open

        def counted(self: Client, elsewhere: bool) -> Any:
            opened.append(self)
            return original(self, elsewhere)

        patch.setattr(Client, "_open", counted)
        asyncio.run(both())
    assert len(server.received) == 5


def test_a_closed_client_opens_again():
    async def closed_between() -> list[str]:
        async with client_of(MESSAGES, server) as client:
            first = await client.complete(window())
            await client.aclose()
            second = await client.complete(window())
        return [first.text, second.text]

    with serving(Answer(body=MESSAGES.body)) as server:
        assert asyncio.run(closed_between()) == ["Hello, world"] * 2


def test_a_sync_twin_inside_an_event_loop_is_a_clear_error(streamed):
    async def inside() -> None:
        with serving(answer_of(MESSAGES, streamed)) as server:
            ask(client_of(MESSAGES, server), streamed)

    with pytest.raises(MuntinError, match="cannot run inside an event loop"):
        asyncio.run(inside())


def test_a_window_over_budget_is_not_sent(protocol, streamed):
    slots = Slots(5, tokenizer=len)
    slots.add("system", "Be brief, always.", required=True)
    with serving(answer_of(protocol, streamed)) as server, pytest.raises(BudgetExceeded):
        ask(client_of(protocol, server), streamed, slots.render())
    assert server.received == []


# --- errors

KINDS = {
    400: RequestRefused,
    401: AuthenticationFailed,
    404: RequestRefused,
    429: RateLimited,
    500: ProviderUnavailable,
}


@pytest.mark.parametrize("status", KINDS)
def test_a_refusal_is_told_by_who_must_act(protocol, streamed, status):
    body = protocol.errors[status]
    with (
        serving(Answer(status, body, headers={"retry-after": "7"})) as server,
        pytest.raises(ProviderError) as caught,
    ):
        ask(client_of(protocol, server), streamed)
    error = caught.value
    assert type(error) is KINDS[status]
    assert (f"{error.provider}/{error.model}", error.status) == (protocol.model, status)
    assert error.message == body["error"]["message"]
    assert error.__cause__ is not None
    assert len(server.received) == 1
    if isinstance(error, RateLimited):
        assert error.retry_after == 7.0


def test_a_window_too_long_for_the_model_can_be_recognised(protocol, streamed):
    with serving(Answer(400, protocol.too_long)) as server, pytest.raises(ContextTooLong):
        ask(client_of(protocol, server), streamed)


def test_retries_are_left_to_the_sdk(protocol):
    headers = {"retry-after-ms": "1", "retry-after": "0.001"}
    with (
        serving(Answer(500, protocol.errors[500], headers=headers)) as server,
        pytest.raises(ProviderUnavailable),
    ):
        ask(client_of(protocol, server, max_retries=1), streamed=False)
    assert len(server.received) == 2


def test_a_connection_cut_in_a_body_or_a_stream_is_unavailable(protocol, streamed):
    answer = answer_of(protocol, streamed)
    cut = Answer(body=answer.body, pieces=answer.pieces and answer.pieces[:1], cut="dirty")
    with serving(cut) as server, pytest.raises(ProviderUnavailable) as caught:
        ask(client_of(protocol, server), streamed)
    assert caught.value.status is None


def test_a_stream_that_just_ends_is_no_whole_answer(protocol):
    pieces = protocol.pieces[: -3 if len(protocol.pieces) > 3 else -1]
    with (
        serving(Answer(pieces=pieces, cut="clean")) as server,
        pytest.raises(ProviderUnavailable, match="broke off"),
    ):
        ask(client_of(protocol, server), streamed=True)


def test_an_error_within_a_stream_is_mapped_and_what_came_before_was_yielded(protocol):
    before = protocol.pieces[:5] if len(protocol.pieces) > 5 else protocol.pieces[:1]
    seen: list[object] = []
    with serving(Answer(pieces=(*before, protocol.in_stream))) as server:
        stream = client_of(protocol, server).stream_sync(window())
        with pytest.raises(ProviderUnavailable):
            deque(map(seen.append, stream), maxlen=0)
    assert TextDelta("Hello") in seen


def test_a_slow_first_byte_is_a_timeout(protocol, streamed):
    answer = answer_of(protocol, streamed)
    slow = Answer(body=answer.body, pieces=answer.pieces, delay=60)
    started = time.monotonic()
    with serving(slow) as server, pytest.raises(ProviderUnavailable):
        ask(client_of(protocol, server, timeout=0.1), streamed)
    assert time.monotonic() - started < 30


def test_a_timeout_can_be_a_setting(protocol):
    with (
        serving(Answer(body=protocol.body, delay=60)) as server,
        pytest.raises(ProviderUnavailable),
    ):
        ask(client_of(protocol, server), False, timeout=0.1)


def test_nobody_listening_is_unavailable(protocol, streamed):
    with serving(Answer()) as server:
        client = client_of(protocol, server)
    with pytest.raises(ProviderUnavailable):
        ask(client, streamed)


@pytest.mark.parametrize("body", ["<html>", "{", [1, 2], {"a": 1}, "null", ""])
def test_a_malformed_body_is_a_bad_response(protocol, body):
    with serving(Answer(body=body)) as server, pytest.raises(BadResponse) as caught:
        ask(client_of(protocol, server), streamed=False)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("piece", ["data: {nonsense\n\n", "<html>\n\n", "data: [1]\n\n"])
def test_a_malformed_stream_is_an_error(protocol, piece):
    named = "event: message_start\n" if protocol is MESSAGES else ""
    with (
        serving(Answer(pieces=(protocol.pieces[0], named + piece))) as server,
        pytest.raises((BadResponse, ProviderUnavailable)),
    ):
        ask(client_of(protocol, server), streamed=True)


# --- cancellation


def test_cancelling_closes_the_connection(protocol, streamed):
    answer = answer_of(protocol, streamed)
    slow = Answer(
        body=answer.body,
        pieces=answer.pieces and answer.pieces[:1],
        delay=0 if streamed else 5,
        hang=streamed,
    )

    async def cancelled() -> bool:
        async def read() -> None:
            if streamed:
                async for _ in client.stream(window()):
                    pass
            else:
                await client.complete(window())

        async with client_of(protocol, server) as client:
            task = asyncio.create_task(read())
            while not server.received:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await asyncio.to_thread(server.client_left.wait, 3)

    with serving(slow) as server:
        assert asyncio.run(cancelled())


def test_leaving_a_stream_early_closes_the_connection(protocol):
    async def leave() -> bool:
        async with client_of(protocol, server) as client:
            stream = client.stream(window())
            async for _ in stream:
                break
            await stream.aclose()
            return await asyncio.to_thread(server.client_left.wait, 3)

    pieces = protocol.pieces[:5] if len(protocol.pieces) > 5 else protocol.pieces[:1]
    with serving(Answer(pieces=pieces, hang=True)) as server:
        assert asyncio.run(leave())


def test_leaving_a_sync_stream_early_leaves_nothing_open(protocol, caplog):
    with serving(Answer(pieces=protocol.pieces)) as server:
        for event in client_of(protocol, server).stream_sync(window()):
            assert event == TextDelta("Hello")
            break
        eventually(partial(closed, server, 1))
    assert [record for record in caplog.records if record.name == "asyncio"] == []


# --- settings

SETTINGS: dict[str, dict[str, Any]] = {
    "chat": {"max_tokens": 50, "temperature": 0.5, "top_p": 0.9, "stop": ["x"], "seed": 1},
    "responses": {"max_output_tokens": 50, "temperature": 0.5, "top_p": 0.9},
    "messages": {"max_tokens": 50, "stop_sequences": ["x"]},
    "generate_content": {
        "maxOutputTokens": 50,
        "temperature": 0.5,
        "topP": 0.9,
        "stopSequences": ["x"],
        "seed": 1,
    },
}


@pytest.mark.parametrize("limit", ["max_tokens", "max_output_tokens"])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_settings_arrive_under_the_providers_own_names(name, limit):
    protocol, expected = PROTOCOLS[name], SETTINGS[name]
    given: dict[str, Any] = {limit: 50, "temperature": 0.5, "top_p": 0.9, "stop": ["x"], "seed": 1}
    # API version 2026-10-21 of Anthropic has no sampling parameters.
    missing = {"responses": ("stop", "seed"), "messages": ("temperature", "top_p", "seed")}
    for each in missing.get(name, ()):
        del given[each]
    with serving(Answer(body=protocol.body)) as server:
        ask(client_of(protocol, server), False, **given, presence_penalty=None)
    body = server.received[0].body
    sent = body["generationConfig"] if name == "generate_content" else body
    assert {key: sent.get(key) for key in expected} == expected


def test_openai_itself_gets_the_newer_name_of_the_limit(monkeypatch):
    from muntin.providers import sdks

    api, _ = sdks.find_api("openai/gpt-5.2", None)
    client = Client("openai/gpt-5.2", api_key=KEY)._open(elsewhere=False)
    import openai

    request = sdks.with_settings(api, client, openai, {"messages": []}, {"max_tokens": 5})
    assert request == {"messages": [], "max_completion_tokens": 5}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"max_tokens": 5, "max_output_tokens": 5}, "given twice"),
        ({"tempreture": 1}, "'tempreture' cannot be set"),
        ({"model": "x"}, "'model' cannot be set"),
        ({"stop": object()}, "stop"),
    ],
)
def test_a_wrong_setting_is_named_and_nothing_is_sent(protocol, settings, named):
    if "stop" in settings and protocol.api == "responses":
        settings = {"user": object()}
        named = "user"
    with serving(Answer(body=protocol.body)) as server, pytest.raises(InvalidInput, match=named):
        ask(client_of(protocol, server), False, **settings)
    assert server.received == []


def test_a_provider_parameter_passes_straight_through():
    with serving(Answer(body=MESSAGES.body)) as server:
        thinking = {"type": "enabled", "budget_tokens": 1_024}
        ask(client_of(MESSAGES, server), False, thinking=thinking, max_tokens=64_000)
    assert server.received[0].body["thinking"] == thinking


def test_anthropic_gets_a_limit_when_none_is_given():
    with serving(Answer(body=MESSAGES.body)) as server:
        ask(client_of(MESSAGES, server), False)
    assert server.received[0].body["max_tokens"] == 4_096


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "note": {"type": "string", "default": ""}},
    "required": ["city"],
}
CLOSED = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "note": {"type": "string"}},
    "required": ["city", "note"],
    "additionalProperties": False,
}


def test_a_schema_becomes_the_providers_structured_output(protocol):
    with serving(Answer(body=protocol.body)) as server:
        ask(client_of(protocol, server), False, output_schema=SCHEMA, output_name="place")
    body = server.received[0].body
    if protocol.api == "responses":
        form = {"type": "json_schema", "name": "place", "schema": CLOSED, "strict": True}
        assert body["text"] == {"format": form}
    elif protocol.model.startswith("openai/"):
        form = {"name": "place", "schema": CLOSED, "strict": True}
        assert body["response_format"] == {"type": "json_schema", "json_schema": form}
    elif protocol is MESSAGES:
        form = body["output_config"]["format"]
        assert form["type"] == "json_schema"
        assert form["schema"]["additionalProperties"] is False
        assert form["schema"]["properties"].keys() == SCHEMA["properties"].keys()  # type: ignore[attr-defined]
    else:
        sent = body["generationConfig"]
        assert sent["responseMimeType"] == "application/json"
        assert sent["responseJsonSchema"] == SCHEMA


def test_a_schema_joins_the_setting_it_shares_a_parameter_with():
    with serving(Answer(body=MESSAGES.body)) as server:
        ask(
            client_of(MESSAGES, server),
            False,
            output_schema=SCHEMA,
            output_config={"effort": "low"},
        )
    assert server.received[0].body["output_config"].keys() == {"effort", "format"}


# --- names, as_model


def test_as_model_gives_the_same_object_for_the_same_name():
    assert as_model("openai/gpt-5.2") is as_model("openai/gpt-5.2")
    assert as_model("openai/gpt-5.2") is not as_model("openai/gpt-5.2", api="responses")
    assert as_model("openai/meta/llama").name == "openai/meta/llama"


def test_only_the_first_slash_splits():
    chat = PROTOCOLS["chat"]
    with serving(Answer(body=chat.body)) as server:
        model = as_model("openai/meta/llama-3", base_url=f"{server.url}/v1")
        assert asyncio.run(model.complete(window(), settings={})).text == "Hello, world"
    assert server.received[0].body["model"] == "meta/llama-3"
