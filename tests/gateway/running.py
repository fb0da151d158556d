"""A gateway at work in a thread of its own, before a server of the tests."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn

from muntin.gateway import Gateway, make_server
from muntin.gateway.server import INSPECTOR, listen
from muntin.inspector.server import make_app
from muntin.timeline.store import Store, open_store

TOKEN = "token-of-the-tests"


@dataclass
class Running:
    """A gateway, and the store it records into."""

    url: str
    port: int
    store: Store
    gateway: Gateway


@contextmanager
def running(
    upstream: str, budget: int, store: str = "memory:", **options: Any
) -> Iterator[Running]:
    """Run a gateway until the end of the block; then everything is recorded."""
    with open_store(store) as opened, listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        page = make_app(opened, token=TOKEN, port=port, base=f"{INSPECTOR}/")
        gateway = Gateway(upstream, budget, store=opened, inspector=page, **options)
        with _in_a_thread(make_server(gateway), listening):
            yield Running(f"http://127.0.0.1:{port}", port, opened, gateway)


@contextmanager
def served(app: Any) -> Iterator[str]:
    """Serve an ASGI application, and yield its address."""
    config = uvicorn.Config(app, log_level="error", lifespan="off", access_log=False)
    with listen("127.0.0.1", 0) as listening, _in_a_thread(uvicorn.Server(config), listening):
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def _in_a_thread(server: uvicorn.Server, listening: socket.socket) -> Iterator[None]:
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.005)
        yield
    finally:
        server.should_exit = True
        thread.join()


def receipt(headers: Any) -> dict[str, Any]:
    """Return the receipt of a response."""
    told: dict[str, Any] = json.loads(headers["x-muntin-receipt"])
    return told


def soon(check: Any, seconds: float = 60.0) -> Any:
    """Wait until something is true, and return it."""
    until = time.monotonic() + seconds
    while True:
        found = check()
        if found or time.monotonic() > until:
            return found
        time.sleep(0.02)
