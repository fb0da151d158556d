"""The server: which requests are fitted, how they are passed on, and how the server is run.

Owns the answers that the gateway gives itself. Logs neither keys nor contents. Listens on this
machine only, unless told otherwise.
"""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from muntin.core.budget import Budget
from muntin.core.checks import check_count, check_seconds
from muntin.errors import BudgetExceeded, InvalidInput, MuntinError, needing
from muntin.fitting import Fitted, Fitter, Recorder
from muntin.fitting.requests import Form, fit_request, form_of
from muntin.fitting.talk import Talk
from muntin.gateway.conversations import Conversations
from muntin.gateway.receipts import HEADER, passed, receipt_of
from muntin.gateway.recording import Recording
from muntin.gateway.replies import Reading
from muntin.inspector.server import bind, quiet_server
from muntin.settings import counter_for
from muntin.threads import in_thread
from muntin.timeline.store import Store

if TYPE_CHECKING:
    from uvicorn import Server

    from muntin.gateway.upstream import Header

PORT = 8788
INSPECTOR = "/muntin"
# How large a body may be, and how long an answer may keep silent.
MOST, SECONDS = 32 * 1024 * 1024, 600.0

Scope: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]
Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]


def check_installed() -> None:
    """Raise an error that says what to install, if something is missing."""
    with needing("the gateway needs: pip install 'muntin[gateway]'"):
        import httpx2  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401


@dataclass(frozen=True, slots=True)
class _Fit:
    """The facts to record about a request that fits."""

    session: str
    talk: Talk
    fitted: Fitted


@dataclass(frozen=True, slots=True)
class _Ready:
    """A request to pass on: its bytes, its receipt, and the facts to record."""

    body: bytes
    receipt: str | None = None
    fit: _Fit | None = None


class Gateway:
    """An ASGI application before a provider: requests to models are fitted, all others pass.

    `upstream` is the provider's address, `budget` the tokens of a request, or `fitter` a Fitter
    with more settings. Sessions are recorded into `store`. `inspector` is the app that serves
    `/muntin/`.
    """

    def __init__(
        self,
        upstream: str,
        budget: Budget | int | None = None,
        *,
        store: Store,
        fitter: Fitter | None = None,
        most: int = MOST,
        seconds: float = SECONDS,
        inspector: Any = None,
    ) -> None:
        check_installed()
        from muntin.gateway.upstream import Upstream

        self.upstream = Upstream(upstream, seconds=check_seconds(seconds, "seconds"))
        self._fitter = Fitter(budget) if fitter is None else fitter
        recorder = Recorder(store)
        self._conversations = Conversations(recorder)
        self._recording = Recording(recorder, self._conversations)
        self._most = check_count(most, "most")
        self._inspector = inspector

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            path: str = scope["path"]
            if path == INSPECTOR or path.startswith(f"{INSPECTOR}/"):
                await self._inspect(scope, receive, send)
            else:
                await self._pass(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Start and stop with the server; records are written before it stops."""
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def close(self) -> None:
        """Write the records that are not stored yet, and close the connections."""
        await self._recording.close()
        await self.upstream.close()

    async def _inspect(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._inspector is None:
            await _tell(send, 404, "there is no inspector here: the gateway was begun without one")
        elif scope["path"] == INSPECTOR:
            query = scope.get("query_string", b"")
            where = b"/muntin/" + (b"?" + query if query else b"")
            await _answer(send, 307, b"", [(b"location", where)])
        else:
            await self._inspector({**scope, "path": scope["path"][len(INSPECTOR) :]}, receive, send)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        form = form_of(scope["path"]) if scope["method"] == "POST" else None
        body = await self._body(scope, receive)
        if body is None:
            size = f"{self._most:,}"
            await _tell(send, 413, f"the body is larger than {size} bytes", form)
            return
        # If the client leaves while the answer is awaited, the answer is not needed any more.
        passing = asyncio.create_task(self._answered(scope, form, body, send))
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait({passing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            passing.cancel()
            await asyncio.wait({passing, leaving})
        if not passing.cancelled():
            passing.result()

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """Read a body; None if it is too large."""
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._most:
            return None
        pieces, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return b""
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > self._most:
                return None
            if not message.get("more_body"):
                return b"".join(pieces)

    async def _answered(self, scope: Scope, form: Form | None, body: bytes, send: Send) -> None:
        """Send a request on, and its answer back."""
        from muntin.gateway.upstream import Away, pass_back

        try:
            ready = await self._ready(form, scope, body)
        except BudgetExceeded as error:
            await _tell(send, 400, f"{error}", form)
            return
        fit = ready.fit
        recorded = None
        if fit is not None:
            recorded = self._recording.sent(fit.session, fit.talk, fit.fitted)
        reading: Reading | None = None
        whole = refused = False
        try:
            response = await self.upstream.open(
                scope["method"], _target(scope), scope["headers"], ready.body
            )
            try:
                refused = not response.is_success
                streamed = "event-stream" in response.headers.get("content-type", "")
                reading = Reading("" if form is None or fit is None else form.name, streamed)
                receipt: list[Header] = []
                if ready.receipt is not None:
                    receipt = [(HEADER.encode(), ready.receipt.encode())]
                ended = partial(self._recording.stored, recorded)
                whole = await pass_back(response, send, receipt, reading.feed, ended)
            finally:
                await response.aclose()
        except Away as away:
            refused = True
            await _tell(send, 504 if away.late else 502, str(away), form)
        finally:  # also if the client has left
            if fit is not None and recorded is not None and not refused:
                read = reading.reply if reading is not None and whole else _no_reply
                self._recording.answered(fit.session, recorded, read)

    async def _ready(self, form: Form | None, scope: Scope, body: bytes) -> _Ready:
        """Return a request that fits; a request that cannot be read is passed on unchanged."""
        if form is None:
            return _Ready(body)
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        return await in_thread(lambda: self._fitted(form, headers, body))

    def _fitted(self, form: Form, headers: Mapping[str, str], body: bytes) -> _Ready:
        try:
            data = json.loads(body)
            if not isinstance(data, dict):
                raise InvalidInput("the body is no JSON object")
            request = form.read(data)
            if request.passes is not None:
                return _Ready(body, passed(request.passes))
            talk = Talk(request.pieces, counter_for(None, None))
            conversation = self._conversations.find(talk, request.user, headers, data)
            outcome = fit_request(
                self._fitter, form, data, request=request, previous=conversation.previous
            )
        except BudgetExceeded:
            raise
        except (MuntinError, ValueError, RecursionError) as error:
            return _Ready(body, passed(f"it cannot be read: {error}"))
        fitted = outcome.fitted
        assert fitted is not None  # a request that passes has returned above
        changed = outcome.body is not data
        receipt = receipt_of(fitted, request.pieces, conversation.session, changed)
        ready = _bytes(outcome.body) if changed else body
        return _Ready(ready, receipt, _Fit(conversation.session, talk, fitted))


def _bytes(body: Mapping[str, Any]) -> bytes:
    """Return the body of a request as bytes."""
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # lone surrogates, which only an escape can carry
        return json.dumps(body, separators=(",", ":")).encode()


def _target(scope: Scope) -> str:
    """Return the path and the query of a request, unchanged."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope.get("query_string", b"")
    return (path.partition(b"?")[0] + (b"?" + query if query else b"")).decode("latin-1")


def _no_reply() -> None:
    """Return None: an answer that did not pass whole is not recorded."""


async def _left(receive: Receive) -> None:
    """Wait until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _tell(send: Send, status: int, why: str, form: Form | None = None) -> None:
    """Answer with an error, in the form that the API's clients read."""
    kinds = {400: "invalid_request_error", 413: "request_too_large", 404: "not_found_error"}
    kind = kinds.get(status, "upstream_unavailable")
    error: dict[str, Any] = {"message": f"muntin gateway: {why}", "type": kind}
    answer: dict[str, Any] = {"error": {**error, "param": None, "code": kind}}
    if form is not None and form.name == "anthropic":
        answer = {"type": "error", "error": error}
    body = json.dumps(answer).encode()
    await _answer(send, status, body, [(b"content-type", b"application/json")])


async def _answer(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body, "more_body": False})


# Serving.


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; `port` 0 takes any free port."""
    return bind(host, port, f"{host} port {port}")


def make_server(gateway: Gateway) -> Server:
    """Return the server of a gateway, to be run on a socket."""
    from muntin.inspector.connections import Connection

    class Patient(Connection):
        """A connection that gives a request, its body included, a minute to arrive."""

        seconds = 60.0

    return quiet_server(
        gateway,
        http=Patient,
        lifespan="on",
        timeout_keep_alive=75,
        timeout_graceful_shutdown=10,
    )


def serve(gateway: Gateway, listening: socket.socket) -> None:
    """Serve a gateway until it is interrupted.

    The process is made quick to answer: the thread that passes answers on waits less for threads
    that fit and record; the garbage collector, which finds little, runs less often and only over
    new objects.
    """
    sys.setswitchinterval(0.001)
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    with suppress(KeyboardInterrupt):  # the way to stop it
        make_server(gateway).run(sockets=[listening])
