"""Loopback HTTP servers that speak each provider's protocol, well or badly.

Real sockets, because what is tested is what the real SDKs make of them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What a server answers: a body, or the pieces of a stream, and how it misbehaves.

    `cut`: `dirty` breaks the connection before the promised end, `clean` ends it as if that
    were all. `hang` waits after the last piece until the client leaves.
    """

    status: int = 200
    body: Any = None
    pieces: tuple[str, ...] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    cut: str | None = None
    hang: bool = False


@dataclass
class Received:
    """A request as it came."""

    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        """The body of a JSON request."""
        body: dict[str, Any] = json.loads(self.raw)
        return body


@dataclass
class Server:
    """A running server: what it received, and its connections."""

    url: str
    answer: Answer | Callable[[Received], Answer]
    received: list[Received] = field(default_factory=list)
    opened: list[object] = field(default_factory=list)
    closed: list[object] = field(default_factory=list)
    client_left: threading.Event = field(default_factory=threading.Event)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def do_POST(self) -> None:
        shared: Server = self.server.shared
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        received = Received(self.path, headers, raw)
        shared.received.append(received)
        answer = shared.answer(received) if callable(shared.answer) else shared.answer
        if answer.delay:
            self._wait_for_the_client_to_leave(answer.delay)
        try:
            if answer.pieces is None:
                self._send_body(answer)
            else:
                self._send_stream(answer)
            if answer.hang:
                self._wait_for_the_client_to_leave(10)
        except (BrokenPipeError, ConnectionResetError):
            shared.client_left.set()
            self.close_connection = True

    do_GET = do_POST  # noqa: N815

    def handle(self) -> None:
        self.server.shared.opened.append(self.client_address)
        with suppress(ConnectionError):
            super().handle()
        self.server.shared.closed.append(self.client_address)

    def _start(self, answer: Answer, **headers: str) -> None:
        self.send_response(answer.status)
        for name, value in (headers | dict(answer.headers)).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def _send_body(self, answer: Answer) -> None:
        text = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
        data = text.encode()
        self._start(answer, content_type="application/json", content_length=str(len(data)))
        self.wfile.write(data[: len(data) // 2] if answer.cut else data)
        self.close_connection = bool(answer.cut)

    def _send_stream(self, answer: Answer) -> None:
        if answer.cut == "clean":
            self._start(answer, content_type="text/event-stream", connection="close")
        else:
            self._start(answer, content_type="text/event-stream", transfer_encoding="chunked")
        for piece in answer.pieces or ():
            data = piece.encode()
            if answer.cut != "clean":
                data = b"%x\r\n%s\r\n" % (len(data), data)
            self.wfile.write(data)
            self.wfile.flush()
        if not answer.cut and not answer.hang:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = bool(answer.cut)

    def _wait_for_the_client_to_leave(self, seconds: float) -> None:
        self.connection.settimeout(seconds)
        try:
            if self.connection.recv(1) == b"":
                self.server.shared.client_left.set()
        except ConnectionResetError:
            self.server.shared.client_left.set()
        except TimeoutError:
            return
        finally:
            self.connection.settimeout(None)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def serving(answer: Answer | Callable[[Received], Answer]) -> Iterator[Server]:
    """Run a server that gives this answer, or what the function returns, to every request."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    http.daemon_threads = True
    shared = Server(f"http://127.0.0.1:{http.server_port}", answer)
    http.shared = shared  # type: ignore[attr-defined]
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield shared
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def _sse(events: list[dict[str, Any]], *, named: bool = False) -> tuple[str, ...]:
    return tuple(
        (f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n"
        for event in events
    )


@dataclass(frozen=True)
class Protocol:
    """One provider's protocol: how its answers look; all of them say `Hello, world`.

    `errors` are the bodies the vendor sends; `in_stream` is an error after a 200.
    """

    model: str
    api: str | None
    base: str
    path: str
    stream_path: str
    key_header: str
    body: dict[str, Any]
    pieces: tuple[str, ...]
    errors: dict[int, dict[str, Any]]
    too_long: dict[str, Any]
    in_stream: str


def _openai_error(message: str, kind: str, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


_OPENAI_ERRORS = {
    400: _openai_error("Unknown role.", "invalid_request_error"),
    401: _openai_error("Incorrect API key.", "invalid_request_error", "invalid_api_key"),
    404: _openai_error("No such model.", "invalid_request_error", "model_not_found"),
    429: _openai_error("Slow down.", "requests", "rate_limit_exceeded"),
    500: _openai_error("The server had an error.", "server_error"),
}
_OPENAI_TOO_LONG = _openai_error(
    "This model's maximum context length is 128000 tokens.",
    "invalid_request_error",
    "context_length_exceeded",
)


def _chunk(delta: dict[str, Any] | None, finish: str | None = None) -> dict[str, Any]:
    return {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": []
        if delta is None
        else [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}],
    }


_USAGE = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
CHAT = Protocol(
    model="openai/gpt-5.2",
    api=None,
    base="/v1",
    path="/v1/chat/completions",
    stream_path="/v1/chat/completions",
    key_header="authorization",
    body={
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello, world", "refusal": None},
                "finish_reason": "stop",
                "logprobs": None,
            }
        ],
        "usage": _USAGE,
    },
    pieces=(
        *_sse(
            [
                _chunk({"role": "assistant", "content": "Hello"}),
                _chunk({"content": ", world"}),
                _chunk({}, "stop"),
                {**_chunk(None), "usage": _USAGE},
            ]
        ),
        "data: [DONE]\n\n",
    ),
    errors=_OPENAI_ERRORS,
    too_long=_OPENAI_TOO_LONG,
    in_stream="data: " + json.dumps(_OPENAI_ERRORS[500]) + "\n\n",
)


def _response(status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": "r1",
        "object": "response",
        "created_at": 1,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "m",
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": 11,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 3,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 14,
        }
        if status == "completed"
        else None,
    }


def _item(status: str, text: str | None) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    content = [] if text is None else [part]
    return {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": content,
    }


_DONE = _item("completed", "Hello, world")
_AT = {"item_id": "m1", "output_index": 0, "content_index": 0}
_RESPONSE_EVENTS: list[dict[str, Any]] = [
    {"type": "response.created", "response": _response("in_progress", [])},
    {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": _item("in_progress", None),
    },
    {
        "type": "response.content_part.added",
        **_AT,
        "part": {"type": "output_text", "text": "", "annotations": [], "logprobs": []},
    },
    {"type": "response.output_text.delta", **_AT, "delta": "Hello", "logprobs": []},
    {"type": "response.output_text.delta", **_AT, "delta": ", world", "logprobs": []},
    {"type": "response.output_text.done", **_AT, "text": "Hello, world", "logprobs": []},
    {"type": "response.content_part.done", **_AT, "part": _DONE["content"][0]},
    {"type": "response.output_item.done", "output_index": 0, "item": _DONE},
    {"type": "response.completed", "response": _response("completed", [_DONE])},
]
RESPONSES = Protocol(
    model="openai/gpt-5.2",
    api="responses",
    base="/v1",
    path="/v1/responses",
    stream_path="/v1/responses",
    key_header="authorization",
    body=_response("completed", [_DONE]),
    pieces=_sse(
        [{**event, "sequence_number": at} for at, event in enumerate(_RESPONSE_EVENTS)],
        named=True,
    ),
    errors=_OPENAI_ERRORS,
    too_long=_OPENAI_TOO_LONG,
    in_stream=_sse(
        [
            {
                "type": "response.failed",
                "sequence_number": 1,
                "response": {
                    **_response("failed", []),
                    "error": {"code": "server_error", "message": "The server had an error."},
                },
            }
        ],
        named=True,
    )[0],
)


def _anthropic_error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "r"}


_MESSAGE: dict[str, Any] = {
    "id": "m1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {
        "input_tokens": 11,
        "output_tokens": 1,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    },
}
MESSAGES = Protocol(
    model="anthropic/claude-sonnet-5-5",
    api=None,
    base="",
    path="/v1/messages",
    stream_path="/v1/messages",
    key_header="authorization",
    body={
        **_MESSAGE,
        "content": [{"type": "text", "text": "Hello, world"}],
        "stop_reason": "end_turn",
        "usage": {**_MESSAGE["usage"], "output_tokens": 3},
    },
    pieces=_sse(
        [
            {"type": "message_start", "message": _MESSAGE},
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "text", "text": ""},
            },
            {"type": "ping"},
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": "Hello"},
            },
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": ", world"},
            },
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": {"output_tokens": 3},
            },
            {"type": "message_stop"},
        ],
        named=True,
    ),
    errors={
        400: _anthropic_error("invalid_request_error", "messages: at least one is required"),
        401: _anthropic_error("authentication_error", "invalid x-api-key"),
        404: _anthropic_error("not_found_error", "model: m"),
        429: _anthropic_error("rate_limit_error", "Slow down."),
        500: _anthropic_error("api_error", "Internal server error"),
    },
    too_long=_anthropic_error(
        "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"
    ),
    in_stream="event: error\ndata: "
    + json.dumps(_anthropic_error("overloaded_error", "Overloaded"))
    + "\n\n",
)


def _google_error(code: int, status: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "status": status}}


def _candidate(text: str, finish: str | None = None) -> dict[str, Any]:
    content = {"role": "model", "parts": [{"text": text}]}
    ended = {} if finish is None else {"finishReason": finish}
    return {
        "candidates": [{"content": content, "index": 0, **ended}],
        "usageMetadata": {"promptTokenCount": 11, "candidatesTokenCount": 3, "totalTokenCount": 14},
        "modelVersion": "m",
        "responseId": "r1",
    }


GENERATE_CONTENT = Protocol(
    model="google/gemini-3-pro",
    api=None,
    base="",
    path="/v1/models/gemini-3-pro:generateContent",
    stream_path="/v1/models/gemini-3-pro:streamGenerateContent?alt=sse",
    key_header="x-goog-api-key",
    body=_candidate("Hello, world", "STOP"),
    pieces=_sse([_candidate("Hello"), _candidate(", world", "STOP")]),
    errors={
        400: _google_error(400, "INVALID_ARGUMENT", "Invalid value at 'contents'."),
        401: _google_error(401, "UNAUTHENTICATED", "Request had invalid credentials."),
        404: _google_error(404, "NOT_FOUND", "models/m is not found."),
        429: _google_error(429, "RESOURCE_EXHAUSTED", "Quota exceeded."),
        500: _google_error(500, "INTERNAL", "An internal error has occurred."),
    },
    too_long=_google_error(
        400,
        "INVALID_ARGUMENT",
        "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).",
    ),
    in_stream="data: "
    + json.dumps(_google_error(503, "UNAVAILABLE", "The model is overloaded."))
    + "\n\n",
)

PROTOCOLS = {
    "chat": CHAT,
    "responses": RESPONSES,
    "messages": MESSAGES,
    "generate_content": GENERATE_CONTENT,
}
