"""The command, as people run it: away from a terminal, and on one."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.warm import run_warm

MUNTIN = Path(sys.executable).with_name("muntin")

# Contents that would take over a terminal: its title, its screen, colours, direction of text.
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u2066\x7f\r[red]x[/red] :smile: \U000e0041"
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u2066\U000e0041]")

# Makes the terminal at its input its own, as a shell would, and becomes the command.
_AT_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


def environment(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment of nobody's: no keys, no store, no wishes about colours."""
    home = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**home, "LANG": "C.UTF-8", "TERM": "xterm-256color", **(given or {})}


def run(
    *args: str | Path,
    input: str | bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the command, away from any terminal."""
    data = input if isinstance(input, bytes) else input.encode()
    command = [str(each) for each in (MUNTIN, *args)]
    ended = run_warm(command, data, environment(env), cwd or Path.cwd(), 60)
    return subprocess.CompletedProcess(
        ended.args, ended.returncode, ended.stdout.decode(), ended.stderr.decode()
    )


def said(*args: str | Path, **options: Any) -> str:
    """Return what a command prints that succeeds and complains of nothing."""
    ended = run(*args, **options)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def shown(*args: str | Path, **options: Any) -> Any:
    """Return the JSON that a command prints."""
    return json.loads(said(*args, "--json", **options))


def fails(*args: str | Path, **options: Any) -> str:
    """Return the one line by which a command refuses."""
    ended = run(*args, **options)
    assert ended.returncode == 2
    assert not ended.stdout
    assert ended.stderr.startswith("muntin: ")
    assert ended.stderr.count("\n") == 1
    return ended.stderr


def harmless(text: str) -> bool:
    """Say whether a terminal would print a text and obey nothing in it."""
    return not _CONTROL.search(text)


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, process: subprocess.Popen[bytes], ours: int) -> None:
        self.process = process
        self._ours = ours
        self.seen = ""
        self._from = 0

    def type(self, text: str) -> None:
        """Press keys; "\\x03" is Ctrl-C, "\\x04" Ctrl-D."""
        os.write(self._ours, text.encode())

    def wait_for(self, text: str, seconds: float = 30.0) -> str:
        """Read until a text appears behind what was waited for before; return all up to it."""
        deadline = time.monotonic() + seconds
        while text not in self.seen[self._from :]:
            left = deadline - time.monotonic()
            assert left > 0, f"no {text!r} in {self.seen[self._from :]!r}"
            if select.select([self._ours], [], [], left)[0] and not self._read():
                assert text in self.seen[self._from :], f"ended without {text!r}: {self.seen!r}"
        end = self.seen.index(text, self._from) + len(text)
        found, self._from = self.seen[self._from : end], end
        return found

    def end(self, seconds: float = 30.0) -> int:
        """Read to the end and return the exit code."""
        deadline = time.monotonic() + seconds
        while select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))[0]:
            if not self._read():
                break
        return self.process.wait(timeout=max(1.0, deadline - time.monotonic()))

    def _read(self) -> bool:
        try:
            data = os.read(self._ours, 65_536)
        except OSError:  # how Linux tells that the other side is closed
            return False
        self.seen += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)


@contextmanager
def on_terminal(
    *args: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Iterator[Terminal]:
    """Run the command on a terminal of 80 columns."""
    command: Sequence[str | Path] = [sys.executable, "-c", _AT_TERMINAL, MUNTIN, *args]
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(env),
        cwd=cwd,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
