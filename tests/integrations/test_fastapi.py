"""The server of the page on FastAPI, as it is run: a real server, real requests, a restart."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

from tests.docs.blocks import blocks
from tests.paths import ROOT

PAGE = ROOT / "docs" / "howto" / "fastapi.md"
CODE = next(text for language, text in blocks(PAGE) if language == "python")
SHOWN = next(text for language, text in blocks(PAGE) if language == "text")
PORT = 8191


@contextmanager
def running(folder: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "uvicorn", "server:server", "--port", str(PORT)]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL) as started:
        try:
            yield
        finally:
            started.terminate()


def ask(text: str) -> str:
    for _ in range(200):
        connection = HTTPConnection("127.0.0.1", PORT, timeout=30)
        body, headers = json.dumps({"text": text}), {"content-type": "application/json"}
        try:
            connection.request("POST", "/chat/ada", body, headers)
        except ConnectionRefusedError:  # the server is still starting
            time.sleep(0.1)
            continue
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        return answer.read().decode()
    raise AssertionError("the server does not start")


def test_the_server_of_the_page_streams_what_it_says_and_remembers_over_a_restart(tmp_path):
    (tmp_path / "server.py").write_text(CODE, encoding="utf-8")
    with running(tmp_path):
        assert ask("Hello!") == SHOWN
        assert '"3 "' in ask("And again.")
    with running(tmp_path):
        assert '"5 "' in ask("Do you remember?")
