"""Requests that do not end, on real sockets."""

from __future__ import annotations

import http.client
import socket
import time

import pytest

from muntin.inspector.connections import Connection
from muntin.inspector.server import _ANSWERS
from muntin.timeline.store.memory import MemoryStore
from tests.inspector.conftest import inspecting

HALVES = {
    "nothing": (b"",),
    "half a line": (b"GET / HT",),
    "half a header": (b"GET / HTTP/1.1\r\nHost: 127",),
    "headers without an end": (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n",),
    "half a body": (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n0123",),
    "half a chunk": (b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n01",),
    "half of the second": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\nHo"),
}


def seconds_open(port: int, first: tuple[bytes, ...], more: bytes = b"") -> float:
    """Say how long a server keeps a connection, while bytes trickle."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=0.1) as client:
        for each in first:
            client.sendall(each)
            time.sleep(0.05)
        while time.monotonic() - began < 60:
            try:
                client.sendall(more)
                if client.recv(65_536) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
    return time.monotonic() - began


@pytest.mark.parametrize("trickle", [b"", b"a"], ids=["silent", "trickling"])
@pytest.mark.parametrize("half", HALVES.values(), ids=HALVES)
def test_a_request_that_is_not_whole_in_time_is_cut_off(monkeypatch, half, trickle):
    monkeypatch.setattr(Connection, "seconds", 0.5)
    with inspecting(MemoryStore()) as running:
        assert seconds_open(running.port, half, trickle) < 30


def test_a_whole_request_may_take_longer_than_it_may_take_to_arrive(monkeypatch):
    monkeypatch.setattr(Connection, "seconds", 0.5)

    def slow(plans: object) -> dict[str, int]:
        time.sleep(1)
        return {"slow": 1}

    monkeypatch.setitem(_ANSWERS, "sessions", slow)
    with inspecting(MemoryStore()) as running:
        assert running.ask("sessions") == {"slow": 1}


def test_a_connection_is_kept_between_requests(monkeypatch):
    monkeypatch.setattr(Connection, "seconds", 0.5)
    with inspecting(MemoryStore()) as running:
        connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=10)
        for _ in range(2):
            connection.request("GET", "/", headers={"Cookie": running.cookie})
            assert connection.getresponse().read()
            used = connection.sock
            time.sleep(1)
        assert connection.sock is used
        connection.close()
