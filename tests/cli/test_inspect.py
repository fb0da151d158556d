"""`muntin inspect`, as it is installed."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from muntin import Slots
from muntin.timeline.store import open_store
from tests.cli.command import MUNTIN
from tests.inspector.conftest import keep


@pytest.fixture
def url(tmp_path) -> str:
    address = f"sqlite:///{tmp_path / 'kept.db'}"
    slots = Slots(100, tokenizer="chars/4")
    slots.add("input", "hello")
    with open_store(address) as store:
        keep(store, "s", slots)
    return address


@contextmanager
def running(*options: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [MUNTIN, "inspect", "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        with process:
            pass


def get(address: str, *, within: float = 15) -> Any:
    """Return an answer, from the moment the server is there."""
    deadline = time.monotonic() + within
    while True:
        try:
            return urllib.request.urlopen(address, timeout=10)
        except urllib.error.HTTPError:
            raise
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def refused(*options: str) -> str:
    """Run a command that must fail in one line, and return the line."""
    done = subprocess.run([MUNTIN, "inspect", *options], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


def test_it_prints_an_address_that_works_until_it_is_interrupted(url):
    with running("--store", url) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        assert get(address).status == 200
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(address.partition("?")[0])
        process.send_signal(signal.SIGINT)
        out, told = process.communicate(timeout=30)
        assert process.returncode == 0
        assert out == ""
        assert "read-only" in told
        assert "Traceback" not in told
        token = address.partition("=")[2]
        assert token not in told


def test_the_address_is_json_if_asked_for(url):
    with running("--store", url, "--json") as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        assert told["store"] == url
        assert get(told["url"]).status == 200


BROWSER = """
import json, os, pathlib, re, stat, sys, time, urllib.request
path = pathlib.Path(sys.argv[1].removeprefix("file://"))
text = path.read_text()
address = re.search("url=([^\\"]+)", text)[1]
token = address.partition("=")[2].encode()
lines = [each.read_bytes() for each in pathlib.Path("/proc").glob("[0-9]*/cmdline")]
told = {
    "address": address,
    "modes": [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)],
    "in_lines": any(token in line for line in lines),
    "in_environment": any(token in each.encode() for each in os.environ.values()),
    "mine": any(path.name.encode() in line for line in lines),
}
while "status" not in told:
    try:
        told["status"] = urllib.request.urlopen(address, timeout=10).status
    except OSError:
        time.sleep(0.05)
pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(told))
"""


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="there is no /proc")
def test_a_browser_is_opened_without_the_token_on_a_command_line(url, tmp_path, monkeypatch):
    browser, told = tmp_path / "browser.py", tmp_path / "browser.json"
    browser.write_text(BROWSER)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("BROWSER", f"{sys.executable} {browser} %s &")
    with running("--store", url, "--open") as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        deadline = time.monotonic() + 30
        while not told.exists() or not told.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        seen = json.loads(told.read_text())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert seen == {
        "address": address,
        "modes": [0o600, 0o700],
        "in_lines": False,
        "in_environment": False,
        "mine": True,
        "status": 200,
    }
    assert list(folder.iterdir()) == []


def test_every_start_has_a_token_of_its_own(url):
    seen = set()
    for _ in range(2):
        with running("--store", url, "--json") as process:
            assert process.stdout is not None
            seen.add(json.loads(process.stdout.readline())["url"].partition("=")[2])
    assert len(seen) == 2


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.com"])
def test_other_addresses_than_this_machines_are_refused(url, host):
    assert "this machine only" in refused("--store", url, "--host", host)


def test_a_store_that_is_not_there_is_not_made(tmp_path):
    file = tmp_path / "none.db"
    assert "no store is there" in refused("--store", f"sqlite:///{file}")
    assert not file.exists()


def test_a_store_in_memory_has_nothing_to_show():
    assert "name a file or a server" in refused("--store", "memory:")


def test_a_port_that_is_taken_is_named(url):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port {port}" in refused("--store", url, "--port", str(port))
