"""Keys and names: where a key comes from, that it is shown nowhere, and what a wrong name says."""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle
import sys
import traceback

import pytest

from muntin.errors import (
    AuthenticationFailed,
    InvalidInput,
    MissingExtra,
    MuntinError,
    ProviderError,
    UnknownModel,
)
from muntin.providers.client import Client
from muntin.providers.names import as_model
from muntin.providers.sdks import APIS, NO_KEY
from tests.providers.servers import CHAT, MESSAGES, Answer, Protocol, serving
from tests.providers.test_client import KEY, answer_of, ask, client_of, window

VARIABLES = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "google": "GOOGLE_API_KEY",
}
ADDRESSES = {
    "openai": "OPENAI_BASE_URL",
    "anthropic": "ANTHROPIC_BASE_URL",
    "google": "GOOGLE_GEMINI_BASE_URL",
}


def provider_of(protocol: Protocol) -> str:
    return protocol.model.partition("/")[0]


# --- where a key comes from


def test_the_sdks_own_environment_variables_work(protocol, monkeypatch):
    with serving(Answer(body=protocol.body)) as server:
        monkeypatch.setenv(VARIABLES[provider_of(protocol)], KEY)
        monkeypatch.setenv(ADDRESSES[provider_of(protocol)], server.url + protocol.base)
        ask(Client(protocol.model, api=protocol.api), streamed=False)
    assert KEY in server.received[0].headers[protocol.key_header]


def test_a_missing_key_names_the_variable_before_anything_is_sent(protocol, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))  # no profile on disk either
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path))
    variable = VARIABLES[provider_of(protocol)]
    with pytest.raises(AuthenticationFailed, match=f"no key: set {variable}") as caught:
        ask(Client(protocol.model, api=protocol.api), streamed=False)
    assert caught.value.status is None


@pytest.mark.parametrize("key", [None, ""])
def test_a_server_elsewhere_needs_no_key(protocol, key):
    with serving(Answer(body=protocol.body)) as server:
        ask(client_of(protocol, server, api_key=key), streamed=False)
    assert NO_KEY in server.received[0].headers[protocol.key_header]


def test_an_empty_key_keeps_the_one_of_the_environment_at_home(protocol, monkeypatch):
    monkeypatch.setenv(VARIABLES[provider_of(protocol)], KEY)
    with serving(Answer(body=protocol.body)) as server:
        ask(client_of(protocol, server, api_key=""), streamed=False)
    assert KEY not in str(server.received[0].headers)


def test_a_key_set_after_the_first_try_is_used(monkeypatch):
    async def twice() -> None:
        model = as_model(MESSAGES.model)
        for key in ("sk-first-first", "sk-second-second"):
            monkeypatch.setenv("ANTHROPIC_API_KEY", key)
            await model.complete(window(), settings={})

    with serving(Answer(body=MESSAGES.body)) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        asyncio.run(twice())
    sent = [received.headers["authorization"] for received in server.received]
    assert sent == ["Bearer sk-first-first", "Bearer sk-second-second"]


# --- a key is shown nowhere


FAILURES = {
    "refused": Answer(400, {"error": {"message": f"key {KEY} may not", "type": "x"}}),
    "unauthorised": Answer(401, {"error": {"message": f"Incorrect API key: {KEY}"}}),
    "limited": Answer(429, f"slow down, {KEY}"),
    "failed": Answer(500, f"<html>{KEY}</html>"),
    "malformed": Answer(body=f"not json {KEY}"),
    "wrong shape": Answer(body={"key": KEY}),
    "within": Answer(body={"error": {"code": 429, "message": f"{KEY} is limited"}}),
    "cut": Answer(body={"key": KEY}, cut="dirty"),
    "no stream": Answer(pieces=(f"data: {KEY}\n\n",)),
    "slow": Answer(body={}, delay=5),
}


@pytest.mark.parametrize("streamed", [False, True], ids=["complete", "stream"])
@pytest.mark.parametrize("answer", FAILURES.values(), ids=FAILURES.keys())
def test_no_failure_shows_the_key(protocol, answer, streamed, caplog):
    caplog.set_level(logging.DEBUG)
    with serving(answer) as server:
        client = client_of(protocol, server, timeout=0.3)
        with pytest.raises(ProviderError) as caught:
            ask(client, streamed)
    error = caught.value
    shown = [
        repr(client),
        repr(vars(client)),
        str(error),
        repr(error),
        repr(vars(error)),
        "".join(traceback.format_exception(error)),
        caplog.text,
    ]
    assert [text for text in shown if KEY in text] == []
    assert KEY.encode() not in pickle.dumps(client) + pickle.dumps(error)


def test_no_success_logs_the_key(protocol, caplog):
    caplog.set_level(logging.DEBUG)
    for streamed in (False, True):
        with serving(answer_of(protocol, streamed)) as server:
            reply = ask(client_of(protocol, server), streamed)
        assert KEY not in caplog.text + repr(reply)


def test_a_client_travels_without_its_key(protocol):
    client = Client(protocol.model, api=protocol.api, api_key=KEY, timeout=3, max_retries=1)
    for twin in (pickle.loads(pickle.dumps(client)), copy.copy(client), copy.deepcopy(client)):
        assert twin.name == client.name
        assert twin._options.timeout == 3
        assert twin._options.api_key is None


def test_a_client_that_cannot_be_made_does_not_show_the_key():
    with pytest.raises(InvalidInput) as caught:
        ask(Client("openai/x", base_url="http://localhost:port", api_key=KEY), streamed=False)
    assert "cannot be made" in str(caught.value)
    assert KEY not in "".join(traceback.format_exception(caught.value))


# --- names and options


@pytest.mark.parametrize("address", ["localhost:11434/v1", "http://[nonsense", "//host", "file:/x"])
def test_an_address_that_is_no_url_is_named(protocol, address, monkeypatch):
    with pytest.raises(InvalidInput, match="base_url must be a URL like"):
        ask(Client(protocol.model, api=protocol.api, base_url=address), streamed=False)
    variable = ADDRESSES[provider_of(protocol)]
    monkeypatch.setenv(variable, address)
    with pytest.raises(InvalidInput, match=f"{variable} must be a URL like"):
        ask(Client(protocol.model, api=protocol.api), streamed=False)


@pytest.mark.parametrize("name", ["mistral/large", "gpt-5.2", "", "/x"])
def test_an_unknown_provider_lists_the_known_ones(name):
    with pytest.raises(UnknownModel, match="anthropic, google, openai"):
        as_model(name)


def test_a_provider_alone_names_no_model():
    with pytest.raises(UnknownModel, match="write 'openai/<model>'"):
        as_model("openai/")


def test_an_unknown_api_lists_the_known_ones():
    with pytest.raises(InvalidInput, match="'chat', 'responses'"):
        as_model("openai/gpt-5.2", api="assistants")


@pytest.mark.parametrize(("provider", "api"), APIS)
def test_a_missing_extra_says_what_to_install(provider, api, monkeypatch):
    sdk = APIS[provider, api].sdk
    monkeypatch.setitem(sys.modules, sdk, None)
    extra = sdk.partition(".")[0]
    with pytest.raises(MissingExtra, match=rf"{provider!r} .*pip install 'muntin\[{extra}\]'"):
        Client(f"{provider}/x", api=api)


@pytest.mark.parametrize("model", [None, 5, object()])
def test_something_that_does_not_answer_is_no_model(model):
    with pytest.raises(TypeError, match="a model must be"):
        as_model(model)


def test_an_object_that_answers_is_returned_as_it_is():
    client = Client("openai/x", api_key=KEY)
    assert as_model(client) is client
    with pytest.raises(InvalidInput, match="are for models by name"):
        as_model(client, timeout=5)


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": "5"},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"max_retries": -1},
        {"max_retries": 1.5},
        {"base_url": 5},
        {"api_key": 5},
    ],
    ids=str,
)
def test_a_wrong_option_is_named(options):
    with pytest.raises(MuntinError, match=next(iter(options))):
        as_model("openai/gpt-5.2", **options)


def test_a_context_too_long_is_a_request_refused_and_a_provider_error():
    with serving(Answer(400, CHAT.too_long)) as server, pytest.raises(ProviderError) as caught:
        ask(client_of(CHAT, server), streamed=False)
    kinds = [kind.__name__ for kind in type(caught.value).__mro__]
    assert kinds[:4] == ["ContextTooLong", "RequestRefused", "ProviderError", "MuntinError"]
