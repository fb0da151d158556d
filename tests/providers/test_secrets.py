"""Secrets beside the key: headers that a caller adds, and user and query of an address.

A server echoes what it got. Whatever goes wrong, no error, repr, log or store holds a secret.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle
import random
import traceback
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest

from muntin import App, InvalidInput, capability, config, generator, prompt
from muntin.errors import ProviderError
from muntin.providers.client import Client
from muntin.providers.secrets import bare_address, find_secrets
from muntin.settings import defaults
from tests.products import IS_WHOLE
from tests.providers.servers import CHAT, PROTOCOLS, Answer, Protocol, Received, serving
from tests.providers.test_client import KEY, answer_of, ask

PLACES = ("header", "bearer", "user", "password", "query", "environment")
VARIABLES = {
    "openai": "OPENAI_BASE_URL",
    "anthropic": "ANTHROPIC_BASE_URL",
    "google": "GOOGLE_GEMINI_BASE_URL",
}
LETTERS = "abcdefghijkmnopqrstuvwxyzABCDEFGH0123456789!\"'\\&<>~._-+%"


def given_in(place: str, secret: str, url: str, protocol: Protocol) -> tuple[str, dict[str, Any]]:
    """Return the address and the settings with a secret in one place."""
    coded = quote(secret, safe="")
    if place in ("header", "bearer"):
        headers = {"X-Tenant": secret if place == "header" else f"Bearer {secret}"}
        if protocol.model.startswith("google/"):
            return url, {"http_options": {"headers": headers}}
        return url, {"extra_headers": headers}
    if place == "query":
        return f"{url}?version=1&key={coded}", {}
    user_info = {"user": coded, "password": f"u:{coded}"}.get(place, f"{coded}:x")
    return url.replace("://", f"://{user_info}@"), {}


def echo(secret: str, kind: str) -> Any:
    """Return a server that tells what it got, and the secret in the ways it can be written."""

    def answer(received: Received) -> Answer:
        told = f"{received.headers} {received.path} {secret} {quote(secret, safe='')} {secret!r}"
        bodies = {
            "refused": Answer(400, {"error": {"message": told, "type": "x"}}),
            "limited": Answer(429, told),
            "failed": Answer(500, f"<html>{told}</html>"),
            "malformed": Answer(body=f"not json {told}"),
            "wrong shape": Answer(body={"output": told, "content": told, "candidates": told}),
            "within": Answer(body={"error": {"code": 429, "message": told}}),
            "cut": Answer(body={"key": told}, cut="dirty"),
            "no stream": Answer(pieces=(f"data: {told}\n\n",)),
            "header": Answer(401, {"error": told}, headers={"x-seen": quote(secret)}),
        }
        return bodies[kind]

    return answer


KINDS = (
    *("refused", "limited", "failed", "malformed", "wrong shape", "within", "cut"),
    *("no stream", "header"),
)


def written(secret: str) -> set[str]:
    return {secret, quote(secret, safe=""), repr(secret)[1:-1]}


def found_in(texts: list[str], secret: str) -> list[str]:
    return [text for text in texts if any(each in text for each in written(secret))]


def cases() -> list[tuple[Protocol, str, str]]:
    """Return each kind of failure with the secret in each place, over one protocol after another;
    in a soak over all of them."""
    protocols = [*PROTOCOLS.values()]
    if IS_WHOLE:
        return [*product(protocols, KINDS, PLACES)]
    return [
        (protocols[(number + index) % len(protocols)], kind, place)
        for number, kind in enumerate(KINDS)
        for index, place in enumerate(PLACES)
    ]


@pytest.mark.parametrize(
    ("protocol", "kind", "place"),
    cases(),
    indirect=["protocol"],
    ids=lambda value: value.model if isinstance(value, Protocol) else value,
)
def test_no_failure_shows_a_secret(protocol, kind, place, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    secret = "".join(random.Random(f"{kind} {place}").choices(LETTERS, k=20))
    for streamed in (False, True):
        with serving(echo(secret, kind)) as server:
            url, settings = given_in(place, secret, server.url + protocol.base, protocol)
            if place == "environment":
                monkeypatch.setenv(VARIABLES[protocol.model.partition("/")[0]], url)
            client = Client(
                protocol.model,
                api=protocol.api,
                base_url=None if place == "environment" else url,
                api_key=KEY,
                max_retries=0,
                timeout=5,
            )
            with pytest.raises(ProviderError) as caught:
                ask(client, streamed, **settings)
        error: BaseException | None = caught.value
        shown = [repr(client), repr(vars(client)), caplog.text]
        shown += traceback.format_exception(error)
        shown += [str(each) for each in (pickle.dumps(client), pickle.dumps(error))]
        while error is not None:
            shown += [str(error), repr(error), repr(vars(error))]
            error = error.__cause__ or error.__context__
        assert found_in(shown, secret) == []


@pytest.mark.parametrize("place", PLACES[:-1])
@pytest.mark.parametrize("streamed", [False, True], ids=["complete", "stream"])
def test_no_success_logs_a_secret_and_the_server_gets_it(protocol, place, streamed, caplog):
    caplog.set_level(logging.DEBUG)
    secret = "".join(random.Random(place).choices(LETTERS, k=20))
    with serving(answer_of(protocol, streamed)) as server:
        url, settings = given_in(place, secret, server.url + protocol.base, protocol)
        client = Client(protocol.model, api=protocol.api, base_url=url, api_key=KEY)
        ask(client, streamed, **settings)
    assert found_in([caplog.text], secret) == []
    [received] = server.received
    sent = " ".join([*received.headers.values(), unquote(received.path)])
    assert secret in sent or "Basic " in sent


@pytest.mark.parametrize("place", PLACES[:-1])
def test_a_store_holds_no_secret_of_a_failed_turn(place, tmp_path, caplog):
    secret = "".join(random.Random(f"store {place}").choices(LETTERS, k=20))
    with serving(echo(secret, "refused")) as server:
        url, settings = given_in(place, secret, server.url + CHAT.base, CHAT)
        model = Client(CHAT.model, base_url=url, api_key=KEY, max_retries=0)
        with config.local(settings=settings):
            app = App(f"sqlite:///{tmp_path / 'kept.db'}", model=model)
            talk = app.conversation("s", settings=settings)
            with pytest.raises(ProviderError):
                asyncio.run(talk.send("hi"))
    kept = [each.read_bytes().decode("latin-1") for each in Path(tmp_path).iterdir()]
    assert any("hi" in text for text in kept)
    assert found_in([*kept, caplog.text, repr(talk)], secret) == []


def test_a_client_travels_without_what_is_secret_in_its_address(protocol):
    url = "https://user:pass-word@host.example:8443/v1?key=secret"
    client = Client(protocol.model, api=protocol.api, base_url=url, api_key=KEY)
    for twin in (pickle.loads(pickle.dumps(client)), copy.copy(client), copy.deepcopy(client)):
        assert twin._options.base_url == "https://host.example:8443/v1"


@pytest.mark.parametrize("address", ["http://u:secret-1@[nonsense?q=secret-1", "http://u:p@h?k=v"])
def test_an_address_is_bared_whatever_it_is(address):
    assert not any(each in bare_address(address) for each in ("secret-1", "u:p@", "k=v"))


def test_settings_that_googles_sdk_refuses_are_not_shown():
    client = Client("google/gemini-3-pro", api_key=KEY)
    options = {"headers": {"X-Tenant": ["hidden-header-value"]}, "timeout": "hidden-too"}
    with pytest.raises(InvalidInput, match=r"http_options") as caught:
        ask(client, False, http_options=options)
    assert "hidden" not in "".join(traceback.format_exception(caught.value))


def test_what_is_defined_with_settings_does_not_show_them():
    hidden = {"extra_headers": {"x": "hidden-value"}}
    made = generator(name="g", prompt="p", model="openai/x", settings=hidden)
    asked = prompt(prompt="hi", settings=hidden)
    shared = capability("c", presets={"p": {"settings": hidden}})
    with config.local(settings=hidden):
        shown = [made, asked, shared, asked.resolve_sync(), asked.inspect_sync(), defaults()]
        assert [each for each in shown if "hidden" in repr(each)] == []


def test_words_that_are_no_secrets_are_left_in_errors():
    settings = {"extra_headers": {"x-version": "1"}, "temperature": 0.5}
    assert find_secrets(["none", None], ["http://localhost:11434/v1", None], settings) == []
