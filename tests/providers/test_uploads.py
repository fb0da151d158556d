"""Uploading: the real SDKs give a file to a loopback server, and return the id it got there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from muntin.errors import AuthenticationFailed, BadResponse
from muntin.providers.client import Client
from muntin.providers.sdks import CHAT
from tests.providers.servers import (
    GENERATE_CONTENT,
    MESSAGES,
    PROTOCOLS,
    RESPONSES,
    Answer,
    Received,
    serving,
)
from tests.providers.test_client import client_of

PDF, DATA = "application/pdf", b"%PDF-1.7 canary"
FILES: dict[str, dict[str, Any]] = {
    "openai": {
        "id": "file-1",
        "object": "file",
        "bytes": 15,
        "created_at": 1,
        "filename": "a.pdf",
        "purpose": "user_data",
        "status": "processed",
    },
    "anthropic": {
        "id": "file_1",
        "type": "file",
        "filename": "a.pdf",
        "mime_type": PDF,
        "size_bytes": 15,
        "created_at": "2026-01-01T00:00:00Z",
    },
}


def upload(client: Client, mime: str | None = PDF) -> str | None:
    return asyncio.run(client.upload(DATA, "a.pdf", mime))


@pytest.mark.parametrize(("protocol", "id"), [(RESPONSES, "file-1"), (MESSAGES, "file_1")])
def test_a_file_is_uploaded_with_its_name_and_type(protocol, id):
    with serving(Answer(body=FILES[protocol.model.partition("/")[0]])) as server:
        assert upload(client_of(protocol, server)) == id
    [received] = server.received
    assert received.path.partition("?")[0] == "/v1/files"
    assert DATA in received.raw
    assert b'filename="a.pdf"' in received.raw
    assert PDF.encode() in received.raw


@pytest.mark.parametrize(
    ("mime", "purpose"), [(PDF, b"user_data"), ("image/png", b"vision"), (None, b"user_data")]
)
def test_responses_say_what_a_file_is_for(mime, purpose):
    with serving(Answer(body=FILES["openai"])) as server:
        assert upload(client_of(RESPONSES, server), mime) == "file-1"
    assert purpose in server.received[0].raw


def test_chat_completions_of_openai_take_documents_only():
    async def uploaded(mime: str) -> str | None:
        client = client_of(PROTOCOLS["chat"], server)._open(elsewhere=True)
        try:
            return await CHAT.upload(client, DATA, "a.pdf", mime)
        finally:
            await client.close()

    with serving(Answer(body=FILES["openai"])) as server:
        assert asyncio.run(uploaded(PDF)) == "file-1"
        assert asyncio.run(uploaded("image/png")) is None


@pytest.mark.parametrize(
    ("protocol", "mime"),
    [
        (PROTOCOLS["chat"], PDF),  # a compatible server
        (RESPONSES, "audio/wav"),
        (MESSAGES, "video/mp4"),
        (MESSAGES, "text/csv"),
        (GENERATE_CONTENT, None),
    ],
)
def test_what_a_provider_takes_only_inline_is_not_uploaded(protocol, mime):
    with serving(Answer(500, {})) as server:
        assert upload(client_of(protocol, server), mime) is None
    assert server.received == []


def test_google_is_asked_until_the_file_can_be_used(monkeypatch):
    async def at_once(_: float) -> None:
        return None

    def answer(received: Received) -> Answer:
        uri = "https://generativelanguage.googleapis.com/v1/files/f1"
        file = {"name": "files/f1", "uri": uri, "mimeType": PDF, "state": "PROCESSING"}
        if received.path.startswith("/upload"):
            return Answer(body={}, headers={"x-goog-upload-url": f"{server.url}/put"})
        if received.path == "/put":
            return Answer(body={"file": file}, headers={"x-goog-upload-status": "final"})
        gets = sum(each.path.endswith("/files/f1") for each in server.received)
        return Answer(body=file if gets < 3 else {**file, "state": "ACTIVE"})

    monkeypatch.setattr("muntin.providers.sdks.asyncio.sleep", at_once)
    with serving(answer) as server:
        found = upload(client_of(GENERATE_CONTENT, server))
    assert found == "https://generativelanguage.googleapis.com/v1/files/f1"
    assert [each.raw for each in server.received if each.path == "/put"] == [DATA]
    assert len(server.received) == 5


@pytest.mark.parametrize("protocol", [RESPONSES, MESSAGES, GENERATE_CONTENT])
def test_a_refused_upload_is_mapped_like_any_request(protocol):
    with serving(Answer(401, protocol.errors[401])) as server, pytest.raises(AuthenticationFailed):
        upload(client_of(protocol, server))


@pytest.mark.parametrize("protocol", [RESPONSES, MESSAGES, GENERATE_CONTENT])
def test_an_upload_that_is_answered_with_nonsense_is_a_bad_response(protocol):
    with serving(Answer(body=[1])) as server, pytest.raises(BadResponse):
        upload(client_of(protocol, server))
