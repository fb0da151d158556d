"""The command line in a process that has imported it once, and forks for every command.

Hundreds of tests run a command: this spares each what an import costs. A command is still a
process of its own, with the arguments, the environment, the folder and the exit code of one.
What a start itself does is tested with the installed command.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock

_ONE = Lock()


def run_warm(
    command: Sequence[str], data: bytes, env: Mapping[str, str], cwd: Path, seconds: float
) -> subprocess.CompletedProcess[bytes]:
    """Run a command, as `subprocess.run` does, in a fork of the warm process."""
    asked = json.dumps({"command": command, "env": dict(env), "cwd": str(cwd)}).encode()
    with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as errors, _ONE:
        given.write(data)
        given.seek(0)
        line, _ = _warm()
        socket.send_fds(line, [asked], [given.fileno(), out.fileno(), errors.fileno()])
        process = int(line.recv(100))
        line.settimeout(seconds)
        try:
            code = int(line.recv(100))
        except TimeoutError:
            os.kill(process, signal.SIGKILL)
            line.settimeout(None)
            line.recv(100)
            raise subprocess.TimeoutExpired(list(command), seconds) from None
        line.settimeout(None)
        out.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(list(command), code, out.read(), errors.read())


@cache
def _warm() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Return the warm process, and the line to it; it ends when the line does: with the tests."""
    # Messages keep their borders.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    named = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    process = subprocess.Popen(
        [sys.executable, __file__, str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        env={**named, "LANG": "C.UTF-8"},
    )
    theirs.close()
    return ours, process


def _serve(line: socket.socket) -> None:
    """Fork for every command that is asked for; only a fork returns, and is to run it."""
    while True:
        asked, files, _, _ = socket.recv_fds(line, 1_000_000, 3)
        if not asked:
            os._exit(0)
        process = os.fork()
        if not process:
            line.close()
            _become(**json.loads(asked), files=files)
            return
        for file in files:
            os.close(file)
        line.send(str(process).encode())
        _, status = os.waitpid(process, 0)
        line.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(command: list[str], env: dict[str, str], cwd: str, files: list[int]) -> None:
    """Be what a start would have made of this process."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = command
    utf8, lenient = "utf-8", "surrogateescape"
    sys.stdin = open(0, encoding=utf8, errors=lenient, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding=utf8, errors=lenient, closefd=False)  # noqa: SIM115
    sys.stderr = open(  # noqa: SIM115
        2, "w", 1, encoding=utf8, errors="backslashreplace", closefd=False
    )


if __name__ == "__main__":
    sys.path[0] = str(Path(sys.executable).parent)  # where the installed command would be

    import openai  # noqa: F401 (the package that most commands ask)
    from typer.main import get_command

    from muntin.cli.commands import app, main

    get_command(app())
    gc.collect()
    gc.freeze()  # or every fork would copy what it only looks at
    _serve(socket.socket(fileno=int(sys.argv[1])))
    main()
