"""The server: which requests are fitted, how they are passed on, and how the server is run.

Owns the answers that the gateway gives itself. Logs neither keys nor contents. Listens on this
machine only, unless told otherwise.
"""

from __future__ import annotations

import asyncio
import gc
import hmac
import ipaddress
import json
import socket
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from muntin.core.budget import Budget
from muntin.core.checks import check_count, check_seconds, shown
from muntin.errors import BudgetExceeded, InvalidInput, MuntinError, needing
from muntin.fitting import Fitted, Fitter, Recorder
from muntin.fitting.replies import Reading
from muntin.fitting.requests import Form, fit_request, form_of
from muntin.fitting.talk import LazyMessages
from muntin.gateway.conversations import Conversation, Conversations, caller_of, name_of
from muntin.gateway.receipts import HEADER, passed, receipt_of, written
from muntin.gateway.recording import Recording
from muntin.inspector.server import bind, is_loopback, quiet_server
from muntin.settings import counter_for
from muntin.threads import in_thread
from muntin.timeline.store import Store
from muntin.wire import requests as wire

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

    conversation: Conversation
    talk: LazyMessages
    fitted: Fitted


@dataclass(frozen=True, slots=True)
class _Ready:
    """A request to pass on: its bytes, its receipt, and the facts to record."""

    body: bytes
    receipt: Mapping[str, Any] | None = None
    fit: _Fit | None = None


class _Refusal(Exception):
    """The gateway does not pass a request on."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Gateway:
    """An ASGI application before a provider: requests to models are fitted, all others pass.

    `upstream` is the provider's address, `budget` the tokens of a request, or `fitter` a Fitter
    with more settings. Sessions are recorded into `store`. `inspector` is the app that serves
    `/muntin/`. With a `token` only requests are passed that name it in `x-muntin-token`. Clients
    call the gateway by an address, as `localhost`, or by a name of `hosts`.
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
        token: str | None = None,
        hosts: Collection[str] = (),
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
        self._token = None if token is None else token.encode()
        self._hosts = {"localhost", *(host.lower() for host in hosts)}

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
        self._conversations.close()
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
        from starlette.requests import ClientDisconnect

        form = form_of(scope["path"]) if scope["method"] == "POST" else None
        try:
            self._check(scope)
            body = await self._body(scope, receive)
        except _Refusal as refusal:
            await _tell(send, refusal.status, str(refusal), form)
            return
        except ClientDisconnect:
            return  # a part of a request is no request
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

    def _check(self, scope: Scope) -> None:
        """Refuse what is not for the provider, or comes from a client that may not ask."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if scope["method"] == "CONNECT" or not self.upstream.takes(_target(scope)):
            raise _Refusal(400, "the target of a request is a path of the provider's server")
        host = _host_of(headers.get(b"host", b"").decode("latin-1"))
        if not _is_address(host) and host not in self._hosts:
            # A page elsewhere may have had its own name point here.
            raise _Refusal(421, "it is not known by this host name; start it with --allow-host")
        token = headers.get(b"x-muntin-token", b"")
        if self._token is not None and not hmac.compare_digest(token, self._token):
            raise _Refusal(401, "the header x-muntin-token is missing or wrong")

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """Return the whole body of a request."""
        from starlette.requests import Request

        request = Request(scope, receive)
        too_large = _Refusal(413, f"the body is larger than {self._most:,} bytes")
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._most:
            raise too_large
        pieces, size = [], 0
        async for piece in request.stream():
            pieces.append(piece)
            size += len(piece)
            if size > self._most:
                raise too_large
        return b"".join(pieces)

    async def _answered(self, scope: Scope, form: Form | None, body: bytes, send: Send) -> None:
        """Send a request on, and its answer back."""
        from muntin.gateway.upstream import Away, pass_back

        preparing = asyncio.ensure_future(self._ready(form, scope, body))
        try:
            ready = await asyncio.shield(preparing)
        except asyncio.CancelledError:  # the client has left
            preparing.add_done_callback(self._give_back)
            raise
        except BudgetExceeded as error:
            await _tell(send, 400, f"{error}", form)
            return
        fit = ready.fit
        recorded = None
        if fit is not None:
            recorded = self._recording.sent(fit.conversation, fit.talk, fit.fitted)
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
                receipt = [] if ready.receipt is None else [self._receipt(ready.receipt, fit)]
                ended = partial(self._recording.stored, recorded)
                whole = await pass_back(response, send, receipt, reading.feed, ended)
            finally:
                await response.aclose()
        except Away as away:
            refused = True
            await _tell(send, 504 if away.late else 502, str(away), form)
        finally:  # also if the client has left
            if fit is not None:
                read = reading if whole and not refused else None
                self._recording.answered(fit.conversation, recorded, read, refused=refused)
                if read is not None:
                    self._fitter.enter_usage(fit.fitted, read.reply)

    def _receipt(self, receipt: Mapping[str, Any], fit: _Fit | None) -> Header:
        if fit is not None:
            receipt = {"session": fit.conversation.session, **receipt}
            if self._recording.is_slow:
                receipt["recorded"] = False
        return HEADER.encode(), written(receipt).encode()

    def _give_back(self, preparing: asyncio.Future[_Ready]) -> None:
        """Forget a request whose client left before it was sent."""
        if not preparing.cancelled() and preparing.exception() is None:
            fit = preparing.result().fit
            if fit is not None:
                self._conversations.give_back(fit.conversation)

    async def _ready(self, form: Form | None, scope: Scope, body: bytes) -> _Ready:
        """Return a request that fits; a request that cannot be read is passed on unchanged."""
        if form is None:
            return _Ready(body)
        headers = [
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]
        ]
        caller = caller_of(headers, scope.get("query_string", b"").decode("latin-1"))
        return await in_thread(lambda: self._fitted(form, dict(headers), caller, body))

    def _held(self, form: Form, data: wire.Body, body: bytes, request: wire.Request) -> _Ready:
        """Return a request whose past the provider holds: it is no conversation that is known."""
        outcome = fit_request(self._fitter, form, data, request=request)
        assert outcome.fitted is not None
        changed = outcome.body is not data
        receipt = receipt_of(outcome.fitted, request.pieces, changed)
        receipt |= passed(outcome.passes or "")
        return _Ready(_bytes(outcome.body) if changed else body, receipt)

    def _fitted(self, form: Form, headers: Mapping[str, str], caller: str, body: bytes) -> _Ready:
        conversation: Conversation | None = None
        try:
            data = json.loads(body)
            if not isinstance(data, dict):
                raise InvalidInput("the body is no JSON object")
            request = form.read(data)
            if request.passes is not None:
                return _Ready(body, passed(request.passes))
            if request.held is not None:
                return self._held(form, data, body, request)
            talk = LazyMessages(request.pieces, counter_for(None, None))
            name = name_of(headers, data)
            conversation = self._conversations.claim(talk, request.user, caller, name)
            outcome = fit_request(
                self._fitter, form, data, request=request, previous=conversation.frontier
            )
            fitted = outcome.fitted
            assert fitted is not None  # a request that passes has returned above
            changed = outcome.body is not data
            receipt = receipt_of(fitted, request.pieces, changed)
            if request.remark is not None:
                receipt["remark"] = request.remark
            ready = _bytes(outcome.body) if changed else body
        except Exception as error:  # the provider will say what is wrong with it
            if conversation is not None:
                self._conversations.give_back(conversation)
            if isinstance(error, BudgetExceeded):
                raise
            return _Ready(body, passed(f"it cannot be read: {_reason(error)}"))
        conversation.frontier = fitted.frontier
        return _Ready(ready, receipt, _Fit(conversation, talk, fitted))


def _bytes(body: Mapping[str, Any]) -> bytes:
    """Return the body of a request as bytes."""
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # lone surrogates, which only an escape can carry
        return json.dumps(body, separators=(",", ":")).encode()


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, MuntinError | ValueError) else type(error).__name__


def _host_of(header: str) -> str:
    """Return the host of the header `Host`, without its port; empty if it has none."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _is_address(host: str) -> bool:
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def _target(scope: Scope) -> bytes:
    """Return the path and the query of a request, unchanged."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope.get("query_string", b"")
    return path.partition(b"?")[0] + (b"?" + query if query else b"")


async def _left(receive: Receive) -> None:
    """Wait until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _tell(send: Send, status: int, why: str, form: Form | None = None) -> None:
    """Answer with an error, in the form that the API's clients read."""
    kinds = {
        400: "invalid_request_error",
        401: "authentication_error",
        404: "not_found_error",
        413: "request_too_large",
        421: "invalid_request_error",
    }
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


def listen(host: str, port: int, token: str | None = None) -> socket.socket:
    """Return a socket that listens; `port` 0 takes any free port.

    Beyond this machine it listens only with a `token`.
    """
    if token is None and not is_loopback(host):
        raise InvalidInput(
            f"on {shown(host)} everybody who reaches the gateway could use it: give a --token, "
            "which clients send in the header x-muntin-token, or listen on 127.0.0.1"
        )
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
