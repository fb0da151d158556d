"""The server of the inspector: which requests are accepted, and the answers.

Owns the token, the checks of every request and the headers of every answer. Listens on this
machine only, takes GET and HEAD only, and only reads; `data` and `changes` make the answers.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import secrets
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.resources import files
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

from muntin.core.checks import keep_surrogates, shown
from muntin.errors import InvalidInput, MuntinError, needing
from muntin.inspector import changes, data, search
from muntin.inspector.plans import Plans
from muntin.timeline.store import Store

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send
    from uvicorn import Server

HOST = "127.0.0.1"
PORT = 8765
# The names by which a browser on this machine may call the server.
_NAMES = ("127.0.0.1", "localhost", "[::1]")

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_HEADERS = {
    # Only Muntin's own files run or are loaded, and no text can become markup.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cache-Control": "no-store",
}
_NO_TOKEN = (
    "This page needs the address that `muntin inspect` printed, with its token. "
    "Copy it from the terminal.\n"
)


def check_installed() -> None:
    """Raise an error that says what to install, if something is missing."""
    with needing("the inspector needs: pip install 'muntin[inspector]'"):
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401


def new_token() -> str:
    """Return a token that cannot be guessed."""
    return secrets.token_urlsafe(32)


def make_app(store: Store, *, token: str, port: int, base: str = "/") -> Starlette:
    """Return the inspector of a store, as an ASGI application that is reached at `port`.

    `base` is the path under which another server mounts it.
    """
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.routing import Route

    plans = Plans(store)
    routes = [Route(f"/api/{name}", _api(plans, answer)) for name, answer in _ANSWERS.items()]
    # The files of the page are read once: no path of a request ever reaches a disk.
    for file in files("muntin.inspector").joinpath("static").iterdir():
        kind = _TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            page = _page(file.read_bytes(), kind)
            routes.append(Route(f"/static/{file.name}", page))
            if file.name == "index.html":
                routes.append(Route("/", page))
    guard = Middleware(_Guard, token=token, port=port, base=base)
    app = Starlette(routes=routes, middleware=[guard])
    app.router.redirect_slashes = False  # no redirects to another path
    return app


def _page(content: bytes, kind: str) -> Callable[[Request], Response]:
    from starlette.responses import Response

    return lambda _: Response(content, headers={"Content-Type": kind})


# The questions.

_ANSWERS: dict[str, Callable[..., dict[str, Any]]] = {
    "sessions": data.sessions,
    "turns": data.turns,
    "search": search.search_session,
    "find": search.search_sessions,
    "usage": data.usage,
    "window": data.window,
    "messages": data.messages,
    "plan": changes.what_if,
    "survival": changes.survival,
    "difference": changes.difference,
    "shares": changes.shares,
}


def _arguments(
    parameters: Mapping[str, Parameter], query: Mapping[str, str]
) -> dict[str, str | int | None]:
    """Read what a question gives for the parameters of the function that answers it."""
    arguments: dict[str, str | int | None] = {}
    for name, parameter in parameters.items():
        text = query.get(name)
        if text is None:
            if parameter.default is not Parameter.empty:
                continue
            if "None" not in parameter.annotation:
                raise InvalidInput(f"the question lacks {name!r}")
            arguments[name] = None
        elif "str" in parameter.annotation:
            arguments[name] = text
        elif text.isascii() and text.isdecimal() and len(text) <= 12:
            arguments[name] = int(text)
        else:
            raise InvalidInput(f"{name!r} must be a number, not {shown(text[:40])}")
    return arguments


def _api(plans: Plans, answer: Callable[..., dict[str, Any]]) -> Callable[[Request], Response]:
    from starlette.responses import Response

    parameters = dict(signature(answer).parameters)
    del parameters["plans"]

    def ask(request: Request) -> Response:
        try:
            status, value = 200, answer(plans, **_arguments(parameters, request.query_params))
        except MuntinError as error:
            status = 400 if isinstance(error, InvalidInput) else 503
            value = {"error": str(error)[:2_000]}
        # ASCII, because a text may hold lone surrogates, which UTF-8 cannot write.
        body = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
        headers = {"Content-Type": "application/json"}
        return Response(body.encode("ascii"), status, headers=headers)

    return ask


# The checks.


class _Guard:
    """Accepts only requests from this page on this machine, with the token."""

    def __init__(self, app: ASGIApp, *, token: str, port: int, base: str) -> None:
        self._app = app
        self._base = base
        self._token = token.encode("ascii")
        # Cookies do not tell ports apart: two inspectors must not use each other's cookie.
        self._cookie = f"muntin-{port}"
        self._hosts = {f"{name}:{port}" for name in _NAMES}
        if port == 80:
            self._hosts.update(_NAMES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.datastructures import MutableHeaders
        from starlette.requests import Request
        from starlette.responses import PlainTextResponse

        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # a WebSocket is closed by not being accepted

        request = Request(scope)
        refusal = self._refusal(request)
        token = request.query_params.get("token") if scope["path"] == "/" else None
        if refusal is None and token is not None and self._is_token(token):
            login = f"{self._cookie}={token}; Path={self._base}; HttpOnly; SameSite=Strict"
        else:
            login = None
            if refusal is None and not self._is_token(request.cookies.get(self._cookie, "")):
                refusal = 401, _NO_TOKEN

        async def answer(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                if login is not None:
                    headers.append("Set-Cookie", login)
            await send(message)

        if refusal is None:
            await self._app(scope, receive, answer)
        else:
            allow = {"Allow": "GET, HEAD"} if refusal[0] == 405 else {}
            await PlainTextResponse(refusal[1], refusal[0], allow)(scope, receive, answer)

    def _refusal(self, request: Request) -> tuple[int, str] | None:
        """Say why a request is refused, even with the right token."""
        if request.method not in ("GET", "HEAD"):
            return 405, "This page only reads.\n"
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            # Another host name: a page elsewhere may be trying to read this one.
            return 421, "This page answers to this machine's own names only.\n"
        for origin in request.headers.getlist("origin"):
            if origin.lower() not in {f"http://{host}" for host in self._hosts}:
                return 403, "Other pages may not ask.\n"
        site = request.headers.get("sec-fetch-site", "none")
        if site not in ("none", "same-origin"):
            # A link to the page may be followed from anywhere; nothing else may.
            follows = request.headers.get("sec-fetch-mode") == "navigate"
            if not (follows and request.scope["path"] == "/"):
                return 403, "Other pages may not ask.\n"
        return None

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(keep_surrogates(text), self._token)


# Serving.


def is_loopback(host: str) -> bool:
    """Say whether an address is of this machine itself."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_loopback(host: str) -> str:
    """Return an address of this machine itself; refuse all others."""
    if not is_loopback(host):
        raise InvalidInput(
            f"the inspector listens on this machine only (127.0.0.1 or ::1), not on {shown(host)}; "
            "from elsewhere, forward the port: ssh -L 8765:127.0.0.1:8765 this-machine"
        )
    return HOST if host == "localhost" else host


def listen(host: str = HOST, port: int = PORT) -> socket.socket:
    """Return a socket that listens on this machine; `port` 0 takes any free port."""
    return bind(check_loopback(host), port, f"port {port}")


def bind(host: str, port: int, place: str) -> socket.socket:
    """Return a socket that listens on any address; `place` names it in an error."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidInput(f"cannot listen on {shown(host)}: {error.strerror or error}") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(1_024)
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(
            f"cannot listen on {place}: {reason}; choose another with --port, 0 takes any"
        ) from error
    return listening


def address_of(listening: socket.socket, token: str, base: str = "/") -> str:
    """Return the address to open in a browser."""
    host, port = listening.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}{base}?token={token}"


def make_server(store: Store, listening: socket.socket, token: str) -> Server:
    """Return the server of the inspector, to be run on a socket."""
    from muntin.inspector.connections import Connection

    return quiet_server(
        make_app(store, token=token, port=listening.getsockname()[1]),
        http=Connection,
        lifespan="off",
        timeout_keep_alive=30,
        timeout_graceful_shutdown=2,
    )


def quiet_server(app: Any, **options: Any) -> Server:
    """Return a server that logs no request and tells nothing of itself."""
    import uvicorn

    config = uvicorn.Config(
        app,
        # An address may hold the token, which must not get into a log.
        access_log=False,
        log_level="warning",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        ws="none",
        **options,
    )
    return uvicorn.Server(config)


def serve(store: Store, listening: socket.socket, token: str) -> None:
    """Serve the inspector until it is interrupted."""
    with suppress(KeyboardInterrupt):  # the way to stop it
        make_server(store, listening, token).run(sockets=[listening])
