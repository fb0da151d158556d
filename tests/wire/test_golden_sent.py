"""The official SDKs send the golden requests as they are."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anthropic
import google.genai
import openai
import pytest

from tests.wire.test_golden import FEATURES, FILES
from tests.wire.windows import PROVIDERS, encode

REFUSAL = b'{"error": {"code": 400, "message": "read, not answered", "type": "x"}}'


@contextmanager
def listening(received: list[Any]) -> Iterator[str]:
    class Listener(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(400)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(REFUSAL)))
            self.end_headers()
            self.wfile.write(REFUSAL)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Listener)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def send(provider: str, url: str, request: dict[str, Any]) -> None:
    if provider == "google":
        client = google.genai.Client(api_key="none", http_options={"base_url": url})
        client.models.generate_content(**request, model="m")
    elif provider == "anthropic":
        claude = anthropic.Anthropic(api_key="none", base_url=url, max_retries=0)
        claude.messages.create(**request, model="m", max_tokens=1)
    else:
        gpt = openai.OpenAI(api_key="none", base_url=url, max_retries=0)
        call: Any = gpt.chat.completions if provider == "chat" else gpt.responses
        call.create(**request, model="m")


REFUSED = (openai.BadRequestError, anthropic.BadRequestError, google.genai.errors.ClientError)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_golden_requests_leave_the_sdk_as_they_came(provider):
    received: list[Any] = []
    with listening(received) as url:
        for feature, make in FEATURES.items():
            files = FILES if feature == "attachments-sent" else None
            request = encode(make(), provider, files=files)
            with suppress(*REFUSED):
                send(provider, url, request)
            [body] = received
            received.clear()
            if provider == "google":
                assert plain(body["contents"]) == plain(request["contents"]), feature
            else:
                sent = {key: body[key] for key in request}
                assert sent == request, feature


def plain(value: Any) -> Any:
    """The same value with the keys in one spelling and bytes as base64, so that both sides meet."""
    if isinstance(value, dict):
        return {key.replace("_", "").lower(): plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return b64encode(value).decode() if isinstance(value, bytes) else value
