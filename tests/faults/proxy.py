"""A proxy before PostgreSQL that drops connections, when it is told to or around a commit, and
counts round trips."""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from tests.reliability.server import SUPERUSER, Server

_SOCKET = ".s.PGSQL.5432"
_PREPARES = re.compile(rb"P....([^\0]*)\0COMMIT\0", re.DOTALL)
# Before a commit reaches the server, or when it was made and before the client hears of it.
When = Literal["before", "behind"]


class Proxy:
    """Hands all bytes on; `drop` closes what is connected, `cut` what the next commits run on.

    While there are `spans`, each connection is dropped when it has sent so often as one of them
    says, so that it does not matter how fast a machine is.
    """

    def __init__(self, server: Server, home: Path) -> None:
        self._home = home
        self._server = server.socket
        self._clients: set[asyncio.StreamWriter] = set()
        self.loop = asyncio.new_event_loop()
        self.dropped = 0
        # How often a client sent something after the server had answered.
        self.trips = 0
        self.spans: Sequence[int] = ()
        # Which commits are cut off, by their number from now on, and when.
        self._cut: dict[int, When] = {}
        self._commits = 0

    def url(self, database: str) -> str:
        return f"postgresql://{SUPERUSER}@/{database}?host={self._home}"

    def drop(self) -> None:
        """Close all connections, from any thread."""
        self.loop.call_soon_threadsafe(self._drop)

    def cut(self, commits: dict[int, When]) -> None:
        """Close the connections of some commits that come from now on, the first being 1."""
        self._cut, self._commits = dict(commits), 0

    def _drop(self) -> None:
        for client in list(self._clients):
            self.dropped += 1
            client.transport.abort()

    async def serve(self, ready: threading.Event) -> None:
        async with await asyncio.start_unix_server(self._connect, self._home / _SOCKET):
            ready.set()
            await asyncio.Event().wait()

    async def _connect(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        with suppress(asyncio.CancelledError):  # the test is over
            await self._serve(reader, client)

    async def _serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self._clients.add(client)
        answers, server = await asyncio.open_unix_connection(self._server)
        answered = asyncio.Event()
        answered.set()
        back = asyncio.create_task(self._hand_back(answers, client, answered))
        left = random.choice(self.spans) if self.spans else -1
        prepared: set[bytes] = set()
        try:
            with suppress(OSError):
                while data := await reader.read(65_536):
                    left -= 1
                    self.trips += answered.is_set()
                    answered.clear()
                    if left == 0 and self.spans:
                        self.dropped += 1
                        break
                    when = self._cut_now(data, prepared)
                    if when == "before":
                        break
                    if when == "behind":
                        back.cancel()
                        await asyncio.wait([back])
                        server.write(data)
                        await self._heard(reader, answers, server)  # it is made
                        break
                    server.write(data)
                    await server.drain()
        finally:
            back.cancel()
            self._clients.discard(client)
            server.transport.abort()
            client.transport.abort()

    async def _heard(
        self,
        reader: asyncio.StreamReader,
        answers: asyncio.StreamReader,
        server: asyncio.StreamWriter,
    ) -> None:
        """Wait until the server answers; it may do so only when the client has sent more."""
        heard = asyncio.create_task(answers.read(65_536))
        while not heard.done():
            more = asyncio.create_task(reader.read(65_536))
            await asyncio.wait([heard, more], return_when=asyncio.FIRST_COMPLETED)
            if more.done():
                server.write(more.result())
            else:
                more.cancel()

    def _cut_now(self, data: bytes, prepared: set[bytes]) -> When | None:
        """Say whether what a client sends is a commit to be cut; a driver may have prepared it."""
        prepared.update(name for name in _PREPARES.findall(data) if name)
        if b"COMMIT" not in data and not any(b"\0%s\0" % name in data for name in prepared):
            return None
        self._commits += 1
        when = self._cut.pop(self._commits, None)
        self.dropped += when is not None
        return when

    async def _hand_back(
        self, answers: asyncio.StreamReader, client: asyncio.StreamWriter, answered: asyncio.Event
    ) -> None:
        with suppress(OSError):
            while data := await answers.read(65_536):
                answered.set()
                client.write(data)
                await client.drain()
            client.transport.abort()


@contextmanager
def proxy_of(server: Server) -> Iterator[Proxy]:
    """Run a proxy before a server, in a thread of its own."""
    home = Path(tempfile.mkdtemp(prefix="muntin-"))  # the name of a socket must be short
    proxy = Proxy(server, home)
    ready = threading.Event()

    def run() -> None:
        with suppress(asyncio.CancelledError):
            proxy.loop.run_until_complete(proxy.serve(ready))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(10)
        yield proxy
    finally:
        proxy.loop.call_soon_threadsafe(_cancel_all, proxy.loop)
        thread.join(10)
        proxy.loop.close()
        shutil.rmtree(home, ignore_errors=True)


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()
