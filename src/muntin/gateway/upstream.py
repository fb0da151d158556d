"""The way to the provider and back: headers, bytes, and what happens when one side leaves.

Owns that no request reaches another server, or leaves the path of the provider's address. Knows
nothing of the bodies. Needs the extra `gateway`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias
from urllib.parse import unquote_to_bytes, urlsplit

import httpx2

from muntin.core.checks import shown
from muntin.errors import InvalidInput

Header: TypeAlias = tuple[bytes, bytes]
Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]

# https://datatracker.ietf.org/doc/html/rfc9110#section-7.6.1
_OF_THE_CONNECTION = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer "
    b"transfer-encoding upgrade".split()
)
# The body is sent with its length. Answers are asked for without compression, so that they can be
# read as they pass.
_OURS = frozenset({b"host", b"content-length", b"expect", b"accept-encoding"})


class Away(Exception):
    """The provider cannot be reached, or does not answer."""

    def __init__(self, why: str, *, late: bool = False) -> None:
        super().__init__(why)
        self.late = late


class Upstream:
    """A provider's server by its address, to which requests go whatever their targets are."""

    def __init__(self, url: str, *, seconds: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInput(
                f"an upstream is an address like https://api.openai.com, not {shown(url)}"
            )
        if parts.query or parts.fragment or parts.username or parts.password:
            raise InvalidInput(
                "an upstream is an address without user, question mark and fragment; clients send "
                "their own keys"
            )
        self.name = f"{parts.scheme}://{parts.netloc}"
        self._url = httpx2.URL(url)
        self._path = self._url.raw_path.rstrip(b"/")
        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(seconds, connect=min(10.0, seconds), pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=256),
        )

    def takes(self, target: bytes) -> bool:
        """Say whether a target is a path of this server that does not leave the address's path."""
        path = target.partition(b"?")[0]
        return path.startswith(b"/") and not (self._path and _climbs(path))

    async def open(
        self, method: str, target: bytes, headers: Iterable[Header], body: bytes
    ) -> httpx2.Response:
        """Send a request and return its response, whose body has not been read.

        The target is sent byte for byte behind the address's path; it does not become a part of an
        address that is read again.
        """
        if not self.takes(target):
            raise ValueError("the target is no path of this server")
        request = httpx2.Request(
            method,
            self._url,
            headers=_forwarded(headers),
            content=body or None,
            extensions={"target": self._path + target},
        )
        try:
            return await self._client.send(request, stream=True)
        except httpx2.TimeoutException as error:
            raise Away(f"{self.name} did not answer in time", late=True) from error
        except httpx2.TransportError as error:
            raise Away(f"{self.name} cannot be reached ({type(error).__name__})") from error

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


def _climbs(path: bytes) -> bool:
    """Say whether a server that folds dots, even encoded ones, would leave the folder of a path."""
    depth = 0
    for segment in unquote_to_bytes(path).replace(b"\\", b"/").split(b"/"):
        depth += -1 if segment == b".." else segment not in (b"", b".")
        if depth < 0:
            return True
    return False


def _forwarded(headers: Iterable[Header]) -> list[Header]:
    """Return the headers of a client that are for the provider."""
    lowered = [(name.lower(), value) for name, value in headers]
    named = {
        listed.strip().lower()
        for name, value in lowered
        if name == b"connection"
        for listed in value.split(b",")
    }
    forwarded = [
        (name, value)
        for name, value in lowered
        if name not in _OF_THE_CONNECTION
        and name not in _OURS
        and name not in named
        and not name.startswith(b"x-muntin-")
    ]
    return [*forwarded, (b"accept-encoding", b"identity")]


async def pass_back(
    response: httpx2.Response,
    send: Send,
    more: Iterable[Header],
    feed: Callable[[bytes], None],
    end: Callable[[], Awaitable[None]],
) -> bool:
    """Send a response to the client as it comes; say whether it was whole.

    `feed` gets the bytes too; `end` is awaited before the client gets the end of the answer.
    """
    headers = [
        (name.lower(), value)
        for name, value in response.headers.raw
        if name.lower() not in _OF_THE_CONNECTION
    ]
    await send(
        {
            "type": "http.response.start",
            "status": response.status_code,
            "headers": [*headers, *more],
        }
    )
    # A client that knows the length of the answer has all of it with the last byte.
    bytes_left = int(response.headers.get("content-length") or -1)
    try:
        async for data in response.aiter_raw():
            feed(data)
            bytes_left -= len(data)
            if bytes_left == 0:
                await end()
            await send({"type": "http.response.body", "body": data, "more_body": True})
    except httpx2.TransportError:
        # The response is left unfinished: the server then cuts the connection, so that the client
        # does not take a part for the whole.
        return False
    if bytes_left != 0:
        await end()
    await send({"type": "http.response.body", "body": b"", "more_body": False})
    return True
